// Bytes fetched against index size: cuts an image by many policies in one pass over each layer and counts, for lists of
// what start-ups touch, the compressed bytes of the spans they would fetch. Nothing is written.
//
//   span_curve oci:DIR[:TAG] --touched w2.json w3.json --policy price=20000 --policy price=40000,max=2097152
//
// A list is JSON, {"path": [[begin, end], ...]} in bytes of the file: bench/touched_ranges.py makes them from the page
// cache.
#include <atomic>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include <fmt/ostream.h>
#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/codec/tar_parser.h"
#include "core/index/format/layer_entry_reader.h"
#include "core/index/merge/merge_layers.h"
#include "core/oci/image.h"
#include "indexer/internal/layer_decoder.h"
#include "indexer/read_model.h"

namespace varve::indexer {
namespace {

constexpr std::uint64_t kWindowBytes = 1'900;  // measured average of a sparse, compressed window
constexpr std::uint64_t kMapBytes = 76;        // two digests and the numbers

struct Policy {
  std::string text;
  SpanPolicy spans;
  ReadExpectations expect;
};

Policy parse_policy(const std::string& text) {
  Policy policy;
  policy.text = text;
  const std::map<std::string, std::uint64_t*> fields{{"price", &policy.spans.span_price_bytes},
                                                     {"max", &policy.spans.max_stream_bytes},
                                                     {"gap", &policy.spans.min_gap_bytes},
                                                     {"follower", &policy.spans.follower_stream_bytes},
                                                     {"follower_price", &policy.spans.follower_price_bytes},
                                                     {"library", &policy.spans.library_likelihood},
                                                     {"bytecode", &policy.expect.bytecode},
                                                     {"script", &policy.expect.script},
                                                     {"unlikely", &policy.expect.unlikely},
                                                     {"head", &policy.expect.library_head},
                                                     {"data", &policy.expect.library_data},
                                                     {"code", &policy.expect.code_per_mib},
                                                     {"constants", &policy.expect.constants_per_mib},
                                                     {"bulk", &policy.expect.bulk_per_mib},
                                                     {"large", &policy.expect.large_per_mib},
                                                     {"large_head", &policy.expect.large_head}};
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const auto equals = part.find('=');
    const auto field = fields.find(part.substr(0, equals));
    if (field == fields.end() || equals == std::string::npos) fail<UsageError>("unknown part of a policy: {}", part);
    *field->second = std::stoull(part.substr(equals + 1));
  }
  return policy;
}

// One planner for each policy, all fed by one pass.
class Cuts final : private codec::TarListener {
 public:
  Cuts(const std::string& what, const std::vector<Policy>& policies) : parser_(what, *this) {
    for (const auto& policy : policies) {
      planners_.push_back(std::make_unique<SpanPlanner>(policy.spans));
      models_.push_back(std::make_unique<ReadModel>(*planners_.back(), policy.expect));
    }
    starts.resize(policies.size());
  }

  void take(const Batch& batch) {
    auto at = batch.stream_offset;
    for (const auto& mark : batch.marks) {
      feed(batch, at, mark.place.stream_offset);
      if (mark.kind == Batch::Mark::Kind::kPlace) {
        for (auto& planner : planners_) planner->offer(mark.place);
      }
    }
    feed(batch, at, batch.stream_offset + batch.stream.size());
    collect();
  }

  void finish(const DecodedSizes& decoded) {
    parser_.finish();
    for (auto& planner : planners_) planner->finish(decoded.compressed_bytes, decoded.stream_bytes);
    collect();
    end = {.compressed_offset = decoded.compressed_bytes, .stream_offset = decoded.stream_bytes};
  }

  std::vector<std::vector<SpanStart>> starts;  // by policy
  SpanStart end;
  index::LayerEntries entries;

