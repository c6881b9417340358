#include "indexer/pins.h"

#include <sys/file.h>

#include <algorithm>
#include <ctime>
#include <map>
#include <set>
#include <tuple>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/calendar.h"
#include "core/base/text/json_document.h"
#include "core/base/text/strings.h"
#include "core/base/threads/guarded.h"
#include "core/base/threads/parallel.h"
#include "core/index/format/image_index.h"
#include "core/oci/layout.h"
#include "core/oci/source_turns.h"
#include "core/trust/sign.h"

namespace varve::indexer {
namespace {

using nlohmann::json;

constexpr int kMaxRounds = 5;
constexpr std::string_view kPrefix = "dev.varve.pin.";
constexpr std::string_view kName = "name", kSince = "since", kBy = "by", kReason = "reason", kIndex = "index",
                           kSignatures = "signatures", kFurtherIndex = "further-index";
// In the place of a further promise's index: Varve before 0.3 kept one promise an image and would drop the others. It
// takes this for a broken digest, says so, and changes nothing.
constexpr std::string_view kFurtherPromise = "several promises on one image: this needs a later Varve";
constexpr int kMaxSetAside = 100;

std::string key(std::string_view part) { return std::string(kPrefix) + std::string(part); }

std::string text_of(const oci::Descriptor& entry, std::string_view part) {
  const auto found = entry.annotations.find(key(part));
  return found == entry.annotations.end() ? "" : found->second;
}

Pin pin_of(const oci::Descriptor& entry, const std::string& what) {
  if (!oci::is_manifest_media_type(entry.media_type))
    fail<CorruptData>("{}: {} is no image manifest but {}", what, entry.digest.to_string(), entry.media_type);
  Pin pin;
  pin.image.media_type = entry.media_type;
  pin.image.digest = entry.digest;
  pin.image.size = entry.size;
  pin.image.platform = entry.platform;
  pin.name = text_of(entry, kName);
  pin.since = text_of(entry, kSince);
  pin.by = text_of(entry, kBy);
  pin.reason = text_of(entry, kReason);
  auto index = text_of(entry, kIndex);
  if (index == kFurtherPromise) index = text_of(entry, kFurtherIndex);
  if (!index.empty()) pin.index = Digest::parse(index, what);
  if (const auto signatures = text_of(entry, kSignatures); !signatures.empty())
    for (const auto word : split(signatures, " ")) pin.signatures.push_back(Digest::parse(word, what));
  if (pin.signatures.size() > kMaxPinSignatures)
    fail<Unsupported>("{}: a pin of {} signatures, more than {}", what, pin.signatures.size(), kMaxPinSignatures);
  std::ranges::sort(pin.signatures);
  return pin;
}

std::string text_of(const std::vector<Digest>& digests) {
  std::string text;
  for (const auto& digest : digests) text += (text.empty() ? "" : " ") + digest.to_string();
  return text;
}

// `further`: the list has one of the same image before it.
json entry_of(const Pin& pin, bool further) {
  json entry{{"mediaType", pin.image.media_type}, {"digest", pin.image.digest.to_string()}, {"size", pin.image.size}};
  if (pin.image.platform) {
    entry["platform"] = {{"os", pin.image.platform->os}, {"architecture", pin.image.platform->architecture}};
    if (!pin.image.platform->variant.empty()) entry["platform"]["variant"] = pin.image.platform->variant;
  }
  auto& notes = entry["annotations"];
  if (!pin.name.empty()) notes[key(kName)] = pin.name;
  notes[key(kSince)] = pin.since;
  if (!pin.by.empty()) notes[key(kBy)] = pin.by;
  if (!pin.reason.empty()) notes[key(kReason)] = pin.reason;
  if (further) notes[key(kIndex)] = kFurtherPromise;
  if (pin.index) notes[key(further ? kFurtherIndex : kIndex)] = pin.index->to_string();
  if (!pin.signatures.empty()) notes[key(kSignatures)] = text_of(pin.signatures);
  return entry;
}

// Where lists stand next to each other they do not depend on who wrote them.
auto order_of(const Pin& pin) { return std::tie(pin.image.digest, pin.name, pin.by, pin.since); }

// One writer at a time. Not the lock that put_manifest takes: that one is taken under this.
UniqueFd lock_pins(const std::filesystem::path& layout_dir) {
  auto folder = open_file(layout_dir / "blobs", O_RDONLY | O_DIRECTORY);
  while (::flock(folder.get(), LOCK_EX) != 0)
    if (errno != EINTR) fail_errno("lock {}", layout_dir.string());
  return folder;
}

// What is there now; absent if that is no list.
using ReadList = std::function<std::optional<std::vector<Pin>>()>;

void rewrite_list(oci::Repository& repository, const std::filesystem::path& layout_dir, const ReadList& read,
                  const std::function<void(std::vector<Pin>&)>& change) {
  const auto lock = layout_dir.empty() ? UniqueFd() : lock_pins(layout_dir);
  for (int round = 0; round < kMaxRounds; ++round) {
    const auto before = read();
    auto pins = before.value_or(std::vector<Pin>());
    change(pins);
    if (pins.size() > kMaxPins) fail<Unsupported>("{}: more than {} pins", repository.name(), kMaxPins);
    const auto wanted = list_of_pins(pins);
    if (before && wanted == list_of_pins(*before)) return;
    repository.put_manifest(as_bytes(wanted), oci::kOciIndexType, oci::kPinsTag);
    // Another writer may have put its list over ours since.
    if (!layout_dir.empty()) return;
    if (const auto after = read(); after && list_of_pins(*after) == wanted) return;
  }
  fail<TemporaryError>("{}: others keep changing its pins; try again", repository.name());
}

// What took the list's place may be an image that has no other name: it keeps one.
std::string set_aside(oci::Repository& repository) {
  oci::Document document;
  try {
    document = repository.manifest(oci::kPinsTag);
  } catch (const CorruptData&) {
    return "";
  } catch (const NotFound&) {
    return "";
  }
  for (int i = 1; i <= kMaxSetAside; ++i) {
    const auto tag = std::string(oci::kReplacedPinsTag) + (i == 1 ? "" : fmt::format("-{}", i));
    try {
      if (repository.manifest(tag).descriptor.digest == document.descriptor.digest) return tag;
    } catch (const CorruptData&) {
      // Somebody may bring back what belongs there.
    } catch (const NotFound&) {
      repository.put_manifest(document.bytes, document.descriptor.media_type, tag);
      return tag;
    }
  }
  fail<Unsupported>("{}: {} tags {} are taken; remove those that nobody needs any more", repository.name(),
                    kMaxSetAside, oci::kReplacedPinsTag);
}

bool is_listed(oci::Repository& repository, const Digest& image, const Digest& index) {
  const auto listed = repository.referrers(image, index::kIndexArtifactType);
  return std::ranges::find(listed, index, &oci::Descriptor::digest) != listed.end();
}

// True if the promised index was there, and nothing at the image named it.
bool list_index_again(oci::Repository& repository, const Pin& pin) {
  if (!pin.index || is_listed(repository, pin.image.digest, *pin.index)) return false;
  try {
    const auto document = repository.manifest(pin.index->to_string());
    repository.put_manifest(document.bytes, document.descriptor.media_type, "");
    return true;
  } catch (const NotFound&) {
    return false;  // `pin check` says so
  } catch (const CorruptData&) {
    return false;
  }
}

oci::Image open_pinned(oci::Repository& repository, const Pin& pin) {
  oci::Image image;
  image.document = repository.manifest(pin.image.digest.to_string());
  image.manifest =
      oci::Manifest::parse(image.document.bytes, image.document.descriptor.media_type, pin.image.digest.to_string());
  return image;
}

// Sorted, one for each signature.
std::vector<oci::Descriptor> signatures_of(oci::Repository& repository, const Pin& pin) {
  auto blobs = trust::signature_blobs(repository, pin.image.digest);
  if (pin.index) std::ranges::move(trust::signature_blobs(repository, *pin.index), std::back_inserter(blobs));
  std::ranges::sort(blobs, {}, &oci::Descriptor::digest);
  return blobs;
}

// Completes what this machine knows of an image by its manifest; false if that is not there.
bool find_image(oci::Repository& repository, Pin& pin) {
  try {
    const auto document = repository.manifest(pin.image.digest.to_string());
    pin.image.media_type = document.descriptor.media_type;
    pin.image.size = document.bytes.size();
    if (pin.since.empty()) pin.since = rfc3339(std::time(nullptr));
    return true;
  } catch (const NotFound&) {
    return false;
  } catch (const CorruptData&) {
    return false;
  }
}

class PinChecker {
 public:
  PinChecker(oci::Repository& repository, bool deep, const Work& work)
      : repository_(repository), deep_(deep), work_(work) {}

