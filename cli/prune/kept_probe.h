#pragma once
// The probe of an image: made once, kept in the usage database.
#include <optional>

#include "analyzer/usage/database.h"
#include "cli/command.h"
#include "core/index/opened_image.h"

namespace varve::cli {

struct KeptProbe {
  usage::Probe probe;
  bool made = false;   // now; else it was kept
  double seconds = 0;  // that it took
};

// The one that the database has, unless there is none or `again`: then everything of the image is started, in sessions
// of this machine, and what came of it is kept. Progress goes to a terminal. Throws as prune::probe_image() does.
KeptProbe kept_probe(const Context& context, usage::Database& database, const std::string& reference,
                     const index::OpenedImage& opened, bool again, unsigned jobs = 0);

}  // namespace varve::cli
