#pragma once
// Which times an image gets that is written anew, from the words of the command line.
#include <string>

#include "cli/base/config.h"
#include "cli/command.h"
#include "core/index/merge/repack_times.h"

namespace varve::cli {

struct TimesArguments {
  std::string times = "previous";  // or "exact"
  std::string clamp;               // "" = no; "true" = to $SOURCE_DATE_EPOCH; seconds since 1970
};

// --times and --clamp-mtime; `needs`, if given, is an option that they make sense with alone.
void add_times_options(CLI::App& command, TimesArguments& arguments, CLI::Option* needs = nullptr);
// Throws UsageError for times that are no seconds since 1970, and for one that nobody said.
index::RepackTimes repack_times(const TimesArguments& arguments,
                                const Environment& environment = process_environment());

}  // namespace varve::cli
