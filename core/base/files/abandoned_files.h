#pragma once
// What killed processes left where AtomicFile has to write under a temporary name, for folders that get many files.
#include <filesystem>

namespace varve {

// As remove_abandoned_files(), of what lay there when this process first asked for anything in the folder: it is listed
// once, however many files are written into it. From any thread.
void remove_abandoned_before_us(const std::filesystem::path& final_path);

}  // namespace varve
