#include "cli/session/child_sessions.h"

#include "cli/base/open_image.h"
#include "core/base/process/child_process.h"
#include "core/base/text/strings.h"

namespace varve::cli {
namespace {

constexpr int kOwnFailure = 125;

}  // namespace

std::vector<std::string> place_words(const Context& context, const std::filesystem::path& root) {
  const auto& global = context.global;
  std::vector<std::string> words = {"--root", root.string()};
  if (!global.platform.empty()) words.insert(words.end(), {"--platform", global.platform});
  if (!global.registry.authfile.empty()) words.insert(words.end(), {"--authfile", global.registry.authfile.string()});
  if (!global.registry.ca_file.empty()) words.insert(words.end(), {"--ca-file", global.registry.ca_file.string()});
  if (const auto& plugins = global.credential_providers; !plugins.config.empty())
    words.insert(words.end(), {"--credential-provider-config", plugins.config.string(), "--credential-provider-bin-dir",
                               plugins.bin_dir.string()});
  for (const auto& place : global.registry.index_from) words.insert(words.end(), {"--index-from", place});
  const auto& mirrors = global.registry.mirrors;
  for (const auto& dir : mirrors.hosts_dirs) words.insert(words.end(), {"--hosts-dir", dir.string()});
  if (!mirrors.registries_conf.empty())
    words.insert(words.end(), {"--registries-conf", mirrors.registries_conf.string()});
  if (mirrors.off) words.emplace_back("--no-mirrors");
  if (global.registry.plain_http) words.emplace_back("--plain-http");
  return words;
}

std::vector<std::string> session_words(const Context& context, const std::filesystem::path& root) {
  std::vector<std::string> words = {context.program, "run",         "--rm",         "--network",
                                    "none",          "--no-record", "--entrypoint", ""};
  const auto places = place_words(context, root);
  words.insert(words.end(), places.begin(), places.end());
  return words;
}

std::string ChildSessions::reference_of(const Digest& image) const {
  if (const auto found = references_.find(image); found != references_.end()) return found->second;
  if (place_.empty()) fail<prune::CouldNotRun>("nobody said where {} is", image.to_string());
  return by_digest(oci::Reference::parse(place_), image);
}

std::vector<std::string> ChildSessions::words(const std::string& reference,
                                              const std::vector<std::string>& command) const {
  auto words = session_words(context_, context_.global.root);
  words.insert(words.end(), {"--gpus", "none"});
  words.push_back(reference);
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

prune::ProgramResult ChildSessions::run(const Digest& image, const std::vector<std::string>& command,
                                        std::string_view standard_input, std::chrono::seconds limit) {
  const auto reference = reference_of(image);
  ChildProgram program;
  program.words = words(reference, command);
  program.input = standard_input;
  program.limit = limit;
  program.max_output = prune::kMaxProgramOutput;
  auto child = run_child(program, context_.cancel);
  prune::ProgramResult result{.exit_status = child.exit_status,
                              .timed_out = child.timed_out,
                              .out = std::move(child.out),
                              .err = std::move(child.err)};
  if (!result.timed_out && result.exit_status == kOwnFailure)
    fail<prune::CouldNotRun>("a session of {}: {}", reference, last_line(result.err));
  return result;
}

}  // namespace varve::cli
