// For test_elf.py and test_cuda.py: what analyzer/elf and analyzer/cuda say of a plain folder. Results are JSON on
// standard output.
//   elf_probe ldd ROOT - [TOP...]                 LD_LIBRARY_PATH, tab, path on standard input, one pair a line ->
//   {line: {needed: real path or null}}, loaded as ld.so would elf_probe unresolved ROOT LIBRARY_PATH [TOP...]
//   elf_probe manifest ROOT CONFIG.json [TOP...]  the CUDA manifest
//   elf_probe compare BEFORE.json AFTER.json       of two manifests: what differs, one a line
//   elf_probe measure ROOT CONFIG.json [TOP...]   files, bytes and times of all of it, as JSON
// TOP: folders of ROOT to look at, without all others.
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <set>

#include <nlohmann/json.hpp>

#include "analyzer/cuda/manifest.h"
#include "analyzer/elf/unresolved.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"

namespace varve {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Which files are read to their end; of the others there are no facts.
using IsRead = std::function<bool(const std::string& path, std::uint64_t bytes)>;

class FolderReader {
 public:
  FolderReader(fs::path root, bool digests, IsRead is_read)
      : root_(std::move(root)), digests_(digests), is_read_(std::move(is_read)) {
    tree.has_elf_facts = true;
  }

  void read(const std::vector<std::string>& tops) {
    add("");
    for (const auto& top : tops.empty() ? names_of(root_) : tops) {
      for (auto slash = top.find('/'); slash != std::string::npos; slash = top.find('/', slash + 1))
        add(top.substr(0, slash));
      walk(top);
    }
    for (auto& [inode, names] : inodes_) {
      std::ranges::sort(names);
      for (std::size_t i = 1; i < names.size(); ++i) tree.entries.at(names[i]).link_of = names.front();
    }
  }
  index::FlatTree tree;

 private:
  static std::vector<std::string> names_of(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) names.push_back(entry.path().filename());
    return names;
  }
  void walk(const std::string& path) {
    if (!add(path)) return;
    for (const auto& name : names_of(root_ / path)) walk(path + "/" + name);
  }
  bool add(const std::string& path) {
    const auto full = path.empty() ? root_ : root_ / path;
    struct stat status {};
    if (::lstat(full.c_str(), &status) != 0) return false;
    auto& entry = tree.entries[path];
    entry.mode = status.st_mode & 07777;
    entry.uid = status.st_uid;
    entry.gid = status.st_gid;
    if (S_ISDIR(status.st_mode)) {
      entry.type = FileType::kDirectory;
      return true;
    }
    if (S_ISLNK(status.st_mode)) {
      entry.type = FileType::kSymlink;
      entry.symlink_target = fs::read_symlink(full);
      return false;
    }
    if (!S_ISREG(status.st_mode)) {
      entry.type = FileType::kFifo;
      return false;
    }
    entry.type = FileType::kRegular;
    entry.size = status.st_size;
    char names[4096];
    const auto bytes = ::listxattr(full.c_str(), names, sizeof names);
    for (const char* name = names; bytes > 0 && name < names + bytes; name += std::strlen(name) + 1) {
      char value[4096];
      const auto length = ::getxattr(full.c_str(), name, value, sizeof value);
      if (length >= 0) entry.xattrs[name] = std::string(value, length);
    }
    if (status.st_nlink > 1) inodes_[{status.st_dev, status.st_ino}].push_back(path);
    if (status.st_size == 0 || !is_read_(path, entry.size)) return false;
    std::ifstream file(full, std::ios::binary);
    std::string piece(1 << 20, '\0');
    index::ElfFactsReader reader;
    reader.begin(entry.size);
    Sha256 sum;
    while (file) {
      file.read(piece.data(), std::streamsize(piece.size()));
      const auto got = as_bytes(std::string_view(piece).substr(0, file.gcount()));
      reader.feed(got);
      if (digests_) sum.update(got);
    }
    entry.elf = reader.finish();
    entry.content_digest = sum.finish();
    return false;
  }

  fs::path root_;
  bool digests_;
  IsRead is_read_;
  std::map<std::pair<dev_t, ino_t>, std::vector<std::string>> inodes_;
};

// One process: what is loaded is found again by the name it was asked for and by its soname.
json load(const index::FlatTree& tree, const elf::Loader& loader, const std::string& start) {
  struct Loaded {
    std::string path;
    std::vector<std::string> chain;  // who loaded it, nearest first
  };
  json result = json::object();
  std::map<std::string, std::string> by_name;
  std::set<std::string> loaded;
  std::deque<Loaded> queue = {{start, {}}};
  const auto real_start = loader.real_path(start);
  loaded.insert(real_start);
  if (const auto entry = tree.entries.find(real_start);
      entry != tree.entries.end() && entry->second.elf && !entry->second.elf->soname.empty())
    by_name[entry->second.elf->soname] = real_start;
  while (!queue.empty()) {
    const auto one = std::move(queue.front());
    queue.pop_front();
    for (const auto& need : loader.resolve(one.path, one.chain)) {
      if (by_name.contains(need.needed)) continue;
      if (need.matches.empty() || need.sibling) {
        result[need.needed] = nullptr;
        continue;
      }
      const auto& match = need.matches.front();
      result[need.needed] = "/" + match;
      by_name[need.needed] = match;
      if (!loaded.insert(match).second) continue;
      if (const auto& soname = tree.entries.find(match)->second.elf->soname; !soname.empty())
        by_name.emplace(soname, match);
      auto chain = one.chain;
      chain.insert(chain.begin(), one.path);
      queue.push_back({match, std::move(chain)});
    }
  }
  return result;
}

