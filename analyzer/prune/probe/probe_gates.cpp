#include "analyzer/prune/probe/probe_gates.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "analyzer/prune/apply/import_session.h"
#include "core/index/local_index.h"

namespace varve::prune {

void take_missed(const usage::Probe& probe, const packages::Inventory& before, ImportAnswers& answers) {
  if (probe.image != before.image || distributions_by_python(before).size() != 1) return;
  for (const auto& item : probe.items) {
    if (item.kind != usage::ProbedKind::kImport || !item.missed) continue;
    auto missed = *item.missed;
    std::ranges::sort(missed);
    answers.missed_in_probe.emplace(item.name, std::move(missed));
  }
}

MoreGates probe_gates(SessionRunner& sessions, const usage::Probe* before, const std::set<std::string>& named,
                      const ImportOptions& imports, const CancelFlag& cancel) {
  return [&sessions, before, &named, imports, &cancel](const ImagePair& images, const ImageView& after,
                                                       ImportAnswers& answers) {
    std::vector<Gate> gates;
    if (before == nullptr) {
      for (const auto* name : {"starts", "listed", "scripts", "cold"})
        gates.push_back({name, {}, "the usage database has no probe of the old image (`varve prune probe`)"});
      return gates;
    }
    ProbeOptions options;
    options.imports = imports;
    options.programs.jobs = imports.jobs;
    take_missed(*before, images.before, answers);
    const auto& opened = after.opened();
    const ProbedPair pair{.sessions = sessions,
                          .images = images,
                          .before = *before,
                          .after = opened,
                          .targets =
                              [found = std::make_shared<std::optional<std::vector<ProbeTarget>>>(), &images, &opened] {
                                if (!*found) *found = probe_targets(opened, images.after, opened.image().config);
                                return **found;
                              },
                          .options = options,
                          .answers = answers,
                          .cancel = cancel};
    gates.push_back({"starts", [pair](GateResult& result) { judge_starts(pair, result); }});
    gates.push_back({"listed", [pair](GateResult& result) { judge_listed(pair, result); }});
    gates.push_back({"scripts", [pair, &named](GateResult& result) { judge_scripts(pair, named, result); }});
    gates.push_back({"cold", [pair, &opened](GateResult& result) {
                       // Marks may have been put beside the image after it was opened.
                       const auto index = index::load_index(opened.local(), opened.image());
                       judge_cold_reads(pair, index.cold, index.maps, result);
                     }});
    return gates;
  };
}

}  // namespace varve::prune
