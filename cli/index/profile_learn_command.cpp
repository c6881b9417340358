#include <algorithm>
#include <charconv>
#include <map>
#include <ostream>
#include <set>

#include "analyzer/packages/inventory.h"
#include "analyzer/prune/probe/learned_starts.h"
#include "analyzer/report/window.h"
#include "cli/base/open_image.h"
#include "cli/base/text.h"
#include "cli/index/profile_command.h"
#include "cli/session/recorded_start.h"
#include "cli/trust/signing.h"
#include "cli/usage/usage_database.h"
#include "core/base/errors.h"
#include "core/base/files/scratch_file.h"
#include "core/base/log.h"
#include "core/base/progress.h"
#include "core/base/text/calendar.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/strings.h"
#include "core/base/text/units.h"
#include "core/base/threads/parallel.h"
#include "core/index/publish_index.h"
#include "indexer/packs/carry_packs.h"
#include "indexer/packs/group_starts.h"

namespace varve::cli {
namespace {

using index::StartGroup;
using indexer::PackRange;
using indexer::StartReads;
using nlohmann::json;
using prune::LearnedStart;

constexpr std::chrono::seconds kUnattended{20};   // for a command that may go on for ever
constexpr std::chrono::seconds kKernelGrace{30};  // for who starts a kernel, and ends it when it does not reply
constexpr std::size_t kMaxReason = 300;
constexpr std::size_t kRecordings = 2;  // of each start

struct LearnArguments {
  std::string image, previous, database, window = "90d", budget = "3%";
  bool with_usage = false;
  std::size_t top = 50;
  std::uint64_t seconds = 120;
  unsigned jobs = 0;
  DeviceOptions devices;
  SigningOptions signing;
};

// "3%" or "2.5".
double parse_share(std::string text) {
  if (text.ends_with('%')) text.pop_back();
  double percent = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), percent);
  if (error != std::errc() || end != text.data() + text.size() || !(percent > 0 && percent <= 100))
    fail<UsageError>("--budget '{}': a share of the compressed image, above 0 and up to 100, as in 3%",
                     printable(text));
  return percent / 100;
}

StartGroup::Kind kind_of(const LearnedStart& start) {
  return start.what == LearnedStart::What::kImport ? StartGroup::Kind::kImport : StartGroup::Kind::kProgram;
}

// Something that was left out, and why.
struct LeftOut {
  std::string name, why;
};

// What is worth a pack, by rank: what was recorded, or a pack that is there.
struct Candidate {
  StartReads reads;
  std::optional<StartGroup> carried;
};

class Learner {
 public:
  Learner(Context& context, const LearnArguments& arguments)
      : context_(context),
        arguments_(arguments),
        share_(parse_share(arguments.budget)),
        opened_(open_indexed(context, arguments.image, index::IndexPlace::kRepository)),
        layers_(opened_.image().manifest.layers),
        places_(opened_.tree(), indexer::first_places(layers_)),
        scratch_(context.global.root / "tmp", "learn"),
        writer_(indexer::layer_streams(opened_), scratch_.path(), arguments.jobs) {}

  void run() {
    std::optional<IndexSigner> signer;
    if (!arguments_.signing.key.empty()) signer.emplace(arguments_.signing);  // asks for a passphrase before the work
    find_devices(context_, arguments_.devices, "auto");  // one that is not there would fail each start by itself
    const auto starts = wanted_starts();
    auto carried = arguments_.previous.empty() ? std::vector<StartGroup>() : carry();
    auto candidates = learn(starts, carried);
    const auto groups = within_budget(std::move(candidates));
    const auto packs = indexer::list_packs(groups, layers_);
    const auto blobs = index::publish_packs(opened_.image(), opened_.index(), packs, opened_.local(),
                                            *opened_.image().repository, context_.cancel);
    std::vector<SignedManifest> done;
    if (signer)
      done = signer->sign_further_index(opened_.image(), opened_.index(), blobs.manifest.digest,
                                        *opened_.image().repository);
    else if (const auto warning = unsigned_warning(context_, arguments_.image); !warning.empty())
      log::warn("{}", warning);
    report(groups, blobs.manifest.digest, done, signer ? &*signer : nullptr);
  }

