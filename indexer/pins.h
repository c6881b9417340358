#pragma once
// The promise that image digests stay mountable: a list beside the images, as an OCI index that names them, so that registries keep them too.
// docs/format-pins.md.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/cancel.h"
#include "core/base/digest.h"
#include "core/base/progress.h"
#include "core/oci/image.h"

namespace varve::indexer {

inline constexpr std::string_view kPinsArtifactType = "application/vnd.varve.pins.v1";
inline constexpr std::size_t kMaxPins = 10'000;

struct Pin {
  oci::Descriptor image;        // its manifest, as a descriptor without annotations
  std::string name;             // what people call it: "v143"; "" = none
  std::string since;            // RFC 3339, UTC
  std::string by;
  std::string reason;
  std::optional<Digest> index;  // its index's manifest when it was pinned: promised too
};

// The pins of a repository, by digest. Empty if there is no list. Throws CorruptData for a list that is none.
std::vector<Pin> read_pins(oci::Repository& repository);

// Reads the list, lets `change` alter it, and puts it back unless it is as before. In a layout folder (`layout_dir` not empty) others wait; a registry has
// no locks: what another writer did in between is looked for afterwards and the change made again, at most a few times. Throws TemporaryError after that.
// `change` may be called several times.
void change_pins(oci::Repository& repository, const std::filesystem::path& layout_dir, const std::function<void(std::vector<Pin>&)>& change);

struct PinCheck {
  Pin pin;
  std::vector<std::string> problems;  // empty: whole
  std::uint64_t bytes = 0;            // of its blobs, compressed
};

// Proves that manifest, config, every layer and the promised index are there with the right sizes; `deep` reads all bytes and checks the digests. Blobs that several
// pins share are looked at once.
std::vector<PinCheck> check_pins(oci::Repository& repository, const std::vector<Pin>& pins, bool deep, unsigned jobs, Progress& progress, const CancelFlag& cancel);

}  // namespace varve::indexer
