#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/text.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/progress.h"
#include "core/base/rfc3339.h"
#include "core/base/toml.h"
#include "core/index/image_index.h"
#include "indexer/known_pins.h"
#include "indexer/pins.h"

namespace varve::cli {
namespace {

using nlohmann::json;

constexpr unsigned kCheckJobs = 8;  // mostly waiting for a registry

// A repository as users write it, without tag: "oci:/srv/notebooks", "registry.example/team/notebook".
std::string place_of(oci::Reference reference) {
  reference.tag.reset();
  reference.digest.reset();
  auto text = reference.to_string();
  return reference.kind == oci::Reference::Kind::kLayout
             ? text
             : text.substr(0, text.rfind(':') > text.rfind('/') ? text.rfind(':') : text.npos);
}

std::filesystem::path layout_dir(const oci::Reference& reference) {
  return reference.kind == oci::Reference::Kind::kLayout ? reference.layout_dir : std::filesystem::path();
}

json to_json(const indexer::Pin& pin, const std::string& place) {
  json object{{"place", place},   {"image", pin.image.digest.to_string()},
              {"name", pin.name}, {"since", pin.since},
              {"by", pin.by},     {"reason", pin.reason}};
  object["index"] = pin.index ? json(pin.index->to_string()) : json(nullptr);
  return object;
}

struct AddArguments {
  std::string image, name, by, reason;
};

struct Added {
  indexer::Pin pin;
  std::string place;
  bool added = false;  // false: it was pinned before, and says something new now
};

// What the promise names and says; whole before anything is written, so that a list with a wrong image pins nothing.
Added look_at(const Context& context, const AddArguments& arguments) {
  const auto reference = oci::Reference::parse(arguments.image);
  const auto image = context.open_image(arguments.image);
  indexer::Pin pin;
  pin.image.media_type = image.document.descriptor.media_type;
  pin.image.digest = image.digest();
  pin.image.size = image.document.descriptor.size;
  pin.image.platform = image.config.platform;
  pin.name = arguments.name.empty() ? reference.tag.value_or("") : arguments.name;
  pin.since = rfc3339(std::time(nullptr));
  pin.by = arguments.by;
  pin.reason = arguments.reason;
  if (const auto index = index::find_index(*image.repository, image)) pin.index = index->manifest.digest;
  return {.pin = std::move(pin), .place = place_of(reference)};
}

void write_pin(const Context& context, Added& wanted) {
  const auto reference = oci::Reference::parse(wanted.place);
  std::vector<indexer::Pin> after;
  indexer::change_pins(*oci::open_repository(reference, context.global.registry), layout_dir(reference),
                       [&](std::vector<indexer::Pin>& pins) {
                         const auto old =
                             std::ranges::find(pins, wanted.pin.image.digest,
                                               [](const indexer::Pin& other) { return other.image.digest; });
                         wanted.added = old == pins.end();
                         if (wanted.added) {
                           pins.push_back(wanted.pin);
                         } else {
                           wanted.pin.since = old->since;  // the promise is as old as it was
                           *old = wanted.pin;
                         }
                         after = pins;
                       });
  indexer::KnownPins(context.global.root).remember(wanted.place, after);
}

// The [[pin]] tables of a file (docs/format-pins.md). An image that begins with ":" or "@" is one of the repository
// `where`.
std::vector<AddArguments> read_wanted(const std::string& file, const std::string& where) {
  const auto bytes = read_file(file, kMaxTomlBytes);
  const auto root = parse_toml(as_text(bytes), file);
  toml_only_keys(root, {"pin"}, file);
  const auto tables = toml_tables(root, "pin", file);
  if (tables.empty() || tables.size() > indexer::kMaxPins)
    fail<CorruptData>("{}: {} [[pin]] tables; 1 to {} are allowed", file, tables.size(), indexer::kMaxPins);
  std::vector<AddArguments> wanted;
  for (const auto* table : tables) {
    toml_only_keys(*table, {"image", "name", "reason", "owner"}, file);
    const auto said = [&](std::string_view key) {
      auto text = toml_string(*table, key, file, true);
      if (text.find_first_not_of(" \t\n") == std::string::npos)
        fail<CorruptData>("{}: '{}' is empty: who finds the pin must know", toml_place(file, *table), key);
      return text;
    };
    AddArguments one{.image = said("image"),
                     .name = toml_string(*table, "name", file),
                     .by = said("owner"),
                     .reason = said("reason")};
    const bool relative = one.image.starts_with(':') || one.image.starts_with('@');
    if (relative && where.empty())
      fail<UsageError>("{}: '{}' is an image of the repository named on the command line, and none is named",
                       toml_place(file, *table), one.image);
    if (relative) one.image = place_of(oci::Reference::parse(where)) + one.image;
    wanted.push_back(std::move(one));
  }
  return wanted;
}

void add_pins(const Context& context, const AddArguments& arguments, const std::string& file) {
  if (file.empty() && arguments.image.empty())
    fail<UsageError>("pin add: say which image, or a list of them with --from");
  if (!file.empty() && !(arguments.name.empty() && arguments.reason.empty()))
    fail<UsageError>("pin add: with --from the list says name and reason of each image");
  std::vector<Added> wanted;
  for (const auto& one : file.empty() ? std::vector{arguments} : read_wanted(file, arguments.image))
    wanted.push_back(look_at(context, one));
  auto pins = json::array();
  for (auto& one : wanted) {
    write_pin(context, one);
    pins.push_back(to_json(one.pin, one.place));
    pins.back()["added"] = one.added;
    if (context.global.json) continue;
    context.out << fmt::format("{} {}{}\n", one.added ? "pinned" : "was pinned since " + one.pin.since + ":",
                               one.pin.image.digest.to_string(),
                               one.pin.index ? "" : " (without an index: `varve index` makes one, pin it again then)");
  }
  if (context.global.json)
    context.print_json({{"pins", std::move(pins)}, {"added", std::ranges::any_of(wanted, &Added::added)}});
}

std::vector<std::string> wanted_places(const Context& context, const std::vector<std::string>& given) {
  std::vector<std::string> places;
  for (const auto& place : given) places.push_back(place_of(oci::Reference::parse(place)));
  return given.empty() ? indexer::KnownPins(context.global.root).places() : places;
}

std::shared_ptr<oci::Repository> open_place(const Context& context, const std::string& place) {
  return oci::open_repository(oci::Reference::parse(place), context.global.registry);
}

void list_pins(const Context& context, const std::vector<std::string>& given) {
  auto pins = json::array();
  std::vector<std::vector<std::string>> rows{{"NAME", "IMAGE", "SINCE", "BY", "WHERE", "REASON"}};
  for (const auto& place : wanted_places(context, given)) {
    for (const auto& pin : indexer::read_pins(*open_place(context, place))) {
      pins.push_back(to_json(pin, place));
      rows.push_back({printable(pin.name), pin.image.digest.to_string().substr(0, 19), pin.since.substr(0, 10),
                      printable(pin.by), printable(place), printable(pin.reason)});
    }
  }
  if (context.global.json) return context.print_json({{"pins", std::move(pins)}});
  print_table(context.out, rows);
}

struct CheckArguments {
  std::vector<std::string> places;
  bool deep = false;
};

void check_place(const Context& context, const std::string& place, bool deep, json& out, std::size_t& broken) {
  const auto repository = open_place(context, place);
  const auto pins = indexer::read_pins(*repository);
  Progress progress;
  std::vector<indexer::PinCheck> checks;
  {
    const ProgressLine line(progress, "check pins", context.global.quiet || !deep);
    checks = indexer::check_pins(*repository, pins, deep, kCheckJobs, progress, context.cancel);
  }
  const auto report = [&](json object, const std::vector<std::string>& problems) {
    object["ok"] = problems.empty();
    object["problems"] = problems;
    if (!problems.empty()) ++broken;
    if (!context.global.json) {
      for (const auto& problem : problems)
        context.out << fmt::format("{} {} {}: {}\n", place, printable(object["name"].get<std::string>()),
                                   object["image"].get<std::string>().substr(0, 19), printable(problem));
    }
    out.push_back(std::move(object));
  };
  for (const auto& check : checks) {
    auto object = to_json(check.pin, place);
    object["bytes"] = check.bytes;
    report(std::move(object), check.problems);
  }
  for (const auto& digest : indexer::KnownPins(context.global.root).pins_of(place)) {
    if (std::ranges::none_of(pins, [&](const indexer::Pin& pin) { return pin.image.digest.to_string() == digest; }))
      report({{"place", place}, {"image", digest}, {"name", ""}},
             {"this machine pinned it, and the list there names it no more; pin it again, or `varve pin rm` it"});
  }
}

void check_pins(Context& context, const CheckArguments& arguments) {
  auto checks = json::array();
  std::size_t broken = 0;
  for (const auto& place : wanted_places(context, arguments.places))
    check_place(context, place, arguments.deep, checks, broken);
  if (broken != 0) context.exit_status = 3;
  const auto count = checks.size();
  if (context.global.json) return context.print_json({{"pins", std::move(checks)}, {"deep", arguments.deep}});
  context.out << fmt::format("{} pins checked{}, {} not whole\n", count, arguments.deep ? ", every byte" : "", broken);
}

void remove_pin(const Context& context, const std::string& image, const std::string& name) {
  const auto reference = oci::Reference::parse(image);
  const auto repository = oci::open_repository(reference, context.global.registry);
  // The image itself may be gone; what it was is in the list or on this machine.
  const auto digest = reference.digest ? *reference.digest
                      : !name.empty()  ? Digest()
                                       : context.open_image(image).digest();
  bool found = false;
  std::vector<indexer::Pin> after;
  indexer::change_pins(*repository, layout_dir(reference), [&](std::vector<indexer::Pin>& pins) {
    found = std::erase_if(pins, [&](const indexer::Pin& pin) {
              return name.empty() ? pin.image.digest == digest : pin.name == name;
            }) != 0;
    after = pins;
  });
  indexer::KnownPins known(context.global.root);
  const auto remembered = known.pins_of(place_of(reference));
  if (!found && std::ranges::find(remembered, digest.to_string()) == remembered.end())
    fail<NotFound>("{}: it is not pinned; `varve pin ls` shows what is", image);
  known.remember(place_of(reference), after);
  if (context.global.json) context.print_json({{"removed", json::array({name.empty() ? digest.to_string() : name})}});
}

}  // namespace

void add_pin_command(CLI::App& app, Context& context) {
  auto* pin = app.add_subcommand("pin", "Promises that an image stays mountable; checks what was promised");
  pin->require_subcommand(1);
  pin->footer(
      "Example:\n  varve pin add oci:images:v143 --reason 'notebooks of 2026-11'\n  varve pin check oci:images");

  const auto added = std::make_shared<AddArguments>();
  if (const char* user = std::getenv("USER")) added->by = user;
  auto* add = pin->add_subcommand("add", "Pins an image where it lies");
  const auto list = std::make_shared<std::string>();
  add->add_option(
      "IMAGE", added->image,
      "The image: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]; with --from the repository that the list speaks of");
  add->add_option("--from", *list, "A list of images to pin, with reasons and owners (docs/format-pins.md)")
      ->type_name("FILE");
  add->add_option("--name", added->name, "What people call it; its tag if not said");
  add->add_option("--by", added->by, "Who promises; $USER if not said");
  add->add_option("--reason", added->reason, "Why");
  add->footer(
      "Example:\n  varve pin add registry.example/team/notebook:v143 --by notebooks-team --reason 'release 143'\n  "
      "varve pin add --from images/notebook/pins.toml oci:images\n\n"
      "The list is an OCI index under the tag varve-pins beside the images, so that a registry keeps what it names.");
  add->callback([&context, added, list] { add_pins(context, *added, *list); });

  const auto listed = std::make_shared<std::vector<std::string>>();
  auto* ls = pin->add_subcommand("ls", "Lists pins: of these repositories, or of all that this machine knows");
  ls->add_option("REPOSITORY", *listed, "oci:DIR or [docker://]HOST/REPO");
  ls->footer("Example:\n  varve pin ls oci:images --json");
  ls->callback([&context, listed] { list_pins(context, *listed); });

  const auto checked = std::make_shared<CheckArguments>();
  auto* check = pin->add_subcommand("check", "Proves that pinned images are whole; exit status 3 if one is not");
  check->add_option("REPOSITORY", checked->places,
                    "oci:DIR or [docker://]HOST/REPO; all that this machine knows if not said");
  check->add_flag("--deep", checked->deep, "Read every byte and check its digest");
  check->footer("Example:\n  varve pin check --deep oci:images");
  check->callback([&context, checked] { check_pins(context, *checked); });

  const auto removed = std::make_shared<AddArguments>();
  auto* rm = pin->add_subcommand("rm", "Takes a promise back; removes nothing else");
  rm->add_option("IMAGE", removed->image, "The image, by tag or digest; with --name its repository")->required();
  rm->add_option("--name", removed->name, "The pin of this name");
  rm->footer("Example:\n  varve pin rm oci:images:v1\n  varve pin rm oci:images --name v1");
  rm->callback([&context, removed] { remove_pin(context, removed->image, removed->name); });
}

}  // namespace varve::cli
