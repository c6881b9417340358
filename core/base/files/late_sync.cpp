#include "core/base/files/late_sync.h"

#include <unistd.h>

#include <set>
#include <system_error>
#include <utility>

#include "core/base/files/file.h"
#include "core/base/files/file_id.h"
#include "core/base/log.h"

namespace varve {

LateSync::~LateSync() { errands_.wait(); }

void LateSync::add(UniqueFd file, std::filesystem::path path) {
  const std::lock_guard guard(mutex_);
  if (waiting_.empty()) errands_.add([this](const std::stop_token&) { sync(); });
  waiting_.push_back({.file = std::move(file), .path = std::move(path)});
}

void LateSync::wait() {
  errands_.wait();
  const std::lock_guard guard(mutex_);
  if (const auto failed = std::exchange(failed_, nullptr)) std::rethrow_exception(failed);
}

void LateSync::sync() {
  std::unique_lock lock(mutex_);
  const auto files = std::exchange(waiting_, {});
  lock.unlock();
  std::exception_ptr failed;
  std::set<std::filesystem::path> folders;
  for (const auto& [file, path] : files) {
    folders.insert(path.parent_path());
    if (::fsync(file.get()) == 0) continue;
    const std::system_error error(errno, std::generic_category(), "write " + path.string());
    log::warn("{}", error.what());
    // Unless something else has taken the name since.
    if (is_at(file.get(), path)) ::unlink(path.c_str());
    failed = std::make_exception_ptr(error);
  }
  for (const auto& folder : folders) {
    try {
      sync_folder(folder);
    } catch (const std::exception& error) {
      log::debug("{}", error.what());  // gone meanwhile
    }
  }
  lock.lock();
  if (failed) failed_ = failed;
}

}  // namespace varve
