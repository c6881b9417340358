#pragma once
// How a node that may only add sends its spools to the fleet's database, whose owner takes them in
// (docs/formats/usage-database.md, "Nodes").
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "analyzer/usage/database.h"

namespace varve::usage {

class SpoolSender {
 public:
  virtual ~SpoolSender() = default;

  // Sends what is new in these spool files and folders, file by file; what was sent stays sent, whatever happens next.
  // In the result `sessions` and `events` are those sent, `duplicates` the records that were sent before; `quarantined`
  // are lines that the other side will not take in either, and files that were not sent. Throws TemporaryError when as
  // much of this node waits there as may.
  virtual CollectResult send(const std::vector<std::filesystem::path>& spools, const CollectOptions& options,
                             const CancelFlag& cancel) = 0;
};

// nullptr where the database is a file, or may be written to in other ways than by sending. Throws TemporaryError where
// the server is away.
std::unique_ptr<SpoolSender> open_sender(const std::string& where);

}  // namespace varve::usage
