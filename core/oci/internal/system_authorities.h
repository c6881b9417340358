#pragma once
// The authorities that this machine trusts, in one store for all connections. libcurl by itself reads the file with all
// their certificates for each connection: 28 ms of a core for 144 of them, where all else of a handshake takes 3.
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <openssl/types.h>

#include "core/oci/internal/file_stamp.h"

namespace varve::oci::internal {

// Safe to use from any thread.
class SystemAuthorities {
 public:
  // `file`: PEM; `folder`: certificates by the digests of their subjects, as openssl-rehash(1) links them. Either may
  // be "", or not be there.
  SystemAuthorities(std::string file, std::string folder) : file_(std::move(file)), folder_(std::move(folder)) {}
  // Those that libcurl takes.
  static SystemAuthorities& of_machine();

  struct Known {
    std::shared_ptr<X509_STORE> store;
    bool whole = false;  // false: what is in the file alone is not in the store
  };
  // As file and folder are now. Where the folder has links, the one certificate that is needed is read from there, and
  // the file only `with_file`, from then on: for who got a certificate that is not trusted. Throws Error for a file in
  // which there are none.
  Known known(bool with_file = false);
  // Of file and folder: others once something else is trusted.
  std::vector<FileStamp> stamps() const { return stamps_of({file_, folder_}); }

 private:
  // A new store: who verifies by one that there is, alone reads it.
  Known make(bool with_file) const;

  const std::string file_, folder_;
  std::mutex mutex_;  // over reading, too: who waits wants what is read
  Known held_;
  std::vector<FileStamp> stamps_;  // of file and folder, as `held_` has them
};

// A connection (CURL*), and one to a proxy before it, verifies by `store` alone, until it is reset; the store must live
// as long. Does nothing for a libcurl with other TLS than OpenSSL's.
void verify_by(void* easy, X509_STORE* store);

}  // namespace varve::oci::internal
