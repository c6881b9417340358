#include "core/oci/mirrored_repository.h"
#include "core/base/journal.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/threads/errands.h"
#include "core/base/threads/guarded.h"
#include "core/oci/internal/backoff.h"
#include "core/oci/internal/file_stamp.h"
#include "core/oci/internal/source_state.h"
#include "core/oci/internal/sources.h"
#include "core/oci/registry_repository.h"

namespace varve::oci {
namespace {

using internal::Source;
using internal::SourceCapabilities;
using internal::SourceState;

// How often files are looked at; a look costs some microseconds.
constexpr std::chrono::seconds kLookInterval{1};
// Behind it somebody else can be asked.
constexpr int kMirrorStallMs = 5'000;
// Parts of blobs that were read last, and by whom they were given: more than are in memory undecoded.
constexpr std::size_t kMaxGiven = 4096;
constexpr std::size_t kMaxToldBytes = 2000;  // of what failed in one round

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

bool is_not_found(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const NotFound&) {
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// What came of one round over the sources.
class Failures {
 public:
  void add(const std::string& source, bool is_last, std::exception_ptr error) {
    const auto text = text_of(error);
    if (texts_.size() < kMaxToldBytes) {
      if (!texts_.empty()) texts_ += "; ";
      texts_ += text.find(source) == std::string::npos ? source + ": " + text : text;
    }
    if (is_last || !has_last_) last_ = std::move(error);
    has_last_ = has_last_ || is_last;
  }
  bool any() const { return last_ != nullptr; }
  // The last source, the registry itself, says that there is no such thing.
  bool is_denied() const { return has_last_ && is_not_found(last_); }
  const std::string& text() const { return texts_; }
  // What the last source, the registry itself, says counts; a mirror may lack what is there. Returns if it may pass.
  void throw_if_final() const {
    try {
      std::rethrow_exception(last_);
    } catch (const TemporaryError&) {
    } catch (const NotFound&) {
      throw NotFound(texts_);
    } catch (const CorruptData&) {
      throw CorruptData(texts_);
    } catch (const UsageError&) {
      throw UsageError(texts_);
    } catch (const Unsupported&) {
      throw Unsupported(texts_);
    } catch (const Error&) {
      throw Error(texts_);
    }
  }

 private:
  std::string texts_;
  std::exception_ptr last_;
  bool has_last_ = false;
};

}  // namespace

struct MirroredRepository::Member {
  // `others_follow`: they can be asked where this one, a mirror, has never answered yet.
  Member(Source where, const RegistryOptions& given, std::shared_ptr<SourceState> known, Clock& given_clock,
         bool others_follow)
      : source(std::move(where)), state(std::move(known)), options(given), clock(given_clock) {
    internal::FirstAnswerWait wait{.host = state->first_answer()};
    if (others_follow && source.is_mirror) wait.limit = std::chrono::milliseconds(options.first_answer_ms);
    registry = std::make_shared<RegistryRepository>(source, options, clock, wait);
  }

  // For who waits for a first answer, too, as long as for any. A client of its own, which few ever need.
  RegistryRepository& patient() {
    if (state->first_answer()->came()) return *registry;
    std::call_once(patient_made, [&] {
      patient_registry = std::make_shared<RegistryRepository>(source, options, clock,
                                                              internal::FirstAnswerWait{.host = state->first_answer()});
    });
    return *patient_registry;
  }

  const Source source;
  const std::shared_ptr<SourceState> state;  // outlives a change of the files
  const RegistryOptions options;
  Clock& clock;
  std::shared_ptr<RegistryRepository> registry;
  std::once_flag patient_made;
  std::shared_ptr<RegistryRepository> patient_registry;
};

struct MirroredRepository::Parts {
  using Members = std::vector<std::shared_ptr<Member>>;

  Parts(const Reference& named, const RegistryOptions& given, Clock& given_clock)
      : reference(named), options(given), clock(given_clock) {
    auto found = internal::find_sources(reference, options);
    stamps = internal::stamps_of(found.looked);
    looked = std::move(found.looked);
    looked_at = clock.now();
    members = make_members(std::move(found.sources), {});
    own = find_own(*members);
  }
  ~Parts() { closing.cancel(); }  // else a probe of a silent mirror keeps us

