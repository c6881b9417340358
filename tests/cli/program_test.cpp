#include "tests/cli/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <regex>

#include "cli/base/config.h"
#include "cli/base/settings.h"
#include "cli/manual.h"
#include "testing/temp_dir.h"

namespace varve::test {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override { configure(""); }
  void configure(const std::string& toml) { std::ofstream(dir_ / "varve.toml") << toml; }
  std::string root() const { return (dir_ / "root").string(); }

  TempDir dir_;
  ScopedVariable config_{"VARVE_CONFIG", (dir_ / "varve.toml").string()};
  ScopedVariable root_variable_{"VARVE_ROOT", std::nullopt};
};

// The first words of every help line under "Subcommands:".
std::vector<std::string> commands_in(const std::string& help) {
  std::vector<std::string> names;
  std::istringstream lines(help.substr(help.find("Subcommands:")));
  std::string line;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("  ") && line.size() > 2)
    if (line[2] != ' ') names.push_back(line.substr(2, line.find(' ', 2) - 2));
  return names;
}

TEST_F(ProgramTest, EveryCommandHasHelpWithAnExample) {
  const auto help = varve({"--help"});
  ASSERT_EQ(help.status, 0);
  const auto commands = commands_in(help.out);
  ASSERT_GE(commands.size(), 4u);
  for (const auto& command : commands) {
    const auto own = varve({command, "--help"});
    EXPECT_EQ(own.status, 0) << command;
    EXPECT_THAT(own.out, HasSubstr("Example")) << command;
    EXPECT_THAT(own.out, HasSubstr("varve " + command)) << command;
    EXPECT_EQ(varve({"help", command}).out, own.out) << command;
    EXPECT_EQ(own.err, "") << command;
  }
}

TEST_F(ProgramTest, EveryCommandHasAManualPageWithTheTextOfItsHelp) {
  for (const auto& command : commands_in(varve({"--help"}).out)) {
    const auto page = varve({"man", command});
    EXPECT_EQ(page.status, 0);
    std::string name;
    for (const char c : "varve-" + command) name += c == '-' ? "\\-" : std::string(1, c);
    EXPECT_THAT(page.out, StartsWith(".TH " + name + " 1\n")) << command;
    for (const auto* section : {".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH EXAMPLES", ".SH EXIT STATUS"})
      EXPECT_THAT(page.out, HasSubstr(section)) << command;
  }
}