 private:
  void feed(const Batch& batch, std::uint64_t& at, std::uint64_t until) {
    parser_.feed(ByteView(batch.stream).subspan(at - batch.stream_offset, until - at));
    at = until;
  }
  void collect() {
    for (std::size_t i = 0; i < planners_.size(); ++i) {
      const auto decided = planners_[i]->take_decided();
      starts[i].insert(starts[i].end(), decided.begin(), decided.end());
    }
  }
  void on_entry(codec::TarEntry entry) override {
    for (auto& model : models_) model->begin(entry);
    entries.entries.push_back(index::make_layer_entry(entry, "layer"));
  }
  void on_content(ByteView bytes) override {
    for (auto& model : models_) model->content(bytes);
  }
  void on_entry_end() override {
    for (auto& model : models_) model->end();
  }

  std::vector<std::unique_ptr<SpanPlanner>> planners_;
  std::vector<std::unique_ptr<ReadModel>> models_;
  codec::TarParser parser_;
};

struct TouchedRange {
  ByteRange stream_range;
  const std::string* path = nullptr;
};

struct Touched {
  std::string name;
  std::map<std::string, std::uint64_t> fetched;          // by path, of the first policy
  std::vector<std::vector<TouchedRange>> stream_ranges;  // by layer
};

const index::TreeInode* find(const index::Tree& tree, const std::string& path) {
  const auto* inode = tree.root.get();
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '/');) {
    const auto child = inode->children.find(name);
    if (child == inode->children.end()) return nullptr;
    inode = child->second.get();
  }
  return inode;
}

Touched load_touched(const std::string& file, const index::Tree& tree) {
  std::ifstream stream(file);
  const auto list = nlohmann::json::parse(stream);
  Touched touched{.name = file.substr(file.rfind('/') + 1),
                  .fetched = {},
                  .stream_ranges = std::vector<std::vector<TouchedRange>>(tree.layers)};
  for (const auto& [path, ranges] : list.items()) {
    const auto* inode = find(tree, path);
    if (inode == nullptr) continue;  // made while the program ran
    const auto& name = touched.fetched.try_emplace(path).first->first;
    for (const auto& range : ranges) {
      const auto begin = range[0].get<std::uint64_t>();
      const auto end = range[1].get<std::uint64_t>();
      for (const auto& run : inode->runs) {
        const auto from = std::max(begin, run.run.file_offset);
        const auto until = std::min(end, run.run.file_offset + run.run.length);
        if (from < until)
          touched.stream_ranges[run.layer].push_back(
              {.stream_range = {.offset = run.run.stream_offset + from - run.run.file_offset, .length = until - from},
               .path = &name});
      }
    }
  }
  return touched;
}

// The compressed bytes of the spans that the ranges touch; `by_path` gets them, shared among the files that want one
// span.
std::uint64_t fetched_bytes(const std::vector<SpanStart>& starts, const SpanStart& end,
                            const std::vector<TouchedRange>& ranges, std::size_t& spans,
                            std::map<std::string, std::uint64_t>* by_path) {
  std::map<std::size_t, std::set<const std::string*>> wanted;
  const auto span_at = [&](std::uint64_t offset) {
    return std::size_t(std::ranges::upper_bound(starts, offset, {}, &SpanStart::stream_offset) - starts.begin()) - 1;
  };
  for (const auto& range : ranges) {
    for (auto i = span_at(range.stream_range.offset); i <= span_at(range.stream_range.end() - 1); ++i)
      wanted[i].insert(range.path);
  }
  for (auto& [i, paths] : std::map(wanted))  // and what is in front of them
    for (auto before = i; starts[before].follows; --before) wanted[before - 1].insert(paths.begin(), paths.end());
  std::uint64_t bytes = 0;
  for (const auto& [i, paths] : wanted) {
    const auto length = (i + 1 < starts.size() ? starts[i + 1] : end).compressed_offset - starts[i].compressed_offset;
    bytes += length;
    if (by_path == nullptr) continue;
    for (const auto* path : paths) (*by_path)[*path] += length / paths.size();
  }
  spans += wanted.size();
  return bytes;
}

