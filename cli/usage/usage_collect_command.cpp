#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/packages/inventory.h"
#include "analyzer/usage/database.h"
#include "analyzer/usage/spool_sender.h"
#include "cli/base/open_image.h"
#include "cli/session/run_recording.h"
#include "cli/usage/usage_command.h"
#include "cli/usage/usage_database.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"

namespace varve::cli {
namespace {

struct CollectArguments {
  std::vector<std::string> spools;
  std::vector<std::string> images;
  std::vector<std::string> labels;  // of these, in their order
  std::string db;
  std::uint32_t known_name_sessions = 20;
  std::uint32_t user_day_sessions = usage::kUserDaySessions;
  bool remove = false;
  bool keep_all = false;
  usage::Retention retention;
};

struct StoredImage {
  std::string reference;
  Digest digest;
  std::string label;
  std::size_t packages = 0;
};

// Before any spool is read, so that what sessions name and open has an owner at once.
std::vector<StoredImage> store_images(Context& context, const CollectArguments& arguments, usage::Database& database) {
  std::vector<StoredImage> stored;
  for (std::size_t i = 0; i < arguments.images.size(); ++i) {
    const auto& reference = arguments.images[i];
    if (is_plain_folder(reference))
      fail<UsageError>("{}: a plain folder; only images have sessions that can be told apart", reference);
    Progress progress;
    const ProgressLine line(progress, "reading layers", context.global.quiet || context.global.json);
    const auto files = open_files(context, reference, progress);
    const auto inventory = packages::read_inventory(*files);
    for (const auto& problem : inventory.problems) log::warn("{}", printable(problem));
    const auto label = i < arguments.labels.size() ? arguments.labels[i] : std::string();
    database.put_inventory(inventory, label);
    stored.push_back({.reference = reference,
                      .digest = inventory.image.value_or(Digest()),
                      .label = label,
                      .packages = packages::count_packages(inventory)});
  }
  return stored;
}

nlohmann::json to_json(const usage::CollectResult& result, const std::vector<StoredImage>& images, double seconds) {
  auto image_list = nlohmann::json::array();
  for (const auto& image : images)
    image_list.push_back({{"reference", image.reference},
                          {"image", image.digest.to_string()},
                          {"label", image.label},
                          {"packages", image.packages}});
  auto notes = nlohmann::json::array();
  for (const auto& note : result.notes)
    notes.push_back({{"file", printable(note.file.string())}, {"place", note.place}, {"reason", note.reason}});
  return {{"sessions", result.sessions},
          {"surplus", result.surplus},
          {"events", result.events},
          {"duplicates", result.duplicates},
          {"quarantined", result.quarantined},
          {"unknown", result.unknown},
          {"files", result.files},
          {"pending_bytes", result.pending_bytes},
          {"removed_files", result.removed_files},
          {"notes", notes},
          {"images", image_list},
          {"seconds", seconds}};
}

void print(const usage::CollectResult& result, const std::vector<StoredImage>& images, std::ostream& out,
           std::ostream& err) {
  for (const auto& image : images)
    out << fmt::format("{}: {} packages are known\n", printable(image.reference), image.packages);
  if (result.files == 0 && result.quarantined == 0 && !images.empty()) return;
  out << fmt::format("{} new sessions and {} records from {} files; {} records were there before\n", result.sessions,
                     result.events, result.files, result.duplicates);
  if (result.surplus > 0)
    out << fmt::format(
        "{} of these sessions count only by what they used: their users had others that day, or told of them late "
        "(--user-day-sessions)\n",
        result.surplus);
  if (result.pending_bytes > 0) out << fmt::format("{} bytes wait for the end of their line\n", result.pending_bytes);
  if (result.removed_files > 0)
    out << fmt::format("{} files were removed: their processes ended and all of them is in the database\n",
                       result.removed_files);
  for (const auto& note : result.notes)
    err << fmt::format("{} at {}: {}\n", printable(note.file.string()), note.place, note.reason);
  if (result.quarantined > 0) err << fmt::format("{} lines or files could not be taken in\n", result.quarantined);
}

std::string spool_of_runs(const Context& context) {
  auto spool = own_spool(context.global.root);
  if (!std::filesystem::exists(spool))
    fail<NotFound>("{}: no session was recorded here; name a spool, or an image with --image", spool.string());
  return spool;
}

bool is_server(const std::string& db) { return db.starts_with("postgresql://") || db.starts_with("postgres://"); }

std::vector<std::filesystem::path> spools_of(const Context& context, const CollectArguments& arguments) {
  if (!arguments.spools.empty() || !arguments.images.empty()) return {arguments.spools.begin(), arguments.spools.end()};
  // A fleet's database may have no sessions of this machine, only what nodes sent.
  if (is_server(arguments.db) && !std::filesystem::exists(own_spool(context.global.root))) return {};
  return {spool_of_runs(context)};
}

void run_collect(Context& context, const CollectArguments& arguments) {
  const auto spools = spools_of(context, arguments);
  if (arguments.labels.size() > arguments.images.size()) fail<UsageError>("usage collect: more labels than images");
  const Stopwatch watch;
  const auto sender = arguments.db.empty() ? nullptr : usage::open_sender(arguments.db);
  if (sender != nullptr && !arguments.images.empty())
    fail<UsageError>("usage collect --image: this role may only send spools; the database's owner reads the packages");
  const auto database = sender != nullptr ? nullptr : open_or_make_database(context, arguments.db);
  const auto images = database == nullptr ? std::vector<StoredImage>() : store_images(context, arguments, *database);
  Progress progress;
  usage::CollectResult result;
  {
    const ProgressLine line(progress, "collect", context.global.quiet || context.global.json);
    const usage::CollectOptions options{.known_name_sessions = arguments.known_name_sessions,
                                        .remove_collected = arguments.remove,
                                        .progress = &progress,
                                        .user_day_sessions = arguments.user_day_sessions};
    result = sender != nullptr ? sender->send(spools, options, context.cancel)
                               : database->collect(spools, options, context.cancel);
  }
  if (database != nullptr && !arguments.keep_all) database->age_out(arguments.retention, today_utc(), context.cancel);
  const auto seconds = watch.seconds();
  if (context.global.json)
    context.print_json(to_json(result, images, seconds));
  else
    print(result, images, context.out, context.err);
  if (result.quarantined > 0) context.exit_status = 3;
}

}  // namespace

void add_usage_collect_command(CLI::App& usage, Context& context) {
  const auto arguments = std::make_shared<CollectArguments>();
  auto* command = usage.add_subcommand(
      "collect", "Takes what sessions left in their spools into the usage database; harmless to repeat");
  command->add_option("SPOOL", arguments->spools,
                      "Spool folders, or single files of them; without, and without --image, usage/spool under --root");
  command
      ->add_option("--image", arguments->images,
                   "Read the packages of this image first: whose modules and files its sessions use is known only then")
      ->allow_extra_args(false);
  command
      ->add_option("--label", arguments->labels,
                   "A name for the image, as people know it: v143; one for each --image, in their order")
      ->allow_extra_args(false);
  command->add_option("--db", arguments->db,
                      "The database: a file, or postgresql://...; usage.db under --root if none is given");
  command->add_flag("--remove", arguments->remove,
                    "Remove spool files of processes that ended, once they are in the database");
  command
      ->add_option("--known-name-sessions", arguments->known_name_sessions,
                   "Sessions that must fail on a name that no image knows before the name itself is kept")
      ->check(CLI::Range(1, 1'000'000));
  command
      ->add_option(
          "--user-day-sessions", arguments->user_day_sessions,
          "How many sessions of one user and day count in \"none in n sessions\", of users other than root and "
          "who collects; 0: all, where many people's sessions have one user id")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  command->add_option("--raw-days", arguments->retention.raw_days, "How long single sessions are kept")
      ->check(CLI::Range(1, 36'500))
      ->capture_default_str();
  command
      ->add_option("--aggregate-days", arguments->retention.aggregate_days,
                   "How long counts per day are kept; then months are")
      ->check(CLI::Range(1, 36'500))
      ->capture_default_str();
  command->add_flag("--keep-all", arguments->keep_all, "Remove nothing that is old");
  command->footer(
      "Exit status 3: some lines or files could not be read (each is named, the rest was taken in); 75: the "
      "database is full or locked, and what\n"
      "was taken in before is kept.\n"
      "Sessions of an image whose packages are not known yet are kept by the names of their modules, until --image "
      "tells whose these are.\n"
      "A role that may only add (varve usage roles) sends its spools; the owner's next collect takes in what nodes sent.\n"
      "Examples:\n  varve usage collect /var/lib/varve/spool\n"
      "  varve usage collect --image oci:image:v143 --label v143 /var/lib/varve/spool\n"
      "  varve usage collect --db postgresql://usage@db/usage --remove spool-a spool-b");
  command->callback([&context, arguments] { run_collect(context, *arguments); });
}

}  // namespace varve::cli
