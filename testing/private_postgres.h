#pragma once
// A PostgreSQL server of our own for one test program: in a temporary folder, on a Unix socket only, gone when the
// program ends, however it ends.
#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace varve::test {

class PrivatePostgres {
 public:
  // nullptr where PostgreSQL 15 is not installed, or no user is there to run it. Throws std::runtime_error if it does
  // not start.
  static std::unique_ptr<PrivatePostgres> start();
  ~PrivatePostgres();
  PrivatePostgres(const PrivatePostgres&) = delete;
  PrivatePostgres& operator=(const PrivatePostgres&) = delete;

  // The URL of a new, empty database.
  std::string new_database();

 private:
  PrivatePostgres() = default;
  void run_program(const std::string& program, const std::vector<std::string>& arguments) const;
  pid_t spawn(const std::string& program, const std::vector<std::string>& arguments) const;

  std::filesystem::path folder_;
  uid_t user_ = 0;
  gid_t group_ = 0;
  pid_t server_ = -1;
  int databases_ = 0;
};

}  // namespace varve::test
