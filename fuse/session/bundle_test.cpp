#include "fuse/session/bundle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "fuse/session/runtimes/runtime.h"
#include "fuse/session/runtimes/seccomp_profile.h"
#include "fuse/session/session_mounts.h"
#include "testing/temp_dir.h"

namespace varve::fuse {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using Words = std::vector<std::string>;

oci::ImageConfig image(Words entrypoint, Words cmd, Words env = {}) {
  oci::ImageConfig config;
  config.entrypoint = std::move(entrypoint);
  config.cmd = std::move(cmd);
  config.env = std::move(env);
  return config;
}

TEST(CommandLine, FollowsTheRulesOfEntrypointAndCmd) {
  EXPECT_EQ(command_line(image({"tini", "--"}, {"start"}), {}), (Words{"tini", "--", "start"}));
  EXPECT_EQ(command_line(image({}, {"bash"}), {}), (Words{"bash"}));
  EXPECT_EQ(command_line(image({"tini"}, {"start"}), {.command = {"python3", "-V"}}), (Words{"tini", "python3", "-V"}));
  EXPECT_EQ(command_line(image({"tini"}, {"start"}), {.entrypoint = "sh"}), (Words{"sh"}));
  EXPECT_EQ(command_line(image({"tini"}, {"start"}), {.command = {"ls"}, .entrypoint = ""}), (Words{"ls"}));
  EXPECT_EQ(command_line(image({"tini"}, {"start"}), {.command = {"-c", "x"}, .entrypoint = "sh"}),
            (Words{"sh", "-c", "x"}));
  EXPECT_THROW(command_line(image({}, {}), {}), UsageError);
  EXPECT_THROW(command_line(image({""}, {}), {}), UsageError);
  EXPECT_THROW(command_line(image({"tini"}, {"start"}), {.entrypoint = ""}), UsageError);
}

Words environment_of(const oci::ImageConfig& config, const Words& wanted, const Words& own = {}) {
  return session_environment(config, {.env = wanted}, {.home = "/root", .hostname = "gpu1", .term = "xterm"}, own);
}

TEST(SessionEnvironment, HasDefaultsThatTheImageAndTheUserReplace) {
  EXPECT_THAT(environment_of(image({}, {}), {}),
              ElementsAre("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm",
                          "HOME=/root", "HOSTNAME=gpu1"));
  EXPECT_THAT(
      environment_of(image({}, {}, {"PATH=/conda/bin", "LANG=C.UTF-8", "HOME=/h"}),
                     {"LANG=de_DE.UTF-8", "A=1=2", "E="}),
      ElementsAre("PATH=/conda/bin", "TERM=xterm", "HOME=/h", "HOSTNAME=gpu1", "LANG=de_DE.UTF-8", "A=1=2", "E="));
}

TEST(SessionEnvironment, HandsOnOwnValuesByNameOnly) {
  const Words own = {"TOKEN=abc", "TOKENS=no"};
  EXPECT_THAT(environment_of(image({}, {}), {"TOKEN"}, own), Contains("TOKEN=abc"));
  EXPECT_THAT(environment_of(image({}, {}), {"TOK"}, own), Not(Contains(::testing::StartsWith("TOK"))));
}

TEST(SessionEnvironment, ANameThatIsNoneIsWrongUsageByTheUserAndSkippedInTheImage) {
  EXPECT_THROW(environment_of(image({}, {}), {"=x"}), UsageError);
  EXPECT_THROW(environment_of(image({}, {}), {""}), UsageError);
  EXPECT_EQ(environment_of(image({}, {}, {"=x", "novalue", ""}), {}).size(), 4u);
}

TEST(SessionEnvironment, ANameIsNotTakenForALongerOne) {
  EXPECT_THAT(environment_of(image({}, {}, {"PATHS=/a"}), {"PAT=b"}),
              Contains("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"));
}

TEST(VolumeTest, HasASourceAPlaceAndOptions) {
  const test::TempDir dir;
  const auto source = std::filesystem::canonical(dir.path());
  EXPECT_EQ(Volume::parse(source.string() + ":/work"), (Volume{source, "/work", false}));
  EXPECT_EQ(Volume::parse(source.string() + ":/work:ro"), (Volume{source, "/work", true}));
  EXPECT_EQ(Volume::parse(source.string() + ":/work:ro,rw"), (Volume{source, "/work", false}));
  for (const auto& wrong : {std::string(""), std::string(":/x"), source.string(), source.string() + ":",
                            source.string() + ":work", source.string() + ":/work:x", std::string("/no/such/folder:/x")})
    EXPECT_THROW(Volume::parse(wrong), UsageError) << wrong;
}

SessionSpec spec_of_root() {
  SessionSpec spec;
  spec.id = "0123456789ab";
  spec.rootfs = "/r";
  spec.args = {"sh"};
  spec.env = {"A=b"};
  spec.working_dir = "/w";
  spec.capabilities = default_capabilities(~std::uint64_t(0));
  spec.masked_paths = default_masked_paths();
  spec.readonly_paths = default_readonly_paths();
  spec.hostname = "gpu1";
  spec.cgroups_path = "/varve-0123456789ab";
  return spec;
}

TEST(ConfigJson, SaysWhatRunsWhereAndAsWhom) {
  auto spec = spec_of_root();
  spec.user = {.uid = 1000, .gid = 100, .groups = {44}, .name = "nb", .home = "/home/nb"};
  spec.terminal = true;
  const auto config = nlohmann::json::parse(to_config_json(spec));
  const auto& process = config["process"];
  EXPECT_EQ(config["root"]["path"], "/r");
  EXPECT_EQ(config["root"]["readonly"], false);
  EXPECT_EQ(config["hostname"], "gpu1");
  EXPECT_EQ(process["args"], Words{"sh"});
  EXPECT_EQ(process["cwd"], "/w");
  EXPECT_EQ(process["terminal"], true);
  EXPECT_EQ(process["user"], (nlohmann::json{{"uid", 1000}, {"gid", 100}, {"additionalGids", {44}}}));
  EXPECT_EQ(process["noNewPrivileges"], false);
  EXPECT_FALSE(process.contains("rlimits"));  // not raised: a hard limit above the caller's own is refused
}

TEST(ConfigJson, OnlyRootHoldsCapabilities) {
  auto spec = spec_of_root();
  const auto root = nlohmann::json::parse(to_config_json(spec))["process"]["capabilities"];
  EXPECT_EQ(root["effective"].size(), 14u);
  EXPECT_EQ(root["inheritable"].size(), 0u);
  spec.user.uid = 5;
  const auto other = nlohmann::json::parse(to_config_json(spec))["process"]["capabilities"];
  EXPECT_EQ(other["bounding"].size(), 14u);
  EXPECT_EQ(other["effective"].size(), 0u);
  EXPECT_EQ(other["permitted"].size(), 0u);
}

TEST(ConfigJson, HasNamespacesButTheMachinesNetwork) {
  auto spec = spec_of_root();
  spec.pid_namespace = "/proc/2/ns/pid";
  const auto namespaces = nlohmann::json::parse(to_config_json(spec))["linux"]["namespaces"];
  Words types;
  for (const auto& one : namespaces) types.push_back(one["type"]);
  EXPECT_THAT(types, ElementsAre("pid", "mount", "ipc", "uts"));
  EXPECT_EQ(namespaces[0]["path"], "/proc/2/ns/pid");
}

TEST(ConfigJson, ASessionWithoutNetworkHasANamespaceForThat) {
  auto spec = spec_of_root();
  spec.own_network = true;
  const auto namespaces = nlohmann::json::parse(to_config_json(spec))["linux"]["namespaces"];
  EXPECT_EQ(namespaces.back(), (nlohmann::json{{"type", "network"}}));
}

TEST(ConfigJson, CgroupsAreLeftAloneInAUserNamespace) {
  auto spec = spec_of_root();
  EXPECT_EQ(nlohmann::json::parse(to_config_json(spec))["linux"]["resources"]["devices"][0]["allow"], false);
  spec.in_user_namespace = true;
  spec.cgroups_path = "";
  const auto part = nlohmann::json::parse(to_config_json(spec))["linux"];
  EXPECT_FALSE(part.contains("resources"));
  EXPECT_FALSE(part.contains("cgroupsPath"));
}

TEST(ConfigJson, AUserNamespaceOfItsOwnIsJoinedAndKeepsDevicesAndCgroups) {
  auto spec = spec_of_root();
  spec.in_user_namespace = true;
  spec.own_ids = UserIds::of_own({.first_uid = 1'000'000, .first_gid = 2'000'000});
  spec.user_namespace = "/proc/7/ns/user";
  const auto part = nlohmann::json::parse(to_config_json(spec))["linux"];
  EXPECT_EQ(part["namespaces"].back(), (nlohmann::json{{"type", "user"}, {"path", "/proc/7/ns/user"}}));
  EXPECT_EQ(part["uidMappings"][0], (nlohmann::json{{"containerID", 0}, {"hostID", 1'000'000}, {"size", 65536}}));
  EXPECT_EQ(part["gidMappings"][0]["hostID"], 2'000'000);
  EXPECT_TRUE(part.contains("resources"));
}

TEST(ConfigJson, WordsThatAreNotUtf8AreRefused) {
  auto spec = spec_of_root();
  spec.args = {"\xff\xfe"};
  EXPECT_THROW(to_config_json(spec), UsageError);
}

TEST(ConfigJson, TheReadyHookReadsWhatItIsSent) {
  auto spec = spec_of_root();
  EXPECT_FALSE(nlohmann::json::parse(to_config_json(spec)).contains("hooks"));
  spec.ready_fifo = "/x y/ready";
  const auto hook = nlohmann::json::parse(to_config_json(spec))["hooks"]["poststart"][0];
  EXPECT_EQ(hook["args"].back(), "/x y/ready");
  EXPECT_THAT(hook["args"][2].get<std::string>(), ::testing::StartsWith("while read"));
}

TEST(UsualMounts, AUserNamespaceBorrowsSysAndLeavesOutGroupsItLacks) {
  const auto find = [](const std::vector<SpecMount>& mounts, const std::string& destination) {
    const auto found = std::find_if(mounts.begin(), mounts.end(),
                                    [&](const SpecMount& one) { return one.destination == destination; });
    return found == mounts.end() ? SpecMount{} : *found;
  };
  const auto root = usual_mounts(false, {});
  EXPECT_EQ(find(root, "/sys").type, "sysfs");
  EXPECT_THAT(find(root, "/sys").options, Contains("ro"));
  EXPECT_THAT(find(root, "/sys/fs/cgroup").options, Contains("ro"));
  EXPECT_THAT(find(root, "/dev/pts").options, Contains("gid=5"));
  EXPECT_THAT(find(root, "/dev/shm").options, Not(Contains(::testing::StartsWith("size="))));
  const auto user = usual_mounts(true, IdMap({{0, 1000, 1}}, 1000));
  EXPECT_EQ(find(user, "/sys").type, "none");
  EXPECT_THAT(find(user, "/dev/pts").options, Not(Contains("gid=5")));
  EXPECT_EQ(find(user, "/sys/fs/cgroup").destination, "");
}

TEST(Capabilities, AreThoseOfDockerThatTheMachineGrants) {
  EXPECT_EQ(default_capabilities(~std::uint64_t(0)).size(), 14u);
  EXPECT_THAT(default_capabilities((1u << 0) | (1u << 21)), ElementsAre("CAP_CHOWN"));
  EXPECT_THAT(default_capabilities(0), IsEmpty());
}

TEST(OverlayOptions, EscapeWhatHasAMeaning) {
  EXPECT_EQ(overlay_options("/a:b", "/c,d", "/e\\f"), "lowerdir=/a\\:b,upperdir=/c\\,d,workdir=/e\\\\f");
}

TEST(SeccompProfile, AllButSomeNumbersIsAllOthersAndEachOnce) {
  const std::vector<std::uint32_t> excluded = {0x5412, 0x541C};
  const auto ranges = all_but(1, excluded);
  std::vector<std::uint32_t> numbers = {0, 1, 0x5413, 0x541B, 0x541D, 0x5410, 0x80005412, 0xC020462A, 0xFFFFFFFF};
  for (std::uint32_t number = 0x5000; number < 0x6000; ++number) numbers.push_back(number);
  for (const auto number : numbers) {
    const auto holds = [&](const SeccompArgument& range) { return (number & range.mask) == range.value; };
    const bool is_excluded = number == 0x5412 || number == 0x541C;
    EXPECT_EQ(std::ranges::count_if(ranges, holds), is_excluded ? 0 : 1) << number;
  }
}

TEST(SeccompProfile, GoesIntoTheBundle) {
  const auto config = nlohmann::json::parse(to_config_json(SessionSpec()));
  const auto& seccomp = config["linux"]["seccomp"];
  EXPECT_EQ(seccomp["defaultAction"], "SCMP_ACT_ERRNO");
  EXPECT_EQ(seccomp["defaultErrnoRet"], ENOSYS);
  std::map<std::string, std::set<std::string>> actions;
  for (const auto& call : seccomp["syscalls"])
    for (const auto& name : call["names"])
      actions[name].insert(std::string(call["action"]) + (call.contains("args") ? " if" : ""));
  EXPECT_THAT(actions["read"], ElementsAre("SCMP_ACT_ALLOW"));
  EXPECT_THAT(actions["mount"], ElementsAre("SCMP_ACT_ERRNO"));
  EXPECT_THAT(actions["clone"], ElementsAre("SCMP_ACT_ALLOW if", "SCMP_ACT_ERRNO if"));
  EXPECT_THAT(actions["ioctl"], ElementsAre("SCMP_ACT_ALLOW if", "SCMP_ACT_ERRNO if"));
  EXPECT_THAT(actions, Not(Contains(::testing::Key("clone3"))));
  EXPECT_THAT(actions, Not(Contains(::testing::Key("io_uring_setup"))));
}

TEST(Tmpfs, IsReadAsDockerWritesIt) {
  EXPECT_EQ(Tmpfs::parse("/scratch"),
            (Tmpfs{.destination = "/scratch", .options = {"nosuid", "nodev", "noexec", "mode=1777"}}));
  EXPECT_EQ(Tmpfs::parse("/s:size=64m,mode=700,exec,ro").options,
            (Words{"nosuid", "nodev", "size=64m", "mode=700", "ro"}));
  for (const std::string text : {"", "scratch", "/", "/s:uid=0", "/s:size=", "/s:size=x", "/s:size=1gg", "/s:mode=9",
                                 "/s:mode=17777", "/s:suid", "/s:size=1m\n"})
    EXPECT_THROW(Tmpfs::parse(text), UsageError) << text;
}

TEST(EnvFile, IsReadAsDockerReadsIt) {
  EXPECT_EQ(parse_env_file("# of ours\n\n  A=b c \r\nQUOTED=\"x\"\nHANDED_ON\nEMPTY=", "file"),
            (Words{"A=b c ", "QUOTED=\"x\"", "HANDED_ON", "EMPTY="}));
  EXPECT_THAT(parse_env_file("", "file"), IsEmpty());
  try {
    parse_env_file("A=b\nexport B=c\n", "file");
    FAIL() << "a name with a space";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("file, line 2"));
  }
  EXPECT_THROW(parse_env_file("=b", "file"), UsageError);
}

