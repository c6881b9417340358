#include "analyzer/notebooks/local_modules.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "core/base/text/image_path.h"

namespace varve::notebooks {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxKnown = 100'000;  // answers that are remembered; then all are forgotten
constexpr std::size_t kMaxArchiveNames = 1'000'000;
constexpr std::size_t kMaxEntriesLookedAt = 10'000;  // of a folder, in search of one .py

// A name that may be put behind a folder: what is imported by a text that is put together at run time can be anything.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() < 256 && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

bool is_file(const fs::path& path) {
  std::error_code absent;
  return fs::is_regular_file(path, absent);
}

bool holds_python(const fs::path& folder) {
  std::error_code error;
  std::size_t looked_at = 0;
  for (fs::directory_iterator entries(folder, error);
       !error && entries != fs::directory_iterator() && looked_at < kMaxEntriesLookedAt;
       entries.increment(error), ++looked_at)
    if (entries->path().extension() == ".py") return true;
  return false;
}

bool is_repository(const fs::path& folder) {
  static constexpr std::array<const char*, 4> kMarks = {".git", "pyproject.toml", "setup.py", "setup.cfg"};
  std::error_code absent;
  return std::any_of(kMarks.begin(), kMarks.end(), [&](const char* mark) { return fs::exists(folder / mark, absent); });
}

// The name of the file that a cell is written into; "" if it is not.
std::string_view written_file(std::string_view text) {
  const auto skip_blanks = [&] { text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size())); };
  for (skip_blanks(); text.starts_with('#'); skip_blanks())
    text.remove_prefix(std::min(text.find('\n'), text.size()));  // Colab's forms
  auto line = text.substr(0, text.find_first_of("\r\n"));
  const auto next_word = [&] {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    const auto word = line.substr(0, line.find_first_of(" \t"));
    line.remove_prefix(word.size());
    return word;
  };
  const auto magic = next_word();
  if (magic != "%%writefile" && magic != "%%file") return {};
  auto word = next_word();
  if (word == "-a" || word == "--append") word = next_word();
  if (word.size() >= 2 && (word.front() == '"' || word.front() == '\'') && word.back() == word.front())
    word = word.substr(1, word.size() - 2);
  return word;
}

}  // namespace

Local LocalModules::in_folder(const fs::path& folder, std::string_view name) {
  if (known_.size() > kMaxKnown) known_.clear();
  auto key = join_path(folder.native(), name);
  const auto [known, is_new] = known_.try_emplace(std::move(key), Local::kNo);
  if (!is_new) return known->second;
  const auto path = folder / name;
  if (is_file(path.native() + ".py") || is_file(path / "__init__.py")) {
    known->second = Local::kYes;
  } else if (holds_python(path)) {
    known->second = Local::kPerhaps;
  }
  return known->second;
}

const fs::path& LocalModules::repository_of(const fs::path& folder, const fs::path& root) {
  if (folder == repository_folder_ && !repository_.empty()) return repository_;
  repository_folder_ = folder;
  repository_ = root.empty() ? fs::path(".") : root;
  for (auto at = folder; at != root && !at.empty() && at.has_relative_path(); at = at.parent_path()) {
    if (!is_repository(at)) continue;
    repository_ = at;
    break;
  }
  return repository_;
}

Local LocalModules::find(const fs::path& folder, const fs::path& root, std::string_view name) {
  if (!is_plain_name(name)) return Local::kNo;
  const auto beside = in_folder(folder, name);
  if (beside != Local::kNo) return beside;
  const auto& repository = repository_of(folder, root);
  return repository != folder && in_folder(repository, name) != Local::kNo ? Local::kPerhaps : Local::kNo;
}

void ArchiveModules::add(std::string_view entry_name) {
  if (!entry_name.ends_with(".py") || sure_.size() + perhaps_.size() >= kMaxArchiveNames) return;
  if (entry_name.starts_with("./")) entry_name.remove_prefix(2);
  entry_name.remove_suffix(3);
  const auto slash = entry_name.rfind('/');
  if (slash == std::string_view::npos) {
    sure_.emplace(entry_name);
    return;
  }
  const auto folder = entry_name.substr(0, slash);
  if (entry_name.substr(slash + 1) == "__init__") {
    sure_.emplace(folder);
  } else {
    sure_.emplace(entry_name);
    perhaps_.emplace(folder);
  }
}

Local ArchiveModules::in_folder(std::string_view folder, std::string_view name) const {
  const auto path = join_path(folder, name);
  if (sure_.contains(path)) return Local::kYes;
  return perhaps_.contains(path) ? Local::kPerhaps : Local::kNo;
}

Local ArchiveModules::find(std::string_view folder, std::string_view name) const {
  if (!is_plain_name(name)) return Local::kNo;
  if (folder.starts_with("./")) folder.remove_prefix(2);
  if (folder == ".") folder = {};
  const auto beside = in_folder(folder, name);
  if (beside != Local::kNo) return beside;
  // A packed repository is one folder, or the archive's own root.
  const auto top = folder.substr(0, folder.find('/'));
  const bool above =
      (top != folder && in_folder(top, name) != Local::kNo) || (!folder.empty() && in_folder("", name) != Local::kNo);
  return above ? Local::kPerhaps : Local::kNo;
}

void add_written_modules(std::string_view cell_text, std::vector<std::pair<std::string, Local>>& names) {
  auto path = written_file(cell_text);
  if (!path.ends_with(".py") || path.starts_with('/') || path.starts_with('~')) return;
  path.remove_suffix(3);
  while (path.starts_with("./")) path.remove_prefix(2);
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) {
    names.emplace_back(path, Local::kYes);
    return;
  }
  names.emplace_back(path.substr(0, path.find('/')), Local::kYes);
  names.emplace_back(path.substr(slash + 1), Local::kPerhaps);
}

}  // namespace varve::notebooks
