#include <algorithm>
#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/open_image.h"
#include "cli/base/text.h"
#include "cli/image/image_command.h"
#include "cli/session/daemon_access.h"
#include "cli/session/status_report.h"
#include "core/base/errors.h"
#include "core/base/text/calendar.h"
#include "core/base/text/nearest.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/text/units.h"
#include "fuse/daemon/opened_images.h"
#include "indexer/known_pins.h"

namespace varve::cli {
namespace {

// What holds an image here.
struct Holds {
  std::map<Digest, std::vector<std::string>> mounts;  // folders; "session", or by whom it is held, for others
  std::map<Digest, std::vector<std::string>> pins;    // "v143 in oci:/srv/notebooks"
};

struct ImagesToRemove {
  std::vector<std::string> images;
  bool force = false;
};

std::string name_of(const fuse::OpenedImage& opened) {
  return opened.current ? opened.reference : by_digest(oci::Reference::parse(opened.reference), opened.image);
}

Holds find_holds(const Context& context) {
  Holds holds;
  if (auto daemon = fuse::ControlClient::connect(daemon_paths(context)))
    for (const auto& mount : daemon->status().mounts)
      holds.mounts[mount.stats.image].push_back(!mount.held_by.empty() ? holders_text(mount.held_by)
                                                : mount.session        ? "session"
                                                                       : mount.dir);
  const indexer::KnownPins known(context.global.root);
  for (const auto& place : known.places())
    for (const auto& pin : known.pins_of(place))
      holds.pins[pin.image.digest].push_back(fmt::format("{} in {}", pin.name.empty() ? "-" : pin.name, place));
  return holds;
}

template <typename Value>
Value value_or_none(const std::map<Digest, Value>& values, const Digest& image) {
  const auto found = values.find(image);
  return found == values.end() ? Value() : found->second;
}

nlohmann::json to_json(const fuse::StoredImages& stored, const Holds& holds) {
  auto images = nlohmann::json::array();
  for (const auto& image : stored.images) {
    auto names = nlohmann::json::array();
    for (const auto& name : image.names) names.push_back(name_of(name));
    images.push_back({{"image", image.image.to_string()},
                      {"references", std::move(names)},
                      {"platform", image.names.front().platform},
                      {"image_stream_bytes", nullptr},
                      {"disk_bytes", image.disk_bytes},
                      {"own_bytes", image.own_bytes},
                      {"last_used", rfc3339(image.names.front().last_used)},
                      {"mounted", value_or_none(holds.mounts, image.image)},
                      {"pinned", value_or_none(holds.pins, image.image)}});
    if (image.image_stream_bytes) images.back()["image_stream_bytes"] = *image.image_stream_bytes;
  }
  return {{"images", std::move(images)}, {"other_bytes", stored.other_bytes}};
}

std::string state_of(const Digest& image, const Holds& holds) {
  std::vector<std::string> words;
  if (holds.mounts.contains(image)) words.emplace_back("mounted");
  if (holds.pins.contains(image)) words.emplace_back("pinned");
  return words.empty() ? "-" : joined(words);
}

// Names that lead to another image by now are left out if it has one that leads to it.
std::vector<const fuse::OpenedImage*> shown_names(const fuse::StoredImage& image) {
  std::vector<const fuse::OpenedImage*> shown;
  for (const auto& name : image.names)
    if (name.current) shown.push_back(&name);
  if (shown.empty()) shown.push_back(&image.names.front());
  return shown;
}

ImageNames names_in(const fuse::StoredImages& stored) {
  std::vector<std::string> references;
  for (const auto& image : stored.images)
    for (const auto* name : shown_names(image)) references.push_back(name_of(*name));
  return ImageNames(references);
}

void print(std::ostream& out, const fuse::StoredImages& stored, const Holds& holds) {
  const auto names = names_in(stored);
  std::vector<std::vector<std::string>> rows{
      {"IMAGE", "DIGEST", "SIZE", "HERE", "ITS OWN", "LAST USED (UTC)", "STATE"}};
  for (const auto& image : stored.images) {
    const auto size = image.image_stream_bytes;
    for (const auto* name : shown_names(image))
      rows.push_back({names.of(name_of(*name)), image.image.to_string().substr(0, 19), size ? human_bytes(*size) : "?",
                      human_bytes(size ? std::min(*size, image.disk_bytes) : image.disk_bytes),
                      human_bytes(image.own_bytes), rfc3339(name->last_used).substr(0, 16),
                      state_of(image.image, holds)});
  }
  if (rows.size() == 1)
    out << "no image is in the store\n";
  else
    print_table(out, rows);
  if (stored.other_bytes != 0)
    out << fmt::format("{} of layers of no image that is known\n", human_bytes(stored.other_bytes));
}

void run_list(const Context& context) {
  auto local = context.local_index();
  const auto stored = fuse::find_stored_images(daemon_paths(context), local);
  const auto holds = find_holds(context);
  if (context.global.json) return context.print_json(to_json(stored, holds));
  print(context.out, stored, holds);
}

// By digest, or by a name as it was typed when the image was opened; asks no registry.
Digest find_image(const Context& context, const std::vector<fuse::OpenedImage>& opened, const std::string& typed) {
  const auto spec = Digest::try_parse(typed) ? fuse::ImageSpec{} : image_spec(context, typed);
  const auto digest = spec.reference.empty() ? Digest::try_parse(typed) : oci::Reference::parse(typed).digest;
  std::vector<std::string> names;
  for (const auto& one : opened) {
    const bool is_named = one.current && one.platform == spec.platform && one.reference == spec.reference;
    if (digest ? one.image == *digest : is_named) return one.image;
    names.push_back(name_of(one));
  }
  fail<NotFound>("{}: no such image was opened here{}; `varve images` lists what is in the store", typed,
                 did_you_mean(typed, std::move(names), 1));
}

void refuse_pinned(const Holds& holds, const Digest& image, const std::string& typed) {
  const auto pins = holds.pins.find(image);
  if (pins == holds.pins.end()) return;
  fail<Error>(
      "{}: it is pinned as {}; --force takes it out of the store all the same: the promise stays, and it is fetched "
      "again when it is needed",
      typed, joined(pins->second));
}

void run_remove(Context& context, const ImagesToRemove& arguments) {
  const auto opened = fuse::OpenedImages(context.global.root).list();
  const auto holds = find_holds(context);
  std::vector<Digest> images;  // all are looked at before the first goes
  for (const auto& typed : arguments.images) {
    images.push_back(find_image(context, opened, typed));
    if (!arguments.force) refuse_pinned(holds, images.back(), typed);
    if (const auto mounts = holds.mounts.find(images.back()); mounts != holds.mounts.end())
      fail<Error>("{}: it is mounted ({}); unmount it, or end the session or whatever holds it, first", typed,
                  joined(mounts->second));
  }
  auto daemon = connect_or_start_daemon(context);
  auto removed = nlohmann::json::array();
  std::uint64_t freed = 0;
  std::uint64_t busy = 0;
  for (const auto& image : images) {
    const auto result = daemon.remove_image(image);
    freed += result.freed_bytes;
    busy += result.busy_layers;
    removed.push_back({{"image", image.to_string()},
                       {"freed_bytes", result.freed_bytes},
                       {"removed_layers", result.removed_layers},
                       {"busy_layers", result.busy_layers}});
  }
  if (context.global.json) {
    context.print_json({{"removed", std::move(removed)}, {"freed_bytes", freed}});
  } else {
    context.out << fmt::format("{} freed; what other images share stays\n", human_bytes(freed));
  }
  if (busy != 0)
    throw TemporaryError(fmt::format("{} of the layers are being read or fetched (a pull?) and stay; try again", busy));
}

}  // namespace

void add_images_command(CLI::App& app, Context& context) {
  auto* images = app.add_subcommand("images", "Shows which images are in the store of this machine");
  images->require_subcommand(0, 1);
  images->footer(
      "Examples:\n  varve images\n  varve images --json\n  varve images rm oci:image:v1\n\n"
      "SIZE is the image unpacked, HERE what of it is on this disk, ITS OWN what no other image shares: what `images "
      "rm` frees.\n"
      "A name that has meant another image since is shown with its digest.");
  images->callback([images, &context] {
    if (images->get_subcommands().empty()) run_list(context);
  });
  const auto removal = std::make_shared<ImagesToRemove>();
  auto* rm = images->add_subcommand("rm", "Takes images out of the store; only what no other image shares goes");
  rm->add_option("IMAGE", removal->images, "As it was opened, or its digest; several may be given")->required();
  rm->add_flag("--force", removal->force, "Also what is pinned");
  rm->footer(
      "Examples:\n  varve images rm registry.example/team/notebook:v1\n"
      "  varve images rm sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n\n"
      "What is mounted, or used by a session, is refused. An index that was made here stays, so that the image is "
      "mounted again without being indexed.");
  rm->callback([&context, removal] { run_remove(context, *removal); });
}

}  // namespace varve::cli
