#include "analyzer/packages/inventory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "testing/memory_source.h"

namespace varve::packages {
namespace {

using test::MemorySource;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;

const std::string kSite = "usr/local/lib/python3.11/site-packages";

// A Python 3.11.9 in usr/local, as the official images have it.
MemorySource python_image() {
  MemorySource image;
  image.add("usr/local/bin/python3.11", "ELF")
      .link("usr/local/bin/python3", "python3.11")
      .add("usr/local/lib/python3.11/os.py", "#");
  image.add("usr/local/include/python3.11/patchlevel.h", "#define PY_VERSION              \"3.11.9\"\n").folder(kSite);
  return image;
}

struct Wheel {
  std::string name;
  std::string version = "1.0";
  std::map<std::string, std::string> files = {};    // relative to the site folder
  std::string metadata = {};                        // further lines
  std::map<std::string, std::string> records = {};  // further files of the dist-info
};

void install(MemorySource& image, const Wheel& wheel, const std::string& site = kSite, std::uint32_t layer = 0) {
  const auto info = wheel.name + "-" + wheel.version + ".dist-info";
  std::string record;
  for (const auto& [path, content] : wheel.files) {
    record += fmt::format("{},,{}\n", path, content.size());
    auto folder = site;
    std::string_view rest = path;
    for (; rest.starts_with("../"); rest.remove_prefix(3)) folder = folder.substr(0, folder.rfind('/'));
    image.add((folder.empty() ? "" : folder + "/") + std::string(rest), content, layer);
  }
  record += info + "/METADATA,,\n" + info + "/RECORD,,\n";
  const auto at = site.empty() ? info : site + "/" + info;
  image.add(
      at + "/METADATA",
      fmt::format("Metadata-Version: 2.1\nName: {}\nVersion: {}\n{}\n", wheel.name, wheel.version, wheel.metadata),
      layer);
  image.add(at + "/RECORD", record, layer).add(at + "/INSTALLER", "pip\n", layer);
  for (const auto& [name, content] : wheel.records) image.add(at + "/" + name, content, layer);
}

const Distribution& find(const Inventory& inventory, const std::string& name) {
  for (const auto& one : inventory.distributions) {
    if (one.name == name) return one;
  }
  throw std::runtime_error("no distribution " + name);
}

std::vector<std::string> names(const Inventory& inventory) {
  std::vector<std::string> all;
  for (const auto& one : inventory.distributions)
    all.push_back(fmt::format("{} {} {}", one.name, one.version, source_name(one.source)));
  return all;
}

std::vector<std::string> names_of(const Inventory& inventory, const std::vector<std::uint32_t>& numbers) {
  std::vector<std::string> all;
  for (const auto i : numbers) all.push_back(inventory.distributions.at(i).name);
  return all;
}
std::vector<std::string> module_owners(const Inventory& inventory, std::string_view module) {
  return names_of(inventory, inventory.modules.owners(module));
}
std::vector<std::string> path_owners(const Inventory& inventory, std::string_view path) {
  return names_of(inventory, inventory.owners_of_path(path));
}

TEST(InventoryTest, ReadsAWheelWholly) {
  auto image = python_image();
  install(image, {.name = "Foo.Bar",
                  .version = "2.1",
                  .files = {{"foo/__init__.py", "12345"},
                            {"foo/_c.cpython-311-x86_64-linux-gnu.so", "123"},
                            {"../../../bin/foo", "1"}},
                  .metadata = "Summary: does it\nRequires-Dist: six>=1.0\nRequires-Dist: win; sys_platform=='win32'\n"
                              "Requires-Dist: extra; extra=='more'\nProvides-Extra: more",
                  .records = {{"entry_points.txt", "[console_scripts]\nfoo = foo:main\n[plugins]\na = foo:a\n"},
                              {"REQUESTED", ""}}});
  image.add(kSite + "/foo/__pycache__/__init__.cpython-311.pyc", "bytecode");
  const auto inventory = read_inventory(image);
  ASSERT_EQ(inventory.distributions.size(), 1u);
  const auto& foo = inventory.distributions[0];
  EXPECT_EQ(foo.normalized, "foo-bar");
  EXPECT_EQ(foo.version, "2.1");
  EXPECT_EQ(foo.site, kSite);
  EXPECT_EQ(foo.installer, "pip");
  EXPECT_TRUE(foo.requested);
  EXPECT_EQ(foo.summary, "does it");
  EXPECT_EQ(foo.files, 4u + 5u);  // with its bytecode, and five of its dist-info
  EXPECT_EQ(foo.missing_files, 0u);
  EXPECT_THAT(foo.imports, ElementsAre("foo"));
  ASSERT_EQ(foo.scripts.size(), 1u);
  EXPECT_EQ(foo.scripts[0].target, "foo:main");
  EXPECT_THAT(foo.entry_point_groups, ElementsAre("console_scripts", "plugins"));
  ASSERT_EQ(foo.needs.size(), 3u);
  EXPECT_TRUE(foo.needs[0].applies);
  EXPECT_FALSE(foo.needs[1].applies);
  EXPECT_THAT(foo.needs[2].extras, ElementsAre("more"));
  EXPECT_THAT(path_owners(inventory, "usr/local/bin/foo"), ElementsAre("Foo.Bar"));
  EXPECT_THAT(path_owners(inventory, kSite + "/foo/anything/below"), ElementsAre("Foo.Bar"));
  EXPECT_THAT(path_owners(inventory, "usr/local/bin/python3.11"), IsEmpty());
}

TEST(InventoryTest, FindsTheInterpreterThatPython3Means) {
  auto image = python_image();
  image.add("usr/bin/python3.9", "ELF")
      .link("usr/bin/python3", "python3.9")
      .add("usr/lib/python3.9/os.py", "#")
      .folder("usr/lib/python3/dist-packages");
  image.folder("usr/local/lib/python3.9/dist-packages")
      .link("opt/venv/bin/python3", "/usr/bin/python3.9")
      .folder("opt/venv/lib/python3.9/site-packages");
  image.add("opt/venv/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.9.2\n");
  image.facts_.environment["PATH"] = "/usr/local/bin:/usr/bin";
  image.facts_.environment["PYTHONPATH"] = "/srv/own:/nowhere";
  image.folder("srv/own");
  const auto inventory = read_inventory(image);
  ASSERT_EQ(inventory.interpreters.size(), 3u);
  EXPECT_EQ(inventory.interpreters[0].version, "3.11.9");
  EXPECT_THAT(inventory.interpreters[0].sites, ElementsAre("srv/own", kSite));
  EXPECT_EQ(inventory.interpreters[0].environment.at("python_version"), "3.11");
  EXPECT_EQ(inventory.interpreters[0].environment.at("platform_machine"), "x86_64");
  EXPECT_EQ(inventory.interpreters[1].executable, "opt/venv/bin/python3");
  EXPECT_EQ(inventory.interpreters[1].version, "3.9.2");
  EXPECT_THAT(inventory.interpreters[1].sites,
              ElementsAre("srv/own", "opt/venv/lib/python3.9/site-packages", "usr/local/lib/python3.9/dist-packages",
                          "usr/lib/python3/dist-packages"));
  EXPECT_EQ(inventory.interpreters[2].executable, "usr/bin/python3.9");

  image.facts_.environment["PATH"] = "/opt/venv/bin:/usr/local/bin";
  EXPECT_EQ(read_inventory(image).interpreters[0].executable, "opt/venv/bin/python3");
}

TEST(InventoryTest, DebiansPythonLooksIntoUsrLocalAlsoWithoutPackagesOfItsOwn) {
  auto image = python_image();
  image.add("usr/bin/python3.9", "ELF")
      .add("usr/lib/python3.9/os.py", "#")
      .folder("usr/local/lib/python3.9/dist-packages");
  const auto inventory = read_inventory(image);
  ASSERT_EQ(inventory.interpreters.size(), 2u);
  EXPECT_THAT(inventory.interpreters[1].sites, ElementsAre("usr/local/lib/python3.9/dist-packages"));
}

TEST(InventoryTest, PathFilesAddFoldersToThePath) {
  auto image = python_image();
  image.add(kSite + "/a.pth", "../extra\n# no\nimport os; os.getcwd()\n/srv/more\nmissing\n")
      .folder("usr/local/lib/python3.11/extra")
      .folder("srv/more");
  install(image, {.name = "inner", .files = {{"inner.py", "x"}}}, "srv/more");
  const auto inventory = read_inventory(image);
  EXPECT_THAT(inventory.interpreters[0].sites, ElementsAre(kSite, "usr/local/lib/python3.11/extra", "srv/more"));
  EXPECT_THAT(module_owners(inventory, "inner"), ElementsAre("inner"));
}

TEST(InventoryTest, NamespacesOfAllStylesAreToldByTheirParts) {
  for (const std::string style : {"pep420", "pkgutil", "pkg_resources", "metadata"}) {
    auto image = python_image();
    const std::string init = style == "pkgutil" ? "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n"
                             : style == "pkg_resources" ? "__import__('pkg_resources').declare_namespace(__name__)\n"
                                                        : "# nothing\n";
    const auto wheel = [&](const std::string& name, const std::string& part) {
      Wheel made{
          .name = name,
          .files = {{"google/cloud/" + part + "/__init__.py", "x"}, {"google/cloud/" + part + "/client.py", "y"}}};
      if (style != "pep420") made.files["google/__init__.py"] = made.files["google/cloud/__init__.py"] = init;
      if (style == "metadata") made.records["namespace_packages.txt"] = "google\ngoogle.cloud\n";
      return made;
    };
    install(image, wheel("google-cloud-storage", "storage"));
    install(image, wheel("google-cloud-vision", "vision"));
    const auto inventory = read_inventory(image);
    EXPECT_THAT(module_owners(inventory, "google.cloud.storage.client"), ElementsAre("google-cloud-storage")) << style;
    EXPECT_THAT(module_owners(inventory, "google.cloud.vision"), ElementsAre("google-cloud-vision")) << style;
    EXPECT_THAT(module_owners(inventory, "google.colab"), IsEmpty()) << style;
    EXPECT_THAT(module_owners(inventory, "google.cloud"), IsEmpty()) << style;
    EXPECT_THAT(find(inventory, "google-cloud-storage").imports, ElementsAre("google.cloud.storage")) << style;
  }
}

TEST(InventoryTest, ANamespaceWithOnePartStillNamesItsPart) {
  auto image = python_image();
  install(image, {.name = "google-cloud-storage", .files = {{"google/cloud/storage/__init__.py", "x"}}});
  const auto inventory = read_inventory(image);
  EXPECT_THAT(find(inventory, "google-cloud-storage").imports, ElementsAre("google.cloud.storage"));
  EXPECT_THAT(module_owners(inventory, "google"), ElementsAre("google-cloud-storage"));  // nobody else could be meant
  EXPECT_THAT(module_owners(inventory, "googly"), IsEmpty());
}

TEST(InventoryTest, AnOldNamespaceWithOnePartIsKnownByTheName) {
  auto image = python_image();
  const std::string extend = "__path__ = __import__('pkgutil').extend_path(__path__, __name__)\n";
  install(image, {.name = "backports.tarfile",
                  .files = {{"backports/__init__.py", extend}, {"backports/tarfile/__init__.py", "x"}}});
  install(image, {.name = "plain-name", .files = {{"plain/__init__.py", "x = 1\n"}, {"plain/sub/__init__.py", "x"}}});
  const auto inventory = read_inventory(image);
  EXPECT_THAT(find(inventory, "backports.tarfile").imports, ElementsAre("backports.tarfile"));
  EXPECT_THAT(find(inventory, "plain-name").imports, ElementsAre("plain"));
}

TEST(InventoryTest, APluginInsideAnotherPackageOwnsOnlyItsModule) {
  auto image = python_image();
  install(image, {.name = "host",
                  .files = {{"host/__init__.py", "x"}, {"host/plugins/__init__.py", "x"}, {"host/core.py", "x"}}});
  install(image, {.name = "host-plugin", .files = {{"host/plugins/fast.py", "x"}}});
  const auto inventory = read_inventory(image);
  EXPECT_THAT(module_owners(inventory, "host.core"), ElementsAre("host"));
  EXPECT_THAT(module_owners(inventory, "host.plugins"), ElementsAre("host"));
  EXPECT_THAT(module_owners(inventory, "host.plugins.fast"), ElementsAre("host-plugin"));
  EXPECT_THAT(find(inventory, "host-plugin").imports, ElementsAre("host.plugins.fast"));
}

TEST(InventoryTest, SeveralDistributionsMayOwnOnePath) {
  auto image = python_image();
  const std::map<std::string, std::string> files{{"cv2/__init__.py", "x"}, {"cv2/cv2.abi3.so", "1234"}};
  install(image, {.name = "opencv-python", .files = files});
  install(image, {.name = "opencv-python-headless", .files = files});
  const auto inventory = read_inventory(image);
  EXPECT_THAT(module_owners(inventory, "cv2"), ElementsAre("opencv-python", "opencv-python-headless"));
  EXPECT_THAT(path_owners(inventory, kSite + "/cv2/cv2.abi3.so"),
              ElementsAre("opencv-python", "opencv-python-headless"));
  const auto& one = find(inventory, "opencv-python");
  EXPECT_EQ(one.shared_files, 2u);
  EXPECT_THAT(one.imports, ElementsAre("cv2"));
}

TEST(InventoryTest, CondaAndItsPythonMetadataAreOneDistribution) {
  auto image = MemorySource();
  const std::string prefix = "opt/conda";
  const auto site = prefix + "/lib/python3.10/site-packages";
  image.add(prefix + "/bin/python3.10", "ELF").add(prefix + "/lib/python3.10/os.py", "#");
  image.facts_.environment["PATH"] = "/opt/conda/bin";
  install(image,
          {.name = "torch",
           .version = "2.1.0",
           .files = {{"torch/__init__.py", "x"}},
           .metadata = "Requires-Dist: filelock"},
          site);
  image.add(prefix + "/lib/libtorch.so", "12345678");
  image.add(prefix + "/conda-meta/pytorch-2.1.0-py310_cpu.json",
            R"({"name":"pytorch","version":"2.1.0","build":"py310_cpu","depends":["python >=3.10","mkl 2023.*"],
               "files":["lib/python3.10/site-packages/torch/__init__.py",
                         "lib/python3.10/site-packages/torch-2.1.0.dist-info/METADATA",
                         "lib/python3.10/site-packages/torch-2.1.0.dist-info/RECORD","lib/libtorch.so",
                         "lib/gone.so"]})");
  image.add(prefix + "/conda-meta/python-3.10.13-0.json",
            R"({"name":"python","version":"3.10.13","files":["bin/python3.10","lib/python3.10/os.py"]})");
  const auto inventory = read_inventory(image);
  EXPECT_THAT(names(inventory), ElementsAre("python 3.10.13 conda", "torch 2.1.0 conda"));
  EXPECT_EQ(inventory.interpreters.at(0).version, "3.10.13");
  const auto& torch = find(inventory, "torch");
  EXPECT_EQ(torch.package, "pytorch");
  EXPECT_EQ(torch.source, Source::kConda);
  EXPECT_THAT(path_owners(inventory, "opt/conda/lib/libtorch.so"), ElementsAre("torch"));
  ASSERT_EQ(torch.needs.size(), 3u);
  EXPECT_EQ(torch.needs[1].requirement.name, "python");
  EXPECT_EQ(torch.needs[1].satisfied_by, "3.10.13");
  EXPECT_EQ(torch.needs[2].satisfied_by, "");
}

TEST(InventoryTest, DpkgOwnsItsFilesAndIsOneWithItsPythonMetadata) {
  MemorySource image;
  const std::string site = "usr/lib/python3/dist-packages";
  image.add("usr/bin/python3.11", "ELF")
      .link("usr/bin/python3", "python3.11")
      .add("usr/lib/python3.11/os.py", "#")
      .link("lib", "usr/lib");
  image.add(site + "/yaml/__init__.py", "x").add(site + "/yaml/__pycache__/__init__.cpython-311.pyc", "b");
  image.add(site + "/PyYAML-6.0.egg-info/PKG-INFO", "Metadata-Version: 2.1\nName: PyYAML\nVersion: 6.0\n")
      .add(site + "/PyYAML-6.0.egg-info/top_level.txt", "yaml\n");
  image.add("usr/lib/libz.so", "zzz");
  image.add(
      "var/lib/dpkg/status",
      "Package: python3-yaml\nStatus: install ok installed\nArchitecture: amd64\nVersion: 6.0-3\n"
      "Depends: python3 (>= 3.11), libyaml-0-2 | zlib1g\n\n"
      "Package: zlib1g\nStatus: install ok installed\nArchitecture: amd64\nMulti-Arch: same\nVersion: 1:1.2\n\n"
      "Package: python3.11-minimal\nStatus: install ok installed\nArchitecture: amd64\nVersion: 3.11.2-6+deb12u4\n\n"
      "Package: gone\nStatus: deinstall ok config-files\nVersion: 1\n");
  image.add("var/lib/dpkg/info/python3-yaml.list",
            "/.\n/usr\n/usr/lib/python3/dist-packages/yaml/__init__.py\n"
            "/usr/lib/python3/dist-packages/PyYAML-6.0.egg-info/PKG-INFO\n");
  image.add("var/lib/dpkg/info/zlib1g:amd64.list", "/.\n/lib\n/lib/libz.so\n");
  image.add("var/lib/dpkg/info/python3.11-minimal.list", "/usr/bin/python3.11\n/usr/lib/python3.11/os.py\n");
  const auto inventory = read_inventory(image);
  EXPECT_THAT(names(inventory),
              ElementsAre("python3.11-minimal 3.11.2-6+deb12u4 dpkg", "PyYAML 6.0 dpkg", "zlib1g 1:1.2 dpkg"));
  EXPECT_EQ(inventory.interpreters.at(0).version, "3.11.2");
  const auto& yaml = find(inventory, "PyYAML");
  EXPECT_EQ(yaml.package, "python3-yaml");
  EXPECT_EQ(yaml.package_version, "6.0-3");
  EXPECT_EQ(yaml.files, 4u);  // the bytecode and top_level.txt, which dpkg does not list, too
  EXPECT_THAT(yaml.imports, ElementsAre("yaml"));
  EXPECT_THAT(path_owners(inventory, "usr/lib/libz.so"),
              ElementsAre("zlib1g"));  // listed under the old name of the folder
  ASSERT_EQ(yaml.needs.size(), 2u);
  EXPECT_EQ(yaml.needs[1].satisfied_by, "1:1.2");
}

TEST(InventoryTest, VendoredDistributionsBelongToTheOuterOne) {
  auto image = python_image();
  install(image, {.name = "setuptools",
                  .files = {{"setuptools/__init__.py", "x"},
                            {"setuptools/_vendor/wheel/__init__.py", "x"},
                            {"setuptools/_vendor/wheel-0.43.dist-info/METADATA", "Name: wheel\nVersion: 0.43\n"},
                            {"setuptools/_vendor/wheel-0.43.dist-info/RECORD", "wheel/__init__.py,,1\n"}}});
  const auto inventory = read_inventory(image);
  const auto& wheel = find(inventory, "wheel");
  EXPECT_EQ(wheel.vendored_by, "setuptools");
  EXPECT_EQ(wheel.files, 0u);
  EXPECT_THAT(module_owners(inventory, "wheel"), IsEmpty());
  EXPECT_THAT(path_owners(inventory, kSite + "/setuptools/_vendor/wheel/__init__.py"), ElementsAre("setuptools"));
}

TEST(InventoryTest, OfTwoRecordsOfOneNameTheUpperLayersIsTrue) {
  auto image = python_image();
  install(image, {.name = "foo", .version = "9.0", .files = {{"foo/__init__.py", "old"}}}, kSite, 0);
  install(image, {.name = "foo", .version = "2.0", .files = {{"foo/__init__.py", "new"}}}, kSite, 1);
  const auto inventory = read_inventory(image);
  EXPECT_THAT(names(inventory), ElementsAre("foo 2.0 pip"));
  ASSERT_EQ(inventory.waste.size(), 1u);
  EXPECT_EQ(inventory.waste[0].why, Waste::Why::kStaleMetadata);
  EXPECT_EQ(inventory.waste[0].layer, 0u);
  EXPECT_EQ(inventory.waste[0].by_layer, 1u);
  EXPECT_THAT(inventory.problems, ElementsAre(HasSubstr("foo-9.0.dist-info: stale")));
}

TEST(InventoryTest, EditableInstallsOwnTheirSources) {
  auto image = python_image();
  image.add("src/proj/pkg/__init__.py", "x").add("src/proj/pkg/sub/mod.py", "x").add("src/proj/setup.py", "x");
  image.add("src/proj/pkg.egg-info/PKG-INFO", "Name: pkg\nVersion: 0.1\n");
  image.add("src/flat/other/__init__.py", "x").add("src/flat/pyproject.toml", "x");
  install(image,
          {.name = "pkg",
           .version = "0.1",
           .files = {{"__editable__.pkg-0.1.pth",
                      "import __editable___pkg_0_1_finder; __editable___pkg_0_1_finder.install()"},
                     {"__editable___pkg_0_1_finder.py",
                      "MAPPING: dict[str, str] = {'pkg': '/src/proj/pkg'}\nNAMESPACES: dict[str, list[str]] = {}\n"
                      "PATH_PLACEHOLDER = ''\n"}},
           .records = {{"direct_url.json", R"({"url":"file:///src/proj","dir_info":{"editable":true}})"}}});
  install(image, {.name = "flat",
                  .files = {{"_flat.pth", "/src/flat\n"}},
                  .records = {{"direct_url.json", R"({"url":"file:///src/flat","dir_info":{"editable":true}})"}}});
  const auto inventory = read_inventory(image);
  EXPECT_THAT(names(inventory), ElementsAre("flat 1.0 pip", "pkg 0.1 pip"));
  EXPECT_TRUE(find(inventory, "pkg").editable);
  EXPECT_THAT(module_owners(inventory, "pkg.sub.mod"), ElementsAre("pkg"));
  EXPECT_THAT(path_owners(inventory, "src/proj/pkg/sub/mod.py"), ElementsAre("pkg"));
  EXPECT_THAT(module_owners(inventory, "other"), ElementsAre("flat"));
  EXPECT_THAT(path_owners(inventory, "src/flat/other/__init__.py"), ElementsAre("flat"));
}

TEST(InventoryTest, DevelopedEggsAreEditable) {
  auto image = python_image();
  image.add(kSite + "/easy-install.pth", "/src/old\n").add(kSite + "/old-name.egg-link", "/src/old\n.\n");
  image.add("src/old/setup.py", "x")
      .add("src/old/oldname/__init__.py", "x")
      .add("src/old/old_name.egg-info/PKG-INFO", "Name: old-name\nVersion: 1\n");
  image.add("src/old/old_name.egg-info/top_level.txt", "oldname\n")
      .add("src/old/old_name.egg-info/requires.txt", "six\n\n[more]\nfoo\n");
  const auto inventory = read_inventory(image);
  EXPECT_THAT(names(inventory), ElementsAre("old-name 1 egg"));
  const auto& old = inventory.distributions[0];
  EXPECT_TRUE(old.editable);
  EXPECT_THAT(old.imports, ElementsAre("oldname"));
  ASSERT_EQ(old.needs.size(), 2u);
  EXPECT_THAT(old.needs[1].extras, ElementsAre("more"));
}

TEST(InventoryTest, ImportNamesOfTheMetadataCountFirst) {
  auto image = python_image();
  install(image, {.name = "said",
                  .files = {{"said/__init__.py", "x"}, {"_hidden/__init__.py", "x"}},
                  .metadata = "Import-Name: said\nImport-Name: _hidden; private"});
  install(image, {.name = "none", .files = {{"none_at_all.py", "x"}}, .metadata = "Import-Name:"});
  const auto inventory = read_inventory(image);
  EXPECT_THAT(find(inventory, "said").imports, ElementsAre("said"));
  EXPECT_THAT(find(inventory, "none").imports, IsEmpty());
  EXPECT_THAT(module_owners(inventory, "none_at_all"), IsEmpty());
}

TEST(InventoryTest, TopLevelNamesFollowTheRulesOfTheImagesPython) {
  const auto top_level = [](const std::string& version) {
    MemorySource image;
    const auto site = "opt/lib/python" + version + "/site-packages";
    image.add("opt/bin/python" + version, "ELF").add("opt/lib/python" + version + "/os.py", "#");
    install(image,
            {.name = "foo",
             .files = {{"foo.py", "x"}, {"_foo.abi3.so", "x"}, {"pkg/mod.so", "x"}, {"../../../bin/tool.py", "x"}}},
            site);
    return read_inventory(image).distributions.at(0).top_level;
  };
  EXPECT_THAT(top_level("3.10"), IsEmpty());
  EXPECT_THAT(top_level("3.11"), ElementsAre("foo"));
  EXPECT_THAT(top_level("3.12"), ElementsAre("_foo", "foo", "pkg"));
}

TEST(InventoryTest, SortsOutWhatNobodyOwns) {
  auto image = python_image();
  install(image, {.name = "foo", .files = {{"foo/__init__.py", "12345"}}});
  image.add(kSite + "/patch.py", "1234").add("srv/data/a/b", "12345678").add("srv/data/c", "12");
  const auto inventory = read_inventory(image);
  std::vector<std::string> folders;
  for (const auto& one : inventory.unowned) folders.push_back(fmt::format("{} {} {}", one.path, one.files, one.bytes));
  EXPECT_THAT(folders, UnorderedElementsAre("srv 2 10", kSite + " 1 4", "usr/local/lib/python3.11 1 1",
                                            "usr/local/bin 2 3", HasSubstr("usr/local/include 1")));
  EXPECT_THAT(path_owners(inventory, kSite + "/patch.py"), IsEmpty());
}

TEST(InventoryTest, MarksWhatHasCudaAndWhatNeedsIt) {
  auto image = python_image();
  install(image, {.name = "nvidia-cublas-cu12",
                  .files = {{"nvidia/__init__.py", ""},
                            {"nvidia/cublas/__init__.py", ""},
                            {"nvidia/cublas/lib/libcublas.so.12", "x"}}});
  install(image, {.name = "nvidia-cudnn-cu12",
                  .files = {{"nvidia/__init__.py", ""},
                            {"nvidia/cudnn/__init__.py", ""},
                            {"nvidia/cu13/lib/libcheckpoint.so", ""}}});
  install(image, {.name = "needy", .files = {{"needy.py", ""}}, .metadata = "Requires-Dist: nvidia-cublas-cu12"});
  install(image, {.name = "own-kernels",
                  .files = {{"own/_cuda.cpython-311-x86_64-linux-gnu.so", ""}, {"own/__init__.py", ""}}});
  install(image, {.name = "plain", .files = {{"plain.py", ""}}});
  const auto inventory = read_inventory(image);
  for (const auto& one : inventory.distributions) EXPECT_EQ(one.gpu, one.name != "plain") << one.name;
  EXPECT_THAT(find(inventory, "nvidia-cublas-cu12").imports, ElementsAre("nvidia.cublas"));
  EXPECT_THAT(module_owners(inventory, "nvidia.cudnn.x"), ElementsAre("nvidia-cudnn-cu12"));
}

TEST(InventoryTest, AnEmptyInitAmongTheLibrariesOfOthersMakesNobodyTheirOwner) {
  auto image = python_image();
  install(image,
          {.name = "nvidia-curand-cu12", .files = {{"nvidia/__init__.py", ""}, {"nvidia/curand/__init__.py", ""}}});
  install(image, {.name = "nvidia-cublas-cu12", .files = {{"nvidia/cublas/lib/libcublas.so.12", "x"}}});
  const auto inventory = read_inventory(image);
  EXPECT_THAT(find(inventory, "nvidia-curand-cu12").imports, ElementsAre("nvidia.curand"));
  EXPECT_THAT(find(inventory, "nvidia-cublas-cu12").imports, IsEmpty());
}

TEST(InventoryTest, ChecksNeedsWithTheExtrasThatOthersAskFor) {
  auto image = python_image();
  install(image,
          {.name = "app", .files = {{"app.py", ""}}, .metadata = "Requires-Dist: lib[fast]>=1\nRequires-Dist: old<1"});
  install(image, {.name = "lib",
                  .version = "1.5",
                  .files = {{"lib.py", ""}, {"gone.py", ""}},
                  .metadata = "Provides-Extra: fast\nProvides-Extra: other\nRequires-Dist: speed; extra=='fast'\n"
                              "Requires-Dist: unused; extra=='other'"});
  install(image, {.name = "old", .version = "2.0", .files = {{"old.py", ""}}});
  const auto inventory = read_inventory(image);
  std::vector<std::string> findings;
  for (const auto& finding : check_inventory(inventory)) findings.push_back(finding.distribution + " " + finding.text);
  EXPECT_THAT(findings,
              ElementsAre("app needs old<1; 2.0 is installed",
                          HasSubstr("lib needs speed; extra=='fast', with the extra fast, which is not installed")));
}

TEST(InventoryTest, BrokenRecordsAreProblemsAndStopNothing) {
  auto image = python_image();
  install(image, {.name = "good", .files = {{"good.py", ""}}});
  image.folder(kSite + "/empty-1.0.dist-info")
      .add(kSite + "/nameless-1.0.dist-info/METADATA", "no fields here")
      .add(kSite + "/~ood-0.9.dist-info/METADATA", "Name: good\nVersion: 0.9\n");
  image.add(kSite + "/bad-1.0.dist-info/METADATA", "Name: bad\nVersion: 1.0\n")
      .add(kSite + "/bad-1.0.dist-info/RECORD", "../../../../../../../etc/passwd,,\n\"never ends\n");
  image.add(kSite + "/good-1.0.dist-info/licenses/inner-2.0.dist-info/LICENSE", "MIT");
  image.add(kSite + "/bad-1.0.dist-info/direct_url.json", "{")
      .add("opt/conda-meta/x.json", "[]")
      .add(kSite + "/z.egg", "PK");
  const auto inventory = read_inventory(image);
  EXPECT_THAT(names(inventory), ElementsAre("bad 1.0 pip", "good 1.0 pip"));
  EXPECT_THAT(inventory.problems, Contains(HasSubstr("empty-1.0.dist-info: no metadata")));
  EXPECT_THAT(inventory.problems, Contains(HasSubstr("nameless-1.0.dist-info: no metadata")));
  EXPECT_THAT(inventory.problems, Contains(HasSubstr("~ood-0.9.dist-info: left behind")));
  EXPECT_THAT(inventory.problems, Contains(HasSubstr("lead out of the image")));
  EXPECT_THAT(inventory.problems, Contains(HasSubstr("direct_url.json")));
  EXPECT_THAT(inventory.problems, Contains(HasSubstr("x.json")));
  EXPECT_THAT(inventory.problems, Contains(HasSubstr("zipped egg")));
  EXPECT_THAT(inventory.problems, Not(Contains(HasSubstr("inner"))));
}

TEST(InventoryTest, APathThatThousandsClaimCostsNoMemory) {
  auto image = python_image();
  for (int i = 0; i < 3000; ++i)
    install(image, {.name = fmt::format("d{}", i),
                    .files = {{"shared/__init__.py", ""}, {fmt::format("shared/m{}.py", i), ""}}});
  const auto inventory = read_inventory(image);
  EXPECT_EQ(inventory.distributions.size(), 3000u);
  EXPECT_LE(inventory.owners_of_path(kSite + "/shared/__init__.py").size(), 256u);
  EXPECT_THAT(module_owners(inventory, "shared.m2999"), ElementsAre("d2999"));
}

TEST(InventoryTest, APlainSiteFolderIsEnough) {
  MemorySource target;  // pip install --target
  install(target, {.name = "foo", .files = {{"foo/__init__.py", "x"}, {"bar.py", "y"}}}, "");
  const auto inventory = read_inventory(target);
  EXPECT_THAT(names(inventory), ElementsAre("foo 1.0 pip"));
  EXPECT_THAT(inventory.distributions[0].imports, ElementsAre("bar", "foo"));
  EXPECT_EQ(inventory.distributions[0].missing_files, 0u);
  EXPECT_THAT(inventory.interpreters, IsEmpty());
}

TEST(InventoryTest, ReadsNothingThatItNeedNot) {
  auto image = python_image();
  install(image, {.name = "foo", .files = {{"foo/__init__.py", "x"}, {"foo/core.py", "y"}, {"foo/data.bin", "z"}}});
  image.add("srv/data.pth", "not a path file");
  read_inventory(image);
  for (const auto& path : image.asked_)
    EXPECT_TRUE(path.find(".dist-info/") != std::string::npos || path.ends_with("patchlevel.h")) << path;
}

TEST(CountPackages, CountsWhatStandsForItselfOncePerNameAndSource) {
  Inventory inventory;
  const auto add = [&](const char* name, Source source, const char* vendored_by = "") {
    auto& one = inventory.distributions.emplace_back();
    one.normalized = name;
    one.source = source;
    one.vendored_by = vendored_by;
  };
  add("setuptools", Source::kPip);
  add("setuptools", Source::kPip);   // in another folder
  add("setuptools", Source::kDpkg);  // of the operating system
  add("wheel", Source::kPip, "setuptools");
  EXPECT_EQ(count_packages(inventory), 2u);
  EXPECT_EQ(count_packages(inventory, std::vector<std::uint32_t>{1, 3}), 1u);
}

}  // namespace
}  // namespace varve::packages
