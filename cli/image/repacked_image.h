#pragma once
// `image optimize --repack`: the parts put together.
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cli/base/destination.h"
#include "cli/command.h"
#include "indexer/repack_image.h"

namespace varve::cli {

struct RepackArguments {
  std::string image;  // as the user wrote it
  std::string destination;
  std::string previous;    // the image's last version as --repack wrote it; "" = none
  std::string keep_as_is;  // "0,1", "none"; "" = those that are worth it
  bool replace = false;    // DEST may be the image itself
  indexer::RepackOptions options;
};

// Packs an indexed image by what its files belong to and writes it, printing what was done.
void repack_indexed_image(const Context& context, RepackArguments& arguments);

// Warns of a layer that has no table of contents: `why` is WrittenLayer's, "" where it has one.
void warn_without_table(const Digest& layer, const std::string& why);
// What was written, as --json and as people see it: `document` and print() are of the image alone, here comes what its
// tag named before.
void show_written(const Context& context, const Destination& destination, const Digest& image, nlohmann::json document,
                  const std::function<void(std::ostream& out)>& print);
// "83.5 MB written, 249.5 MB reused, 86.2 MB of it copied there".
std::string written_text(std::uint64_t new_bytes, std::uint64_t reused_bytes, std::uint64_t copied_bytes);
// That of a repacked image, and whose times its files have.
std::string repacked_text(const indexer::RepackReport& report);
// The layers of what was written, as --json shows them.
nlohmann::json layers_json(const indexer::RepackReport& report);

}  // namespace varve::cli
