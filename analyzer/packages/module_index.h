#pragma once
// Whose a module is: the one rule by which names in code become distributions.
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace varve::packages {

// Dotted names of modules and who owns them; several where they share one. An owner is whatever stands for a
// distribution where the index is kept: its place in a list, its number in a database, its name.
template <typename Owner>
class ModuleIndex : public std::map<std::string, std::vector<Owner>, std::less<>> {
 public:
  // The longest dotted prefix that is known decides. For the root of a namespace, or a part of it that nobody has: all
  // that lies below it, if that is one and the same; else nobody.
  const std::vector<Owner>& owners(std::string_view dotted) const {
    static const std::vector<Owner> kNobody;
    for (auto name = dotted;; name = name.substr(0, name.rfind('.'))) {
      if (const auto found = this->find(name); found != this->end()) return found->second;
      if (name.find('.') == std::string_view::npos) break;
    }
    const auto prefix = std::string(dotted) + '.';
    const auto first = this->lower_bound(prefix);
    for (auto below = first; below != this->end() && below->first.starts_with(prefix); ++below)
      if (below->second != first->second) return kNobody;
    return first != this->end() && first->first.starts_with(prefix) ? first->second : kNobody;
  }

  // Somebody owns it, or something below it.
  bool has(std::string_view dotted) const {
    return this->contains(dotted) ||
           this->lower_bound(std::string(dotted) + '.') != this->lower_bound(std::string(dotted) + '/');
  }
};

}  // namespace varve::packages