  std::shared_ptr<const Members> make_members(std::vector<Source> sources, const Members& before) {
    auto made = std::make_shared<Members>();
    for (auto& source : sources) {
      auto one = options;
      // Where others can be asked, they are asked first: it is tried again when all have failed.
      if (sources.size() > 1) {
        one.max_attempts = 1;
        one.cancel = &closing;
      }
      if (source.is_mirror && sources.size() > 1) one.stall_timeout_ms = std::min(one.stall_timeout_ms, kMirrorStallMs);
      const auto known = std::ranges::find_if(before, [&](const auto& member) { return member->source == source; });
      auto state = known == before.end() ? std::make_shared<SourceState>(clock, rest_of(source)) : (*known)->state;
      const bool others_follow = &source != &sources.back();
      made->push_back(std::make_shared<Member>(std::move(source), one, std::move(state), clock, others_follow));
    }
    return made;
  }

  std::shared_ptr<internal::HostRest> rest_of(const Source& source) const {
    return options.known_hosts ? options.known_hosts->rest_of(source.connect_to)
                               : std::make_shared<internal::HostRest>();
  }

  // The registry that the name names, for what is put; with the keys that the files have for it.
  std::shared_ptr<RegistryRepository> find_own(const Members& of) const {
    // Alone it has all the patience that is asked for, and knows the way in.
    if (of.size() == 1 && !of.front()->source.is_mirror) return of.front()->registry;
    auto source = internal::own_source(reference, options.plain_http);
    for (const auto& member : of)
      if (!member->source.is_mirror) source = member->source;
    return std::make_shared<RegistryRepository>(source, options, clock, internal::FirstAnswerWait{});
  }

  // The sources as the files say now. A file that was broken while the image is in use changes nothing.
  std::shared_ptr<const Members> current() {
    std::vector<std::filesystem::path> paths;
    std::vector<internal::FileStamp> before;
    {
      const std::lock_guard lock(mutex);
      if (looked.empty() || clock.now() - looked_at < kLookInterval) return members;
      looked_at = clock.now();
      paths = looked;
      before = stamps;
    }
    if (auto now = internal::stamps_of(paths); now != before) read_again(std::move(now));
    const std::lock_guard lock(mutex);
    return members;
  }

  void read_again(std::vector<internal::FileStamp> now) {
    const auto name = reference.repository_name();
    std::shared_ptr<const Members> before;
    {
      const std::lock_guard lock(mutex);
      stamps = std::move(now);
      before = members;
    }
    try {
      auto found = internal::find_sources(reference, options);
      auto made = make_members(std::move(found.sources), *before);
      auto made_own = find_own(*made);
      now = internal::stamps_of(found.looked);
      log::info("{}: what names its mirrors was changed; it has {} sources now", name, made->size());
      const std::lock_guard lock(mutex);
      stamps = std::move(now);
      looked = std::move(found.looked);
      members = std::move(made);
      own = std::move(made_own);
    } catch (const std::exception& error) {
      log::warn("{}: goes on with the mirrors that it had: {}", name, error.what());
    }
  }

  std::shared_ptr<RegistryRepository> own_registry() {
    current();
    const std::lock_guard lock(mutex);
    return own;
  }

  // Good ones first, in their order; then, if all of them fail, the others.
  Members in_order(const Members& all, const Digest& digest, bool SourceCapabilities::*needed) {
    Members ordered;
    for (const auto standing : {SourceState::Standing::kGood, SourceState::Standing::kRested,
                                SourceState::Standing::kPoor, SourceState::Standing::kWrong})
      for (const auto& member : all)
        if (member->source.capabilities.*needed && member->state->standing(digest) == standing)
          ordered.push_back(member);
    return ordered;
  }