  std::vector<PinCheck> run(const std::vector<Pin>& pins, unsigned jobs) {
    std::vector<PinCheck> checks(pins.size());
    std::vector<std::vector<Digest>> needed(pins.size());
    parallel_for(pins.size(), jobs, work_.cancel, [&](std::size_t i, const CancelFlag&) {
      checks[i].pin = pins[i];
      needed[i] = blobs_of(checks[i]);
    });
    std::vector<const oci::Descriptor*> blobs;
    blobs_.with([&](auto& known) {
      for (const auto& [digest, blob] : known) {
        blobs.push_back(&blob);
        if (deep_) work_.progress.expect(blob.size);
      }
    });
    std::vector<std::string> problems(blobs.size());
    parallel_for(blobs.size(), jobs, work_.cancel,
                 [&](std::size_t i, const CancelFlag&) { problems[i] = problem_of(*blobs[i]); });
    std::map<Digest, std::pair<std::string, std::uint64_t>> found;
    for (std::size_t i = 0; i < blobs.size(); ++i) found[blobs[i]->digest] = {problems[i], blobs[i]->size};
    for (std::size_t i = 0; i < pins.size(); ++i) {
      for (const auto& digest : std::set<Digest>(needed[i].begin(), needed[i].end())) {
        checks[i].bytes += found[digest].second;
        if (!found[digest].first.empty()) checks[i].problems.push_back(found[digest].first);
      }
    }
    return checks;
  }

