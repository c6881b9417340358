#include <algorithm>
#include <array>
#include <set>

#include <nlohmann/json.hpp>

#include "analyzer/compare/internal/parts.h"
#include "core/base/errors.h"
#include "core/base/text/image_path.h"

namespace varve::compare {
namespace {

using nlohmann::json;

std::map<Digest, std::uint64_t> blobs_of(const oci::Image& image) {
  std::map<Digest, std::uint64_t> blobs;
  for (const auto& layer : image.manifest.layers) blobs.emplace(layer.digest, layer.size);
  return blobs;
}

// What says how a container is run, one field a line of text. When and how the image came to be is not in it.
class ConfigFields {
 public:
  explicit ConfigFields(const oci::Image& image) {
    const auto document = json::parse(as_text(image.config_json), nullptr, false);
    if (!document.is_object())
      fail<CorruptData>("config {}: is no JSON object", image.manifest.config.digest.to_string());
    for (const auto* name : {"architecture", "variant", "os", "os.version"}) {
      if (document.contains(name)) fields_[name] = text_of(document[name]);
    }
    if (!document.contains("config") || !document["config"].is_object()) return;
    for (const auto& [name, value] : document["config"].items()) add(name, value);
  }
  const std::map<std::string, std::string>& fields() const { return fields_; }

 private:
  static std::string text_of(const json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace);
  }

  void add(const std::string& name, const json& value) {
    if (value.is_null() || (value.is_structured() && value.empty()) || value == json("") || value == json(false))
      return;  // as good as not there
    if (name == "Env" && value.is_array()) {
      for (const auto& variable : value) {
        const auto text = text_of(variable);
        const auto equals = text.find('=');
        fields_["Env " + text.substr(0, equals)] = equals == std::string::npos ? "" : text.substr(equals + 1);
      }
    } else if (value.is_object() && name != "Healthcheck") {
      for (const auto& [key, entry] : value.items()) fields_[name + " " + key] = text_of(entry);
    } else {
      fields_[name] = text_of(value);
    }
  }

  std::map<std::string, std::string> fields_;
};

std::vector<std::string> versions_of(const packages::Inventory& inventory) {
  std::vector<std::string> versions;
  for (const auto& interpreter : inventory.interpreters) versions.push_back(interpreter.version);
  return versions;
}

// Names that NVIDIA's libraries begin with: toolkit, deep learning, driver stubs.
constexpr std::array kCudaStems{"libcublas",    "libcuda",         "libcudnn",  "libcufft",    "libcufile",
                                "libcuinj",     "libcupti",        "libcurand", "libcusolver", "libcusparse",
                                "libcutensor",  "libnccl",         "libnppc",   "libnppi",     "libnpps",
                                "libnvJitLink", "libnvToolsExt",   "libnvblas", "libnvfatbin", "libnvinfer",
                                "libnvjpeg",    "libnvonnxparser", "libnvrtc",  "libnvshmem",  "libnvvm"};

struct LibraryFiles {
  std::set<std::string> versions;
  std::set<Digest> contents;
};

// "libcudnn_ops.so.9.1.0" is "libcudnn_ops", version "9.1.0".
std::map<std::string, LibraryFiles> cuda_libraries(const index::FlatTree& tree) {
  std::map<std::string, LibraryFiles> libraries;
  for (const auto& [path, entry] : tree.entries) {
    const auto name = name_of(path);
    const auto so = name.find(".so");
    if (so == std::string_view::npos || entry.type == FileType::kDirectory) continue;
    if (std::ranges::none_of(kCudaStems, [&](std::string_view stem) { return name.starts_with(stem); })) continue;
    const auto rest = name.substr(so + 3);
    if (!rest.empty() && rest.front() != '.') continue;
    auto& library = libraries[std::string(name.substr(0, so))];
    if (rest.size() > 1) library.versions.emplace(rest.substr(1));
    if (entry.type == FileType::kRegular) library.contents.insert(entry.content_digest);
  }
  return libraries;
}

}  // namespace

LayerComparison compare_layers(const oci::Image& before, const oci::Image& after) {
  const auto old = blobs_of(before);
  const auto now = blobs_of(after);
  const std::set<Digest> streams(before.config.diff_ids.begin(), before.config.diff_ids.end());
  LayerComparison result{.layers_before = before.manifest.layers.size(), .layers_after = after.manifest.layers.size()};
  for (std::size_t i = 0; i < after.manifest.layers.size(); ++i) {
    if (old.contains(after.manifest.layers[i].digest))
      ++result.reused;
    else if (streams.contains(after.config.diff_ids.at(i)))
      ++result.recompressed;
  }
  for (const auto& [digest, bytes] : now) (old.contains(digest) ? result.shared_bytes : result.new_bytes) += bytes;
  for (const auto& [digest, bytes] : old) {
    if (!now.contains(digest)) result.gone_bytes += bytes;
  }
  return result;
}

std::vector<ConfigChange> compare_configs(const oci::Image& before, const oci::Image& after) {
  const ConfigFields old(before), now(after);
  std::set<std::string> names;
  for (const auto& [name, value] : old.fields()) names.insert(name);
  for (const auto& [name, value] : now.fields()) names.insert(name);
  std::vector<ConfigChange> changes;
  for (const auto& name : names) {
    const auto was = old.fields().find(name);
    const auto is = now.fields().find(name);
    const bool both = was != old.fields().end() && is != now.fields().end();
    if (both && was->second == is->second) continue;
    changes.push_back({.field = name,
                       .before = was == old.fields().end() ? "" : was->second,
                       .after = is == now.fields().end() ? "" : is->second});
  }
  return changes;
}

std::vector<CudaLibrary> compare_cuda(const index::FlatTree& before, const index::FlatTree& after) {
  auto old = cuda_libraries(before);
  auto now = cuda_libraries(after);
  std::set<std::string> names;
  for (const auto& [name, library] : old) names.insert(name);
  for (const auto& [name, library] : now) names.insert(name);
  std::vector<CudaLibrary> changed;
  for (const auto& name : names) {
    const auto& was = old[name];
    const auto& is = now[name];
    if (was.versions == is.versions && was.contents == is.contents) continue;
    changed.push_back({.name = name,
                       .before = {was.versions.begin(), was.versions.end()},
                       .after = {is.versions.begin(), is.versions.end()},
                       .content_changed = was.contents != is.contents});
  }
  return changed;
}

bool Comparison::identical() const {
  const bool only_times =
      files.counts.empty() || (files.counts.size() == 1 && files.counts.contains(FileChange::kTime));
  return packages.changed.empty() && only_times && config.empty();
}

Comparison compare_images(const Side& before, const Side& after) {
  Comparison comparison;
  comparison.files = compare_files(before.tree, after.tree);
  comparison.packages = compare_packages(before, after, comparison.files);
  comparison.layers = compare_layers(before.image, after.image);
  comparison.config = compare_configs(before.image, after.image);
  comparison.python = {.before = versions_of(before.inventory), .after = versions_of(after.inventory)};
  comparison.cuda = compare_cuda(before.tree, after.tree);
  return comparison;
}

}  // namespace varve::compare
