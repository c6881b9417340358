#pragma once
// Scanned files on their way into the database, some thousand at a time: what is held and what one transaction writes
// is bounded, however many notebooks there are.
#include <cstddef>
#include <functional>
#include <utility>

#include "analyzer/notebooks/scan.h"

namespace varve::usage {

class ScanBatches {
 public:
  static constexpr std::size_t kFilesPerBatch = 2000;

  // `put` takes a batch, as Database::put_scan() does; what it throws leaves add() and finish().
  explicit ScanBatches(std::function<void(const notebooks::ScanResult&)> put, std::size_t files = kFilesPerBatch)
      : put_(std::move(put)), max_files_(files) {}

  void add(notebooks::ScannedFile&& file);
  // Hands over what is still held. Without it that is lost.
  void finish();

 private:
  std::function<void(const notebooks::ScanResult&)> put_;
  std::size_t max_files_;
  notebooks::ScanResult waiting_;
};

}  // namespace varve::usage
