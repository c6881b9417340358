#include "cli/prune/pruned_image.h"

#include <charconv>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "analyzer/prune/placement.h"
#include "cli/image/writer_options.h"
#include "core/base/progress.h"
#include "core/base/random.h"
#include "core/oci/discarding_repository.h"

namespace varve::cli {
namespace {

// CUDA stays whole whatever the plan says: better refused now than by a gate when all is written.
void refuse_archived_cuda(const cuda::Selection& selection, const prune::TreeChange& change) {
  for (const auto& path : change.removed) {
    const auto found = selection.files.find(path);
    if (found != selection.files.end())
      fail<Unsupported>("the plan archives {}, which is CUDA ({}) and may go cold at most", path, found->second.rule);
  }
}

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::filesystem::path& parent) {
    std::filesystem::create_directories(parent);
    auto name = (parent / "rebuild-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) fail_errno("make a folder in {}", parent.string());
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

void add_layers(const oci::Image& image, std::set<Digest>& digests) {
  for (const auto& layer : image.manifest.layers) digests.insert(layer.digest);
}

}  // namespace

std::string this_tool() { return "varve " VARVE_VERSION; }

std::map<std::string, std::string> WriteSettings::describe() const {
  return {{"format", format},
          {"level", std::to_string(writer_options(format, level, jobs).level)},
          {"previous", previous ? previous->digest().to_string() : ""}};
}

WriteSettings WriteSettings::read(const std::map<std::string, std::string>& told, const std::string& tool,
                                  const oci::Image& image) {
  if (tool != this_tool()) fail<prune::CouldNotRun>("it was written by {}, and this is {}", tool, this_tool());
  const auto value = [&](const char* name) {
    const auto found = told.find(name);
    if (found == told.end()) fail<prune::CouldNotRun>("the proof does not say its \"{}\"", name);
    return found->second;
  };
  WriteSettings settings;
  settings.format = value("format");
  const auto level = value("level");
  if (std::from_chars(level.data(), level.data() + level.size(), settings.level).ptr != level.data() + level.size() ||
      (settings.format != "gzip" && settings.format != "zstd:chunked"))
    fail<prune::CouldNotRun>("the proof's format {} of level {} is not known here", settings.format, level);
  if (const auto previous = value("previous"); !previous.empty()) {
    try {
      settings.previous =
          std::make_shared<oci::Image>(oci::open_image(image.repository, previous, image.config.platform));
    } catch (const NotFound& error) {
      fail<prune::CouldNotRun>("the version before it, {}, is not there: {}", previous, error.what());
    }
  }
  return settings;
}

indexer::RepackReport write_pruned_image(const Context& context, const prune::ImageView& before,
                                         const prune::Plan& plan, const prune::TreeChange& change,
                                         const WriteSettings& settings, oci::Repository& destination,
                                         const std::filesystem::path& work_dir, const std::string& what) {
  if (!before.tree().has_elf_facts)
    fail<Unsupported>(
        "the index of {} was made by a Varve that looked at no ELF files: `varve index --force {}` makes it anew",
        before.reference(), before.reference());
  const auto selection = before.cuda_selection();
  refuse_archived_cuda(selection, change);
  auto placement = prune::make_placement(before.tree(), before.inventory(), &plan, &selection);
  placement.removed = change.removed;
  placement.added = change.added;
  indexer::RepackOptions options;
  options.writer = writer_options(settings.format, settings.level, settings.jobs);
  options.work_dir = work_dir;
  std::optional<indexer::LayoutRecord> previous_layout;
  if (settings.previous) previous_layout = indexer::find_layout_record(*settings.previous);
  const auto& opened = before.opened();
  const indexer::RepackInput input{.image = opened.image(),
                                   .index = opened.index(),
                                   .local = opened.local(),
                                   .tree = before.tree(),
                                   .placement = placement,
                                   .previous = settings.previous.get(),
                                   .previous_layout = previous_layout ? &*previous_layout : nullptr};
  std::filesystem::create_directories(work_dir);
  Progress progress;
  const ProgressLine line(progress, what, context.global.quiet);
  return indexer::repack_image(input, destination, "", options, {progress, context.cancel});
}

void judge_rebuild(const Context& context, const prune::ImageView& before, const Digest& expected,
                   const prune::Plan& plan, const prune::TreeChange& change, const WriteSettings& settings,
                   prune::GateResult& result) {
  auto other = settings;
  const auto used = settings.jobs != 0 ? settings.jobs : std::max(1u, std::thread::hardware_concurrency());
  other.jobs = used == 1 ? 2 : used - 1;
  std::set<Digest> there;
  add_layers(before.opened().image(), there);
  if (settings.previous) add_layers(*settings.previous, there);
  oci::DiscardingRepository nowhere(std::move(there));
  const TemporaryFolder work(context.global.root / "tmp");
  const auto report = write_pruned_image(context, before, plan, change, other, nowhere, work.path(), "rebuild");
  std::uint64_t written = 0;
  for (const auto& layer : report.layers) written += !layer.kept_as_is && !layer.reused;
  if (report.image != expected)
    result.findings.push_back(
        fmt::format("written again it is {} instead of {}", report.image.to_string(), expected.to_string()));
  result.detail = fmt::format("{} of {} layers written again with {} jobs: {}", written, report.layers.size(),
                              other.jobs, report.image == expected ? "the same digest" : "another digest");
}

}  // namespace varve::cli
