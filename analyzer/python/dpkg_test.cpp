#include "analyzer/python/dpkg.h"

#include <gmock/gmock.h>

#include <string>

namespace varve::python {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

std::vector<DpkgPackage> packages(std::string_view text, DpkgFile kind = DpkgFile::kStatus,
                                  DpkgTally* tally = nullptr) {
  std::vector<DpkgPackage> out;
  const auto counted = read_dpkg_status(text, kind, [&](const DpkgPackage& package) { out.push_back(package); });
  if (tally) *tally = counted;
  return out;
}

constexpr std::string_view kStatus =
    "Package: python3-numpy\n"
    "Status: install ok installed\n"
    "Priority: optional\n"
    "Section: python\n"
    "Installed-Size: 24018\n"
    "Maintainer: Nobody <nobody@example.org>\n"
    "Architecture: amd64\n"
    "Multi-Arch: same\n"
    "Source: numpy (1:1.24.2-1)\n"
    "Version: 1:1.24.2-1+deb12u1\n"
    "Provides: python3-f2py, python3-numpy-abi9 (= 1)\n"
    "Depends: python3 (<< 3.12), python3 (>= 3.11~), python3:any,\n"
    " libblas3 | libblas.so.3, libc6 (>= 2.34)\n"
    "Pre-Depends: dpkg (>= 1.17.14)\n"
    "Recommends: gfortran | fortran-compiler\n"
    "Conffiles:\n"
    " /etc/numpy.conf 0123456789abcdef0123456789abcdef\n"
    "Description: Numerical Python\n"
    " Package: not this\n"
    " .\n"
    " Numpy contains things.\n"
    "\n"
    "Package: gone\n"
    "Status: deinstall ok config-files\n"
    "Essential: yes\n"
    "Multi-Arch: no\n"
    "Version: 2\n"
    "Architecture: all\n";

TEST(DpkgStatusTest, ReadsStanzas) {
  const auto got = packages(kStatus);
  ASSERT_THAT(got, SizeIs(2));
  const auto& numpy = got[0];
  EXPECT_EQ(numpy.name, "python3-numpy");
  EXPECT_EQ(numpy.version, "1:1.24.2-1+deb12u1");
  EXPECT_EQ(numpy.architecture, "amd64");
  EXPECT_EQ(numpy.multi_arch, "same");
  EXPECT_EQ(numpy.source, "numpy");
  EXPECT_EQ(numpy.section, "python");
  EXPECT_TRUE(numpy.installed);
  EXPECT_EQ(numpy.installed_bytes, 24018u * 1024);
  ASSERT_THAT(numpy.depends, SizeIs(6));
  EXPECT_EQ(numpy.depends[0][0].name, "dpkg");  // what must be there before comes first
  EXPECT_EQ(numpy.depends[1][0].relation, "<<");
  EXPECT_EQ(numpy.depends[1][0].version, "3.12");
  EXPECT_EQ(numpy.depends[3][0].architecture, "any");
  ASSERT_THAT(numpy.depends[4], SizeIs(2));
  EXPECT_EQ(numpy.depends[4][1].name, "libblas.so.3");
  EXPECT_THAT(numpy.recommends, SizeIs(1));
  ASSERT_THAT(numpy.provides, SizeIs(2));
  EXPECT_EQ(numpy.provides[1].version, "1");
  EXPECT_FALSE(got[1].installed);
  EXPECT_TRUE(got[1].essential);
  EXPECT_EQ(got[1].multi_arch, "");
  EXPECT_EQ(got[1].source, "gone");
  EXPECT_FALSE(got[1].installed_bytes);
}

TEST(DpkgStatusTest, KnowsTheStatesThatHaveFiles) {
  const auto installed = [](const std::string& status) {
    return packages("Package: a\nStatus: " + status + "\n")[0].installed;
  };
  for (const auto* const status : {"install ok installed", "hold ok installed", "install ok unpacked",
                                   "install ok half-configured", "install ok triggers-pending"})
    EXPECT_TRUE(installed(status)) << status;
  for (const auto* const status :
       {"deinstall ok config-files", "purge ok not-installed", "install reinstreq half-installed", "", "installed-not"})
    EXPECT_FALSE(installed(status)) << status;
}

TEST(DpkgStatusTest, StatusDNeedsNoStatus) {
  EXPECT_TRUE(packages("Package: base-files\nVersion: 12\n", DpkgFile::kStatusD)[0].installed);
  EXPECT_FALSE(packages("Package: base-files\nVersion: 12\n", DpkgFile::kStatus)[0].installed);
}

TEST(DpkgStatusTest, CountsBrokenStanzasAndGoesOn) {
  DpkgTally tally;
  const auto got = packages(
      "# comment\nVersion: 1\n\n\nPackage: b\nnonsense\n\n continued\nPackage: c\n\nPackage: ../d\n\nPackage: e",
      DpkgFile::kStatus, &tally);
  ASSERT_THAT(got, SizeIs(3));
  EXPECT_EQ(got[0].name, "b");
  EXPECT_EQ(got[1].name, "c");
  EXPECT_EQ(got[2].name, "e");
  EXPECT_EQ(tally.packages, 3u);
  EXPECT_EQ(tally.unreadable, 4u);
  EXPECT_EQ(tally.first_unreadable, 2u);
}

TEST(DpkgStatusTest, SizesDoNotOverflow) {
  EXPECT_FALSE(packages("Package: a\nInstalled-Size: 18446744073709551615\n")[0].installed_bytes);
  EXPECT_FALSE(packages("Package: a\nInstalled-Size: -1\n")[0].installed_bytes);
}

TEST(DpkgDependenciesTest, LeaveOutWhatCannotBeRead) {
  const auto read = parse_dpkg_dependencies("a (>= 1) [amd64] <!nocheck>, (b), c d, e | | f (= 2:3), g (x, h (<2)");
  ASSERT_THAT(read, SizeIs(3));
  EXPECT_EQ(read[0][0].relation, ">=");
  ASSERT_THAT(read[1], SizeIs(2));
  EXPECT_EQ(read[1][1].version, "2:3");
  EXPECT_EQ(read[2][0].relation, "<=");
  EXPECT_THAT(parse_dpkg_dependencies(""), IsEmpty());
}

TEST(DpkgListTest, GivesPathsWithoutTheFirstSlash) {
  std::vector<std::string> paths;
  read_dpkg_list("/.\n/usr\n/usr/bin/a b\nrelative\n\n/\n/etc/x",
                 [&](std::string_view path) { paths.emplace_back(path); });
  EXPECT_THAT(paths, ElementsAre("usr", "usr/bin/a b", "etc/x"));
}

TEST(DpkgMd5sumsTest, GivesPathsAndDigests) {
  const std::string md5(32, 'c');
  std::vector<std::string> lines;
  read_dpkg_md5sums(md5 + "  usr/bin/a b\n" + md5 + " *./usr/x\nshort  y\n" + md5 + "  \n" + md5 + "  /z",
                    [&](std::string_view path, std::string_view digest) {
                      EXPECT_EQ(digest, md5);
                      lines.emplace_back(path);
                    });
  EXPECT_THAT(lines, ElementsAre("usr/bin/a b", "usr/x", "z"));
}

TEST(DpkgInfoNameTest, TellsPackageArchitectureAndKind) {
  const auto name = parse_dpkg_info_name("libc6:amd64.list");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->package, "libc6");
  EXPECT_EQ(name->architecture, "amd64");
  EXPECT_EQ(name->kind, "list");
  EXPECT_EQ(parse_dpkg_info_name("python3.11-minimal.md5sums")->package, "python3.11-minimal");
  EXPECT_FALSE(parse_dpkg_info_name("format"));
  EXPECT_FALSE(parse_dpkg_info_name(".list"));
}

}  // namespace
}  // namespace varve::python
