#include "analyzer/prune/probe/probe_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/fake_sessions.h"
#include "testing/packages_image.h"

namespace varve::prune {
namespace {

using test::FakeImage;
using test::FakeSessions;
using test::kSite;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using usage::ProbedKind;

class ProbeImage : public testing::Test {
 protected:
  ProbeImage() { image_.files.facts_.image = digest_of("image"); }

  usage::Probe probe() {
    const auto inventory = packages::read_inventory(image_.files);
    const auto targets = probe_targets(image_.files, inventory, config_);
    Progress progress;
    const CancelFlag cancel;
    auto made = probe_image(sessions_, inventory, image_.files.tree().entries, targets,
                            {.imports = {}, .programs = {}, .today = 20778}, {progress, cancel});
    EXPECT_EQ(progress.done_bytes(), targets.size());
    EXPECT_EQ(progress.expected_bytes(), targets.size());
    return made;
  }
  std::vector<std::string> edges() {
    const auto made = probe();
    std::vector<std::string> texts;
    for (const auto& edge : made.edges)
      texts.push_back(fmt::format("{} {} {} {}:{}", usage::probed_kind_name(made.items[edge.item].kind),
                                  made.items[edge.item].name, usage::probe_edge_name(edge.kind), edge.to_distribution,
                                  edge.to));
    return texts;
  }
  std::vector<std::string> items(ProbedKind kind) {
    std::vector<std::string> texts;
    for (const auto& item : probe().items)
      if (item.kind == kind)
        texts.push_back(
            fmt::format("{}: {}{}{}", item.name, item.outcome, item.detail.empty() ? "" : ": ", item.detail));
    return texts;
  }

  FakeSessions::Says& says() { return sessions_.of[digest_of("image")]; }

