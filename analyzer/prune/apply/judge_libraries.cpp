#include <fmt/format.h>

#include "analyzer/elf/unresolved.h"
#include "analyzer/prune/apply/gates.h"
#include "analyzer/report/text.h"
#include "core/base/text/calendar.h"
#include "core/base/text/strings.h"

namespace varve::prune {
namespace {

constexpr const char* kCreated = "created";

// As JSON text; "" if it stays.
std::string created_as_set_back(const cuda::Manifest& before, const TimesRule& times) {
  const auto created = before.config.find(kCreated);
  if (!times.latest_created || created == before.config.end()) return "";
  const auto seconds = parse_rfc3339(trimmed(created->second, "\""));
  return seconds && *seconds >= *times.latest_created ? fmt::format("\"{}\"", rfc3339(*times.latest_created)) : "";
}

}  // namespace

void judge_elf(const LoaderView& before, const LoaderView& after, GateResult& result) {
  const auto old_loader = loader_of(before);
  const auto new_loader = loader_of(after);
  result.findings = elf::newly_unresolved(old_loader, new_loader);
  const auto missing = elf::unresolved(new_loader).size();
  result.detail = missing == 0
                      ? "every library that something needs is found"
                      : fmt::format("{} that something needs {} not found, {} of them {} found before",
                                    report::count_text(missing, "library", "libraries"), missing == 1 ? "is" : "are",
                                    result.findings.size(), result.findings.size() == 1 ? "was" : "were");
  if (!new_loader.problems().empty()) result.detail += "; " + new_loader.problems().front();
}

void judge_cuda(const cuda::Manifest& before, const cuda::Manifest& after, GateResult& result, const TimesRule& times) {
  if (const auto created = created_as_set_back(before, times); !created.empty()) {
    auto expected = before;
    expected.config[kCreated] = created;
    expected.config_digest = cuda::config_digest(expected.config);
    result.findings = cuda::compare(expected, after);
  } else {
    result.findings = cuda::compare(before, after);
  }
  if (before.rules != after.rules) result.findings.push_back("the manifests follow different rules");
  result.detail =
      fmt::format("{} files, {} needs and the config of the image by the rules of cuda.toml, {} differences",
                  after.files.size(), after.resolved.size(), result.findings.size());
}

}  // namespace varve::prune
