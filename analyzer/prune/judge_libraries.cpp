#include <fmt/format.h>

#include "analyzer/elf/unresolved.h"
#include "analyzer/prune/gates.h"

namespace varve::prune {
namespace {

void need_elf_facts(const LoaderView& image) {
  if (!image.tree.has_elf_facts)
    fail<CouldNotRun>(
        "the index of {} was made by a Varve that looked at no ELF files: `varve index --force` makes it anew",
        image.image.to_string());
}

elf::Loader loader_of(const LoaderView& image) {
  return elf::Loader(image.tree, {.library_path = cuda::library_path_of(image.config_json), .cache = image.ld_cache});
}

}  // namespace

void judge_elf(const LoaderView& before, const LoaderView& after, GateResult& result) {
  need_elf_facts(before), need_elf_facts(after);
  const auto old_loader = loader_of(before);
  const auto new_loader = loader_of(after);
  result.findings = elf::newly_unresolved(old_loader, new_loader);
  result.detail = fmt::format("{} needs of libraries find nothing, {} of them found something before",
                              elf::unresolved(new_loader).size(), result.findings.size());
  if (!new_loader.problems().empty()) result.detail += "; " + new_loader.problems().front();
}

void judge_cuda(const cuda::Manifest& before, const cuda::Manifest& after, GateResult& result) {
  result.findings = cuda::compare(before, after);
  if (before.rules != after.rules) result.findings.push_back("the manifests follow different rules");
  result.detail =
      fmt::format("{} files, {} needs and the config of the image by the rules of cuda.toml, {} differences",
                  after.files.size(), after.resolved.size(), result.findings.size());
}

cuda::Manifest cuda_manifest(const LoaderView& image) {
  need_elf_facts(image);
  return cuda::make_manifest(image.tree, image.ld_cache, cuda::built_in_rules(), image.config_json, image.image);
}

}  // namespace varve::prune
