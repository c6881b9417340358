#pragma once
// Files that the program carries, so that it works alone: varve_embed() of cmake/VarveEmbed.cmake makes the functions
// that return them.
#include <span>
#include <string_view>

namespace varve {

struct EmbeddedFile {
  std::string_view name;     // without folders
  std::string_view content;  // as long as the program runs
};
using EmbeddedFiles = std::span<const EmbeddedFile>;

// Throws NotFound: only for a name that is not a constant of ours.
std::string_view embedded_file(EmbeddedFiles files, std::string_view name);

}  // namespace varve
