#include "analyzer/usage/internal/writer.h"

#include <algorithm>

#include "analyzer/usage/internal/daily_counts.h"
#include "analyzer/usage/internal/months.h"
#include "analyzer/usage/internal/partitions.h"
#include "analyzer/usage/internal/schema.h"
#include "core/base/errors.h"
#include "core/base/random.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

constexpr std::size_t kMaxNames = 500'000;
constexpr std::size_t kMaxResolvers = 16;   // some 10 MB for a large image
constexpr std::size_t kCountedAtOnce = 64;  // sessions of one statement

void in_pieces(const std::vector<SqlValue>& ids, const std::function<void(std::span<const SqlValue>)>& each) {
  for (std::size_t at = 0; at < ids.size(); at += kCountedAtOnce)
    each(std::span(ids).subspan(at, std::min(kCountedAtOnce, ids.size() - at)));
}

}  // namespace

Writer::Writer(SqlConnection& sql)
    : sql_(sql),
      token_(random_hex(16)),
      modules_(sql, "module", "name"),
      distributions_(sql, "distribution", "name, display_name"),
      gpu_models_(sql, "gpu_model", "name"),
      pending_paths_(sql, "pending_path", "path"),
      keyed_hash_(sql),
      failed_names_(sql, keyed_hash_) {}

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

void Writer::count(std::int64_t session_id, std::int64_t day) {
  uncounted_.insert(session_id);
  // Its number may be of a later month than its day, where a transaction had begun that month and was rolled back.
  const auto month = std::max(month_of(std::int32_t(day)), month_of_session(session_id));
  if (!sql_.is_server() || month <= partitioned_) return;
  make_partitions(sql_, month);
  partitioned_ = month;
}

void Writer::commit() {
  auto changed = lessened_;
  in_pieces({uncounted_.begin(), uncounted_.end()}, [&](std::span<const SqlValue> piece) {
    find_owners(piece);
    count_sessions(sql_, piece, +1);
    count_users(sql_, piece);
    query_in(sql_, "SELECT DISTINCT day FROM session WHERE id", piece, "",
             [&](const SqlRow& row) { changed.insert(row.number(0)); });
  });
  forget_month_sums(sql_, changed);
  for (const auto day : lessened_) remove_zeros(sql_, day);
  uncounted_.clear();
  lessened_.clear();
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
  keyed_hash_.forget();
  failed_names_.forget();
  images_.clear();
  resolvers_.clear();
  uncounted_.clear();
  lessened_.clear();
  partitioned_ = -1;
}

std::int64_t Writer::image_id(const std::string& digest) {
  const auto known = images_.find(digest);
  if (known != images_.end()) return known->second;
  std::int64_t id = 0;
  sql_.query(
      "INSERT INTO image (digest, label, python, has_inventory) VALUES ($1, '', '', 0) "
      "ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest RETURNING id",
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
  std::int64_t id = 0;
  sql_.query(
      "INSERT INTO reinstall (distribution_id, from_version, to_version, why) VALUES ($1, $2, $3, $4) "
      "ON CONFLICT (distribution_id, from_version, to_version, why) DO UPDATE SET why = excluded.why RETURNING id",
      {distribution_id, from, to, why}, [&](const SqlRow& row) { id = row.number(0); });
  return id;
}

void Writer::recount(const std::vector<std::int64_t>& session_ids) {
  std::vector<SqlValue> counted;
  for (const auto id : session_ids)
    if (uncounted_.insert(id).second) counted.emplace_back(id);
  in_pieces(counted, [&](std::span<const SqlValue> piece) {
    query_in(sql_, "SELECT DISTINCT day FROM session WHERE id", piece, "",
             [&](const SqlRow& row) { lessened_.insert(row.number(0)); });
    find_owners(piece);  // a program of an older version may have written them since complete_older_schema()
    count_sessions(sql_, piece, -1);
  });
}

void Writer::find_owners(std::span<const SqlValue> session_ids) {
  std::map<std::pair<std::int64_t, std::int64_t>, std::string> missing;  // image, module
  for (const auto* column : {"module_id", "by_id"})
    query_in(sql_,
             fmt::format("SELECT DISTINCT session.image_id, module.id, name "
                         "FROM session CROSS JOIN session_module CROSS JOIN module "
                         "WHERE session_id = session.id AND module.id = {0} AND NOT EXISTS (SELECT 1 FROM module_owner "
                         "WHERE module_owner.image_id = session.image_id AND module_owner.module_id = {0}) "
                         "AND session.id",
                         fmt::format("session_module.{}", column)),
             session_ids, "", [&](const SqlRow& row) {
               missing[{row.number(0), row.number(1)}] = row.text(2);
             });
  std::vector<SqlValue> rows;
  for (const auto& [key, name] : missing) {
    const auto& [image, module] = key;
    const auto short_id = modules_.id_of(std::string(short_module(name)));
    auto owners = resolver(image).of_module(name);
    if (owners.empty()) owners.push_back(0);
    for (const auto owner : owners) rows.insert(rows.end(), {image, module, owner, short_id});
  }
  run_rows(sql_, "INSERT INTO module_owner (image_id, module_id, distribution_id, short_id) VALUES", 4, "", rows);
}

void Writer::complete_older_schema() {
  complete_files_only();
  if (read_setting(sql_, "users_missing").empty()) return;
  WriteTransaction transaction(*this);
  if (read_setting(sql_, "users_missing").empty()) return;  // another program was faster
  count_sketched_users(sql_);
  sql_.run("DELETE FROM setting WHERE name = 'users_missing'");
  transaction.commit();
}

void Writer::complete_files_only() {
  if (read_setting(sql_, "files_only_missing").empty()) return;
  WriteTransaction transaction(*this);
  if (read_setting(sql_, "files_only_missing").empty()) return;  // another program was faster
  std::vector<SqlValue> sessions;
  sql_.query("SELECT id FROM session", {}, [&](const SqlRow& row) { sessions.emplace_back(row.number(0)); });
  if (!read_setting(sql_, "owners_missing").empty())
    in_pieces(sessions, [&](std::span<const SqlValue> piece) {
      find_owners(piece);
      forget_if_too_much();
    });
  begin_files_only(sql_);
  in_pieces(sessions, [&](std::span<const SqlValue> piece) { take_kept_from_files_only(sql_, piece); });
  end_gone_of_files_only(sql_);
  in_pieces(sessions, [&](std::span<const SqlValue> piece) { add_kept_to_files_only(sql_, piece); });
  sql_.run("DELETE FROM setting WHERE name = 'owners_missing' OR name = 'files_only_missing'");
  transaction.commit();
}

}  // namespace varve::usage
