#pragma once
// Log lines (log.h) in systemd's journal, with fields by which people filter: journalctl VARVE_IMAGE=...
#include <string>

namespace varve::log {

// What lines of this thread are about while it lives; fields of the same name add up. Without a journal it costs two
// stores. Names in use: IMAGE (reference or digest of the manifest), LAYER (digest of its map's stream), SESSION,
// REGISTRY, CALL (of the daemon's control socket).
class Field {
 public:
  // The journal has it as VARVE_NAME. `value` is read when a line is written, and left out while it is empty.
  Field(const char* name, const std::string& value) noexcept;
  Field(const char* name, std::string&& value) = delete;
  ~Field();
  Field(const Field&) = delete;
  Field& operator=(const Field&) = delete;

 private:
  friend class JournalLine;
  const char* name_;
  const std::string& value_;
  const Field* outer_;
};

// From now on lines go to the journal if standard error leads there (JOURNAL_STREAM, systemd.exec(5)); else nothing
// changes. What it does not take goes to standard error. Until write_to_file().
void use_journal_if_there();

}  // namespace varve::log