  // Calls ask(member, registry) of one source after the other until one gives; what may pass is tried again, with
  // growing waits. stop() says that an exception is not the source's.
  template <typename Ask, typename Stop>
  void ask_in_turn(const Digest& digest, bool SourceCapabilities::*needed, const std::string& what, Ask&& ask,
                   Stop&& stop) {
    for (internal::Backoff waits(clock, std::max(1, options.max_attempts), options.cancel);;) {
      const auto all = current();
      Failures failures;
      bool sends_whole = false;
      Members left_soon;
      const auto gives = [&](const std::shared_ptr<Member>& member, RegistryRepository& registry) {
        const auto times_left = member->state->first_answer()->times_left();
        try {
          ask(member, registry);
          member->state->succeeded();
          return true;
        } catch (const Cancelled&) {
          throw;
        } catch (const std::exception&) {
          if (stop()) throw;
          const bool lacked = member->state->lacks_ranges(digest);
          judge(*member, digest, std::current_exception());
          failures.add(member->source.host, member == all->back(), std::current_exception());
          sends_whole = sends_whole || (!lacked && member->state->lacks_ranges(digest));
          if (member->state->first_answer()->times_left() != times_left) left_soon.push_back(member);
          return false;
        }
      };
      for (const auto& member : in_order(*all, digest, needed))
        if (gives(member, *member->registry)) return;
      if (!failures.any()) fail<NotFound>("{}: no source may be asked for it (capabilities in hosts.toml)", what);
      // Nobody else gave: now those are worth waiting for. Which tags and lists there are the registry knows best.
      if (needed == &SourceCapabilities::pull || !failures.is_denied())
        for (const auto& member : std::exchange(left_soon, {}))
          if (gives(member, member->patient())) return;
      if (sends_whole) continue;  // better than nothing: once more, and what lies in front is skipped
      failures.throw_if_final();
      waits.wait(failures.text());
    }
  }

  void judge(const Member& member, const Digest& digest, const std::exception_ptr& error) {
    auto& state = *member.state;
    try {
      std::rethrow_exception(error);
    } catch (const NotFound&) {
      if (member.source.is_mirror) state.note_absent(digest);
    } catch (const CorruptData& wrong) {
      blame(member, digest, wrong.what());
    } catch (const RangesNotServed&) {
      state.note_without_ranges(digest);
    } catch (const internal::GaveUp& failure) {
      note_failed(member, failure, {.no_answer = failure.no_answer(), .retry_after = failure.retry_after()});
    } catch (const TemporaryError& failure) {
      note_failed(member, failure, {});
    } catch (const std::exception& failure) {
      note_failed(member, failure, {.lasting = true});
    }
  }

  void note_failed(const Member& member, const std::exception& failure, const internal::Trouble& trouble) const {
    tell(member, trouble.lasting ? SourceWatch::Failure::kRefused : SourceWatch::Failure::kTemporary);
    if (!member.state->failed(failure.what(), trouble)) return;
    const log::Field about_registry("REGISTRY", member.source.host);
    log::warn("{}; the next source is asked", failure.what());
  }

  void tell(const Member& member, SourceWatch::Failure failure) const {
    if (options.watch) options.watch->failed(member.source.host, failure);
  }

  // The only source: there is no other to ask, and what goes wrong is told and thrown. stop() says that an exception is
  // not the source's.
  template <typename Ask, typename Stop>
  decltype(auto) ask_alone(const Member& member, Ask&& ask, Stop&& stop) const {
    try {
      return ask();
    } catch (const Cancelled&) {
      throw;
    } catch (const NotFound&) {
      throw;
    } catch (const CorruptData&) {
      if (!stop()) tell(member, SourceWatch::Failure::kWrongBytes);
      throw;
    } catch (const TemporaryError&) {
      if (!stop()) tell(member, SourceWatch::Failure::kTemporary);
      throw;
    } catch (const Error&) {
      if (!stop()) tell(member, SourceWatch::Failure::kRefused);
      throw;
    }
  }

  void blame(const Member& member, const Digest& digest, const std::string& why) const {
    tell(member, SourceWatch::Failure::kWrongBytes);
    if (!member.state->note_wrong(digest, why)) return;
    const log::Field about_registry("REGISTRY", member.source.host);
    log::warn("{} gives wrong bytes of {}, and is asked last for it: {}", member.source.name(), digest.to_string(),
              why);
  }

