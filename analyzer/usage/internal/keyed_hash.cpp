#include "analyzer/usage/internal/keyed_hash.h"

#include <algorithm>

#include "analyzer/usage/internal/schema.h"
#include "core/base/hmac.h"
#include "core/base/random.h"

namespace varve::usage {
namespace {

constexpr std::size_t kHashBlock = 64;  // of SHA-256
constexpr const char* kSetting = "failed_name_key";

}  // namespace

Digest KeyedHash::of(std::string_view text) {
  if (key_.empty()) {
    auto stored = read_setting(sql_, kSetting);
    if (stored.empty()) {
      stored = random_hex(32);
      write_setting(sql_, kSetting, stored);
    }
    key_ = to_bytes(as_bytes(stored).first(std::min(stored.size(), kHashBlock)));
  }
  return hmac_sha256(key_, text);
}

}  // namespace varve::usage
