#pragma once
// What the pinned versions of an image would no longer store or fetch if distributions went: a layer that many versions
// share counts once.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/packages/inventory.h"
#include "analyzer/prune/plan.h"

namespace varve::prune {

// Where the compressed bytes of an image's distributions lie. Plain data, made once per image: an image never changes.
struct ImageShares {
  Digest image;
  std::string name;                        // what people call it: "v143"; "" = none
  std::map<Digest, std::uint64_t> layers;  // compressed bytes
  std::map<std::string, std::map<Digest, std::uint64_t>>
      distributions;  // normalised name -> layer -> its share, copies and vendored ones included
};

// Throws Unsupported for an inventory of a plain folder: it has no layers.
ImageShares shares_of(const packages::Inventory& inventory, const std::string& name);

// A small JSON document, so that an image has to be read only once. The same shares give the same bytes.
std::string to_json(const ImageShares& shares);
ImageShares parse_image_shares(std::string_view json,
                               std::string_view what);  // throws CorruptData naming `what` and the field
inline constexpr std::size_t kMaxImageSharesBytes = 64u << 20;

// Shares that were worked out before, a file per image. Safe to use by several processes at once.
class SharesCache {
 public:
  // Creates the folder with the first put().
  explicit SharesCache(std::filesystem::path folder) : folder_(std::move(folder)) {}
  // Absent if it is not there, or is not what put() wrote: then it is worked out anew.
  std::optional<ImageShares> find(const Digest& image) const;
  void put(const ImageShares& shares) const;

 private:
  std::filesystem::path file_of(const Digest& image) const;

  std::filesystem::path folder_;
};

// Sums over pinned images, added one by one; how many does not matter for its memory beyond distinct layers.
class Savings {
 public:
  void add(const ImageShares& image);
  // A pinned image whose distributions are not known: nothing is guessed, its layers count for nobody.
  void add_unknown(const Digest& image, const std::string& name, const std::string& why);

  std::uint64_t of(
      const std::string& distribution) const;  // compressed bytes over distinct layers; 0 if no image has it
  std::uint64_t stored_bytes() const;          // of all distinct layers
  std::size_t images() const { return images_; }

  // Fills `unique_compressed_bytes` of every verdict, `saved_bytes` (cold and archived ones) and adds to `unsure` what
  // could not be counted.
  void add_to(Plan& plan) const;

 private:
  std::size_t images_ = 0;
  std::map<Digest, std::uint64_t> layers_;
  std::map<std::string, std::map<Digest, std::uint64_t>> shares_;
  std::vector<std::string> unknown_;  // sentences
};

}  // namespace varve::prune
