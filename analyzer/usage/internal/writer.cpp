#include "analyzer/usage/internal/writer.h"

#include <unistd.h>

#include <array>

#include "analyzer/usage/internal/schema.h"
#include "core/base/errors.h"
#include "core/base/random.h"

namespace varve::usage {
namespace {

constexpr std::size_t kMaxCachedSketches = 20'000;  // at most 4 kB each
constexpr std::size_t kMaxNames = 500'000;
constexpr std::size_t kMaxResolvers = 16;  // some 10 MB for a large image

// The subjects of a session that have users, from the keys of its contribution.
std::optional<SketchKey> subject_of(const DailyKey& key, const DailyCounts& counts) {
  SketchKey subject{.month = 0, .image_id = key.image_id, .kind = SketchKind::kImage, .subject_id = key.a};
  switch (key.table) {
    case DailyTable::kSession:
      if (counts[SessionCounts::kHeard] == 0) return std::nullopt;
      return subject;
    case DailyTable::kUse:
      subject.kind = SketchKind::kDistribution;
      return subject;
    case DailyTable::kFailed:
      subject.kind = SketchKind::kFailed;
      return subject;
    case DailyTable::kReinstall:
      subject.kind = SketchKind::kReinstall;
      return subject;
    case DailyTable::kModule:
    case DailyTable::kEdge:
    case DailyTable::kGpuModel:
      break;
  }
  return std::nullopt;
}

std::uint64_t sketch_hash(const Bytes& user) { return user.size() >= 8 ? load_le<std::uint64_t>(user.data()) : 0; }

}  // namespace

Writer::Writer(SqlConnection& sql)
    : sql_(sql),
      token_(random_hex(16)),
      modules_(sql, "module", "name"),
      distributions_(sql, "distribution", "name"),
      gpu_models_(sql, "gpu_model", "name"),
      pending_paths_(sql, "pending_path", "path"),
      failed_names_(sql) {}

void Writer::begin() {
  sql_.begin_write();
  try {
    if (read_setting(sql_, "last_writer") == token_) return forget_if_too_much();
    forget();
    write_setting(sql_, "last_writer", token_);
  } catch (...) {
    rollback();
    throw;
  }
}

void Writer::forget_if_too_much() {
  if (modules_.remembered() + pending_paths_.remembered() > kMaxNames || resolvers_.size() > kMaxResolvers) forget();
}

void Writer::commit() {
  write_contribution(sql_, difference_);
  difference_.clear();
  write_sketches();
  sql_.commit();
}

void Writer::rollback() noexcept {
  sql_.rollback();
  forget();
}

void Writer::forget() {
  modules_.forget();
  distributions_.forget();
  gpu_models_.forget();
  pending_paths_.forget();
  failed_names_.forget();
  images_.clear();
  resolvers_.clear();
  reinstalls_.clear();
  difference_.clear();
  sketches_.clear();
}

std::int64_t Writer::image_id(const std::string& digest) {
  const auto known = images_.find(digest);
  if (known != images_.end()) return known->second;
  std::int64_t id = 0;
  sql_.query(
      "INSERT INTO image (digest, label, python, has_inventory) VALUES ($1, '', '', 0) ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest "
      "RETURNING id",
      {digest}, [&](const SqlRow& row) { id = row.number(0); });
  images_[digest] = id;
  return id;
}

const ImageResolver& Writer::resolver(std::int64_t image_id) {
  const auto known = resolvers_.find(image_id);
  if (known != resolvers_.end()) return known->second;
  return resolvers_.emplace(image_id, ImageResolver(sql_, image_id)).first->second;
}

std::int64_t Writer::reinstall_id(std::int64_t distribution_id, const std::string& from, const std::string& to,
                                  const std::string& why) {
  auto& id = reinstalls_[{distribution_id, from, to, why}];
  if (id != 0) return id;
  sql_.query(
      "INSERT INTO reinstall (distribution_id, from_version, to_version, why) VALUES ($1, $2, $3, $4) "
      "ON CONFLICT (distribution_id, from_version, to_version, why) DO UPDATE SET why = excluded.why RETURNING id",
      {distribution_id, from, to, why}, [&](const SqlRow& row) { id = row.number(0); });
  return id;
}

void Writer::change_session(const SessionState& before, const Contribution& old_part, SessionState& after,
                            const Contribution& new_part) {
  store_session(sql_, before, after);
  add_contribution(difference_, old_part, -1);
  add_contribution(difference_, new_part, +1);
  add_users(before, old_part, after, new_part);
}

void Writer::add_users(const SessionState& before, const Contribution& old_part, const SessionState& after,
                       const Contribution& new_part) {
  for (const auto& [key, counts] : new_part) {
    auto subject = subject_of(key, counts);
    if (!subject) continue;
    const auto old = old_part.find(key);
    const bool new_subject = old == old_part.end() || !subject_of(old->first, old->second);
    for (const auto& [month, user] : after.users) {
      if (!new_subject && before.users.contains({month, user})) continue;
      subject->month = month;
      add_user(*subject, sketch_hash(user));
    }
  }
}

void Writer::add_user(const SketchKey& key, std::uint64_t hash) {
  auto found = sketches_.find(key);
  if (found == sketches_.end()) {
    found = sketches_.emplace(key, CachedSketch{}).first;
    sql_.query("SELECT sketch FROM user_sketch WHERE month = $1 AND image_id = $2 AND kind = $3 AND subject_id = $4",
               {key.month, key.image_id, std::int64_t(key.kind), key.subject_id},
               [&](const SqlRow& row) { found->second.sketch = UserSketch::parse(row.blob(0)); });
  }
  if (found->second.sketch.add(hash)) found->second.changed = true;
}

void Writer::write_sketches() {
  std::vector<SqlValue> rows;
  for (auto& [key, cached] : sketches_) {
    if (!cached.changed) continue;
    rows.insert(rows.end(), {SqlValue(key.month), SqlValue(key.image_id), SqlValue(std::int64_t(key.kind)),
                             SqlValue(key.subject_id), SqlValue(cached.sketch.bytes())});
    cached.changed = false;
  }
  run_rows(sql_, "INSERT INTO user_sketch (month, image_id, kind, subject_id, sketch) VALUES", 5,
           "ON CONFLICT (month, image_id, kind, subject_id) DO UPDATE SET sketch = excluded.sketch", rows);
  if (sketches_.size() > kMaxCachedSketches) sketches_.clear();
}

}  // namespace varve::usage
