#pragma once
// Who uses a mount for a while: sessions, which end with the connection that asked for theirs, processes that an
// earlier daemon served, and names that hold it until they are released.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/threads/guarded.h"
#include "fuse/daemon/handover.h"
#include "fuse/daemon/holder_watch.h"

namespace varve::fuse {

// Safe to use from any thread. Must outlive its leases.
class LeaseTable {
 public:
  // `on_end` is told the mount of each lease or hold that has ended, by the thread that ended it and without a lock.
  explicit LeaseTable(std::function<void(const std::filesystem::path& mount)> on_end) : on_end_(std::move(on_end)) {}
  ~LeaseTable() { clear(); }
  LeaseTable(const LeaseTable&) = delete;
  LeaseTable& operator=(const LeaseTable&) = delete;

  // One use of the mount at a folder; ends with it.
  class Lease {
   public:
    Lease(Lease&& other) noexcept
        : table_(std::exchange(other.table_, nullptr)), number_(other.number_), mount_(std::move(other.mount_)) {}
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (table_ != nullptr) table_->end(number_);
    }
    const std::filesystem::path& mount() const { return mount_; }

   private:
    friend class LeaseTable;
    Lease(LeaseTable& table, std::uint64_t number, std::filesystem::path mount)
        : table_(&table), number_(number), mount_(std::move(mount)) {}
    LeaseTable* table_;
    std::uint64_t number_;
    std::filesystem::path mount_;
  };
  // `holder` is the process that has it, if that is known: the next daemon gives it the lease.
  Lease add(const std::filesystem::path& mount, std::optional<LeaseHolder> holder);
  // The mount is used until release(); a name holds one mount. False if the name is taken.
  bool hold(const std::string& name, const std::filesystem::path& mount);
  // False if it held nothing.
  bool release(const std::string& name);
  // The same, and nobody is told.
  bool forget_hold(const std::string& name);
  // Absent: it holds nothing.
  std::optional<std::filesystem::path> held_at(const std::string& name);
  // By name, each with its mount.
  std::map<std::string, std::filesystem::path> holds();
  // The names that hold the mount.
  std::vector<std::string> held_by(const std::filesystem::path& mount);
  // Gives leases of an earlier daemon to those of their holders that still run, for as long as they do. Once.
  void take_over(const std::vector<HandoverLease>& leases);

  bool any(const std::filesystem::path& mount);
  std::size_t size();
  // One entry per lease of the mount; absent where the holder is not known.
  std::vector<std::optional<LeaseHolder>> holders(const std::filesystem::path& mount);
  // Of all mounts, those that are known.
  std::vector<LeaseHolder> holders();
  // Fills in the leases whose holders are known, and the holds.
  void write_to(Handover& record);
  // All leases and holds have ended, and nobody is told.
  void clear();

 private:
  struct Entry {
    std::filesystem::path mount;
    std::optional<LeaseHolder> holder;
  };
  struct State {
    std::map<std::uint64_t, Entry> leases;
    std::map<std::string, std::filesystem::path> holds;
    std::uint64_t last_number = 0;
  };
  void end(std::uint64_t number);

  const std::function<void(const std::filesystem::path&)> on_end_;
  Guarded<State> state_;
  std::unique_ptr<HolderWatch> holders_;
};

}  // namespace varve::fuse
