#include "analyzer/prune/savings.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/text/json_document.h"
#include "core/base/text/utf8.h"

namespace varve::prune {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kSharesFormat = "varve-image-shares";
constexpr std::uint64_t kSharesVersion = 1;
constexpr std::size_t kMaxShares = 8'000'000;
constexpr std::uint64_t kMaxLayerBytes = std::uint64_t(1) << 50;  // so that no sum of ours overflows

std::string called(const Digest& image, const std::string& name) {
  return name.empty() ? image.to_string() : fmt::format("{} ({})", name, image.to_string());
}

}  // namespace

ImageShares shares_of(const packages::Inventory& inventory, const std::string& name) {
  if (!inventory.image) fail<Unsupported>("what a distribution takes of layers is not known of a plain folder");
  ImageShares shares;
  shares.image = *inventory.image;
  shares.name = name;
  // A layer that occurs twice in an image is one blob.
  for (const auto& layer : inventory.layers) shares.layers[layer.digest] = layer.compressed_bytes;
  for (const auto& distribution : inventory.distributions) {
    auto& of =
        shares.distributions[distribution.vendored_by.empty() ? distribution.normalized : distribution.vendored_by];
    for (std::size_t i = 0; i < distribution.layers.size() && i < distribution.layer_bytes.size(); ++i) {
      if (distribution.layers[i] >= inventory.layers.size()) continue;
      of[inventory.layers[distribution.layers[i]].digest] += distribution.layer_bytes[i];
    }
  }
  return shares;
}

std::string to_json(const ImageShares& shares) {
  ordered_json document{{"format", kSharesFormat},
                        {"version", kSharesVersion},
                        {"image", shares.image.to_string()},
                        {"name", is_utf8(shares.name) ? shares.name : ""}};
  // Layers by number, so that their digests are written once.
  std::map<Digest, std::size_t> numbers;
  document["layers"] = ordered_json::array();
  for (const auto& [digest, bytes] : shares.layers) {
    numbers.emplace(digest, numbers.size());
    document["layers"].push_back({{"digest", digest.to_string()}, {"bytes", bytes}});
  }
  document["distributions"] = ordered_json::array();
  for (const auto& [name, of] : shares.distributions) {
    if (!is_utf8(name)) continue;
    ordered_json one{{"name", name}, {"shares", ordered_json::array()}};
    for (const auto& [digest, bytes] : of)
      if (const auto found = numbers.find(digest); found != numbers.end())
        one["shares"].push_back({{"layer", found->second}, {"bytes", bytes}});
    document["distributions"].push_back(std::move(one));
  }
  return document.dump() + "\n";
}

ImageShares parse_image_shares(std::string_view json, std::string_view what) {
  const auto document = JsonValue::parse(json, what, {.bytes = kMaxImageSharesBytes, .values = kMaxShares});
  document.only({"format", "version", "image", "name", "layers", "distributions"});
  if (document["format"].text() != kSharesFormat) document["format"].refuse(fmt::format("is not {}", kSharesFormat));
  if (document["version"].number() != kSharesVersion)
    document["version"].refuse("is another one than this program knows");
  ImageShares shares;
  shares.image = document["image"].digest();
  shares.name = document["name"].text();
  std::vector<Digest> layers;
  for (const auto& layer : document["layers"].items()) {
    layer.only({"digest", "bytes"});
    layers.push_back(layer["digest"].digest());
    const auto bytes = layer["bytes"].number(std::uint64_t(0), kMaxLayerBytes);
    if (!shares.layers.emplace(layers.back(), bytes).second) layer["digest"].refuse("is there twice");
  }
  for (const auto& one : document["distributions"].items()) {
    one.only({"name", "shares"});
    const auto [at, is_new] = shares.distributions.try_emplace(one["name"].text());
    if (!is_new) one["name"].refuse("is there twice");
    for (const auto& share : one["shares"].items()) {
      share.only({"layer", "bytes"});
      const auto number = share["layer"].number();
      if (number >= layers.size()) share["layer"].refuse("is none of its layers");
      const auto bytes = share["bytes"].number();
      if (bytes > shares.layers[layers[number]]) share["bytes"].refuse("is more than its layer has");
      if (!at->second.emplace(layers[number], bytes).second) share["layer"].refuse("is there twice");
    }
  }
  return shares;
}

std::filesystem::path SharesCache::file_of(const Digest& image) const { return folder_ / (image.hex() + ".json"); }

std::optional<ImageShares> SharesCache::find(const Digest& image) const {
  const auto file = file_of(image);
  const auto content = read_file_if_there(file, kMaxImageSharesBytes);
  if (!content) return std::nullopt;
  try {
    auto shares = parse_image_shares(as_text(*content), file.string());
    if (shares.image == image) return shares;
    log::warn("{}: is of another image", file.string());
  } catch (const Error& error) {
    log::warn("{}; made anew", error.what());
  }
  return std::nullopt;
}

void SharesCache::put(const ImageShares& shares) const {
  std::filesystem::create_directories(folder_);
  const auto text = to_json(shares);
  write_file_atomically(file_of(shares.image), as_bytes(text));
}

void Savings::add(const ImageShares& image) {
  ++images_;
  layers_.insert(image.layers.begin(), image.layers.end());
  for (const auto& [name, of] : image.distributions) {
    auto& known = shares_[name];
    for (const auto& [layer, bytes] : of) {
      // One image may see files of a layer that another one hides: the blob holds them all the same.
      auto& largest = known[layer];
      largest = std::max(largest, bytes);
    }
  }
}

void Savings::add_unknown(const Digest& image, const std::string& name, const std::string& why) {
  unknown_.push_back(fmt::format("What pinned image {} would save is not counted: {}", called(image, name), why));
}

std::uint64_t Savings::of(const std::string& distribution) const {
  const auto found = shares_.find(distribution);
  if (found == shares_.end()) return 0;
  return std::accumulate(found->second.begin(), found->second.end(), std::uint64_t(0),
                         [](std::uint64_t sum, const auto& share) { return sum + share.second; });
}

std::uint64_t Savings::stored_bytes() const {
  return std::accumulate(layers_.begin(), layers_.end(), std::uint64_t(0),
                         [](std::uint64_t sum, const auto& layer) { return sum + layer.second; });
}

void Savings::add_to(Plan& plan) const {
  plan.saved_bytes = 0;
  std::map<std::string, std::vector<PlannedDistribution*>> by_name;
  for (auto& one : plan.verdicts) by_name[one.name].push_back(&one);
  for (auto& [name, rows] : by_name) {
    const auto bytes = of(name);
    // The same name from two sources: its bytes are divided as they are in this image.
    std::uint64_t here = 0, given = 0;
    for (const auto* row : rows) here += row->compressed_bytes;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      auto& row = *rows[i];
      row.unique_compressed_bytes = i + 1 == rows.size() ? bytes - given
                                    : here == 0
                                        ? 0
                                        : std::uint64_t(double(bytes) * double(row.compressed_bytes) / double(here));
      given += row.unique_compressed_bytes;
      if (row.verdict == Verdict::kCold || row.verdict == Verdict::kArchived)
        plan.saved_bytes += row.unique_compressed_bytes;
    }
  }
  plan.unsure.insert(plan.unsure.end(), unknown_.begin(), unknown_.end());
}

}  // namespace varve::prune
