#include "indexer/repack_image.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/image_path.h"
#include "core/oci/copy_blob.h"
#include "indexer/internal/finished_layers.h"
#include "indexer/internal/keep_layer_index.h"
#include "indexer/internal/kept_layers.h"
#include "indexer/internal/layer_tar_writer.h"
#include "indexer/internal/rewritten_documents.h"
#include "indexer/internal/settled_times.h"
#include "indexer/pack_units.h"

namespace varve::indexer {
namespace {

using index::Tier;

constexpr int kTarVersion = 1;              // counted up when the same entries give another tar
constexpr std::size_t kMaxComment = 500;    // of a layer, in the history
constexpr std::size_t kMaxNameBytes = 255;  // of one part of a path (NAME_MAX)
constexpr std::string_view kWhiteout = ".wh.";

// What a layer below others cannot say: an ordinary file with the name of a whiteout.
void check_name(std::string_view path) {
  if (name_of(path).starts_with(kWhiteout))
    fail<Unsupported>("{}: no layer can hold a file of that name; its layer has to be taken over as it is", path);
}

class Repacker {
 public:
  Repacker(RepackInput input, oci::Repository& destination, const RepackOptions& options, const Work& work)
      : input_(std::move(input)),
        destination_(destination),
        options_(options),
        work_(work),
        origin_{.image = input_.image, .index = input_.index, .local = input_.local, .scratch_dir = options.work_dir},
        writer_(fmt::format("{}, tar {}", writer_name(options.writer), kTarVersion)),
        finished_(options.work_dir / "finished"),
        spooled_(origin_),
        tars_(origin_, spooled_, options.writer, work) {}

  RepackReport run(std::string_view tag) {
    report_.old_image = input_.image.digest();
    choose_taken_over();
    units_ = cut_into_units(
        input_.tree, input_.placement, [&](std::string_view path) { return kept_layers_->stays(path); },
        options_.limits);
    for (auto& component : input_.placement.components) component.paths = {};
    times_ = std::make_unique<SettledTimes>(
        options_.times, input_.tree, units_.units, input_.previous_layout, writer_,
        BytecodeOrigin{.content = origin_, .spooled = spooled_, .decoders = decoders_of(options_.writer)}, work_);
    plan_layers();
    for (const auto layer : kept_as_is_) keep_as_is(layer);
    for (const auto& layer : packed_) add_layer(layer, take_plan(layer));
    if (!last_.entries.empty()) write_last();
    const auto config = put_config();
    work_.cancel.throw_if_cancelled();
    const auto manifest = rewritten_manifest(input_.image, descriptors_, config, options_.times.latest_created);
    publish_record(as_bytes(manifest));
    report_.image = destination_.put_manifest(as_bytes(manifest), oci::kOciManifestType, tag).digest;
    finished_.forget();
    return std::move(report_);
  }

 private:
  void read_kept() {
    index::FlatTreeMaker given;
    for (const auto layer : kept_as_is_)
      given.add(index::read_layer_entries_of(input_.local, input_.index, input_.image, layer));
    kept_layers_ = std::make_unique<KeptLayers>(given.finish(), input_.tree, input_.placement);
  }

  void choose_taken_over() {
    if (options_.keep_as_is) {
      kept_as_is_ = *options_.keep_as_is;
      std::ranges::sort(kept_as_is_);
      if (std::ranges::adjacent_find(kept_as_is_) != kept_as_is_.end())
        fail<UsageError>("a layer is to be taken over twice");
      if (!kept_as_is_.empty() && kept_as_is_.back() >= input_.image.manifest.layers.size())
        fail<UsageError>("layer {} cannot be taken over: the image has {} layers, counted from 0", kept_as_is_.back(),
                         input_.image.manifest.layers.size());
    } else {
      kept_as_is_ = layers_worth_keeping(input_, options_.limits);
    }
    try {
      read_kept();
    } catch (const CorruptData& error) {
      // A layer above a gap may need what is in the gap.
      if (options_.keep_as_is) fail<UsageError>("the layers to be taken over cannot stand alone: {}", error.what());
      log::debug("only the base is taken over: {}", error.what());
      std::uint32_t base = 0;
      std::erase_if(kept_as_is_, [&](std::uint32_t layer) { return layer != base || (++base, false); });
      read_kept();
    }
  }

  void plan_layers() {
    std::vector<ComponentFacts> facts;
    for (auto& unit : units_.units) {
      unit_of_.emplace(unit.facts.name, &unit);
      facts.push_back(unit.facts);
      for (const auto& entry : unit.entries) check_name(entry.path);
    }
    packed_ = pack_layers(facts, std::uint32_t(kept_as_is_.size()), input_.previous_layout, writer_, options_.limits);
    times_->restore_contents(packed_, facts);
    const auto recorded = recorded_components(facts, input_.previous_layout);
    for (std::size_t i = 0; i < facts.size(); ++i) recorded_.emplace(facts[i].name, recorded[i]);
    plan_last();
    kept_layers_.reset();
  }

