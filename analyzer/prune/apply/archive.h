#pragma once
// Takes distributions out of an image so that they can be found again: what goes, and the words that an import of it
// will say. docs/guide/prune-apply.md.
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/packages/inventory.h"
#include "analyzer/prune/apply/gates.h"
#include "core/index/file_source.h"
#include "core/index/merge/mark_cold.h"

namespace varve::prune {

// In each site folder that lost something: varve_archived.py, .pth, .start, and the table of what is gone.
inline constexpr std::string_view kArchivedTable = "varve_archived.txt";
inline constexpr std::size_t kMaxArchivedTableBytes = 4u << 20;

struct ArchivedModule {
  std::string module;  // dotted
  std::string project, version;
  std::string image;  // the last that has it, as people name it
  bool operator==(const ArchivedModule&) const = default;
};

// A line each; others are skipped, as the finder does. Modules, projects and images have no tabs or line ends.
std::vector<ArchivedModule> parse_archived_table(std::string_view text);
std::string archived_table(const std::vector<ArchivedModule>& modules);

// Removed: every file and link that only archived distributions own, with its bytecode, and what nobody recorded in
// folders of their modules. Added: what speaks for them; a table of an earlier apply goes on, less what is back.
// `image_name`: what to call the old image. Empty if the plan archives nothing. Throws Unsupported as
// archived_distributions() does, and for an archived distribution whose folder is no site folder of a Python, which
// could say nothing.
TreeChange archive(const Plan& plan, const packages::Inventory& inventory, const index::FileSource& files,
                   std::string_view image_name);

// What an index marks as cold: every file and link that only distributions own which the plan has cold or archived, and
// the plan's code for GPUs that nobody has. Throws CorruptData as cold_parts() does.
index::ColdContent cold_content(const Plan& plan, const packages::Inventory& inventory, const index::FileSource& files);

// What the planned image is called in notices: the reference as it was planned by, with the digest. Varve takes it as
// it stands, of a registry Docker as well.
std::string image_name_of(const Plan& plan);

}  // namespace varve::prune
