#pragma once
// Where the descriptors of FUSE connections lie while one daemon follows another: in a keeper of our own, or in
// systemd's descriptor store.
#include <sys/types.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/files/unique_fd.h"

namespace varve::fuse {

// Safe to use from any thread.
class DescriptorStore {
 public:
  virtual ~DescriptorStore() = default;

  // What an earlier daemon has left, by name; it stays kept until it is forgotten.
  virtual std::map<std::string, UniqueFd> take() = 0;
  // Throws if it cannot be kept.
  virtual void keep(const std::string& name, int fd) = 0;
  virtual void forget(const std::string& name) noexcept = 0;
  // Nothing is kept from here on: this daemon ends in order.
  virtual void end() noexcept = 0;
  // Call just before exec(2): another program takes the place of this one, in the same process.
  virtual void expect_successor() = 0;

  // Hung up when the store has died and renew() should be called; -1: that cannot happen.
  virtual int watch_fd() const { return -1; }
  // Makes another store with the same descriptors. Throws if that fails; false if nothing is kept.
  virtual bool renew() { return false; }
  // For `varve status`: "keeper", "systemd" or "none", and the process, if it is one of ours.
  virtual std::string_view kind() const = 0;
  virtual pid_t pid() const { return 0; }
};

struct DescriptorStoreOptions {
  std::filesystem::path socket;     // of the keeper; in a folder that is closed to other users
  std::vector<std::string> keeper;  // the words that start a keeper; its listening socket is its standard input
  std::vector<std::string> daemon;  // the words by which a keeper starts the daemon again
  std::filesystem::path log_file;   // of both
};

// systemd's if this process is a service that has one ($NOTIFY_SOCKET), else a keeper: the one that runs, or a new one.
// If none can be started, nothing is kept, with a warning in the log. Only for who holds the daemon's lock; call while
// the process has one thread.
std::unique_ptr<DescriptorStore> open_descriptor_store(const DescriptorStoreOptions& options);

}  // namespace varve::fuse
