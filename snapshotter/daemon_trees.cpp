#include "snapshotter/daemon_trees.h"

#include <charconv>

#include "core/base/errors.h"
#include "core/base/process/child_process.h"
#include "core/base/text/json_document.h"
#include "core/base/text/strings.h"
#include "core/oci/manifest.h"

namespace varve::snapshotter {
namespace {

// The names of our holds: "snapshotter/<manifest digest, hex>/<layers>".
constexpr std::string_view kHoldPrefix = "snapshotter/";
constexpr auto kListPatience = std::chrono::seconds(60);
constexpr std::uint64_t kMaxListBytes = 64 << 20;

std::string hold_name(const TreeId& tree) { return fmt::format("{}{}/{}", kHoldPrefix, tree.image.hex(), tree.layers); }

std::optional<TreeId> parse_hold_name(std::string_view name) {
  if (!name.starts_with(kHoldPrefix)) return std::nullopt;
  const auto parts = split(name.substr(kHoldPrefix.size()), "/");
  if (parts.size() != 2) return std::nullopt;
  const auto image = Digest::try_parse(fmt::format("sha256:{}", parts[0]));
  std::uint32_t layers = 0;
  const auto [end, error] = std::from_chars(parts[1].data(), parts[1].data() + parts[1].size(), layers);
  if (!image || error != std::errc() || end != parts[1].data() + parts[1].size()) return std::nullopt;
  return TreeId{.image = *image, .layers = layers};
}

}  // namespace

fuse::ControlClient DaemonTrees::connect() const {
  return fuse::ControlClient::connect_or_start(options_.paths, options_.program);
}

fuse::ImageSpec DaemonTrees::image(const std::string& reference) const {
  auto image = options_.image;
  image.reference = reference;
  return image;
}

KnownImage DaemonTrees::look_up(const std::string& reference, const Digest& manifest, std::chrono::milliseconds limit) {
  const auto found = connect().look_up(image(reference), limit);
  if (found.image != manifest)
    fail<CorruptData>("{}: the daemon has opened {} instead", reference, found.image.to_string());
  const auto config = oci::ImageConfig::parse(as_bytes(found.config_json), reference);
  if (config.diff_ids.size() != found.layers.size())
    fail<CorruptData>("{}: its config names {} layers, its manifest {}", reference, config.diff_ids.size(),
                      found.layers.size());
  return {.image = manifest, .reference = found.reference, .chain = chain_ids(config.diff_ids)};
}

std::vector<std::pair<std::string, Digest>> DaemonTrees::opened() {
  const auto listed =
      run_child({.words = {options_.program.string(), "--root", options_.paths.root.string(), "images", "--json"},
                 .input = {},
                 .limit = kListPatience,
                 .environment = {}},
                CancelFlag());
  if (listed.exit_status != 0) fail<Error>("varve images: {}", last_line(listed.err));
  std::vector<std::pair<std::string, Digest>> images;
  const auto document = JsonValue::parse(listed.out, "varve images", {.bytes = kMaxListBytes});
  for (const auto& image : document["images"].items())
    if (const auto names = image["references"].texts(); !names.empty())
      images.emplace_back(names.front(), image["image"].digest());
  return images;
}

std::filesystem::path DaemonTrees::hold(const TreeId& tree, const std::string& reference) {
  return connect().hold(hold_name(tree), image(reference), tree.layers, options_.mode).dir;
}

void DaemonTrees::release(const TreeId& tree) { connect().release(hold_name(tree)); }

std::vector<TreeId> DaemonTrees::held() {
  std::vector<TreeId> trees;
  // Where no daemon runs nothing is held.
  auto daemon = fuse::ControlClient::connect(options_.paths);
  if (!daemon) return trees;
  for (const auto& held : daemon->held())
    if (const auto tree = parse_hold_name(held.name)) trees.push_back(*tree);
  return trees;
}

}  // namespace varve::snapshotter
