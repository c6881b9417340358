#include "webhook/sweep.h"

#include <set>

#include "core/base/errors.h"
#include "core/base/log.h"
#include "core/oci/registry_listing.h"

namespace varve::webhook {
namespace {

bool is_pattern(std::string_view text) { return text.find_first_of("*?") != text.npos; }

// What is logged and counted does not end the sweep.
template <typename Ask>
void attempt(Swept& swept, Ask&& ask) {
  try {
    ask();
  } catch (const Cancelled&) {
    throw;
  } catch (const std::exception& error) {
    ++swept.failed;
    log::warn("sweep: {}", error.what());
  }
}

std::set<std::string> repositories_of(const Settings& settings, const oci::RegistryOptions& registry, Swept& swept) {
  std::set<std::string> names;
  bool any_pattern = false;
  for (const auto& rule : settings.rules)
    for (const auto& name : rule.repositories)
      if (is_pattern(name))
        any_pattern = true;
      else
        names.insert(name);
  if (!any_pattern) return names;
  attempt(swept, [&] {
    for (const auto& name : oci::list_repositories(settings.reference("any"), registry))
      for (const auto& rule : settings.rules)
        if (rule.has_repository(name)) names.insert(name);
  });
  return names;
}

}  // namespace

Swept sweep(const Settings& settings, const oci::RegistryOptions& registry, WorkQueue& queue, WebhookMetrics& metrics,
            const CancelFlag& cancel) {
  Swept swept;
  for (const auto& name : repositories_of(settings, registry, swept)) {
    std::vector<Pushed> found;
    attempt(swept, [&] {
      const auto reference = settings.reference(name);
      const auto tags = oci::list_tags(reference, registry);
      const auto repository = oci::open_repository(reference, registry);
      ++swept.repositories;
      for (const auto& tag : tags) {
        cancel.throw_if_cancelled();
        if (is_tag_beside_image(tag) || settings.rule_for(name, tag) == nullptr) continue;
        attempt(swept, [&] {
          found.push_back({.repository = name, .tag = tag, .digest = repository->manifest(tag).descriptor.digest});
        });
      }
    });
    swept.tags += found.size();
    for (const auto& one : found) {
      const auto added = queue.add(one, settings.max_queued);
      if (added == WorkQueue::Added::kFull) {
        log::warn("sweep: the queue is full; the next one goes on");
        return swept;
      }
      swept.queued += added == WorkQueue::Added::kNew ? 1 : 0;
      metrics.note_event(added == WorkQueue::Added::kNew ? "queued" : "known");
    }
  }
  return swept;
}

}  // namespace varve::webhook