  // What is written of the layer, out of its units, which are empty then.
  LayerPlan take_plan(const PackedLayer& layer) {
    LayerPlan plan{.entries = {},
                   .name = fmt::format("new layer of {}{}", layer.components.front(),
                                       layer.components.size() > 1 ? " and others" : "")};
    std::size_t entries = 0;
    for (const auto& component : layer.components) entries += unit_of_.at(component)->entries.size();
    plan.entries.reserve(entries);
    for (const auto& component : layer.components) {
      const auto unit = std::exchange(unit_of_.at(component)->entries, {});
      plan.entries.insert(plan.entries.end(), unit.begin(), unit.end());
    }
    // One entry per path: a parent directory may come with several components.
    std::ranges::stable_sort(plan.entries, {}, &UnitEntry::path);
    const auto repeated = std::ranges::unique(plan.entries, {}, &UnitEntry::path);
    plan.entries.erase(repeated.begin(), repeated.end());
    return plan;
  }

  // A directory's time costs a header, so it is its own in any case.
  std::vector<std::string_view> directories_of_stand_ins() const {
    std::vector<std::string_view> directories;
    for (const auto& layer : packed_) {
      if (!times_->stands_in(layer)) continue;
      for (const auto& component : layer.components) {
        for (const auto& entry : unit_of_.at(component)->entries)
          if (entry.entry != nullptr && entry.entry->type == FileType::kDirectory) directories.push_back(entry.path);
      }
    }
    return directories;
  }

  // Directories that several components share, with their own times, and what is to be hidden of the layers beneath.
  void plan_last() {
    std::unordered_set<std::string_view> survives, not_as_they_shall_be;
    const auto survive = [&](std::string_view path) {
      for (; survives.insert(path).second && !path.empty();) path = parent_of(path);
    };
    for (const auto& unit : units_.units) {
      for (const auto& entry : unit.entries) {
        survive(entry.path);
        if (entry.neutral_time) not_as_they_shall_be.insert(entry.path);
      }
    }
    for (const auto path : units_.directories) survive(path);
    for (const auto& [path, entry] : input_.tree.entries)
      if (entry.type != FileType::kDirectory && kept_layers_->stays(path)) survive(path);

    std::unordered_set<std::string_view> carried;
    const auto carry = [&](std::string_view path) {
      const auto found = input_.tree.entries.find(path);
      if (found == input_.tree.entries.end() || found->second.implied || !carried.insert(found->first).second)
        return false;
      auto& entry = last_.entries.emplace_back(UnitEntry{
          .path = found->first, .link_of = {}, .entry = &found->second, .added = nullptr, .neutral_time = false});
      entry.set_back = times_->find(entry);
      return true;
    };
    const auto carry_parents = [&](std::string_view path) {
      while (!path.empty()) {
        path = parent_of(path);
        if (!path.empty()) carry(path);
      }
    };
    for (const auto path : units_.directories) {
      if (not_as_they_shall_be.contains(path) ||
          !kept_layers_->gives_directory(path, input_.tree.entries.find(path)->second)) {
        carry_parents(path);
        carry(path);
      }
    }
    for (const auto path : directories_of_stand_ins()) {
      carry_parents(path);
      carry(path);
    }
    hidden_ = kept_layers_->hidden(survives);
    for (const auto& path : hidden_) {
      if (name_of(path).size() + kWhiteout.size() > kMaxNameBytes)
        fail<Unsupported>("{}: its name is too long to be hidden by a whiteout; its layer must not be taken over",
                          path);
      carry_parents(path);
      const auto folder = parent_of(path);
      index::AddedFile whiteout;
      whiteout.path = fmt::format("{}{}{}{}", folder, folder.empty() ? "" : "/", kWhiteout, name_of(path));
      whiteouts_.push_back(std::move(whiteout));
    }
    for (const auto& whiteout : whiteouts_)
      last_.entries.push_back(
          {.path = whiteout.path, .link_of = {}, .entry = nullptr, .added = &whiteout, .neutral_time = false});
    std::ranges::sort(last_.entries, {}, &UnitEntry::path);
    for (const auto& entry : last_.entries)
      if (entry.entry != nullptr) check_name(entry.path);
    last_.name = "new layer of shared directories";
  }

