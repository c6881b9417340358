#include <algorithm>
#include <functional>
#include <utility>

#include "analyzer/packages/internal/record.h"
#include "analyzer/packages/record_files.h"
#include "analyzer/python/name.h"
#include "core/base/bytes.h"
#include "core/base/errors.h"
#include "core/base/text/image_path.h"

namespace varve::packages::internal {
namespace {

constexpr std::uint64_t kMaxMetadataBytes = 64u << 20;   // a RECORD of 10^5 files has 15 MB
constexpr std::uint64_t kMaxPathFileBytes = 256 * 1024;  // .pth: a checkpoint of a model may be named so too
constexpr std::size_t kMaxRecords = 1'000'000;

// "3.11.2" of the line `#define PY_VERSION "3.11.2"`.
std::string python_version_of(std::string_view patch_level_h) {
  const auto define = patch_level_h.find("PY_VERSION ");
  if (define == std::string_view::npos) return "";
  const auto begin = patch_level_h.find('"', define);
  const auto end = begin == std::string_view::npos ? begin : patch_level_h.find('"', begin + 1);
  return end == std::string_view::npos ? "" : std::string(patch_level_h.substr(begin + 1, end - begin - 1));
}

bool ends_with_any(std::string_view text, std::initializer_list<std::string_view> ends) {
  return std::ranges::any_of(ends, [&](std::string_view end) { return text.ends_with(end); });
}

class RecordReader {
 public:
  RecordReader(const index::FileSource& source, const FileTable& table) : source_(source), table_(table) {}

  Records read() {
    find_records();
    std::vector<std::string> wanted;
    for (const auto& [path, read] : readers_) wanted.push_back(path);
    source_.read(wanted, kMaxMetadataBytes,
                 [&](const std::string& path, std::optional<Bytes> content) { take(path, std::move(content)); });
    resolve_dpkg();
    for (auto& record : out_.records) resolve(record);
    std::ranges::sort(out_.problems);
    if (problems_left_out_ > 0)
      out_.problems.push_back(fmt::format("{} more problems are not listed", problems_left_out_));
    return std::move(out_);
  }

 private:
  using Read = std::function<void(std::string_view text)>;

  void problem(std::string text) {
    if (out_.problems.size() < kMaxProblems) {
      out_.problems.push_back(std::move(text));
    } else {
      ++problems_left_out_;
    }
  }

  void want(const std::string& path, Read read) { readers_.emplace(path, std::move(read)); }

  void take(const std::string& path, std::optional<Bytes> content) {
    if (!content) return problem(fmt::format("{:.300}: not read: too large, or no file", path));
    try {
      readers_.at(path)(as_text(*content));
    } catch (const CorruptData& error) {
      problem(error.what());
    } catch (const Unsupported& error) {
      problem(error.what());
    }
  }

  void find_records() {
    for (FileId id = 0; id < table_.size(); ++id) {
      const auto path = table_.path(id);
      const auto name = name_of(path);
      if (out_.records.size() > kMaxRecords) fail<Unsupported>("more than {} records of distributions", kMaxRecords);
      if (table_.is_folder(id)) {
        if (path.find(".dist-info/") != std::string_view::npos)
          continue;  // licences of what it vendors are sorted under such names
        if (name.ends_with(".dist-info")) {
          add_folder(path, RecordKind::kDistInfo);
        } else if (name.ends_with(".egg-info")) {
          add_folder(path, RecordKind::kEggInfoFolder);
        } else if (name == "EGG-INFO" && parent_of(path).ends_with(".egg")) {
          add_folder(path, RecordKind::kEgg);
        }
      } else if (table_.file(id).type == FileType::kRegular) {
        add_file(id, std::string(path), name);
      }
    }
  }