 private:
  std::vector<LearnedStart> wanted_starts() const {
    const auto inventory = packages::read_inventory(opened_);
    const auto targets = prune::probe_targets(opened_, inventory, opened_.image().config);
    prune::LearnOptions options{.used = nullptr,
                                .top = arguments_.top,
                                .limit = std::chrono::seconds(arguments_.seconds),
                                .gpu = arguments_.devices.has_gpu()};
    std::optional<usage::Snapshot> used;
    if (arguments_.with_usage) {
      const auto database = open_existing_database(context_, arguments_.database);
      used = database->snapshot({.window = report::parse_window(arguments_.window, today_utc()), .image = {}});
      options.used = &*used;
    }
    auto starts = prune::starts_to_learn(targets, inventory, options);
    if (context_.tail.empty()) return starts;
    LearnedStart given{.what = LearnedStart::What::kCommand,
                       .name = prune::shell_text(context_.tail),
                       .words = context_.tail,
                       .ends = true};
    // Who names a command wants it: before imports, and once.
    std::erase_if(starts, [&](const LearnedStart& start) {
      return start.what != LearnedStart::What::kImport && start.name == given.name;
    });
    const auto place = std::ranges::find(starts, LearnedStart::What::kImport, &LearnedStart::what);
    starts.insert(place, std::move(given));
    return starts;
  }

  static const StartGroup* find(const std::vector<StartGroup>& groups, const LearnedStart& start) {
    const auto found = std::ranges::find_if(
        groups, [&](const StartGroup& group) { return group.kind == kind_of(start) && group.name == start.name; });
    return found == groups.end() ? nullptr : &*found;
  }

  // Groups of the previous image that are right as they are; those of starts that nobody wants now, too, as others
  // count on what they bring.
  std::vector<StartGroup> carry() {
    const auto previous = open_indexed(context_, arguments_.previous, index::IndexPlace::kRepository);
    const auto& loaded = previous.index();
    if (loaded.packs.empty()) {
      log::warn("{}: it has no start-up packs, so all are learnt", arguments_.previous);
      return {};
    }
    if (!loaded.judgement.vouched) {
      log::warn("{}: nobody vouches for its index, so no pack of it is taken: all are learnt", arguments_.previous);
      return {};
    }
    Progress progress;
    const ProgressLine line(progress, "compare", context_.global.quiet);
    return indexer::carry_from(previous, opened_, places_, writer_, {progress, context_.cancel});
  }

  // Places in the image; layers that it does not have cannot be in a recording of it.
  std::vector<PackRange> reads_of(const index::Profile& profile) const {
    std::vector<PackRange> reads;
    for (const auto& range : profile.ranges) {
      const auto layer = std::ranges::find(layers_, profile.layers.at(range.layer), &oci::Descriptor::digest);
      if (layer == layers_.end()) fail<CorruptData>("a recording names a layer that the image does not have");
      reads.push_back({std::uint32_t(layer - layers_.begin()), range.stream_range});
    }
    return reads;
  }

  std::vector<RecordedStart> record(const std::vector<const LearnedStart*>& starts) const {
    std::vector<RecordedStart> recordings(starts.size() * kRecordings);
    const auto image = by_digest(oci::Reference::parse(arguments_.image), opened_.digest());
    Progress progress;
    progress.expect(recordings.size());
    const ProgressLine line(progress, "learn", context_.global.quiet, ProgressUnit::kThings);
    const auto jobs = std::min<std::size_t>(jobs_or_cores(arguments_.jobs), recordings.size());
    parallel_for(recordings.size(), jobs, context_.cancel, [&](std::size_t i, const CancelFlag&) {
      const auto& start = *starts[i / kRecordings];
      std::chrono::seconds limit(arguments_.seconds);
      if (!start.ends) limit = std::min(limit, kUnattended);
      if (start.what == LearnedStart::What::kKernel) limit += kKernelGrace;
      recordings[i] = record_start(context_, image, start.words, arguments_.devices,
                                   scratch_.path() / fmt::format("{}.profile", i), limit);
      progress.add(1);
    });
    return recordings;
  }

  // "" if it did what it should.
  std::string failure(const LearnedStart& start, const RecordedStart& recorded) const {
    constexpr int kTimeIsUp = 124;
    if (start.is_fine(recorded.exit_status, recorded.out)) return "";
    if (recorded.exit_status == kTimeIsUp)
      return fmt::format("it did not end within {} s (--seconds)", arguments_.seconds);
    // Varve's own words may be several lines, of which the first says what was wrong.
    constexpr std::string_view kOwnWords = "varve: error: ";
    const auto own = recorded.err.rfind(kOwnWords);
    const auto said = own == recorded.err.npos
                          ? last_line(recorded.err)
                          : split(std::string_view(recorded.err).substr(own + kOwnWords.size()), "\n").front();
    return said.empty() ? fmt::format("exit status {}", recorded.exit_status) : visible(said, kMaxReason);
  }

