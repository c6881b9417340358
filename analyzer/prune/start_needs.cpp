// How it works: names tell which files are looked at. These are read in rounds: what one runs may be a script that is
// read in the next. Whatever a file imports, runs or names becomes a root, if a distribution has it.
#include "analyzer/prune/start_needs.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "analyzer/notebooks/findings.h"
#include "analyzer/packages/file_table.h"
#include "analyzer/packages/record_files.h"
#include "analyzer/python/install_record.h"
#include "analyzer/python/module_file.h"
#include "core/base/text/image_path.h"
#include "core/base/text/json_document.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"

namespace varve::prune {
namespace {

constexpr std::uint64_t kMaxStartFileBytes = 1 << 20;
constexpr std::size_t kMaxStartFiles = 5000;
constexpr std::size_t kMaxNameShown = 100;
constexpr std::string_view kUsualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

enum class StartFile : std::uint8_t { kNone, kStart, kKernel, kJsonConfig, kPythonConfig, kCode, kScript };

// Why a file is read, as its roots say it.
struct Cause {
  std::string kind;
  std::string by;    // a path or a command
  std::string verb;  // of Reason::text; what was named follows
};

// The file lies below a folder of this name.
bool has_part(std::string_view path, std::string_view part) {
  for (auto at = path.find(part); at != path.npos; at = path.find(part, at + 1)) {
    const auto end = at + part.size();
    if ((at == 0 || path[at - 1] == '/') && end < path.size() && path[end] == '/') return true;
  }
  return false;
}

// "lib/python3.11/" and not a site folder in it: comes with Python.
bool is_of_python_itself(std::string_view path) {
  const auto folder = path.find("lib/python");
  if (folder == path.npos || (folder > 0 && path[folder - 1] != '/')) return false;
  const auto slash = path.find('/', folder + std::string_view("lib/python").size());
  if (slash == path.npos) return false;
  const auto below = path.substr(slash + 1);
  return !packages::is_site_folder_name(below.substr(0, below.find('/')));
}

StartFile kind_of(std::string_view path) {
  const auto name = name_of(path);
  if (name.ends_with(".start") && packages::is_site_folder_name(parent_of(path))) return StartFile::kStart;
  if (name == "kernel.json") return has_part(path, "kernels") ? StartFile::kKernel : StartFile::kNone;
  const bool of_jupyter = has_part(path, "etc/jupyter") || has_part(path, ".jupyter");
  const bool of_ipython = has_part(path, "etc/ipython") || has_part(path, ".ipython");
  if (of_ipython && has_part(path, "startup"))
    return name.ends_with(".py") || name.ends_with(".ipy") ? StartFile::kCode : StartFile::kNone;
  if (of_jupyter || of_ipython) {
    if (name.ends_with(".json")) return StartFile::kJsonConfig;
    return name.ends_with(".py") ? StartFile::kPythonConfig : StartFile::kNone;
  }
  return StartFile::kNone;
}

// Python that nobody installed as a package and somebody may run.
bool is_loose_code(std::string_view path) {
  return path.ends_with(".py") && !is_of_python_itself(path) && !path.starts_with("usr/share/") &&
         !has_part(path, "tests") && !has_part(path, "test") && !has_part(path, "examples") &&
         !has_part(path, "pkgs");  // conda's unpacked packages
}

class StartReader {
 public:
  StartReader(const index::FileSource& files, const Nodes& nodes, const oci::ImageConfig& config)
      : files_(files), nodes_(nodes), inventory_(nodes.inventory()), table_(files), config_(config) {
    const auto found = files.facts().environment.find("PATH");
    const std::string path(found == files.facts().environment.end() ? kUsualPath : std::string_view(found->second));
    for (const auto folder : split_words(path, ":")) path_.emplace_back(without_leading_slashes(folder));
  }

  StartNeeds find() {
    read_path_files();
    for (const auto* words : {&config_.entrypoint, &config_.cmd}) {
      if (!words->empty()) run(*words, {.kind = "started", .by = words->front(), .verb = "the image's config starts"});
    }
    if (const auto code = files_.facts().environment.find("PYTHONSTARTUP"); code != files_.facts().environment.end())
      use_file(code->second, {.kind = "started", .by = "PYTHONSTARTUP", .verb = "each interactive Python runs"});
    collect_files();
    while (!waiting_.empty()) read_waiting();
    if (left_out_ > 0)
      needs_.unsure.push_back(
          fmt::format("{} files that belong to no package or start something were not read: {} are at most", left_out_,
                      kMaxStartFiles));
    return std::move(needs_);
  }

 private:
  struct Waiting {
    StartFile kind = StartFile::kNone;
    Cause cause;
  };

