#include "analyzer/prune/apply/internal/retimed_files.h"

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/text/calendar.h"
#include "core/index/merge/bytecode.h"

namespace varve::prune::internal {
namespace {

using index::BytecodeBinding;
using index::FlatEntry;

constexpr std::uint64_t kMaxBytecodeBytes = 256u << 20;

bool same_time(const FlatEntry& one, const FlatEntry& other) {
  return one.mtime_seconds == other.mtime_seconds && one.mtime_nanoseconds == other.mtime_nanoseconds;
}

}  // namespace

const FlatEntry* RetimedFiles::source_in(const index::FlatTree& tree, const std::string& path) {
  const auto name = index::source_of_bytecode(path);
  return name.empty() ? nullptr : tree.find_regular(name);
}

bool RetimedFiles::allows(const std::string& path, const FlatEntry& expected, const FlatEntry& found,
                          std::string& why) {
  if (is_exact()) return index::same_entry(expected, found, &why);
  auto wanted = expected;
  bool is_set_back = false, is_of_previous = false;
  if (!same_time(expected, found)) {
    const bool is_late = rule_.latest && expected.mtime_seconds >= *rule_.latest;
    is_set_back = is_late && found.mtime_seconds == *rule_.latest && found.mtime_nanoseconds == 0;
    is_of_previous = expected.type != FileType::kDirectory && rule_.of_previous.contains(found.layer);
    if (is_set_back || is_of_previous) {
      wanted.mtime_seconds = found.mtime_seconds;
      wanted.mtime_nanoseconds = found.mtime_nanoseconds;
    }
  }
  if (source_in(before_, path) != nullptr && source_in(after_, path) != nullptr)
    wanted.content_digest = found.content_digest;
  if (!index::same_entry(wanted, found, &why)) return false;
  if (is_of_previous) {
    ++of_previous_;
  } else if (is_set_back) {
    ++set_back_;
  }
  return true;
}

void RetimedFiles::check_bytecode(const index::FileSource* old_files,
                                  const std::function<void(std::string)>& report) const {
  if (is_exact()) return;
  std::vector<std::string> wanted;
  for (const auto& [path, entry] : before_.entries) {
    const auto* old_source = source_in(before_, path);
    const auto* new_source = source_in(after_, path);
    const auto* found = after_.find_regular(path);
    if (old_source == nullptr || new_source == nullptr || found == nullptr) continue;
    if (found->content_digest != entry.content_digest || !same_time(*old_source, *new_source)) wanted.push_back(path);
  }
  if (wanted.empty()) return;
  if (old_files == nullptr)
    return report(fmt::format("{}: it may have changed with its source's time, and cannot be read", wanted.front()));
  old_files->read(wanted, kMaxBytecodeBytes, [&](const std::string& path, std::optional<Bytes> content) {
    if (!content) return report(fmt::format("{}: it has more than {} bytes to compare", path, kMaxBytecodeBytes));
    judge(path, std::move(*content), report);
  });
}

void RetimedFiles::judge(const std::string& path, Bytes content, const std::function<void(std::string)>& report) const {
  const auto& old_source = *source_in(before_, path);
  const auto& new_source = *source_in(after_, path);
  const auto& found = *after_.find_regular(path);
  const auto head = std::span(content).first(std::min(content.size(), index::kBytecodeHeadBytes));
  const auto binding = index::bytecode_binding(path, head, old_source.mtime_seconds, old_source.size);
  if (binding == BytecodeBinding::kTime) index::set_bytecode_time(head, new_source.mtime_seconds);
  const auto expected = content.empty() ? Digest() : digest_of(content);
  if (found.content_digest != expected)
    return report(fmt::format("{}: content {} instead of {}, which its source's time makes it", path,
                              found.content_digest.to_string(), expected.to_string()));
  if (binding == BytecodeBinding::kNone &&
      index::bytecode_binding(path, head, new_source.mtime_seconds, new_source.size) != BytecodeBinding::kNone)
    report(fmt::format("{}: Python did not take it before, and would now that its source has another time", path));
}

std::string RetimedFiles::summary() const {
  std::string text;
  if (of_previous_ != 0) text += fmt::format("; times of {} files are the previous version's", of_previous_);
  if (set_back_ != 0) text += fmt::format("; {} times are set back to {}", set_back_, rfc3339(*rule_.latest));
  return text;
}

}  // namespace varve::prune::internal
