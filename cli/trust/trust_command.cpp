#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/base/text/safe_text.h"
#include "core/index/judged_indexes.h"

namespace varve::cli {
namespace {

using nlohmann::json;

struct Judged {
  oci::Image image;
  trust::Request request;
  trust::ImageVerdict policy;  // on the image itself
  index::JudgedIndexes indexes;
  const index::JudgedIndex* taken() const { return indexes.taken ? &indexes.all[*indexes.taken] : nullptr; }
  bool trusted() const { return policy.accepted && taken() != nullptr; }
};

Judged judge(const Context& context, const std::string& reference) {
  Judged judged{.image = context.open_image(reference), .request = {}, .policy = {}, .indexes = {}};
  auto local = context.local_index();
  judged.request = trust::Request::of(judged.image);
  judged.policy = local.judge().judge_image(judged.image, &local.repository());
  judged.indexes = index::judge_indexes(local, judged.image);
  return judged;
}

std::string refusal_of(const Context& context, const Judged& judged) {
  if (!judged.policy.accepted) return judged.policy.refusal;
  if (judged.taken() != nullptr) return {};
  if (judged.indexes.all.empty()) return judged.indexes.trouble.empty() ? "it is not indexed" : judged.indexes.trouble;
  std::vector<std::string> reasons;
  for (const auto& one : judged.indexes.all)
    reasons.push_back(fmt::format("index {}: {}", one.blobs.manifest.digest.to_string(), one.judgement.refusal));
  return context.local_index().judge().refusal(judged.request, reasons);
}

json to_json(const index::JudgedIndex& one) {
  return {{"index", one.blobs.manifest.digest.to_string()},
          {"tool", one.blobs.tool},
          {"generation", one.blobs.generation},
          {"here", one.is_here},
          {"index_from", one.index_from.empty() ? json() : json(one.index_from)},
          {"trusted", one.judgement.trusted},
          {"vouched", one.judgement.vouched},
          {"rule", one.judgement.rule},
          {"signers", one.judgement.signers},
          {"refusal", one.judgement.refusal}};
}

void print_json(const Context& context, const Judged& judged) {
  const auto* taken = judged.taken();
  auto candidates = json::array();
  for (const auto& one : judged.indexes.all) candidates.push_back(to_json(one));
  context.print_json({{"image", judged.image.digest().to_string()},
                      {"repository", judged.request.repository},
                      {"asked", judged.request.by_digest() ? "digest" : "tag"},
                      {"index", taken ? json(taken->blobs.manifest.digest.to_string()) : json()},
                      {"rule", taken ? taken->judgement.rule : ""},
                      {"signers", taken ? taken->judgement.signers : std::vector<std::string>()},
                      {"trusted", judged.trusted()},
                      {"vouched", taken != nullptr && taken->judgement.vouched},
                      {"policy",
                       {{"accepted", judged.policy.accepted},
                        {"rule", judged.policy.rule},
                        {"signers", judged.policy.signers},
                        {"refusal", judged.policy.refusal}}},
                      {"refusal", refusal_of(context, judged)},
                      {"candidates", std::move(candidates)}});
}

void print(const Context& context, const Judged& judged) {
  auto& out = context.out;
  out << fmt::format("image    {}\n         in {}, asked for by {}\n", judged.image.digest().to_string(),
                     printable(judged.request.repository), judged.request.by_digest() ? "digest" : "tag");
  if (!judged.policy.rule.empty())
    out << fmt::format("policy   {}: {}\n", printable(judged.policy.rule),
                       judged.policy.accepted ? "accepted" : printable(judged.policy.refusal));
  for (std::size_t i = 0; i < judged.indexes.all.size(); ++i) {
    const auto& one = judged.indexes.all[i];
    out << fmt::format(
        "index    {}{}\n         by {}, {}; {}\n", one.blobs.manifest.digest.to_string(),
        i == judged.indexes.taken ? "  <- taken" : "", printable(one.blobs.tool),
        one.is_here              ? "here"
        : one.index_from.empty() ? "in the repository"
                                 : "in " + printable(one.index_from),
        printable(one.judgement.trusted ? one.judgement.rule : "does not count: " + one.judgement.refusal));
  }
  if (!judged.indexes.trouble.empty())
    out << fmt::format("a repository could not be asked: {}\n", printable(judged.indexes.trouble));
}

void show(Context& context, const std::string& reference, bool is_check) {
  const auto judged = judge(context, reference);
  if (context.global.json) {
    print_json(context, judged);
  } else {
    print(context, judged);
    if (!judged.trusted()) context.out << refusal_of(context, judged) << '\n';
  }
  if (is_check && !judged.trusted()) context.exit_status = 3;
}

void add_look(CLI::App& group, Context& context, const char* name, const char* what, const char* footer,
              bool is_check) {
  const auto image = std::make_shared<std::string>();
  auto* command = group.add_subcommand(name, what);
  command->add_option("IMAGE", *image, "The image: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG|@DIGEST]")->required();
  command->footer(footer);
  command->callback([&context, image, is_check] { show(context, *image, is_check); });
}

}  // namespace

void add_trust_command(CLI::App& app, Context& context) {
  auto* group = app.add_subcommand("trust", "Whose word counts for an image: which index is believed, and why");
  group->require_subcommand(1);
  group->footer(
      "Examples:\n  varve trust show registry.example/team/notebook:v1\n"
      "  varve trust check registry.example/team/notebook@sha256:...\n\n"
      "What counts is set in varve.toml:\n\n"
      "  [trust]\n"
      "  index = \"signed\"                       # signed, policy, pinned or any; nothing: by digest as signed, by "
      "tag as any\n"
      "  keys = [\"/etc/varve/keys/ci.pub\"]      # of varve keygen, cosign, skopeo or openssl\n"
      "  [[trust.scope]]                        # for these repositories instead\n"
      "  prefix = \"registry.example/team\"\n"
      "  keys = [\"/etc/varve/keys/team.pub\"]\n\n"
      "An index that this machine has built or proved counts without a signature. containers' policy.json is "
      "honoured for image and index.");
  add_look(*group, context, "show", "Shows all indexes of an image, and what is said for and against each",
           "Example:\n  varve trust show oci:image:latest --json", false);
  add_look(
      *group, context, "check",
      "The same; exit status 3 if nobody who counts vouches for the image's index, or its policy refuses the image",
      "Example:\n  varve trust check registry.example/team/notebook:v1 || echo not on this machine", true);
}

}  // namespace varve::cli
