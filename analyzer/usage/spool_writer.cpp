#include "analyzer/usage/spool_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <utility>

#include "analyzer/usage/spool_file.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/private_folder.h"
#include "core/base/hmac.h"
#include "core/base/random.h"
#include "core/base/text/calendar.h"

namespace varve::usage {
namespace {

constexpr std::size_t kSaltBytes = 32;
constexpr std::uint64_t kRoomForFullBytes = 128;  // its one record
constexpr std::uint64_t kStepSeconds = 10;

// Whoever knows the salt can tell the users: nobody else may have made the folder, or look into it.
void make_salt_folder(const std::filesystem::path& folder) {
  make_private_folder(std::filesystem::absolute(folder));
  struct stat status {};
  if (::stat(folder.c_str(), &status) != 0) fail_errno("look at {}", folder.string());
  if (status.st_uid != ::geteuid())
    fail<Error>("{} is not a folder of user {}; remove it, or choose another --root", folder.string(), ::geteuid());
}

// Absent if there is none. Opening never waits: what lies there may be a pipe.
std::optional<Bytes> read_salt(const std::filesystem::path& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!file && errno == ENOENT) return std::nullopt;
  if (!file) fail_errno("open {}", path.string());
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_errno("look at {}", path.string());
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || status.st_size != kSaltBytes)
    fail<Error>("{} is not a salt of user {}; remove it", path.string(), ::geteuid());
  Bytes salt(kSaltBytes);
  pread_exactly(file.get(), 0, salt, path.string());
  return salt;
}

Bytes salt_of(const std::filesystem::path& salts, std::int32_t today) {
  make_salt_folder(salts);
  const auto path = salts / ("salt-" + day_text(today).substr(0, 7));
  if (auto there = read_salt(path)) return *there;
  remove_old_salts(salts, today);
  // Whole or not at all, and the first one wins: others may be reading.
  const auto salt = random_bytes(kSaltBytes);
  const auto fresh = salts / fmt::format(".salt-{}", random_hex(8));
  write_all(open_file(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600).get(), salt, fresh.string());
  const bool linked = ::link(fresh.c_str(), path.c_str()) == 0;
  const int error = errno;
  ::unlink(fresh.c_str());
  if (linked) return salt;
  if (error != EEXIST) throw std::system_error(error, std::generic_category(), fmt::format("make {}", path.string()));
  if (auto there = read_salt(path)) return *there;
  fail<Error>("{} went away while it was made", path.string());
}

}  // namespace

std::string new_session_id() { return random_hex(16); }
std::string new_process_id() { return random_hex(8); }

std::string user_hash(const std::filesystem::path& salts, const Variable& variable,
                      std::chrono::system_clock::time_point now) {
  std::string user = std::to_string(::geteuid());
  for (const char* name : {"VARVE_USAGE_USER", "JUPYTERHUB_USER", "NB_USER", "USER"}) {
    const auto value = variable(name);
    if (!value || value->empty()) continue;
    user = *value;
    break;
  }
  const auto shared = variable("VARVE_USAGE_SALT");
  const auto salt = shared && !shared->empty() ? to_bytes(as_bytes(*shared)) : salt_of(salts, day_of(now));
  return hmac_sha256(salt, user).hex().substr(0, 32);
}

bool is_switched_off(const Variable& variable) {
  const auto do_not_track = variable("DO_NOT_TRACK");
  return (do_not_track && !do_not_track->empty() && *do_not_track != "0") || variable("VARVE_USAGE") == "off";
}

SpoolWriter::SpoolWriter(const std::filesystem::path& spool, StartRecord start, std::uint64_t max_bytes)
    : path_(spool / fmt::format("{}-{}.jsonl", start.session, start.process)), max_bytes_(max_bytes) {
  file_ = open_file(path_, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_NOFOLLOW, 0600);
  if (!append(spool_line({.at_seconds = 0, .what = std::move(start)}))) throw std::runtime_error(failure_);
}

bool SpoolWriter::write(decltype(SpoolRecord::what) what) {
  if (full_ || !failure_.empty()) return false;
  const auto seconds = std::uint64_t(
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - begin_).count());
  const auto at = seconds / kStepSeconds * kStepSeconds;
  const auto line = spool_line({.at_seconds = at, .what = std::move(what)});
  if (bytes_ + line.size() + kRoomForFullBytes <= max_bytes_) return append(line);
  full_ = true;
  append(spool_line({.at_seconds = at, .what = FullRecord{.dropped = 1}}));
  return false;
}

bool SpoolWriter::append(std::string_view line) {
  try {
    write_all(file_.get(), as_bytes(line), path_.string());
    bytes_ += line.size();
    return true;
  } catch (const std::exception& error) {
    failure_ = error.what();
    return false;
  }
}

}  // namespace varve::usage