  // What several gave is most likely the mirrors' fault.
  void blame(const std::set<std::shared_ptr<Member>>& givers, const Digest& digest, const std::string& why) const {
    const bool mirrors = std::ranges::any_of(givers, [](const auto& member) { return member->source.is_mirror; });
    for (const auto& member : givers)
      if (member->source.is_mirror == mirrors) blame(*member, digest, why);
  }

  void note_given(const std::shared_ptr<Member>& member, const Digest& digest, ByteRange range) {
    member->state->count_bytes(range.length);
    if (member->source.is_mirror) mirrored.with([&](auto& bytes) { bytes[digest] += range.length; });
    given.with([&](auto& list) {
      if (!list.empty() && list.back().member == member && list.back().digest == digest &&
          list.back().range.end() == range.offset) {
        list.back().range.length += range.length;
        return;
      }
      list.push_back({member, digest, range});
      if (list.size() > kMaxGiven) list.pop_front();
    });
  }

  // A mirror whose rest is over is asked for a byte; no reader waits for that.
  void probe_rested(const Members& all, const Descriptor& blob) {
    for (const auto& member : all) {
      if (!member->source.capabilities.pull || !member->state->begin_probe()) continue;
      const bool added = errands.add([this, member, blob](const std::stop_token& stop) {
        try {
          member->patient().read_blob_or_refuse(blob, {.offset = 0, .length = std::min<std::uint64_t>(1, blob.size)},
                                                [&](ByteView) {
                                                  if (stop.stop_requested()) throw Cancelled("it is closed");
                                                });
          member->state->succeeded();
          log::info("{}: serves again", member->source.name());
        } catch (const NotFound&) {
          member->state->succeeded();
          judge(*member, blob.digest, std::current_exception());
        } catch (const RangesNotServed&) {
          member->state->succeeded();
          judge(*member, blob.digest, std::current_exception());
        } catch (const Cancelled&) {
        } catch (const std::exception&) {
          judge(*member, blob.digest, std::current_exception());
        }
        member->state->end_probe();
      });
      if (!added) member->state->end_probe();
    }
  }

  // A cache that is asked for a range of what it does not have yet sends it whole; once it was read to its end it has
  // it, and serves ranges.
  void fill(const std::shared_ptr<Member>& member, const Descriptor& blob) {
    if (!filling.with([&](auto& under_way) { return under_way.insert(blob.digest).second; })) return;
    const auto end = [this, blob] { filling.with([&](auto& under_way) { under_way.erase(blob.digest); }); };
    const bool added = fills.add([member, blob, end](const std::stop_token& stop) {
      try {
        member->registry->read_blob(blob, {.offset = 0, .length = blob.size}, [&](ByteView) {
          if (stop.stop_requested()) throw Cancelled("it is closed");
        });
        member->state->forget_without_ranges(blob.digest);
      } catch (const std::exception& error) {
        log::debug("{}: was not read to its end: {}", member->source.name(), error.what());
      }
      end();
    });
    if (!added) end();
  }

  struct Given {
    std::shared_ptr<Member> member;
    Digest digest;
    ByteRange range;
  };

  const Reference reference;
  const RegistryOptions options;
  Clock& clock;
  CancelFlag closing{options.cancel};  // ends what the sources are asked
  std::mutex mutex;                    // guards what follows
  std::vector<std::filesystem::path> looked;
  std::vector<internal::FileStamp> stamps;
  Clock::TimePoint looked_at;
  std::shared_ptr<const Members> members;
  std::shared_ptr<RegistryRepository> own;

  Guarded<std::deque<Given>> given;
  Guarded<std::map<Digest, std::uint64_t>> mirrored;
  Guarded<std::set<Digest>> filling;
  // Last: they use all of the above until they are stopped.
  Errands fills;
  Errands errands;
};

// One read_blob(), wherever its parts come from.
class MirroredRepository::BlobTransfer {
 public:
  BlobTransfer(Parts& parts, const Descriptor& blob, ByteRange range, const ByteSink& sink)
      : parts_(parts), blob_(blob), range_(range), sink_(sink) {}

