#include "fuse/podman/storage_conf.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/toml.h"

namespace varve::fuse::podman {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfBytes = 1 << 20;
constexpr const char* kKey = "additionalimagestores";
constexpr const char* kMachineConf = "/etc/containers/storage.conf";
constexpr const char* kDefaultConf = "/usr/share/containers/storage.conf";

// Null if one of them is no table or not there.
const TomlValue* table_at(const TomlValue& root, std::initializer_list<std::string_view> names) {
  const auto* at = &root;
  for (const auto name : names) {
    at = at->find(name);
    if (at == nullptr || at->kind != TomlValue::Kind::kTable) return nullptr;
  }
  return at;
}

std::string quoted(const fs::path& path) {
  std::string text = "\"";
  for (const char c : path.string()) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      text += fmt::format("\\{}", c);
    else if (code < 0x20 || code == 0x7f)
      text += fmt::format("\\u{:04x}", code);
    else
      text += c;
  }
  return text + "\"";
}

// Where line `number`, from 1, begins.
std::size_t begin_of_line(std::string_view text, std::uint32_t number) {
  std::size_t at = 0;
  for (std::uint32_t line = 1; line < number && at < text.size(); ++line) {
    const auto end = text.find('\n', at);
    at = end == text.npos ? text.size() : end + 1;
  }
  return at;
}

// The text with `what` put in at a place, and that is all that has changed.
std::string with(std::string_view text, std::size_t at, std::string_view what) {
  std::string changed(text.substr(0, at));
  return changed.append(what).append(text.substr(at));
}

// Absent where the text gives no place that is sure.
std::optional<std::string> with_store(std::string_view text, const TomlValue& root, const fs::path& store) {
  const auto* options = table_at(root, {"storage", "options"});
  const auto* stores = options == nullptr ? nullptr : options->find(kKey);
  if (stores != nullptr) {
    const auto key = text.find(kKey, begin_of_line(text, stores->line));
    const auto bracket = key == text.npos ? key : text.find('[', key);
    if (bracket == text.npos) return std::nullopt;
    return with(text, bracket + 1, quoted(store) + (stores->array.empty() ? "" : ", "));
  }
  const auto line = image_store_line(store) + "\n";
  const std::string end_of_text = text.empty() || text.ends_with('\n') ? "" : "\n";
  // The table may be there by its own tables alone, and is opened then.
  const auto header = text.find("[storage.options]");
  if (header == text.npos) return std::string(text) + end_of_text + "\n[storage.options]\n" + line;
  const auto end = text.find('\n', header);
  if (end == text.npos) return std::string(text) + "\n" + line;
  return with(text, end + 1, line);
}

// Lines are where they were no longer.
void forget_lines(TomlValue& value) {
  value.line = 0;
  for (auto& one : value.array) forget_lines(one);
  for (auto& [name, one] : value.table) forget_lines(one);
}

// What the file must say afterwards, by the rules of the language alone.
TomlValue expected_with(TomlValue root, const fs::path& store) {
  auto& stores = root.table["storage"].table["options"].table[kKey];
  stores.kind = TomlValue::Kind::kArray;
  TomlValue entry;
  entry.kind = TomlValue::Kind::kString;
  entry.text = store.string();
  stores.array.insert(stores.array.begin(), entry);
  forget_lines(root);
  return root;
}

}  // namespace

bool StorageConf::names(const fs::path& store) const {
  return std::ranges::any_of(image_stores, [&](const fs::path& one) {
    std::error_code error;
    return one.lexically_normal() == store || fs::equivalent(one, store, error);
  });
}

StorageConf parse_storage_conf(std::string_view text, std::string_view what) {
  const auto root = parse_toml(text, what);
  StorageConf conf;
  const auto* storage = table_at(root, {"storage"});
  if (storage == nullptr) return conf;
  conf.driver = toml_string(*storage, "driver", what);
  if (const auto dir = toml_string(*storage, "graphroot", what); !dir.empty()) conf.graph_root = dir;
  if (const auto dir = toml_string(*storage, "runroot", what); !dir.empty()) conf.run_root = dir;
  if (const auto* options = table_at(*storage, {"options"}))
    for (auto& store : toml_strings(*options, kKey, what)) conf.image_stores.emplace_back(std::move(store));
  return conf;
}

std::string image_store_line(const fs::path& store) { return fmt::format("{} = [{}]", kKey, quoted(store)); }

std::string new_storage_conf(const fs::path& store) {
  const StorageConf standard;
  return fmt::format("[storage]\ndriver = \"overlay\"\ngraphroot = {}\nrunroot = {}\n\n[storage.options]\n{}\n",
                     quoted(standard.graph_root), quoted(standard.run_root), image_store_line(store));
}

std::string add_image_store(std::string_view text, std::string_view what, const fs::path& store) {
  const auto root = parse_toml(text, what);
  const auto refuse = [&]() {
    fail<Unsupported>("{}: it is written in a way that is not changed here; add {} to its [storage.options] by hand",
                      what, image_store_line(store));
  };
  auto changed = with_store(text, root, store);
  if (!changed) refuse();
  try {
    auto now = parse_toml(*changed, what);
    forget_lines(now);
    if (now != expected_with(root, store)) refuse();
  } catch (const CorruptData&) {
    refuse();
  }
  return std::move(*changed);
}

StorageConfFile find_storage_conf(const Variable& environment) {
  StorageConfFile found{.file = kMachineConf, .text_of = {}, .text = {}};
  if (const auto named = environment("CONTAINERS_STORAGE_CONF")) found.file = fs::absolute(*named);
  for (const auto& file : {found.file, fs::path(kDefaultConf)}) {
    const auto text = read_file_if_there(file, kMaxConfBytes);
    if (!text) {
      if (found.file != kMachineConf) break;
      continue;
    }
    found.text_of = file;
    found.text = as_text(*text);
    break;
  }
  return found;
}

}  // namespace varve::fuse::podman
