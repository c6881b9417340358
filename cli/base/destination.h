#pragma once
// Where commands put images and indexes.
#include <memory>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cli/command.h"
#include "core/oci/repository.h"

namespace varve::cli {

// Throws UsageError for a tag under which no image may lie: that of the list of pins, those of indexes and signatures.
void refuse_own_tag(const oci::Reference& reference);

// Throws UsageError for a destination with a digest, which follows from what is put there, and what refuse_own_tag()
// throws.
oci::Reference parse_destination(const std::string& destination);

struct Destination {
  oci::Reference reference;
  std::shared_ptr<oci::Repository> repository;
  std::optional<Digest> before;  // what its tag names until now; absent if it is new, or there is none

  std::string tag() const { return reference.tag.value_or(""); }
};

// A layout folder is made where there is none. Within the registry of `source` (a reference as the user wrote it) blobs
// are mounted from there, not sent. Throws CorruptData if the destination's tag would move and the list of pins there
// is none, or lacks what this machine knows of.
Destination open_destination(const Context& context, const std::string& source, const oci::Reference& destination);

// --replace of the commands that write an image anew.
void add_replace_option(CLI::App& command, bool& replace);
// Throws UsageError, unless `replace`, for a DEST that is the very reference `source`; if `made_of` is written anew
// also for one whose tag names that image, where the source was named by digest or without a tag.
void refuse_own_source(const std::string& source, const std::optional<Digest>& made_of, const Destination& destination,
                       bool replace);

// "oci:/srv/images:v1 was sha256:..., is sha256:... now" and a line's end; "" if no tag has moved.
std::string moved_text(const Destination& destination, const Digest& now);
// The same for --json: the digest before, null if no tag has moved.
nlohmann::json replaced_json(const Destination& destination, const Digest& now);

}  // namespace varve::cli
