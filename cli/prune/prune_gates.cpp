#include "cli/prune/prune_gates.h"

#include <algorithm>
#include <ostream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/usage/usage_database.h"
#include "core/base/text/safe_text.h"

namespace varve::cli {
namespace {

constexpr std::size_t kShownFindings = 20;

}  // namespace

void add_gate_option(CLI::App& command, bool& rebuild) {
  command
      .add_option_function<std::string>(
          "--gate", [&rebuild](const std::string&) { rebuild = true; },
          "Ask a gate that is not asked else: rebuild (the image is written a second time and must be the same)")
      ->check(CLI::IsMember({"rebuild"}))
      ->type_name("NAME");
}

nlohmann::json gates_json(const std::vector<prune::GateResult>& gates) {
  auto list = nlohmann::json::array();
  for (const auto& gate : gates)
    list.push_back({{"name", gate.name},
                    {"ok", gate.ok},
                    {"asked", gate.asked},
                    {"waived", gate.waived},
                    {"detail", gate.detail},
                    {"findings", gate.findings},
                    {"seconds", gate.seconds}});
  return list;
}

void print_gate(const Context& context, const prune::GateResult& gate) {
  if (context.global.json) return;
  const auto* verdict = !gate.asked ? "-" : gate.ok ? "ok" : gate.waived ? "waived" : "FAILED";
  context.out << fmt::format("{:<9} {:<7} {}\n", gate.name, verdict, printable(gate.detail));
  const auto shown = std::min(gate.findings.size(), kShownFindings);
  for (std::size_t i = 0; i < shown; ++i) context.out << fmt::format("{:18}{}\n", "", printable(gate.findings[i]));
  if (gate.findings.size() > shown)
    context.out << fmt::format("{:18}and {} more, all in --json\n", "", gate.findings.size() - shown);
  context.out.flush();
}

GateEvidence read_evidence(const Context& context, const std::string& named, const Digest& image) {
  GateEvidence evidence;
  if (named.empty()) return evidence;
  const auto database = open_existing_database(context, named);
  evidence.replay = prune::replay_sets(*database, image);
  evidence.probe = database->probe(image);
  database->notebooks(image, [&](usage::NotebookImports&& notebook) {
    evidence.named_programs.insert(notebook.programs.begin(), notebook.programs.end());
  });
  return evidence;
}

}  // namespace varve::cli
