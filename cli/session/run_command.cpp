#include <algorithm>
#include <map>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/config.h"
#include "cli/base/open_image.h"
#include "cli/command.h"
#include "cli/session/daemon_access.h"
#include "cli/session/run_recording.h"
#include "cli/session/session_options.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/log.h"
#include "core/base/safe_text.h"
#include "fuse/daemon/control_client.h"
#include "fuse/session/runtime.h"

namespace varve::cli {
namespace {

using nlohmann::json;

struct RunOptions {
  std::string image;
  std::filesystem::path rootfs;  // in place of an image
  std::string name;
  bool remove = false;
  std::filesystem::path stats_file;
  SessionOptions session;
  bool no_prefetch = false;
  bool index_here = false;
  bool record = false;
  std::filesystem::path usage_spool;  // "" = under the root
  Stopwatch since_start;
};

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
  return begin_recording(
      {.spool = options.usage_spool.empty() ? usage / "spool" : std::filesystem::absolute(options.usage_spool),
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
  if (!recording.failure().empty()) log::warn("records of the session are lost: {}", recording.failure());
  if (!result.accesses_unwatched.empty())
    log::info("which files of the image the session opens is not recorded: {}", result.accesses_unwatched);
  if (result.access_overflows != 0)
    log::info("the kernel lost file accesses of the session {} times", result.access_overflows);
}

fuse::SessionResult run_request(Context& context, const fuse::SessionRequest& request, const RunOptions& options,
                                std::optional<double>& ready_seconds, recorder::SessionRecording* recording = nullptr) {
  const auto on_ready = [&] {
    ready_seconds = options.since_start.seconds();
    if (recording != nullptr) recording->started();
  };
  auto result = fuse::run_session(request, on_ready, [](const std::string& text) { log::info("{}", text); });
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
int run_rootfs(Context& context, const RunOptions& options) {
  auto request = make_session_request(context, options.session, options.rootfs);
  request.name = options.name;
  request.remove_at_exit = options.remove;
  std::optional<double> ready_seconds;
  const auto result = run_request(context, request, options, ready_seconds);
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

int run_image(Context& context, const RunOptions& options) {
  const auto image = image_spec(context, options.image);
  if (options.index_here) index_here(context, options.image);
  const auto mode = fuse::parse_mount_mode(options.session.mode);
  auto client = connect_or_start_daemon(context);
  const auto acquired = client.acquire(image, mode, {.prefetch = !options.no_prefetch});
  context.cancel.throw_if_cancelled();
  if (!acquired.why.empty()) log::info("{}", acquired.why);
  Traffic traffic;
  traffic.before = acquired.stats;
  std::optional<double> ready_seconds;
  auto request = make_session_request(context, options.session, acquired, image.reference);
  request.name = options.name;
  request.remove_at_exit = options.remove;
  const auto recording = recording_of(context, options, acquired.image, request);
  const auto result = run_request(context, request, options, ready_seconds, recording.get());
  if (recording) end_recording(*recording, result, bool(request.on_access));
  traffic.after = stats_after(client, acquired).value_or(traffic.before);
  if (const auto failed = failed_reads(traffic.grown(&fuse::ImageStats::errors), traffic.after.last_error);
      !failed.empty())
    context.err << "varve: warning: " << failed << '\n';
  if (!options.stats_file.empty()) write_stats(options, result, acquired, traffic, ready_seconds, recording.get());
  return result.exit_status;
}

}  // namespace

void add_run_command(CLI::App& app, Context& context) {
  const auto options = std::make_shared<RunOptions>();
  auto* run =
      app.add_subcommand("run", "Runs a command in a session: a private writable layer over a lazily mounted image");
  run->add_option("IMAGE", options->image,
                  "The image, indexed; the words after -- are the command, else the image's own");
  run->add_option("--rootfs", options->rootfs,
                  "In place of an image: a folder with an unpacked tree, which is not changed")
      ->type_name("DIR");
  run->add_flag("--rm", options->remove, "Remove the writable layer at the end");
  run->add_option("--name", options->name, "A name for `varve session`")->type_name("NAME");
  run->add_option("--stats", options->stats_file, "Write times and traffic to this file, as JSON")->type_name("FILE");
  add_session_options(*run, options->session);
  run->add_flag("--no-prefetch", options->no_prefetch,
                "Fetch only what is read, although the image's profile says what will be");
  run->add_flag("--index-here", options->index_here, kIndexHereHelp);
  run->add_flag("--record,!--no-record", options->record,
                "Record which libraries and files of the image the session uses, for `varve usage`");
  run->add_option("--usage-spool", options->usage_spool,
                  "The folder that records go to (default: usage/spool under --root)")
      ->type_name("DIR");
  run->footer(
      "Examples:\n  varve run --rm oci:image:latest -- python3 -c 'import numpy'\n"
      "  varve run --name lab --volume $HOME/notebooks:/work -w /work registry.example/team/science:42 -- jupyter lab\n"
      "  varve run --rm --gpus all oci:image:latest -- python3 -c 'import torch; print(torch.cuda.device_count())'\n\n"
      "The exit status is the command's; 125 if Varve failed before it, 126 if it may not be executed, 127 if it is "
      "not there.");
  run->callback([&context, options] {
    if (options->image.empty() == options->rootfs.empty())
      throw UsageError("either an IMAGE or --rootfs DIR; the words of the command stand behind --");
    if (!options->rootfs.empty() && options->record)
      throw UsageError("--record needs an image: use is recorded by its digest");
    try {
      context.exit_status = options->rootfs.empty() ? run_image(context, *options) : run_rootfs(context, *options);
    } catch (const std::exception& error) {
      context.err << "varve: error: " << message_text(error.what()) << '\n';
      context.exit_status = fuse::kOwnFailure;
    }
  });
}

}  // namespace varve::cli
