#include <algorithm>
#include <tuple>

#include "analyzer/compare/compare.h"
#include "analyzer/python/version.h"

namespace varve::compare {
namespace {

// "2" of the last of the versions; "" where there is none that can be read.
std::string major_of(const std::vector<std::string>& versions) {
  const auto version = python::Version::parse(versions.empty() ? "" : versions.back());
  const auto text = version ? version->normalized() : "";
  return text.substr(0, text.find('.'));
}

// Gone, another major version, other versions, new, rebuilt.
int severity(const ComparedPackage& package) {
  if (package.change == PackageChange::kRemoved) return 0;
  if (package.change == PackageChange::kAdded) return 3;
  if (package.change == PackageChange::kRebuilt) return 4;
  return major_of(package.before) != major_of(package.after) ? 1 : 2;
}

}  // namespace

std::vector<ComparedPackage> breaking_first(std::vector<ComparedPackage> packages) {
  std::ranges::stable_sort(packages, {}, [](const ComparedPackage& one) {
    return std::tuple(severity(one), -std::int64_t(std::max(one.bytes_before, one.bytes_after)));
  });
  return packages;
}

}  // namespace varve::compare
