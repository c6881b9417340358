#include "snapshotter/lazy_images.h"

#include <algorithm>
#include <thread>

#include "core/base/error_text.h"
#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"
#include "core/oci/reference.h"

namespace varve::snapshotter {
namespace {

constexpr std::size_t kMostLookUps = 64;  // each is a thread that waits
constexpr std::size_t kMostSeeds = 3;     // images that are tried for one chain ID

std::string by_digest(oci::Reference reference, const Digest& image) {
  reference.tag.reset();
  reference.digest = image;
  return reference.to_string();
}

// The image as the puller named it: an index may count for who asks by tag alone (docs/guide/trust.md). Absent: that
// names none of a registry; files of this machine are not for a puller to name.
std::optional<std::string> pulled_reference(const std::string& name, const Digest& image) {
  try {
    const auto reference = oci::Reference::parse(name);
    if (reference.kind == oci::Reference::Kind::kRegistry)
      return reference.digest ? by_digest(reference, image) : reference.to_string();
  } catch (const UsageError& error) {
    log::debug("{}", error.what());
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> chain_ids(const std::vector<Digest>& diff_ids) {
  std::vector<std::string> chain;
  for (const auto& diff_id : diff_ids)
    chain.push_back(chain.empty() ? diff_id.to_string()
                                  : digest_of(chain.back() + " " + diff_id.to_string()).to_string());
  return chain;
}

LazyImages::LazyImages(Guarded<SnapshotTable>& table, Trees& trees, LazyOptions options)
    : table_(table), trees_(trees), options_(std::move(options)) {}

LazyImages::~LazyImages() {
  auto state = state_.lock();
  changed_.wait(state.native(), [&] { return state->threads == 0; });
}

std::size_t LazyImages::under_way() { return state_.lock()->threads; }

std::optional<Seed> LazyImages::find(const std::string& chain, const Labels& labels) {
  const auto reference = labels.find(kImageRefLabel), digest = labels.find(kManifestDigestLabel);
  if (reference == labels.end() || digest == labels.end()) return find_seed(chain);
  return find_labelled(chain, reference->second, digest->second);
}

std::optional<Seed> LazyImages::find_labelled(const std::string& chain, const std::string& reference,
                                              const std::string& digest) {
  const auto image = Digest::try_parse(digest);
  if (!image) {
    log::warn("{}: {} is no digest of a manifest; its layers are fetched whole", printable(reference),
              printable(digest));
    return std::nullopt;
  }
  const auto wanted = pulled_reference(reference, *image);
  if (!wanted) {
    refuse(reference, *image, "that is no name of an image in a registry");
    return std::nullopt;
  }
  const auto outcome = decide(*wanted, *image);
  const auto* known = std::get_if<KnownImage>(&outcome);
  if (known == nullptr) return std::nullopt;
  const auto at = std::ranges::find(known->chain, chain);
  if (at == known->chain.end()) {
    refuse(reference, *image, fmt::format("its config names no layer with the chain ID {}", printable(chain)));
    return std::nullopt;
  }
  return Seed{.tree = {.image = *image, .layers = std::uint32_t(at - known->chain.begin()) + 1},
              .reference = known->reference,
              .chain = chain};
}

std::optional<Seed> LazyImages::find_seed(const std::string& chain) {
  auto seeds = table_.lock()->seeds(chain);
  if (seeds.size() > kMostSeeds) seeds.resize(kMostSeeds);
  for (const auto& seed : seeds)
    if (std::holds_alternative<KnownImage>(decide(seed.reference, seed.tree.image))) return seed;
  return std::nullopt;
}

LazyImages::Outcome LazyImages::decide(const std::string& reference, const Digest& image) {
  const auto now = options_.now();
  if (auto refusal = table_.lock()->find_refusal(image); refusal && now - refusal->at < options_.keep_refusal.count())
    return Refused{.why = refusal->why};
  const bool fresh = state_.with([&](const State& state) {
    const auto found = state.found_at.find(image);
    return found != state.found_at.end() && now - found->second < options_.keep_answer.count();
  });
  if (fresh)
    if (auto known = table_.lock()->find_image(image)) return *known;
  const auto outcome = look_up(reference, image);
  const auto* refused = std::get_if<Refused>(&outcome);
  if (refused == nullptr) return outcome;
  // A registry that is away is nothing against an image that was opened before: it is kept on this machine.
  if (refused->may_pass)
    if (auto known = table_.lock()->find_image(image)) return *known;
  return refuse(reference, image, refused->why);
}

LazyImages::Outcome LazyImages::look_up(const std::string& reference, const Digest& image) {
  auto state = state_.lock();
  auto one = state->under_way[image];
  if (one == nullptr) {
    if (state->threads >= kMostLookUps) {
      state->under_way.erase(image);
      return Refused{.why = fmt::format("{} other images are looked up already", kMostLookUps), .may_pass = true};
    }
    one = std::make_shared<LookUp>();
    state->under_way[image] = one;
    ++state->threads;
    std::thread([this, reference, image, one] { run_look_up(reference, image, one); }).detach();
  }
  const auto done = [&] { return !std::holds_alternative<std::monostate>(one->outcome); };
  if (changed_.wait_for(state.native(), options_.wait, done)) return one->outcome;
  auto why = fmt::format("it was not found out in {:.1f} s whether it has an index that counts; that goes on",
                         double(options_.wait.count()) / 1000);
  return Refused{.why = std::move(why), .may_pass = true};
}

KnownImage LazyImages::look_up_as_named(const std::string& reference, const Digest& image) {
  const auto named = oci::Reference::parse(reference);
  try {
    return trees_.look_up(reference, image, options_.look_up_limit);
  } catch (const CorruptData& error) {
    if (named.digest) throw;
    log::debug("{}: {}", reference, error.what());  // the tag has moved since it was pulled
  }
  return trees_.look_up(by_digest(named, image), image, options_.look_up_limit);
}

void LazyImages::run_look_up(const std::string& reference, const Digest& image,
                             const std::shared_ptr<LookUp>& one) noexcept {
  Outcome outcome;
  try {
    auto known = look_up_as_named(reference, image);
    table_.lock()->add_image(known);
    outcome = std::move(known);
  } catch (const std::exception& error) {
    outcome = Refused{.why = error_text(error), .may_pass = dynamic_cast<const TemporaryError*>(&error) != nullptr};
  }
  auto state = state_.lock();
  one->outcome = std::move(outcome);
  if (std::holds_alternative<KnownImage>(one->outcome)) state->found_at[image] = options_.now();
  state->under_way.erase(image);
  --state->threads;
  changed_.notify_all();  // under the lock: then nothing of this object is touched any more
}

LazyImages::Refused LazyImages::refuse(const std::string& reference, const Digest& image, std::string why) {
  log::warn("{} is not mounted lazily, its layers are fetched whole: {}", printable(reference), message_text(why));
  ++refused_;
  table_.lock()->add_refusal({.image = image, .reference = reference, .why = why, .at = options_.now()});
  return {.why = std::move(why)};
}

void LazyImages::learn_opened() {
  for (const auto& [reference, image] : trees_.opened()) {
    if (table_.lock()->find_image(image)) continue;
    try {
      const auto known =
          trees_.look_up(by_digest(oci::Reference::parse(reference), image), image, options_.look_up_limit);
      table_.lock()->add_image(known);
    } catch (const std::exception& error) {
      log::info("{} was opened on this machine, but not again: {}", printable(reference),
                message_text(error_text(error)));
    }
  }
}

}  // namespace varve::snapshotter
