#include "analyzer/prune/probe/targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/text/strings.h"
#include "testing/packages_image.h"

namespace varve::prune {
namespace {

using test::FakeImage;
using test::kSite;
using testing::ElementsAre;
using testing::IsEmpty;
using usage::ProbedKind;

std::vector<std::string> found(const FakeImage& image, ProbedKind kind, const oci::ImageConfig& config = {}) {
  std::vector<std::string> texts;
  for (const auto& target : probe_targets(image.files, packages::read_inventory(image.files), config))
    if (target.kind == kind)
      texts.push_back(fmt::format("{}|{}|{}{}{}", target.name, target.distribution, target.object,
                                  joined(target.words, " "), target.kernel_spec));
  return texts;
}

TEST(ProbeTargets, ImportsAreTheNamesOfAllDistributionsThatAPythonSees) {
  FakeImage image;
  image.add({"alpha"}).add({"two-names", "", {{"one.py", ""}, {"other/__init__.py", ""}}});
  EXPECT_THAT(found(image, ProbedKind::kImport),
              ElementsAre("alpha|alpha|alpha", "one|two-names|one", "other|two-names|other"));
}

TEST(ProbeTargets, ScriptsAreThoseThatLieWhereInstallersPutThem) {
  FakeImage image;
  image.add({"tool", "", {}, "[console_scripts]\ntool = tool:main\ngone = tool:main\nup/../bad = tool:main\n"});
  image.files.add("usr/local/bin/tool", "#!python").add("usr/local/bin/bad", "");
  EXPECT_THAT(found(image, ProbedKind::kScript), ElementsAre("tool|tool|/usr/local/bin/tool --help"));
}

TEST(ProbeTargets, EntryPointsAreNamedByGroupAndLoadedByTheirObject) {
  FakeImage image;
  image.add({"plug",
             "",
             {},
             "[console_scripts]\nplug = plug:main\n[odd.group]\nb = plug.deep:Class.make\na = plug\nbroken\n"});
  EXPECT_THAT(found(image, ProbedKind::kEntryPoint),
              ElementsAre("odd.group:a|plug|plug", "odd.group:b|plug|plug.deep:Class.make"));
}

TEST(ProbeTargets, KernelsPythonAndWhatTheConfigStarts) {
  FakeImage image;
  image.add({"ipykernel", "", {{"ipykernel.py", ""}, {"../../../share/jupyter/kernels/python3/kernel.json", "{}"}}});
  image.files.add("usr/share/jupyter/kernels/ir/kernel.json", "{}").add("srv/kernel.json", "{}");
  oci::ImageConfig config;
  config.entrypoint = {"tini", "--"};
  config.cmd = {"start.sh"};
  EXPECT_THAT(found(image, ProbedKind::kKernel),
              ElementsAre("ir||/usr/share/jupyter/kernels/ir/kernel.json",
                          "python3|ipykernel|/usr/local/share/jupyter/kernels/python3/kernel.json"));
  EXPECT_THAT(found(image, ProbedKind::kPython), ElementsAre("usr/local/bin/python3.11|"
                                                             "|/usr/local/bin/python3.11 -c pass"));
  EXPECT_THAT(found(image, ProbedKind::kCommand, config), ElementsAre("tini||tini -- start.sh"));
  EXPECT_THAT(found(image, ProbedKind::kCommand), IsEmpty());
}

TEST(ProbeTargets, ExtensionsAreListedByThePrograms) {
  FakeImage image;
  image.add({"jupyter-server", "", {}, "[console_scripts]\njupyter-server = jupyter_server:main\n"});
  EXPECT_THAT(found(image, ProbedKind::kServerExtension), IsEmpty());
  image.files.add("usr/local/bin/jupyter-server", "");
  EXPECT_THAT(found(image, ProbedKind::kServerExtension),
              ElementsAre("|jupyter-server|/usr/local/bin/jupyter-server extension list"));
}

}  // namespace
}  // namespace varve::prune
