#pragma once
// What the database must recognise and not tell: a hash by a key that the database keeps, and that readers of it are
// not given.
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/digest.h"
#include "core/sql/connection.h"

namespace varve::usage {

class KeyedHash {
 public:
  explicit KeyedHash(SqlConnection& sql) : sql_(sql) {}

  // Makes the key if there is none. Within a write transaction.
  Digest of(std::string_view text);
  void forget() { key_.clear(); }

 private:
  SqlConnection& sql_;
  Bytes key_;
};

}  // namespace varve::usage
