// scan_bench: what scanning notebooks costs on one core, stage by stage, beside simdjson's DOM over the same bytes.
//   scan_bench DIR [ROUNDS]     a folder of notebooks with their outputs
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <iostream>
#include <vector>

#include <fmt/format.h>
#include <simdjson.h>

#include "analyzer/notebooks/notebook_reader.h"
#include "analyzer/notebooks/scan.h"
#include "core/base/files/file.h"

namespace {

using namespace varve;
namespace fs = std::filesystem;

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) { return double(time.tv_sec) + double(time.tv_usec) * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Corpus {
  std::vector<fs::path> paths;
  std::uint64_t bytes = 0;
};

Corpus find_notebooks(const fs::path& folder) {
  Corpus corpus;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file() || entry.path().extension() != ".ipynb") continue;
    corpus.paths.push_back(entry.path());
    corpus.bytes += entry.file_size();
  }
  std::sort(corpus.paths.begin(), corpus.paths.end());
  return corpus;
}

std::string read_text(const fs::path& path) {
  const auto bytes = read_file(path);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void report(const char* what, const Corpus& corpus, unsigned rounds, const std::function<std::size_t()>& run) {
  double best = 1e9;
  std::size_t result = 0;
  for (unsigned i = 0; i < rounds; ++i) {
    const auto before = cpu_seconds();
    result = run();
    best = std::min(best, cpu_seconds() - before);
  }
  std::cout << fmt::format("{:<44} {:>7.3f} s CPU {:>9.0f} notebooks/s {:>8.0f} MB/s   ({})\n", what, best,
                           double(corpus.paths.size()) / best, double(corpus.bytes) / best / 1e6, result);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) {
    std::cerr << "usage: scan_bench DIR [ROUNDS]\n";
    return 2;
  }
  const auto corpus = find_notebooks(argv[1]);
  const unsigned rounds = argc > 2 ? unsigned(std::stoul(argv[2])) : 5;
  std::cout << fmt::format("{} notebooks, {:.1f} MB; the best of {} rounds; in brackets what the stage found\n",
                           corpus.paths.size(), double(corpus.bytes) / 1e6, rounds);

  report("read the files", corpus, rounds, [&] {
    std::size_t bytes = 0;
    for (const auto& path : corpus.paths) bytes += read_file(path).size();
    return bytes;
  });
  report("read and find the code", corpus, rounds, [&] {
    notebooks::NotebookReader reader;
    std::size_t code_bytes = 0;
    for (const auto& path : corpus.paths) code_bytes += reader.read(read_text(path)).text.size();
    return code_bytes;
  });
  report("read and parse: simdjson DOM", corpus, rounds, [&] {
    simdjson::dom::parser parser;
    std::size_t good = 0;
    for (const auto& path : corpus.paths) good += parser.parse(read_text(path)).error() == simdjson::SUCCESS ? 1 : 0;
    return good;
  });
  std::vector<notebooks::Notebook> read;
  for (const auto& path : corpus.paths) read.push_back(notebooks::NotebookReader().read(read_text(path)));
  report("read the code found as Python", corpus, rounds, [&] {
    std::size_t imports = 0;
    for (const auto& notebook : read) {
      std::vector<notebooks::Cell> cells;
      for (const auto& cell : notebook.cells) cells.push_back({.text = notebook.text_of(cell), .number = cell.number});
      imports += notebooks::read_python(cells).imports.size();
    }
    return imports;
  });
  report("the whole scan: imports, installs, hints", corpus, rounds, [&] {
    std::size_t imports = 0;
    const CancelFlag cancel;
    notebooks::scan({argv[1]}, {.jobs = 1}, cancel,
                    [&](notebooks::ScannedFile&& file) { imports += file.imports.size(); });
    return imports;
  });
  return 0;
} catch (const std::exception& error) {
  std::cerr << "scan_bench: " << error.what() << '\n';
  return 1;
}
