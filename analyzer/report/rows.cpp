#include "analyzer/report/rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace varve::report {
namespace {

const usage::PackageFacts* newest_package(const Scene& scene, const usage::DistributionUse& use) {
  const usage::PackageFacts* newest = nullptr;
  for (const auto& package : use.packages) {
    if (newest == nullptr || scene.age(package.image) < scene.age(newest->image)) newest = &package;
  }
  return newest;
}

// An image may have two records of one distribution; its sessions are counted once.
std::uint64_t exposed_sessions(const Scene& scene, const usage::DistributionUse& use) {
  std::vector<Digest> counted;
  std::uint64_t sessions = 0;
  for (const auto& package : use.packages) {
    const auto* image = scene.image(package.image);
    if (image == nullptr || std::find(counted.begin(), counted.end(), package.image) != counted.end()) continue;
    counted.push_back(package.image);
    sessions += image->heard;
  }
  return sessions;
}

std::string reason_for_no_data(const Scene& scene, const usage::DistributionUse& use, const Row& row) {
  if (seen_in_use(use)) return "";
  if (row.exposed_sessions == 0) return "no session was heard on an image that has it";
  if (scene.files_are_seen()) return "";
  const auto importable = [](const usage::PackageFacts& package) {
    return package.source != "dpkg" && !package.imports.empty();
  };
  if (std::any_of(use.packages.begin(), use.packages.end(), importable)) return "";
  return "it has nothing to import, and no file accesses were collected that could show its use";
}

std::optional<std::uint64_t> last_days(const usage::Snapshot& snapshot, const usage::DistributionUse& use,
                                       std::int32_t count) {
  if (std::int64_t(snapshot.window.last) - snapshot.window.first + 1 < count) return std::nullopt;
  // Of a part of a month whose days are gone nobody knows.
  const auto first = std::int64_t(snapshot.window.last) - count + 1;
  if (first > snapshot.window.first && first < snapshot.by_day_from) return std::nullopt;
  std::uint64_t sessions = 0;
  for (const auto& day : use.days) {
    if (day.day <= snapshot.window.last && std::int64_t(day.day) > std::int64_t(snapshot.window.last) - count)
      sessions += day.sessions;
  }
  return sessions;
}

// Could the two counts, out of the two exposures, be the same rate by chance? Normal approximation of the binomial
// split, two-sided 5 %.
bool differs(double first, double second, double first_out_of, double second_out_of) {
  const double total = first + second;
  const double expected = total * second_out_of / (first_out_of + second_out_of);
  const double deviation =
      std::sqrt(total * second_out_of / (first_out_of + second_out_of) * first_out_of / (first_out_of + second_out_of));
  return std::abs(second - expected) > 1.96 * deviation + 0.5;  // 0.5: counts are whole
}

void judge_trend(const Scene& scene, const usage::DistributionUse& use, Row& row) {
  const auto window = scene.snapshot().window;
  const auto days = std::int64_t(window.last) - window.first + 1;
  if (row.no_data || days < 2) return;
  const auto used = Scene::halves(use.days, window);
  // The second half is the shorter one when the days do not divide: see Scene::halves.
  const auto out_of =
      scene.heard().value_or(Scene::Halves{.first = double(days - days / 2), .second = double(days / 2)});
  if (out_of.first <= 0 || out_of.second <= 0) return;
  if (used.first == 0 && used.second == 0) {
    row.trend_kind = Trend::kNone;
    return;
  }
  const bool clear = differs(used.first, used.second, out_of.first, out_of.second);
  if (used.first == 0) {
    row.trend_kind = clear ? Trend::kNew : Trend::kSteady;
    return;
  }
  row.trend = (used.second / out_of.second) / (used.first / out_of.first);
  if (!clear) {
    row.trend_kind = Trend::kSteady;
  } else if (used.second == 0) {
    row.trend_kind = Trend::kGone;
  } else {
    row.trend_kind = *row.trend > 1 ? Trend::kRising : Trend::kFalling;
  }
}

// Names of the wheels and packages that carry CUDA itself; DESIGN: what they hold is untouchable.
bool is_cuda_library(const std::string& name) {
  constexpr auto kBeginnings = std::to_array<std::string_view>({"nvidia-", "cuda-", "libcud", "libcublas", "libcufft",
                                                                "libcurand", "libcusolver", "libcusparse", "libnccl",
                                                                "libnv", "cudnn", "tensorrt", "libnpp"});
  if (name.find("-cu1") != std::string::npos) return true;
  return std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [&](std::string_view beginning) { return name.starts_with(beginning); });
}

// What holds others, whoever needs it or not.
bool stays_by_itself(const Row& row) {
  return seen_in_use(*row.use) || row.use->notebooks > 0 || row.cuda || row.system;
}

}  // namespace