 private:
  using Need = std::function<void(const oci::Descriptor&)>;

  // What the pin needs, noted for all pins; problems of its documents go into the check.
  std::vector<Digest> blobs_of(PinCheck& check) {
    std::vector<Digest> needed;
    const Need need = [&](const oci::Descriptor& blob) {
      needed.push_back(blob.digest);
      blobs_.with([&](auto& known) { known.emplace(blob.digest, blob); });
    };
    const auto look = [&](const auto& at) {
      try {
        at();
        return true;
      } catch (const NotFound& error) {
        check.problems.emplace_back(error.what());
      } catch (const CorruptData& error) {
        check.problems.emplace_back(error.what());
      } catch (const Unsupported& error) {
        check.problems.emplace_back(error.what());
      }
      return false;
    };
    oci::Image image;
    if (!look([&] { image = open_pinned(repository_, check.pin); })) return needed;
    need_blobs_of(image.document, need);
    if (check.pin.index) look([&] { need_promised_index(image, check, need); });
    look([&] {
      index::visit_indexes(repository_, image, [&](const index::FoundIndex& taken) {
        need_blobs_of(taken.document, need);
        return true;
      });
    });
    look([&] { need_signatures(check, need); });
    return needed;
  }

  void need_promised_index(const oci::Image& image, PinCheck& check, const Need& need) {
    const auto document = repository_.manifest(check.pin.index->to_string());
    index::parse_index_manifest(document, image);
    need_blobs_of(document, need);
    if (!is_listed(repository_, check.pin.image.digest, *check.pin.index))
      check.problems.push_back(
          fmt::format("index {} is there, but the image's list of indexes does not name it; `varve pin repair {}` does",
                      check.pin.index->to_string(), repository_.name()));
  }

