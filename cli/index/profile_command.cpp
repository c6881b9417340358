#include "cli/index/profile_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/open_image.h"
#include "cli/base/text.h"
#include "cli/session/daemon_access.h"
#include "cli/session/limited_session.h"
#include "cli/session/session_options.h"
#include "cli/trust/signing.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"
#include "core/index/format/profile.h"
#include "core/index/publish_index.h"
#include "fuse/session/runtimes/runtime.h"
#include "fuse/session/session.h"

namespace varve::cli {
namespace {

using nlohmann::json;

constexpr std::size_t kDigestDigits = 12;  // enough to tell layers and images apart

json profile_json(const index::Profile& profile) {
  json spans = json::array(), layers = json::array();
  for (const auto& range : profile.ranges) {
    spans.push_back({{"layer", profile.layers[range.layer].to_string()},
                     {"stream_offset", range.stream_range.offset},
                     {"length", range.stream_range.length},
                     {"seconds", double(range.ms) / 1000},
                     {"recordings", range.recordings}});
  }
  for (const auto& layer : profile.layers) layers.push_back(layer.to_string());
  return {{"recordings", profile.recordings},
          {"layers", std::move(layers)},
          {"spans", std::move(spans)},
          {"bytes", profile.bytes()}};
}

std::string summary_of(const index::Profile& profile) {
  return fmt::format("{} in {} ranges of {} layers, {} recording{}, {:.1f} s", human_bytes(profile.bytes()),
                     profile.ranges.size(), profile.layers.size(), profile.recordings,
                     profile.recordings == 1 ? "" : "s",
                     profile.ranges.empty() ? 0 : double(profile.ranges.back().ms) / 1000);
}

index::Profile read_profile(const std::filesystem::path& file) {
  const auto bytes = read_file_if_there(file, index::kMaxProfileBlobBytes);
  if (!bytes)
    fail<NotFound>("{}: no such file; `varve profile record IMAGE -o FILE -- COMMAND` makes one", file.string());
  return index::Profile::decode(*bytes, file.string());
}

void write_profile(Context& context, const std::filesystem::path& file, const index::Profile& profile,
                   std::ostream& told) {
  write_file_atomically(file, profile.encode());
  if (!context.global.json) {
    if (!context.global.quiet) told << file.string() << ": " << summary_of(profile) << '\n';
    return;
  }
  auto document = profile_json(profile);
  document["file"] = file.string();
  context.print_json(document);
}

// With --json the session's output must not mix with ours: it goes where messages go.
class OutputToErrors {
 public:
  explicit OutputToErrors(bool wanted) {
    if (!wanted) return;
    saved_.reset(::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!saved_ || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) fail_errno("redirect standard output");
  }
  ~OutputToErrors() {
    if (saved_) ::dup2(saved_.get(), STDOUT_FILENO);
  }
  OutputToErrors(const OutputToErrors&) = delete;
  OutputToErrors& operator=(const OutputToErrors&) = delete;

