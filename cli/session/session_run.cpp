#include "cli/session/session_run.h"

#include <algorithm>
#include <map>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/config.h"
#include "cli/base/open_image.h"
#include "cli/session/daemon_access.h"
#include "cli/session/detached.h"
#include "cli/session/run_recording.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/journal.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"
#include "fuse/control/control_client.h"
#include "fuse/session/command_ahead.h"
#include "fuse/session/runtimes/early_trial.h"
#include "fuse/session/runtimes/runtime.h"

namespace varve::cli {
namespace {

using nlohmann::json;
using OnReady = std::function<void(const std::string& id)>;

// What the daemon fetched for this image while the session ran. Other sessions of the same image are not told apart.
struct Traffic {
  fuse::ImageStats before;
  fuse::ImageStats after;

  // A daemon that took the place of another one begins to count anew: what that one counted is lost.
  std::uint64_t grown(std::uint64_t fuse::ImageStats::*counter) const {
    const bool counted_on = after.fetched_bytes >= before.fetched_bytes && after.requests >= before.requests &&
                            after.decoded_bytes >= before.decoded_bytes;
    return counted_on ? after.*counter - before.*counter : after.*counter;
  }

  // Of fetched_bytes without loaded_bytes.
  std::map<std::string, std::uint64_t> from() const {
    auto from = after.bytes_from;
    if (grown(&fuse::ImageStats::fetched_bytes) == after.fetched_bytes) return from;
    for (auto& [source, bytes] : from)
      if (const auto old = before.bytes_from.find(source); old != before.bytes_from.end())
        bytes -= std::min(bytes, old->second);
    return from;
  }
};

json recording_stats(const recorder::SessionRecording& recording, const fuse::SessionResult& result) {
  json stats = {
      {"session", recording.session()}, {"switched_on", recording.switched_on()}, {"files", recording.files()}};
  stats["file_overflows"] = result.access_overflows;
  stats["files_unwatched"] = result.accesses_unwatched.empty() ? json(nullptr) : json(result.accesses_unwatched);
  stats["failure"] = recording.failure().empty() ? json(nullptr) : json(recording.failure());
  return stats;
}

void write_stats(const RunOptions& options, const fuse::SessionResult& result, const fuse::AcquiredImage& acquired,
                 const Traffic& traffic, std::optional<double> ready_seconds,
                 const recorder::SessionRecording* recording) {
  json stats = {{"image", acquired.image.to_string()},
                {"mode", std::string(fuse::to_string(acquired.mode))},
                {"runtime", result.runtime},
                {"session", result.id},
                {"mount_seconds", acquired.seconds},
                {"seconds", options.since_start.seconds()},
                {"fetched_bytes", traffic.grown(&fuse::ImageStats::fetched_bytes) + acquired.loaded_bytes},
                {"bytes_from", traffic.from()},
                {"loaded_bytes", acquired.loaded_bytes},
                {"prefetched_bytes", traffic.grown(&fuse::ImageStats::prefetched_bytes)},
                {"requests", traffic.grown(&fuse::ImageStats::requests)},
                {"copied_bytes", traffic.grown(&fuse::ImageStats::copied_bytes)},
                {"stream_bytes", traffic.grown(&fuse::ImageStats::decoded_bytes)},
                {"image_stream_bytes", traffic.after.image_stream_bytes},
                {"present_bytes", traffic.after.present_bytes},
                {"errors", traffic.grown(&fuse::ImageStats::errors)},
                {"exit_status", result.exit_status}};
  stats["ready_seconds"] = ready_seconds ? json(*ready_seconds) : json(nullptr);
  stats["recorded"] = recording == nullptr ? json(nullptr) : recording_stats(*recording, result);
  write_file_atomically(options.stats_file, as_bytes(stats.dump(2) + "\n"));
}

std::unique_ptr<recorder::SessionRecording> recording_of(const Context& context, const RunOptions& options,
                                                         const Digest& image, fuse::SessionRequest& request) {
  if (!options.record) return nullptr;
  const auto usage = context.global.root / "usage";
  return begin_recording({.spool = options.usage_spool.empty() ? own_spool(context.global.root)
                                                               : std::filesystem::absolute(options.usage_spool),
                          .salts = usage / "salts",
                          .recorder = usage / "recorder",
                          .image = image,
                          .version = VARVE_VERSION,
                          .image_env = {},
                          .session_env = {},
                          .own_variable = process_environment()},
                         request, [](const std::string& text) { log::warn("{}", text); });
}

void end_recording(recorder::SessionRecording& recording, const fuse::SessionResult& result, bool files_were_asked) {
  recording.end(result.exit_status == 0,
                files_were_asked && result.accesses_unwatched.empty() && result.access_overflows == 0);
  const log::Field about_session("SESSION", result.id);
  if (!recording.failure().empty()) log::warn("records of the session are lost: {}", recording.failure());
  if (!result.accesses_unwatched.empty())
    log::info("which files of the image the session opens is not recorded: {}", result.accesses_unwatched);
  if (result.access_overflows != 0)
    log::info("the kernel lost file accesses of the session {} times", result.access_overflows);
}

void add_run(fuse::SessionRequest& request, const Context& context, const RunOptions& options) {
  request.name = options.name;
  request.remove_at_exit = options.remove;
  request.again = options.again;
  request.saved_options = saved_options(options, context);
  request.detached = options.detach;
  if (options.detach) request.terminal = false;
}

fuse::SessionResult run_request(Context& context, const fuse::SessionRequest& request, const RunOptions& options,
                                const OnReady& on_ready, std::optional<double>& ready_seconds,
                                recorder::SessionRecording* recording = nullptr) {
  bool ready = false;
  std::string session;
  const log::Field about_session("SESSION", session);
  auto result = fuse::run_session(
      request,
      [&](const std::string& id) {
        ready = true;
        session = id;
        ready_seconds = options.since_start.seconds();
        if (recording != nullptr) recording->started();
        if (on_ready) on_ready(id);
      },
      [](const std::string& text) { log::info("{}", text); });
  if (!ready) context.err << result.said;  // nobody reads the log of what never was
  if (!result.failure.empty() && !result.failure_told)
    context.err << "varve: error: " << message_text(result.failure) << '\n';
  return result;
}

// Absent if the daemon does not answer any more: the session has ended, and its status is what counts.
std::optional<fuse::ImageStats> stats_after(fuse::ControlClient& client, const fuse::AcquiredImage& acquired) {
  try {
    return client.image_stats(acquired.image);
  } catch (const std::exception& error) {
    log::warn("what the session fetched is not known: {}", error.what());
    return std::nullopt;
  }
}

// Nothing is mounted or fetched, and no daemon is asked.
int run_rootfs(Context& context, const RunOptions& options, const OnReady& on_ready) {
  auto request = make_session_request(context, options.session, options.rootfs);
  add_run(request, context, options);
  std::optional<double> ready_seconds;
  const auto result = run_request(context, request, options, on_ready, ready_seconds);
  if (!options.stats_file.empty()) {
    json stats = {{"rootfs", request.lower.string()},
                  {"runtime", result.runtime},
                  {"session", result.id},
                  {"seconds", options.since_start.seconds()},
                  {"exit_status", result.exit_status}};
    stats["ready_seconds"] = ready_seconds ? json(*ready_seconds) : json(nullptr);
    write_file_atomically(options.stats_file, as_bytes(stats.dump(2) + "\n"));
  }
  return result.exit_status;
}

int run_image(Context& context, const RunOptions& options, const OnReady& on_ready) {
  const auto image = image_spec(context, options.image);
  const log::Field about_image("IMAGE", image.reference);
  if (options.index_here) index_here(context, options.image);
  const auto mode = fuse::parse_mount_mode(options.session.mode);
  fuse::EarlyTrial trial(context.global.root, options.session.runtime);
  auto client = connect_or_start_daemon(context);
  const auto acquired = client.acquire(image, mode, {.prefetch = !options.no_prefetch, .fill = options.fill});
  context.cancel.throw_if_cancelled();
  if (!acquired.why.empty()) log::info("{}", acquired.why);
  Traffic traffic;
  traffic.before = acquired.stats;
  std::optional<double> ready_seconds;
  auto request = make_session_request(context, options.session, acquired, image.reference);
  add_run(request, context, options);
  const fuse::CommandAhead ahead(request);
  trial.wait(context.cancel);
  const auto recording = recording_of(context, options, acquired.image, request);
  const auto result = run_request(context, request, options, on_ready, ready_seconds, recording.get());
  if (recording) end_recording(*recording, result, bool(request.on_access));
  traffic.after = stats_after(client, acquired).value_or(traffic.before);
  if (const auto failed = failed_reads(traffic.grown(&fuse::ImageStats::errors), traffic.after.last_error);
      !failed.empty())
    context.err << "varve: warning: " << failed << '\n';
  if (!options.stats_file.empty()) write_stats(options, result, acquired, traffic, ready_seconds, recording.get());
  return result.exit_status;
}

int run_here(Context& context, RunOptions& options, const OnReady& on_ready) {
  try {
    settle(options);
    return options.rootfs.empty() ? run_image(context, options, on_ready) : run_rootfs(context, options, on_ready);
  } catch (const std::exception& error) {
    context.err << "varve: error: " << message_text(error.what()) << '\n';
    return fuse::kOwnFailure;
  }
}

}  // namespace

int run_as_asked(Context& context, RunOptions& options) {
  try {
    guard_program(context, options.session.runtime);
  } catch (const std::exception& error) {
    context.err << "varve: error: " << message_text(error.what()) << '\n';
    return fuse::kOwnFailure;
  }
  if (!options.detach) return run_here(context, options, {});
  return run_detached(context, [&](const OnReady& on_ready) { return run_here(context, options, on_ready); });
}

}  // namespace varve::cli