TEST_F(ProgramTest, WrongUsageIsStatusTwoAndOneLineThatSaysWhereToLook) {
  for (const auto& words : std::vector<std::vector<std::string>>{{},
                                                                 {"frobnicate"},
                                                                 {"--root"},
                                                                 {"session"},
                                                                 {"session", "frobnicate"},
                                                                 {"session", "ls", "--frobnicate"},
                                                                 {"completion", "tcsh"},
                                                                 {"help", "frobnicate"},
                                                                 {"man", "session", "frobnicate"},
                                                                 {"session", "rm"}}) {
    const auto outcome = varve(words);
    EXPECT_EQ(outcome.status, 2) << ::testing::PrintToString(words);
    EXPECT_THAT(outcome.err, StartsWith("varve: error: "));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(ProgramTest, AFailureIsStatusOne) {
  const auto outcome = varve({"--root", root(), "session", "rm", "nobody"});
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "varve: error: there is no session nobody: `varve session ls` lists them\n");
}

TEST_F(ProgramTest, VersionNamesTheProgram) {
  EXPECT_THAT(varve({"--version"}).out, StartsWith("varve "));
  EXPECT_EQ(varve({"session", "ls", "--version"}).status, 0);
}

TEST_F(ProgramTest, GlobalOptionsMayStandBeforeOrAfterTheCommand) {
  const auto before = varve({"--json", "--root", root(), "session", "ls"});
  const auto after = varve({"session", "ls", "--root", root(), "--json"});
  EXPECT_EQ(before.status, 0);
  EXPECT_EQ(after.out, before.out);
}

TEST_F(ProgramTest, JsonIsOneDocumentAndNothingElse) {
  const auto outcome = varve({"session", "ls", "--json", "--root", root()});
  const auto document = nlohmann::json::parse(outcome.out);
  EXPECT_TRUE(document.at("sessions").is_array());
}

TEST_F(ProgramTest, TheConfigurationFileSetsDefaultsAndFlagsWin) {
  configure("json = true\nroot = \"" + (dir_ / "from-file").string() + "\"\n");
  EXPECT_THAT(varve({"session", "ls"}).out, StartsWith("{"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "from-file/sessions"));
  EXPECT_EQ(varve({"session", "ls", "--root", root()}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "root/sessions"));
}

TEST_F(ProgramTest, TheConfigurationFileReachesTheOptionsOfACommand) {
  configure("[man]\nwrite-to = \"" + (dir_ / "share").string() + "\"\n");
  EXPECT_EQ(varve({"man"}).out, "");
  EXPECT_TRUE(std::filesystem::exists(dir_ / "share/man/man1/varve-session-ls.1"));
  EXPECT_TRUE(std::filesystem::exists(dir_ / "share/bash-completion/completions/varve"));
}

TEST_F(ProgramTest, AnOptionThatIsNoneIsNamedWithItsLine) {
  configure("json = false\n\nfrobnicate = 1\n");
  EXPECT_THAT(varve({"session", "ls"}).err, HasSubstr("varve.toml:3: 'frobnicate' is no option of `varve`"));
  configure("[frob]\nx = 1\n");
  EXPECT_THAT(varve({"session", "ls"}).err, HasSubstr("varve.toml:1: there is no command 'frob'"));
  configure("[deamon]\nthreads = 1\n");
  EXPECT_THAT(varve({"session", "ls"}).err, HasSubstr("there is no command 'deamon'; did you mean daemon\n"));
  configure("[daemon]\nstoresize = 1\n");
  EXPECT_THAT(varve({"session", "ls"}).err,
              HasSubstr("varve.toml:2: 'storesize' is no option of `varve daemon`; did you mean store-size\n"));
  configure("json = {\n");
  EXPECT_EQ(varve({"session", "ls"}).status, 2);
  configure("verbose = \"loud\"\n");
  EXPECT_THAT(varve({"session", "ls"}).err, HasSubstr("varve.toml:1: "));
  configure("root = 1979-05-27\n");
  EXPECT_THAT(varve({"session", "ls"}).err, HasSubstr("must be a string"));
}

TEST_F(ProgramTest, AFileThatTheEnvironmentNamesIsThere) {
  std::filesystem::remove(dir_ / "varve.toml");
  const auto outcome = varve({"session", "ls"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("VARVE_CONFIG: " + (dir_ / "varve.toml").string() + ": there is no such file"));
}

nlohmann::json setting(const std::vector<std::string>& words) {
  return nlohmann::json::parse(varve(words).out).at("settings").at(0);
}

TEST_F(ProgramTest, ASettingSaysWhatItIsAndFromWhere) {
  const auto file = (dir_ / "varve.toml").string();
  const nlohmann::json of_default{{"name", "daemon.threads"}, {"value", "4"}, {"from", "default"}, {"place", nullptr}};
  EXPECT_EQ(setting({"config", "daemon.threads", "--json"}), of_default);
  configure("json = true\nroot = \"/from-file\"\n[run]\nrecord = true\ncdi-spec-dir = [\"/a\", \"/b\"]\n");
  EXPECT_EQ(setting({"config", "root"})["value"], "/from-file");
  EXPECT_EQ(setting({"config", "root"})["place"], file + ":2");
  EXPECT_EQ(setting({"config", "run.record"})["value"], true);
  EXPECT_EQ(setting({"config", "run.cdi-spec-dir"})["value"], "/a, /b");
  const ScopedVariable variable("VARVE_ROOT", "/from-environment");
  EXPECT_EQ(setting({"config", "root"})["value"], "/from-environment") << "stronger than a file";
  EXPECT_EQ(setting({"config", "root"})["from"], "environment");
  EXPECT_EQ(setting({"config", "root", "--root", root()})["value"], root());
  EXPECT_EQ(setting({"config", "root", "--root", root()})["from"], "flag");
  const auto all = nlohmann::json::parse(varve({"config"}).out).at("settings");
  EXPECT_EQ(std::ranges::count(all, "json", [](const auto& one) { return one["name"]; }), 1) << "a file sets it";
}

TEST_F(ProgramTest, AKeyThatIsNoneIsNamedWithTheNearest) {
  const auto outcome = varve({"config", "daemon.storesize"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err, HasSubstr("'daemon.storesize'; did you mean daemon.store-size"));
  EXPECT_EQ(varve({"config", "daemon.store-size"}).out, "0\n");
}

TEST_F(ProgramTest, TheExampleHasAllSettingsAndAllAreTaken) {
  const auto example = varve({"config", "--example"}).out;
  configure(example);
  EXPECT_EQ(varve({"config", "quiet"}).out, "false\n") << "comments alone";
  auto settings = std::regex_replace(example, std::regex("(^|\n)# ([a-z][a-z-]* = )"), "$1$2");
  settings =
      std::regex_replace(settings, std::regex("/etc/varve/(auth.json|ca.pem)"), "/dev/null");  // have to be there
  configure(settings);
  const auto outcome = varve({"config", "--json"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const auto told = nlohmann::json::parse(outcome.out);
  for (const auto& one : told.at("settings")) EXPECT_EQ(one["from"], "file") << one;
}

TEST_F(ProgramTest, EachSettingIsAnOptionOrSaysWhatItIs) {
  const auto page = varve({"config", "--markdown"}).out;
  for (const auto& one : cli::settings()) {
    const auto name = one.key.substr(one.key.rfind('.') + 1);
    EXPECT_THAT(page, HasSubstr("| `" + std::string(name) + "` | ")) << one.key;
    EXPECT_THAT(page, Not(HasSubstr("| `" + std::string(name) + "` | - |  |"))) << one.key << " is no option";
  }
}

TEST_F(ProgramTest, ACommandThatIsNoneIsNamedWithWhatWasMeant) {
  const auto error = [](const std::vector<std::string>& words) { return varve(words).err; };
  EXPECT_EQ(error({"indx"}), "varve: error: there is no command 'indx'; did you mean index (see `varve --help`)\n");
  EXPECT_THAT(error({"bogus"}), HasSubstr("there is no command 'bogus' (see"));
  EXPECT_THAT(error({"ps"}), HasSubstr("did you mean session ls"));
  EXPECT_THAT(error({"rmi", "x"}), HasSubstr("did you mean images rm"));
  EXPECT_THAT(error({"login", "registry.example"}), HasSubstr("`skopeo login`"));
  EXPECT_THAT(error({"plan"}), HasSubstr("did you mean prune plan"));
  EXPECT_THAT(error({"prune", "plam"}), HasSubstr("'prune plam'; did you mean plan (see `varve prune --help`)"));
  EXPECT_THAT(error({"help", "indx"}), HasSubstr("did you mean index"));
}

TEST_F(ProgramTest, WrongUsagePointsToTheHelpOfTheVeryCommand) {
  const auto error = [](const std::vector<std::string>& words) { return varve(words).err; };
  EXPECT_THAT(error({"prune", "plan"}), EndsWith("`varve prune plan` needs IMAGE (see `varve prune plan --help`)\n"));
  EXPECT_THAT(error({"--root", "x", "session", "rm", "--al"}),
              HasSubstr("`varve session rm` has no option '--al'; did you mean --all (see `varve session rm --help`)"));
  EXPECT_THAT(error({"mount", "--mode", "quick", "x", "y"}),
              HasSubstr("--mode 'quick': it is one of auto, kernel, fuse"));
  EXPECT_THAT(error({"inspect", "a", "b", "c"}), HasSubstr("`varve inspect` does not expect: b c"));
  EXPECT_THAT(error({"session"}), HasSubstr("`varve session` needs one of: ls, start, exec, stop, logs, rm"));
}

TEST_F(ProgramTest, ImageCheckIsPruneCheck) {
  auto by_prune = varve({"prune", "check", "--help"}).out;
  auto by_image = varve({"image", "check", "--help"}).out;
  EXPECT_NE(by_prune, by_image) << "each has an example of its own";
  EXPECT_EQ(by_prune.substr(by_prune.find("Options:"), 300), by_image.substr(by_image.find("Options:"), 300));
}

TEST_F(ProgramTest, TheEnvironmentNamesTheRootButTheOptionWins) {
  const ScopedVariable variable("VARVE_ROOT", (dir_ / "from-environment").string());
  EXPECT_EQ(varve({"session", "ls"}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "from-environment/sessions"));
  EXPECT_EQ(varve({"session", "ls", "--root", root()}).status, 0);
  EXPECT_TRUE(std::filesystem::exists(dir_ / "root/sessions"));
}

TEST_F(ProgramTest, CompletionScriptsNameCommandsAndOptions) {
  for (const auto* shell : {"bash", "zsh", "fish"}) {
    const auto script = varve({"completion", shell});
    EXPECT_EQ(script.status, 0);
    EXPECT_THAT(script.out, HasSubstr("session"));
    EXPECT_THAT(script.out, HasSubstr("platform"));
  }
}

TEST_F(ProgramTest, BashTakesItsCompletionScript) {
  std::ofstream(dir_ / "completion")
      << varve({"completion", "bash"}).out
      << "complete_words() { COMP_WORDS=(\"$@\"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _varve; echo "
         "\"${COMPREPLY[*]}\"; }\n"
         "complete_words varve session l; complete_words varve --root x session rm --al; complete_words varve comp\n"
         "complete_words varve run --runtime ''; complete_words varve mount --mode = f\n";
  FILE* shell = ::popen(("bash " + (dir_ / "completion").string()).c_str(), "r");
  ASSERT_NE(shell, nullptr);
  std::string text(256, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), shell));
  EXPECT_EQ(::pclose(shell), 0);
  EXPECT_EQ(text, "ls logs\n--all\ncompletion\nauto runc crun none nvidia\nfuse\n");
}

TEST_F(ProgramTest, ResultsThatCannotBeWrittenAreAFailure) {
  std::ofstream full("/dev/full");
  std::ostringstream err;
  const char* words[] = {"varve", "help"};
  EXPECT_EQ(cli::varve_main(2, words, full, err), 75);
  EXPECT_THAT(err.str(), HasSubstr("standard output"));
}

cli::Environment environment(std::map<std::string, std::string> variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(Folders, TheStateOfRootAndOfAPlainUserLieWhereTheirSystemsKeepSuch) {
  EXPECT_EQ(cli::default_root(environment({}), true), "/var/lib/varve");
  EXPECT_EQ(cli::default_root(environment({{"HOME", "/home/eve"}}), false), "/home/eve/.local/share/varve");
  EXPECT_EQ(cli::default_root(environment({{"HOME", "/home/eve"}, {"XDG_DATA_HOME", "/data"}}), false), "/data/varve");
  EXPECT_ANY_THROW(cli::default_root(environment({}), false));
}

TEST(Folders, SocketsOfDifferentRootsNeverMeet) {
  EXPECT_EQ(cli::default_run_dir(environment({}), true, "/var/lib/varve"), "/run/varve");
  EXPECT_EQ(cli::default_run_dir(environment({}), true, "/tmp/x"), "/tmp/x/run");
  const auto user = environment({{"HOME", "/home/eve"}, {"XDG_RUNTIME_DIR", "/run/user/7"}});
  EXPECT_EQ(cli::default_run_dir(user, false, "/home/eve/.local/share/varve"), "/run/user/7/varve");
  EXPECT_EQ(cli::default_run_dir(environment({}), false, "/tmp/x"), "/tmp/x/run");
}

TEST(Folders, TheUsersConfigurationIsStrongerThanTheMachines) {
  EXPECT_EQ(cli::config_files(environment({{"HOME", "/home/eve"}})),
            (std::vector<std::filesystem::path>{"/etc/varve/varve.toml", "/home/eve/.config/varve/varve.toml"}));
}

}  // namespace
}  // namespace varve::test
