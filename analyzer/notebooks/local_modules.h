#pragma once
// Which names are modules of the notebook's own folder or repository, not of a distribution.
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace varve::notebooks {

// How sure it is that a top-level name lies beside the notebook.
enum class Local : std::uint8_t {
  kNo,
  kPerhaps,  // a folder without __init__.py, which an installed package would win over; or a module in the repository's
             // root, which need not be on sys.path
  kYes,      // NAME.py or NAME/__init__.py in the notebook's own folder, which comes first on sys.path
};

// Looks at the file system, and remembers. Not shared between threads.
class LocalModules {
 public:
  // `folder` holds the notebook; `root` is the given folder that it was found in.
  Local find(const std::filesystem::path& folder, const std::filesystem::path& root, std::string_view name);

 private:
  Local in_folder(const std::filesystem::path& folder, std::string_view name);
  const std::filesystem::path& repository_of(const std::filesystem::path& folder, const std::filesystem::path& root);
  std::unordered_map<std::string, Local> known_;
  std::filesystem::path repository_folder_, repository_;  // of the last folder asked for
};

// The same for the entries of an archive, of which only names are known.
class ArchiveModules {
 public:
  void add(std::string_view entry_name);
  Local find(std::string_view folder,
             std::string_view name) const;  // `folder` without a slash at its end; "" = the archive's root

 private:
  Local in_folder(std::string_view folder, std::string_view name) const;
  std::set<std::string, std::less<>> sure_, perhaps_;  // "folder/name"
};

// Names of modules that the code itself writes into its folder: `%%writefile utils.py` -> "utils", `%%writefile
// src/train.py` -> "src" (and "train" as a perhaps).
void add_written_modules(std::string_view cell_text, std::vector<std::pair<std::string, Local>>& names);

}  // namespace varve::notebooks
