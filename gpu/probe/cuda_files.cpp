#include "gpu/probe/cuda_files.h"

#include <glob.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <set>

namespace varve::gpu::probe {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxIncludes = 8;  // configuration files that include each other

// Stems: the name up to ".so". A star stands for the rest.
constexpr std::string_view kNeeded[] = {"libcudart", "libcublas", "libcublasLt",       "libcudnn*",
                                        "libcufft",  "libcurand", "libcusolver",       "libcusparse",
                                        "libnccl",   "libnvrtc",  "libnvrtc-builtins", "libnvJitLink"};
constexpr std::string_view kOthers[] = {
    "libnvblas",         "libcufftw",         "libcusolverMg", "libcusparseLt",   "libcutensor*", "libnccl-*",
    "libnvrtc*",         "libnvptxcompiler*", "libnvvm",       "libnvfatbin",     "libcupti",     "libnvperf_*",
    "libpcsamplingutil", "libcheckpoint",     "libnvToolsExt", "libnvtx3interop", "libnvshmem*",  "libcufile*",
    "libnpp*",           "libnvjpeg*",        "libnvinfer*",   "libnvonnxparser"};

bool matches(std::string_view stem, std::string_view pattern) {
  return pattern.ends_with('*') ? stem.starts_with(pattern.substr(0, pattern.size() - 1)) : stem == pattern;
}

std::string_view stem_of(std::string_view file_name) {
  const auto at = file_name.find(".so");
  if (at == std::string_view::npos || (at + 3 < file_name.size() && file_name[at + 3] != '.')) return {};
  auto stem = file_name.substr(0, at);
  if (stem.ends_with(".alt")) stem.remove_suffix(4);  // NVRTC's second build
  // pip's tools put a digest into the names of libraries they carry along: libcudart-9d6f5a5c.so.12
  const auto dash = stem.rfind('-');
  if (dash != std::string_view::npos && stem.size() - dash == 9 &&
      stem.find_first_not_of("0123456789abcdef", dash + 1) == std::string_view::npos)
    stem = stem.substr(0, dash);
  return stem;
}

void read_configuration(const fs::path& file, int depth, std::vector<fs::path>& folders) {
  std::ifstream lines(file);
  std::string line;
  while (std::getline(lines, line)) {
    line = line.substr(0, line.find('#'));
    const auto begin = line.find_first_not_of(" \t");
    if (begin == std::string::npos) continue;
    line = line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
    if (line.starts_with("include ") || line.starts_with("include\t")) {
      const auto pattern = line.substr(line.find_first_not_of(" \t", 7));
      glob_t found{};
      const auto full = pattern.starts_with('/') ? pattern : (file.parent_path() / pattern).string();
      if (depth < kMaxIncludes && ::glob(full.c_str(), 0, nullptr, &found) == 0) {
        for (std::size_t i = 0; i < found.gl_pathc; ++i) read_configuration(found.gl_pathv[i], depth + 1, folders);
      }
      ::globfree(&found);
    } else if (line.starts_with('/')) {
      folders.emplace_back(line);
    }
  }
}

void add_search_path(const char* variable, std::vector<fs::path>& folders) {
  const char* value = std::getenv(variable);
  std::string_view rest = value ? value : "";
  while (!rest.empty()) {
    const auto end = std::min(rest.find_first_of(":;"), rest.size());
    if (end > 0) folders.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
}

}  // namespace

bool is_needed_library(std::string_view file_name) {
  const auto stem = stem_of(file_name);
  return std::ranges::any_of(kNeeded, [&](auto pattern) { return matches(stem, pattern); });
}

bool is_cuda_library(std::string_view file_name) {
  const auto stem = stem_of(file_name);
  return is_needed_library(file_name) ||
         std::ranges::any_of(kOthers, [&](auto pattern) { return matches(stem, pattern); });
}

std::vector<fs::path> configured_folders(const fs::path& configuration) {
  std::vector<fs::path> folders;
  read_configuration(configuration, 0, folders);
  return folders;
}

std::vector<fs::path> library_folders(const LibraryFolders& others) {
  std::vector<fs::path> wanted;
  add_search_path("LD_LIBRARY_PATH", wanted);
  for (auto& folder : configured_folders("/etc/ld.so.conf")) wanted.push_back(std::move(folder));
  for (const char* folder : {"/lib", "/usr/lib", "/lib64", "/usr/lib64", "/lib/x86_64-linux-gnu",
                             "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu"})
    wanted.emplace_back(folder);
  for (const char* root : {"/usr/local/cuda", "/opt/cuda"}) {
    for (const char* below : {"lib64", "lib", "extras/CUPTI/lib64", "nvvm/lib64"})
      wanted.push_back(fs::path(root) / below);
  }
  wanted.insert(wanted.end(), others.folders().begin(), others.folders().end());
  std::vector<fs::path> folders;
  std::set<fs::path> seen;
  for (const auto& folder : wanted) {
    std::error_code error;
    const auto real = fs::canonical(folder, error);
    if (error || !fs::is_directory(real, error) || real.filename() == "stubs") continue;
    if (seen.insert(real).second) folders.push_back(folder);
  }
  return folders;
}

}  // namespace varve::gpu::probe
