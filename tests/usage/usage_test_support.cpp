#include "tests/usage/usage_test_support.h"

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include <fmt/format.h>

#include "analyzer/usage/internal/schema.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

// One server for all tests of a program.
test::PrivatePostgres* server() {
  static const auto kServer = test::PrivatePostgres::start();
  return kServer.get();
}

}  // namespace

void DatabaseFixture::SetUp() {
  if (GetParam() == Kind::kPostgres) {
    if (server() == nullptr) GTEST_SKIP() << "PostgreSQL 15 is not installed";
    where_ = server()->new_database();
  } else {
    where_ = (folder_.path() / fmt::format("usage{}.db", ++databases_)).string();
  }
  database_ = open();
}

std::string DatabaseFixture::new_database() { return server()->new_database(); }

std::int32_t day(const std::string& text) { return parse_day(text).value(); }

std::string session_id(unsigned number) { return fmt::format("{:032x}", number); }
std::string process_id(unsigned number) { return fmt::format("{:016x}", number); }
std::string user_hash(unsigned number) {
  // As uniform as a keyed hash.
  return digest_of(fmt::format("user {}", number)).hex().substr(0, 32);
}
Digest image_digest(unsigned number) { return digest_of(fmt::format("image {}", number)); }

StartRecord start_record(unsigned session, unsigned process, const std::string& day, unsigned image) {
  StartRecord start;
  start.session = session_id(session);
  start.process = process_id(process);
  start.day = varve::usage::day(day);
  if (image != 0) start.image = image_digest(image);
  start.writer = "recorder 1";
  start.main = "kernel";
  return start;
}

SpoolRecord import_record(const std::string& module, Directness how, const std::string& by, Copy copy) {
  return {
      .at_seconds = 10,
      .what = ImportRecord{.module = module, .how = how, .by = by, .copy = copy, .distribution = {}, .version = {}}};
}

SpoolWriterForTests::SpoolWriterForTests(std::filesystem::path folder, StartRecord start)
    : path_(folder / fmt::format("{}-{}.jsonl", start.session, start.process)) {
  std::filesystem::create_directories(folder);
  if (!std::filesystem::exists(path_)) add({.at_seconds = 0, .what = std::move(start)});
}

SpoolWriterForTests& SpoolWriterForTests::add(const SpoolRecord& record) { return raw(spool_line(record)); }

SpoolWriterForTests& SpoolWriterForTests::raw(const std::string& text) {
  std::ofstream(path_, std::ios::app | std::ios::binary) << text;
  return *this;
}

packages::Inventory inventory_of(unsigned image, const std::vector<TestPackage>& packages) {
  packages::Inventory inventory;
  inventory.image = image_digest(image);
  for (const auto& package : packages) {
    packages::Distribution entry;
    entry.name = entry.normalized = package.name;
    entry.version = package.version;
    entry.files = 3;
    entry.bytes = 1000;
    entry.imports = package.modules;
    entry.gpu = package.gpu;
    const auto number = std::uint32_t(inventory.distributions.size());
    for (const auto& module : package.modules) inventory.modules[module].push_back(number);
    for (const auto& path : package.paths) inventory.path_owners[path].push_back(number);
    inventory.distributions.push_back(std::move(entry));
  }
  return inventory;
}

void set_by_hand(const std::string& path, const std::string& sql) { open_sqlite(path, usage_kind())->run_script(sql); }

std::optional<int> run_and_kill(std::uint64_t calls, const std::function<void()>& work) {
  const auto child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(2);
    ::raise(SIGSTOP);
    try {
      work();
      ::_exit(0);
    } catch (const std::exception&) {
      ::_exit(1);
    }
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  for (; calls > 0 && WIFSTOPPED(status); --calls) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
  }
  if (!WIFSTOPPED(status)) return status;
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return std::nullopt;
}

const DistributionUse* find_use(const Snapshot& snapshot, const std::string& name) {
  for (const auto& use : snapshot.distributions)
    if (use.name == name) return &use;
  return nullptr;
}

}  // namespace varve::usage
