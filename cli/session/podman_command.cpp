#include <unistd.h>

#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/config.h"
#include "cli/base/open_image.h"
#include "cli/base/text.h"
#include "cli/session/daemon_access.h"
#include "core/base/clock.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/text/units.h"
#include "fuse/podman/lazy_images.h"
#include "fuse/podman/store_users.h"

namespace varve::cli {
namespace {

namespace podman = fuse::podman;
namespace fs = std::filesystem;

struct PodmanArguments {
  fs::path store;
  std::string image;
  std::string name;
  std::string mode = "auto";
  bool no_prefetch = false;
  bool index_here = false;
  bool write_conf = false;
  bool force = false;
};

fs::path store_of(const Context& context, const PodmanArguments& arguments) {
  return arguments.store.empty() ? context.global.root / "podman" : fs::absolute(arguments.store).lexically_normal();
}

void refuse_plain_users() {
  if (::geteuid() == 0) return;
  fail<Unsupported>(
      "a plain user's podman cannot use a store of mounted images; mount the image and name its folder: `varve mount "
      "IMAGE DIR`, `podman run --rootfs DIR:O`");
}

// What podman's configuration says of the store.
struct Configured {
  podman::StorageConfFile file;
  std::optional<podman::StorageConf> conf;  // absent: there is none that can be read
  std::string trouble;                      // why not

