#pragma once
// Where the indexes of this machine came from, as it was recorded when they came; never inferred from being on disk. On
// disk: docs/formats/index.md "Origins".
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>

#include "core/base/digest.h"
#include "core/base/files/late_sync.h"

namespace varve::trust {

// Of one index manifest, an image's or a layer's. Nothing is set for one that was never recorded.
struct Origin {
  bool built_here = false;                  // by this root, from layers whose digests and diff_ids were checked
  bool proved = false;                      // all layers were complete here and equal to what it says
  std::string refuted = {};                 // what a complete layer showed to be false; "" = nothing
  std::set<std::string> repositories = {};  // that offered it, by Repository::name()

  bool operator==(const Origin&) const = default;
};

// A folder of small files, for its owner alone. Safe to use from any thread and by several processes. A record that is
// damaged counts as none, which is logged: what makes no sense is no reason to believe. One that the disk does not give
// back is std::system_error, naming it.
class OriginRecords {
 public:
  // How a record is written that replaces none: a power loss may take it with kLate.
  enum class First : std::uint8_t { kToDisk, kLate };

  // Creates the folder; takes others' right to write there away.
  explicit OriginRecords(std::filesystem::path dir);

  Origin of(const Digest& index_manifest) const;
  void note_built_here(const Digest& index_manifest);
  void note_proved(const Digest& index_manifest);
  void note_refuted(const Digest& index_manifest, const std::string& reason);
  // Of an index of which nothing was recorded yet, the disk is not waited for.
  void note_repository(const Digest& index_manifest, const std::string& repository);
  // `derived` differs from `original` only in notes made here: it came from where that came from.
  void note_derived(const Digest& derived, const Digest& original);

  // The index that was used first for an image of a repository; absent if none was yet.
  std::optional<Digest> first_used(const std::string& repository, const Digest& image) const;
  // Replaces it. With kLate the disk is not waited for if there was none.
  void note_used(const std::string& repository, const Digest& image, const Digest& index_manifest,
                 First first = First::kToDisk);

 private:
  template <typename Change>
  void change(const Digest& index_manifest, const Change& apply, First first = First::kToDisk);
  void write(const std::filesystem::path& file, const std::string& record, First first);
  std::filesystem::path file_of(const Digest& index_manifest) const;
  std::filesystem::path file_of_first(const std::string& repository, const Digest& image) const;

  const std::filesystem::path dir_;
  LateSync later_;
};

}  // namespace varve::trust
