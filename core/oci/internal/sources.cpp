#include "core/oci/internal/sources.h"

#include <algorithm>
#include <cstdlib>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/oci/internal/hosts_toml.h"
#include "core/oci/internal/registries_conf.h"

namespace varve::oci::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxFileBytes = 1 << 20;

// Remembers what it was asked for, so that a change can be noticed.
class Files {
 public:
  std::optional<std::string> read(const fs::path& file) {
    looked_.push_back(file);
    try {
      const auto bytes = read_file_if_there(file, kMaxFileBytes);
      return bytes ? std::optional(std::string(as_text(*bytes))) : std::nullopt;
    } catch (const std::system_error& error) {
      fail<UsageError>("{}: {}; --no-mirrors asks registries themselves", file.string(), error.code().message());
    }
  }
  bool is_folder(const fs::path& dir) {
    looked_.push_back(dir);
    std::error_code none;
    return fs::is_directory(dir, none);
  }
  // *.conf, in the order of their names.
  std::vector<fs::path> drop_ins(const fs::path& dir) {
    std::vector<fs::path> files;
    if (!is_folder(dir)) return files;
    std::error_code error;
    for (fs::directory_iterator entry(dir, error), end; !error && entry != end; entry.increment(error))
      if (entry->path().extension() == ".conf") files.push_back(entry->path());
    if (error) fail<UsageError>("{}: {}", dir.string(), error.message());
    std::ranges::sort(files);
    return files;
  }
  std::vector<fs::path> looked() && { return std::move(looked_); }

 private:
  std::vector<fs::path> looked_;
};

bool covers(const std::string& prefix, const std::string& name) {
  return name.starts_with(prefix) && (name.size() == prefix.size() || name[prefix.size()] == '/');
}

// ?ns= tells a host that is another one which registry is meant.
void mark_mirror(Source& source, const Reference& reference) {
  source.is_mirror = true;
  source.names_host = reference.host;
}

std::vector<Source> sources_of_rule(const MirrorRule& rule, const Reference& reference, const Source& own) {
  std::vector<Source> sources;
  for (const auto& location : rule.locations) {
    const auto scheme_end = location.find("://");
    const auto at = scheme_end == location.npos ? location : location.substr(scheme_end + 3);
    auto source = source_at(at, rule.prefix, reference);
    if (!source)
      fail<UsageError>("{}: '{}' instead of '{}' makes no repository of {}", rule.place, location, rule.prefix,
                       reference.repository_name());
    if (location.starts_with("http://")) source->scheme = Scheme::kHttp;
    if (location.starts_with("https://")) source->scheme = Scheme::kHttps;
    source->capabilities = {.pull = true, .resolve = rule.resolve, .referrers = rule.resolve};
    mark_mirror(*source, reference);
    sources.push_back(std::move(*source));
  }
  if (rule.upstream) sources.push_back(own);
  return sources;
}

bool is_own_host(const std::string& host, const Reference& reference) {
  return host == reference.host || (reference.host == "docker.io" && host == "registry-1.docker.io");
}

// What a hosts.toml says, of the repository that the reference names.
std::vector<Source> sources_of_hosts(HostsFile file, const Reference& reference, const Source& own) {
  Source server = file.server.value_or(own);
  if (!file.server || is_own_host(server.host, reference)) {
    // The registry itself, with what the file says about how to speak to it.
    auto told = file.server ? std::move(server) : std::move(file.own);
    server = own;
    if (file.server) {
      server.root = told.root;
      server.scheme = told.scheme;
      server.connect_to = told.connect_to;
    }
    server.capabilities = told.capabilities;
    server.authorities = std::move(told.authorities);
    server.client = std::move(told.client);
    server.verify_tls = told.verify_tls;
    server.headers = std::move(told.headers);
    server.dial_timeout = told.dial_timeout;
  } else {
    mark_mirror(server, reference);
  }
  auto sources = std::move(file.mirrors);
  for (auto& source : sources) {
    const bool own_host = is_own_host(source.host, reference);
    source.is_mirror = !own_host;
    if (own_host)
      source.host = reference.host;
    else
      mark_mirror(source, reference);
  }
  sources.push_back(std::move(server));
  for (auto& source : sources) source.repository = reference.repository;
  // Who may give nothing is not asked.
  std::erase_if(sources, [](const Source& source) {
    return !source.capabilities.pull && !source.capabilities.resolve && !source.capabilities.referrers;
  });
  return sources;
}

