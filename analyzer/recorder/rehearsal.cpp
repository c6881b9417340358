#include "analyzer/recorder/rehearsal.h"

#include <algorithm>
#include <filesystem>

#include "analyzer/recorder/install.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/scratch_file.h"
#include "core/base/process/child_process.h"
#include "core/base/text/strings.h"

namespace varve::recorder {
namespace {

namespace fs = std::filesystem;

// $PYTHONPATH has no .pth files, but a sitecustomize module in it is loaded; the one that it hides is loaded by it.
// Where it hides none it finds itself again, and does nothing.
constexpr std::string_view kSiteCustomize = R"python(import os
import sys

if "varve_recorder" not in sys.modules:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if entry != here] + [here]
    try:
        import varve_recorder
        varve_recorder.start()
    except Exception:
        pass
    del sys.modules["sitecustomize"]
    import sitecustomize
)python";

class Folder {
 public:
  Folder() : folder_(fs::temp_directory_path(), "varve-recorder") {
    fs::create_directory(spool());
    fs::create_directory(code());
  }

  fs::path spool() const { return folder_.path() / "spool"; }
  fs::path code() const { return folder_.path() / "code"; }

 private:
  const ScratchFolder folder_;
};

bool is_of(std::string_view entry, std::string_view variable) {
  return entry.starts_with(variable) && entry.substr(variable.size()).starts_with('=');
}

std::vector<std::string> environment_for(const Folder& folder, const RehearsalOptions& options) {
  std::vector<std::string> result{std::string(kSpoolVariable) + "=" + folder.spool().string()};
  auto python_path = "PYTHONPATH=" + folder.code().string();
  for (const std::string_view entry : own_environment()) {
    if (is_of(entry, "PYTHONPATH")) {
      if (entry.size() > 11) python_path += ":" + std::string(entry.substr(11));
    } else if (is_of(entry, kSpoolVariable) || is_of(entry, kSessionVariable) || is_of(entry, "VARVE_USAGE_PARENT") ||
               is_of(entry, kStartedVariable)) {
      continue;  // this is a session of its own
    } else if (options.user && (is_of(entry, kUserHashVariable) || is_of(entry, "VARVE_USAGE_USER"))) {
      continue;
    } else {
      result.emplace_back(entry);
    }
  }
  result.push_back(python_path);
  if (options.user) result.push_back("VARVE_USAGE_USER=" + *options.user);
  return result;
}

int run(const std::vector<std::string>& command, std::vector<std::string> environment) {
  const auto result = run_child(
      {.words = command, .input = {}, .environment = std::move(environment), .in_foreground = true}, CancelFlag());
  if (!result.err.empty()) fail<Error>("start {}", trimmed(result.err));
  return result.exit_status;
}

std::vector<RehearsedFile> read_spool(const fs::path& spool) {
  struct Dated {
    fs::file_time_type time;
    fs::path path;
  };
  std::vector<Dated> paths;
  for (const auto& entry : fs::directory_iterator(spool))
    if (entry.path().extension() == ".jsonl") paths.push_back({entry.last_write_time(), entry.path()});
  std::sort(paths.begin(), paths.end(),
            [](const Dated& a, const Dated& b) { return std::tie(a.time, a.path) < std::tie(b.time, b.path); });
  std::vector<RehearsedFile> files;
  for (const auto& [time, path] : paths) {
    const auto bytes = read_file(path);
    files.push_back({path.filename().string(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()}});
  }
  return files;
}

}  // namespace

Rehearsal rehearse(const RehearsalOptions& options) {
  const Folder folder;
  for (const auto& file : recorder_files())
    if (file.name.ends_with(".py")) write_file_atomically(folder.code() / file.name, as_bytes(file.content));
  write_file_atomically(folder.code() / "sitecustomize.py", as_bytes(kSiteCustomize));
  Rehearsal result;
  result.exit_status = run(options.command, environment_for(folder, options));
  result.files = read_spool(folder.spool());
  return result;
}

}  // namespace varve::recorder
