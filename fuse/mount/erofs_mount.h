#pragma once
// Kernel mode: the tree as EROFS over the layer streams' files.
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

namespace varve::fuse {

struct ErofsMountRequest {
  std::filesystem::path tree_file;             // block device 0: the metadata
  std::vector<std::filesystem::path> devices;  // in the order of the tree's device table
  std::filesystem::path dir;
  unsigned read_ahead_kb = 0;  // 0: the kernel's default
};

// Read-only, nosuid, nodev. Throws std::system_error; see is_lack_of_kernel().
void mount_erofs(const ErofsMountRequest& request);

// True for the errors by which a kernel, a user namespace or a container says that it does not do this, as against a
// broken image.
bool is_lack_of_kernel(int error_number);

// For people: why such an error came for a tree that lies at `tree_file`, with what to do about it.
std::string why_no_erofs(const std::system_error& error, const std::filesystem::path& tree_file);
// The same of a kernel's release ("6.18.1-amd64") and the name of a file system ("tmpfs").
std::string why_no_erofs(const std::system_error& error, const std::string& release, const std::string& file_system,
                         const std::filesystem::path& tree_file);

}  // namespace varve::fuse
