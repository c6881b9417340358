#pragma once
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "cli/command.h"

namespace varve::test {

struct Outcome {
  int status = 0;
  std::string out;
  std::string err;
};

// The program in this process, with streams of its own and no configuration but what the test gives.
inline Outcome varve(std::vector<std::string> words) {
  words.insert(words.begin(), "varve");
  std::vector<const char*> argv;
  for (const auto& word : words) argv.push_back(word.c_str());
  std::ostringstream out;
  std::ostringstream err;
  const int status = cli::varve_main(int(argv.size()), argv.data(), out, err);
  return {status, out.str(), err.str()};
}

// Sets a variable for one scope; absent removes it.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~ScopedVariable() { set(old_); }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;

 private:
  void set(const std::optional<std::string>& value) {
    if (value) {
      ::setenv(name_, value->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }
  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace varve::test
