#include "core/base/error_text.h"

#include <filesystem>
#include <string_view>

#include <fmt/format.h>

namespace varve {
namespace {

// "cannot create directories" of "filesystem error: cannot create directories: Permission denied [/x]".
std::string_view deed_of(std::string_view what) {
  constexpr std::string_view kPrefix = "filesystem error: ";
  if (what.starts_with(kPrefix)) what.remove_prefix(kPrefix.size());
  return what.substr(0, what.find(": "));
}

// In the words of people where the library's are those of its functions; "" where the reason says it all.
std::string in_our_words(std::string_view deed) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"cannot make canonical path", ""},
      {"cannot get file size", ""},
      {"status", ""},
      {"symlink_status", ""},
      {"cannot create directories", "cannot create the folder"},
      {"cannot create directory", "cannot create the folder"},
      {"directory iterator cannot open directory", "cannot list the folder"},
      {"recursive directory iterator cannot open directory", "cannot list the folder"},
      {"cannot check if file is empty", "cannot list the folder"},
  };
  for (const auto& [theirs, ours] : kWords)
    if (deed == theirs) return std::string(ours);
  return std::string(deed);
}

}  // namespace

std::string error_text(const std::exception& error) {
  const auto* file = dynamic_cast<const std::filesystem::filesystem_error*>(&error);
  if (file == nullptr || file->path1().empty()) return error.what();
  auto text = file->path1().string();
  if (!file->path2().empty()) text += " and " + file->path2().string();
  if (const auto deed = in_our_words(deed_of(file->what())); !deed.empty()) text += ": " + deed;
  return text + ": " + file->code().message();
}

}  // namespace varve