  FakeImage image_;
  oci::ImageConfig config_;
  FakeSessions sessions_;
};

TEST_F(ProbeImage, AnImportLoadsTheOwnersOfModulesAndOfFilesAndTriesTheOthers) {
  image_.add({"keras"})
      .add({"opencv", "", {{"cv2/__init__.py", ""}}})
      .add({"data", "", {{"data/x.bin", "x"}, {"data/__init__.py", ""}}})
      .add({"pyarrow"});
  says().imports["keras"] = {
      {"loaded", {"keras", "keras.layers", "cv2.gapi", "cv2", "json", "nobodys.module"}},
      {"tried", {"pyarrow.fs", "pyarrow", "cv2.more", "no_such"}},
      {"files", {"/" + kSite + "/data/x.bin", "/etc/passwd", "/" + kSite + "/../data", "/" + kSite + "/data/made-up"}}};
  EXPECT_THAT(edges(), ElementsAre("import keras loads data:", "import keras loads opencv:cv2.gapi",
                                   "import keras tries pyarrow:pyarrow.fs"));
  EXPECT_EQ(sessions_.last, digest_of("image"));
}

TEST_F(ProbeImage, AnImportThatFailsIsKeptWithItsWords) {
  image_.add({"alpha"});
  says().imports["alpha"] = {{"outcome", "ImportError"}, {"detail", "libx.so\x1b[31m is missing"}};
  EXPECT_THAT(items(ProbedKind::kImport), ElementsAre("alpha: ImportError: libx.so [31m is missing"));
}

TEST_F(ProbeImage, EntryPointsOfOneModuleAreLoadedByOneProcessAndEachLoadsAllOfIt) {
  image_.add({"plug", "", {}, "[group]\na = plug.deep:A\nb = plug.deep:B\n"}).add({"other"});
  says().imports["plug.deep:A"] = {{"loaded", {"plug.deep", "other"}}};
  says().imports["plug.deep:B"] = {{"outcome", "AttributeError"}};
  EXPECT_THAT(edges(), ElementsAre("entry-point group:a loads other:other", "entry-point group:b loads other:other"));
  EXPECT_THAT(items(ProbedKind::kEntryPoint), ElementsAre("group:a: ok", "group:b: AttributeError"));
}

TEST_F(ProbeImage, ProgramsRunTheOwnersOfWhatTheyOpen) {
  image_.add({"tool", "", {}, "[console_scripts]\ntool = tool:main\n"}).add({"click"});
  image_.files.add("usr/local/bin/tool", "#!python");
  config_.cmd = {"start.sh"};
  const std::vector<std::string> opened{"/" + kSite + "/click/__init__.py", "/" + kSite + "/tool/__init__.py",
                                        "/usr/local/bin/tool"};
  says().programs["/usr/local/bin/tool --help"] = {
      {"outcome", "exit 2"}, {"err", "usage:\nno such option\n"}, {"files", opened}};
  says().programs["start.sh"] = {{"outcome", "ok"}, {"out", "listening"}, {"files", opened}};
  EXPECT_THAT(edges(),
              ElementsAre("script tool runs click:", "command start.sh runs click:", "command start.sh runs tool:"));
  EXPECT_THAT(items(ProbedKind::kScript), ElementsAre("tool: exit 2: no such option"));
  EXPECT_THAT(items(ProbedKind::kCommand), ElementsAre("start.sh: ok: listening"));
  EXPECT_THAT(items(ProbedKind::kPython), ElementsAre("usr/local/bin/python3.11: exit 0"));
}

TEST_F(ProbeImage, KernelsReplyOrSayWhyTheyDoNot) {
  image_.files.add("usr/share/jupyter/kernels/good/kernel.json", "{}")
      .add("usr/share/jupyter/kernels/bad/kernel.json", "{}")
      .add("usr/share/jupyter/kernels/odd/kernel.json", "{}");
  says().programs["/usr/share/jupyter/kernels/good/kernel.json"] = {{"out", "{\"outcome\":\"ok\",\"detail\":\"\"}\n"}};
  says().programs["/usr/share/jupyter/kernels/bad/kernel.json"] = {
      {"out", "{\"outcome\":\"no reply\",\"detail\":\"No module named x\"}\n"}};
  says().programs["/usr/share/jupyter/kernels/odd/kernel.json"] = {
      {"outcome", "exit 1"}, {"out", "[[[["}, {"err", "Traceback\nKeyError"}};
  EXPECT_THAT(items(ProbedKind::kKernel),
              ElementsAre("bad: no reply: No module named x", "good: ok", "odd: no reply: exit 1: KeyError"));
}

TEST_F(ProbeImage, ExtensionsThatTheImageDoesNotHaveAreNotBelieved) {
  image_
      .add({"jupyter-server",
            "",
            {},
            "[console_scripts]\njupyter-server = jupyter_server:main\njupyter-labextension = jupyter_server:main\n"})
      .add({"git-ext"});
  image_.files.add("usr/local/bin/jupyter-server", "").add("usr/local/bin/jupyter-labextension", "");
  image_.files.add("usr/local/share/jupyter/labextensions/@scope/git/package.json", "{}");
  says().programs["/usr/local/bin/jupyter-server extension list"] = {
      {"err",
       "Config dir: /x\n    \x1b[1mgit_ext\x1b[0m \x1b[32menabled\x1b[0m\n    - Validating git_ext...\n"
       "    made_up enabled\n    off disabled\n"}};
  says().programs["/usr/local/bin/jupyter-labextension list"] = {
      {"out", "JupyterLab v4\n        @scope/git v0.5 enabled OK (python, git_ext)\n        made-up v1 enabled OK\n"}};
  EXPECT_THAT(items(ProbedKind::kServerExtension), ElementsAre("git_ext: ok"));
  EXPECT_THAT(items(ProbedKind::kLabExtension), ElementsAre("@scope/git: ok"));
}

TEST_F(ProbeImage, OneWhosePythonCannotRunIsAnErrorThatSaysSo) {
  image_.add({"alpha"});
  says().broken = "exec: no such file\n";
  try {
    probe();
    FAIL() << "it was probed";
  } catch (const CouldNotRun& error) {
    EXPECT_THAT(error.what(), HasSubstr("/usr/local/bin/python3.11 in sha256:"));
    EXPECT_THAT(error.what(), HasSubstr("status 127: exec: no such file"));
  }
  FakeImage bare;
  packages::Inventory none;
  none.image = digest_of("bare");
  Progress progress;
  const CancelFlag cancel;
  EXPECT_THROW(probe_image(sessions_, none, {}, {}, {}, {progress, cancel}), CouldNotRun);
}

TEST_F(ProbeImage, ManyAreAskedInSeveralSessions) {
  for (int i = 0; i < 100; ++i) image_.add({fmt::format("d{:03}", i)});
  EXPECT_THAT(edges(), IsEmpty());
  EXPECT_EQ(sessions_.count, 11u) << "ten for imports, one for programs";
}

TEST(ProgramAnswers, OfAProgramThatDidNotDoItsWorkAreRefused) {
  const std::string good = R"({"program":0,"outcome":"exit 0","out":"","err":"","files":[]})";
  EXPECT_EQ(parse_program_answers(good + "\n{\"done\":true}\n", 1).at(0).outcome, "exit 0");
  for (const auto& text :
       {std::string(), std::string("{\"done\":true}"), good, good + "\n" + good + "\n{\"done\":true}",
        good + "\n{\"done\":true}\n" + good, std::string("[]\n{\"done\":true}"),
        std::string(R"({"program":1,"outcome":"","out":"","err":"","files":[]})") + "\n{\"done\":true}",
        std::string(R"({"program":0,"outcome":1,"out":"","err":"","files":[]})") + "\n{\"done\":true}"})
    EXPECT_THROW(parse_program_answers(text, 1), CorruptData) << text;
}

}  // namespace
}  // namespace varve::prune
