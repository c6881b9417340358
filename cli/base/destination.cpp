#include "cli/base/destination.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/oci/layout.h"
#include "core/oci/registry_repository.h"
#include "indexer/known_pins.h"
#include "indexer/pins.h"

namespace varve::cli {

void refuse_own_tag(const oci::Reference& reference) {
  if (!reference.tag) return;
  if (const auto use = oci::use_of_tag(*reference.tag); !use.empty())
    fail<UsageError>("{}: under '{}' lies {}, which would be lost; write another tag", reference.to_string(),
                     *reference.tag, use);
}

oci::Reference parse_destination(const std::string& destination) {
  auto reference = oci::Reference::parse(destination);
  if (reference.is_read_only())
    fail<UsageError>(
        "{}: images are only read from there; write to oci:DIR:TAG or a registry (`image export` also writes "
        "docker-archive:FILE)",
        destination);
  if (reference.digest)
    fail<UsageError>("{}: write a tag, or nothing: the digest follows from the image", reference.to_string());
  refuse_own_tag(reference);
  return reference;
}

namespace {

// Whoever moves a tag leaves the image that had it to the list of pins: it must be known to name all that was promised.
std::optional<Digest> check_tag_may_move(const Context& context, oci::Repository& repository,
                                         const oci::Reference& destination) {
  std::optional<Digest> before;
  if (!destination.tag) return before;
  try {
    before = repository.manifest(*destination.tag).descriptor.digest;
  } catch (const NotFound&) {
    return before;
  } catch (const CorruptData&) {
    // The tag is there, and what it names may be brought back.
  }
  const indexer::KnownPins known(context.global.root);
  indexer::read_whole_list(repository, known.pins_of(indexer::place_of(destination)),
                           fmt::format("tag '{}' was left as it is", *destination.tag));
  return before;
}

bool is_same_place(const oci::Reference& a, const oci::Reference& b) {
  if (a.kind != b.kind) return false;
  std::error_code none;
  return a.repository_name() == b.repository_name() ||
         (a.kind == oci::Reference::Kind::kLayout && std::filesystem::equivalent(a.layout_dir, b.layout_dir, none));
}

bool has_moved(const Destination& destination, const Digest& now) {
  return destination.before && *destination.before != now;
}

}  // namespace

Destination open_destination(const Context& context, const std::string& source, const oci::Reference& destination) {
  if (destination.kind == oci::Reference::Kind::kLayout) {
    auto layout = oci::create_layout(destination.layout_dir);
    auto before = check_tag_may_move(context, *layout, destination);
    return {.reference = destination, .repository = std::move(layout), .before = std::move(before)};
  }
  auto repository = std::make_shared<oci::RegistryRepository>(destination, context.global.registry);
  // Within one registry nothing needs to be sent.
  const auto from = oci::Reference::parse(source);
  if (from.kind == oci::Reference::Kind::kRegistry && from.host == destination.host)
    repository->set_mount_source(from.repository);
  auto before = check_tag_may_move(context, *repository, destination);
  return {.reference = destination, .repository = std::move(repository), .before = std::move(before)};
}

void add_replace_option(CLI::App& command, bool& replace) {
  command.add_flag("--replace", replace, "DEST may be the image itself: its tag then names the new one");
}

void refuse_own_source(const std::string& source, const std::optional<Digest>& made_of, const Destination& destination,
                       bool replace) {
  const auto from = oci::Reference::parse(source);
  if (replace || !is_same_place(from, destination.reference)) return;
  const bool is_same_name = !from.digest && from.tag == destination.reference.tag;
  const bool is_named_otherwise = from.digest || !from.tag;
  if (is_same_name || (is_named_otherwise && destination.before && destination.before == made_of))
    fail<UsageError>(
        "{}: DEST is the image that is read, which would lose its name to the new one; write another tag, or say "
        "--replace",
        destination.reference.to_string());
}

std::string moved_text(const Destination& destination, const Digest& now) {
  if (!has_moved(destination, now)) return {};
  return fmt::format("{} was {}, is {} now\n", destination.reference.to_string(), destination.before->to_string(),
                     now.to_string());
}

nlohmann::json replaced_json(const Destination& destination, const Digest& now) {
  return has_moved(destination, now) ? nlohmann::json(destination.before->to_string()) : nlohmann::json();
}

}  // namespace varve::cli
