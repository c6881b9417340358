// Who is asked to import what: each image no more than a verdict takes, and every difference is found.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "analyzer/prune/apply/gates.h"
#include "analyzer/prune/apply/import_session.h"
#include "testing/fake_sessions.h"
#include "testing/packages_image.h"

namespace varve::prune {
namespace {

using test::FakeImage;
using test::FakeSessions;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class JudgeImports : public testing::Test {
 protected:
  void SetUp() override {
    for (auto* image : {&before_, &after_}) image->add({"lab"}).add({"plots"}).add({"soup"});
    old_ = inventory_of(before_, "old");
    new_ = inventory_of(after_, "new");
  }
  static packages::Inventory inventory_of(FakeImage& image, const std::string& name) {
    image.files.facts_.image = digest_of(name);
    return packages::read_inventory(image.files);
  }
  GateResult judged() {
    const ImagePair images{old_, new_};
    return run_gate("imports", {},
                    [&](GateResult& result) { judge_imports(sessions_, images, {.jobs = 1}, answers_, result); });
  }
  GateResult replayed(const std::vector<std::string>& modules) {
    const ImagePair images{old_, new_};
    ImportSets sets;
    sets.notebooks = sets.covered = 1;
    sets.sets = {{.modules = modules, .example = "one.ipynb", .notebooks = 1}};
    return run_gate("replay", {},
                    [&](GateResult& result) { judge_replay(sessions_, images, sets, {.jobs = 1}, answers_, result); });
  }
  nlohmann::json& old_says(const std::string& name) { return sessions_.of[digest_of("old")].imports[name]; }
  nlohmann::json& new_says(const std::string& name) { return sessions_.of[digest_of("new")].imports[name]; }
  const std::vector<std::string>& asked_of_old() { return sessions_.imported[digest_of("old")]; }
  const std::vector<std::string>& asked_of_new() { return sessions_.imported[digest_of("new")]; }

  FakeImage before_, after_;
  packages::Inventory old_, new_;
  FakeSessions sessions_;
  ImportAnswers answers_;
};

TEST_F(JudgeImports, TheOldImageIsNotAskedForWhatTheNewOneDoesWithoutMissingAnything) {
  new_says("lab") = {{"missed", {"_drawn_at_random"}}};
  EXPECT_THAT(judged().findings, IsEmpty());
  EXPECT_THAT(asked_of_new(), ElementsAre("lab", "plots", "soup"));
  EXPECT_THAT(asked_of_old(), IsEmpty());
  EXPECT_TRUE(replayed({"lab", "plots"}).ok);
  EXPECT_THAT(asked_of_old(), IsEmpty());
}

TEST_F(JudgeImports, WhatFailsOrMissesSomethingIsComparedWithTheOldImage) {
  new_says("lab") = old_says("lab") = {{"outcome", "ImportError"}};
  new_says("plots") = old_says("plots") = {{"missed", {"soup.extra"}}};
  const auto same = judged();
  EXPECT_THAT(same.findings, IsEmpty());
  EXPECT_THAT(same.detail,
              HasSubstr("3 names imported in the new image, 2 of them in the old one too, where 1 failed"));
  EXPECT_THAT(asked_of_old(), ElementsAre("lab", "plots"));

  answers_ = {};
  old_says("lab") = {{"outcome", "ok"}};
  old_says("plots") = {{"missed", nlohmann::json::array()}};
  EXPECT_THAT(judged().findings,
              ElementsAre("import lab: ImportError; before: ok",
                          "import plots: it looks for soup.extra, which the new image does not have"));
}

TEST_F(JudgeImports, WhatWasImportedInThisRunIsNotImportedAgainButDifferencesAre) {
  const auto answered = [&](const std::string& name, const std::string& outcome) {
    ImportOutcome one;
    one.name = name;
    one.outcome = outcome;
    keep_answer(answers_.after, "usr/local/bin/python3.11", {name}, {one}, old_);
  };
  answered("lab", "ok");
  answered("plots", "signal 9");
  EXPECT_THAT(judged().findings, IsEmpty());  // it was a bad moment
  EXPECT_THAT(asked_of_new(), ElementsAre("soup", "plots"));
  EXPECT_THAT(asked_of_old(), ElementsAre("plots"));
}

TEST_F(JudgeImports, WhatTheOldImageMissedInItsProbeIsNoReasonToAskItAgain) {
  new_says("lab") = {{"missed", {"soup.a", "soup.extra"}}};
  new_says("plots") = {{"missed", {"soup.extra"}}};
  answers_.missed_in_probe = {{"lab", {"soup.a", "soup.extra"}}, {"plots", {"soup.other"}}};
  EXPECT_THAT(judged().findings, ElementsAre(HasSubstr("import plots: it looks for soup.extra")));
  EXPECT_THAT(asked_of_old(), ElementsAre("plots"));

  answers_.before.clear(), answers_.after.clear();
  new_says("lab") = {{"outcome", "ImportError"}};
  EXPECT_THAT(judged().findings, testing::Contains("import lab: ImportError; before: ok"));
}

TEST_F(JudgeImports, ALimitIsNoAnswerOfEitherImage) {
  new_says("lab") = {{"outcome", "ImportError"}};
  old_says("lab") = {{"outcome", "time limit"}};
  const auto result = judged();
  EXPECT_THAT(result.findings, ElementsAre("import lab: ImportError; before: time limit"));
  EXPECT_THAT(result.detail, HasSubstr("(1 at the time limit)"));
  EXPECT_THAT(asked_of_old(), ElementsAre("lab", "lab"));
  EXPECT_THAT(asked_of_new(), ElementsAre("lab", "plots", "soup", "lab"));
}

TEST_F(JudgeImports, ATaskHasItsOutcomesInTurnHoweverManySessionsAreAskedAtOnce) {
  std::vector<ImportTask> tasks(4 * kImportsOfSession + 1);
  for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i].names = {fmt::format("m{}", i)};
  std::vector<std::string> taken;
  import_in_sessions(sessions_, digest_of("new"), "usr/bin/python3", tasks, {.jobs = 3},
                     [&](std::size_t task, std::vector<ImportOutcome>&& outcomes) {
                       EXPECT_EQ(outcomes.at(0).name, tasks.at(task).names[0]);
                       taken.push_back(outcomes[0].name);
                     });
  EXPECT_EQ(sessions_.count, 5U);
  EXPECT_THAT(taken, testing::UnorderedElementsAreArray(asked_of_new()));
  EXPECT_EQ(taken.size(), tasks.size());
  import_in_sessions(sessions_, digest_of("new"), "usr/bin/python3", {}, {}, {});
  EXPECT_EQ(sessions_.count, 5U);
}

}  // namespace
}  // namespace varve::prune
