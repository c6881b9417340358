#pragma once
// All indexes of an image, with what the judge says of each: for who asks why one is believed, and another is not.
#include <string>
#include <vector>

#include "core/index/local_index.h"

namespace varve::index {

struct JudgedIndex {
  ImageIndexBlobs blobs;
  trust::Judgement judgement;
  bool is_here = false;
  std::string index_from = {};  // the further repository that offers it; "" = it is here or beside the image
};

struct JudgedIndexes {
  std::vector<JudgedIndex> all;      // those that are here first, in the order in which load_index() looks at them
  std::optional<std::size_t> taken;  // which of them load_index() would take
  std::string trouble;               // why a repository could not be asked, "" if all could
};

// Loads none of them. Signatures that count are kept, as when an image is mounted.
JudgedIndexes judge_indexes(LocalIndex& local, const oci::Image& image);

}  // namespace varve::index