  static void need_blobs_of(const oci::Document& document, const Need& need) {
    const auto manifest =
        oci::Manifest::parse(document.bytes, document.descriptor.media_type, document.descriptor.digest.to_string());
    need(manifest.config);
    for (const auto& layer : manifest.layers) need(layer);
  }

  void need_signatures(PinCheck& check, const Need& need) {
    const auto& promised = check.pin.signatures;
    if (promised.empty()) return;
    const auto found = signatures_of(repository_, check.pin);
    for (const auto& blob : found)
      if (std::ranges::binary_search(promised, blob.digest)) need(blob);
    std::vector<Digest> there, lost;
    std::ranges::transform(found, std::back_inserter(there), &oci::Descriptor::digest);
    std::ranges::set_difference(promised, there, std::back_inserter(lost));
    for (const auto& digest : lost)
      check.problems.push_back(fmt::format("signature {} is not beside it any more", digest.to_string()));
  }

  std::string problem_of(const oci::Descriptor& blob) {
    if (!repository_.has_blob(blob))
      return fmt::format("{}: not there, or not of {} bytes", blob.digest.to_string(), blob.size);
    if (!deep_) return "";
    for (oci::SourceTurns sources(repository_, blob);;) {
      try {
        repository_.read_blob(blob, {.offset = 0, .length = blob.size},
                              [&](ByteView bytes) { work_.add(bytes.size()); });
        return "";
      } catch (const CorruptData& error) {
        if (!sources.next(error)) return error.what();
        work_.progress.expect(blob.size);
      } catch (const NotFound& error) {
        return error.what();
      }
    }
  }

