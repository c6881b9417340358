// The step "libraries": every CUDA library of the image is opened.
//
// An image may hold several toolkits: a root under /usr/local, wheels in site-packages, another environment's. Once a
// library of one is open, those of another that need one of that name get it, which they never would in a program of
// theirs. So each toolkit is opened in a process of its own, which also names the library that ends its process.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "gpu/probe/cuda_files.h"
#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

namespace fs = std::filesystem;

struct Candidate {
  fs::path path;
  enum class State : std::uint8_t { kUnknown, kOpen, kFailed } state = State::kUnknown;
  std::string error;    // of the last try
  std::string missing;  // the library that it needs and that was not found
  double seconds = 0;
};
using Toolkit = std::vector<Candidate>;

// nvidia/cublas/lib and nvidia/cudnn/lib of one site-packages belong together; of others, what is in one folder does.
fs::path toolkit_of(const fs::path& folder) {
  const auto nvidia = folder.parent_path().parent_path();
  return nvidia.filename() == "nvidia" ? nvidia : folder;
}

// Sorted by name, so that they are opened in the same order every time. A file with several names is opened by one of
// them.
std::map<fs::path, Toolkit> toolkits(Step& step) {
  std::map<fs::path, Toolkit> found;
  std::set<fs::path> files;
  for (const auto& folder : library_folders(step.folders)) {
    std::error_code error;
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (is_cuda_library(entry.path().filename().string())) paths.push_back(entry.path());
    }
    std::ranges::sort(paths);
    for (const auto& path : paths) {
      const auto file = fs::canonical(path, error);
      if (error || !fs::is_regular_file(file, error) || fs::file_size(file, error) == 0)
        continue;  // a link to nothing, a mount point for the driver's file
      // By where the file really is: folders full of links to a toolkit are that toolkit.
      if (files.insert(file).second)
        found[toolkit_of(file.parent_path())].push_back({.path = path, .error = {}, .missing = {}});
    }
  }
  return found;
}

// What the child tells of its work: "try N", "open N SECONDS", "failed N MISSING<tab>ERROR".
class Reports {
 public:
  explicit Reports(int to) : to_(to) {}
  void say(const std::string& line) const {
    std::string whole = line;
    std::ranges::replace(whole, '\n', ' ');
    whole += '\n';
    for (std::size_t at = 0; at < whole.size();) {
      const auto written = ::write(to_, whole.data() + at, whole.size() - at);
      if (written <= 0) ::_exit(1);
      at += static_cast<std::size_t>(written);
    }
  }

 private:
  int to_;
};

bool open_one(Step& step, std::size_t number, Candidate& candidate, const Reports& reports) {
  step.report.step("opening " + candidate.path.string());
  reports.say(fmt::format("try {}", number));
  try {
    const double seconds = seconds_of([&] { Library::open_file(candidate.path, step.folders); });
    reports.say(fmt::format("open {} {:.6f}", number, seconds));
    return true;
  } catch (const LoadError& error) {
    candidate.error = error.what();
    candidate.missing = error.missing;
    return false;
  }
}

// In the child. Some need others that the loader does not find by itself; once those are open, they are found by name.
// So: again, until nothing more opens.
void open_all(Step& step, Toolkit& toolkit, const Reports& reports) {
  std::vector<std::size_t> closed;
  for (std::size_t i = 0; i < toolkit.size(); ++i) {
    if (toolkit[i].state == Candidate::State::kUnknown) closed.push_back(i);
  }
  for (std::size_t before = closed.size() + 1; closed.size() < before;) {
    before = closed.size();
    std::erase_if(closed, [&](std::size_t i) { return open_one(step, i, toolkit[i], reports); });
  }
  for (const auto i : closed) reports.say(fmt::format("failed {} {}\t{}", i, toolkit[i].missing, toolkit[i].error));
}

