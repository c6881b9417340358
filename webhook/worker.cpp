#include "webhook/worker.h"

#include <algorithm>

#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/json_document.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/threads/ticker.h"
#include "core/oci/manifest.h"

namespace varve::webhook {
namespace {

constexpr std::chrono::seconds kLongestWait{3600};
constexpr std::size_t kMaxOutput = 4 << 20;
constexpr std::size_t kMaxReason = 500;
constexpr int kTemporary = 75;
constexpr int kFindings = 3;
constexpr int kSignals = 128;
constexpr std::string_view kImageConfigs[] = {"application/vnd.oci.image.config.v1+json",
                                              "application/vnd.docker.container.image.v1+json"};

std::string name_of(const Pushed& image) {
  return image.repository + (image.tag.empty() ? "" : ":" + image.tag) + "@" + image.digest.to_string();
}

std::string why(const ChildResult& result) {
  if (result.timed_out) return fmt::format("it took longer than {:.0f} s", result.seconds);
  if (result.exit_status > kSignals) return fmt::format("it was ended by signal {}", result.exit_status - kSignals);
  auto line = trimmed(last_line(result.err));
  if (constexpr std::string_view kPrefix = "varve: error: "; line.starts_with(kPrefix))
    line.remove_prefix(kPrefix.size());
  return line.empty() ? fmt::format("exit status {}", result.exit_status) : single_line(line, kMaxReason);
}

// What may be otherwise in a while: the registry is away, memory was short.
bool may_pass(const ChildResult& result) {
  return result.timed_out || result.exit_status == kTemporary || result.exit_status > kSignals;
}

void add_signing(const Rule& rule, std::vector<std::string>& words) {
  if (!rule.key.empty()) words.insert(words.end(), {"--sign", rule.key.string()});
  if (!rule.passphrase_file.empty()) words.insert(words.end(), {"--passphrase-file", rule.passphrase_file.string()});
}

std::chrono::seconds wait_after(unsigned attempts, std::chrono::seconds first) {
  auto wait = first;
  for (unsigned i = 1; i < attempts && wait < kLongestWait; ++i) wait *= 2;
  return std::min(wait, kLongestWait);
}

}  // namespace

ChildResult Worker::run(std::vector<std::string> words, const CancelFlag& cancel) const {
  words.insert(words.begin(), tools_.varve.begin(), tools_.varve.end());
  ChildProgram program;
  program.words = std::move(words);
  program.limit = settings_.limit;
  program.max_output = kMaxOutput;
  return tools_.run(program, cancel);
}

// An index that this machine made itself counts for it without signers.
bool Worker::is_vouched_for(By by, const std::string& image, const CancelFlag& cancel) const {
  const auto checked = run({"trust", "check", "--json", image}, cancel);
  if (checked.exit_status != 0) return false;
  const auto said = JsonValue::parse(checked.out, "varve trust check", {.bytes = kMaxOutput});
  return said["vouched"].flag() && (by == By::kAnybody || !said["signers"].items().empty());
}

// "" if it is not asked for, there is none, or nothing may rest on its index.
std::string Worker::previous_of(const Rule& rule, const Job& job, const CancelFlag& cancel) {
  if (!rule.previous) return {};
  auto reference = settings_.reference(job.image.repository);
  reference.tag.reset();
  {
    const std::lock_guard lock(mutex_);
    reference.digest = queue_.last_done(job.image);
  }
  if (!reference.digest || !is_vouched_for(By::kAnybody, reference.to_string(), cancel)) return {};
  return reference.to_string();
}

std::optional<Outcome> Worker::index(const Rule& rule, const std::string& image, const std::string& previous,
                                     const CancelFlag& cancel) const {
  std::vector<std::string> words{"index", "--json", image};
  if (!previous.empty()) words.insert(words.end(), {"--previous", previous});
  add_signing(rule, words);
  const auto indexed = run(words, cancel);
  if (indexed.exit_status == 0 && !indexed.timed_out) return std::nullopt;
  return Outcome{.kind = may_pass(indexed) ? Outcome::Kind::kLater : Outcome::Kind::kFailed,
                 .reason = "index: " + why(indexed)};
}

// Of a list those of the rule's platforms; none of what is no image: indexes of ours, signatures, what refers to
// others.
std::vector<Digest> Worker::images_of(oci::Repository& repository, const oci::Document& document,
                                      const Rule& rule) const {
  const auto what = repository.name() + "@" + document.descriptor.digest.to_string();
  std::vector<Digest> images;
  if (oci::is_index_media_type(document.descriptor.media_type)) {
    for (const auto& one : oci::ImageIndex::parse(document.bytes, what).manifests) {
      const bool is_image = oci::is_manifest_media_type(one.media_type) && one.artifact_type.empty() && one.platform &&
                            one.platform->os != "unknown";
      if (is_image && rule.has_platform(*one.platform)) images.push_back(one.digest);
    }
    return images;
  }
  const auto manifest = oci::Manifest::parse(document.bytes, document.descriptor.media_type, what);
  if (manifest.subject || !manifest.artifact_type.empty() ||
      std::ranges::find(kImageConfigs, manifest.config.media_type) == std::end(kImageConfigs))
    return images;
  if (!rule.platforms.empty()) {
    const auto config = oci::read_whole_blob(repository, manifest.config, oci::kMaxConfigBytes);
    if (!rule.has_platform(oci::ImageConfig::parse(config, what).platform)) return images;
  }
  images.push_back(document.descriptor.digest);
  return images;
}

Outcome Worker::attempt(const Job& job, const CancelFlag& cancel) {
  using Kind = Outcome::Kind;
  const auto* rule = settings_.rule_for(job.image.repository, job.image.tag);
  if (rule == nullptr) return {.kind = Kind::kNoImage, .reason = "no rule has it"};
  auto reference = settings_.reference(job.image.repository);
  reference.tag.reset();
  reference.digest = job.image.digest;
  std::vector<std::string> images;
  try {
    const auto repository = oci::open_repository(reference, registry_);
    for (const auto& digest : images_of(*repository, repository->manifest(job.image.digest.to_string()), *rule)) {
      reference.digest = digest;
      images.push_back(reference.to_string());
    }
  } catch (const NotFound& error) {
    return {.kind = Kind::kNoImage, .reason = error.what()};
  } catch (const TemporaryError& error) {
    return {.kind = Kind::kLater, .reason = error.what()};
  }
  if (images.empty()) return {.kind = Kind::kNoImage, .reason = "it is no image of a platform that is wanted"};
  std::optional<std::string> previous;
  bool any_new = job.attempts > 1;  // then an attempt may have ended between indexing and learning
  for (const auto& image : images) {
    if (job.indexed) break;
    if (is_vouched_for(rule->key.empty() ? By::kAnybody : By::kSigners, image, cancel)) continue;
    any_new = true;
    if (!previous) previous = previous_of(*rule, job, cancel);
    if (auto ended = index(*rule, image, *previous, cancel)) return *ended;
  }
  if (!any_new) return {.kind = Kind::kDone, .reason = "it was indexed before"};
  return rule->learn ? learn(*rule, job, images, cancel) : Outcome{};
}

// Machines can do without packs.
Outcome Worker::learn(const Rule& rule, const Job& job, const std::vector<std::string>& images,
                      const CancelFlag& cancel) {
  using Kind = Outcome::Kind;
  std::string reason;
  if (const std::lock_guard lock(mutex_); !job.indexed) queue_.note_indexed(job, name_);
  for (const auto& image : images) {
    std::vector<std::string> words{"profile", "learn", "--json", image};
    add_signing(rule, words);
    const auto learnt = run(words, cancel);
    if (learnt.exit_status == 0 || learnt.exit_status == kFindings) continue;
    if (may_pass(learnt)) return {.kind = Kind::kLater, .reason = "learn: " + why(learnt)};
    reason = "indexed, without packs: " + why(learnt);
  }
  return {.kind = Kind::kDone, .reason = reason};
}

void Worker::settle(const Job& job, const Outcome& outcome) {
  const std::lock_guard lock(mutex_);
  const auto name = name_of(job.image);
  switch (outcome.kind) {
    case Outcome::Kind::kDone:
      log::info("{}: done{}{}", name, outcome.reason.empty() ? "" : ": ", outcome.reason);
      return queue_.finish(job, name_, JobState::kDone, outcome.reason);
    case Outcome::Kind::kNoImage:
      log::debug("{}: left out: {}", name, outcome.reason);
      return queue_.forget(job, name_);
    case Outcome::Kind::kLater:
      if (job.attempts < settings_.attempts) {
        const auto wait = wait_after(job.attempts, settings_.first_wait);
        log::warn("{}: attempt {}: {}; again in {} s", name, job.attempts, outcome.reason, wait.count());
        return queue_.put_back(job, name_, wait, outcome.reason);
      }
      [[fallthrough]];
    case Outcome::Kind::kFailed:
      log::error("{}: given up after {} attempts: {}", name, job.attempts, outcome.reason);
      return queue_.finish(job, name_, JobState::kFailed, outcome.reason);
  }
}

bool Worker::work(const CancelFlag& stop) {
  std::optional<Job> job;
  {
    const std::lock_guard lock(mutex_);
    job = queue_.take(name_, settings_.lease);
  }
  if (!job) return false;
  CancelFlag cancel(&stop);
  const auto renew = [&] {
    try {
      const std::lock_guard lock(mutex_);
      if (queue_.renew(*job, name_, settings_.lease)) return;
      log::warn("{}: another worker has it now", name_of(job->image));
      cancel.cancel();
    } catch (const std::exception& error) {
      log::warn("{}: {}", name_of(job->image), error.what());  // it is tried again before the lease is over
    }
  };
  const Stopwatch watch;
  Outcome outcome;
  try {
    const Ticker ticker(std::chrono::milliseconds(settings_.lease) / 4, renew);
    outcome = attempt(*job, cancel);
  } catch (const Cancelled&) {
    const std::lock_guard lock(mutex_);
    queue_.give_up(*job, name_);
    return true;
  } catch (const TemporaryError& error) {
    outcome = {.kind = Outcome::Kind::kLater, .reason = error.what()};
  } catch (const std::exception& error) {
    outcome = {.kind = Outcome::Kind::kFailed, .reason = error.what()};
  }
  constexpr std::string_view kNames[] = {"done", "no_image", "failed", "again"};
  metrics_.note_job(kNames[std::size_t(outcome.kind)], watch.seconds());
  settle(*job, outcome);
  return true;
}

}  // namespace varve::webhook
