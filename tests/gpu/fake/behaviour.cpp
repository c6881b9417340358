#include "tests/gpu/fake/behaviour.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

namespace varve::gpu::fake {
namespace {

struct Setting {
  std::string name, target, value;  // name=target or name=target:value
};

[[noreturn]] void refuse(const std::string& why) {
  const auto line = "VARVE_FAKE_GPU: " + why + "\n";
  [[maybe_unused]] const auto written = write(2, line.data(), line.size());
  _exit(99);
}

std::vector<Setting> read_settings() {
  static constexpr std::array kNames = {"devices", "product", "sm",    "driver", "throttle", "ecc",   "xid",
                                        "remap",   "sick",    "wrong", "fail",   "hang",     "crash", "orphan",
                                        "print",   "exit",    "slow",  "first",  "once",     "log",   "python"};
  std::vector<Setting> settings;
  const char* given = getenv("VARVE_FAKE_GPU");
  std::stringstream stream(given ? given : "");
  for (std::string part; std::getline(stream, part, ',');) {
    const auto equals = part.find('=');
    if (equals == std::string::npos) refuse(part + " is not name=value");
    Setting setting{.name = part.substr(0, equals), .target = part.substr(equals + 1), .value = {}};
    if (std::find(kNames.begin(), kNames.end(), setting.name) == kNames.end()) refuse("unknown name " + setting.name);
    if (const auto colon = setting.target.rfind(':'); colon != std::string::npos) {
      setting.value = setting.target.substr(colon + 1);
      setting.target.resize(colon);
    }
    settings.push_back(std::move(setting));
  }
  return settings;
}

const std::vector<Setting>& settings() {
  static const auto all = read_settings();
  return all;
}

double seconds(const Setting& setting) {
  char* end = nullptr;
  const double value = std::strtod(setting.value.c_str(), &end);
  if (setting.value.empty() || *end)
    refuse(setting.name + " needs CALL:SECONDS, not " + setting.target + ":" + setting.value);
  return value;
}

// Names a process for all time: its number can come again in another session, its start cannot.
std::string this_process() {
  std::ifstream stat("/proc/self/stat");
  std::string line;
  std::getline(stat, line);
  std::stringstream fields(line.substr(line.rfind(')') + 2));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  return std::to_string(getpid()) + " " + field + "\n";
}

// With once=FILE trouble comes in one process only: the first that meets it makes FILE and writes its name in.
bool spared() {
  static const bool result = [] {
    const auto file = text("once", "");
    if (file.empty()) return false;
    const auto name = this_process();
    if (const int fd = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666); fd >= 0) {
      if (write(fd, name.data(), name.size()) != ssize_t(name.size())) refuse("cannot write " + file);
      close(fd);
      return false;
    }
    std::ifstream stream(file);
    std::string first;
    if (!std::getline(stream, first)) refuse("once: cannot read " + file);
    return first + "\n" != name;
  }();
  return result;
}

void put(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = write(1, bytes.data(), bytes.size());
    if (n <= 0) return;
    bytes.remove_prefix(std::size_t(n));
  }
}

void print(const std::string& kind) {
  if (kind == "mark")
    put("varve-gpu-probe: {\"result\": \"ok\", \"detail\": \"forged by a library\"}\n");
  else if (kind == "line")
    put("a library says hello\n");
  else if (kind == "garbage")
    put(std::string_view("\0\xff\xfe\x1b[31m\r\nvarve-gpu-probe: {\"result\": \x80\n{]\n", 44));
  else if (kind == "huge")
    put(std::string(8u << 20, 'x'));
  else
    refuse("print needs CALL:mark, line, garbage or huge, not " + kind);
}

constexpr unsigned kForever = 600;  // seconds; a test that forgets a process leaves it no longer

[[noreturn]] void hang() {
  signal(SIGALRM, SIG_DFL);
  alarm(kForever);
  for (;;) pause();
}

// A child that outlives the call and keeps the probe's standard output open.
void leave_orphan() {
  if (fork() == 0) {
    signal(SIGTERM, SIG_IGN);
    hang();
  }
}

void wait(const Setting& setting) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds(setting))); }

int act(const Setting& setting, bool first) {
  if (setting.name == "slow") wait(setting);
  if (setting.name == "first" && first) wait(setting);
  if (setting.name == "print" && first) print(setting.value);
  if (setting.name == "orphan" && first) leave_orphan();
  if (setting.name == "hang") hang();
  if (setting.name == "crash") raise(SIGSEGV);
  if (setting.name == "exit") _exit(std::atoi(setting.value.c_str()));
  if (setting.name == "fail") {
    const int code = std::atoi(setting.value.c_str());
    if (!code) refuse("fail needs CALL:CODE other than 0");
    return code;
  }
  return 0;
}

std::mutex counting;  // NOLINT: of the library, as the counts are

std::uint64_t count(const std::string& what) {
  static std::map<std::string, std::uint64_t> counts;
  const std::lock_guard lock(counting);
  return ++counts[what];
}

}  // namespace

int enter(const char* call) noexcept {
  // crash=cublasSgemm_v2 has no value, fail=cublasSgemm_v2:14 has: the target is the call in both.
  const bool first = count(call) == 1;
  if (const auto log = text("log", ""); !log.empty() && first) std::ofstream(log, std::ios::app) << call << "\n";
  int code = 0;
  for (const auto& setting : settings()) {
    if (setting.target == call && !spared()) code = act(setting, first);
  }
  return code;
}

std::string text(std::string_view name, std::string_view otherwise) {
  for (const auto& setting : settings()) {
    if (setting.name == name) return setting.target + (setting.value.empty() ? "" : ":" + setting.value);
  }
  return std::string(otherwise);
}

bool opens_by_name(const char* library) noexcept { return dlopen(library, RTLD_NOW | RTLD_LOCAL) != nullptr; }

long number(std::string_view name, long otherwise) noexcept {
  const auto value = text(name, "");
  if (value.empty()) return otherwise;
  char* end = nullptr;
  const long result = std::strtol(value.c_str(), &end, 0);
  if (*end) refuse(std::string(name) + " needs a number, not " + value);
  return result;
}

Wrong wrong(std::string_view what) noexcept {
  static constexpr std::array<std::pair<std::string_view, Wrong>, 5> kModes = {{{"", Wrong::kFlip},
                                                                                {"nan", Wrong::kNan},
                                                                                {"zero", Wrong::kZero},
                                                                                {"idle", Wrong::kIdle},
                                                                                {"late", Wrong::kFlip}}};
  const bool first = count("wrong " + std::string(what)) == 1;
  for (const auto& setting : settings()) {
    if (setting.name != "wrong" || setting.target != what) continue;
    const auto mode =
        std::find_if(kModes.begin(), kModes.end(), [&](const auto& known) { return known.first == setting.value; });
    if (mode == kModes.end())
      refuse("wrong=" + setting.target + " can be nan, zero, idle or late, not " + setting.value);
    if ((setting.value == "late" && first) || spared()) return Wrong::kNo;
    return mode->second;
  }
  return Wrong::kNo;
}

void fault(const std::string& why) noexcept {
  const auto line = "fake GPU: illegal address: " + why + "\n";
  [[maybe_unused]] const auto written = write(2, line.data(), line.size());
  abort();
}

}  // namespace varve::gpu::fake
