#pragma once
// Many paths, kept small: entries of a layer come folder by folder, so a folder's name is kept once for those that
// follow each other.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/text/image_path.h"

namespace varve::index {

class PathList {
 public:
  void add(std::string_view path) {
    const auto folder = parent_of(path);
    if (folders_.empty() || folders_.back() != folder) folders_.emplace_back(folder);
    names_ += name_of(path);
    places_.push_back({.names_end = names_.size(), .folder = std::uint32_t(folders_.size() - 1)});
  }
  void reserve(std::size_t count) { places_.reserve(count); }
  std::size_t size() const { return places_.size(); }
  std::string at(std::size_t number) const {
    const auto& place = places_.at(number);
    const auto begin = number == 0 ? 0 : places_[number - 1].names_end;
    return join_path(folders_[place.folder], std::string_view(names_).substr(begin, place.names_end - begin));
  }

 private:
  struct Place {
    std::uint64_t names_end = 0;
    std::uint32_t folder = 0;
  };
  std::vector<Place> places_;
  std::string names_;
  std::vector<std::string> folders_;
};

}  // namespace varve::index
