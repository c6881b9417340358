#pragma once
// The parts of a comparison.
#include <set>

#include "analyzer/compare/compare.h"

namespace varve::compare {

// Not a package of the operating system alone.
bool is_python(const packages::Distribution& distribution);

FileComparison compare_files(const index::FlatTree& before, const index::FlatTree& after);
PackageComparison compare_packages(const Side& before, const Side& after, const FileComparison& files);
LayerComparison compare_layers(const oci::Image& before, const oci::Image& after);
std::vector<ConfigChange> compare_configs(const oci::Image& before, const oci::Image& after);
std::vector<CudaLibrary> compare_cuda(const index::FlatTree& before, const index::FlatTree& after);

}  // namespace varve::compare
