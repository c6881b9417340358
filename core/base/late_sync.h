#pragma once
// Brings files to disk behind those who wrote them: for what is worth finding after a power loss, but nothing to wait
// for.
#include <chrono>
#include <condition_variable>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/unique_fd.h"

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
  void loop(const std::stop_token& stop);
  void wait_until_idle(std::unique_lock<std::mutex>& lock);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<Written> waiting_;
  bool is_syncing_ = false;
  unsigned waiters_ = 0;  // the rest is over as soon as there is one
  std::exception_ptr failed_;
  std::jthread thread_;  // since the first file
};

}  // namespace varve
