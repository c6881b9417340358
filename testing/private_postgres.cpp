#include "testing/private_postgres.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include <fmt/format.h>
#include <pqxx/pqxx>

namespace varve::test {
namespace {

constexpr const char* kPrograms = "/usr/lib/postgresql/15/bin/";

std::string url_of(const std::filesystem::path& folder, const std::string& database) {
  return fmt::format("postgresql://postgres@/{}?host={}", database, folder.string());
}

}  // namespace

std::unique_ptr<PrivatePostgres> PrivatePostgres::start() {
  if (!std::filesystem::exists(std::string(kPrograms) + "postgres")) return nullptr;
  std::unique_ptr<PrivatePostgres> server(new PrivatePostgres);
  server->user_ = ::geteuid();
  server->group_ = ::getegid();
  if (server->user_ == 0) {
    // PostgreSQL refuses to run as root.
    const auto* user = ::getpwnam("postgres");
    if (user == nullptr) return nullptr;
    server->user_ = user->pw_uid;
    server->group_ = user->pw_gid;
  }
  // Not in $TMPDIR: the path of a socket has little room.
  std::string folder = "/tmp/varve-pg-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp " + folder);
  server->folder_ = folder;
  if (::chown(folder.c_str(), server->user_, server->group_) != 0) throw std::runtime_error("chown " + folder);
  server->run_program("initdb", {"-D", folder + "/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale",
                                 "-N", "--no-instructions"});
  server->server_ = server->spawn(
      "postgres", {"-D", folder + "/data", "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off", "-c",
                   "max_connections=120", "-c", "shared_buffers=64MB", "-c", "log_min_messages=fatal"});
  for (int tries = 0; tries < 600; ++tries) {
    try {
      pqxx::connection connection(url_of(server->folder_, "postgres"));
      return server;
    } catch (const pqxx::failure&) {
      // It has no other way to say that it is ready but to answer.
      ::usleep(50'000);
    }
    if (::waitpid(server->server_, nullptr, WNOHANG) == server->server_) {
      server->server_ = -1;
      break;
    }
  }
  throw std::runtime_error("the private PostgreSQL server did not start");
}

PrivatePostgres::~PrivatePostgres() {
  if (server_ > 0) {
    ::kill(server_, SIGQUIT);  // at once; nobody wants its data
    ::waitpid(server_, nullptr, 0);
  }
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

std::string PrivatePostgres::new_database() {
  const auto name = fmt::format("database{}", ++databases_);
  pqxx::connection connection(url_of(folder_, "postgres"));
  // A schema of its own keeps tests apart as well as a database would, and is made in no time.
  pqxx::nontransaction(connection).exec("CREATE SCHEMA " + name);
  return url_of(folder_, "postgres") + "&options=-csearch_path%3D" + name;
}

void PrivatePostgres::run_program(const std::string& program, const std::vector<std::string>& arguments) const {
  int status = 0;
  const auto child = spawn(program, arguments);
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw std::runtime_error(program + " failed");
}

pid_t PrivatePostgres::spawn(const std::string& program, const std::vector<std::string>& arguments) const {
  std::vector<std::string> words{kPrograms + program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (auto& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const auto child = ::fork();
  if (child != 0) return child;
  const int nowhere = ::open("/dev/null", O_RDWR);
  ::dup2(nowhere, 0);
  ::dup2(nowhere, 1);
  if (::getenv("VARVE_TEST_VERBOSE") == nullptr) ::dup2(nowhere, 2);
  if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setgid(group_) != 0 || ::setuid(user_) != 0)) ::_exit(126);
  if (::chdir("/") != 0) ::_exit(126);
  ::prctl(PR_SET_PDEATHSIG, SIGQUIT);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace varve::test
