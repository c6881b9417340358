// How fast source text is read for its imports. The text is that of all .py files under $VARVE_BENCH_SOURCES, or under
// this machine's /usr/lib/python3*: rates are of its bytes, files one after another on one core.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "analyzer/notebooks/findings.h"

namespace {

using namespace varve::notebooks;
namespace fs = std::filesystem;

constexpr std::size_t kMaxBytes = 256u << 20;

class Sources {
 public:
  Sources() {
    if (const char* given = std::getenv("VARVE_BENCH_SOURCES")) {
      add_folder(given);
    } else {
      for (const auto& entry : fs::directory_iterator("/usr/lib")) {
        if (entry.path().filename().string().starts_with("python3")) add_folder(entry.path());
      }
    }
  }
  const std::vector<std::string>& texts() const { return texts_; }
  std::size_t bytes() const { return bytes_; }

 private:
  void add_folder(const fs::path& folder) {
    for (const auto& entry : fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied)) {
      if (bytes_ >= kMaxBytes) return;
      if (!entry.is_regular_file() || entry.path().extension() != ".py") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      texts_.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
      bytes_ += texts_.back().size();
    }
  }

  std::vector<std::string> texts_;
  std::size_t bytes_ = 0;
};

const Sources& sources() {
  static const Sources read;
  return read;
}

void read_all(benchmark::State& state) {
  std::size_t imports = 0;
  for (auto _ : state) {
    imports = 0;
    for (const auto& text : sources().texts()) imports += read_python({Cell{.text = text, .number = 1}}).imports.size();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * sources().bytes()));
  state.counters["files"] = static_cast<double>(sources().texts().size());
  state.counters["imports"] = static_cast<double>(imports);
}

BENCHMARK(read_all)->Name("python")->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
