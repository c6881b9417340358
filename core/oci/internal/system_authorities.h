#pragma once
// The authorities that this machine trusts, in one store for all connections. libcurl by itself reads the file with all
// their certificates for each connection: 28 ms of a core for 144 of them, where all else of a handshake takes 3.
#include <sys/types.h>

#include <ctime>
#include <memory>
#include <mutex>
#include <string>

#include <openssl/types.h>

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
  // the file only after read_file(): for who got a certificate of an authority that is not known. Both throw Error for
  // a file in which there are none.
  Known known();
  void read_file();

 private:
  // What changes when certificates come or go.
  struct Stamp {
    ino_t inode = 0;
    off_t size = 0;
    timespec changed = {};
    bool operator==(const Stamp& other) const;
  };
  struct Held {
    Known known;
    Stamp file, folder;
  };
  static Stamp stamp_of(const std::string& path);
  void renew_if_changed();
  void add_file(Known& known) const;

  const std::string file_, folder_;
  std::mutex mutex_;  // over reading, too: who waits wants what is read
  Held held_;
};

// The option of a connection (CURL*) that verifies by `store`, until it is reset; the store must live as long.
void verify_by(void* easy, X509_STORE* store);

}  // namespace varve::oci::internal