  void keep_as_is(std::uint32_t number) {
    const Stopwatch watch;
    const auto& layer = input_.image.manifest.layers.at(number);
    copy(*input_.image.repository, layer);
    auto descriptor = layer;
    descriptor.media_type = oci_layer_type(layer);
    const auto& map = *input_.index.maps.at(number);
    history_.push_back({.diff_id = input_.image.config.diff_ids.at(number), .old_layer = int(number), .comment = {}});
    add_to_record({.digest = layer.digest,
                   .diff_id = history_.back().diff_id,
                   .compressed_bytes = layer.size,
                   .stream_bytes = map.stream_bytes,
                   .kept_as_is = true,
                   .tier = Tier::kSystem,
                   .writer = {},
                   .components = {}});
    report_.layers.push_back({.digest = layer.digest,
                              .diff_id = history_.back().diff_id,
                              .bytes = layer.size,
                              .stream_bytes = map.stream_bytes,
                              .tier = Tier::kSystem,
                              .kept_as_is = true,
                              .reused = false,
                              .components = {},
                              .without_table = {},
                              .seconds = watch.seconds()});
    descriptors_.push_back(std::move(descriptor));
  }

  void add_layer(const PackedLayer& layer, const LayerPlan& plan) {
    const Stopwatch watch;
    work_.cancel.throw_if_cancelled();
    bool reused = false;
    auto written = from_previous(layer);
    const bool other_times = written && times_->stands_in(layer);
    if (!written) {
      for (const auto& component : layer.components)
        if (const auto* own = times_->own_content(component)) recorded_.at(component).content = *own;
    }
    const auto key = key_of(layer);
    if (!written) written = from_stopped_run(key);
    if (written) {
      reused = true;
    } else {
      written = write(plan);
      finished_.remember(key, *written);
    }
    add_written(*written, layer, reused, watch.seconds());
    if (!other_times) return;
    record_.layers.back().times_of_previous = true;
    report_.layers.back().files_with_previous_times =
        std::uint64_t(std::ranges::count_if(plan.entries, [](const UnitEntry& unit) {
          return unit.entry != nullptr && unit.entry->type != FileType::kDirectory;
        }));
  }

  // What makes the bytes of a layer: its components' contents, and who writes.
  Digest key_of(const PackedLayer& layer) const {
    Sha256 sha;
    sha.update(as_bytes(writer_ + "\n"));
    for (const auto& component : layer.components) sha.update(recorded_.at(component).content.raw());
    return sha.finish();
  }

  std::optional<WrittenLayer> from_previous(const PackedLayer& layer) {
    if (layer.same_as < 0 || input_.previous == nullptr) return std::nullopt;
    const auto& recorded = input_.previous_layout->layers.at(std::size_t(layer.same_as));
    const auto& layers = input_.previous->manifest.layers;
    const auto blob = std::ranges::find(layers, recorded.digest, &oci::Descriptor::digest);
    if (blob == layers.end()) return std::nullopt;
    try {
      copy(*input_.previous->repository, *blob);
    } catch (const NotFound& error) {
      log::warn("{}: it is written anew", error.what());
      return std::nullopt;
    }
    WrittenLayer written;
    written.media_type = oci_layer_type(*blob);
    written.annotations = blob->annotations;
    written.digest = blob->digest;
    written.compressed_bytes = blob->size;
    written.diff_id = recorded.diff_id;
    written.stream_bytes = recorded.stream_bytes;
    return written;
  }

  std::optional<WrittenLayer> from_stopped_run(const Digest& key) {
    auto written = finished_.find(key);
    if (!written) return std::nullopt;
    const auto blob = descriptor_of(*written);
    if (!destination_.has_blob(blob)) return std::nullopt;
    report_.reused_bytes += blob.size;
    finished_.used(key);
    return written;
  }

  WrittenLayer write(const LayerPlan& plan) {
    for (const auto& unit : plan.entries)
      if (has_content(unit)) work_.progress.expect(unit.entry->size);
    const auto draft = destination_.draft_blob(options_.work_dir);
    std::optional<WrittenLayerPass> pass;
    if (options_.index_layers) pass.emplace(plan.name, LayerPassOptions());
    auto written = tars_.write(plan, [&](ByteView bytes) {
      draft->write(bytes);
      if (pass) pass->feed(bytes);
    });
    const auto blob = descriptor_of(written);
    (draft->commit(blob) ? report_.new_bytes : report_.reused_bytes) += written.compressed_bytes;
    if (!pass) return written;
    if (const auto indexed = pass->finish(written.digest, written.diff_id))
      keep_layer_index(input_.local, blob, *indexed);
    return written;
  }

  void write_last() {
    const Stopwatch watch;
    const auto written = write(last_);
    add_written(written, {.tier = Tier::kSystem, .components = {}}, false, watch.seconds());
  }

