#pragma once
// A file of pins to be made: the [[pin]] tables of docs/guide/pins-and-export.md.
#include <filesystem>
#include <string>
#include <vector>

namespace varve::indexer {

struct WantedPin {
  std::string image;  // a reference, as a command takes it
  std::string name;   // "" = the tag
  std::string by;
  std::string reason;
};

// In the order of the file. An image that begins with ":" or "@" is one of the repository `where` ("" = none was
// named). Throws CorruptData for anything but a list of pins that each say image, reason and owner, UsageError for an
// image of a repository that was not named.
std::vector<WantedPin> read_wanted_pins(const std::filesystem::path& file, const std::string& where);

}  // namespace varve::indexer
