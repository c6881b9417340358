#pragma once
// dpkg's database: var/lib/dpkg/status, status.d/* (distroless), info/*.list and *.md5sums. dpkg(1), deb-control(5),
// Debian policy chapters 5 and 7.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace varve::python {

inline constexpr std::size_t kMaxDpkgFieldBytes =
    1u << 20;  // longer values are cut: Conffiles of a big package has some 10 kB

struct DpkgAlternative {
  std::string name;
  std::string architecture;  // "any" of "python3:any"; "" = not said
  std::string relation;      // "<<" "<=" "=" ">=" ">>"; "" = any version
  std::string version;
};
using DpkgDependency = std::vector<DpkgAlternative>;  // one of them is enough

struct DpkgPackage {
  std::string name;
  std::string version;
  std::string architecture;  // "amd64" "all"
  std::string multi_arch;    // "same" "foreign" "allowed"; "" = no
  std::string source;        // name of the source package; its own name where not said
  std::string section;
  std::string status;  // "install ok installed"; "" in status.d
  bool installed =
      false;  // its files are there: unpacked, half-configured, triggers-…, installed; or listed in status.d
  bool essential = false;
  std::optional<std::uint64_t> installed_bytes;  // Installed-Size, which counts KiB
  std::vector<DpkgDependency> depends;           // Pre-Depends and Depends
  std::vector<DpkgDependency> recommends;
  std::vector<DpkgAlternative> provides;  // with "=" and a version where they say one
};

struct DpkgTally {
  std::uint64_t packages = 0;
  std::uint64_t unreadable = 0;        // stanzas without a package name, or with lines that are no fields
  std::uint64_t first_unreadable = 0;  // its line, 1-based; 0 = none
};

enum class DpkgFile : std::uint8_t { kStatus, kStatusD };

// Stanza by stanza. Never throws but what `got` throws.
DpkgTally read_dpkg_status(std::string_view text, DpkgFile kind, const std::function<void(const DpkgPackage&)>& got);

// "libc6 (>= 2.34), mail-transport-agent | exim4": what cannot be read is left out.
std::vector<DpkgDependency> parse_dpkg_dependencies(std::string_view text);

// info/NAME.list: absolute paths of files and folders, given without the leading "/". "/." is left out.
void read_dpkg_list(std::string_view text, const std::function<void(std::string_view path)>& got);

// info/NAME.md5sums: regular files, paths without leading "/". Lines that are none are left out.
void read_dpkg_md5sums(std::string_view text,
                       const std::function<void(std::string_view path, std::string_view md5)>& got);

struct DpkgInfoName {
  std::string package;
  std::string architecture;  // "amd64" of "libc6:amd64.list"; "" = not said
  std::string kind;          // "list" "md5sums" …
};
std::optional<DpkgInfoName> parse_dpkg_info_name(std::string_view file_name);

}  // namespace varve::python
