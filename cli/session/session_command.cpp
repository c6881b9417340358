#include <unistd.h>

#include <cmath>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/open_image.h"
#include "cli/base/signals.h"
#include "cli/command.h"
#include "cli/session/session_listing.h"
#include "cli/session/session_run.h"
#include "core/base/errors.h"
#include "core/base/text/safe_text.h"
#include "fuse/session/runtimes/runtime.h"
#include "fuse/session/session_control.h"
#include "fuse/session/session_exec.h"
#include "fuse/session/session_log.h"

namespace varve::cli {
namespace {

using nlohmann::json;

constexpr double kMostStopSeconds = 86400;

fuse::SessionStore::Listed find_session(const fuse::SessionStore& store, const std::string& name) {
  auto session = store.find(name);
  if (!session) fail<NotFound>("there is no session {}: `varve session ls` lists them", name);
  return std::move(*session);
}

void remove_sessions(const Context& context, const std::vector<std::string>& names, bool all) {
  const fuse::SessionStore store(context.global.root);
  std::vector<fuse::SessionStore::Listed> chosen;
  if (all) {
    for (auto& session : store.list())
      if (!session.running) chosen.push_back(std::move(session));
  }
  for (const auto& name : names) chosen.push_back(find_session(store, name));
  json removed = json::array();
  for (const auto& session : chosen) {
    store.remove(session);
    removed.push_back(session.record.id);
  }
  if (context.global.json) context.print_json({{"removed", removed}});
}

void stop_sessions(const Context& context, const std::vector<std::string>& names, double seconds) {
  const fuse::SessionStore store(context.global.root);
  std::vector<fuse::SessionStore::Listed> chosen;
  for (const auto& name : names) chosen.push_back(find_session(store, name));
  json stopped = json::array();
  for (const auto& session : chosen) {
    fuse::stop_session(store, session, std::chrono::milliseconds(std::llround(seconds * 1000)));
    stopped.push_back(session.record.id);
  }
  if (context.global.json) context.print_json({{"stopped", stopped}});
}

// Its own failures are 125, as those of `varve run`: other numbers are the command's.
int start_session(Context& context, const std::string& name, bool detach) {
  RunOptions options;
  options.detach = detach;
  try {
    const auto session = find_session(fuse::SessionStore(context.global.root), name);
    if (session.running)
      fail<UsageError>("the session {} is running: `varve session exec {} COMMAND` enters it", name, name);
    restore_options(session.record.options, options, context);
    options.again = session.record.id;
    if (options.rootfs.empty())
      options.image =
          by_digest(oci::Reference::parse(session.record.image), Digest::parse(session.record.image_digest));
  } catch (const std::exception& error) {
    context.err << "varve: error: start session " << printable(name) << ": " << message_text(error.what()) << '\n';
    return fuse::kOwnFailure;
  }
  return run_as_asked(context, options);
}

int exec_in_session(Context& context, const std::string& name, fuse::ExecRequest request) {
  request.command = context.tail;
  request.terminal = ::isatty(STDIN_FILENO) != 0;
  try {
    const fuse::SessionStore store(context.global.root);
    const auto session = find_session(store, name);
    guard_program(context, session.record.runtime);
    const auto result = fuse::exec_in_session(store, session, request);
    if (!result.failure.empty() && !result.failure_told)
      context.err << "varve: error: " << message_text(result.failure) << '\n';
    return result.exit_status;
  } catch (const std::exception& error) {
    context.err << "varve: error: " << message_text(error.what()) << '\n';
    return fuse::kOwnFailure;
  }
}

void show_log(Context& context, const std::string& name, bool follow, std::optional<std::uint64_t> last_lines) {
  const fuse::SessionStore store(context.global.root);
  const auto session = find_session(store, name);
  const auto running = [&] {
    const auto now = store.find(session.record.id);
    return now && now->running;
  };
  const auto show = [&](std::string_view text) { context.out << text << std::flush; };
  fuse::read_log(session.folder, {.follow = follow, .last_lines = last_lines, .running = running, .show = show},
                 context.cancel);
  if (context.cancel.cancelled()) context.exit_status = kInterrupted;
}

void add_start(CLI::App& session, Context& context) {
  struct Start {
    std::string name;
    bool detach = false;
  };
  const auto options = std::make_shared<Start>();
  auto* start = session.add_subcommand(
      "start", "Goes on with a kept session: its files, its image by digest, its options, a new process");
  start->add_option("SESSION", options->name, "Its name or id")->required();
  start->add_flag("-d,--detach", options->detach, "Leave it running, print its name and return");
  start->footer(
      "Examples:\n  varve session start experiment\n  varve session start -d lab\n\nThe exit status is the command's; "
      "125 if Varve failed before it.");
  start->callback([&context, options] {
    if (context.global.json && !options->detach)
      throw UsageError("--json: standard output is the command's own; with -d it is the session as JSON");
    context.exit_status = start_session(context, options->name, options->detach);
  });
}

void add_exec(CLI::App& session, Context& context) {
  struct Exec {
    std::string name;
    fuse::ExecRequest request;
    bool tty = false;
  };
  const auto options = std::make_shared<Exec>();
  auto* exec = session.add_subcommand("exec", "Runs one more command in a session that runs");
  exec->add_option("SESSION", options->name, "Its name or id; all words behind it are the command")->required();
  exec->add_option("-e,--env", options->request.env, "Set a variable besides the session's; may be repeated")
      ->type_name("K=V")
      ->allow_extra_args(false);
  exec->add_option("-w,--workdir", options->request.working_dir, "The working directory; without, the session's")
      ->type_name("DIR");
  exec->add_option("-u,--user", options->request.user, "Who runs the command; without, the session's user")
      ->type_name("USER");
  add_terminal_options(*exec, options->tty);
  exec->footer(
      "Examples:\n  varve session exec lab bash\n  varve session exec lab -- python3 -c 'import torch'\n\n"
      "It gets a terminal if standard input is one. The exit status is the command's; 125 if Varve failed before it.");
  exec->callback([&context, options] {
    check_terminal(options->tty);
    if (context.tail.empty()) throw UsageError("say the command: `varve session exec SESSION COMMAND`");
    if (context.global.json) throw UsageError("--json: standard output is the command's own");
    for (const auto& one : options->request.env)
      if (one.find('=') == one.npos || one.starts_with('=')) fail<UsageError>("--env {}: write NAME=value", one);
    context.exit_status = exec_in_session(context, options->name, options->request);
  });
}

void add_stop(CLI::App& session, Context& context) {
  struct Stop {
    std::vector<std::string> names;
    double seconds = std::chrono::duration<double>(fuse::kStopGrace).count();
  };
  const auto options = std::make_shared<Stop>();
  auto* stop = session.add_subcommand("stop", "Ends running sessions; what they wrote is kept");
  stop->add_option("SESSION", options->names, "Names or ids")->required();
  stop->add_option("--time", options->seconds, "How long after SIGTERM a session is killed")
      ->type_name("TIME")
      ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{{"s", 1}, {"m", 60}, {"h", 3600}}))
      ->check(CLI::Range(0.0, kMostStopSeconds))
      ->default_str("10s");
  stop->footer("Example:\n  varve session stop lab --time 1m");
  stop->callback([&context, options] { stop_sessions(context, options->names, options->seconds); });
}

