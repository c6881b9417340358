#include "cli/image/written_times.h"

#include "core/base/errors.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"

namespace varve::cli {
namespace {

constexpr const char* kEpochVariable = "SOURCE_DATE_EPOCH";

std::int64_t seconds_of(std::string_view what, std::string_view text) {
  const auto seconds = parse_unix_seconds(text);
  if (!seconds) fail<UsageError>("{} '{}': say seconds since 1970, as in 1767225600", what, printable(text));
  return *seconds;
}

}  // namespace

void add_times_options(CLI::App& command, TimesArguments& arguments, CLI::Option* needs) {
  const std::string with = needs != nullptr ? "With --repack: " : "";
  auto* times = command
                    .add_option("--times", arguments.times,
                                "With --previous: layers that differ in times only are used again, with the times they "
                                "have (previous), or are written anew (exact)")
                    ->check(CLI::IsMember({"previous", "exact"}))
                    ->capture_default_str();
  auto* clamp = command.add_flag(
      "--clamp-mtime", arguments.clamp,
      with +
          "Later times in layers that are written become $SOURCE_DATE_EPOCH, or --clamp-mtime=SECONDS since 1970; "
          "Python's bytecode goes along");
  if (needs == nullptr) return;
  times->needs(needs);
  clamp->needs(needs);
}

index::RepackTimes repack_times(const TimesArguments& arguments, const Environment& environment) {
  index::RepackTimes times;
  times.of_previous = arguments.times == "previous";
  if (const auto epoch = environment(kEpochVariable)) times.latest_created = seconds_of(kEpochVariable, *epoch);
  if (arguments.clamp == "true") {
    if (!times.latest_created)
      fail<UsageError>("--clamp-mtime: {} is not set; say it, or --clamp-mtime=SECONDS", kEpochVariable);
    times.latest = times.latest_created;
  } else if (!arguments.clamp.empty() && arguments.clamp != "false") {
    times.latest = seconds_of("--clamp-mtime", arguments.clamp);
  }
  return times;
}

}  // namespace varve::cli
