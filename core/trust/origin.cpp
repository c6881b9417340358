#include "core/trust/origin.h"

#include <sys/file.h>

#include <nlohmann/json.hpp>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/private_folder.h"
#include "core/base/log.h"
#include "core/base/text/json_document.h"

namespace varve::trust {
namespace {

using nlohmann::json;

constexpr std::uint64_t kMaxRecordBytes = 1 << 20;
constexpr std::size_t kMaxRepositories = 256;  // an index that lies in more is asked for again where it was forgotten
constexpr mode_t kForOwner = 0600;
constexpr std::string_view kFirstPrefix = "first-";

// What `read` makes of the record at `path`; absent if there is none, or one that says nothing. What the disk does not
// give back may say that an index was refuted: it must neither count as nothing nor be written over.
template <typename Read>
auto read_record(const std::filesystem::path& path, const Read& read)
    -> std::optional<decltype(read(std::declval<JsonValue>()))> {
  try {
    const auto bytes = read_file_if_there(path, kMaxRecordBytes);
    if (!bytes) return std::nullopt;
    return read(JsonValue::parse(*bytes, path.string(),
                                 {.bytes = kMaxRecordBytes, .depth = 4, .values = 4 * kMaxRepositories}));
  } catch (const std::system_error&) {
    throw;
  } catch (const std::exception& error) {
    log::warn("{}; what it says of an index counts no more", error.what());
    return std::nullopt;
  }
}

void expect_about(const JsonValue& record, std::string_view member, const std::string& wanted) {
  if (record[member].text() != wanted) record[member].refuse("is another one");
}

std::string record_of(const Origin& origin, const Digest& index_manifest) {
  json record{{"index", index_manifest.to_string()}, {"repositories", origin.repositories}};
  if (origin.built_here) record["built_here"] = true;
  if (origin.proved) record["proved"] = true;
  if (!origin.refuted.empty()) record["refuted"] = origin.refuted;
  return record.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

OriginRecords::OriginRecords(std::filesystem::path dir) : dir_(std::move(dir)) { make_private_folder(dir_); }

std::filesystem::path OriginRecords::file_of(const Digest& index_manifest) const { return dir_ / index_manifest.hex(); }

std::filesystem::path OriginRecords::file_of_first(const std::string& repository, const Digest& image) const {
  return dir_ / (std::string(kFirstPrefix) + digest_of(repository + '\n' + image.to_string()).hex());
}

Origin OriginRecords::of(const Digest& index_manifest) const {
  const auto origin = read_record(file_of(index_manifest), [&](const JsonValue& record) {
    expect_about(record, "index", index_manifest.to_string());
    const auto repositories = record.maybe("repositories").texts();
    return Origin{.built_here = record.maybe("built_here").flag(),
                  .proved = record.maybe("proved").flag(),
                  .refuted = record.maybe("refuted").text(),
                  .repositories = {repositories.begin(), repositories.end()}};
  });
  return origin.value_or(Origin());
}

// One after the other, so that two that learn something at once both have it written down.
template <typename Change>
void OriginRecords::change(const Digest& index_manifest, const Change& apply, First first) {
  const auto lock = open_file(dir_ / "lock", O_RDWR | O_CREAT, kForOwner);
  while (::flock(lock.get(), LOCK_EX) != 0)
    if (errno != EINTR) fail_errno("lock {}", dir_.string());
  const auto before = of(index_manifest);
  auto after = before;
  apply(after);
  if (after != before) write(file_of(index_manifest), record_of(after, index_manifest), first);
}

// What replaces another record waits for the disk: a power loss must not leave neither of them.
void OriginRecords::write(const std::filesystem::path& file, const std::string& record, First first) {
  AtomicFile written(file, kForOwner);
  written.write(as_bytes(record));
  if (first == First::kLate && !std::filesystem::exists(file))
    written.commit(later_);
  else
    written.commit();
}

void OriginRecords::note_built_here(const Digest& index_manifest) {
  change(index_manifest, [](Origin& origin) { origin.built_here = true; });
}

void OriginRecords::note_proved(const Digest& index_manifest) {
  change(index_manifest, [](Origin& origin) { origin.proved = true; });
}

void OriginRecords::note_refuted(const Digest& index_manifest, const std::string& reason) {
  change(index_manifest, [&](Origin& origin) {
    origin.refuted = reason;
    origin.proved = false;
  });
}

void OriginRecords::note_repository(const Digest& index_manifest, const std::string& repository) {
  // Most often it is known already, and then nothing waits for anybody.
  if (of(index_manifest).repositories.contains(repository)) return;
  change(
      index_manifest,
      [&](Origin& origin) {
        if (origin.repositories.size() < kMaxRepositories) origin.repositories.insert(repository);
      },
      First::kLate);
}

void OriginRecords::note_derived(const Digest& derived, const Digest& original) {
  if (derived == original) return;
  const auto from = of(original);
  change(derived, [&](Origin& origin) {
    origin.built_here = origin.built_here || from.built_here;
    origin.proved = origin.proved || from.proved;
    if (origin.refuted.empty()) origin.refuted = from.refuted;
    origin.repositories.insert(from.repositories.begin(), from.repositories.end());
  });
}

std::optional<Digest> OriginRecords::first_used(const std::string& repository, const Digest& image) const {
  return read_record(file_of_first(repository, image), [&](const JsonValue& record) {
    expect_about(record, "repository", repository);
    expect_about(record, "image", image.to_string());
    return record["index"].digest();
  });
}

void OriginRecords::note_used(const std::string& repository, const Digest& image, const Digest& index_manifest,
                              First first) {
  const json record{{"repository", repository}, {"image", image.to_string()}, {"index", index_manifest.to_string()}};
  write(file_of_first(repository, image), record.dump(-1, ' ', false, json::error_handler_t::replace), first);
}

}  // namespace varve::trust