  static StartReads::Turn turn_of(const LearnedStart& start) {
    using What = LearnedStart::What;
    if (start.what == What::kPython || start.before_kernels) return StartReads::Turn::kPython;
    if (start.what == What::kKernel) return StartReads::Turn::kProgramOfImage;
    if (start.what != What::kCommand) return StartReads::Turn::kImport;
    return start.ends ? StartReads::Turn::kCommand : StartReads::Turn::kProgramOfImage;
  }

  std::vector<Candidate> learn(const std::vector<LearnedStart>& starts, std::vector<StartGroup>& carried) {
    std::vector<const LearnedStart*> to_record;
    for (const auto& start : starts)
      if (find(carried, start) == nullptr) to_record.push_back(&start);
    const auto recordings = record(to_record);
    std::vector<Candidate> candidates;
    std::size_t recorded = 0;
    for (const auto& start : starts) {
      if (const auto* group = find(carried, start)) {
        candidates.push_back({.reads = {}, .carried = *group});
        continue;
      }
      const auto *const first = &recordings[recorded], *const second = first + 1;
      recorded += kRecordings;
      auto why = failure(start, *first);
      if (why.empty()) why = failure(start, *second);
      if (!why.empty()) {
        log::warn("{}: left out: {}", start.name, why);
        failed_.push_back({start.name, std::move(why)});
        continue;
      }
      candidates.push_back(
          {.reads = {.turn = turn_of(start),
                     .kind = kind_of(start),
                     .name = start.name,
                     .reads = indexer::common_reads(reads_of(first->profile), reads_of(second->profile), places_)},
           .carried = std::nullopt});
    }
    for (auto& group : carried) {
      const bool is_wanted =
          std::ranges::any_of(starts, [&](const LearnedStart& start) { return find({group}, start) != nullptr; });
      if (!is_wanted) candidates.push_back({.reads = {}, .carried = group});
    }
    if (candidates.empty() && !failed_.empty())
      fail<Error>("{}: no start of it works here; {}: {}", arguments_.image, failed_.front().name, failed_.front().why);
    if (candidates.empty())
      fail<NotFound>("{}: nothing of it is known to start: no Python, no command; say one after --", arguments_.image);
    return candidates;
  }

  struct ByContent {
    bool operator()(const std::vector<PackRange>& a, const std::vector<PackRange>& b) const {
      return std::ranges::lexicographical_compare(a, b, {}, key, key);
    }
    static std::tuple<std::uint32_t, std::uint64_t, std::uint64_t> key(const PackRange& range) {
      return {range.layer, range.stream_range.offset, range.stream_range.length};
    }
  };
  using WrittenPacks = std::map<std::vector<PackRange>, index::StartPack, ByContent>;

  void write_missing(const std::vector<indexer::GroupedStart>& groups, WrittenPacks& written) {
    std::vector<indexer::PackContent> contents;
    std::vector<const std::vector<PackRange>*> missing;
    for (const auto& group : groups) {
      if (written.contains(group.pack)) continue;
      missing.push_back(&group.pack);
      auto& content = contents.emplace_back(indexer::PackContent{.ranges = group.pack, .literals = {}});
      content.literals = indexer::take_out_times(content.ranges, places_);
    }
    Progress progress;
    const ProgressLine line(progress, "write packs", context_.global.quiet);
    auto packs = writer_.write(contents, {progress, context_.cancel});
    for (std::size_t i = 0; i < packs.size(); ++i) written.emplace(*missing[i], std::move(packs[i]));
  }

  static std::vector<StartGroup> carried_groups(const std::vector<Candidate>& candidates) {
    std::vector<StartGroup> groups;
    for (const auto& candidate : candidates)
      if (candidate.carried) groups.push_back(*candidate.carried);
    return groups;
  }

  // What the candidates that are to be learnt make beside those that are there.
  std::vector<indexer::GroupedStart> grouped(const std::vector<Candidate>& candidates) const {
    std::vector<indexer::GroupedStart> there;
    std::vector<StartReads> reads;
    for (const auto& candidate : candidates) {
      if (!candidate.carried) {
        reads.push_back(candidate.reads);
        continue;
      }
      const auto& group = *candidate.carried;
      there.push_back({.kind = group.kind, .name = group.name, .trigger = group.trigger, .pack = group.pack.ranges});
    }
    return indexer::group_starts(reads, places_, there);
  }

