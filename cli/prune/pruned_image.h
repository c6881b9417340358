#pragma once
// Writing the image of a plan: what `prune apply` does once, and the gate "rebuild" a second time.
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "cli/prune/prune_gates.h"
#include "indexer/repack_image.h"

namespace varve::cli {

// How it is written: with the old image and the plan, all that decides about its bytes.
struct WriteSettings {
  std::string format = "zstd:chunked";   // or "gzip"
  int level = 0;                         // 0 = the format's default
  unsigned jobs = 0;                     // decides nothing about the bytes
  std::shared_ptr<oci::Image> previous;  // the image's last version as Varve wrote it; null: none

  // For the proof, and back. read() looks for the previous image where `image` is; throws CouldNotRun for what this
  // Varve would write otherwise.
  std::map<std::string, std::string> describe() const;
  static WriteSettings read(const std::map<std::string, std::string>& told, const std::string& tool,
                            const oci::Image& image);
};

// Throws UsageError for a level that the format does not have, and what repack_image() throws.
indexer::RepackReport write_pruned_image(const Context& context, const prune::ImageView& before,
                                         const prune::Plan& plan, const prune::TreeChange& change,
                                         const WriteSettings& settings, oci::Repository& destination,
                                         const std::filesystem::path& work_dir, const std::string& what);

// The gate "rebuild": writes it again, with another number of jobs and to nowhere, and expects the digest.
void judge_rebuild(const Context& context, const prune::ImageView& before, const Digest& expected,
                   const prune::Plan& plan, const prune::TreeChange& change, const WriteSettings& settings,
                   prune::GateResult& result);

// What wrote it: "varve 0.1.0".
std::string this_tool();

}  // namespace varve::cli
