#pragma once
// What of an image's tree belongs together in layers: decided by the analyzer (a distribution is a component), carried
// out by the indexer.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace varve::index {

// In the order in which layers are stacked: cold ones end up last.
enum class Tier : std::uint8_t { kSystem, kCuda, kHot, kWatch, kCold };
std::string_view tier_name(Tier tier);  // "system" "cuda" "hot" "watch" "cold"

struct Component {
  std::string name;     // stable between versions of an image: "pip:numpy", "dpkg:libc6", "folder:root/.keras"
  std::string version;  // "" = has none
  Tier tier = Tier::kSystem;
  std::vector<std::string>
      paths;  // files and links of the tree, without leading "/", in byte order; directories come with what is in them
};

// A file that is in no layer of the old image.
struct AddedFile {
  std::string path;
  std::string content;
  std::uint32_t mode = 0644;
  std::int64_t mtime_seconds = 0;
};

struct Placement {
  std::vector<Component> components;  // by name, their paths disjoint; what none holds is the component "system"
  std::vector<std::string> removed;   // left out of the new image: archived. Folders that are empty by it go too
  std::vector<AddedFile> added;
};

}  // namespace varve::index