  void add_roots(const std::vector<std::uint32_t>& distributions, const Cause& cause, std::string_view what) {
    for (const auto node : nodes_.of_all(distributions)) {
      // Of files that nobody owns one is enough to say it.
      if (!added_.emplace(node, cause.kind, cause.kind == "unowned-file" ? "" : cause.by).second) continue;
      needs_.roots.push_back({.node = node,
                              .reason = {.kind = cause.kind,
                                         .by = cause.by,
                                         .text = fmt::format("{} {}", cause.verb, visible(what, kMaxNameShown))}});
    }
  }

  void add_module(std::string_view name, const Cause& cause) {
    add_roots(inventory_.modules.owners(name), cause, name);
  }

  void read_path_files() {
    std::set<std::string_view> sites;
    for (const auto& python : inventory_.interpreters) sites.insert(python.sites.begin(), python.sites.end());
    for (const auto& [path, file] : inventory_.path_files) {
      if (!sites.contains(parent_of(path))) continue;
      add_roots(inventory_.owners_of_path(path),
                {.kind = "path-file", .by = path, .verb = "each start of Python reads"}, "this file of it");
      for (const auto& module : file.modules)
        add_module(module, {.kind = "path-file", .by = path, .verb = "each start of Python imports"});
      for (const auto& folder : file.paths) {
        if (const auto real = python::resolve_path(std::string(parent_of(path)), folder))
          add_roots(inventory_.owners_of_path(*real + "/"),
                    {.kind = "path-file", .by = path, .verb = "each start of Python looks for modules in"}, folder);
      }
    }
  }

  void collect_files() {
    std::vector<std::string> loose;  // last, as there may be too many
    for (const auto& [path, entry] : files_.tree().entries) {
      if (entry.type != FileType::kRegular) continue;
      const auto kind = kind_of(path);
      if (kind == StartFile::kStart)
        add_roots(inventory_.owners_of_path(path),
                  {.kind = "path-file", .by = path, .verb = "each start of Python reads"}, "this file of it");
      if (kind != StartFile::kNone) {
        wait(path, {.kind = kind, .cause = cause_of(kind, path)});
      } else if (is_loose_code(path) && inventory_.owners_of_path(path).empty()) {
        loose.push_back(path);
      }
    }
    for (const auto& path : loose) wait(path, {.kind = StartFile::kCode, .cause = cause_of(StartFile::kNone, path)});
  }

  static Cause cause_of(StartFile kind, const std::string& path) {
    switch (kind) {
      case StartFile::kStart:
        return {.kind = "path-file", .by = path, .verb = "each start of Python calls"};
      case StartFile::kKernel:
        return {.kind = "kernel", .by = path, .verb = "this kernel is started with"};
      case StartFile::kJsonConfig:
      case StartFile::kPythonConfig:
        return {.kind = "configured", .by = path, .verb = "this configuration names"};
      case StartFile::kCode:
        return {.kind = "started", .by = path, .verb = "each IPython starts with this file, which imports"};
      default:
        return {.kind = "unowned-file", .by = path, .verb = "the file belongs to no package, so it stays, and imports"};
    }
  }

  void wait(const std::string& path, Waiting waiting) {
    if (!seen_.insert(path).second) return;
    if (seen_.size() > kMaxStartFiles) {
      ++left_out_;
      return;
    }
    waiting_.emplace(path, std::move(waiting));
  }

  void read_waiting() {
    const auto now = std::exchange(waiting_, {});
    std::vector<std::string> paths;
    for (const auto& [path, waiting] : now) paths.push_back(path);
    files_.read(paths, kMaxStartFileBytes, [&](const std::string& path, std::optional<Bytes> content) {
      const auto& waiting = now.at(path);
      if (content) return read(waiting, path, as_text(*content));
      // A program that is large is none that anybody wrote by hand.
      if (waiting.kind != StartFile::kScript) cannot_read(path, "it is too large");
    });
  }

  void cannot_read(const std::string& path, std::string_view why) {
    needs_.unsure.push_back(fmt::format("What {} starts is not known: {}", visible(path, 300), visible(why, 300)));
  }

  void read(const Waiting& waiting, const std::string& path, std::string_view text) {
    try {
      switch (waiting.kind) {
        case StartFile::kStart:
          return read_start_file(text, waiting.cause);
        case StartFile::kKernel:
          return run(JsonValue::parse(text, path)["argv"].texts(), waiting.cause);
        case StartFile::kJsonConfig:
          return read_config(JsonValue::parse(text, path).raw(), "", waiting.cause);
        case StartFile::kPythonConfig:
          return read_python_config(text, waiting.cause);
        case StartFile::kCode:
          return take(path.ends_with(".ipy") ? notebooks::read_python({{.text = text}}) : notebooks::read_module(text),
                      waiting.cause);
        case StartFile::kScript:
          return read_script(path, text, waiting.cause);
        case StartFile::kNone:
          return;
      }
    } catch (const CorruptData& error) {
      cannot_read(path, error.what());
    } catch (const Unsupported& error) {
      cannot_read(path, error.what());
    }
  }

