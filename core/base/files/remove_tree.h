#pragma once
// Folders of any depth that somebody else has filled, removed. Mount points are not entered: they are an error, which
// leaves what is in them.
#include <filesystem>
#include <string>

namespace varve {

// Everything beneath `dir` and itself, also folders that their owner may not read (overlayfs makes such).
void remove_tree(const std::filesystem::path& dir);
// Everything beneath `dir` but the entry `kept` ("": none).
void remove_contents(const std::filesystem::path& dir, const std::string& kept);

}  // namespace varve