 private:
  UniqueFd saved_;
};

struct RecordArguments {
  std::string image;
  std::filesystem::path file;
  std::uint64_t seconds = 0;  // 0 = as long as it takes
  SessionOptions session;
};

int record(Context& context, const RecordArguments& arguments) {
  guard_program(context, arguments.session.runtime);
  const auto image = image_spec(context, arguments.image);
  const auto mode = fuse::parse_mount_mode(arguments.session.mode);
  auto client = connect_or_start_daemon(context);
  const auto acquired = client.acquire(image, mode, {.prefetch = false, .record = true});
  context.cancel.throw_if_cancelled();
  auto request = make_session_request(context, arguments.session, acquired, image.reference);
  request.remove_at_exit = true;
  fuse::SessionResult result;
  {
    const OutputToErrors redirected(context.global.json);
    if (arguments.seconds != 0)
      result.exit_status = run_limited_session(request, std::chrono::seconds(arguments.seconds), context.cancel);
    else
      result = fuse::run_session(
          request, [](const std::string&) {}, [](const std::string& text) { log::info("{}", text); });
  }
  if (!result.failure.empty()) {
    context.err << "varve: error: " << message_text(result.failure) << '\n';
    return result.exit_status;
  }
  const auto file = arguments.file.empty()
                        ? std::filesystem::path(acquired.image.hex().substr(0, kDigestDigits) + ".profile")
                        : arguments.file;
  // The command's own output went to standard output.
  write_profile(context, file, index::Profile::decode(client.recording(), "recording of the daemon"), context.err);
  return result.exit_status;
}

void add_record(CLI::App& profile, Context& context) {
  const auto arguments = std::make_shared<RecordArguments>();
  auto* command = profile.add_subcommand(
      "record", "Runs a command in a session and writes down what it reads of the image, in order");
  command
      ->add_option("IMAGE", arguments->image,
                   "The image, indexed; the words after -- are the command, else the image's own")
      ->required();
  command
      ->add_option("-o,--output", arguments->file,
                   "The profile (default: the first digits of the image's digest, .profile)")
      ->type_name("FILE");
  command
      ->add_option("--seconds", arguments->seconds,
                   "End the command after so long, for one that goes on by itself: exit status 124")
      ->type_name("N")
      ->check(CLI::Range(1, 86'400));
  add_session_options(*command, arguments->session);
  command->footer(
      "Examples:\n  varve profile record oci:image:latest -o start.profile -- python3 -c 'import numpy, pandas'\n"
      "  varve profile record --volume $PWD:/work -w /work registry.example/team/science:42 -- jupyter execute "
      "start.ipynb\n\n"
      "The session is mounted for itself, so that all it reads is seen whatever this machine has in its store. The "
      "exit status is the command's,\n"
      "125 if Varve failed before it; the profile is written in any case that the command ran.");
  command->callback([&context, arguments] {
    try {
      context.exit_status = record(context, *arguments);
    } catch (const std::exception& error) {
      context.err << "varve: error: " << message_text(error.what()) << '\n';
      context.exit_status = fuse::kOwnFailure;
    }
  });
}

json groups_json(const index::StartPacks& packs, const indexer::FilePlaces& places,
                 const std::vector<oci::Descriptor>& layers) {
  auto groups = json::array();
  for (const auto& group : indexer::groups_by_place(packs, layers)) groups.push_back(group_json(group, places));
  return groups;
}

void print_profile(Context& context, const index::Profile& profile, std::size_t limit) {
  context.out << summary_of(profile) << '\n';
  std::vector<std::vector<std::string>> rows{{"SECONDS", "OFFSET", "BYTES", "RECORDINGS", "LAYER"}};
  for (const auto& range : profile.ranges) {
    if (limit != 0 && rows.size() > limit) break;
    rows.push_back({fmt::format("{:.3f}", double(range.ms) / 1000), std::to_string(range.stream_range.offset),
                    std::to_string(range.stream_range.length), std::to_string(range.recordings),
                    profile.layers[range.layer].hex().substr(0, kDigestDigits)});
  }
  print_table(context.out, rows);
  if (rows.size() <= profile.ranges.size())
    context.out << fmt::format("and {} more (--limit 0 shows all)\n", profile.ranges.size() - rows.size() + 1);
}

void show_image(Context& context, const std::string& reference, std::size_t limit) {
  const auto opened = open_indexed(context, reference, index::IndexPlace::kRepository);
  const auto& loaded = opened.index();
  if (loaded.profile.ranges.empty() && loaded.packs.empty())
    fail<NotFound>("{0}: nothing is known of what starts of image {1} read; `varve profile learn {0}` finds it out",
                   reference, opened.digest().to_string());
  const auto& layers = opened.image().manifest.layers;
  json groups = json::array();
  if (!loaded.packs.empty())
    groups = groups_json(loaded.packs, indexer::FilePlaces(opened.tree(), indexer::first_places(layers)), layers);
  if (context.global.json) {
    auto document = profile_json(loaded.profile);
    document["groups"] = std::move(groups);
    return context.print_json(document);
  }
  if (!loaded.packs.empty()) print_groups(context.out, groups);
  if (!loaded.profile.ranges.empty()) print_profile(context, loaded.profile, limit);
}

void show(Context& context, const std::string& what, std::size_t limit) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(what, ignored)) return show_image(context, what, limit);
  const auto profile = read_profile(what);
  context.global.json ? context.print_json(profile_json(profile)) : print_profile(context, profile, limit);
}

void add_show(CLI::App& profile, Context& context) {
  struct Arguments {
    std::string what;
    std::size_t limit = 20;
  };
  const auto arguments = std::make_shared<Arguments>();
  auto* command = profile.add_subcommand(
      "show", "What a profile says, or what is known of an image's starts: its profile, and its start-up packs");
  command->add_option("FILE|IMAGE", arguments->what, "A profile, or an indexed image")->required();
  command->add_option("--limit", arguments->limit, "Rows of the table; 0 for all")
      ->type_name("N")
      ->capture_default_str();
  command->footer("Examples:\n  varve profile show start.profile\n  varve profile show --json oci:image:latest");
  command->callback([&context, arguments] { show(context, arguments->what, arguments->limit); });
}

void add_merge(CLI::App& profile, Context& context) {
  struct Arguments {
    std::vector<std::filesystem::path> files;
    std::filesystem::path output;
    double min_share = 0;
  };
  const auto arguments = std::make_shared<Arguments>();
  auto* command = profile.add_subcommand("merge", "Makes one profile of several, ordered by median position");
  command->add_option("FILE", arguments->files, "The profiles, recorded or merged before")->required();
  command->add_option("-o,--output", arguments->output, "The profile that is made")->required()->type_name("FILE");
  command->add_option("--min-share", arguments->min_share, "Leave out what a smaller share of the recordings has read")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  command->footer(
      "Examples:\n  varve profile merge monday.profile tuesday.profile -o week.profile\n"
      "  varve profile merge --min-share 0.5 day-*.profile -o common.profile\n\n"
      "The order of the inputs does not matter. They may be of several versions of an image: a profile names "
      "layers, not images.");
  command->callback([&context, arguments] {
    std::vector<index::Profile> profiles;
    for (const auto& file : arguments->files) profiles.push_back(read_profile(file));
    write_profile(context, arguments->output, index::merge_profiles(profiles, arguments->min_share), context.out);
  });
}

struct AttachArguments {
  std::string image;
  std::filesystem::path file;
  bool remove = false;
  SigningOptions signing;
};

void attach(Context& context, const AttachArguments& arguments) {
  if (arguments.remove == !arguments.file.empty()) fail<UsageError>("say which profile is attached, or --remove");
  const auto whole = arguments.remove ? index::Profile() : read_profile(arguments.file);
  std::optional<IndexSigner> signer;
  if (!arguments.signing.key.empty()) signer.emplace(arguments.signing);
  const auto image = context.open_image(arguments.image);
  auto local = context.local_index();
  const auto loaded = index::load_index(local, image, index::IndexPlace::kRepository);
  const auto profile = whole.of_layers(loaded.maps);
  if (!arguments.remove && profile.ranges.empty())
    fail<NotFound>("{}: it says nothing of the layers of image {}; record one of this image", arguments.file.string(),
                   image.digest().to_string());
  const auto blobs = arguments.remove
                         ? index::publish_without_starts(image, loaded, local, *image.repository, context.cancel)
                         : index::publish_profile(image, loaded, profile, local, *image.repository, context.cancel);
  std::vector<SignedManifest> done;
  if (signer) done = signer->sign_further_index(image, loaded, blobs.manifest.digest, *image.repository);
  if (const auto warning = signer ? "" : unsigned_warning(context, arguments.image); !warning.empty())
    log::warn("{}", warning);
  const auto left_out = whole.bytes() - profile.bytes();
  if (context.global.json) {
    auto document = profile_json(profile);
    document["image"] = image.digest().to_string();
    document["index"] = blobs.manifest.digest.to_string();
    document["left_out_bytes"] = left_out;
    if (signer) document["signatures"] = to_json(done, signer->public_key());
    return context.print_json(document);
  }
  if (signer) context.out << summary_of(done, signer->public_key()) << '\n';
  if (arguments.remove) {
    context.out << fmt::format("{}: no profile and no start-up packs any more\n", image.digest().to_string());
    return;
  }
  context.out << fmt::format("{}: {}\n", image.digest().to_string(), summary_of(profile));
  if (left_out != 0)
    context.out << fmt::format("left out: {} of layers that this image does not have\n", human_bytes(left_out));
}

void add_attach(CLI::App& profile, Context& context) {
  const auto arguments = std::make_shared<AttachArguments>();
  auto* command = profile.add_subcommand(
      "attach", "Publishes a profile with the index of an image: who mounts the image fetches ahead by it");
  command->add_option("IMAGE", arguments->image, kImageHelp)->required();
  command->add_option("FILE", arguments->file, "The profile; it takes the place of the one that is there")
      ->type_name("FILE");
  command->add_flag("--remove", arguments->remove, "Take the image's profile and start-up packs away instead");
  add_signing_options(*command, arguments->signing, "--sign");
  command->footer(
      "Examples:\n  varve profile attach oci:image:latest start.profile\n"
      "  varve profile attach --remove registry.example/team/science:42\n\n"
      "Needs the right to write to the image's repository. The image is not changed. What the profile says of "
      "layers that the image does not have is left out.\n"
      "It makes a further index of the image, which is not signed by who signed the one before: say --sign KEY, or "
      "run `varve sign` afterwards.");
  command->callback([&context, arguments] { attach(context, *arguments); });
}

}  // namespace

void add_profile_command(CLI::App& app, Context& context) {
  auto* group =
      app.add_subcommand("profile", "What starts read of an image, in order: found out once, fetched ahead everywhere");
  group->require_subcommand(1);
  group->footer(
      "Examples:\n  varve profile learn oci:image:latest --usage usage.db\n"
      "  varve profile record oci:image:latest -o start.profile -- python3 -c 'import pandas'\n"
      "  varve profile attach oci:image:latest start.profile");
  add_record(*group, context);
  add_profile_learn(*group, context);
  add_show(*group, context);
  add_merge(*group, context);
  add_attach(*group, context);
}

}  // namespace varve::cli
