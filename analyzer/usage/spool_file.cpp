#include "analyzer/usage/spool_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/process/subid.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

namespace fs = std::filesystem;

bool is_session_name(const std::string& name) {
  return name.size() == 32 && name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void add_folder(const fs::path& folder, const std::string& session, std::vector<FoundSpool>& found) {
  struct stat folder_status {};
  if (!session.empty() && ::lstat(folder.c_str(), &folder_status) != 0) return;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const auto status = at->symlink_status(error);
    if (error) continue;  // it went away while we looked
    const auto name = at->path().filename().string();
    if (fs::is_regular_file(status) && at->path().extension() == ".jsonl")
      found.push_back({at->path(), session, folder_status.st_uid});
    else if (session.empty() && fs::is_directory(status) && is_session_name(name))
      add_folder(at->path(), name, found);
  }
  // A session's folder may go away at any time; the folder that was asked for must be readable.
  if (error && session.empty()) throw std::system_error(error, fmt::format("read folder {}", folder.string()));
}

}  // namespace

std::vector<FoundSpool> find_spools(const std::vector<fs::path>& spools) {
  std::vector<FoundSpool> found;
  for (const auto& spool : spools) {
    const auto status = fs::status(spool);
    if (!fs::exists(status)) fail<NotFound>("spool {}: there is no such file or folder", spool.string());
    if (fs::is_directory(status))
      add_folder(spool, {}, found);
    else
      found.push_back({spool, {}, 0});
  }
  std::sort(found.begin(), found.end(), [](const FoundSpool& a, const FoundSpool& b) { return a.path < b.path; });
  found.erase(std::unique(found.begin(), found.end(),
                          [](const FoundSpool& a, const FoundSpool& b) { return a.path == b.path; }),
              found.end());
  return found;
}

SpoolFile::SpoolFile(const fs::path& path) : path_(path) {
  // A session can put anything into its spool: no link is followed, and opening a pipe must not wait for a writer.
  fd_ = open_file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  struct stat status {};
  if (::fstat(fd_.get(), &status) != 0) fail_errno("stat {}", path.string());
  if (!S_ISREG(status.st_mode)) fail<CorruptData>("not a regular file");
  size_ = std::uint64_t(status.st_size);
  modified_ = status.st_mtim.tv_sec;
  owner_ = status.st_uid;
  identity_ = {.device = status.st_dev, .inode = status.st_ino, .size = size_};
  head_ = read(0, std::min<std::uint64_t>(size_, kMaxSpoolLineBytes + 1));
  if (size_ > kMaxReadSpoolBytes) fail<CorruptData>("larger than {} bytes", kMaxReadSpoolBytes);
  const auto text = as_text(head_);
  const auto line_end = text.find('\n');
  if (line_end == std::string_view::npos) {
    if (head_.size() > kMaxSpoolLineBytes)
      fail<CorruptData>("its first line is longer than {} bytes", kMaxSpoolLineBytes);
    return;
  }
  auto record = parse_spool_line(text.substr(0, line_end));
  auto* start = std::get_if<StartRecord>(&record.what);
  if (start == nullptr) fail<CorruptData>("its first record is no start record");
  start_ = std::move(*start);
}

Bytes SpoolFile::read(std::uint64_t offset, std::uint64_t length) const {
  Bytes bytes(length);
  pread_exactly(fd_.get(), offset, bytes, path_.string());
  return bytes;
}

Bytes SpoolFile::head_fingerprint(std::uint64_t read_bytes) const {
  const auto length = std::min({read_bytes, kPrintBytes, std::uint64_t(head_.size())});
  return to_bytes(digest_of(ByteView(head_).first(length)).raw());
}

Bytes SpoolFile::tail_fingerprint(std::uint64_t read_bytes) const {
  const auto length = std::min(read_bytes, kPrintBytes);
  return to_bytes(digest_of(read(read_bytes - length, length)).raw());
}

std::uint64_t SpoolFile::each_line(std::uint64_t offset,
                                   const std::function<void(std::uint64_t at, std::string_view line)>& each) const {
  if (offset >= size_) return offset;
  const auto content = read(offset, size_ - offset);
  const auto text = as_text(content);
  std::size_t at = 0;
  for (auto line_end = text.find('\n'); line_end != std::string_view::npos; line_end = text.find('\n', at)) {
    each(offset + at, text.substr(at, line_end - at));
    at = line_end + 1;
  }
  return offset + at;
}

bool is_starter(const StartRecord& start) { return start.writer.starts_with("run "); }

std::string why_not_counted(const FoundSpool& found, const SpoolFile& file) {
  if (found.folder_session.empty()) return {};
  if (found.folder_session != file.start()->session) return "its first record names another session than its folder";
  if (file.owner() == found.folder_owner || (found.folder_owner == 0 && !is_starter(*file.start()))) return {};
  return fmt::format("it belongs to user {}, the folder of its session to user {}", file.owner(), found.folder_owner);
}

std::optional<std::uint32_t> limited_user(const FoundSpool& found, const SpoolFile& file, std::string_view subuid) {
  const auto is_believed = [](std::uint32_t user) { return user == 0 || user == ::geteuid(); };
  const auto owner = found.folder_session.empty() ? file.owner() : found.folder_owner;
  if (is_believed(owner)) return std::nullopt;
  const auto user = user_behind(owner, subuid);
  return is_believed(user) ? std::nullopt : std::optional(user);
}

bool remove_spool(const fs::path& path, const SpoolFile::Identity& read) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return false;
  if (SpoolFile::Identity{.device = status.st_dev, .inode = status.st_ino, .size = std::uint64_t(status.st_size)} !=
      read)
    return false;
  std::error_code error;
  return fs::remove(path, error);
}

void remove_empty_session_folders(const fs::path& spool, std::int64_t now_seconds) {
  std::error_code error;
  for (fs::directory_iterator at(spool, error), end; !error && at != end; at.increment(error)) {
    struct stat status {};
    if (!is_session_name(at->path().filename().string()) || ::lstat(at->path().c_str(), &status) != 0 ||
        !S_ISDIR(status.st_mode))
      continue;
    if (status.st_mtim.tv_sec + kAbandonedSeconds < now_seconds)
      ::rmdir(at->path().c_str());  // leaves a folder that holds anything
  }
}

void remove_old_salts(const fs::path& spool, std::int32_t today) {
  constexpr std::string_view kSalt = "salt-";
  std::error_code error, ignored;
  for (fs::directory_iterator at(spool, error), end; !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().string();
    if (!name.starts_with(kSalt)) continue;
    const auto first_day = parse_day(name.substr(kSalt.size()) + "-01");
    if (first_day && month_of(*first_day) < month_of(today)) fs::remove(at->path(), ignored);
  }
}

}  // namespace varve::usage