  std::vector<StartGroup> groups_of(const std::vector<Candidate>& candidates, WrittenPacks& written) {
    auto groups = carried_groups(candidates);
    const auto more = grouped(candidates);
    write_missing(more, written);
    for (const auto& group : more)
      groups.push_back(
          {.kind = group.kind, .name = group.name, .trigger = group.trigger, .pack = written.at(group.pack)});
    return groups;
  }

  static std::pair<StartGroup::Kind, std::string> key_of(const Candidate& candidate) {
    if (candidate.carried) return {candidate.carried->kind, candidate.carried->name};
    return {candidate.reads.kind, candidate.reads.name};
  }

  // All, or of those that are wanted most each that fits beside the ones before it. What one that is left out shares
  // with others becomes theirs.
  std::vector<StartGroup> within_budget(std::vector<Candidate> candidates) {
    std::uint64_t image_bytes = 0;
    std::set<Digest> counted;
    for (const auto& layer : layers_)
      if (counted.insert(layer.digest).second) image_bytes += layer.size;
    const auto budget = std::uint64_t(share_ * double(image_bytes));
    WrittenPacks written;
    auto groups = groups_of(candidates, written);
    if (compressed_bytes(groups) > budget) {
      candidates = chosen(std::move(candidates), groups, budget);
      for (groups = groups_of(candidates, written); compressed_bytes(groups) > budget;
           groups = groups_of(candidates, written)) {
        leave_out(candidates.back(), budget);
        candidates.pop_back();
      }
    }
    for (const auto& candidate : candidates)
      if (candidate.carried) reused_.insert(key_of(candidate));
    for (const auto& group : groups)
      if (!reused_.contains({group.kind, group.name})) writer_.put(group.pack, opened_.local().repository());
    return groups;
  }

  // To compress the packs of each choice would take as long as all of them do, once for each candidate: a pack is taken
  // to shrink as that of its name among all did, or as all did together.
  std::vector<Candidate> chosen(std::vector<Candidate> candidates, const std::vector<StartGroup>& all,
                                std::uint64_t budget) {
    std::map<std::pair<StartGroup::Kind, std::string>, double> ratios;
    double compressed = 0, stream = 0;
    for (const auto& group : all) {
      ratios[{group.kind, group.name}] = double(group.pack.compressed_bytes()) / double(group.pack.stream_bytes());
      compressed += double(group.pack.compressed_bytes());
      stream += double(group.pack.stream_bytes());
    }
    const auto expected_bytes = [&](const std::vector<Candidate>& some) {
      auto bytes = double(compressed_bytes(carried_groups(some)));
      for (const auto& group : grouped(some)) {
        const auto ratio = ratios.find({group.kind, group.name});
        bytes += double(indexer::bytes_of(group.pack)) * (ratio == ratios.end() ? compressed / stream : ratio->second);
      }
      return bytes;
    };
    std::vector<Candidate> kept;
    for (auto& candidate : candidates) {
      kept.push_back(std::move(candidate));
      if (expected_bytes(kept) <= double(budget)) continue;
      leave_out(kept.back(), budget);
      kept.pop_back();
    }
    return kept;
  }

  void leave_out(const Candidate& candidate, std::uint64_t budget) {
    left_out_.push_back({key_of(candidate).second, fmt::format("beyond the budget of {}", human_bytes(budget))});
  }

  // A blob that two groups have counts once.
  static std::uint64_t compressed_bytes(const std::vector<StartGroup>& groups) {
    std::map<Digest, std::uint64_t> blobs;
    for (const auto& group : groups) blobs[group.pack.blob] = group.pack.compressed_bytes();
    std::uint64_t bytes = 0;
    for (const auto& [digest, size] : blobs) bytes += size;
    return bytes;
  }

  static json to_json(const std::vector<LeftOut>& list) {
    auto left_out = json::array();
    for (const auto& one : list) left_out.push_back({{"name", one.name}, {"why", one.why}});
    return left_out;
  }

  void report(const std::vector<StartGroup>& groups, const Digest& index, const std::vector<SignedManifest>& done,
              const IndexSigner* signer) const {
    auto list = json::array();
    for (const auto& group : groups) {
      auto one = group_json(group, places_);
      one["reused"] = reused_.contains({group.kind, group.name});
      list.push_back(std::move(one));
    }
    if (context_.global.json) {
      json document{
          {"image", opened_.digest().to_string()}, {"index", index.to_string()},     {"groups", std::move(list)},
          {"bytes", compressed_bytes(groups)},     {"left_out", to_json(left_out_)}, {"failed", to_json(failed_)}};
      if (signer != nullptr) document["signatures"] = cli::to_json(done, signer->public_key());
      return context_.print_json(document);
    }
    if (signer != nullptr) context_.out << summary_of(done, signer->public_key()) << '\n';
    print_groups(context_.out, list);
    for (const auto& one : left_out_) context_.out << fmt::format("left out: {}, {}\n", one.name, one.why);
  }