TEST(Hostname, IsOneThatAMachineCanHave) {
  EXPECT_NO_THROW(check_hostname("lab-1.example"));
  for (const std::string name : {"", "-lab", ".lab", "a b", "a/b", "a\n"})
    EXPECT_THROW(check_hostname(name), UsageError);
  EXPECT_THROW(check_hostname(std::string(65, 'a')), UsageError);
}

TEST(Limits, HoldWhereControlGroupsDo) {
  test::TempDir dir;
  const Limits all{.memory_bytes = 1 << 30, .cpus = 1.5, .pids = 100, .must_hold = true};
  EXPECT_EQ(why_not_held({}, "none", false, dir.path()), "");
  EXPECT_THAT(why_not_held(all, "none", true, dir.path()), ::testing::HasSubstr("--memory"));
  EXPECT_THAT(why_not_held(all, "runc", false, dir.path()), ::testing::HasSubstr("plain user"));
  EXPECT_THAT(why_not_held(all, "runc", true, dir.path()), ::testing::HasSubstr("no controller 'memory'"));
  for (const auto* file : {"memory/memory.limit_in_bytes", "cpu/cpu.cfs_quota_us", "pids/tasks"}) {
    std::filesystem::create_directories((dir / file).parent_path());
    std::ofstream(dir / file) << "0";
  }
  EXPECT_EQ(why_not_held(all, "runc", true, dir.path()), "");
  EXPECT_FALSE(counts_swap(dir.path()));
  std::ofstream(dir / "cgroup.controllers") << "cpu memory\n";  // the second version now
  EXPECT_THAT(why_not_held(all, "crun", true, dir.path()), ::testing::HasSubstr("no controller 'pids'"));
  EXPECT_TRUE(counts_swap(dir.path()));
  EXPECT_NO_THROW(check_limits(all));
  EXPECT_THROW(check_limits({.memory_bytes = 4096, .cpus = 0, .pids = 0, .must_hold = true}), UsageError);
  EXPECT_THROW(check_limits({.memory_bytes = 0, .cpus = -1, .pids = 0, .must_hold = true}), UsageError);
  EXPECT_THROW(check_limits({.memory_bytes = 0, .cpus = 0, .pids = -1, .must_hold = true}), UsageError);
}

