#pragma once
// What `varve run` was asked for: read from its words, kept in the session's record, and read from there when the
// session is started again.
#include <filesystem>
#include <string>

#include "cli/command.h"
#include "cli/session/session_options.h"
#include "core/base/clock.h"

namespace varve::cli {

struct RunOptions {
  std::string image;
  std::filesystem::path rootfs;  // in place of an image
  std::string name;
  bool remove = false;
  bool detach = false;
  std::filesystem::path stats_file;
  SessionOptions session;
  bool no_prefetch = false;
  bool fill = false;
  bool index_here = false;
  bool record = false;
  std::filesystem::path usage_spool;  // "" = under the root
  std::string again;                  // the id of a kept session that goes on
  Stopwatch since_start;
};

// Lets everything stand for itself: full paths, files of variables as the variables in them, and the values of
// variables that are handed on. Throws UsageError.
void settle(RunOptions& options);

// The options that a session keeps, with the command and what reaches the registry, as JSON.
std::string saved_options(const RunOptions& options, const Context& context);
// And back, into fresh options and the context of a later call, whose own words about the registry win. Throws
// CorruptData.
void restore_options(const std::string& saved, RunOptions& options, Context& context);

}  // namespace varve::cli
