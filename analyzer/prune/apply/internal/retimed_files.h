#pragma once
// Files that a rewritten image has with other times than the old one, as a rule allows: nothing else of them may
// differ, and Python must take their bytecode as it did before.
#include <cstdint>
#include <functional>
#include <string>

#include "analyzer/prune/apply/gates.h"

namespace varve::prune::internal {

// Trees and rule must outlive it.
class RetimedFiles {
 public:
  RetimedFiles(const index::FlatTree& before, const index::FlatTree& after, const TimesRule& rule)
      : before_(before), after_(after), rule_(rule) {}

  // Whether nothing differs but what the rule allows; `why` says what. `expected`: the old entry as the change left it.
  // Content of bytecode that differs is for check_bytecode() to judge.
  bool allows(const std::string& path, const index::FlatEntry& expected, const index::FlatEntry& found,
              std::string& why);
  // Reads the old bytecode that differs or whose source has another time, and tells each that is not exactly the old
  // one with its source's time, or that would count now and did not before. `old_files` may be null: then it tells that
  // they cannot be compared.
  void check_bytecode(const index::FileSource* old_files, const std::function<void(std::string)>& report) const;
  // "; times of 3 files are the previous version's"; "" if there are none.
  std::string summary() const;

 private:
  bool is_exact() const { return rule_.of_previous.empty() && !rule_.latest; }
  // nullptr: it is no bytecode, or has no file as its source.
  static const index::FlatEntry* source_in(const index::FlatTree& tree, const std::string& path);
  void judge(const std::string& path, Bytes content, const std::function<void(std::string)>& report) const;

  const index::FlatTree& before_;
  const index::FlatTree& after_;
  const TimesRule& rule_;
  std::uint64_t of_previous_ = 0, set_back_ = 0;
};

}  // namespace varve::prune::internal
