#include <ctime>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/units.h"
#include "fuse/session/session_store.h"

namespace varve::cli {
namespace {

using nlohmann::json;

std::uint64_t upper_bytes(const fuse::SessionStore::Listed& session) {
  // What a session holds on disk is written down at its end; before that it can only be looked at.
  return session.record.exit_status ? session.record.upper_bytes : bytes_on_disk(session.folder.upper());
}

const char* state_of(const fuse::SessionStore::Listed& session) {
  if (session.running) return "running";
  return session.record.exit_status ? "ended" : "killed";
}

json to_json(const fuse::SessionStore::Listed& session) {
  const auto& record = session.record;
  json document = {{"id", record.id},
                   {"name", record.name},
                   {"image", record.image},
                   {"image_digest", record.image_digest},
                   {"command", record.command},
                   {"created", record.created_seconds},
                   {"state", state_of(session)},
                   {"runtime", record.runtime},
                   {"upper", session.folder.upper().string()},
                   {"upper_bytes", upper_bytes(session)},
                   {"remove_at_exit", record.remove_at_exit}};
  document["exit_status"] = record.exit_status ? json(*record.exit_status) : json(nullptr);
  return document;
}

std::string local_time(std::int64_t seconds) {
  const auto time = std::time_t(seconds);
  std::tm parts{};
  char text[32] = "";
  if (::localtime_r(&time, &parts) != nullptr) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

void list_sessions(const Context& context) {
  const auto sessions = fuse::SessionStore(context.global.root).list();
  if (context.global.json) {
    json list = json::array();
    for (const auto& session : sessions) list.push_back(to_json(session));
    return context.print_json({{"sessions", list}});
  }
  context.out << fmt::format("{:<12}  {:<20}  {:<8}  {:<19}  {:>10}  {}\n", "ID", "NAME", "STATE", "CREATED", "WRITTEN",
                             "IMAGE");
  for (const auto& session : sessions)
    context.out << fmt::format("{:<12}  {:<20}  {:<8}  {:<19}  {:>10}  {}\n", session.record.id, session.record.name,
                               state_of(session), local_time(session.record.created_seconds),
                               human_bytes(upper_bytes(session)), session.record.image);
}

void remove_sessions(const Context& context, const std::vector<std::string>& names, bool all) {
  const fuse::SessionStore store(context.global.root);
  std::vector<fuse::SessionStore::Listed> chosen;
  if (all) {
    for (auto& session : store.list())
      if (!session.running) chosen.push_back(std::move(session));
  }
  for (const auto& name : names) {
    auto session = store.find(name);
    if (!session) fail<NotFound>("there is no session {}: `varve session ls` lists them", name);
    chosen.push_back(std::move(*session));
  }
  json removed = json::array();
  for (const auto& session : chosen) {
    store.remove(session);
    removed.push_back(session.record.id);
  }
  if (context.global.json) context.print_json({{"removed", removed}});
}

}  // namespace

void add_session_command(CLI::App& app, Context& context) {
  auto* session = app.add_subcommand("session", "Lists and removes sessions and their writable layers");
  session->require_subcommand(1);
  session->footer("Example:\n  varve session ls\n  varve session rm experiment");

  auto* ls = session->add_subcommand("ls", "Lists the sessions that run or were kept");
  ls->footer("Example:\n  varve session ls --json");
  ls->callback([&context] { list_sessions(context); });

  struct Removal {
    std::vector<std::string> names;
    bool all = false;
  };
  const auto options = std::make_shared<Removal>();
  auto* rm = session->add_subcommand("rm", "Removes sessions that have ended, with all they wrote");
  rm->add_option("SESSION", options->names, "Names or ids");
  rm->add_flag("--all", options->all, "All that do not run");
  rm->footer("Example:\n  varve session rm experiment 3f9c0d5e77aa");
  rm->callback([&context, options] {
    if (options->names.empty() && !options->all) throw UsageError("say which sessions to remove, or --all");
    remove_sessions(context, options->names, options->all);
  });
}

}  // namespace varve::cli
