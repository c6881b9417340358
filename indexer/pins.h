#pragma once
// The promise that image digests stay mountable: a list beside the images, as an OCI index that names them, so that
// registries keep them too. docs/formats/pins.md.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/base/work.h"
#include "core/oci/image.h"

namespace varve::indexer {

inline constexpr std::string_view kPinsArtifactType = "application/vnd.varve.pins.v1";
inline constexpr std::size_t kMaxPins = 10'000;
inline constexpr std::size_t kMaxPinSignatures = 64;  // promised with one image; of more the first by digest

struct Pin {
  oci::Descriptor image;  // its manifest, as a descriptor without annotations
  std::string name;       // what people call it: "v143"; "" = none
  std::string since;      // RFC 3339, UTC
  std::string by;
  std::string reason;
  std::optional<Digest> index;  // its index's manifest when it was pinned: promised too
  // Blobs that held signatures of image and index when it was pinned, sorted, one for each signature; promised too.
  std::vector<Digest> signatures = {};
};

// One image may be promised several times: promises differ by image, name or who made them. It is free when the last is
// taken back.
bool is_same_promise(const Pin& one, const Pin& other);
// As messages name it, whatever characters are in it: "v143" of "ann" (sha256:0123456789ab).
std::string promise_text(const Pin& pin);

// What is known to have been promised and the list does not name. Of a pin whose image has no size only the image was
// remembered: any promise of that will do.
std::vector<Pin> lost_pins(const std::vector<Pin>& known, const std::vector<Pin>& list);

// Adds a promise, or renews the one that is there: it keeps its `since`, which is put into `pin` as well. One that
// nobody in particular makes (`by` is "") renews the only one of that image and name, and leaves it its owner. Returns
// whether it is new.
bool add_promise(std::vector<Pin>& pins, Pin& pin);

// The list as it is stored. The same pins give the same bytes.
std::string list_of_pins(std::vector<Pin> pins);
// By digest, then name, then owner. Throws CorruptData for anything but a list of pins; `what` names it.
std::vector<Pin> parse_pins(ByteView list, const std::string& what);

// The pins of a repository, as parse_pins() has them. Empty if there is no list. Throws CorruptData for a list that is
// none.
std::vector<Pin> read_pins(oci::Repository& repository);

// The list, which others may rely on. Throws CorruptData, saying what to do and ending in `consequence` ("nothing was
// removed"), for one that is none or lacks one of `known`.
std::vector<Pin> read_whole_list(oci::Repository& repository, const std::vector<Pin>& known,
                                 std::string_view consequence);

// What `pin` promises beside the image as it is there now: its index, and signatures of both.
void promise_what_is_there(oci::Repository& repository, const oci::Image& image, Pin& pin);

// Reads the list, lets `change` alter it, and puts it back unless it is as before. In a layout folder (`layout_dir` not
// empty) others wait; a registry has no locks: what another writer did in between is looked for afterwards and the
// change made again, at most a few times. Throws TemporaryError after that. `change` may be called several times.
void change_pins(oci::Repository& repository, const std::filesystem::path& layout_dir,
                 const std::function<void(std::vector<Pin>&)>& change);

struct PinRepair {
  std::vector<Pin> restored;  // promises that the list lacked
  std::vector<Pin> gone;      // lacked, and so is the image's manifest: nothing can be promised of it
  std::vector<Pin> relisted;  // the promised index was there, and nothing at the image named it
  std::string set_aside;  // the tag under which what lay in the list's place is kept; "" = that was a list, or nothing
                          // that can be read
};

// Makes the list name all of `known` that it lacks; a list that is none or is damaged is written anew. Promised indexes
// are listed again at their images. Waits and tries again as change_pins().
PinRepair repair_pins(oci::Repository& repository, const std::filesystem::path& layout_dir,
                      const std::vector<Pin>& known);

struct PinCheck {
  Pin pin;
  std::vector<std::string> problems;  // empty: whole
  std::uint64_t bytes = 0;            // of its blobs, compressed
};

// Proves that manifest, config, every layer, the promised index and signatures, and the index that a mount takes now
// are there with the right sizes, and that the promised ones are found from the image; `deep` reads all bytes and
// checks the digests. Blobs that several pins share are looked at once.
std::vector<PinCheck> check_pins(oci::Repository& repository, const std::vector<Pin>& pins, bool deep, unsigned jobs,
                                 const Work& work);

}  // namespace varve::indexer