  oci::Repository& repository_;
  bool deep_;
  const Work work_;
  Guarded<std::map<Digest, oci::Descriptor>> blobs_;
};

}  // namespace

bool is_same_promise(const Pin& one, const Pin& other) {
  return one.image.digest == other.image.digest && one.name == other.name && one.by == other.by;
}

std::string promise_text(const Pin& pin) {
  const auto quoted = [](const std::string& text) {
    return json(text).dump(-1, ' ', true, json::error_handler_t::replace);
  };
  return fmt::format("{}{} ({})", pin.name.empty() ? "one without a name" : quoted(pin.name),
                     pin.by.empty() ? "" : " of " + quoted(pin.by), pin.image.digest.to_string().substr(0, 19));
}

std::vector<Pin> lost_pins(const std::vector<Pin>& known, const std::vector<Pin>& list) {
  std::vector<Pin> lost;
  std::ranges::copy_if(known, std::back_inserter(lost), [&](const Pin& pin) {
    return std::ranges::none_of(list, [&](const Pin& listed) {
      return pin.image.size == 0 ? listed.image.digest == pin.image.digest : is_same_promise(listed, pin);
    });
  });
  return lost;
}

bool add_promise(std::vector<Pin>& pins, Pin& pin) {
  auto old = std::ranges::find_if(pins, [&](const Pin& other) { return is_same_promise(other, pin); });
  if (old == pins.end() && pin.by.empty()) {
    const auto has_name = [&](const Pin& other) {
      return other.image.digest == pin.image.digest && other.name == pin.name;
    };
    if (std::ranges::count_if(pins, has_name) == 1) old = std::ranges::find_if(pins, has_name);
  }
  if (old == pins.end()) {
    pins.push_back(pin);
    return true;
  }
  pin.since = old->since;  // the promise is as old as it was
  pin.by = old->by;
  *old = pin;
  return false;
}

std::string list_of_pins(std::vector<Pin> pins) {
  std::ranges::stable_sort(pins, {}, order_of);
  auto entries = json::array();
  for (std::size_t i = 0; i < pins.size(); ++i)
    entries.push_back(entry_of(pins[i], i != 0 && pins[i - 1].image.digest == pins[i].image.digest));
  return json{{"schemaVersion", 2},
              {"mediaType", oci::kOciIndexType},
              {"artifactType", kPinsArtifactType},
              {"manifests", std::move(entries)}}
      .dump();
}

std::vector<Pin> parse_pins(ByteView bytes, const std::string& what) {
  const auto list = oci::ImageIndex::parse(bytes, what);
  // Any index has entries; an image for several platforms that took the tag promises nothing.
  const auto document = JsonValue::parse(bytes, what, {.bytes = oci::kMaxManifestBytes});
  if (document.maybe("artifactType").raw() != kPinsArtifactType) document.refuse("it is no list of pins");
  if (list.manifests.size() > kMaxPins)
    fail<Unsupported>("{}: {} pins, more than {}", what, list.manifests.size(), kMaxPins);
  std::vector<Pin> pins;
  for (const auto& entry : list.manifests) pins.push_back(pin_of(entry, what));
  std::ranges::stable_sort(pins, {}, order_of);
  return pins;
}

std::vector<Pin> read_pins(oci::Repository& repository) {
  const auto what = fmt::format("{}:{}", repository.name(), oci::kPinsTag);
  try {
    const auto document = repository.manifest(oci::kPinsTag);
    if (!oci::is_index_media_type(document.descriptor.media_type)) fail<CorruptData>("{}: it is no list of pins", what);
    return parse_pins(document.bytes, what);
  } catch (const NotFound&) {
    return {};
  } catch (const CorruptData& error) {
    fail<CorruptData>("{}; `varve pin repair {}` writes it anew from what this machine knows", error.what(),
                      repository.name());
  }
}

std::vector<Pin> read_whole_list(oci::Repository& repository, const std::vector<Pin>& known,
                                 std::string_view consequence) {
  std::vector<Pin> list;
  try {
    list = read_pins(repository);
  } catch (const CorruptData& error) {
    fail<CorruptData>("{}; {}", error.what(), consequence);
  }
  const auto lost = lost_pins(known, list);
  if (lost.empty()) return list;
  fail<CorruptData>(
      "{}: this machine knows of {} that the list there does not name: {}; {}; `varve pin repair {}` puts back what "
      "was "
      "lost, `varve pin rm {}@{}` forgets what was taken back elsewhere",
      repository.name(), lost.size() == 1 ? "a pin" : fmt::format("{} pins", lost.size()), promise_text(lost.front()),
      consequence, repository.name(), repository.name(), lost.front().image.digest.to_string());
}

void promise_what_is_there(oci::Repository& repository, const oci::Image& image, Pin& pin) {
  pin.index.reset();
  if (const auto index = index::find_index(repository, image)) pin.index = index->manifest.digest;
  pin.signatures.clear();
  for (const auto& blob : signatures_of(repository, pin)) pin.signatures.push_back(blob.digest);
  if (pin.signatures.size() > kMaxPinSignatures) pin.signatures.resize(kMaxPinSignatures);
}

void change_pins(oci::Repository& repository, const std::filesystem::path& layout_dir,
                 const std::function<void(std::vector<Pin>&)>& change) {
  rewrite_list(
      repository, layout_dir, [&] { return read_pins(repository); }, change);
}

PinRepair repair_pins(oci::Repository& repository, const std::filesystem::path& layout_dir,
                      const std::vector<Pin>& known) {
  PinRepair repair;
  const auto read = [&]() -> std::optional<std::vector<Pin>> {
    try {
      return read_pins(repository);
    } catch (const CorruptData&) {
      if (repair.set_aside.empty()) repair.set_aside = set_aside(repository);
      return std::nullopt;
    }
  };
  std::vector<Pin> promised;
  rewrite_list(repository, layout_dir, read, [&](std::vector<Pin>& pins) {
    repair.restored.clear();
    repair.gone.clear();
    for (auto pin : lost_pins(known, pins)) {
      const bool there = find_image(repository, pin);
      (there ? repair.restored : repair.gone).push_back(pin);
      if (there) add_promise(pins, pin);
    }
    promised = pins;
  });
  for (const auto& pin : promised)
    if (list_index_again(repository, pin)) repair.relisted.push_back(pin);
  return repair;
}

std::vector<PinCheck> check_pins(oci::Repository& repository, const std::vector<Pin>& pins, bool deep, unsigned jobs,
                                 const Work& work) {
  return PinChecker(repository, deep, work).run(pins, jobs);
}

}  // namespace varve::indexer