  void add_file(FileId id, const std::string& path, std::string_view name) {
    const auto folder = parent_of(path);
    if (name.ends_with(".egg") && is_site_folder_name(folder))
      problem(fmt::format("{:.300}: a zipped egg is not looked into", path));
    if (name.ends_with(".pth") && !is_site_folder_name(folder) && !holds_records(folder)) return;
    auto kind = record_file(path);
    if (!kind && name.ends_with(".pth")) kind = RecordFile::kPathFile;
    if (!kind) return;
    switch (*kind) {
      case RecordFile::kSingleEggInfo:
        return add_single_egg_info(id, path);
      case RecordFile::kConda:
        return add_conda(path);
      case RecordFile::kDpkgStatus:
        return want(path, [this, path](std::string_view text) { read_dpkg(path, text, python::DpkgFile::kStatus); });
      case RecordFile::kDpkgStatusD:
        return want(path, [this, path](std::string_view text) { read_dpkg(path, text, python::DpkgFile::kStatusD); });
      case RecordFile::kDpkgMd5Sums:
        return want(path, [this, path](std::string_view text) { read_md5sums(path, text); });
      case RecordFile::kDpkgList:
        return want(path, [this, path](std::string_view text) { read_list(path, text); });
      case RecordFile::kDpkgDiversions:
        return want(path, [this](std::string_view text) { read_diversions(text); });
      case RecordFile::kPathFile:
        if (table_.file(id).size > kMaxPathFileBytes) return;
        return want(path,
                    [this, path](std::string_view text) { out_.path_files[path] = python::parse_path_file(text); });
      case RecordFile::kEggLink:
        return want(path, [this, path](std::string_view text) {
          if (const auto link = python::parse_egg_link(text)) out_.egg_links[path] = link->folder;
        });
      case RecordFile::kFinder:
        return want(path, [this, path](std::string_view text) {
          if (auto finder = python::parse_editable_finder(text, path)) out_.finders[path] = std::move(*finder);
        });
      case RecordFile::kVenv:
        return want(path, [this, prefix = std::string(folder)](std::string_view text) {
          out_.venvs[prefix] = python::parse_pyvenv_cfg(text);
        });
      case RecordFile::kPatchLevel:
        return want(path, [this, path](std::string_view text) { out_.patch_levels[path] = python_version_of(text); });
      default:
        return;  // of record folders, which add their own
    }
  }

  // A folder beside which a .pth may count though it is not named as site folders are.
  bool holds_records(std::string_view folder) {
    const auto known = holds_records_.find(std::string(folder));
    if (known != holds_records_.end()) return known->second;
    bool holds = false;
    table_.children(folder, [&](FileId, std::string_view name) {
      holds = holds || name.ends_with(".dist-info") || name.ends_with(".egg-link");
    });
    return holds_records_[std::string(folder)] = holds;
  }

  Record& add_record(RecordKind kind, std::string_view path, std::string_view site) {
    auto& record = out_.records.emplace_back();
    record.kind = kind;
    record.path = path;
    record.site = site;
    if (const auto named = python::parse_record_name(name_of(kind == RecordKind::kEgg ? site : path))) {
      record.name = named->name;
      record.version = named->version;
      record.python = named->python;
    }
    return record;
  }

  void add_folder(std::string_view path, RecordKind kind) {
    // pip renames what it is about to replace; if it is stopped then, this stays. Python does not count it either.
    if (name_of(path).starts_with('~'))
      return problem(fmt::format("{:.300}: left behind by an installation that was stopped", path));
    const auto number = out_.records.size();
    auto& record = add_record(kind, path, parent_of(path));
    table_.children(path, [&](FileId id, std::string_view name) {
      if (table_.file(id).type != FileType::kRegular) return;
      if (name == "REQUESTED") record.requested = true;
      if (const auto what = record_file(table_.path(id)))
        want_of_folder(number, *what, std::string(table_.path(id)), table_.file(id).layer);
    });
    if (kind == RecordKind::kEgg) {
      claim_below(record, record.site);
      record.has_list = true;
    } else {
      claim_below(record, path);
    }
  }