  void add_written(const WrittenLayer& written, const PackedLayer& layer, bool reused, double seconds) {
    RecordedLayer recorded{.digest = written.digest,
                           .diff_id = written.diff_id,
                           .compressed_bytes = written.compressed_bytes,
                           .stream_bytes = written.stream_bytes,
                           .kept_as_is = false,
                           .times_of_previous = false,
                           .tier = layer.tier,
                           .writer = writer_,
                           .components = {}};
    for (const auto& component : layer.components) recorded.components.emplace(component, recorded_.at(component));
    add_to_record(std::move(recorded));
    history_.push_back({.diff_id = written.diff_id, .old_layer = -1, .comment = comment_of(layer)});
    report_.layers.push_back({.digest = written.digest,
                              .diff_id = written.diff_id,
                              .bytes = written.compressed_bytes,
                              .stream_bytes = written.stream_bytes,
                              .tier = layer.tier,
                              .kept_as_is = false,
                              .reused = reused,
                              .components = layer.components,
                              .without_table = written.without_table,
                              .seconds = seconds});
    descriptors_.push_back(descriptor_of(written));
  }

  std::string comment_of(const PackedLayer& layer) const {
    if (layer.components.empty())
      return hidden_.empty() ? "shared directories"
                             : fmt::format("shared directories, {} names hidden", hidden_.size());
    auto text = fmt::format("{}: ", index::tier_name(layer.tier));
    for (std::size_t i = 0; i < layer.components.size(); ++i) {
      const auto& version = recorded_.at(layer.components[i]).version;
      auto one = version.empty() ? layer.components[i] : layer.components[i] + " " + version;
      if (text.size() + one.size() > kMaxComment) return text + fmt::format("{} more", layer.components.size() - i);
      text += one + (i + 1 < layer.components.size() ? ", " : "");
    }
    return text;
  }

  static oci::Descriptor descriptor_of(const WrittenLayer& written) {
    oci::Descriptor descriptor;
    descriptor.media_type = written.media_type;
    descriptor.digest = written.digest;
    descriptor.size = written.compressed_bytes;
    descriptor.annotations = written.annotations;
    return descriptor;
  }

  void copy(oci::Repository& source, const oci::Descriptor& blob) {
    work_.cancel.throw_if_cancelled();
    const auto stop = [&](std::uint64_t) { work_.cancel.throw_if_cancelled(); };
    if (oci::copy_blob(source, destination_, blob, stop)) report_.copied_bytes += blob.size;
    report_.reused_bytes += blob.size;
  }

  oci::Descriptor put_config() {
    const auto config = rewritten_config(input_.image, history_, options_.labels, options_.times.latest_created);
    return oci::put_bytes(destination_, as_bytes(config), "application/vnd.oci.image.config.v1+json");
  }

  void add_to_record(RecordedLayer layer) { record_.layers.push_back(std::move(layer)); }

  void publish_record(ByteView manifest) {
    oci::Descriptor image;
    image.media_type = oci::kOciManifestType;
    image.digest = digest_of(manifest);
    image.size = manifest.size();
    record_.image = image.digest;
    record_.latest_time = options_.times.latest;
    record_.latest_created = options_.times.latest_created;
    publish_layout_record(destination_, image, record_);
  }

  RepackInput input_;
  oci::Repository& destination_;
  const RepackOptions& options_;
  const Work work_;
  ContentOrigin origin_;
  std::string writer_;
  FinishedLayers finished_;
  SpooledLayers spooled_;
  LayerTarWriter tars_;

  std::vector<std::uint32_t> kept_as_is_;
  std::unique_ptr<KeptLayers> kept_layers_;  // until all is planned
  PackUnits units_;
  std::unordered_map<std::string_view, PackUnit*> unit_of_;  // by name
  std::unique_ptr<SettledTimes> times_;
  std::vector<PackedLayer> packed_;
  LayerPlan last_;
  std::vector<std::string> hidden_;
  std::deque<index::AddedFile> whiteouts_;
  std::map<std::string, RecordedComponent, std::less<>> recorded_;

  std::vector<oci::Descriptor> descriptors_;
  std::vector<LayerHistory> history_;
  LayoutRecord record_;
  RepackReport report_;
};

}  // namespace

RepackReport repack_image(RepackInput input, oci::Repository& destination, std::string_view tag,
                          const RepackOptions& options, const Work& work) {
  // What is written takes the index at its word, and says it to everybody who pulls the new image.
  if (!input.index.judgement.vouched)
    fail<trust::Untrusted>(
        "image {}: its index {} was made by others and no key that counts has signed it; index it on this machine "
        "first: varve index {}",
        input.image.digest().to_string(), input.index.blobs.manifest.digest.to_string(), input.image.typed());
  return Repacker(std::move(input), destination, options, work).run(tag);
}

}  // namespace varve::indexer