  Context& context_;
  const LearnArguments& arguments_;
  const double share_;
  const index::OpenedImage opened_;
  const std::vector<oci::Descriptor>& layers_;
  const indexer::FilePlaces places_;
  const ScratchFolder scratch_;
  indexer::PackWriter writer_;
  std::vector<LeftOut> left_out_, failed_;
  std::set<std::pair<StartGroup::Kind, std::string>> reused_;
};

}  // namespace

json group_json(const StartGroup& group, const indexer::FilePlaces& places) {
  const auto* trigger = places.at(group.trigger.layer, group.trigger.stream_range.offset);
  return {{"kind", index::to_string(group.kind)},
          {"name", group.name},
          {"trigger", trigger == nullptr ? "" : json_name("/" + *trigger->path)},
          {"bytes", group.pack.compressed_bytes()},
          {"stream_bytes", group.pack.stream_bytes()},
          {"ranges", group.pack.ranges.size()},
          {"blob", group.pack.blob.to_string()}};
}

void print_groups(std::ostream& out, const json& groups) {
  std::vector<std::vector<std::string>> rows{{"START", "KIND", "PACK", "BYTES READ", "RANGES", "BEGINS WITH"}};
  std::uint64_t bytes = 0;
  for (const auto& group : groups) {
    bytes += group["bytes"].get<std::uint64_t>();
    rows.push_back({group["name"].get<std::string>(), group["kind"].get<std::string>(),
                    human_bytes(group["bytes"].get<std::uint64_t>()) + (group.value("reused", false) ? ", reused" : ""),
                    human_bytes(group["stream_bytes"].get<std::uint64_t>()),
                    std::to_string(group["ranges"].get<std::uint64_t>()),
                    printable(group["trigger"].get<std::string>())});
  }
  print_table(out, rows);
  out << fmt::format("{} start-up packs, {}\n", groups.size(), human_bytes(bytes));
}

void add_profile_learn(CLI::App& profile, Context& context) {
  const auto arguments = std::make_shared<LearnArguments>();
  auto* command = profile.add_subcommand(
      "learn",
      "Starts what people wait for, each in a session of its own, and publishes start-up packs of what it read");
  command
      ->add_option("IMAGE", arguments->image,
                   "The image, indexed; the words after -- are a further command that is started")
      ->required();
  auto* usage =
      command
          ->add_option("--usage", arguments->database,
                       "The usage database: what is imported most is learnt; without it, the largest libraries")
          ->type_name("DB");
  command->add_option("--window", arguments->window, "The time looked at: Nd, Nw, Ny or FROM..TO")
      ->type_name("SPAN")
      ->needs(usage)
      ->capture_default_str();
  command->add_option("--top", arguments->top, "Imports at most")
      ->type_name("N")
      ->check(CLI::Range(0, 4000))  // kMaxStartGroups, with programs
      ->capture_default_str();
  command
      ->add_option("--budget", arguments->budget,
                   "Share of the compressed image that all packs may take; what is used least is left out")
      ->type_name("P%")
      ->capture_default_str();
  command
      ->add_option("--from", arguments->previous,
                   "An earlier version of the image: its packs are taken where their files are the same")
      ->type_name("IMAGE");
  command->add_option("--seconds", arguments->seconds, "Time that one start may take")
      ->type_name("N")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  add_device_options(*command, arguments->devices);
  command->add_option("--jobs", arguments->jobs, "Starts at the same time, and threads; 0: as many as cores")
      ->type_name("N")
      ->capture_default_str();
  add_signing_options(*command, arguments->signing, "--sign");
  command->footer(
      "Examples:\n  varve profile learn oci:image:latest\n"
      "  varve profile learn --usage usage.db --from registry.example/team/science:41 registry.example/team/science:42 "
      "-- python3 /opt/start.py\n\n"
      "Learnt are the image's Python, its kernels, what its config starts, and imports; with --gpus also what torch, jax, "
      "cupy and tensorflow read when\nthey first use one. What runs is the image's own, twice, without network; nothing "
      "of it stays.\n"
      "Needs the right to write to the image's repository. The image is not changed. `varve profile attach --remove` "
      "takes packs away.");
  command->callback([&context, arguments, usage] {
    arguments->with_usage = usage->count() != 0;
    Learner(context, *arguments).run();
  });
}

}  // namespace varve::cli