  void claim_below(Record& record, std::string_view folder) const {
    const auto [first, end] = table_.below(folder);
    for (auto id = first; id < end; ++id) {
      if (table_.is_content(id)) record.claims.push_back(id);
    }
  }

  // `number`: records move while others are added.
  void want_of_folder(std::size_t number, RecordFile what, const std::string& path, std::uint32_t layer) {
    const auto record = [this, number]() -> Record& { return out_.records[number]; };
    switch (what) {
      case RecordFile::kMetadata:
        out_.records[number].layer = layer;
        return want(path, [record](std::string_view text) { read_metadata(record(), text); });
      case RecordFile::kRecord:
        return want(path, [this, record, path](std::string_view text) { read_record(record(), path, text); });
      case RecordFile::kInstalledFiles:
        return want(path, [this, record](std::string_view text) { read_installed_files(record(), text); });
      case RecordFile::kSources:
        return want(path, [record](std::string_view text) {
          // Lists the project's sources: good for names only.
          python::read_path_list(text, [&](std::string_view file) { note_names(record(), file); });
        });
      case RecordFile::kTopLevel:
        return want(path,
                    [record](std::string_view text) { record().declared_top_level = python::parse_top_level(text); });
      case RecordFile::kNamespaces:
        return want(path, [record](std::string_view text) { record().namespaces = python::parse_top_level(text); });
      case RecordFile::kRequires:
        return want(path, [record](std::string_view text) {
          auto needs = python::parse_requires_txt(text);
          record().requires_text = std::move(needs.requirements);
          record().extras.insert(record().extras.end(), needs.extras.begin(), needs.extras.end());
          record().unreadable_requires.insert(record().unreadable_requires.end(), needs.unreadable.begin(),
                                              needs.unreadable.end());
        });
      case RecordFile::kEntryPoints:
        return want(path, [this, record, path](std::string_view text) {
          record().entry_points = python::parse_entry_points(text);
          if (!record().entry_points.unreadable.empty())
            problem(
                fmt::format("{:.300}: {} lines are no entry points", path, record().entry_points.unreadable.size()));
        });
      case RecordFile::kInstaller:
        return want(path, [record](std::string_view text) { record().installer = python::parse_installer(text); });
      case RecordFile::kDirectUrl:
        return want(path, [record, path](std::string_view text) {
          record().direct_url = python::parse_direct_url(text, path);
        });
      default:
        return;
    }
  }

  void add_single_egg_info(FileId id, const std::string& path) {
    const auto number = out_.records.size();
    auto& record = add_record(RecordKind::kEggInfoFile, path, parent_of(path));
    record.layer = table_.file(id).layer;
    record.claims.push_back(id);
    want(path, [this, number](std::string_view text) { read_metadata(out_.records[number], text); });
  }

  static void read_metadata(Record& record, std::string_view text) {
    auto metadata = python::parse_core_metadata(text);
    if (!metadata.name.empty()) record.name = metadata.name;
    if (!metadata.version.empty()) record.version = metadata.version;
    record.readable = !metadata.name.empty();
    record.extras.insert(record.extras.end(), metadata.provides_extras.begin(), metadata.provides_extras.end());
    record.unreadable_requires.insert(record.unreadable_requires.end(), metadata.unreadable_requires.begin(),
                                      metadata.unreadable_requires.end());
    record.metadata = std::move(metadata);
  }

  // What importlib.metadata makes of a listed path, relative to the site folder.
  static void note_names(Record& record, std::string_view path) {
    const auto first = path.substr(0, path.find('/'));
    const bool nested = first.size() != path.size();
    const auto stem = first.substr(0, first.rfind('.'));
    if (path.ends_with(".py")) record.sources_311.insert(std::string(nested ? first : stem));
    if (nested) {
      record.sources_312.insert(std::string(first));
    } else if (const auto module = python::module_of_file(first)) {
      record.sources_312.insert(module->dotted);
    } else {
      record.sources_312.insert(std::string(first));
    }
  }

