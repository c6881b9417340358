#pragma once
// What is to be done, in a database: survives the program, and may be shared by workers of several machines
// (PostgreSQL). An image of a repository is there once, however often it is told of.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/sql/connection.h"
#include "webhook/events.h"

namespace varve::webhook {

enum class JobState : std::uint8_t { kQueued, kTaken, kDone, kFailed };
std::string_view to_string(JobState state);

struct Job {
  std::int64_t number = 0;
  Pushed image;
  JobState state = JobState::kQueued;
  unsigned attempts = 0;         // begun, this one included
  bool indexed = false;          // that part is done; the rest is not
  std::string reason;            // why it failed, or must be tried again; what was found
  std::int64_t age_seconds = 0;  // since it was last told of
};

struct QueueCounts {
  std::uint64_t queued = 0, taken = 0, done = 0, failed = 0;
  std::int64_t oldest_seconds = 0;  // of those that are queued or taken
};

// Not shared between threads: each has one of its own. Times are the database's. Throws as SqlConnection does.
class WorkQueue {
 public:
  // `where` as open_sql() takes it; the tables are made if they are not there.
  explicit WorkQueue(const std::string& where);

  enum class Added { kNew, kKnown, kFull };
  // kKnown: it is queued, being done or done, by its digest; what had failed is tried anew. Committed when it returns.
  Added add(const Pushed& image, std::uint64_t max_queued);

  // The one that has waited longest and is due, for this worker alone until the lease is over. Absent if there is none.
  std::optional<Job> take(const std::string& worker, std::chrono::seconds lease);
  // False if it is another's by now: it must be left alone.
  bool renew(const Job& job, const std::string& worker, std::chrono::seconds lease);
  // What follows does nothing to a job that is another's by now.
  void note_indexed(const Job& job, const std::string& worker);
  void finish(const Job& job, const std::string& worker, JobState state, const std::string& reason);
  void put_back(const Job& job, const std::string& worker, std::chrono::seconds wait, const std::string& reason);
  // Another image of its repository: the one that was done last.
  std::optional<Digest> last_done(const Pushed& image);
  // As if it had not been taken.
  void give_up(const Job& job, const std::string& worker);
  // Nothing of it is to be remembered: it was no image.
  void forget(const Job& job, const std::string& worker);

  // Of workers that cannot be there any more: all that are taken are free at once. Only where nobody else uses the
  // queue.
  void release_all();
  QueueCounts counts();
  // Failed ones, then queued and taken ones; `limit` of each.
  std::vector<Job> list(std::size_t limit);
  // Failed ones are tried anew: all, or of one repository and tag or digest. How many.
  std::uint64_t retry(const std::string& repository, const std::string& selector);
  // Those that were done so long ago are forgotten; a sweep that meets them again finds their index.
  void forget_done(std::chrono::seconds age);
  // False while it has not been so long since this was true for anybody.
  bool begin_sweep(std::chrono::seconds interval);

 private:
  std::uint64_t change(std::string_view sql, std::initializer_list<SqlValue> values);
  std::string words(std::string_view sql) const;

  std::unique_ptr<SqlConnection> sql_;
};

}  // namespace varve::webhook
