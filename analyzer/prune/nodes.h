#pragma once
// The distributions of an image as a plan counts them: one per normalised name and source.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/packages/inventory.h"

namespace varve::prune {

struct Node {
  std::string name;     // normalised
  std::string source;   // "pip" "egg" "conda" "dpkg"
  std::string version;  // of the copy that the first Python sees, else of the first
  std::vector<std::uint32_t>
      members;  // distributions of the inventory: copies in several site folders; vendored ones are members of none
};

inline constexpr std::size_t kMaxNodeName =
    512;  // a longer one is no name that anybody wrote: it gets no verdict, so it stays

// The inventory must outlive it.
class Nodes {
 public:
  explicit Nodes(const packages::Inventory& inventory);

  const std::vector<Node>& all() const { return nodes_; }  // by name, then source
  std::uint32_t count() const { return std::uint32_t(nodes_.size()); }
  // The node of a distribution of the inventory; a vendored one's is the outer one's. Absent if the outer one is not
  // there, or its name is too long.
  std::optional<std::uint32_t> of(std::uint32_t distribution) const;
  // Of a normalised name, or of the conda or Debian package that a distribution came as; in order.
  std::vector<std::uint32_t> named(std::string_view name) const;
  // The nodes of these distributions of the inventory, ascending.
  std::vector<std::uint32_t> of_all(const std::vector<std::uint32_t>& distributions) const;
  const packages::Inventory& inventory() const { return inventory_; }

 private:
  const packages::Inventory& inventory_;
  std::vector<Node> nodes_;
  std::vector<std::optional<std::uint32_t>> of_;
  std::map<std::string, std::vector<std::uint32_t>, std::less<>> by_name_;
};

// Of two site folders: they are one, or some Python of the image looks into both.
bool seen_together(const packages::Inventory& inventory, const std::string& site, const std::string& other);

}  // namespace varve::prune
