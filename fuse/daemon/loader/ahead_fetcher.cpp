#include "fuse/daemon/loader/ahead_fetcher.h"

#include <atomic>
#include <exception>
#include <span>

#include "fuse/daemon/pages/shown_files.h"

namespace varve::fuse {
namespace {

bool is_worth_fetching(const StreamPiece& piece) { return !piece.is_elsewhere() && !piece.between_files; }

}  // namespace

std::vector<StreamPiece> AheadFetcher::pieces(const std::vector<index::DeviceRun>& runs, ByteRange in_file) const {
  return pieces_of(runs, devices_, in_file);
}

void AheadFetcher::fetch(const std::vector<StreamPiece>& pieces, const LoaderEvents::Arrival& arrival) {
  struct Waiting {
    std::shared_ptr<LoaderEvents> events;
    LoaderEvents::Arrival arrival;
    std::atomic<std::size_t> missing;
    std::atomic<bool> failed = false;
    void arrived(bool well) {
      if (!well) failed = true;
      if (missing.fetch_sub(1) != 1) return;
      arrival.failed = failed;
      events->add(events->news.arrived, arrival);
    }
  };
  // One more than there are, so that it is not done before all was asked for.
  const auto waiting = std::make_shared<Waiting>(events_, arrival, pieces.size() + 1);
  for (const auto& piece : pieces) {
    const auto done = [waiting](const std::exception_ptr& error) { waiting->arrived(!error); };
    if (!is_worth_fetching(piece)) waiting->arrived(true);
    // A start that was learnt: its pack has what the loader reads.
    else if (piece.learnt || !take_from_budget(piece.length))
      waiting->arrived(false);
    else
      piece.stream->ensure({piece.stream_offset, piece.length}, Priority::kReadAhead, done);
  }
  waiting->arrived(true);
}

void AheadFetcher::fetch_now(const std::vector<DeviceExtent>& parts) {
  std::vector<StreamPiece> pieces;
  for (const auto& [place, length] : parts)
    devices_.at(place.device - 1)->find_pieces({place.offset, length}, 0, pieces);
  fetch_now(pieces);
}

void AheadFetcher::fetch_now(const std::vector<StreamPiece>& pieces) {
  for (const auto& piece : pieces)
    if (!piece.learnt && is_worth_fetching(piece) && take_from_budget(piece.length))
      piece.stream->ensure({piece.stream_offset, piece.length}, Priority::kReadAhead, [](const auto&) {});
}

bool AheadFetcher::take_from_budget(std::uint64_t bytes) {
  if (bytes > budget_) return false;
  budget_ -= bytes;
  return true;
}

std::optional<Bytes> AheadFetcher::read(const std::vector<index::DeviceRun>& runs, ByteRange in_file) const {
  Bytes bytes(in_file.length);
  for (const auto& piece : pieces(runs, in_file)) {
    const auto into = std::span(bytes).subspan(piece.into - in_file.offset, piece.length);
    if (!read_if_here(piece, into)) return std::nullopt;
  }
  return bytes;
}

}  // namespace varve::fuse
