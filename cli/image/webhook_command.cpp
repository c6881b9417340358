#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/text.h"
#include "cli/command.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/process/child_process.h"
#include "core/base/text/safe_text.h"
#include "core/oci/reference.h"
#include "webhook/service.h"

namespace varve::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kShownJobs = 100;

struct WebhookArguments {
  std::string config = "/etc/varve/webhook.toml";
  std::string listen;
  std::string image;
  std::int64_t child_of = 0;  // the process of a webhook: what stands behind -- is to be done for it
};

webhook::Settings settings_of(const WebhookArguments& arguments) {
  return webhook::read_settings(arguments.config,
                                arguments.listen.empty() ? std::nullopt : std::optional(arguments.listen));
}

// This program with the options that all of its commands have here, and its end with this process's.
std::vector<std::string> own_words(const Context& context) {
  const auto& global = context.global;
  std::vector<std::string> words{context.program, "webhook", "--child-of", std::to_string(::getpid()), "--"};
  words.insert(words.end(), {"--quiet", "--root", global.root.string()});
  const auto& registry = global.registry;
  if (!registry.authfile.empty()) words.insert(words.end(), {"--authfile", registry.authfile.string()});
  if (!registry.ca_file.empty()) words.insert(words.end(), {"--ca-file", registry.ca_file.string()});
  if (registry.plain_http) words.emplace_back("--plain-http");
  if (registry.mirrors.off) words.emplace_back("--no-mirrors");
  return words;
}

// Takes the place of this process. A webhook that is killed does not leave programs behind: another one begins anew.
[[noreturn]] void run_as_child(const Context& context, std::int64_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != pid_t(parent)) throw Cancelled("webhook: it has ended meanwhile");
  std::vector<std::string> words{context.program};
  words.insert(words.end(), context.tail.begin(), context.tail.end());
  execute_in_place(words);
}

void run_webhook(Context& context, const WebhookArguments& arguments) {
  if (arguments.child_of != 0) run_as_child(context, arguments.child_of);
  if (!context.global.quiet && context.global.verbose < 2) log::set_level(log::Level::kInfo);
  webhook::run_service({.settings = settings_of(arguments),
                        .root = context.global.root,
                        .tools = {.varve = own_words(context)},
                        .registry = context.global.registry},
                       context.cancel);
}

webhook::WorkQueue open_queue(const Context& context, const webhook::Settings& settings) {
  const auto queue = webhook::queue_of(settings, context.global.root);
  if (queue.find("://") == std::string::npos && !std::filesystem::exists(queue))
    fail<NotFound>("{}: there is no queue; `varve webhook` makes it when it begins", queue);
  return webhook::WorkQueue(queue);
}

json to_json(const webhook::Job& job) {
  return {{"repository", json_name(job.image.repository)},
          {"tag", job.image.tag.empty() ? json() : json(json_name(job.image.tag))},
          {"digest", job.image.digest.to_string()},
          {"state", webhook::to_string(job.state)},
          {"attempts", job.attempts},
          {"age_seconds", job.age_seconds},
          {"reason", job.reason}};
}

void show_status(Context& context, const WebhookArguments& arguments) {
  auto queue = open_queue(context, settings_of(arguments));
  const auto counts = queue.counts();
  const auto jobs = queue.list(kShownJobs);
  if (context.global.json) {
    auto images = json::array();
    for (const auto& job : jobs) images.push_back(to_json(job));
    return context.print_json({{"queued", counts.queued},
                               {"taken", counts.taken},
                               {"done", counts.done},
                               {"failed", counts.failed},
                               {"oldest_seconds", counts.oldest_seconds},
                               {"images", std::move(images)}});
  }
  context.out << fmt::format("{} queued, {} being done, {} done, {} failed\n", counts.queued, counts.taken, counts.done,
                             counts.failed);
  if (jobs.empty()) return;
  std::vector<std::vector<std::string>> rows{{"IMAGE", "STATE", "ATTEMPTS", "REASON"}};
  for (const auto& job : jobs)
    rows.push_back(
        {printable(job.image.repository) + (job.image.tag.empty() ? "@" + job.image.digest.to_string().substr(0, 19)
                                                                  : ":" + printable(job.image.tag)),
         std::string(webhook::to_string(job.state)), std::to_string(job.attempts), printable(job.reason)});
  print_table(context.out, rows);
}

void retry(Context& context, const WebhookArguments& arguments) {
  const auto settings = settings_of(arguments);
  std::string repository, selector;
  if (!arguments.image.empty()) {
    const auto reference = oci::Reference::parse(arguments.image);
    if (reference.host != settings.registry)
      fail<UsageError>("{}: this webhook is of {}", arguments.image, settings.registry);
    repository = reference.repository;
    if (reference.digest)
      selector = reference.digest->to_string();
    else if (arguments.image.ends_with(":" + reference.tag.value_or("")))
      selector = *reference.tag;
  }
  const auto count = open_queue(context, settings).retry(repository, selector);
  if (context.global.json) return context.print_json({{"retried", count}});
  context.out << fmt::format("{} images are tried again\n", count);
}

CLI::App* add_part(CLI::App& webhook, const std::shared_ptr<WebhookArguments>& arguments, const char* name,
                   const char* what) {
  auto* command = webhook.add_subcommand(name, what);
  command->add_option("--config", arguments->config, "The file of rules")->type_name("FILE")->capture_default_str();
  return command;
}

}  // namespace

void add_webhook_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<WebhookArguments>();
  auto* command = app.add_subcommand(
      "webhook", "Indexes and signs images as registries tell that they were pushed, in the foreground");
  command->add_option("--config", arguments->config, "The file of rules")->type_name("FILE")->capture_default_str();
  command->add_option("--listen", arguments->listen, "ADDRESS:PORT or unix:/PATH, in place of the file's")
      ->type_name("ADDRESS");
  command->add_option("--child-of", arguments->child_of, "What is behind -- is run for this webhook")->group("");
  command->require_subcommand(0, 1);
  auto* status = add_part(*command, arguments, "status", "What is to be done, what failed, and why");
  status->footer("Example:\n  varve webhook status --json");
  status->callback([&context, arguments] { show_status(context, *arguments); });
  auto* again = add_part(*command, arguments, "retry", "What failed is tried again");
  again->add_option("IMAGE", arguments->image, "Of this image or repository alone: HOST/REPO[:TAG|@DIGEST]");
  again->footer("Examples:\n  varve webhook retry\n  varve webhook retry registry.example/team/notebook:v1");
  again->callback([&context, arguments] { retry(context, *arguments); });
  command->footer(
      "Examples:\n"
      "  varve webhook --config /etc/varve/webhook.toml\n"
      "  varve webhook --listen 0.0.0.0:8085\n"
      "  varve webhook status\n\n"
      "Takes what distribution and Harbor send (POST /events), and looks every hour at all tags for what was missed.\n"
      "Each image is done by a program of its own. What was under way at the end is done after the next start.\n"
      "GET /healthz and GET /metrics say how it is.");
  command->callback([&context, arguments, command] {
    if (command->get_subcommands().empty()) run_webhook(context, *arguments);
  });
}

}  // namespace varve::cli
