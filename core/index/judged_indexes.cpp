#include "core/index/judged_indexes.h"

#include <algorithm>

#include "core/index/index_sources.h"

namespace varve::index {
namespace {

void add_those_in(oci::Repository& place, bool is_here, const std::string& index_from, const LocalIndex& local,
                  const oci::Image& image, JudgedIndexes& found) {
  visit_indexes(place, image, [&](FoundIndex index) {
    const auto same = [&](const JudgedIndex& other) {
      return other.blobs.manifest.digest == index.blobs.manifest.digest;
    };
    auto judgement = local.judge(image, index, place, !is_here && index_from.empty(), index_from);
    const auto known = std::ranges::find_if(found.all, same);
    if (known == found.all.end()) {
      found.all.push_back({.blobs = std::move(index.blobs),
                           .judgement = std::move(judgement),
                           .is_here = is_here,
                           .index_from = index_from});
    } else if (judgement.trusted && !known->judgement.vouched) {
      known->judgement = std::move(judgement);
    }
    return false;
  });
}

// What is here before what is only offered, what is vouched for before all; else the order in which they were found.
std::optional<std::size_t> choose(const std::vector<JudgedIndex>& indexes) {
  std::optional<std::size_t> best;
  const auto rank = [&](std::size_t i) { return std::pair(indexes[i].is_here, indexes[i].judgement.vouched); };
  for (std::size_t i = 0; i < indexes.size(); ++i)
    if (indexes[i].judgement.trusted && (!best || rank(i) > rank(*best))) best = i;
  return best;
}

}  // namespace

JudgedIndexes judge_indexes(LocalIndex& local, const oci::Image& image) {
  JudgedIndexes found;
  add_those_in(local.repository(), true, "", local, image, found);
  const auto troubles = visit_index_sources(image, [&](const IndexSource& source) {
    add_those_in(*source.repository, false, source.index_from, local, image, found);
    return false;
  });
  for (const auto& trouble : troubles) {
    try {
      std::rethrow_exception(trouble);
    } catch (const std::exception& error) {
      found.trouble += (found.trouble.empty() ? "" : "; ") + std::string(error.what());
    }
  }
  found.taken = choose(found.all);
  return found;
}

}  // namespace varve::index