std::string read_all(int from) {
  std::string text;
  char part[4096];
  for (;;) {
    const auto got = ::read(from, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno("read what was opened");
    if (got == 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

// Takes up what the child said; returns the number of the library that it tried last.
std::size_t take_up(const std::string& said, Toolkit& toolkit) {
  std::size_t last = toolkit.size();
  for (std::size_t begin = 0; begin < said.size();) {
    const auto end = std::min(said.find('\n', begin), said.size());
    const auto line = said.substr(begin, end - begin);
    begin = end + 1;
    const auto space = line.find(' ');
    char* rest = nullptr;
    const std::size_t number =
        space == std::string::npos ? toolkit.size() : std::strtoul(line.c_str() + space, &rest, 10);
    if (number >= toolkit.size()) continue;
    auto& candidate = toolkit[number];
    if (line.starts_with("try ")) last = number;
    if (line.starts_with("open ")) {
      candidate.state = Candidate::State::kOpen;
      candidate.seconds = std::strtod(rest, nullptr);
    }
    const auto tab = line.find('\t');
    if (line.starts_with("failed ") && tab != std::string::npos) {
      candidate.state = Candidate::State::kFailed;
      candidate.missing = line.substr(static_cast<std::size_t>(rest + 1 - line.c_str()),
                                      tab - static_cast<std::size_t>(rest + 1 - line.c_str()));
      candidate.error = line.substr(tab + 1);
    }
  }
  return last;
}

bool has_unknown(const Toolkit& toolkit) {
  return std::ranges::any_of(toolkit, [](const Candidate& one) { return one.state == Candidate::State::kUnknown; });
}

// A process of its own; again without the library that ended it, until all are known.
void open_toolkit(Step& step, Toolkit& toolkit) {
  while (has_unknown(toolkit)) {
    int ends[2];
    if (::pipe(ends) != 0) fail_errno("make a pipe");
    const pid_t child = ::fork();
    if (child < 0) fail_errno("start a process that opens libraries");
    if (child == 0) {
      ::close(ends[0]);
      try {
        open_all(step, toolkit, Reports(ends[1]));
      } catch (...) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    ::close(ends[1]);
    const auto said = read_all(ends[0]);
    ::close(ends[0]);
    int status = 0;
    if (::waitpid(child, &status, 0) != child) fail_errno("wait for the process that opens libraries");
    const auto last = take_up(said, toolkit);
    if (!has_unknown(toolkit)) return;
    if (last >= toolkit.size())
      fail<Error>("the process that opens libraries ended with status {} before it opened one", status);
    toolkit[last].state = Candidate::State::kFailed;
    toolkit[last].error =
        toolkit[last].path.string() +
        (WIFSIGNALED(status)
             ? fmt::format(": ended its process with signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)))
             : fmt::format(": ended its process with status {}", WEXITSTATUS(status)));
  }
}

struct Tally {
  std::size_t all = 0, open = 0, for_driver = 0;
  std::vector<std::string> broken;  // what is wrong with those that must open
};

void count(Step& step, const Candidate& candidate, Tally& tally) {
  ++tally.all;
  if (candidate.state == Candidate::State::kOpen) {
    ++tally.open;
    step.report.fact("open_ms." + candidate.path.string(), fmt::format("{:.1f}", candidate.seconds * 1000));
  } else if (candidate.missing == "libcuda.so.1" || candidate.missing == "libnvidia-ml.so.1") {
    ++tally.for_driver;
    step.report.warn(candidate.error);
  } else if (is_needed_library(candidate.path.filename().string())) {
    tally.broken.push_back(candidate.error);
  } else {
    step.report.warn(candidate.error);  // what it needs was never in the image, most often: tools for networks of GPUs
  }
}

}  // namespace

std::string run_libraries(Step& step) {
  auto found = toolkits(step);
  if (found.empty())
    fail<Skip>("no CUDA library in the {} folders that the loader and Python use",
               library_folders(step.folders).size());
  const double seconds = seconds_of([&] {
    for (auto& [root, toolkit] : found) open_toolkit(step, toolkit);
  });
  Tally tally;
  for (const auto& [root, toolkit] : found) {
    for (const auto& candidate : toolkit) count(step, candidate, tally);
  }
  if (!tally.broken.empty())
    fail<Error>("{} of {} CUDA libraries do not open: {}", tally.broken.size(), tally.all,
                fmt::join(tally.broken, "; "));
  step.report.metric("libraries.open", MetricKind::kFirstCall, seconds);
  std::string detail = fmt::format("{} CUDA libraries open with RTLD_NOW", tally.open);
  if (tally.for_driver) detail += fmt::format(", {} wait for the driver's", tally.for_driver);
  if (tally.open + tally.for_driver < tally.all)
    detail += fmt::format(", {} that nothing here needs do not", tally.all - tally.open - tally.for_driver);
  return detail;
}

}  // namespace varve::gpu::probe