  void run() {
    parts_.ask_in_turn(
        blob_.digest, &SourceCapabilities::pull,
        fmt::format("{}: blob {}", parts_.reference.repository_name(), blob_.digest.to_string()),
        [&](const std::shared_ptr<Member>& member, RegistryRepository& registry) { read_from(member, registry); },
        [&] { return must_stop(); });
    if (givers_.size() > 1 && is_whole() && hash_.finish() != blob_.digest) {
      const auto why = fmt::format("{}: blob {}: the content does not match the digest",
                                   parts_.reference.repository_name(), blob_.digest.to_string());
      parts_.blame(givers_, blob_.digest, why);
      throw CorruptData(why);
    }
  }

 private:
  bool is_whole() const { return range_.length == blob_.size; }
  // The sink's own error is nobody's fault here; after the last byte nothing can be made good.
  bool must_stop() {
    if (sink_failed_) return true;
    if (delivered_ < range_.length || range_.length == 0) return false;
    for (const auto& member : givers_) parts_.judge(*member, blob_.digest, std::current_exception());
    return true;
  }

  void read_from(const std::shared_ptr<Member>& member, RegistryRepository& registry) {
    const ByteRange rest{.offset = range_.offset + delivered_, .length = range_.length - delivered_};
    const ByteSink into = [&](ByteView bytes) {
      parts_.note_given(member, blob_.digest, {range_.offset + delivered_, bytes.size()});
      givers_.insert(member);
      if (is_whole()) hash_.update(bytes);
      try {
        sink_(bytes);
      } catch (...) {
        sink_failed_ = true;
        throw;
      }
      delivered_ += bytes.size();
    };
    const bool is_last_resort = member->state->lacks_ranges(blob_.digest);
    if (is_last_resort) return registry.read_blob(blob_, rest, into);
    try {
      registry.read_blob_or_refuse(blob_, rest, into);
    } catch (const RangesNotServed&) {
      if (member->source.is_mirror) parts_.fill(member, blob_);
      throw;
    }
  }

