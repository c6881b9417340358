#pragma once
// Brings files to disk behind those who wrote them: for what is worth finding after a power loss, but nothing to wait
// for.
#include <chrono>
#include <exception>
#include <filesystem>
#include <mutex>
#include <vector>

#include "core/base/files/unique_fd.h"
#include "core/base/threads/errands.h"

namespace varve {

// Safe to use from any thread. Begins a little later than it could: a journal that is being written stops others that
// write, and those who give files to it are about to go on.
class LateSync {
 public:
  static constexpr std::chrono::milliseconds kRest{250};

  LateSync() = default;
  ~LateSync();  // waits for all that was added
  LateSync(const LateSync&) = delete;
  LateSync& operator=(const LateSync&) = delete;

  // A file that has its name already, and the folder of that name, which is brought to disk behind it. What cannot be
  // brought there loses the name, and is logged.
  void add(UniqueFd file, std::filesystem::path path);
  // Returns when all that was added before is on disk. Throws std::system_error naming one that could not be brought
  // there since the last call.
  void wait();

 private:
  struct Written {
    UniqueFd file;
    std::filesystem::path path;
  };
  void sync();

  std::mutex mutex_;
  std::vector<Written> waiting_;  // for one errand
  std::exception_ptr failed_;
  Errands errands_{kRest};
};

}  // namespace varve
