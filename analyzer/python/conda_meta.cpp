#include "analyzer/python/conda_meta.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <nlohmann/json.hpp>

#include "analyzer/python/internal/text.h"
#include "core/base/errors.h"

namespace varve::python {

namespace {

using nlohmann::json;

// Takes what is wanted as the parser meets it. `path_` holds the keys down to the current place, "" for an array.
class CondaHandler final : public nlohmann::json_sax<json> {
 public:
  explicit CondaHandler(CondaRecord& record) : record_(record) {}

  std::string error;
  std::string channel, prefix_digest;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override {
    return value < 0 || number_unsigned(number_unsigned_t(value));
  }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool number_unsigned(number_unsigned_t value) override {
    if (at({"build_number"})) record_.build_number = value;
    if (at({"paths_data", "paths", "", "size_in_bytes"})) file_.size = value;
    return true;
  }
  bool string(string_t& value) override {
    if (path_.size() == 1) return take_field(path_[0], value);
    if (at({"depends", ""}))
      record_.depends.push_back(std::move(value));
    else if (at({"files", ""}))
      return add({.path = std::move(value), .size = {}, .sha256 = {}});
    else if (at({"requested_specs", ""}))
      record_.requested_spec += (record_.requested_spec.empty() ? "" : ", ") + value;
    else if (path_.size() == 4 && at_start({"paths_data", "paths", ""}))
      take_path_field(path_[3], value);
    return true;
  }
  bool start_object(std::size_t) override {
    if (at({"paths_data", "paths", ""})) file_ = {};
    return open("");
  }
  bool key(string_t& name) override {
    path_.back() = std::move(name);
    return true;
  }
  bool end_object() override {
    path_.pop_back();
    if (!at({"paths_data", "paths", ""})) return true;
    if (auto digest = Digest::try_parse("sha256:" + prefix_digest)) file_.sha256 = digest;
    prefix_digest.clear();
    return add(std::exchange(file_, {}));
  }
  bool start_array(std::size_t) override { return open(""); }
  bool end_array() override {
    path_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) override {
    error = fmt::format("no JSON at byte {}", position);
    return false;
  }

 private:
  bool at_start(std::initializer_list<std::string_view> keys) const {
    return std::equal(keys.begin(), keys.end(), path_.begin());
  }
  bool at(std::initializer_list<std::string_view> keys) const { return path_.size() == keys.size() && at_start(keys); }

  bool open(std::string name) {
    if (path_.size() >= kMaxCondaDepth) {
      error = fmt::format("nested deeper than {}", kMaxCondaDepth);
      return false;
    }
    path_.push_back(std::move(name));
    return true;
  }
  bool take_field(const std::string& name, std::string& value) {
    if (name == "name")
      record_.name = std::move(value);
    else if (name == "version")
      record_.version = std::move(value);
    else if (name == "build" || name == "build_string")
      record_.build = std::move(value);
    else if (name == "subdir")
      record_.subdir = std::move(value);
    else if (name == "noarch")
      record_.noarch = std::move(value);
    else if (name == "channel")
      channel = std::move(value);
    else if (name == "requested_spec" && value != "None")
      record_.requested_spec = std::move(value);
    return true;
  }
  void take_path_field(const std::string& name, std::string& value) {
    if (name == "_path")
      file_.path = std::move(value);
    else if (name == "sha256")
      file_.sha256 = Digest::try_parse("sha256:" + value);
    else if (name == "sha256_in_prefix")
      prefix_digest = std::move(value);
  }
  bool add(CondaFile file) {
    std::ranges::replace(file.path, '\\', '/');
    if (file.path.empty() || file.path.find('\0') != std::string::npos) return true;
    if (record_.files.size() >= 2 * kMaxCondaFiles) {  // `files` and `paths_data` name each once
      error = fmt::format("more than {} files", kMaxCondaFiles);
      return false;
    }
    record_.files.push_back(std::move(file));
    return true;
  }

  CondaRecord& record_;
  CondaFile file_;
  std::vector<std::string> path_;
};

// "https://conda.anaconda.org/conda-forge/linux-64" -> "conda-forge"
std::string channel_name(std::string_view channel, std::string_view subdir) {
  while (channel.ends_with('/')) channel.remove_suffix(1);
  const auto slash = channel.rfind('/');
  const auto last = channel.substr(slash + 1);
  if (slash == std::string_view::npos || (last != subdir && last != "noarch")) return std::string(last);
  channel = channel.substr(0, slash);
  return std::string(channel.substr(channel.rfind('/') + 1));
}

// One entry per path; what `paths_data` knows of it stays.
void merge_files(std::vector<CondaFile>& files) {
  std::ranges::stable_sort(files, {}, &CondaFile::path);
  std::size_t kept = 0;
  for (auto& file : files) {
    if (kept == 0 || files[kept - 1].path != file.path) {
      if (&files[kept] != &file) files[kept] = std::move(file);
      ++kept;
      continue;
    }
    if (file.size) files[kept - 1].size = file.size;
    if (file.sha256) files[kept - 1].sha256 = file.sha256;
  }
  files.resize(kept);
}

}  // namespace

CondaRecord parse_conda_record(std::string_view text, std::string_view what) {
  CondaRecord out;
  CondaHandler handler(out);
  if (!json::sax_parse(without_bom(text), &handler)) fail<CorruptData>("{}: {}", what, handler.error);
  if (out.name.empty()) fail<CorruptData>("{}: names no package", what);
  out.channel = channel_name(handler.channel, out.subdir);
  merge_files(out.files);
  return out;
}

std::string conda_dependency_name(std::string_view spec) {
  if (const auto channel = spec.find("::"); channel != std::string_view::npos) spec.remove_prefix(channel + 2);
  spec = trim(spec);
  return to_lower(spec.substr(0, spec.find_first_of(" \t=<>!~[")));
}

}  // namespace varve::python
