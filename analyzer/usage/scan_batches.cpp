#include "analyzer/usage/scan_batches.h"

namespace varve::usage {

void ScanBatches::add(notebooks::ScannedFile&& file) {
  waiting_.files.push_back(std::move(file));
  if (waiting_.files.size() >= max_files_) finish();
}

void ScanBatches::finish() {
  if (waiting_.files.empty()) return;
  put_(waiting_);
  waiting_.files.clear();
}

}  // namespace varve::usage