  Parts& parts_;
  const Descriptor& blob_;
  const ByteRange range_;
  const ByteSink& sink_;
  std::uint64_t delivered_ = 0;
  bool sink_failed_ = false;
  std::set<std::shared_ptr<Member>> givers_;
  Sha256 hash_;
};

MirroredRepository::MirroredRepository(const Reference& reference, const RegistryOptions& options, Clock& clock)
    : parts_(std::make_unique<Parts>(reference, options, clock)) {}
MirroredRepository::~MirroredRepository() = default;

std::string MirroredRepository::name() const { return parts_->reference.repository_name(); }
std::string MirroredRepository::origin() const { return parts_->reference.host; }

Document MirroredRepository::manifest(std::string_view selector) {
  const auto members = parts_->current();
  const auto never = [] { return false; };
  if (members->size() == 1)
    return parts_->ask_alone(
        *members->front(), [&] { return members->front()->registry->manifest(selector); }, never);
  const auto digest = Digest::try_parse(selector);
  std::optional<Document> found;
  parts_->ask_in_turn(
      digest.value_or(digest_of(selector)), digest ? &SourceCapabilities::pull : &SourceCapabilities::resolve,
      fmt::format("{}: manifest '{}'", name(), selector),
      [&](const auto& /*member*/, RegistryRepository& registry) { found = registry.manifest(selector); }, never);
  return std::move(*found);
}

void MirroredRepository::read_blob(const Descriptor& blob, ByteRange compressed_range, const ByteSink& sink) {
  const auto members = parts_->current();
  if (members->size() > 1) {
    parts_->probe_rested(*members, blob);
    return BlobTransfer(*parts_, blob, compressed_range, sink).run();
  }
  const auto& only = members->front();
  auto at = compressed_range.offset;
  bool sink_failed = false;
  try {
    const ByteSink into = [&](ByteView bytes) {
      parts_->note_given(only, blob.digest, {at, bytes.size()});
      at += bytes.size();
      try {
        sink(bytes);
      } catch (...) {
        sink_failed = true;
        throw;
      }
    };
    parts_->ask_alone(
        *only, [&] { only->registry->read_blob(blob, compressed_range, into); }, [&] { return sink_failed; });
  } catch (const TemporaryError& error) {
    if (!sink_failed) only->state->failed(error.what(), {});
    throw;
  }
  only->state->succeeded();
}

// Of several nobody knows yet which will answer.
void MirroredRepository::expect_reads() {
  const auto members = parts_->current();
  if (members->size() == 1) members->front()->registry->expect_reads();
}

bool MirroredRepository::serves_ranges() const {
  const auto members = parts_->current();
  return std::ranges::any_of(*members, [](const auto& member) { return member->registry->serves_ranges(); });
}

void MirroredRepository::note_wrong_bytes(const Descriptor& blob, ByteRange compressed_range, const std::string& why) {
  std::set<std::shared_ptr<Member>> givers;
  parts_->given.with([&](const auto& list) {
    for (const auto& one : list)
      if (one.digest == blob.digest && one.range.offset < compressed_range.end() &&
          compressed_range.offset < one.range.end())
        givers.insert(one.member);
  });
  parts_->blame(givers, blob.digest, why);
}

unsigned MirroredRepository::source_count() const { return unsigned(parts_->current()->size()); }

std::vector<SourceStatus> MirroredRepository::sources() const {
  std::vector<SourceStatus> list;
  for (const auto& member : *parts_->current()) {
    auto status = member->state->status();
    status.host = member->source.host;
    status.mirror = member->source.is_mirror;
    list.push_back(std::move(status));
  }
  return list;
}

std::uint64_t MirroredRepository::mirror_bytes(const Digest& blob) const {
  return parts_->mirrored.with([&](const auto& bytes) {
    const auto found = bytes.find(blob);
    return found == bytes.end() ? std::uint64_t(0) : found->second;
  });
}

bool MirroredRepository::has_blob(const Descriptor& blob) { return parts_->own_registry()->has_blob(blob); }

void MirroredRepository::put_blob(const Descriptor& blob, const ByteSource& content) {
  parts_->own_registry()->put_blob(blob, content);
}

Descriptor MirroredRepository::put_manifest(ByteView json, std::string_view media_type, std::string_view tag) {
  return parts_->own_registry()->put_manifest(json, media_type, tag);
}

Descriptor MirroredRepository::put_part_manifest(ByteView json, std::string_view media_type, const Digest& whole) {
  return parts_->own_registry()->put_part_manifest(json, media_type, whole);
}

std::vector<Descriptor> MirroredRepository::list_referrers(const Digest& subject, const Digest* whole,
                                                           std::string_view artifact_type) {
  const auto members = parts_->current();
  std::vector<Descriptor> found;
  const auto ask = [&](const std::shared_ptr<Member>& member, RegistryRepository& registry) {
    found = whole == nullptr ? registry.referrers(subject, artifact_type)
                             : registry.part_referrers(subject, *whole, artifact_type);
    // A mirror that knows of none may not have been told yet, or have no such list.
    if (found.empty() && member != members->back()) fail<NotFound>("{}: it lists none", member->source.name());
  };
  if (members->size() == 1) {
    parts_->ask_alone(
        *members->front(), [&] { ask(members->front(), *members->front()->registry); }, [] { return false; });
    return found;
  }
  const bool any_lists =
      std::ranges::any_of(*members, [](const auto& one) { return one->source.capabilities.referrers; });
  const auto needed = any_lists ? &SourceCapabilities::referrers : &SourceCapabilities::resolve;
  try {
    // Under a digest of its own: what a mirror lists of an image says nothing about its content.
    const auto list = digest_of(fmt::format("referrers of {} {}", subject.to_string(), artifact_type));
    parts_->ask_in_turn(list, needed, fmt::format("{}: referrers of {}", name(), subject.to_string()), ask,
                        [] { return false; });
  } catch (const NotFound&) {
    return {};
  }
  return found;
}

std::vector<Descriptor> MirroredRepository::referrers(const Digest& subject, std::string_view artifact_type) {
  return list_referrers(subject, nullptr, artifact_type);
}

std::vector<Descriptor> MirroredRepository::part_referrers(const Digest& part, const Digest& whole,
                                                           std::string_view artifact_type) {
  return list_referrers(part, &whole, artifact_type);
}

}  // namespace varve::oci
