#include "core/oci/internal/hosts_toml.h"

#include <algorithm>
#include <cmath>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/strings.h"
#include "core/base/text/toml.h"
#include "core/oci/internal/url.h"

namespace varve::oci::internal {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxHosts = 64;
constexpr double kMaxDialSeconds = 600;

const std::vector<std::string_view> kKeys = {"capabilities", "ca",           "client",       "skip_verify",
                                             "header",       "dial_timeout", "override_path"};

// As Go writes them: "200ms", "1.5s", "1m30s".
std::optional<std::chrono::milliseconds> parse_duration(std::string_view text) {
  double seconds = 0;
  if (text.empty()) return std::nullopt;
  while (!text.empty()) {
    std::size_t digits = 0;
    while (digits < text.size() && ((text[digits] >= '0' && text[digits] <= '9') || text[digits] == '.')) ++digits;
    if (digits == 0 || digits > 15 || text.substr(0, digits) == ".") return std::nullopt;
    double number = 0, scale = 1;
    bool fraction = false;
    for (const char c : text.substr(0, digits)) {
      if (c == '.') {
        if (std::exchange(fraction, true)) return std::nullopt;
        continue;
      }
      number = number * 10 + (c - '0');
      if (fraction) scale *= 10;
    }
    text.remove_prefix(digits);
    std::size_t letters = 0;
    while (letters < text.size() && text[letters] != '.' && (text[letters] < '0' || text[letters] > '9')) ++letters;
    const auto unit = text.substr(0, letters);
    const double factor = unit == "h"                         ? 3600
                          : unit == "m"                       ? 60
                          : unit == "s"                       ? 1
                          : unit == "ms"                      ? 1e-3
                          : unit == "us" || unit == "\u00b5s" ? 1e-6
                          : unit == "ns"                      ? 1e-9
                                                              : 0;
    if (factor == 0) return std::nullopt;
    seconds += number / scale * factor;
    text.remove_prefix(letters);
  }
  if (seconds <= 0 || seconds > kMaxDialSeconds) return std::nullopt;
  return std::chrono::milliseconds(std::max<std::int64_t>(1, std::int64_t(std::ceil(seconds * 1000))));
}

class Reader {
 public:
  Reader(const std::string& what, const fs::path& folder) : what_(what), folder_(folder) {}

  // What the keys of one table say about how to speak to it.
  Source read_keys(const TomlValue& table) const {
    Source source;
    source.capabilities = capabilities_of(table);
    for (const auto& file : toml_strings(table, "ca", what_)) source.authorities.push_back(folder_ / file);
    source.client = client_of(table);
    source.verify_tls = !toml_flag(table, "skip_verify", what_);
    source.headers = headers_of(table);
    if (const auto* timeout = table.find("dial_timeout")) {
      source.dial_timeout = parse_duration(toml_string(table, "dial_timeout", what_));
      if (!source.dial_timeout)
        fail<CorruptData>("{}: dial_timeout must be a duration such as \"200ms\" or \"5s\"",
                          toml_place(what_, *timeout));
    }
    return source;
  }

  void add_address(Source& source, const std::string& text, const TomlValue& table) const {
    const auto place = toml_place(what_, table);
    const auto url = Url::parse(text.find("://") == text.npos ? "https://" + text : text);
    if (!url || url->text.find('?') != std::string::npos)
      fail<CorruptData>("{}: '{:.200}' is no URL of a registry", place, text);
    const bool is_usual_port = url->port == (url->scheme == "https" ? "443" : "80");
    source.host = source.connect_to = is_usual_port ? url->host : url->host + ":" + url->port;
    source.root = url->path;
    while (source.root.ends_with('/')) source.root.pop_back();
    if (!toml_flag(table, "override_path", what_) && !source.root.ends_with("/v2")) source.root += "/v2";
    source.scheme = url->scheme == "https" ? Scheme::kHttps : Scheme::kHttp;
    // As in containerd: who names certificates means TLS.
    const bool has_tls_keys = !source.verify_tls || !source.authorities.empty() || source.client;
    if (source.scheme == Scheme::kHttp && has_tls_keys && url->port != "80") source.scheme = Scheme::kHttpsIfSpoken;
    // Such a source is asked at the port of the URL, whichever scheme it turns out to speak.
    if (source.scheme != Scheme::kHttps && is_usual_port) source.connect_to += ":" + url->port;
  }

  void note_unknown(const TomlValue& table, std::vector<std::string_view> known) const {
    known.insert(known.end(), kKeys.begin(), kKeys.end());
    for (const auto& [key, value] : table.table)
      if (std::ranges::find(known, key) == known.end())
        log::warn("{}: '{:.100}' is not known here and does nothing", toml_place(what_, value), key);
  }

