#pragma once
// Environment markers: "python_version < '3.8' and extra == 'test'". PEP 508;
// packaging.python.org/specifications/dependency-specifiers.
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace varve::python {

inline constexpr std::size_t kMaxMarkerBytes = 65536;
inline constexpr std::size_t kMaxMarkerDepth = 100;  // of parentheses

// What markers see. Keys as PEP 508 names them: "python_version", "sys_platform", "platform_machine", …; what is absent
// reads as "".
using Environment = std::map<std::string, std::string, std::less<>>;

// A value; copies share the parsed form. A default-made one holds always.
class Marker {
 public:
  // Also the older spellings "os.name", "python_implementation", "sys.platform" and so on.
  static std::optional<Marker> parse(std::string_view text);
  // `extra`: the one extra that is asked for, "" = none.
  bool holds(const Environment& environment, std::string_view extra) const;
  const std::string& text() const { return text_; }
  // Normalised names of the extras that the marker mentions.
  std::set<std::string> extras() const;

  struct Node;

 private:
  std::string text_;
  std::shared_ptr<const Node> root_;
};

}  // namespace varve::python
