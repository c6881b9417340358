#pragma once
// What the commands that ask gates share: an option, what gates are asked with, and how their answers are shown.
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "analyzer/prune/apply/run_gates.h"
#include "analyzer/usage/probe.h"
#include "cli/command.h"

namespace varve::cli {

// "--gate NAME", for gates that cost too much to be asked each time.
void add_gate_option(CLI::App& command, bool& rebuild);

nlohmann::json gates_json(const std::vector<prune::GateResult>& gates);
// One line, and the first findings of a gate that fails; nothing with --json.
void print_gate(const Context& context, const prune::GateResult& gate);

// What the database has on the old image; empty if no database was named.
struct GateEvidence {
  std::optional<prune::ImportSets> replay;
  std::optional<usage::Probe> probe;
  std::set<std::string> named_programs;  // by notebooks

  const usage::Probe* known_probe() const { return probe ? &*probe : nullptr; }
};
GateEvidence read_evidence(const Context& context, const std::string& database, const Digest& image);

}  // namespace varve::cli
