#include "cli/prune/kept_probe.h"

#include "analyzer/packages/inventory.h"
#include "analyzer/prune/probe/probe_image.h"
#include "cli/base/open_image.h"
#include "cli/session/child_sessions.h"
#include "core/base/clock.h"
#include "core/base/text/calendar.h"

namespace varve::cli {

KeptProbe kept_probe(const Context& context, usage::Database& database, const std::string& reference,
                     const index::OpenedImage& opened, bool again, unsigned jobs) {
  if (!again)
    if (auto kept = database.probe(opened.digest())) return {.probe = std::move(*kept), .made = false, .seconds = 0};
  const Stopwatch watch;
  const auto inventory = packages::read_inventory(opened);
  const auto targets = prune::probe_targets(opened, inventory, opened.image().config);
  ChildSessions sessions(context);
  sessions.add(opened.digest(), by_digest(oci::Reference::parse(reference), opened.digest()));
  Progress progress;
  const ProgressLine line(progress, "probe", context.global.quiet, ProgressUnit::kThings);
  prune::ProbeOptions options;
  options.imports.jobs = options.programs.jobs = jobs;
  options.today = today_utc();
  KeptProbe made{.probe = prune::probe_image(sessions, inventory, opened.tree().entries, targets, options,
                                             {progress, context.cancel}),
                 .made = true,
                 .seconds = 0};
  database.put_probe(made.probe);
  made.seconds = watch.seconds();
  return made;
}

}  // namespace varve::cli
