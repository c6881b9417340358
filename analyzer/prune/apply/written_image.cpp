#include "analyzer/prune/apply/written_image.h"

#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "analyzer/prune/placement.h"
#include "core/base/errors.h"
#include "core/base/files/scratch_file.h"
#include "core/base/text/calendar.h"
#include "core/base/threads/parallel.h"
#include "core/oci/discarding_repository.h"
#include "core/trust/tool_version.h"

namespace varve::prune {
namespace {

// CUDA stays whole whatever the plan says: better refused now than by a gate when all is written.
void refuse_archived_cuda(const cuda::Selection& selection, const TreeChange& change) {
  for (const auto& path : change.removed) {
    const auto found = selection.files.find(path);
    if (found != selection.files.end())
      fail<Unsupported>("the plan archives {}, which is CUDA ({}) and may go cold at most", path, found->second.rule);
  }
}

void add_layers(const oci::Image& image, std::set<Digest>& digests) {
  for (const auto& layer : image.manifest.layers) digests.insert(layer.digest);
}

std::shared_ptr<oci::Image> find_previous(const Digest& digest, const oci::Image& image,
                                          std::shared_ptr<oci::Image> given) {
  if (given && given->digest() == digest) return given;
  try {
    return std::make_shared<oci::Image>(oci::open_image(image.repository, digest.to_string(), image.config.platform));
  } catch (const NotFound& error) {
    fail<CouldNotRun>("the version before it, {}, is not beside it (--previous IMAGE says where): {}",
                      digest.to_string(), error.what());
  }
}

constexpr const char* kTimes = "times";
constexpr const char* kLatestTime = "latest_time";
constexpr const char* kLatestCreated = "latest_created";

void describe_times(const index::RepackTimes& times, std::map<std::string, std::string>& written) {
  written.emplace(kTimes, times.of_previous ? "previous" : "exact");
  if (times.latest) written.emplace(kLatestTime, std::to_string(*times.latest));
  if (times.latest_created) written.emplace(kLatestCreated, std::to_string(*times.latest_created));
}

std::optional<std::int64_t> read_seconds(const Proof& proof, const char* name) {
  const auto found = proof.written.find(name);
  if (found == proof.written.end()) return std::nullopt;
  const auto seconds = parse_unix_seconds(found->second);
  if (!seconds) fail<CouldNotRun>("the proof's \"{}\" is {:.40}, no time", name, found->second);
  return seconds;
}

index::RepackTimes read_times(const Proof& proof) {
  const auto of = proof.written.find(kTimes);
  if (of != proof.written.end() && of->second != "previous" && of->second != "exact")
    fail<CouldNotRun>("the proof's \"{}\", {:.40}, are not known here", kTimes, of->second);
  return {.of_previous = of != proof.written.end() && of->second == "previous",
          .latest = read_seconds(proof, kLatestTime),
          .latest_created = read_seconds(proof, kLatestCreated)};
}

}  // namespace

std::map<std::string, std::string> describe(const WriteSettings& settings) {
  std::map<std::string, std::string> written{
      {"format", settings.format},
      {"level", std::to_string(settings.level)},
      {"previous", settings.previous ? settings.previous->digest().to_string() : ""}};
  describe_times(settings.times, written);
  return written;
}

WriteSettings settings_of(const Proof& proof, const oci::Image& image, std::shared_ptr<oci::Image> previous) {
  if (proof.tool != trust::this_tool())
    fail<CouldNotRun>("it was written by {}, and this is {}", proof.tool, trust::this_tool());
  const auto value = [&](const char* name) {
    const auto found = proof.written.find(name);
    if (found == proof.written.end()) fail<CouldNotRun>("the proof does not say its \"{}\"", name);
    return found->second;
  };
  WriteSettings settings;
  settings.format = value("format");
  const auto level = value("level");
  if (std::from_chars(level.data(), level.data() + level.size(), settings.level).ptr != level.data() + level.size() ||
      (settings.format != "gzip" && settings.format != "zstd:chunked"))
    fail<CouldNotRun>("the proof's format {} of level {} is not known here", settings.format, level);
  settings.times = read_times(proof);
  if (const auto digest = value("previous"); !digest.empty())
    settings.previous = find_previous(Digest::parse(digest), image, std::move(previous));
  return settings;
}

index::Placement place_by_plan(const ImageView& before, const Plan& plan, const TreeChange& change) {
  const auto selection = before.cuda_selection();
  refuse_archived_cuda(selection, change);
  auto placement = make_placement(before.tree(), before.inventory(), &plan, &selection);
  placement.removed = change.removed;
  placement.added = change.added;
  return placement;
}

void judge_rebuild(ImageWriter& writer, const ImageView& before, const Digest& expected, index::Placement placement,
                   const WriteSettings& settings, const std::filesystem::path& scratch, GateResult& result) {
  auto other = settings;
  const auto used = jobs_or_cores(settings.jobs);
  other.jobs = used == 1 ? 2 : used - 1;
  std::set<Digest> there;
  add_layers(before.opened().image(), there);
  if (settings.previous) add_layers(*settings.previous, there);
  oci::DiscardingRepository nowhere(std::move(there));
  const ScratchFolder work(scratch, "rebuild");
  const auto again = writer.write(before, std::move(placement), other, nowhere, work.path(), false);
  if (again.image != expected)
    result.findings.push_back(
        fmt::format("written again it is {} instead of {}", again.image.to_string(), expected.to_string()));
  result.detail = fmt::format("{} of {} layers written again with {} jobs: {}", again.new_layers, again.layers,
                              other.jobs, again.image == expected ? "the same digest" : "another digest");
}

}  // namespace varve::prune