  void claim_listed(Record& record, std::string_view listed, const std::string& path,
                    std::optional<std::uint64_t> size) {
    const auto id = table_.resolve(path, false);
    if (!id) {
      // Bytecode is made, and thrown away, by whoever pleases.
      if (!listed.ends_with(".pyc")) ++record.missing;
      return;
    }
    if (!table_.is_content(*id)) return;
    const auto& file = table_.file(*id);
    if (size && file.type == FileType::kRegular && file.size != *size) ++record.changed;
    record.claims.push_back(*id);
    if (parent_of(path) != record.site) return;
    const auto name = name_of(path);
    if (name.ends_with(".pth")) record.path_files.insert(path);
    if (name.ends_with(".py") && python::is_editable_finder_name(name.substr(0, name.size() - 3)))
      record.finder_modules.insert(path);
  }

  void read_record(Record& record, const std::string& path, std::string_view text) {
    record.has_list = true;
    std::uint64_t outside = 0;
    const auto tally = python::read_record(text, [&](const python::RecordEntry& entry) {
      const auto file = python::resolve_path(record.site, entry.path);
      if (!file) {
        ++outside;
        return;
      }
      // importlib.metadata 3.12 looks whether the file is there.
      if (table_.resolve(*file, true))
        note_names(record, entry.path);
      else if (entry.path.ends_with(".py"))
        note_missing_source(record, entry.path);
      claim_listed(record, entry.path, *file, entry.size);
    });
    if (tally.unreadable > 0)
      problem(
          fmt::format("{:.300}: {} rows cannot be read, first row {}", path, tally.unreadable, tally.first_unreadable));
    if (outside > 0) problem(fmt::format("{:.300}: {} rows lead out of the image", path, outside));
  }

  // importlib.metadata 3.11 does not look.
  static void note_missing_source(Record& record, std::string_view path) {
    const auto first = path.substr(0, path.find('/'));
    record.sources_311.insert(std::string(first.size() != path.size() ? first : first.substr(0, first.rfind('.'))));
  }

  void read_installed_files(Record& record, std::string_view text) {
    record.has_list = true;
    python::read_path_list(text, [&](std::string_view entry) {
      const auto file = python::resolve_path(record.path, entry);
      if (!file) return;
      const auto prefix = record.site.empty() ? 0 : record.site.size() + 1;
      if (file->size() > prefix && file->starts_with(record.site) && table_.resolve(*file, true))
        note_names(record, file->substr(prefix));
      claim_listed(record, entry, *file, std::nullopt);
    });
  }

  void add_conda(const std::string& path) {
    want(path, [this, path](std::string_view text) {
      const auto conda = python::parse_conda_record(text, path);
      auto& record = out_.records.emplace_back();
      record.kind = RecordKind::kConda;
      record.path = path;
      record.site = parent_of(parent_of(path));
      record.name = conda.name;
      record.version = conda.version;
      record.installer = "conda";
      record.requested = !conda.requested_spec.empty();
      record.depends = conda.depends;
      record.readable = record.has_list = true;
      if (const auto id = table_.find(path)) {
        record.layer = table_.file(*id).layer;
        record.claims.push_back(*id);
      }
      for (const auto& file : conda.files) {
        if (const auto real = python::resolve_path(record.site, file.path))
          claim_listed(record, file.path, *real, file.size);
      }
    });
  }

  void read_dpkg(const std::string& path, std::string_view text, python::DpkgFile kind) {
    const auto id = table_.find(path);
    const auto tally = python::read_dpkg_status(text, kind, [&](const python::DpkgPackage& package) {
      if (!package.installed) return;
      auto& record = out_.records.emplace_back();
      record.kind = RecordKind::kDpkg;
      record.path = path;
      record.name = package.name;
      record.version = package.version;
      record.installer = "dpkg";
      record.dpkg_depends = package.depends;
      for (const auto& provided : package.provides) record.provides.push_back(provided.name);
      record.readable = true;
      if (id) record.layer = table_.file(*id).layer;
      if (kind == python::DpkgFile::kStatusD) {
        if (id) record.claims.push_back(*id);
        status_d_[std::string(name_of(path))] = out_.records.size() - 1;
      } else {
        dpkg_[package.name].emplace_back(package.architecture, out_.records.size() - 1);
      }
    });
    if (tally.unreadable > 0)
      problem(fmt::format("{:.300}: {} packages cannot be read, first at line {}", path, tally.unreadable,
                          tally.first_unreadable));
  }