  // "package.module:callable", one to a line.
  void read_start_file(std::string_view text, const Cause& cause) {
    for (const auto line : split_words(text, "\r\n")) {
      const auto module = line.substr(0, line.find(':'));
      if (python::is_dotted_name(module)) add_module(module, cause);
    }
  }

  // Extensions are switched on by their names; elsewhere a text with a dot may be a class or function.
  void read_config(const nlohmann::json& value, std::string_view key, const Cause& cause) {
    const bool of_extensions = key.ends_with("extensions");
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      if (python::is_dotted_name(text) && (of_extensions || text.find('.') != text.npos)) add_module(text, cause);
    } else if (value.is_array()) {
      for (const auto& item : value) read_config(item, key, cause);
    } else if (value.is_object()) {
      for (const auto& [name, member] : value.items()) {
        if (of_extensions && member.is_boolean() && member.get<bool>() && python::is_dotted_name(name))
          add_module(name, cause);
        read_config(member, name, cause);
      }
    }
  }

  // Traitlets' configuration in Python: names stand in texts. Generated files are one comment.
  void read_python_config(std::string_view text, const Cause& cause) {
    take(notebooks::read_module(text), cause);
    for (auto line : split_words(text, "\r\n")) {
      line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
      if (line.starts_with('#')) continue;
      const bool of_extensions = line.find("extensions") != line.npos;
      for (auto quote = line.find_first_of("'\""); quote != line.npos;) {
        const auto end = line.find(line[quote], quote + 1);
        if (end == line.npos) break;
        const auto name = line.substr(quote + 1, end - quote - 1);
        if (python::is_dotted_name(name) && (of_extensions || name.find('.') != name.npos)) add_module(name, cause);
        quote = line.find_first_of("'\"", end + 1);
      }
    }
  }

  void read_script(const std::string& path, std::string_view text, const Cause& cause) {
    const auto first = text.substr(0, text.find('\n'));
    const bool has_interpreter = first.starts_with("#!");
    if (has_interpreter ? first.find("python") != first.npos : path.ends_with(".py"))
      return take(notebooks::read_module(text), cause);
    if (has_interpreter ? !first.ends_with("sh") && first.find("sh ") == first.npos : !path.ends_with(".sh")) return;
    take(notebooks::read_shell(text), cause);
    // Scripts that it calls are no programs of distributions, so they are not among the findings.
    for (const auto word : split_words(text, " \t\r\n;&|()\"'`=")) {
      if (word.starts_with('/') || word.ends_with(".sh") || word.ends_with(".py")) use_word(word, cause);
    }
  }

  void run(const std::vector<std::string>& words, const Cause& cause) {
    take(notebooks::read_command(words), cause);
    for (const auto& word : words) use_word(word, cause);
  }

  void take(const notebooks::Findings& findings, const Cause& cause) {
    for (const auto& import : findings.imports) {
      if (import.local || import.name.empty()) continue;
      import.module.empty() ? use_word(import.name, cause) : add_module(import.name, cause);
    }
    for (const auto& library : findings.libraries) {
      if (library.starts_with('/')) use_file(library, cause);
    }
  }

  // A program on PATH, or a file.
  void use_word(std::string_view word, const Cause& cause) {
    if (word.empty() || word.starts_with('-')) return;
    if (word.starts_with('/')) return void(use_file(word, cause));
    if (word.find('/') == word.npos) {
      for (const auto& folder : path_) {
        if (use_file(join_path(folder, word), cause)) return;
      }
    }
    use_file(join_path(config_.working_dir, word), cause);
  }

  // False if there is no such file.
  bool use_file(std::string_view path, const Cause& cause) {
    path = without_leading_slashes(path);
    bool found = false;
    // A link is a file of its owner, too.
    for (const bool follow : {false, true}) {
      const auto file = table_.resolve(path, follow);
      if (!file || table_.is_folder(*file)) continue;
      found = true;
      const auto real = std::string(table_.path(*file));
      const auto& owners = inventory_.owners_of_path(real);
      add_roots(owners, cause, real);
      if (owners.empty() && table_.file(*file).type == FileType::kRegular)
        wait(real, {.kind = StartFile::kScript,
                    .cause = {.kind = cause.kind, .by = real, .verb = "this script, which is started, runs"}});
    }
    return found;
  }

  const index::FileSource& files_;
  const Nodes& nodes_;
  const packages::Inventory& inventory_;
  const packages::FileTable table_;
  const oci::ImageConfig& config_;
  std::vector<std::string> path_;
  std::map<std::string, Waiting> waiting_;
  std::set<std::string> seen_;
  std::set<std::tuple<std::uint32_t, std::string, std::string>> added_;
  std::size_t left_out_ = 0;
  StartNeeds needs_;
};

}  // namespace

StartNeeds start_needs(const index::FileSource& files, const Nodes& nodes, const oci::ImageConfig& config) {
  return StartReader(files, nodes, config).find();
}

}  // namespace varve::prune
