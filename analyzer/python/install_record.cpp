#include "analyzer/python/install_record.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include <nlohmann/json.hpp>

#include "analyzer/python/internal/text.h"
#include "analyzer/python/module_file.h"
#include "core/base/errors.h"
#include "core/base/text/base64.h"

namespace varve::python {

namespace {

constexpr std::size_t kMaxDirectUrlBytes = 1u << 20;
constexpr std::size_t kMaxQuotedRowBytes =
    4 * kMaxRecordPathBytes;  // so that a quote that never ends costs no more than that

// "sha256=" and 43 digits of base64 for URLs, without padding. Debian's packages of flit projects write 64 hex digits.
std::optional<Digest> read_hash(std::string_view text) {
  constexpr std::string_view kPrefix = "sha256=";
  if (!text.starts_with(kPrefix)) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  if (text.size() == 2 * Digest::kBytes) return Digest::try_parse("sha256:" + to_lower(text));
  if (text.size() != 43) return std::nullopt;
  std::string padded(text);
  std::ranges::replace(padded, '-', '+');
  std::ranges::replace(padded, '_', '/');
  const auto raw = base64_decode(padded + '=');
  return raw && raw->size() == Digest::kBytes ? std::optional(Digest::from_raw(as_bytes(*raw))) : std::nullopt;
}

std::optional<std::uint64_t> read_size(std::string_view text) {
  std::uint64_t value = 0;
  const auto* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && at == end ? std::optional(value) : std::nullopt;
}

// Rows of comma-separated values as Python's csv writes them.
class RowReader {
 public:
  explicit RowReader(std::string_view text) : rest_(without_bom(text)) {}

  bool at_end() const { return rest_.empty(); }

  // The first three fields of the next row; false if it cannot be read. The next row is where a line ends outside of
  // quotes, or, after a quote that never ends, where this line does.
  bool read(std::array<std::string_view, 3>& fields) {
    const auto start = rest_;
    fields = {};
    auto line = rest_;
    line = take_line(line);
    if (line.find('"') == std::string_view::npos) {
      for (auto& field : fields) field = take_until(line, ',');
      take_line(rest_);
      return true;
    }
    for (auto& buffer : buffers_) buffer.clear();
    rest_ = start.substr(0, kMaxQuotedRowBytes);
    const bool whole = read_quoted() && (!rest_.empty() || start.size() <= kMaxQuotedRowBytes);
    rest_ = whole ? start.substr(std::min(kMaxQuotedRowBytes, start.size()) - rest_.size()) : start;
    if (!whole) {
      take_line(rest_);
      return false;
    }
    for (std::size_t i = 0; i < fields.size(); ++i) fields[i] = buffers_[i];
    return true;
  }

 private:
  bool read_quoted() {
    for (std::size_t field = 0;; ++field) {
      if (rest_.starts_with('"') && !read_quotes(field)) return false;
      const auto end = rest_.find_first_of(",\r\n");
      append(field, rest_.substr(0, end));
      rest_.remove_prefix(std::min(end, rest_.size()));
      if (!rest_.starts_with(',')) break;
      rest_.remove_prefix(1);
    }
    if (!rest_.empty()) take_line(rest_);
    return true;
  }
  bool read_quotes(std::size_t field) {
    rest_.remove_prefix(1);
    for (;;) {
      const auto end = rest_.find('"');
      if (end == std::string_view::npos) return false;
      append(field, rest_.substr(0, end));
      rest_.remove_prefix(end + 1);
      if (!rest_.starts_with('"')) return true;
      append(field, "\"");
      rest_.remove_prefix(1);
    }
  }
  void append(std::size_t field, std::string_view text) {
    if (field < buffers_.size()) buffers_[field] += text;
  }

