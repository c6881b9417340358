#pragma once
// Starts everything of an image once, each alone, and says what came of it: which distributions it loaded, which ones
// it looked for and did without, how it ended.
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/prune/apply/gates.h"
#include "analyzer/prune/probe/start_session.h"
#include "analyzer/prune/probe/targets.h"
#include "core/base/work.h"

namespace varve::prune {

struct ProbeOptions {
  ImportOptions imports;  // jobs 0 = as many as cores: nothing else runs at the same time
  StartOptions programs;
  std::int32_t today = 0;
};

// Work is counted in targets. `paths`: of the image's tree, by which lab extensions that are listed are believed.
// Throws CouldNotRun if the image has no Python, or it or a session does not work; Cancelled; what the runner throws.
usage::Probe probe_image(SessionRunner& sessions, const packages::Inventory& inventory,
                         const index::FlatTree::Entries& paths, const std::vector<ProbeTarget>& targets,
                         const ProbeOptions& options, const Work& work);

// What `jupyter server extension list` and `jupyter labextension list` say is enabled and works: names in order. Those
// that `is_there` does not know are left out; so is what is beyond kMaxListed.
inline constexpr std::size_t kMaxListed = 2'000;
std::vector<std::string> enabled_extensions(std::string_view listing,
                                            const std::function<bool(const std::string& name)>& is_there);

}  // namespace varve::prune
