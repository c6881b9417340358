#pragma once
// All gates on two images, in their order: those of the analyzer, and those that need pins and layers.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "analyzer/prune/image_view.h"
#include "analyzer/prune/proof.h"
#include "cli/command.h"
#include "indexer/pins.h"

namespace varve::cli {

// The pins of the places where the images lie, as they are at one moment.
struct PinnedPlace {
  std::string name;
  std::shared_ptr<oci::Repository> repository;
  std::vector<indexer::Pin> pins;
};
std::vector<PinnedPlace> pinned_places(const std::vector<const prune::ImageView*>& images);

struct GateRequest {
  const prune::Plan* plan = nullptr;
  prune::TreeChange change;
  std::optional<prune::ImportSets> replay;  // absent: no usage database was named
  bool must_replay = false;                 // without one the gate could not run
  prune::ImportOptions imports;
  std::vector<PinnedPlace> pins_before;  // of before anything was written; empty: only what is there now is checked
  std::function<void(prune::GateResult&)> rebuild;  // the judge of "rebuild"; empty: nobody asked for it by name
  const prune::Proof* proof = nullptr;              // of the new image; null: it has none, or is to get it
};

// Each is told to `on_result` as it ends. Throws Cancelled only.
std::vector<prune::GateResult> run_gates(const Context& context, const prune::ImageView& before,
                                         const prune::ImageView& after, const GateRequest& request,
                                         const std::function<void(const prune::GateResult&)>& on_result);

// "--gate NAME", for gates that cost too much to be asked each time.
void add_gate_option(CLI::App& command, bool& rebuild);

bool all_pass(const std::vector<prune::GateResult>& gates);
nlohmann::json gates_json(const std::vector<prune::GateResult>& gates);
// One line, and the first findings of a gate that fails.
void print_gate(const Context& context, const prune::GateResult& gate);

// The plan of a file. Throws as parse_plan() does.
prune::Plan read_plan(const std::filesystem::path& file);
// What the database has on this image; absent if no database was named.
std::optional<prune::ImportSets> read_replay_sets(const Context& context, const std::string& database,
                                                  const Digest& image);

}  // namespace varve::cli