std::vector<Source> read_hosts(Files& files, const Reference& reference, const RegistryOptions& options,
                               const Source& own) {
  auto dirs = options.mirrors.hosts_dirs;
  if (dirs.empty()) dirs = {"/etc/containerd/certs.d", "/etc/docker/certs.d"};
  for (const auto& dir : dirs) {
    for (const auto& folder : host_folders(dir, reference.host)) {
      if (!files.is_folder(folder)) continue;
      const auto file = folder / "hosts.toml";
      if (const auto text = files.read(file))
        return sources_of_hosts(parse_hosts_toml(*text, file.string(), folder), reference, own);
      break;  // certificates alone, which host_certificates.h reads
    }
  }
  return {};
}

std::vector<RegistryTable> read_registries(Files& files, const fs::path& named) {
  std::vector<RegistryTable> tables;
  const auto add = [&](const fs::path& file) {
    const auto text = files.read(file);
    if (text) merge_registries(tables, parse_registries_conf(*text, file.string()));
    return text.has_value();
  };
  const auto add_folder = [&](const fs::path& dir) {
    for (const auto& file : files.drop_ins(dir)) add(file);
  };
  if (!named.empty()) {
    if (!add(named)) fail<UsageError>("{}: there is no such file (registries-conf)", named.string());
    add_folder(named.string() + ".d");
    return tables;
  }
  fs::path user;
  if (const auto* config = std::getenv("XDG_CONFIG_HOME"); config != nullptr && *config == '/')
    user = fs::path(config) / "containers/registries.conf";
  else if (const auto* home = std::getenv("HOME"); home != nullptr && *home == '/')
    user = fs::path(home) / ".config/containers/registries.conf";
  const fs::path machine = "/etc/containers/registries.conf";
  if (user.empty() || !add(user)) add(machine);
  add_folder(machine.string() + ".d");
  if (!user.empty()) add_folder(user.string() + ".d");
  return tables;
}

Source insecure_or_not(Source source, bool insecure) {
  if (!insecure) return source;
  source.verify_tls = false;
  source.scheme = Scheme::kHttpsIfSpoken;
  return source;
}

std::vector<Source> sources_of_table(const RegistryTable& table, const Reference& reference, const Source& own) {
  const auto at = [&](const RegistryPlace& place) {
    auto source = source_at(place.location, table.prefix, reference);
    if (!source)
      fail<UsageError>("{}: '{}' instead of '{}' makes no repository of {}", table.place, place.location, table.prefix,
                       reference.repository_name());
    return insecure_or_not(std::move(*source), place.insecure);
  };
  std::vector<Source> sources;
  for (const auto& mirror : table.mirrors) {
    auto source = at(mirror);
    source.capabilities = {.pull = mirror.by_digest, .resolve = mirror.by_tag, .referrers = false};
    mark_mirror(source, reference);
    sources.push_back(std::move(source));
  }
  auto last = table.own.location.empty() ? insecure_or_not(own, table.own.insecure) : at(table.own);
  if (last.name() == own.name())
    last.scheme = own.scheme == Scheme::kHttp ? own.scheme : last.scheme;
  else
    mark_mirror(last, reference);
  sources.push_back(std::move(last));
  return sources;
}

const MirrorRule* find_rule(const MirrorSettings& settings, const Reference& reference) {
  const MirrorRule* best = nullptr;
  for (const auto& rule : settings.rules)
    if (covers(rule.prefix, reference.repository_name()) && (!best || rule.prefix.size() > best->prefix.size()))
      best = &rule;
  return best;
}

}  // namespace

RepositorySources find_sources(const Reference& reference, const RegistryOptions& options) try {
  RepositorySources found;
  const auto own = own_source(reference, options.plain_http);
  found.sources = {own};
  if (options.mirrors.off) return found;
  if (const auto* rule = find_rule(options.mirrors, reference)) {
    found.sources = sources_of_rule(*rule, reference, own);
    return found;
  }
  Files files;
  const auto tables = read_registries(files, options.mirrors.registries_conf);
  const auto* table = find_registry(tables, reference);
  if (table != nullptr && table->blocked)
    fail<UsageError>("{}: {} is blocked here", table->place, reference.repository_name());
  if (auto sources = read_hosts(files, reference, options, own); !sources.empty())
    found.sources = std::move(sources);
  else if (table != nullptr)
    found.sources = sources_of_table(*table, reference, own);
  found.looked = std::move(files).looked();
  return found;
} catch (const CorruptData& error) {
  fail<UsageError>("{}; mend it, or say --no-mirrors", error.what());
}

}  // namespace varve::oci::internal
