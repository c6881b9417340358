#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "analyzer/report/text.h"
#include "cli/base/text.h"
#include "cli/command.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/progress.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"
#include "indexer/known_pins.h"
#include "indexer/pins.h"
#include "indexer/wanted_pins.h"

namespace varve::cli {
namespace {

using indexer::place_of;
using nlohmann::json;

constexpr unsigned kCheckJobs = 8;  // mostly waiting for a registry

std::filesystem::path layout_dir(const oci::Reference& reference) {
  return reference.kind == oci::Reference::Kind::kLayout ? reference.layout_dir : std::filesystem::path();
}

json to_json(const indexer::Pin& pin, const std::string& place) {
  json object{{"place", place},   {"image", pin.image.digest.to_string()},
              {"name", pin.name}, {"since", pin.since},
              {"by", pin.by},     {"reason", pin.reason}};
  object["index"] = pin.index ? json(pin.index->to_string()) : json(nullptr);
  object["signatures"] = json::array();
  for (const auto& signature : pin.signatures) object["signatures"].push_back(signature.to_string());
  return object;
}

using indexer::WantedPin;

struct Added {
  indexer::Pin pin;
  std::string place;
  bool added = false;         // false: it was pinned before, and says something new now
  bool indexed_here = false;  // this machine has an index; whether one lies beside the image the pin says
  std::string typed;
};

std::string lack_of_index(const Added& wanted) {
  if (wanted.pin.index) return {};
  return fmt::format(" (without an index: {}; `varve index {}` puts one beside the image, pin it again then)",
                     wanted.indexed_here ? "it is on this machine only" : "there is none", wanted.typed);
}

// What the promise names and says; whole before anything is written, so that a list with a wrong image pins nothing.
Added look_at(const Context& context, const WantedPin& arguments) {
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
  indexer::promise_what_is_there(*image.repository, image, pin);
  Progress none;
  const auto check = indexer::check_pins(*image.repository, {pin}, false, kCheckJobs, {none, context.cancel}).front();
  if (!check.problems.empty())
    fail<CorruptData>("{}: it is not whole, so it was not pinned: {}", arguments.image, check.problems.front());
  auto local = context.local_index();
  return {.pin = std::move(pin),
          .place = place_of(reference),
          .indexed_here = local.find_index(image).has_value(),
          .typed = image.typed()};
}

void write_pin(const Context& context, Added& wanted) {
  const auto reference = oci::Reference::parse(wanted.place);
  const auto lock = indexer::KnownPins::lock(context.global.root);
  std::vector<indexer::Pin> after;
  indexer::change_pins(*oci::open_repository(reference, context.global.registry), layout_dir(reference),
                       [&](std::vector<indexer::Pin>& pins) {
                         wanted.added = indexer::add_promise(pins, wanted.pin);
                         after = pins;
                       });
  indexer::KnownPins(context.global.root).remember(wanted.place, after);
}

void add_pins(const Context& context, const WantedPin& arguments, const std::string& file) {
  if (file.empty() && arguments.image.empty())
    fail<UsageError>("pin add: say which image, or a list of them with --from");
  if (!file.empty() && !(arguments.name.empty() && arguments.reason.empty()))
    fail<UsageError>("pin add: with --from the list says name and reason of each image");
  std::vector<Added> wanted;
  for (const auto& one : file.empty() ? std::vector{arguments} : indexer::read_wanted_pins(file, arguments.image))
    wanted.push_back(look_at(context, one));
  auto pins = json::array();
  for (auto& one : wanted) {
    write_pin(context, one);
    pins.push_back(to_json(one.pin, one.place));
    pins.back()["added"] = one.added;
    if (context.global.json) continue;
    context.out << fmt::format("{} {}{}\n", one.added ? "pinned" : "was pinned since " + one.pin.since + ":",
                               one.pin.image.digest.to_string(), lack_of_index(one));
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

// Looks at each place, whatever is wrong with others. Returns those that could not be read; the error of the only one
// that was asked for is the command's.
json visit_places(Context& context, const std::vector<std::string>& given,
                  const std::function<void(const std::string& place)>& visit) {
  const auto places = wanted_places(context, given);
  auto unreadable = json::array();
  for (const auto& place : places) {
    try {
      visit(place);
    } catch (const Cancelled&) {
      throw;
    } catch (const std::exception& error) {
      if (given.size() == 1) throw;
      context.exit_status = 3;
      context.err << fmt::format("{}: its pins were not read: {}\n", printable(place), printable(error.what()));
      unreadable.push_back({{"place", place}, {"problem", error.what()}});
    }
  }
  return unreadable;
}

void list_pins(Context& context, const std::vector<std::string>& given) {
  auto pins = json::array();
  std::vector<std::vector<std::string>> rows{{"NAME", "IMAGE", "SINCE", "BY", "WHERE", "REASON"}};
  auto unreadable = visit_places(context, given, [&](const std::string& place) {
    for (const auto& pin : indexer::read_pins(*open_place(context, place))) {
      pins.push_back(to_json(pin, place));
      rows.push_back({printable(pin.name), pin.image.digest.to_string().substr(0, 19), pin.since.substr(0, 10),
                      printable(pin.by), printable(place), printable(pin.reason)});
    }
  });
  if (context.global.json)
    return context.print_json({{"pins", std::move(pins)}, {"unreadable", std::move(unreadable)}});
  print_table(context.out, rows);
}

struct PinCheckArguments {
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
    checks = indexer::check_pins(*repository, pins, deep, kCheckJobs, {progress, context.cancel});
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
  for (const auto& pin : indexer::lost_pins(indexer::KnownPins(context.global.root).pins_of(place), pins)) {
    report(to_json(pin, place),
           {fmt::format("this machine knows of it, and the list there names it no more; `varve pin "
                        "repair {}` puts it back, `varve pin rm {}@{}` forgets it",
                        place, place, pin.image.digest.to_string())});
  }
}

void check_pins(Context& context, const PinCheckArguments& arguments) {
  auto checks = json::array();
  std::size_t broken = 0;
  auto unreadable = visit_places(context, arguments.places, [&](const std::string& place) {
    check_place(context, place, arguments.deep, checks, broken);
  });
  if (broken != 0) context.exit_status = 3;
  const auto count = checks.size();
  const auto unread = unreadable.empty() ? "" : fmt::format(", {} places not read", unreadable.size());
  if (context.global.json)
    return context.print_json(
        {{"pins", std::move(checks)}, {"unreadable", std::move(unreadable)}, {"deep", arguments.deep}});
  context.out << fmt::format("{} checked{}, {} not whole{}\n", report::count_text(count, "pin", "pins"),
                             arguments.deep ? ", every byte" : "", broken, unread);
}

struct RemoveArguments {
  std::string image, name, by;
  bool all = false;
};

std::string texts_of(const std::vector<indexer::Pin>& pins) {
  std::string all;
  for (const auto& pin : pins) all += (all.empty() ? "" : ", ") + indexer::promise_text(pin);
  return all;
}

// Which promises the words mean. Throws UsageError, naming them all, if several and not all of one image are asked for.
class Meant {
 public:
  Meant(const Context& context, const RemoveArguments& arguments) : arguments_(arguments) {
    const auto reference = oci::Reference::parse(arguments.image);
    digest_ = reference.digest;
    // With a name the image itself may be gone. A registry's reference without a tag has one all the same.
    const bool has_tag =
        reference.tag && (reference.kind == oci::Reference::Kind::kLayout || *reference.tag != "latest");
    if (digest_ || (!arguments.name.empty() && !has_tag)) return;
    try {
      digest_ = context.open_image(arguments.image).digest();
    } catch (const NotFound&) {
      if (arguments.name.empty()) throw;
    }
  }

  std::vector<indexer::Pin> find_in(const std::vector<indexer::Pin>& pins) const {
    std::vector<indexer::Pin> meant;
    std::ranges::copy_if(pins, std::back_inserter(meant), [&](const indexer::Pin& pin) {
      return (!digest_ || pin.image.digest == *digest_) && (arguments_.name.empty() || pin.name == arguments_.name) &&
             (arguments_.by.empty() || pin.by == arguments_.by);
    });
    const bool one_image = std::ranges::all_of(
        meant, [&](const indexer::Pin& pin) { return pin.image.digest == meant.front().image.digest; });
    if (meant.size() <= 1 || (arguments_.all && one_image)) return meant;
    fail<UsageError>("{}: {} promises are meant: {}; say which with --name, --by or @DIGEST{}", arguments_.image,
                     meant.size(), texts_of(meant), one_image ? ", or --all" : "");
  }

 private:
  const RemoveArguments& arguments_;
  std::optional<Digest> digest_;
};

// Whoever frees an image must know that nobody else's promise was lost with the list.
void check_nothing_lost(const std::vector<indexer::Pin>& lost, const std::string& place) {
  if (lost.empty()) return;
  fail<CorruptData>(
      "{}: the list of pins there names {} no more, which this machine knows of; nothing was changed; `varve pin "
      "repair {}` puts "
      "it back, `varve pin rm {}@{}` forgets it",
      place, indexer::promise_text(lost.front()), place, place, lost.front().image.digest.to_string());
}

void remove_pin(const Context& context, const RemoveArguments& arguments) {
  const auto reference = oci::Reference::parse(arguments.image);
  const auto place = place_of(reference);
  const Meant meant(context, arguments);
  const auto lock = indexer::KnownPins::lock(context.global.root);
  indexer::KnownPins known(context.global.root);
  const auto remembered = known.pins_of(place);
  std::vector<indexer::Pin> taken, after, others;
  const auto repository = oci::open_repository(reference, context.global.registry);
  indexer::change_pins(*repository, layout_dir(reference), [&](std::vector<indexer::Pin>& pins) {
    const auto lost = indexer::lost_pins(remembered, pins);
    taken = meant.find_in(pins);
    const bool listed = !taken.empty();
    if (!listed) taken = meant.find_in(lost);
    std::erase_if(pins, [&](const indexer::Pin& pin) {
      return std::ranges::any_of(taken, [&](const auto& one) { return indexer::is_same_promise(pin, one); });
    });
    after = others = pins;
    if (taken.empty()) return;
    std::erase_if(others, [&](const indexer::Pin& pin) { return pin.image.digest != taken.front().image.digest; });
    if (listed && others.empty()) check_nothing_lost(lost, place);
  });
  if (taken.empty())
    fail<NotFound>("{}: it is not pinned{}; `varve pin ls` shows what is", arguments.image,
                   arguments.name.empty() && arguments.by.empty() ? "" : " so");
  known.remember(place, after, taken);
  const auto digest = taken.front().image.digest.to_string();
  if (context.global.json)
    return context.print_json({{"removed", json::array({arguments.name.empty() ? digest : arguments.name})}});
  if (others.empty()) {
    context.out << fmt::format("{} is pinned no more\n", digest);
  } else {
    context.out << fmt::format("{} stays pinned: {}\n", digest, texts_of(others));
  }
}

void repair_list(Context& context, const std::string& where) {
  const auto reference = oci::Reference::parse(where);
  const auto place = place_of(reference);
  const auto lock = indexer::KnownPins::lock(context.global.root);
  indexer::KnownPins known(context.global.root);
  const auto repository = oci::open_repository(reference, context.global.registry);
  const auto repair = indexer::repair_pins(*repository, layout_dir(reference), known.pins_of(place));
  known.remember(place, indexer::read_pins(*repository));
  if (!repair.gone.empty()) context.exit_status = 3;
  if (context.global.json) {
    auto restored = json::array(), gone = json::array(), relisted = json::array();
    for (const auto& pin : repair.restored) restored.push_back(to_json(pin, place));
    for (const auto& pin : repair.gone) gone.push_back(to_json(pin, place));
    for (const auto& pin : repair.relisted) relisted.push_back(to_json(pin, place));
    return context.print_json({{"restored", std::move(restored)},
                               {"gone", std::move(gone)},
                               {"relisted", std::move(relisted)},
                               {"set_aside", repair.set_aside}});
  }
  for (const auto& pin : repair.restored) context.out << fmt::format("restored {}\n", indexer::promise_text(pin));
  for (const auto& pin : repair.gone)
    context.out << fmt::format(
        "not restored {}: the image is not there; bring it back, or `varve pin rm {}@{}` forgets it\n",
        indexer::promise_text(pin), place, pin.image.digest.to_string());
  for (const auto& pin : repair.relisted)
    context.out << fmt::format("the image of {} names its index {} again\n", indexer::promise_text(pin),
                               pin.index->to_string());
  if (!repair.set_aside.empty())
    context.out << fmt::format("what lay in the list's place has the tag {} now\n", repair.set_aside);
  context.out << fmt::format("{} restored, {} not\n", report::count_text(repair.restored.size(), "pin", "pins"),
                             repair.gone.size());
}

}  // namespace

void add_pin_command(CLI::App& app, Context& context) {
  auto* pin = app.add_subcommand("pin", "Promises that an image stays mountable; checks what was promised");
  pin->require_subcommand(1);
  pin->footer(
      "Example:\n  varve pin add oci:images:v143 --reason 'notebooks of 2026-11'\n  varve pin check oci:images");

  const auto added = std::make_shared<WantedPin>();
  if (const char* user = std::getenv("USER")) added->by = user;
  auto* add = pin->add_subcommand("add", "Pins an image where it lies");
  const auto list = std::make_shared<std::string>();
  add->add_option(
      "IMAGE", added->image,
      "The image: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]; with --from the repository that the list speaks of");
  add->add_option("--from", *list, "A list of images to pin, with reasons and owners (docs/guide/pins-and-export.md)")
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

  const auto checked = std::make_shared<PinCheckArguments>();
  auto* check = pin->add_subcommand("check", "Proves that pinned images are whole; exit status 3 if one is not");
  check->add_option("REPOSITORY", checked->places,
                    "oci:DIR or [docker://]HOST/REPO; all that this machine knows if not said");
  check->add_flag("--deep", checked->deep, "Read every byte and check its digest");
  check->footer("Example:\n  varve pin check --deep oci:images");
  check->callback([&context, checked] { check_pins(context, *checked); });

  const auto repaired = std::make_shared<std::string>();
  auto* repair = pin->add_subcommand(
      "repair",
      "Puts back what this machine knows of and the list lacks; writes it anew if it is damaged or overwritten");
  repair->add_option("REPOSITORY", *repaired, "oci:DIR or [docker://]HOST/REPO")->required();
  repair->footer(
      "Example:\n  varve pin repair oci:images\n\n"
      "Exit status 3 if a pinned image is not there any more.");
  repair->callback([&context, repaired] { repair_list(context, *repaired); });

  const auto removed = std::make_shared<RemoveArguments>();
  auto* rm = pin->add_subcommand("rm", "Takes one promise back; removes nothing else");
  rm->add_option("IMAGE", removed->image, "The image, by tag or digest; with --name its repository is enough")
      ->required();
  rm->add_option("--name", removed->name, "The pin of this name; must be said, or --by, if the image has several");
  rm->add_option("--by", removed->by, "The pin that this one made");
  rm->add_flag("--all", removed->all, "All pins of the image that are meant");
  rm->footer(
      "Example:\n  varve pin rm oci:images:v1\n  varve pin rm oci:images --name v1 --by ann\n"
      "  varve pin rm oci:images:v1 --all\n\n"
      "An image that was pinned several times is free when the last promise is taken back.");
  rm->callback([&context, removed] { remove_pin(context, *removed); });
}

}  // namespace varve::cli