void print(const std::vector<std::unique_ptr<Cuts>>& layers, const std::vector<Policy>& policies,
           std::vector<Touched>& touched) {
  std::uint64_t compressed = 0;
  for (const auto& layer : layers) compressed += layer->end.compressed_offset;
  for (std::size_t policy = 0; policy < policies.size(); ++policy) {
    std::uint64_t spans = 0;
    std::uint64_t windows = 0;
    for (const auto& layer : layers) {
      spans += layer->starts[policy].size();
      windows += std::uint64_t(std::ranges::count_if(
          layer->starts[policy], [](const SpanStart& start) { return start.window_bytes != 0 && !start.follows; }));
    }
    const auto bytes = spans * kMapBytes + windows * kWindowBytes;
    fmt::print("{:40} spans {:6}  index {:5.1f} MB {:.3f} %", policies[policy].text, spans, double(bytes) / 1e6,
               100.0 * double(bytes) / double(compressed));
    for (auto& list : touched) {
      std::uint64_t fetched = 0;
      std::size_t fetched_spans = 0;
      for (std::size_t i = 0; i < layers.size(); ++i)
        fetched += fetched_bytes(layers[i]->starts[policy], layers[i]->end, list.stream_ranges[i], fetched_spans,
                                 policy == 0 ? &list.fetched : nullptr);
      fmt::print("  {} {:.1f} MB/{}", list.name, double(fetched) / 1e6, fetched_spans);
    }
    fmt::print("\n");
  }
}

// Which files cost most, with the first policy.
void explain(const Touched& list, std::size_t lines) {
  std::vector<std::pair<std::uint64_t, std::string>> files;
  for (const auto& [path, bytes] : list.fetched) files.emplace_back(bytes, path);
  std::ranges::sort(files, std::ranges::greater());
  files.resize(std::min(files.size(), lines));
  fmt::print("{}\n", list.name);
  for (const auto& [bytes, path] : files) fmt::print("  {:8.2f} MB  {}\n", double(bytes) / 1e6, path);
}

int run(int argc, const char* const* argv) {
  CLI::App app("Bytes fetched against index size, by policy");
  std::string reference;
  std::vector<std::string> lists;
  std::vector<std::string> texts;
  app.add_option("IMAGE", reference)->required();
  app.add_option("--touched", lists);
  std::size_t explained = 0;
  app.add_option("--explain", explained, "So many files that cost most, by the first policy");
  app.add_option("--policy", texts)->allow_extra_args(false);
  CLI11_PARSE(app, argc, argv);
  std::vector<Policy> policies;
  for (const auto& text : texts) policies.push_back(parse_policy(text));

  const auto image = oci::open_image({.reference = oci::Reference::parse(reference), .registry = {}});
  std::vector<std::unique_ptr<Cuts>> layers;
  for (const auto& layer : image.manifest.layers)
    layers.push_back(std::make_unique<Cuts>(layer.digest.to_string(), policies));
  std::atomic<std::size_t> next = 0;
  const auto work = [&] {
    for (auto i = next++; i < layers.size(); i = next++) {
      const auto& layer = image.manifest.layers[i];
      LayerReader reader(layer.digest.to_string(), index::kMaxStreamBytes,
                         [&](const BatchPtr& batch) { layers[i]->take(*batch); });
      image.repository->read_blob(layer, {.offset = 0, .length = layer.size},
                                  [&](ByteView bytes) { reader.feed(bytes); });
      layers[i]->finish(reader.finish());
    }
  };
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i) threads.emplace_back(work);
  }
  index::LayerMerger merger;
  for (const auto& layer : layers) merger.add(layer->entries);
  const auto tree = merger.finish();
  std::vector<Touched> touched;
  for (const auto& list : lists) touched.push_back(load_touched(list, tree));
  print(layers, policies, touched);
  for (const auto& list : touched) {
    if (explained != 0) explain(list, explained);
  }
  return 0;
}

}  // namespace
}  // namespace varve::indexer

int main(int argc, char** argv) try { return varve::indexer::run(argc, argv); } catch (const std::exception& error) {
  std::cerr << "span_curve: " << error.what() << '\n';
  return 1;
}
