#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/recorder/install.h"
#include "analyzer/recorder/rehearsal.h"
#include "cli/base/open_image.h"
#include "cli/usage/usage_command.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/text/safe_text.h"
#include "fuse/session/session_store.h"

namespace varve::cli {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

std::string_view word_for(recorder::FileState state) {
  switch (state) {
    case recorder::FileState::kAbsent:
      return "absent";
    case recorder::FileState::kCurrent:
      return "installed";
    case recorder::FileState::kOther:
      return "other-version";
    case recorder::FileState::kForeign:
      return "foreign";
  }
  return "unknown";
}

void print(const Context& context, const recorder::Target& target, const std::vector<recorder::SiteState>& sites) {
  if (context.global.json) {
    json list = json::array();
    for (const auto& site : sites)
      list.push_back({{"folder", site.path},
                      {"state", word_for(site.state)},
                      {"changed", site.changed},
                      {"foreign", site.foreign}});
    return context.print_json(
        {{"root", target.root.string()}, {"switched_off", target.switched_off}, {"folders", list}});
  }
  for (const auto& site : sites) {
    context.out << fmt::format("{:<14} {}{}\n", word_for(site.state), printable(site.path),
                               site.changed ? "  (changed)" : "");
    for (const auto& name : site.foreign) context.out << fmt::format("{:<14}   {} is not the recorder's\n", "", name);
  }
  if (target.switched_off && !context.global.quiet)
    context.err << "varve: this tree has " << recorder::kSwitchFile << ": nothing is recorded in it\n";
}

// The folder of an image as its index has it.
std::optional<recorder::ListedFolder> list_indexed(const index::ErofsReader& tree, const std::string& path) {
  const auto nid = tree.resolve(path, true);
  if (!nid || tree.inode(*nid).type != FileType::kDirectory) return std::nullopt;
  recorder::ListedFolder folder{.identity = *nid, .names = {}};
  tree.read_directory(*nid, 0, [&](std::string_view name, index::Nid, FileType, std::uint64_t) {
    if (name != "." && name != "..") folder.names.emplace_back(name);
    return true;
  });
  return folder;
}

// A kept session: the recorder goes into its writable layer, where the image has its site folders. Folders made there
// get the modes and owners that the image's have, since those of the upper layer win.
recorder::Target session_target(const Context& context, const fuse::SessionStore::Listed& session) {
  if (session.running)
    fail<UsageError>(
        "session {} is running: its writable layer must not be changed under it; start it with `varve run --record`",
        session.record.name);
  const auto image = open_indexed(context, session.record.image);
  const auto& tree = *image.index().tree;
  const recorder::Target target{
      .root = session.folder.upper(),
      .folders = recorder::site_folders([&](const std::string& path) { return list_indexed(tree, path); }),
      .switched_off = tree.resolve(recorder::kSwitchFile, true).has_value()};
  if (target.folders.empty())
    fail<NotFound>("{} has no Python 3.{} or later", session.record.image, recorder::kOldestPythonMinor);
  return target;
}

void make_folders(const Context& context, const fuse::SessionStore::Listed& session, const recorder::Target& target) {
  const auto image = open_indexed(context, session.record.image);
  for (const auto& folder : target.folders) {
    fs::path made;
    for (const auto& part : fs::path(folder)) {
      made /= part;
      const auto path = target.root / made;
      if (fs::is_directory(fs::symlink_status(path))) continue;
      fs::create_directory(path);
      const auto inode = image.index().tree->inode(find_file(image, made.string()));
      if (::chown(path.c_str(), inode.uid, inode.gid) != 0 && errno != EPERM && errno != EINVAL)
        fail_errno("give {} its owner", path.string());
      fs::permissions(path, fs::perms(inode.mode));
    }
  }
}

struct InstallArguments {
  std::string target;
  // A folder wins over a session of the same name: "./name" and "name" can tell them apart only this way round.
  std::optional<fuse::SessionStore::Listed> session(const Context& context) const {
    if (fs::exists(target) || target.find('/') != std::string::npos) return std::nullopt;
    return fuse::SessionStore(context.global.root).find(target);
  }
};

using Action = std::vector<recorder::SiteState> (*)(const recorder::Target&);

void act(Context& context, const InstallArguments& arguments, Action action, bool makes_folders) {
  if (const auto session = arguments.session(context)) {
    auto target = session_target(context, *session);
    if (makes_folders) {
      make_folders(context, *session, target);
    } else {
      std::erase_if(target.folders, [&](const std::string& folder) { return !fs::is_directory(target.root / folder); });
    }
    return print(context, target, action(target));
  }
  if (!fs::exists(arguments.target))
    fail<NotFound>("{}: neither a folder nor a session (`varve session ls`)", arguments.target);
  const auto target = recorder::find_target(arguments.target);
  print(context, target, action(target));
}

void show(const Context& context, const recorder::RehearsalOptions& options) {
  if (options.command.empty())
    fail<UsageError>("say what to run after \"--\": varve usage recorder show -- python3 script.py");
  const auto result = recorder::rehearse(options);
  if (context.global.json) {
    json files = json::array();
    for (const auto& file : result.files) {
      json records = json::array();
      for (std::size_t at = 0; at < file.content.size();) {
        const auto end = file.content.find('\n', at);
        if (end == std::string::npos) break;
        records.push_back(json::parse(file.content.substr(at, end - at)));
        at = end + 1;
      }
      files.push_back({{"name", file.name}, {"records", records}});
    }
    return context.print_json({{"files", files}, {"exit_status", result.exit_status}});
  }
  for (const auto& file : result.files) context.out << file.content;
  if (result.files.empty() && !context.global.quiet)
    context.err
        << "varve: nothing would be written: recording is switched off, or the command ran no Python that loads the "
           "recorder\n";
}

CLI::App* add_action(CLI::App& recorder_command, Context& context, const char* name, const char* text, Action action,
                     bool makes_folders) {
  const auto arguments = std::make_shared<InstallArguments>();
  auto* command = recorder_command.add_subcommand(name, text);
  command
      ->add_option("DIR|SESSION", arguments->target,
                   "The root of an image's file system, a virtual environment, a site folder, or a kept session")
      ->required();
  command->callback([&context, arguments, action, makes_folders] { act(context, *arguments, action, makes_folders); });
  return command;
}

void add_show(CLI::App& recorder_command, Context& context) {
  const auto user = std::make_shared<std::string>();
  auto* command = recorder_command.add_subcommand(
      "show", "Runs a command and prints exactly what the recorder would write; keeps and sends nothing");
  command->add_option("--as-user", *user, "Record as if this were the user's name")->type_name("NAME");
  command->footer(
      "The command follows \"--\"; its standard output goes to standard error.\n\n"
      "Examples:\n  varve usage recorder show -- python3 script.py\n"
      "  varve usage recorder show --json -- python3 -c 'import numpy'");
  command->callback([&context, user] {
    recorder::RehearsalOptions options{.command = context.tail, .user = std::nullopt};
    if (!user->empty()) options.user = *user;
    show(context, options);
  });
}

}  // namespace

void add_usage_recorder_command(CLI::App& usage, Context& context) {
  auto* command = usage.add_subcommand(
      "recorder", "Puts the run-time recorder into image folders and sessions, and shows what it writes");
  command->require_subcommand(1);
  command->footer(
      "Example:\n  varve usage recorder install rootfs/\n\n"
      "docs/design/recorder.md says what is recorded, what never is, and how it is switched off.");
  add_action(*command, context, "install", "Adds the recorder to every Python of a tree; harmless to repeat",
             recorder::install, true)
      ->footer(
          "Examples:\n  varve usage recorder install rootfs/\n  varve usage recorder install /opt/venv\n"
          "  varve usage recorder install my-session");
  add_action(*command, context, "uninstall", "Removes what install added", recorder::uninstall, false)
      ->footer("Example:\n  varve usage recorder uninstall rootfs/");
  add_action(*command, context, "status", "Says which Pythons of a tree have the recorder", recorder::status, false)
      ->footer("Example:\n  varve usage recorder status rootfs/");
  add_show(*command, context);
}

}  // namespace varve::cli