  std::string_view rest_;
  std::array<std::string, 3> buffers_;
};

// With "/" between components; "" if it cannot be a path. `buffer` keeps a changed one.
std::string_view clean_path(std::string_view path, std::string& buffer) {
  if (path.size() > kMaxRecordPathBytes || path.find('\0') != std::string_view::npos) return {};
  if (path.find('\\') == std::string_view::npos) return path;
  buffer = path;
  std::ranges::replace(buffer, '\\', '/');
  return buffer;
}

void count_unreadable(RecordTally& tally, std::uint64_t row) {
  if (tally.unreadable++ == 0) tally.first_unreadable = row;
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

void read_archive_info(const nlohmann::json& info, DirectUrl& out) {
  if (const auto hashes = info.find("hashes"); hashes != info.end() && hashes->is_object()) {
    for (const auto& [kind, value] : hashes->items()) {
      if (value.is_string()) out.hashes[kind] = value.get<std::string>();
    }
  }
  // The older form: "hash": "sha256=ab12…".
  const auto hash = text_of(info, "hash");
  if (const auto equals = hash.find('='); equals != std::string::npos)
    out.hashes.try_emplace(hash.substr(0, equals), hash.substr(equals + 1));
}

}  // namespace

RecordTally read_record(std::string_view text, const std::function<void(const RecordEntry&)>& got) {
  RecordTally tally;
  RowReader rows(text);
  std::array<std::string_view, 3> fields;
  std::string buffer;
  for (std::uint64_t row = 1; !rows.at_end(); ++row) {
    const bool whole = rows.read(fields);
    if (whole && fields[0].empty() && fields[1].empty() && fields[2].empty()) continue;  // a blank line
    const auto path = whole ? clean_path(fields[0], buffer) : std::string_view();
    if (path.empty()) {
      count_unreadable(tally, row);
      continue;
    }
    ++tally.entries;
    got({.path = path, .sha256 = read_hash(fields[1]), .size = read_size(trim(fields[2]))});
  }
  return tally;
}

RecordTally read_path_list(std::string_view text, const std::function<void(std::string_view path)>& got) {
  RecordTally tally;
  std::string buffer;
  text = without_bom(text);
  for (std::uint64_t row = 1; !text.empty(); ++row) {
    const auto line = take_line(text);
    if (trim(line).empty()) continue;
    const auto path = clean_path(line, buffer);
    if (path.empty()) {
      count_unreadable(tally, row);
      continue;
    }
    ++tally.entries;
    got(path);
  }
  return tally;
}

std::optional<std::string> resolve_path(std::string_view folder, std::string_view path) {
  std::string out;
  const auto walk = [&](std::string_view rest) {
    while (!rest.empty()) {
      const auto part = take_until(rest, '/');
      if (part.empty() || part == ".") continue;
      if (part != "..") {
        if (!out.empty()) out += '/';
        out += part;
      } else if (out.empty()) {
        return false;
      } else {
        const auto slash = out.rfind('/');
        out.resize(slash == std::string::npos ? 0 : slash);
      }
    }
    return true;
  };
  if (!path.starts_with('/') && !walk(folder)) return std::nullopt;
  if (!walk(path) || out.empty()) return std::nullopt;
  return out;
}

std::vector<std::string> parse_top_level(std::string_view text) {
  std::vector<std::string> out;
  std::set<std::string> known;
  for (text = without_bom(text); !text.empty();) {
    std::string name(trim(take_line(text)));
    std::ranges::replace(name, '/', '.');
    std::ranges::replace(name, '\\', '.');
    if (is_dotted_name(name) && known.insert(name).second) out.push_back(std::move(name));
  }
  return out;
}

std::string parse_installer(std::string_view text) {
  text = trim(without_bom(text));
  return to_lower(text.substr(0, text.find_first_of(" \t\r\n\v\f")));
}

DirectUrl parse_direct_url(std::string_view text, std::string_view what) {
  if (text.size() > kMaxDirectUrlBytes)
    fail<CorruptData>("{}: {} bytes, and {} at most are read", what, text.size(), kMaxDirectUrlBytes);
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) fail<CorruptData>("{}: no JSON object", what);
  DirectUrl out;
  out.url = text_of(json, "url");
  if (out.url.empty()) fail<CorruptData>("{}: no \"url\"", what);
  out.subdirectory = text_of(json, "subdirectory");
  const auto info = [&](const char* key) { return json.contains(key) && json[key].is_object() ? &json[key] : nullptr; };
  if (const auto* folder = info("dir_info")) {
    out.kind = DirectUrl::Kind::kFolder;
    const auto editable = folder->find("editable");
    out.editable = editable != folder->end() && editable->is_boolean() && editable->get<bool>();
  } else if (const auto* vcs = info("vcs_info")) {
    out.kind = DirectUrl::Kind::kVcs;
    out.vcs = text_of(*vcs, "vcs");
    out.commit = text_of(*vcs, "commit_id");
    out.requested_revision = text_of(*vcs, "requested_revision");
  } else if (const auto* archive = info("archive_info")) {
    out.kind = DirectUrl::Kind::kArchive;
    read_archive_info(*archive, out);
  } else {
    fail<CorruptData>("{}: says neither dir_info, vcs_info nor archive_info", what);
  }
  return out;
}

}  // namespace varve::python
