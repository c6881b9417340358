#include "cli/session/session_listing.h"

#include <ctime>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/text.h"
#include "core/base/files/file.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/text/units.h"
#include "fuse/session/session_store.h"

namespace varve::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxCommandShown = 60;

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
  const auto bytes = upper_bytes(session);
  json document = {{"id", record.id},
                   {"name", record.name},
                   {"image", record.image},
                   {"image_digest", record.image_digest},
                   {"command", record.command},
                   {"user", record.user},
                   {"created", record.created_seconds},
                   {"started", record.started_seconds},
                   {"state", state_of(session)},
                   {"status", state_of(session)},
                   {"detached", record.detached},
                   {"runtime", record.runtime},
                   {"upper", session.folder.upper().string()},
                   {"upper_bytes", bytes},
                   {"bytes", bytes},
                   {"remove_at_exit", record.remove_at_exit}};
  document["pid"] = session.supervisor ? json(session.supervisor->pid) : json(nullptr);
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

}  // namespace

void print_sessions(const Context& context) {
  const auto sessions = fuse::SessionStore(context.global.root).list();
  if (context.global.json) {
    json list = json::array();
    for (const auto& session : sessions) list.push_back(to_json(session));
    return context.print_json({{"sessions", list}});
  }
  std::vector<std::vector<std::string>> rows{
      {"ID", "NAME", "STATUS", "PID", "USER", "STARTED", "WRITTEN", "IMAGE", "COMMAND"}};
  for (const auto& session : sessions) {
    const auto& record = session.record;
    const auto exit = record.exit_status && !session.running ? fmt::format(" ({})", *record.exit_status) : "";
    rows.push_back({record.id, record.name, state_of(session) + exit,
                    session.supervisor ? std::to_string(session.supervisor->pid) : "-",
                    record.user.empty() ? "-" : visible(record.user), local_time(record.started_seconds),
                    human_bytes(upper_bytes(session)), visible(record.image),
                    visible(joined(record.command, " "), kMaxCommandShown)});
  }
  print_table(context.out, rows);
}

void print_session(const Context& context, const std::string& id) {
  const auto session = fuse::SessionStore(context.global.root).find(id);
  if (!context.global.json) {
    context.out << (session ? session->record.name : id) << '\n';
  } else {
    context.print_json(session ? to_json(*session) : json{{"id", id}});
  }
}

}  // namespace varve::cli
