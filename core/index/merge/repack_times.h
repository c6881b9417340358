#pragma once
// Which times the files of an image get that is packed anew: said by who asks, carried out by the indexer, kept in the
// proof by the analyzer.
#include <cstdint>
#include <optional>

namespace varve::index {

struct RepackTimes {
  // Layers of the previous version are used again also where only times differ, and what bytecode says of them: files
  // have the times of that version there. false: every file has its own time.
  bool of_previous = false;
  // Later times in layers that are written become this: seconds since 1970. A source of Python whose bytecode could not
  // follow keeps its own.
  std::optional<std::int64_t> latest;
  std::optional<std::int64_t> latest_created;  // the same for what config and manifest call "created"
};

}  // namespace varve::index
