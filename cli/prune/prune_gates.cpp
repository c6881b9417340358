#include "cli/prune/prune_gates.h"

#include <algorithm>
#include <ostream>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/base/open_image.h"
#include "cli/session/child_sessions.h"
#include "cli/usage/usage_database.h"
#include "core/base/file.h"
#include "core/base/progress.h"
#include "core/base/safe_text.h"

namespace varve::cli {
namespace {

constexpr std::size_t kShownFindings = 20;
constexpr unsigned kPinJobs = 8;  // mostly waiting for a registry

std::string pin_text(const indexer::Pin& pin) {
  return pin.name.empty() ? pin.image.digest.to_string()
                          : fmt::format("{} ({})", pin.name, pin.image.digest.to_string());
}

// Every pin of before is a pin still, and every pin is whole: manifest, config, blobs and index are there under their
// digests.
void judge_pins(const Context& context, const std::vector<PinnedPlace>& before, const std::vector<PinnedPlace>& now,
                prune::GateResult& result) {
  std::size_t count = 0;
  for (const auto& place : now) {
    std::set<Digest> counted;
    Progress progress;
    const auto checks = indexer::check_pins(*place.repository, place.pins, false, kPinJobs, {progress, context.cancel});
    for (const auto& check : checks) {
      if (counted.insert(check.pin.image.digest).second) ++count;  // an image may be promised more than once
      for (const auto& problem : check.problems)
        result.findings.push_back(fmt::format("{} {}: {}", place.name, pin_text(check.pin), problem));
      // Under its digest there is nothing but the very bytes that were promised: the repository checks that when it
      // reads them.
      const auto document = place.repository->manifest(check.pin.image.digest.to_string());
      if (document.descriptor.size != check.pin.image.size)
        result.findings.push_back(fmt::format("{} {}: its manifest has {} bytes instead of {}", place.name,
                                              pin_text(check.pin), document.descriptor.size, check.pin.image.size));
    }
    const auto old = std::ranges::find(before, place.name, &PinnedPlace::name);
    if (old == before.end()) continue;
    for (const auto& pin : old->pins) {
      if (std::ranges::none_of(place.pins,
                               [&](const indexer::Pin& other) { return other.image.digest == pin.image.digest; }))
        result.findings.push_back(
            fmt::format("{} {}: it was pinned when this began, and is no longer", place.name, pin_text(pin)));
    }
  }
  std::string places;
  for (const auto& place : now) places += (places.empty() ? "" : " and ") + place.name;
  result.detail = fmt::format("{} pinned images in {}{}", count, places,
                              result.findings.empty() ? " are whole and what they were" : "");
}

prune::GateResult not_asked(const std::string& name, std::string why) {
  prune::GateResult result;
  result.name = name;
  result.ok = true;
  result.asked = false;
  result.detail = "not asked: " + std::move(why);
  return result;
}

}  // namespace

std::vector<PinnedPlace> pinned_places(const std::vector<const prune::ImageView*>& images) {
  std::vector<PinnedPlace> places;
  for (const auto* image : images) {
    const auto& repository = image->opened().image().repository;
    if (std::ranges::find(places, repository->name(), &PinnedPlace::name) == places.end())
      places.push_back({repository->name(), repository, indexer::read_pins(*repository)});
  }
  return places;
}

std::vector<prune::GateResult> run_gates(const Context& context, const prune::ImageView& before,
                                         const prune::ImageView& after, const GateRequest& request,
                                         const std::function<void(const prune::GateResult&)>& on_result) {
  ChildSessions sessions(context);
  for (const auto* image : {&before, &after})
    sessions.add(image->digest(), by_digest(oci::Reference::parse(image->reference()), image->digest()));
  const prune::ImagePair images{before.inventory(), after.inventory(), request.plan};
  const auto waivers = request.plan == nullptr ? std::vector<prune::Waiver>() : request.plan->waivers;
  std::vector<prune::GateResult> gates;
  const auto add = [&](prune::GateResult result) {
    gates.push_back(std::move(result));
    on_result(gates.back());
  };
  const auto judge = [&](const std::string& name, const std::function<void(prune::GateResult&)>& of) {
    context.cancel.throw_if_cancelled();
    add(prune::run_gate(name, waivers, of));
  };
  judge("tree",
        [&](prune::GateResult& result) { prune::judge_tree(before.tree(), after.tree(), request.change, result); });
  judge("metadata", [&](prune::GateResult& result) { prune::judge_metadata(images, result); });
  judge("elf", [&](prune::GateResult& result) { prune::judge_elf(before.loader_view(), after.loader_view(), result); });
  judge("imports", [&](prune::GateResult& result) { prune::judge_imports(sessions, images, request.imports, result); });
  if (request.replay || request.must_replay) {
    judge("replay", [&](prune::GateResult& result) {
      if (!request.replay) throw prune::CouldNotRun("no usage database was named (--usage DB)");
      prune::judge_replay(sessions, images, *request.replay, request.imports, result);
    });
  } else {
    add(not_asked("replay", "no usage database was named (--usage DB)"));
  }
  judge("cuda",
        [&](prune::GateResult& result) { prune::judge_cuda(before.cuda_manifest(), after.cuda_manifest(), result); });
  judge("pins", [&](prune::GateResult& result) {
    judge_pins(context, request.pins_before, pinned_places({&before, &after}), result);
  });
  if (request.rebuild) {
    judge("rebuild", request.rebuild);
  } else {
    add(not_asked("rebuild", "it writes the image a second time (--gate rebuild)"));
  }
  if (request.proof != nullptr)
    judge("proof", [&](prune::GateResult& result) {
      prune::judge_proof(*request.proof, before.cuda_manifest(), after.cuda_manifest(), result);
    });
  return gates;
}

void add_gate_option(CLI::App& command, bool& rebuild) {
  command
      .add_option_function<std::string>(
          "--gate", [&rebuild](const std::string&) { rebuild = true; },
          "Ask a gate that is not asked else: rebuild (the image is written a second time and must be the same)")
      ->check(CLI::IsMember({"rebuild"}))
      ->type_name("NAME");
}

bool all_pass(const std::vector<prune::GateResult>& gates) { return std::ranges::all_of(gates, prune::passes); }

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
  const auto* verdict = !gate.asked ? "-" : gate.ok ? "ok" : gate.waived ? "waived" : "FAILED";
  context.out << fmt::format("{:<9} {:<7} {}\n", gate.name, verdict, printable(gate.detail));
  const auto shown = std::min(gate.findings.size(), kShownFindings);
  for (std::size_t i = 0; i < shown; ++i) context.out << fmt::format("{:18}{}\n", "", printable(gate.findings[i]));
  if (gate.findings.size() > shown)
    context.out << fmt::format("{:18}and {} more, all in --json\n", "", gate.findings.size() - shown);
  context.out.flush();
}

prune::Plan read_plan(const std::filesystem::path& file) {
  const auto text = read_file(file, prune::kMaxPlanBytes);
  return prune::parse_plan(as_text(text), file.string());
}

std::optional<prune::ImportSets> read_replay_sets(const Context& context, const std::string& database,
                                                  const Digest& image) {
  if (database.empty()) return std::nullopt;
  return prune::replay_sets(*open_existing_database(context, database), image);
}

}  // namespace varve::cli
