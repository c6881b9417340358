#include "analyzer/usage/internal/failed_names.h"

#include <sys/random.h>

#include <algorithm>
#include <array>

#include "analyzer/python/name.h"
#include "analyzer/usage/internal/schema.h"
#include "core/base/digest.h"
#include "core/base/errors.h"

namespace varve::usage {
namespace {

constexpr std::size_t kHashBlock = 64;  // of SHA-256
constexpr std::size_t kMaxRemembered = 200'000;

Bytes random_bytes(std::size_t count) {
  Bytes bytes(count);
  if (::getentropy(bytes.data(), bytes.size()) != 0) fail_errno("read {} random bytes", count);
  return bytes;
}

// RFC 2104.
Digest hmac(ByteView key, std::string_view text) {
  std::array<std::byte, kHashBlock> inner{}, outer{};
  std::copy(key.begin(), key.end(), inner.begin());
  outer = inner;
  for (auto& byte : inner) byte ^= std::byte{0x36};
  for (auto& byte : outer) byte ^= std::byte{0x5c};
  Sha256 hash;
  hash.update(inner);
  hash.update(as_bytes(text));
  const auto digest = hash.finish();
  hash.update(outer);
  hash.update(digest.raw());
  return hash.finish();
}

}  // namespace

std::string random_hex(std::size_t bytes) {
  std::string text;
  for (const auto byte : random_bytes(bytes)) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

Bytes FailedNames::hash_of(std::string_view name) {
  if (key_.empty()) {
    auto stored = read_setting(sql_, "failed_name_key");
    if (stored.empty()) {
      stored = random_hex(32);
      write_setting(sql_, "failed_name_key", stored);
    }
    key_ = to_bytes(as_bytes(stored).first(std::min(stored.size(), kHashBlock)));
  }
  return to_bytes(hmac(key_, name).raw());
}

bool FailedNames::is_public(const std::string& module) {
  bool found = false;
  sql_.query(
      "SELECT 1 WHERE EXISTS (SELECT 1 FROM image_module WHERE name = $1) "
      "OR EXISTS (SELECT 1 FROM package JOIN distribution ON distribution.id = package.distribution_id WHERE distribution.name = $2)",
      {module, python::normalize_name(module)}, [&](const SqlRow&) { found = true; });
  return found;
}

std::int64_t FailedNames::id_of(const std::string& module) {
  const auto known = ids_.find(module);
  if (known != ids_.end()) return known->second;
  const auto hash = hash_of(module);
  std::int64_t id = 0;
  std::string name;
  sql_.query(
      "INSERT INTO failed_name (hash, name, sessions) VALUES ($1, '', 0) ON CONFLICT (hash) DO UPDATE SET hash = excluded.hash RETURNING id, name",
      {hash}, [&](const SqlRow& row) {
        id = row.number(0);
        name = row.text(1);
      });
  if (name.empty() && is_public(module)) sql_.run("UPDATE failed_name SET name = $2 WHERE id = $1", {id, module});
  if (ids_.size() >= kMaxRemembered) ids_.clear();
  ids_[module] = id;
  return id;
}

void FailedNames::add_session(std::int64_t id, const std::string& module, std::uint32_t enough_sessions) {
  sql_.run("UPDATE failed_name SET sessions = sessions + 1 WHERE id = $1", {id});
  sql_.run("UPDATE failed_name SET name = $2 WHERE id = $1 AND name = '' AND sessions >= $3", {id, module, std::int64_t(enough_sessions)});
}

void FailedNames::reveal(const std::vector<std::string>& names) {
  std::set<Bytes> hidden;
  sql_.query("SELECT hash FROM failed_name WHERE name = ''", {}, [&](const SqlRow& row) { hidden.insert(row.blob(0)); });
  if (hidden.empty()) return;
  for (const auto& name : names) {
    auto hash = hash_of(name);
    if (hidden.contains(hash)) sql_.run("UPDATE failed_name SET name = $2 WHERE hash = $1", {std::move(hash), name});
  }
}

void FailedNames::forget() {
  ids_.clear();
  key_.clear();
}

}  // namespace varve::usage
