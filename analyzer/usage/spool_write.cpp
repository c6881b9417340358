#include <nlohmann/json.hpp>

#include "analyzer/usage/spool.h"
#include "core/base/errors.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

using Line = nlohmann::ordered_json;

std::string_view word(Directness how) {
  switch (how) {
    case Directness::kDirect:
      return "direct";
    case Directness::kTransitive:
      return "transitive";
    case Directness::kStatic:
      return "static";
  }
  return "";
}

std::string_view word(Copy copy) {
  switch (copy) {
    case Copy::kUnknown:
      return "unknown";
    case Copy::kImage:
      return "image";
    case Copy::kSession:
      return "session";
  }
  return "";
}

std::string_view word(InstallReason why) {
  switch (why) {
    case InstallReason::kUpgrade:
      return "upgrade";
    case InstallReason::kDowngrade:
      return "downgrade";
    case InstallReason::kSame:
      return "same";
    case InstallReason::kNew:
      return "new";
    case InstallReason::kRemoved:
      return "removed";
  }
  return "";
}

void put(Line& line, const char* name, const std::string& text) {
  if (!text.empty()) line[name] = text;
}

struct LineWriter {
  Line& line;

  void operator()(const StartRecord& start) const {
    line["t"] = "start";
    line["v"] = 1;
    line["session"] = start.session;
    line["process"] = start.process;
    put(line, "parent", start.parent);
    line["day"] = day_text(start.day);
    if (start.image) line["image"] = start.image->to_string();
    line["writer"] = start.writer;
    put(line, "user", start.user);
    put(line, "python", start.python);
    put(line, "platform", start.platform);
    put(line, "main", start.main);
  }
  void operator()(const LaunchRecord&) const { line["t"] = "launch"; }
  void operator()(const ImportRecord& import) const {
    line["t"] = "import";
    line["m"] = import.module;
    line["how"] = word(import.how);
    put(line, "by", import.by);
    line["site"] = word(import.copy);
    put(line, "d", import.distribution);
    put(line, "ver", import.version);
  }
  void operator()(const FailedRecord& failed) const {
    line["t"] = "failed";
    line["m"] = failed.module;
    line["how"] = word(failed.how);
  }
  void operator()(const InstallRecord& install) const {
    line["t"] = "install";
    line["d"] = install.distribution;
    put(line, "from", install.from);
    put(line, "to", install.to);
    line["why"] = word(install.why);
    put(line, "tool", install.tool);
  }
  void operator()(const FileRecord& file) const {
    line["t"] = "file";
    line["p"] = "/" + file.path;
    line["op"] = file.executed ? "exec" : "open";
  }
  void operator()(const GpuRecord& gpu) const {
    line["t"] = "gpu";
    line["present"] = gpu.present;
    line["used"] = gpu.used;
    line["models"] = gpu.models;
    put(line, "driver", gpu.driver);
  }
  void operator()(const BeatRecord& beat) const {
    line["t"] = "beat";
    line["cells"] = beat.cells;
    line["busy"] = beat.busy_seconds;
    line["idle"] = beat.idle_seconds;
    line["gpu_used"] = beat.gpu_used;
  }
  void operator()(const EndRecord& end) const {
    line["t"] = "end";
    line["exit"] = end.ok ? "ok" : "error";
    if (end.all_files) line["all_files"] = true;
  }
  void operator()(const FullRecord& full) const {
    line["t"] = "full";
    line["dropped"] = full.dropped;
  }
  void operator()(const UnknownRecord& unknown) const { line["t"] = unknown.kind; }
};

}  // namespace

std::string_view install_reason_name(InstallReason why) { return word(why); }

std::string spool_line(const SpoolRecord& record) {
  Line line;
  std::visit(LineWriter{line}, record.what);
  if (record.at_seconds != 0) line["at"] = record.at_seconds;
  std::string text;
  try {
    text = line.dump();
  } catch (const nlohmann::json::exception&) {
    fail<CorruptData>("spool record: a text is not UTF-8");
  }
  if (text.size() > kMaxSpoolLineBytes) fail<CorruptData>("spool record: longer than {} bytes", kMaxSpoolLineBytes);
  text += '\n';
  return text;
}

}  // namespace varve::usage