  void read_list(const std::string& path, std::string_view text) {
    const auto name = python::parse_dpkg_info_name(name_of(path));
    if (!name) return problem(fmt::format("{:.300}: not named as dpkg names lists", path));
    auto& files = lists_[{name->package, name->architecture}];
    files.emplace_back();
    python::read_dpkg_list(text, [&](std::string_view file) { files.emplace_back(file); });
  }

  void read_md5sums(const std::string& path, std::string_view text) {
    auto name = name_of(path);
    name.remove_suffix(std::string_view(".md5sums").size());
    auto& files = md5sums_[std::string(name)];
    python::read_dpkg_md5sums(text, [&](std::string_view file, std::string_view) { files.emplace_back(file); });
  }

  // Three lines each: the name, where it went, and the package that took its place.
  void read_diversions(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
      const auto end = std::min(text.find('\n'), text.size());
      lines.push_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    for (std::size_t i = 0; i + 2 < lines.size(); i += 3) {
      if (lines[i].starts_with('/') && lines[i + 1].starts_with('/')) {
        diversions_[std::string(lines[i].substr(1))] = {std::string(lines[i + 1].substr(1)), std::string(lines[i + 2])};
      }
    }
  }

  // Lists and stanzas come in any order.
  void resolve_dpkg() {
    for (const auto& [name, files] : lists_) {
      const auto found = dpkg_.find(name.first);
      if (found == dpkg_.end()) continue;  // removed, its configuration left
      for (const auto& [architecture, number] : found->second) {
        if (name.second.empty() || architecture == name.second || found->second.size() == 1)
          claim_package(out_.records[number], files);
      }
    }
    for (const auto& [name, files] : md5sums_) {
      if (const auto found = status_d_.find(name); found != status_d_.end())
        claim_package(out_.records[found->second], files);
    }
  }

  void claim_package(Record& record, const std::vector<std::string>& files) {
    record.has_list = true;
    for (const auto& listed : files) {
      if (listed.empty()) continue;
      auto path = listed;
      if (const auto moved = diversions_.find(listed);
          moved != diversions_.end() && moved->second.second != record.name)
        path = moved->second.first;
      const auto id = table_.resolve(path, false);
      if (id && table_.is_content(*id)) {
        record.claims.push_back(*id);
      } else if (!id && !ends_with_any(path, {".gz", ".pyc"}) && path.find("usr/share/") != 0) {
        ++record.missing;  // documentation is left out by many images, on purpose
      }
    }
  }

  void resolve(Record& record) {
    std::ranges::sort(record.claims);
    record.claims.erase(std::unique(record.claims.begin(), record.claims.end()), record.claims.end());
    record.normalized = python::normalize_name(record.name);
    if (!record.readable) problem(fmt::format("{:.300}: no metadata that says a name", record.path));
  }

  const index::FileSource& source_;
  const FileTable& table_;
  Records out_;
  std::size_t problems_left_out_ = 0;
  std::map<std::string, Read> readers_;
  std::map<std::string, bool> holds_records_;
  std::map<std::string, std::vector<std::pair<std::string, std::size_t>>> dpkg_;  // name -> architecture, record
  std::map<std::string, std::size_t> status_d_;
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> lists_;
  std::map<std::string, std::vector<std::string>> md5sums_;
  std::map<std::string, std::pair<std::string, std::string>> diversions_;  // path -> where to, by whom
};

}  // namespace

Records read_records(const index::FileSource& source, const FileTable& table) {
  return RecordReader(source, table).read();
}

}  // namespace varve::packages::internal
