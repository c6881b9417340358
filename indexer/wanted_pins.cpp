#include "indexer/wanted_pins.h"

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/toml.h"
#include "core/oci/reference.h"
#include "indexer/known_pins.h"
#include "indexer/pins.h"

namespace varve::indexer {

std::vector<WantedPin> read_wanted_pins(const std::filesystem::path& path, const std::string& where) {
  const auto file = path.string();
  const auto bytes = read_file(path, kMaxTomlBytes);
  const auto root = parse_toml(as_text(bytes), file);
  toml_only_keys(root, {"pin"}, file);
  const auto tables = toml_tables(root, "pin", file);
  if (tables.empty() || tables.size() > kMaxPins)
    fail<CorruptData>("{}: {} [[pin]] tables; 1 to {} are allowed", file, tables.size(), kMaxPins);
  std::vector<WantedPin> wanted;
  for (const auto* table : tables) {
    toml_only_keys(*table, {"image", "name", "reason", "owner"}, file);
    const auto said = [&](std::string_view key) {
      auto text = toml_string(*table, key, file, true);
      if (text.find_first_not_of(" \t\n") == std::string::npos)
        fail<CorruptData>("{}: '{}' is empty: who finds the pin must know", toml_place(file, *table), key);
      return text;
    };
    WantedPin one{.image = said("image"),
                  .name = toml_string(*table, "name", file),
                  .by = said("owner"),
                  .reason = said("reason")};
    const bool relative = one.image.starts_with(':') || one.image.starts_with('@');
    if (relative && where.empty())
      fail<UsageError>("{}: '{}' is an image of the repository named on the command line, and none is named",
                       toml_place(file, *table), one.image);
    if (relative) one.image = place_of(oci::Reference::parse(where)) + one.image;
    wanted.push_back(std::move(one));
  }
  return wanted;
}

}  // namespace varve::indexer
