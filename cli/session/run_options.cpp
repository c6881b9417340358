#include "cli/session/run_options.h"

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/child_process.h"
#include "core/base/text/json_document.h"

namespace varve::cli {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxEnvFileBytes = 1 << 20;

// Every field that is kept, once, for both ways. What a record of an earlier version lacks stays as it is.
template <typename Options, typename Field>
void visit_fields(Options& options, Field&& field) {
  auto& session = options.session;
  field("rootfs", options.rootfs);
  field("no_prefetch", options.no_prefetch);
  field("fill", options.fill);
  field("record", options.record);
  field("usage_spool", options.usage_spool);
  field("volumes", session.volumes);
  field("env", session.env);
  field("working_dir", session.working_dir);
  field("user", session.user);
  field("entrypoint", session.entrypoint);
  field("mode", session.mode);
  field("runtime", session.runtime);
  field("network", session.network);
  field("userns", session.userns);
  field("userns_ids", session.userns_ids);
  field("gpus", session.gpus);
  field("devices", session.devices);
  field("cdi_dirs", session.cdi_dirs);
  field("tmpfs", session.tmpfs);
  field("hostname", session.hostname);
  field("shm_bytes", session.shm_bytes);
  field("read_only", session.read_only);
  field("memory_bytes", session.limits.memory_bytes);
  field("cpus", session.limits.cpus);
  field("pids", session.limits.pids);
  field("limits", session.limits_hold);
}

json saved_form(const std::filesystem::path& path) { return path.string(); }
json saved_form(const std::optional<std::string>& text) { return text ? json(*text) : json(nullptr); }
json saved_form(const std::vector<std::filesystem::path>& paths) {
  auto list = json::array();
  for (const auto& path : paths) list.push_back(path.string());
  return list;
}
template <typename Value>
json saved_form(const Value& value) {
  return value;
}

void restore(const JsonValue& value, std::string& into) { into = value.text(); }
void restore(const JsonValue& value, std::optional<std::string>& into) { into = value.text(); }
void restore(const JsonValue& value, std::filesystem::path& into) { into = value.text(); }
void restore(const JsonValue& value, bool& into) { into = value.flag(); }
void restore(const JsonValue& value, double& into) { into = value.real(0, 1e9); }
void restore(const JsonValue& value, std::uint64_t& into) { into = value.number(); }
void restore(const JsonValue& value, std::int64_t& into) { into = value.number<std::int64_t>(); }
void restore(const JsonValue& value, std::vector<std::string>& into) { into = value.texts(); }
void restore(const JsonValue& value, std::vector<std::filesystem::path>& into) {
  into.clear();
  for (const auto& path : value.texts()) into.emplace_back(path);
}

// `--env NAME` hands on what this process has; without a value there it says nothing.
void add_variable(std::vector<std::string>& env, const std::string& text) {
  if (text.find('=') != text.npos) return env.push_back(text);
  for (const auto& own : own_environment())
    if (own.starts_with(text + "=")) return env.push_back(own);
}

}  // namespace

void settle(RunOptions& options) {
  auto& session = options.session;
  std::vector<std::string> env;
  for (const auto& file : session.env_files) {
    std::error_code error;
    if (!std::filesystem::exists(file, error)) fail<UsageError>("--env-file {}: there is no such file", file.string());
    for (const auto& line : fuse::parse_env_file(as_text(read_file(file, kMaxEnvFileBytes)), file.string()))
      add_variable(env, line);
  }
  for (const auto& one : session.env) {
    if (one.empty() || one.starts_with('=')) fail<UsageError>("--env {}: write NAME=value or NAME", one);
    add_variable(env, one);
  }
  session.env = std::move(env);
  session.env_files.clear();
  for (auto& volume : session.volumes) volume = fuse::Volume::parse(volume).to_string();
  for (auto& dir : session.cdi_dirs) dir = std::filesystem::absolute(dir);
  for (auto* path : {&options.rootfs, &options.usage_spool, &options.stats_file})
    if (!path->empty()) *path = std::filesystem::absolute(*path);
}

std::string saved_options(const RunOptions& options, const Context& context) {
  json saved = {{"command", context.tail},
                {"authfile", saved_form(context.global.registry.authfile)},
                {"ca_file", saved_form(context.global.registry.ca_file)},
                {"plain_http", context.global.registry.plain_http},
                {"index_from", context.global.registry.index_from},
                {"no_mirrors", context.global.registry.mirrors.off},
                {"registries_conf", saved_form(context.global.registry.mirrors.registries_conf)},
                {"hosts_dirs", saved_form(context.global.registry.mirrors.hosts_dirs)}};
  visit_fields(options, [&](const char* name, const auto& value) { saved[name] = saved_form(value); });
  return saved.dump(-1, ' ', false, json::error_handler_t::replace);
}

void restore_options(const std::string& saved, RunOptions& options, Context& context) {
  const auto document = JsonValue::parse(saved, "the session's options", {.bytes = 4 << 20});
  if (!document.has("command"))
    throw Unsupported("the session was made by an earlier version of Varve, which did not note its options");
  context.tail = document["command"].texts();
  auto& registry = context.global.registry;
  if (registry.authfile.empty()) registry.authfile = document["authfile"].text();
  if (registry.ca_file.empty()) registry.ca_file = document["ca_file"].text();
  registry.plain_http = registry.plain_http || document["plain_http"].flag();
  if (registry.index_from.empty()) registry.index_from = document.maybe("index_from").texts();
  auto& mirrors = registry.mirrors;
  if (const auto off = document.maybe("no_mirrors")) mirrors.off = mirrors.off || off.flag();
  if (mirrors.registries_conf.empty()) mirrors.registries_conf = document.maybe("registries_conf").text();
  if (mirrors.hosts_dirs.empty())
    for (const auto& dir : document.maybe("hosts_dirs").texts()) mirrors.hosts_dirs.emplace_back(dir);
  visit_fields(options, [&](const char* name, auto& value) {
    if (const auto member = document.maybe(name)) restore(member, value);
  });
}

}  // namespace varve::cli