 private:
  SourceCapabilities capabilities_of(const TomlValue& table) const {
    const auto* value = table.find("capabilities");
    if (value == nullptr) return {};
    SourceCapabilities can{.pull = false, .resolve = false, .referrers = false};
    for (const auto& text : toml_strings(table, "capabilities", what_)) {
      if (text == "pull")
        can.pull = true;
      else if (text == "resolve")
        can.resolve = true;
      else if (text == "referrers")
        can.referrers = true;
      else if (text != "push")
        fail<CorruptData>("{}: capability '{:.60}' is not one of pull, resolve, push, referrers",
                          toml_place(what_, *value), text);
    }
    return can;
  }

  // One file with both, files of which the first counts, or pairs of certificate and key.
  std::optional<std::pair<fs::path, fs::path>> client_of(const TomlValue& table) const {
    const auto* value = table.find("client");
    if (value == nullptr) return std::nullopt;
    const auto refuse = [&]() {
      fail<CorruptData>("{}: client must be a file, files, or pairs of certificate and key", toml_place(what_, *value));
    };
    const auto* first = value;
    if (value->kind == TomlValue::Kind::kArray) {
      if (value->array.empty()) return std::nullopt;
      if (value->array.size() > 1) log::warn("{}: of several clients the first is taken", toml_place(what_, *value));
      first = &value->array.front();
    }
    std::vector<std::string> files;
    if (first->kind == TomlValue::Kind::kString) files = {first->text};
    if (first->kind == TomlValue::Kind::kArray)
      for (const auto& file : first->array) {
        if (file.kind != TomlValue::Kind::kString) refuse();
        files.push_back(file.text);
      }
    if (files.empty() || files.size() > 2) refuse();
    const bool has_key = files.size() == 2 && !files[1].empty();
    return std::pair(folder_ / files[0], folder_ / files[has_key ? 1 : 0]);
  }

  std::vector<std::string> headers_of(const TomlValue& table) const {
    const auto* header = table.find("header");
    if (header == nullptr) return {};
    if (header->kind != TomlValue::Kind::kTable)
      fail<CorruptData>("{}: header must be a table", toml_place(what_, *header));
    std::vector<std::string> lines;
    for (const auto& [name, value] : header->table) {
      const auto is_bad = [](unsigned char c, std::string_view also) {
        return c < 0x20 || c == 0x7f || also.find(char(c)) != also.npos;
      };
      bool good = !name.empty() && std::ranges::none_of(name, [&](char c) { return is_bad(c, " :"); });
      for (const auto& text : toml_strings(*header, name, what_)) {
        good = good && std::ranges::none_of(text, [&](char c) { return is_bad(c, ""); });
        lines.push_back(name + ": " + text);
      }
      if (!good) fail<CorruptData>("{}: a header that cannot be sent", toml_place(what_, value));
    }
    return lines;
  }

  const std::string& what_;
  const fs::path& folder_;
};

}  // namespace

HostsFile parse_hosts_toml(std::string_view text, const std::string& what, const fs::path& folder) {
  const auto root = parse_toml(text, what);
  const Reader reader(what, folder);
  reader.note_unknown(root, {"server", "host"});
  HostsFile file;
  file.own = reader.read_keys(root);
  if (const auto server = toml_string(root, "server", what); !server.empty()) {
    file.server = file.own;
    reader.add_address(*file.server, server, root);
  }
  const auto* hosts = root.find("host");
  if (hosts == nullptr) return file;
  if (hosts->kind != TomlValue::Kind::kTable)
    fail<CorruptData>("{}: host must be tables: [host.\"https://...\"]", toml_place(what, *hosts));
  if (hosts->table.size() > kMaxHosts) fail<CorruptData>("{}: more than {} hosts", toml_place(what, *hosts), kMaxHosts);
  // The order of the file is the order in which they are asked; tables themselves have none.
  std::vector<std::pair<std::string, const TomlValue*>> tables;
  for (const auto& [url, table] : hosts->table) {
    if (table.kind != TomlValue::Kind::kTable)
      fail<CorruptData>("{}: host must be tables: [host.\"https://...\"]", toml_place(what, table));
    tables.emplace_back(url, &table);
  }
  std::ranges::stable_sort(tables, {}, [](const auto& one) { return one.second->line; });
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const auto& [url, table] = tables[i];
    if (i > 0 && tables[i - 1].second->line == table->line)
      fail<CorruptData>("{}: several hosts in one line; their order is that of the lines", toml_place(what, *table));
    reader.note_unknown(*table, {});
    auto mirror = reader.read_keys(*table);
    reader.add_address(mirror, url, *table);
    mirror.is_mirror = true;
    file.mirrors.push_back(std::move(mirror));
  }
  return file;
}

std::vector<fs::path> host_folders(const fs::path& dir, const std::string& host) {
  std::vector<fs::path> folders;
  if (const auto colon = host.rfind(':'); colon != host.npos && !host.ends_with(']'))
    folders.push_back(dir / (host.substr(0, colon) + "_" + host.substr(colon + 1) + "_"));
  folders.push_back(dir / host);
  folders.push_back(dir / "_default");
  return folders;
}

}  // namespace varve::oci::internal