  bool names(const fs::path& store) const { return conf && conf->names(store); }
  podman::StorageConf known() const { return conf.value_or(podman::StorageConf()); }
};

Configured look_at_conf() {
  Configured found;
  try {
    found.file = podman::find_storage_conf(process_environment());
    if (!found.file.text_of.empty())
      found.conf = podman::parse_storage_conf(found.file.text, found.file.text_of.string());
  } catch (const std::exception& error) {
    found.trouble = error.what();
  }
  return found;
}

// Beside the file stays what it was.
void write_conf(const fs::path& store, const Configured& found) {
  if (!found.trouble.empty()) fail<Error>("{}; mend it first", found.trouble);
  const auto& file = found.file.file;
  const auto text = found.file.text_of.empty()
                        ? podman::new_storage_conf(store)
                        : podman::add_image_store(found.file.text, found.file.text_of.string(), store);
  if (found.file.text_of == file) {
    const auto before = file.string() + ".before-varve";
    if (!fs::exists(before)) write_file_atomically(before, as_bytes(found.file.text));
  }
  fs::create_directories(file.parent_path());
  write_file_atomically(fs::is_symlink(file) ? fs::canonical(file) : file, as_bytes(text));
}

// What keeps podman from seeing the store, "" if nothing does.
std::string lack_of_conf(const fs::path& store, const Configured& found) {
  if (!found.trouble.empty()) return fmt::format("podman's configuration cannot be read: {}", found.trouble);
  if (!found.names(store))
    return fmt::format(
        "podman does not look into {0} yet: {1} needs this line in [storage.options] (`varve podman add --write-conf` "
        "adds it):\n  {2}",
        store.string(), found.file.file.string(), podman::image_store_line(store));
  if (const auto driver = found.known().driver; !driver.empty() && driver != "overlay")
    return fmt::format("{} names the driver '{}'; only with \"overlay\" can podman use images of Varve",
                       found.file.text_of.string(), printable(driver));
  return {};
}

nlohmann::json conf_json(const fs::path& store, const Configured& found) {
  return {{"file", found.file.file.string()},
          {"names_store", found.names(store)},
          {"line", podman::image_store_line(store)}};
}

nlohmann::json image_json(const podman::StoredImage& image, const fs::path& tree) {
  auto manifests = nlohmann::json::array();
  for (const auto& manifest : image.manifests) manifests.push_back(manifest.to_string());
  return {{"id", image.id()},       {"image", image.manifests.front().to_string()},
          {"manifests", manifests}, {"names", image.names},
          {"bytes", image.bytes},   {"dir", tree.string()}};
}

std::string name_of(const podman::StoredImage& image) {
  return image.names.empty() ? "<none>" : printable(joined(image.names));
}

// podman looks into its own storage first.
void warn_of_own_image(const podman::StoredImage& image, const std::string& name, const Configured& found) {
  try {
    for (const auto& own : podman::read_storage_lists(found.known()).images)
      if (own.id == image.id() || own.name == name)
        log::warn("podman has {} in its own storage, too, and takes that one; `podman rmi` it to use the lazy one",
                  own.name.empty() ? own.id : printable(own.name));
  } catch (const std::exception& error) {
    log::warn("whether podman has the image in its own storage cannot be told: {}", error.what());
  }
}

void run_add(Context& context, const PodmanArguments& arguments) {
  refuse_plain_users();
  const Stopwatch watch;
  const auto store = store_of(context, arguments);
  podman::AddRequest request{.image = image_spec(context, arguments.image),
                             .name = arguments.name.empty()
                                         ? podman::podman_name(oci::Reference::parse(arguments.image))
                                         : podman::parse_podman_name(arguments.name),
                             .mode = fuse::parse_mount_mode(arguments.mode),
                             .prefetch = !arguments.no_prefetch};
  if (arguments.index_here) index_here(context, arguments.image);
  auto daemon = connect_or_start_daemon(context);
  auto local = context.local_index();
  const auto added = podman::add_image(store, daemon, local, request);
  auto found = look_at_conf();
  if (arguments.write_conf && !found.names(store)) {
    write_conf(store, found);
    found = look_at_conf();
  }
  warn_of_own_image(added.image, request.name, found);
  const auto lack = lack_of_conf(store, found);
  if (context.global.json) {
    auto image = image_json(added.image, added.tree);
    image.update({{"mounted", true}, {"mode", to_string(added.mode)}, {"was_there", added.was_there}});
    image["moved_from"] = added.moved_from.empty() ? nlohmann::json() : nlohmann::json(added.moved_from);
    context.print_json({{"images", {image}},
                        {"store", store.string()},
                        {"storage_conf", conf_json(store, found)},
                        {"seconds", watch.seconds()}});
    return;
  }
  if (!context.global.quiet) {
    if (!added.why.empty()) context.err << added.why << '\n';
    if (!added.moved_from.empty())
      context.err << fmt::format(
          "{} was {} until now, which stays without this name; `varve podman rm {}` removes it\n", request.name,
          added.moved_from.substr(0, 12), added.moved_from.substr(0, 12));
    if (!lack.empty()) context.err << "varve: warning: " << lack << '\n';
  }
  context.out << fmt::format("{}: image {}, {} mode, {:.2f} s\n", request.name, added.image.id().substr(0, 12),
                             to_string(added.mode), watch.seconds());
}

void run_remove(Context& context, const PodmanArguments& arguments) {
  refuse_plain_users();
  const auto store = store_of(context, arguments);
  auto daemon = fuse::ControlClient::connect(daemon_paths(context));
  const auto removed = podman::remove_image(store, daemon ? &*daemon : nullptr, look_at_conf().known(),
                                            {.image = arguments.image, .force = arguments.force});
  if (context.global.json)
    return context.print_json(
        {{"images", {{{"id", removed.id}, {"name", removed.name}, {"removed", removed.is_gone}}}}});
  context.out << (removed.is_gone ? fmt::format("image {} is removed\n", removed.id.substr(0, 12))
                                  : fmt::format("{} is removed; image {} has other names\n", removed.name,
                                                removed.id.substr(0, 12)));
}

nlohmann::json listed_json(const podman::ListedImage& one) {
  auto image = image_json(one.image, one.tree);
  image["mounted"] = one.mounted;
  image["mode"] = one.mounted ? nlohmann::json(to_string(one.mode)) : nlohmann::json();
  image["used_by"] = one.used_by;
  return image;
}

void run_list(Context& context, const PodmanArguments& arguments) {
  refuse_plain_users();
  const auto store = store_of(context, arguments);
  const auto found = look_at_conf();
  auto daemon = fuse::ControlClient::connect(daemon_paths(context));
  const auto images = podman::list_images(store, daemon ? &*daemon : nullptr, found.known());
  if (context.global.json) {
    auto list = nlohmann::json::array();
    for (const auto& one : images) list.push_back(listed_json(one));
    return context.print_json({{"images", list}, {"store", store.string()}, {"storage_conf", conf_json(store, found)}});
  }
  if (images.empty()) {
    context.out << "podman has no image from Varve\n";
    return;
  }
  std::vector<std::vector<std::string>> rows{{"NAME", "ID", "SIZE", "MOUNTED", "USED BY"}};
  for (const auto& one : images)
    rows.push_back({name_of(one.image), one.image.id().substr(0, 12), human_bytes(one.image.bytes),
                    one.mounted ? std::string(to_string(one.mode)) : "no: varve podman restore",
                    one.used_by.empty() ? "-" : joined(one.used_by)});
  print_table(context.out, rows);
  if (const auto lack = lack_of_conf(store, found); !lack.empty() && !context.global.quiet)
    context.err << "varve: warning: " << lack << '\n';
}

void run_restore(Context& context, const PodmanArguments& arguments) {
  refuse_plain_users();
  const auto store = store_of(context, arguments);
  std::error_code none;
  podman::RestoredImages restored;
  if (fs::exists(store, none)) {
    auto daemon = connect_or_start_daemon(context);
    restored = podman::restore_images(store, daemon);
  }
  if (context.global.json) {
    auto list = nlohmann::json::array();
    for (const auto& one : restored.images) list.push_back(listed_json(one));
    context.print_json({{"images", list}, {"failed", restored.failed}});
  } else {
    context.out << fmt::format("{} of {} images are mounted for podman\n",
                               restored.images.size() - restored.failed.size(), restored.images.size());
  }
  if (restored.failed.empty()) return;
  auto message = "these images are not mounted, and podman does not see them:\n  " + joined(restored.failed, "\n  ");
  if (restored.may_pass) throw TemporaryError(message);
  throw Error(message);
}

void add_store_option(CLI::App& command, PodmanArguments& arguments) {
  command
      .add_option("--store", arguments.store,
                  "The folder that podman's storage.conf names (default: podman under the root)")
      ->type_name("DIR");
}

}  // namespace

void add_podman_command(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("podman", "Has podman and CRI-O run images that are mounted lazily");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n"
      "  varve podman add --write-conf registry.example/team/notebook:v1\n"
      "  podman run --rm registry.example/team/notebook:v1\n\n"
      "The images are in an additional image store: podman runs, commits and builds on them as on its own, and cannot "
      "push, save or remove them.");
  const auto arguments = std::make_shared<PodmanArguments>();
  auto* add = command->add_subcommand("add", "Mounts an indexed image where podman finds it under its name");
  add->add_option("IMAGE", arguments->image, kImageHelp)->required();
  add->add_option("--name", arguments->name,
                  "What podman calls it (default: as it is named here, if that is in a registry)")
      ->type_name("NAME");
  add->add_option("--mode", arguments->mode, "As of `varve mount`: auto, kernel or fuse")
      ->check(CLI::IsMember({"auto", "kernel", "fuse"}))
      ->capture_default_str();
  add->add_flag("--no-prefetch", arguments->no_prefetch, "Fetch only what is read, not what a start is about to read");
  add->add_flag("--index-here", arguments->index_here, kIndexHereHelp);
  add->add_flag("--write-conf", arguments->write_conf,
                "Name the store in podman's storage.conf, if it is not there; FILE.before-varve keeps what it was");
  add_store_option(*add, *arguments);
  add->footer(
      "Examples:\n"
      "  varve podman add registry.example/team/notebook:v1\n"
      "  varve podman add oci:image:latest --name localhost/notebook:v1\n\n"
      "Said again after the tag has moved, it adds what the tag names now. Says which line storage.conf lacks. The unit "
      "varve-podman mounts the images after a reboot.");
  add->callback([&context, arguments] { run_add(context, *arguments); });

