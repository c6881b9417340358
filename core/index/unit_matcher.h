#pragma once
// Which contents of a layer other layers hold, by their unit tables.
#include <cstdint>
#include <optional>
#include <vector>

#include "core/index/format/seeds.h"
#include "core/index/unit_table.h"

namespace varve::index {

// A content of one of the others.
struct UnitPlace {
  std::uint32_t source = 0;  // in their list
  std::size_t content = 0;
  bool operator==(const UnitPlace&) const = default;
};

// Asked of one content after the other, in order: files that follow each other in both are found where they do, as a
// file may lie in several places. Not shared between threads; all tables must outlive it.
class UnitMatcher {
 public:
  UnitMatcher(const UnitTable& layer, std::vector<const UnitTable*> sources)
      : layer_(layer), sources_(std::move(sources)) {}

  const UnitTable& table(const UnitPlace& place) const { return *sources_[place.source]; }
  // That the content is at that place.
  SeedRange range_at(std::size_t content, const UnitPlace& place) const {
    return {.stream_range = layer_.range(content),
            .source = place.source,
            .source_offset = table(place).range(place.content).offset};
  }
  // With the same digest; absent for what is no unit.
  std::optional<UnitPlace> find(std::size_t content);
  // Bytecode with the path and size of this one, which may differ by its source's time alone; at most kMostBytecode.
  static constexpr std::size_t kMostBytecode = 4;
  std::vector<UnitPlace> find_bytecode(std::size_t content);

 private:
  bool is_same(std::size_t content, const UnitPlace& place) const;

  const UnitTable& layer_;
  const std::vector<const UnitTable*> sources_;
  std::optional<UnitPlace> last_;
};

}  // namespace varve::index
