#pragma once
// How commands open what they look into: an image with its index, or whatever holds files.
#include <memory>
#include <string>

#include "cli/command.h"
#include "core/base/progress.h"
#include "core/index/opened_image.h"

namespace varve::cli {

inline constexpr const char* kIndexHereHelp =
    "Have this machine make the image's index itself, from all its layers, unless one counts here already";

// Makes an index of the image in the local root alone, unless one is here that is vouched for (built here, proved,
// signed): streams the layers once, and checks their digests and diff_ids.
void index_here(const Context& context, const std::string& reference);
// The same where there is an index that others have made: for commands that write what it says, or judge by it. Without
// any index it does nothing.
void index_here_if_others_did(const Context& context, const std::string& reference);

// Throws NotFound with what to do if the image has no index.
index::OpenedImage open_indexed(const Context& context, const std::string& reference,
                                index::IndexPlace place = index::IndexPlace::kHere);

// "oci:" and registries are images; what else is a folder here is one.
bool is_plain_folder(const std::string& what);
// A plain folder; an image through its index; an image without index by reading its layers, told to `progress`. Context
// and progress must outlive it. Throws as the sources do.
std::unique_ptr<index::FileSource> open_files(const Context& context, const std::string& what, Progress& progress);

// The inode of a path in the image, symbolic links followed unless `follow_last` is false and it is the last part.
// Throws NotFound.
index::Nid find_file(const index::OpenedImage& image, const std::string& path, bool follow_last = true);

// The same place, and this very image in it.
std::string by_digest(oci::Reference reference, const Digest& digest);

}  // namespace varve::cli