  auto* rm = command->add_subcommand("rm", "Takes an image from podman, or one of its names");
  rm->add_option("IMAGE", arguments->image, "Its name, the beginning of its ID, or a digest")->required();
  rm->add_flag("--force", arguments->force,
               "Although containers that are not running, or images made of it, need it to start again");
  add_store_option(*rm, *arguments);
  rm->footer(
      "Example:\n  varve podman rm registry.example/team/notebook:v1\n\n"
      "Refused while a container uses it. What the store of Varve has of the image stays: `varve images rm`.");
  rm->callback([&context, arguments] { run_remove(context, *arguments); });

  auto* ls = command->add_subcommand("ls", "Shows which images podman has from here, and who uses them");
  add_store_option(*ls, *arguments);
  ls->footer("Example:\n  varve podman ls --json");
  ls->callback([&context, arguments] { run_list(context, *arguments); });

  auto* restore = command->add_subcommand("restore", "Mounts podman's images again, after a reboot");
  add_store_option(*restore, *arguments);
  restore->footer(
      "Example:\n  varve podman restore\n\n"
      "What the unit varve-podman does. An image that cannot be mounted is not shown to podman; status 75 if a registry "
      "that is away is all that keeps it.");
  restore->callback([&context, arguments] { run_restore(context, *arguments); });
}

}  // namespace varve::cli