void add_logs(CLI::App& session, Context& context) {
  struct Logs {
    std::string name;
    bool follow = false;
    std::optional<std::uint64_t> last_lines;
  };
  const auto options = std::make_shared<Logs>();
  auto* logs = session.add_subcommand("logs", "Shows what a session said that was started with -d");
  logs->add_option("SESSION", options->name, "Its name or id")->required();
  logs->add_flag("-f,--follow", options->follow, "Go on with what it says, until it ends");
  logs->add_option("-n,--tail", options->last_lines, "Only the last so many lines of what is there")->type_name("N");
  logs->footer("Examples:\n  varve session logs lab\n  varve session logs -n 20 -f lab");
  logs->callback([&context, options] {
    if (context.global.json) throw UsageError("--json: a log is text");
    show_log(context, options->name, options->follow, options->last_lines);
  });
}

void add_rm(CLI::App& session, Context& context) {
  struct Removal {
    std::vector<std::string> names;
    bool all = false;
  };
  const auto options = std::make_shared<Removal>();
  auto* rm = session.add_subcommand("rm", "Removes sessions that have ended, with all they wrote");
  rm->add_option("SESSION", options->names, "Names or ids");
  rm->add_flag("--all", options->all, "All that do not run");
  rm->footer("Example:\n  varve session rm experiment 3f9c0d5e77aa");
  rm->callback([&context, options] {
    if (options->names.empty() && !options->all) throw UsageError("say which sessions to remove, or --all");
    remove_sessions(context, options->names, options->all);
  });
}

}  // namespace

void add_session_command(CLI::App& app, Context& context) {
  auto* session = app.add_subcommand("session", "Lists, enters, ends, goes on with and removes sessions");
  session->require_subcommand(1);
  session->footer(
      "Example:\n  varve session ls\n  varve session exec lab bash\n  varve session stop lab\n  varve session start -d "
      "lab\n  varve session rm experiment");
  auto* ls = session->add_subcommand("ls", "Lists the sessions that run or were kept");
  ls->footer("Example:\n  varve session ls --json");
  ls->callback([&context] { print_sessions(context); });
  add_start(*session, context);
  add_exec(*session, context);
  add_stop(*session, context);
  add_logs(*session, context);
  add_rm(*session, context);
}

}  // namespace varve::cli
