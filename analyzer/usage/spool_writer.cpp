#include "analyzer/usage/spool_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "core/base/calendar.h"
#include "core/base/errors.h"
#include "core/base/file.h"
#include "core/base/hmac.h"
#include "core/base/random.h"

namespace varve::usage {
namespace {

constexpr std::size_t kSaltBytes = 32;
constexpr std::uint64_t kRoomForFullBytes = 128;  // its one record
constexpr std::uint64_t kStepSeconds = 10;

Bytes salt_of(const std::filesystem::path& spool, const std::string& month) {
  const auto path = spool / ("salt-" + month);
  if (auto there = read_file_if_there(path, 4096); there && there->size() == kSaltBytes) return *there;
  // Whole or not at all, and the first one wins: others may be reading.
  const auto salt = random_bytes(kSaltBytes);
  const auto fresh = spool / fmt::format(".salt-{}", random_hex(8));
  write_all(open_file(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600).get(), salt, fresh.string());
  const bool linked = ::link(fresh.c_str(), path.c_str()) == 0;
  const int error = errno;
  ::unlink(fresh.c_str());
  if (linked) return salt;
  if (error != EEXIST) throw std::system_error(error, std::generic_category(), fmt::format("make {}", path.string()));
  auto there = read_file(path, 4096);
  if (there.size() != kSaltBytes) fail<CorruptData>("{} has {} bytes, not {}", path.string(), there.size(), kSaltBytes);
  return there;
}

}  // namespace

std::string new_session_id() { return random_hex(16); }
std::string new_process_id() { return random_hex(8); }

std::string user_hash(const std::filesystem::path& spool, const Variable& variable,
                      std::chrono::system_clock::time_point now) {
  std::string user = std::to_string(::geteuid());
  for (const char* name : {"VARVE_USAGE_USER", "JUPYTERHUB_USER", "NB_USER", "USER"}) {
    const auto value = variable(name);
    if (!value || value->empty()) continue;
    user = *value;
    break;
  }
  const auto shared = variable("VARVE_USAGE_SALT");
  const auto salt =
      shared && !shared->empty() ? to_bytes(as_bytes(*shared)) : salt_of(spool, day_text(day_of(now)).substr(0, 7));
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