// Processor time of this machine, which others use too: for docs/design/cuda.md, asserted nowhere.
json measure(const index::FlatTree& tree, const std::string& cache, const Bytes& config) {
  json result;
  auto last = std::clock();
  const auto lap = [&](const char* name) {
    const auto now = std::clock();
    result["cpu_seconds"][name] = double(now - last) / CLOCKS_PER_SEC;
    last = now;
  };
  const elf::Loader loader(tree, {.library_path = cuda::library_path_of(config), .cache = cache});
  lap("loader");
  const auto selection = cuda::select_cuda(tree, loader, cuda::built_in_rules());
  lap("select_cuda");
  const auto manifest = cuda::make_manifest(tree, selection, cuda::built_in_rules(), config, Digest());
  const auto text = cuda::to_json(manifest);
  lap("manifest");
  const auto lines = cuda::compare(manifest, cuda::parse_manifest(text, "manifest"));
  lap("parse and compare");
  const auto lost = elf::unresolved(loader);
  lap("unresolved");
  std::size_t elf_files = 0, needs = 0;
  for (const auto& [path, entry] : tree.entries) {
    if (entry.elf == nullptr || !entry.link_of.empty()) continue;
    ++elf_files;
    for (const auto& need : loader.resolve(path)) needs += need.matches.size();
  }
  lap("resolve all");
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> rules;
  std::set<std::string> kinds;
  std::uint64_t bytes = 0;
  for (const auto& file : manifest.files) {
    bytes += file.size;
    auto& one = rules[file.rule.substr(0, file.rule.starts_with("R4") ? file.rule.find(' ', 3) : 2)];
    ++one.first;
    one.second += file.size;
  }
  result["entries"] = tree.entries.size();
  result["elf_files"] = elf_files;
  result["matches"] = needs;
  result["files"] = manifest.files.size();
  result["bytes"] = bytes;
  for (const auto& [rule, amount] : rules) result["rules"][rule] = {amount.first, amount.second};
  result["manifest_bytes"] = text.size();
  result["missing"] = manifest.missing;
  result["manifest_unresolved"] = manifest.unresolved;
  result["unresolved"] = lost.size();
  result["differences"] = lines.size();
  return result;
}

int probe(const std::vector<std::string>& arguments) {
  const auto& command = arguments.at(0);
  if (command == "compare") {
    const auto read = [](const std::string& path) { return cuda::parse_manifest(as_text(read_file(path)), path); };
    for (const auto& line : cuda::compare(read(arguments.at(1)), read(arguments.at(2)))) std::cout << line << '\n';
    return 0;
  }
  std::vector<std::string> lines;
  IsRead is_read = [](const std::string&, std::uint64_t) { return true; };
  if (command == "ldd") {
    // A whole machine: what could be loaded, without the largest of CUDA, which nothing outside of it needs.
    constexpr std::uint64_t kMostBytes = 130'000'000;
    std::set<std::string> subjects;
    for (std::string line; std::getline(std::cin, line); lines.push_back(line))
      subjects.insert(line.substr(line.find('\t') + 2));
    is_read = [subjects](const std::string& path, std::uint64_t bytes) {
      const bool is_library = path.find(".so", path.rfind('/') + 1) != path.npos;
      return (is_library && bytes <= kMostBytes) || subjects.contains(path);
    };
  }
  FolderReader folder(arguments.at(1), command == "manifest", is_read);
  folder.read({arguments.begin() + 3, arguments.end()});
  const auto cache = read_file_if_there(fs::path(arguments[1]) / "etc/ld.so.cache").value_or(Bytes());
  if (command == "measure") {
    std::cout << measure(folder.tree, std::string(as_text(cache)), read_file(arguments.at(2))).dump(1) << '\n';
    return 0;
  }
  if (command == "manifest") {
    const auto config = read_file(arguments.at(2));
    std::cout << cuda::to_json(
        cuda::make_manifest(folder.tree, as_text(cache), cuda::built_in_rules(), config, digest_of(config)));
    return 0;
  }
  json document = json::object();
  const auto loader_with = [&](const std::string& library_path) {
    return elf::Loader(folder.tree, {.library_path = library_path, .cache = std::string(as_text(cache))});
  };
  if (command == "ldd") {
    std::map<std::string, elf::Loader> loaders;
    for (const auto& line : lines) {
      const auto library_path = line.substr(0, line.find('\t'));
      auto loader = loaders.find(library_path);
      if (loader == loaders.end()) loader = loaders.emplace(library_path, loader_with(library_path)).first;
      document[line] = load(folder.tree, loader->second, line.substr(library_path.size() + 2));
    }
  } else if (command == "unresolved") {
    for (const auto& one : elf::unresolved(loader_with(arguments.at(2))))
      document["/" + one.path].push_back(one.needed);
  } else {
    throw UsageError("no such command: " + command);
  }
  std::cout << document.dump() << '\n';
  return 0;
}

}  // namespace
}  // namespace varve

int main(int argc, char** argv) try {
  return varve::probe({argv + 1, argv + argc});
} catch (const std::exception& error) {
  std::cerr << "error: " << error.what() << '\n';
  return 1;
}
