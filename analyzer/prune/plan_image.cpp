#include "analyzer/prune/plan_image.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "analyzer/prune/elf_needs.h"
#include "analyzer/prune/forecast.h"
#include "analyzer/prune/gpu_code.h"
#include "analyzer/prune/probe_edges.h"
#include "analyzer/prune/start_needs.h"
#include "analyzer/prune/static_imports.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"

namespace varve::prune {
namespace {

std::vector<GroupConsumer> consumers_of(const PlanRequest& request) {
  auto consumers = request.rules.consumers;
  if (request.built_in_rules) {
    const auto& known = built_in_keep_rules().consumers;
    consumers.insert(consumers.end(), known.begin(), known.end());
  }
  return consumers;
}

// What libraries hold and what is CUDA, from the ELF facts of the index; a problem where it has none.
void add_libraries(const ImageView& image, const Nodes& nodes, Graph& graph, std::vector<Root>& roots,
                   std::vector<std::string>& unsure, std::vector<std::string>& problems) {
  if (!image.tree().has_elf_facts) {
    problems.emplace_back(
        "The index was made before it held ELF facts, so needs of libraries and CUDA are not known: `varve index "
        "--force` makes a new one");
    return;
  }
  const auto loader = image.loader();
  unsure = add_elf_edges(loader, nodes, graph, roots);
  for (auto& root : cuda_roots(cuda::select_cuda(image.tree(), loader, cuda::built_in_rules()), nodes))
    roots.push_back(std::move(root));
  for (const auto& problem : loader.problems()) log::warn("{}", printable(problem));
}

// What code of the image imports and starts, from its text.
void add_code(const index::OpenedImage& image, const Nodes& nodes, const Work& work, Graph& graph,
              std::vector<Root>& roots, std::vector<std::string>& unsure) {
  auto start = start_needs(image, nodes, image.image().config);
  std::ranges::move(start.roots, std::back_inserter(roots));
  std::ranges::move(start.unsure, std::back_inserter(unsure));
  std::ranges::move(add_static_imports(image, nodes, work, graph), std::back_inserter(unsure));
}

// Code for GPUs that nobody has goes cold, if somebody said which there are.
void add_gpu_code(const PlanRequest& request, const std::optional<WantedGpus>& gpus, const CancelFlag& cancel,
                  Plan& plan) {
  if (!gpus) return;
  const auto& image = request.image;
  if (!image.tree().has_elf_facts)
    fail<Unsupported>("--gpu-arch: the index of {} holds no ELF facts: `varve index --force` makes a new one",
                      image.reference());
  add_gpu_cold(plan, image.opened(), image.opened().index().maps, image.inventory(), *gpus, cancel);
}

}  // namespace

MadePlan plan_image(const PlanRequest& request, const Work& work) {
  const auto& image = request.image;
  const auto& tree = image.tree().entries;
  const usage::SnapshotQuery query{.window = request.window, .image = std::nullopt, .totals_only = true};
  const Nodes nodes(image.inventory());
  work.cancel.throw_if_cancelled();
  const auto snapshot = request.database.snapshot(query);
  std::optional<WantedGpus> gpus;
  if (!request.gpu_arch.empty()) gpus = wanted_gpus(request.gpu_arch, snapshot.gpu_models);

  const auto consumers = consumers_of(request);
  auto graph = installed_graph(nodes, tree, consumers);
  add_import_edges(snapshot, nodes, graph);
  auto roots = system_roots(nodes);
  std::ranges::move(unknown_group_roots(nodes, consumers), std::back_inserter(roots));
  std::vector<std::string> unsure, problems;
  add_libraries(image, nodes, graph, roots, unsure, problems);
  add_code(image.opened(), nodes, work, graph, roots, unsure);
  if (request.probe != nullptr) {
    add_probe_edges(*request.probe, nodes, graph);
    std::ranges::move(probe_roots(*request.probe, nodes), std::back_inserter(roots));
  } else {
    unsure.push_back(not_probed(image.reference()));
  }
  auto applied = apply_keep_rules(request.rules, request.built_in_rules, nodes, tree, request.today);
  std::ranges::move(applied.roots, std::back_inserter(roots));
  unsure.insert(unsure.end(), applied.remarks.begin(), applied.remarks.end());
  work.cancel.throw_if_cancelled();
  auto made = make_plan({.nodes = nodes,
                         .snapshot = snapshot,
                         .graph = graph,
                         .roots = std::move(roots),
                         .thresholds = request.thresholds,
                         .image = image.digest(),
                         .reference = image.reference(),
                         .today = request.today,
                         .previous = request.previous,
                         .waivers = applied.waivers,
                         .unsure = std::move(unsure),
                         .problems = std::move(problems)});
  work.cancel.throw_if_cancelled();
  auto evidence = read_forecast_evidence(request.database, query, made.plan.image);
  if (request.probe != nullptr) ImportClosure(*request.probe).close(evidence);
  add_forecast(made.plan, snapshot, evidence,
               {.max_uses = request.thresholds.cold_below_users - 1,
                .notebooks_first = request.thresholds.basis == Basis::kNotebooks});
  add_gpu_code(request, gpus, work.cancel, made.plan);
  add_affected_users(made.plan, request.database, query);
  request.savings().add_to(made.plan);
  return made;
}

}  // namespace varve::prune