TEST(Limits, StandInTheBundle) {
  SessionSpec spec;
  spec.args = {"sh"};
  spec.limits = {.memory_bytes = 1 << 30, .cpus = 1.5, .pids = 100, .must_hold = true};
  spec.read_only = true;
  const auto config = nlohmann::json::parse(to_config_json(spec));
  const auto& resources = config["linux"]["resources"];
  EXPECT_EQ(resources["memory"]["limit"], 1 << 30);
  EXPECT_EQ(resources["cpu"]["quota"], 150'000);
  EXPECT_EQ(resources["cpu"]["period"], 100'000);
  EXPECT_EQ(resources["pids"]["limit"], 100);
  EXPECT_EQ(config["root"]["readonly"], true);
}

TEST(Process, IsReadBackFromTheBundle) {
  SessionSpec spec;
  spec.args = {"sh", "-c", "x"};
  spec.env = {"A=b"};
  spec.working_dir = "/work";
  spec.user.uid = 1000;
  spec.user.gid = 100;
  spec.user.groups = {44, 100};
  spec.capabilities = {"CAP_KILL"};
  const auto text = to_config_json(spec);
  const auto read = read_process(as_bytes(text), "config.json");
  EXPECT_EQ(to_process_json(read), to_process_json(spec));
  EXPECT_THROW(read_process(as_bytes(std::string("{}")), "config.json"), CorruptData);
}

TEST(RuntimeLog, TheLastErrorCounts) {
  EXPECT_EQ(last_log_error("{\"level\":\"error\",\"msg\":\"first\"}\n{\"level\":\"warning\",\"msg\":\"no\"}\n"
                           "{\"level\":\"error\",\"msg\":\"a\\nb\"}\n"),
            "a b");
  EXPECT_EQ(last_log_error("not json\n{}\n[1]\n{\"msg\":5}\n"), "");
  EXPECT_EQ(last_log_error("{\"msg\": \"cut off"), "");
}

TEST(RuntimeLog, TellsACommandThatCannotRunFromARuntimeThatCannot) {
  EXPECT_EQ(
      status_of_start_failure(
          "runc run failed: unable to start container process: exec: \"foo\": executable file not found in $PATH: "
          "unknown"),
      kNotFound);
  EXPECT_EQ(status_of_start_failure("runc run failed: exec: \"/foo\": stat /foo: no such file or directory"),
            kNotFound);
  EXPECT_EQ(status_of_start_failure("executable file `foo` not found in $PATH: No such file or directory"), kNotFound);
  EXPECT_EQ(status_of_start_failure("open executable: No such file or directory"), kNotFound);
  EXPECT_EQ(status_of_start_failure("runc run failed: exec: \"/etc/passwd\": permission denied"), kNotExecutable);
  EXPECT_EQ(status_of_start_failure("exec /bin/x: exec format error"), kNotExecutable);
  EXPECT_EQ(status_of_start_failure("cgroups in hybrid mode not supported, drop all controllers from cgroupv2"),
            kOwnFailure);
  EXPECT_EQ(status_of_start_failure(""), kOwnFailure);
}

}  // namespace
}  // namespace varve::fuse
