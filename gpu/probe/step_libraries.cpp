// The step "libraries": every CUDA library of the image is opened.
#include <algorithm>
#include <set>

#include "gpu/probe/cuda_files.h"
#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

namespace fs = std::filesystem;

struct Candidate {
  fs::path path;
  std::string error;    // of the last try; "" once it is open
  std::string missing;  // the library that it needs and that was not found
};

// Sorted by name, so that a library of which there are several is opened in the same order every time.
std::vector<Candidate> candidates(Step& step) {
  std::vector<Candidate> found;
  std::set<fs::path> files;
  for (const auto& folder : library_folders(step.folders)) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      const auto name = entry.path().filename().string();
      if (!is_cuda_library(name)) continue;
      const auto file = fs::canonical(entry.path(), error);
      if (error || !fs::is_regular_file(file, error) || fs::file_size(file, error) == 0)
        continue;  // a link to nothing, a mount point for the driver's file
      if (files.insert(file).second) found.push_back({entry.path(), {}, {}});
    }
  }
  std::ranges::sort(found, {},
                    [](const Candidate& one) { return std::pair(one.path.filename().string(), one.path.string()); });
  return found;
}

bool open_one(Step& step, Candidate& candidate) {
  step.report.doing("opening " + candidate.path.string());
  const double seconds = seconds_of([&] {
    try {
      Library::open_file(candidate.path, step.folders);
      candidate.error.clear();
    } catch (const LoadError& error) {
      candidate.error = error.what();
      candidate.missing = error.missing;
    }
  });
  if (!candidate.error.empty()) return false;
  const auto name = candidate.path.filename().string();
  step.report.fact("open_ms." + candidate.path.string(), fmt::format("{:.1f}", seconds * 1000));
  return true;
}

// Some need others that the loader does not find by itself; once those are open, they are found by name. So: again,
// until nothing more opens.
void open_all(Step& step, std::vector<Candidate>& all) {
  std::vector<Candidate*> closed;
  for (auto& candidate : all) closed.push_back(&candidate);
  for (std::size_t before = closed.size() + 1; closed.size() < before;) {
    before = closed.size();
    std::erase_if(closed, [&](Candidate* candidate) { return open_one(step, *candidate); });
  }
}

}  // namespace

std::string run_libraries(Step& step) {
  auto all = candidates(step);
  if (all.empty())
    fail<Skip>("no CUDA library in the {} folders that the loader and Python use",
               library_folders(step.folders).size());
  step.report.metric("libraries.open", MetricKind::kFirstCall, seconds_of([&] { open_all(step, all); }));
  std::size_t opened = 0, for_driver = 0;
  std::vector<std::string> needed;
  for (const auto& candidate : all) {
    if (candidate.error.empty()) {
      ++opened;
    } else if (candidate.missing == "libcuda.so.1" || candidate.missing == "libnvidia-ml.so.1") {
      ++for_driver;
      step.report.warn(candidate.error);
    } else if (is_needed_library(candidate.path.filename().string())) {
      needed.push_back(candidate.error);
    } else {
      step.report.warn(
          candidate.error);  // what it needs was never in the image, most often: tools for networks of GPUs
    }
  }
  if (!needed.empty())
    fail<Error>("{} of {} CUDA libraries do not open: {}", needed.size(), all.size(), fmt::join(needed, "; "));
  std::string detail = fmt::format("{} CUDA libraries open with RTLD_NOW", opened);
  if (for_driver) detail += fmt::format(", {} wait for the driver's", for_driver);
  if (opened + for_driver < all.size())
    detail += fmt::format(", {} that nothing here needs do not", all.size() - opened - for_driver);
  return detail;
}

}  // namespace varve::gpu::probe
