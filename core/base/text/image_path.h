#pragma once
// Paths inside an image: relative to its root, parts joined by '/', no leading slash; "" is the root.
#include <algorithm>
#include <string>
#include <string_view>

namespace varve {

// "" of a name in the root.
inline std::string_view parent_of(std::string_view path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? std::string_view() : path.substr(0, slash);
}

inline std::string_view name_of(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// The folder's name for the root's own entries, and for the folder itself, is the other one alone.
inline std::string join_path(std::string_view folder, std::string_view name) {
  std::string path(folder);
  if (!folder.empty() && !name.empty()) path += '/';
  return path += name;
}

// "/usr/lib", as programs write it, is usr/lib here.
inline std::string_view without_leading_slashes(std::string_view path) {
  return path.substr(std::min(path.find_first_not_of('/'), path.size()));
}

}  // namespace varve
