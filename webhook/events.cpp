#include "webhook/events.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/text/json_document.h"
#include "core/base/text/strings.h"
#include "core/oci/descriptor.h"
#include "core/oci/reference.h"

namespace varve::webhook {
namespace {

constexpr JsonLimits kLimits{.bytes = kMaxNotificationBytes, .depth = 32, .values = 200'000};
constexpr std::size_t kMaxNameBytes = 512;
constexpr std::size_t kMaxBad = 5;  // that are told of; one is as good as many

// Only the names are of interest, and they are checked as those of a reference are.
void check_names(const Pushed& one, const JsonValue& where) {
  try {
    const auto reference = oci::Reference::parse("registry.invalid/" + one.repository);
    if (reference.repository != one.repository || reference.digest || reference.tag.value_or("latest") != "latest")
      where.refuse("is no name of a repository");
    if (!one.tag.empty()) oci::Reference::parse("registry.invalid/" + one.repository + ":" + one.tag);
  } catch (const UsageError&) {
    where.refuse("is no name of a repository and tag");
  }
}

void add(Notification& found, const Pushed& one, const JsonValue& where) {
  check_names(one, where);
  if (is_tag_beside_image(one.tag))
    ++found.others;
  else if (std::ranges::find(found.pushed, one) == found.pushed.end())
    found.pushed.push_back(one);
}

void read_distribution_event(const JsonValue& event, Notification& found) {
  const auto target = event.maybe("target");
  const auto media_type = target.maybe("mediaType").text(kMaxNameBytes);
  if (event["action"].text(kMaxNameBytes) != "push" ||
      (!oci::is_manifest_media_type(media_type) && !oci::is_index_media_type(media_type))) {
    ++found.others;
    return;
  }
  add(found,
      {.repository = target["repository"].text(kMaxNameBytes),
       .tag = target.maybe("tag").text(kMaxNameBytes),
       .digest = target["digest"].digest()},
      target);
}

// What was pushed without a tag has its digest in place of one.
void read_harbor_resource(const std::string& repository, const JsonValue& resource, Notification& found) {
  Pushed one{.repository = repository,
             .tag = resource.maybe("tag").text(kMaxNameBytes),
             .digest = resource["digest"].digest()};
  if (one.tag.find(':') != one.tag.npos) one.tag.clear();
  add(found, one, resource);
}

// One that is wrong keeps nobody from reading the others.
template <typename Read>
void read_each(const std::vector<JsonValue>& items, Notification& found, Read&& read) {
  for (const auto& item : items) {
    try {
      read(item);
    } catch (const Error& error) {
      if (found.bad.size() < kMaxBad) found.bad.emplace_back(error.what());
    }
  }
}

void read_harbor_data(const JsonValue& data, bool is_push, Notification& found) {
  const auto resources = data.maybe("resources").items(kMaxEvents);
  if (!is_push) {
    found.others += std::max<std::size_t>(1, resources.size());
    return;
  }
  const auto repository = data["repository"]["repo_full_name"].text(kMaxNameBytes);
  read_each(resources, found, [&](const JsonValue& one) { read_harbor_resource(repository, one, found); });
}

}  // namespace

bool is_tag_beside_image(std::string_view tag) {
  constexpr std::size_t kHexDigits = 64;
  if (!tag.starts_with("sha256-")) return false;
  tag.remove_prefix(7);
  const auto hex = tag.substr(0, kHexDigits);
  if (hex.size() != kHexDigits || !std::ranges::all_of(hex, [](char c) { return hex_digit(c) >= 0; })) return false;
  tag.remove_prefix(kHexDigits);
  return tag.empty() || tag == ".sig" || tag == ".att" || tag == ".sbom";
}

Notification parse_notification(std::string_view body) {
  const auto document = JsonValue::parse(body, "notification", kLimits);
  Notification found;
  if (!document.is_object()) document.refuse("is no notification");
  if (document.has("events")) {
    read_each(document["events"].items(kMaxEvents), found,
              [&](const JsonValue& event) { read_distribution_event(event, found); });
  } else if (document.has("event_data")) {
    read_harbor_data(document["event_data"], document["type"].text(kMaxNameBytes) == "PUSH_ARTIFACT", found);
  } else if (document.has("specversion") && document.has("data")) {
    read_harbor_data(document["data"], document["type"].text(kMaxNameBytes) == "harbor.artifact.pushed", found);
  } else {
    document.refuse("is of no form that is known: distribution's, Harbor's, or CloudEvents of Harbor");
  }
  return found;
}

}  // namespace varve::webhook