Scene::Scene(const usage::Snapshot& snapshot) : snapshot_(snapshot) {
  for (std::size_t i = 0; i < snapshot.images.size(); ++i) {
    const auto& image = snapshot.images[i];
    images_.emplace(image.digest, i);
    const bool wanted = snapshot.image ? image.digest == *snapshot.image : image.has_inventory;
    if (wanted && !current_) current_ = i;
  }
  for (std::size_t i = 0; i < snapshot.distributions.size(); ++i) {
    const auto& use = snapshot.distributions[i];
    if (!use.packages.empty()) packaged_.emplace(use.name, i);
    files_are_seen_ = files_are_seen_ || use.file_sessions > 0 || use.exec_sessions > 0;
  }
  if (!snapshot.heard_days.empty()) heard_ = halves(snapshot.heard_days, snapshot.window);
}

const usage::ImageFacts* Scene::image(const Digest& digest) const {
  const auto found = images_.find(digest);
  return found == images_.end() ? nullptr : &snapshot_.images[found->second];
}

std::size_t Scene::age(const Digest& digest) const {
  const auto found = images_.find(digest);
  return found == images_.end() ? snapshot_.images.size() : found->second;
}

bool Scene::is_known(const std::string& name) const { return packaged_.contains(name); }

Scene::Halves Scene::halves(const std::vector<usage::DayCount>& days, usage::DayRange window) {
  Halves halves;
  const auto length = std::int64_t(window.last) - window.first + 1;
  const auto second_from = std::int64_t(window.first) + (length - length / 2);
  for (const auto& day : days) {
    if (day.day < window.first || day.day > window.last) continue;
    (day.day < second_from ? halves.first : halves.second) += double(day.sessions);
  }
  return halves;
}

bool seen_in_use(const usage::DistributionUse& use) {
  return used_in(use) > 0 || use.file_sessions > 0 || use.exec_sessions > 0 || use.static_sessions > 0;
}

Row make_row(const Scene& scene, const usage::DistributionUse& use) {
  Row row;
  row.use = &use;
  row.package = newest_package(scene, use);
  if (row.package != nullptr) {
    row.bytes = row.package->bytes;
    row.compressed_bytes = row.package->compressed_bytes;
    row.exposed_sessions = exposed_sessions(scene, use);
    row.no_data_reason = reason_for_no_data(scene, use, row);
    row.no_data = !row.no_data_reason.empty();
    row.unused = !row.no_data && !seen_in_use(use);
    row.cuda = is_cuda_library(use.name);
    row.system = row.package->source == "dpkg";
  }
  row.sessions = used_in(use);
  if (row.exposed_sessions > 0 && !row.no_data) {
    // A session on an image without it may have installed it for itself: it counts as use, but not as more than all.
    const auto uses = std::min(row.sessions, row.exposed_sessions);
    row.share = double(uses) / double(row.exposed_sessions);
    row.bound = upper_bound(uses, row.exposed_sessions);
  }
  if (const auto current = scene.current()) {
    std::set<std::string_view> sources;
    for (const auto& package : use.packages)
      if (package.image == scene.snapshot().images[*current].digest) sources.insert(package.source);
    row.in_current = sources.size();
  }
  if (!row.no_data) {
    row.last_30 = last_days(scene.snapshot(), use, 30);
    row.last_90 = last_days(scene.snapshot(), use, 90);
    row.last_365 = last_days(scene.snapshot(), use, 365);
  }
  judge_trend(scene, use, row);
  row.disagreements = find_disagreements(scene, use, row);
  return row;
}

void find_holders(const Scene& scene, std::vector<Row>& rows) {
  constexpr std::size_t kNamed = 3;
  if (!scene.current()) return;
  const auto& digest = scene.snapshot().images[*scene.current()].digest;
  std::unordered_map<std::string, std::size_t> by_name;
  std::vector<const usage::PackageFacts*> package_of(rows.size(), nullptr);
  std::vector<bool> held(rows.size(), false);
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (const auto& package : rows[i].use->packages) {
      if (package.image == digest) package_of[i] = &package;
    }
    if (package_of[i] == nullptr) continue;
    by_name.emplace(rows[i].use->name, i);
    if (!stays_by_itself(rows[i])) continue;
    held[i] = true;
    waiting.push_back(i);
  }
  while (!waiting.empty()) {
    const auto needs = waiting.back();
    waiting.pop_back();
    for (const auto& name : package_of[needs]->required) {
      const auto found = by_name.find(name);
      if (found == by_name.end() || found->second == needs) continue;
      auto& row = rows[found->second];
      ++row.needed_by_count;
      row.needed_by.push_back(rows[needs].use->name);
      if (!held[found->second]) {
        held[found->second] = true;
        waiting.push_back(found->second);
      }
    }
  }
  for (auto& row : rows) {
    std::sort(row.needed_by.begin(), row.needed_by.end());
    row.could_go = row.in_current > 0 && row.unused && row.needed_by.empty() && !stays_by_itself(row);
    if (row.needed_by.size() > kNamed) row.needed_by.resize(kNamed);
  }
}

}  // namespace varve::report
