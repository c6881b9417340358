#pragma once
// The usage database: what was collected, in SQLite or PostgreSQL. Schema: docs/formats/usage-database.md.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analyzer/notebooks/scan.h"
#include "analyzer/packages/inventory.h"
#include "analyzer/usage/probe.h"
#include "analyzer/usage/snapshot.h"
#include "analyzer/usage/spool.h"
#include "core/base/progress.h"
#include "core/base/threads/cancel.h"

namespace varve::usage {

// Who is not believed about it may so add to what "none in n sessions" is out of: with these numbers, one user alone
// does not reach the 300 sessions that say "at most 1 %" in a window of 90 days.
inline constexpr std::uint32_t kUserDaySessions = 3;
inline constexpr std::int32_t kUserLateDays = 31;  // of sessions that began longer ago only what they used counts

struct CollectOptions {
  std::uint32_t known_name_sessions = 20;  // k: a failed name that no image knows is passed on from so many sessions on
  bool remove_collected = false;           // delete spool files of what has ended, after they were collected whole
  Progress* progress = nullptr;            // gets the bytes of the files; may be absent
  std::uint32_t user_day_sessions = kUserDaySessions;  // that count, of one user and day; 0: all
  std::optional<std::int32_t> today = {};  // sessions that begin later than a day after it are refused; absent: now
};

// A line or a file that was not taken in.
struct QuarantineNote {
  std::filesystem::path file;
  std::uint64_t place = 0;  // byte offset of the line; 0 for the whole file
  std::string reason;       // one line; quotes nothing of the content
};

struct CollectResult {
  std::uint64_t sessions = 0;     // new ones
  std::uint64_t surplus = 0;      // of these: only what they used counts, their user had others that day
  std::uint64_t events = 0;       // records taken in now
  std::uint64_t duplicates = 0;   // records that were there already
  std::uint64_t quarantined = 0;  // whole lines and files that could not be read
  std::uint64_t unknown = 0;      // records of kinds that only a newer program knows
  std::uint64_t removed_files = 0;
  std::vector<QuarantineNote> notes;  // the first kMaxQuarantineNotes of `quarantined`
  std::uint64_t files = 0;
  std::uint64_t pending_bytes = 0;  // half records at the ends of files
};

inline constexpr std::size_t kMaxQuarantineNotes = 100;

struct SnapshotQuery {
  DayRange window;
  std::optional<Digest> image;  // absent: all
  bool totals_only = false;  // leaves out `days` and `modules` of distributions and `unresolved`, which are most of the
                             // work over a year
};

// One distinct notebook of those scanned, by what it needs of an image.
struct NotebookImports {
  std::string path;          // as scanned; of duplicates the first in byte order
  std::uint32_t copies = 1;  // with the same code
  Digest code;               // SHA-256 of its code
  std::string language;
  std::vector<std::string> distributions;  // normalised names of those of the image that it imports, runs programs of
                                           // or installs itself, ascending
  std::vector<std::string>
      modules;  // dotted, ascending: what it certainly imports as a module and a distribution of the image owns
  // That it starts (`!tool`), as it names them, ascending; few that all images have.
  std::vector<std::string> programs = {};
};

// One session of those that are still kept one by one.
struct SessionUse {
  std::uint64_t key = 0;  // of its random id: uniform, always the same
  std::int32_t day = 0;
  std::vector<std::string> distributions;  // normalised names of those that it imported in any way, opened files or
                                           // executed programs of; ascending
};

struct SessionSample {
  std::uint64_t kept = 0;   // heard sessions of the window that are kept one by one
  std::uint64_t given = 0;  // of these: handed out
};

// How many sessions and users used at least one distribution of a set.
struct SetUse {
  std::uint64_t sessions_at_least = 0;  // daily counts do not say which sessions were the same ones: a range
  std::uint64_t sessions_at_most = 0;
  UserCount users;
};

struct Retention {
  std::int32_t raw_days = 30;         // sessions and single events
  std::int32_t aggregate_days = 800;  // per day and distribution; then by month
};

struct AgeResult {
  std::uint64_t sessions = 0;             // removed; they stay counted
  std::uint64_t months_summed = 0;        // months whose sums were made, again or for the first time
  std::uint64_t months_without_days = 0;  // of which only the sums are left from now on
  std::uint64_t partitions = 0;           // removed, on a server
};

// One connection. Not shared between threads; any number of processes and connections may work on one database.
class Database {
 public:
  virtual ~Database() = default;

  // Takes in what is new in these spool files and folders; each file's new records and the note of how far it was read
  // are one transaction. Throws TemporaryError when the database is full or locked for too long; what was committed
  // before stays.
  virtual CollectResult collect(const std::vector<std::filesystem::path>& spools, const CollectOptions& options,
                                const CancelFlag& cancel) = 0;
  // Replaces what is known of the image's packages. `label` may be "".
  virtual void put_inventory(const packages::Inventory& inventory, const std::string& label) = 0;
  // Takes in scanned notebooks; the same path replaces what was known of it.
  virtual void put_scan(const notebooks::ScanResult& scan) = 0;
  virtual Snapshot snapshot(const SnapshotQuery& query) = 0;
  // Everything kept about one distribution or import name, newest first, for `usage explain`: who, where, how, as
  // sentences' facts.
  virtual Explanation explain(const std::string& name, const SnapshotQuery& query) = 0;
  // Every distinct scanned notebook by path, those that import nothing of the image included. If the database does not
  // know the image's packages, those of all images that it knows tell whose an import is. One after the other: memory
  // is bounded by paths, not by imports.
  virtual void notebooks(const Digest& image, const std::function<void(NotebookImports&&)>& each) = 0;
  // Heard sessions of the window, as far as they are kept one by one (Retention::raw_days): all, or `at_most` of them
  // as a uniform sample that stays the same for as long as the database does. In order of their random ids.
  virtual SessionSample sessions(const SnapshotQuery& query, std::uint64_t at_most,
                                 const std::function<void(SessionUse&&)>& each) = 0;
  // From the counts per day, so over any window. Names are normalised; those that are not known count as unused.
  virtual SetUse set_use(const SnapshotQuery& query, const std::vector<std::string>& distributions) = 0;
  // Replaces what was found out by starting things of the image.
  virtual void put_probe(const Probe& probe) = 0;
  // Absent if the image was never probed. Throws CorruptData for rows that no program of ours wrote.
  virtual std::optional<Probe> probe(const Digest& image) = 0;
  // Removes single sessions older than the retention, sums up months that are over, and removes the counts per day of
  // months that are older than theirs. Harmless to repeat and to end anywhere.
  virtual AgeResult age_out(const Retention& retention, std::int32_t today, const CancelFlag& cancel) = 0;
  AgeResult age_out(const Retention& retention, std::int32_t today) { return age_out(retention, today, {}); }
};

// "PATH" or "sqlite:PATH" (created if absent), or "postgresql://…". Migrates an older schema; throws Unsupported on a
// newer one.
std::unique_ptr<Database> open_database(const std::string& where);

}  // namespace varve::usage
