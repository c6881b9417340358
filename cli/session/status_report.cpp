#include "cli/session/status_report.h"

#include <algorithm>
#include <set>
#include <sstream>

#include <nlohmann/json.hpp>

#include "cli/base/text.h"
#include "core/base/errors.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/text/units.h"
#include "core/oci/reference.h"
#include "fuse/control/control_protocol.h"
#include "fuse/session/session_store.h"

namespace varve::cli {
namespace {

constexpr std::size_t kColumns = 100;
constexpr std::size_t kShownDigits = 12;       // of a digest
constexpr double kWorthMentioning = 1;         // seconds that a reader waits
constexpr std::size_t kNamesShown = 3;         // of those that hold a tree
constexpr std::size_t kWhere = 0, kImage = 1;  // columns of the table that may be cut

// The end of a path or a reference tells more than its beginning.
std::string tail_of(const std::string& text, std::size_t limit) {
  return text.size() <= limit ? text : "..." + text.substr(text.size() - (limit - 3));
}

// Cuts the first two columns so that lines stay within kColumns.
void fit(std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::size_t others = 2 * (widths.size() - 1);
  for (std::size_t i = kImage + 1; i < widths.size(); ++i) others += widths[i];
  const auto room = kColumns - std::min(kColumns - 40, others);
  const auto image = std::min(widths[kImage], std::max(room / 2, room - std::min(room, widths[kWhere])));
  for (auto& row : rows) {
    row[kImage] = tail_of(row[kImage], image);
    row[kWhere] = tail_of(row[kWhere], room - image);
  }
}

ImageNames names_in(const fuse::DaemonStatus& status) {
  std::vector<std::string> references;
  for (const auto& mount : status.mounts) references.push_back(mount.stats.reference);
  for (const auto& idle : status.idle) references.push_back(idle.reference);
  for (const auto& pull : status.pulls) references.push_back(pull.reference);
  return ImageNames(references);
}

// Of an image whose upper layers are not shown.
std::string part_of(const fuse::MountStatus& mount) {
  return mount.tree_layers == 0 ? "" : fmt::format(" (first {} layers)", mount.tree_layers);
}

std::string where_of(const fuse::MountStatus& mount, const RunningSessions& sessions) {
  return printable(mount.session ? name_sessions(mount, sessions) : mount.dir);
}

std::string mount_table(const fuse::DaemonStatus& status, const RunningSessions& sessions, const ImageNames& names) {
  std::vector<std::vector<std::string>> rows{{"WHERE", "IMAGE", "MODE", "SIZE", "ON DISK", "FETCHED", "ERRORS"}};
  for (const auto& mount : status.mounts) {
    const auto& stats = mount.stats;
    // Of what is not cold: 100 % is what `varve pull` comes to.
    const auto wanted = stats.image_stream_bytes - stats.cold_bytes;
    const auto share = wanted == 0 ? 100 : (stats.present_bytes - stats.cold_present_bytes) * 100 / wanted;
    rows.push_back({where_of(mount, sessions), names.of(stats.reference) + part_of(mount),
                    std::string(to_string(mount.mode)), human_bytes(stats.image_stream_bytes),
                    fmt::format("{} %", share), human_bytes(stats.fetched_bytes), std::to_string(stats.errors)});
  }
  fit(rows);
  std::ostringstream out;
  print_table(out, rows);
  return out.str();
}

std::string waiting(const std::string& repository, double seconds, const std::string& why) {
  return fmt::format("waiting for {} since {}{}{}", printable(host_of(repository)), human_seconds(seconds),
                     why.empty() ? "" : ": ", printable(why));
}

// Of an image without mirrors the table says it all.
bool worth_telling(const std::vector<oci::SourceStatus>& sources) {
  return std::ranges::any_of(sources, [](const auto& one) { return one.mirror; });
}

std::string source_lines(const std::string& image, const std::vector<oci::SourceStatus>& sources) {
  std::string text;
  for (const auto& one : sources) {
    text += fmt::format("{}: {} {}: {}, {}", image, one.mirror ? "mirror" : "registry", printable(one.host),
                        printable(one.state), human_bytes(one.bytes));
    if (one.wrong > 0) text += fmt::format(", wrong bytes {} times", one.wrong);
    if (one.failures > 0) text += fmt::format(", failed {} times, last: {}", one.failures, printable(one.last_error));
    text += "\n";
  }
  return text;
}

// What is more than a number.
std::string remarks(const fuse::DaemonStatus& status, const ImageNames& names) {
  std::string text;
  std::set<Digest> seen;
  for (const auto& mount : status.mounts) {
    const auto& stats = mount.stats;
    if (!seen.insert(stats.image).second) continue;
    const auto name = names.of(stats.reference);
    if (stats.waiting_seconds >= kWorthMentioning)
      text += fmt::format("{}: a reader is {}\n", name,
                          waiting(stats.waiting_for, stats.waiting_seconds, stats.last_error));
    else if (stats.errors > 0 && !stats.last_error.empty())
      text += fmt::format("{}: last error: {}\n", name, printable(stats.last_error));
    if (worth_telling(stats.sources)) text += source_lines(name, stats.sources);
    if (stats.cold_bytes > 0)
      text += fmt::format("{}: {} of it are cold and come when they are read; ON DISK is of the rest\n", name,
                          human_bytes(stats.cold_bytes));
  }
  return text;
}

std::string idle_line(const fuse::IdleMountStatus& idle, const ImageNames& names) {
  return fmt::format("{}: nobody uses it since {}; it stays mounted ({}) for the next session\n",
                     names.of(idle.reference), human_seconds(idle.idle_seconds), to_string(idle.mode));
}

std::string pull_line(const fuse::PullStatus& pull, const ImageNames& names) {
  const auto name = names.of(pull.reference);
  if (!pull.error.empty())
    return fmt::format("pull of {}: failed: {}; `varve pull` goes on with it\n", name, printable(pull.error));
  const auto rate = pull.seconds > 0 ? std::uint64_t(double(pull.fetched_bytes) / pull.seconds) : 0;
  auto line =
      fmt::format("{} of {}: {} of {}, {}/s, since {}", pull.fill ? "fill" : "pull", name, human_bytes(pull.done_bytes),
                  human_bytes(pull.total_bytes), human_bytes(rate), human_seconds(pull.seconds));
  if (pull.waiting_seconds >= kWorthMentioning) line += "; " + waiting(pull.waiting_for, pull.waiting_seconds, "");
  return line + "\n";
}

std::string link_line(const fuse::LinkStatus& link) {
  auto line = fmt::format("link to {}: answers after {:.1f} ms", printable(link.host), link.answer_seconds * 1000);
  if (link.bytes_per_second > 0) line += fmt::format(", {}/s", human_bytes(std::uint64_t(link.bytes_per_second)));
  return line + "\n";
}

}  // namespace

RunningSessions running_sessions(const std::filesystem::path& root) {
  RunningSessions running;
  std::error_code error;
  if (!std::filesystem::exists(root / "sessions", error)) return running;
  try {
    for (const auto& session : fuse::SessionStore(root).list())
      if (session.running) running[session.record.image_digest].push_back(session.record.name);
  } catch (const std::exception&) {  // of another user: they stay without names
  }
  return running;
}

std::string short_reference(const std::string& reference) {
  try {
    const auto parsed = oci::Reference::parse(reference);
    using Kind = oci::Reference::Kind;
    if (parsed.kind == Kind::kDirectory) return "dir:" + parsed.path.filename().string();
    auto name = parsed.kind == Kind::kLayout          ? "oci:" + parsed.layout_dir.filename().string()
                : parsed.kind == Kind::kDockerArchive ? "docker-archive:" + parsed.path.filename().string()
                                                      : parsed.repository;
    if (constexpr std::string_view kOfficial = "library/"; parsed.host == "docker.io" && name.starts_with(kOfficial))
      name.erase(0, kOfficial.size());
    if (parsed.digest) return name + "@sha256:" + parsed.digest->hex().substr(0, kShownDigits);
    if (!parsed.tag) return name;
    return name + ":" + (parsed.kind == Kind::kDockerArchive ? short_reference(*parsed.tag) : *parsed.tag);
  } catch (const Error&) {
    return reference;
  }
}

std::string host_of(const std::string& repository) {
  return repository.starts_with("oci:") ? repository : repository.substr(0, repository.find('/'));
}

ImageNames::ImageNames(const std::vector<std::string>& references) {
  for (const auto& reference : references) full_[short_reference(reference)].insert(reference);
}

std::string ImageNames::of(const std::string& reference) const {
  auto name = short_reference(reference);
  return printable(full_.at(name).size() > 1 ? reference : name);
}

std::string sessions_text(const std::vector<std::string>& names) {
  return (names.size() == 1 ? "session " : "sessions ") + joined(names);
}

std::string holders_text(const std::vector<std::string>& held_by) {
  std::vector<std::string> names(held_by.begin(),
                                 held_by.begin() + std::ptrdiff_t(std::min(held_by.size(), kNamesShown)));
  if (held_by.size() > kNamesShown) names.push_back(fmt::format("{} more", held_by.size() - kNamesShown));
  return "held by " + joined(names);
}

std::string name_sessions(const fuse::MountStatus& mount, const RunningSessions& sessions) {
  if (!mount.held_by.empty()) {
    auto other = mount;
    other.held_by.clear();
    return holders_text(mount.held_by) + (mount.holders.empty() ? "" : "; " + name_sessions(other, sessions));
  }
  if (const auto found = sessions.find(mount.stats.image.to_string()); found != sessions.end())
    return sessions_text(found->second);
  if (mount.holders.empty()) return "a command";
  std::vector<std::string> holders;
  for (const auto pid : mount.holders) holders.push_back(std::to_string(pid));
  return (holders.size() == 1 ? "process " : "processes ") + joined(holders);
}

std::string status_text(const fuse::DaemonStatus& status, const RunningSessions& sessions) {
  const auto limit = status.store.max_bytes == 0 ? "" : " of " + human_bytes(status.store.max_bytes);
  auto text = fmt::format("daemon {} (version {}) for {}, store {}{}\n", status.daemon.pid, status.daemon.version,
                          human_seconds(status.daemon.uptime_seconds), human_bytes(status.store.bytes), limit);
  if (status.daemon.keeper == "none") text += "nothing keeps its mounts if it dies (its log says why)\n";
  const auto names = names_in(status);
  text += status.mounts.empty() ? (status.idle.empty() ? "nothing is mounted\n" : "nothing that is mounted is used\n")
                                : mount_table(status, sessions, names);
  text += remarks(status, names);
  for (const auto& idle : status.idle) text += idle_line(idle, names);
  for (const auto& pull : status.pulls) text += pull_line(pull, names);
  for (const auto& link : status.links) text += link_line(link);
  return text;
}

nlohmann::json status_json(const fuse::DaemonStatus& status, const RunningSessions& sessions) {
  nlohmann::json document = status;
  for (std::size_t i = 0; i < status.mounts.size(); ++i) {
    const auto& mount = status.mounts[i];
    auto& entry = document["mounts"][i];
    entry["complete"] = mount.stats.complete();
    const auto found = sessions.find(mount.stats.image.to_string());
    entry["sessions"] = mount.session && found != sessions.end() ? found->second : std::vector<std::string>();
  }
  return document;
}

}  // namespace varve::cli
