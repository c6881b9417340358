#pragma once
// Which files are CUDA libraries, by name, and in which folders they are looked for.
#include <filesystem>
#include <string_view>
#include <vector>

#include "gpu/probe/library.h"

namespace varve::gpu::probe {

// A shared object of the toolkit, cuDNN, NCCL and their relatives. The driver's own (libcuda, libnvidia-*) are not:
// they are the machine's.
bool is_cuda_library(std::string_view file_name);
// One that the steps use, or that those open by themselves: an image is broken where one of these is there and does not
// open.
bool is_needed_library(std::string_view file_name);

// Every folder that a CUDA library may be found in by its file name: LD_LIBRARY_PATH, the folders of /etc/ld.so.conf,
// the loader's default ones, the toolkit's usual roots, and `others`. Folders that are there, each once, without those
// named "stubs": what is in them is for linking only.
std::vector<std::filesystem::path> library_folders(const LibraryFolders& others);

// The folders of a configuration file of the loader, with what it includes, in order.
std::vector<std::filesystem::path> configured_folders(const std::filesystem::path& configuration);

}  // namespace varve::gpu::probe
