#pragma once
// Which user and group ids an image's owners become on this machine. Root keeps them; a plain user has his own id and,
// where the administrator gave him some (subuid(5), subgid(5)), a range of others.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace varve::fuse {

// `count` ids from `inside` (in the image and the session) are `outside`, outside + 1, ... on the machine.
struct IdRange {
  std::uint32_t inside = 0;
  std::uint32_t outside = 0;
  std::uint32_t count = 1;
  bool operator==(const IdRange&) const = default;
};

// A value. Ranges do not overlap on the inside.
class IdMap {
 public:
  IdMap() = default;  // the identity
  IdMap(std::vector<IdRange> ranges, std::uint32_t fallback)
      : ranges_(std::move(ranges)), fallback_(fallback), identity_(false) {}

  bool identity() const { return identity_; }
  const std::vector<IdRange>& ranges() const { return ranges_; }
  // True if a process inside can have this id.
  bool maps(std::uint32_t inside) const;
  // The id on the machine; ids without a range become the user's own, as an owner must be mapped for a file to be
  // copied up.
  std::uint32_t outside(std::uint32_t inside) const;
  // As /proc/PID/uid_map wants it: one "inside outside count" line per range.
  std::string to_map_file() const;

 private:
  std::vector<IdRange> ranges_;
  std::uint32_t fallback_ = 0;
  bool identity_ = true;
};

// Which ids of the machine a session of root has in its own user namespace: 0 to kOwnIds - 1 there are these and the
// following ones here.
inline constexpr std::uint32_t kOwnIds = 65536;
struct OwnIds {
  std::uint32_t first_uid = 0;
  std::uint32_t first_gid = 0;
  bool operator==(const OwnIds&) const = default;
};

// The ids that sessions may have, in blocks of kOwnIds. `inside` means nothing here.
struct IdPool {
  std::vector<IdRange> uids;
  std::vector<IdRange> gids;

  // What /etc/subuid and /etc/subgid give to the user varve, else to containers, else to root, if that holds a block of
  // each; else `otherwise`.
  static IdPool of_this_machine(const IdRange& otherwise);
  static IdPool of_text(std::string_view subuid, std::string_view subgid, const IdRange& otherwise);
  // The first block that overlaps with none of `taken`, as uids nor as gids. Absent if there is none left.
  std::optional<OwnIds> find_free(const std::vector<OwnIds>& taken) const;
};
// Above what systemd gives out to containers, below 2^31: "1879048192:268304384". Throws UsageError for text that is
// not FIRST:COUNT, with a block at least.
inline constexpr std::string_view kUsualOwnIds = "1879048192:268304384";
IdRange parse_id_range(std::string_view text);

struct UserIds {
  IdMap uids;
  IdMap gids;
  bool is_root = true;         // no user namespace is needed
  bool needs_helpers = false;  // the maps have more than the own id: written by newuidmap and newgidmap
  bool made_by_root = false;   // root makes the user namespace, for a session, and writes the maps himself

  // Root: the identity. Else inside 0 is the own id and inside 1... are the ranges of /etc/subuid and /etc/subgid, if
  // newuidmap and newgidmap are installed; without them only the own id is mapped.
  static UserIds of_this_process();
  static UserIds of_own(const OwnIds& ids);
};

// The ranges of one user in the text of a subid file: "name-or-id:first:count" lines. Lines that do not parse are
// skipped, as newuidmap does; at most kMaxSubidRanges are taken.
inline constexpr std::size_t kMaxSubidRanges = 64;
std::vector<IdRange> parse_subid(std::string_view text, std::string_view user, std::uint32_t id);

// Where a program lies: $PATH, then the folders of administrators' programs, which a plain user's PATH lacks. "" if
// nowhere.
std::filesystem::path find_program(std::string_view name);

}  // namespace varve::fuse
