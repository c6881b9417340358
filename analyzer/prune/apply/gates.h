#pragma once
// What a rewritten image must pass before anybody can see it. Each gate compares the old image with the new one.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "analyzer/cuda/manifest.h"
#include "analyzer/packages/inventory.h"
#include "analyzer/prune/apply/replay_sets.h"
#include "analyzer/prune/image_view.h"
#include "analyzer/prune/plan.h"
#include "core/base/digest.h"
#include "core/base/errors.h"
#include "core/index/file_source.h"
#include "core/index/merge/flat_tree.h"
#include "core/index/merge/placement.h"

namespace varve::prune {

struct GateResult {
  std::string
      name;  // "metadata" "elf" "imports" "replay" "starts" "listed" "scripts" "cold" "cuda" "pins" "rebuild" "tree"
  bool ok = false;
  bool waived = false;  // failed or did not run, and the plan waives it with a reason
  bool asked = true;    // false: there is nothing to compare with, and nobody asked; `detail` says so. Then ok is true
  std::string detail;   // one line
  std::vector<std::string> findings;  // each names the object; the first decides
  double seconds = 0;
};

// True if the gate does not stand in the way of the image.
inline bool passes(const GateResult& gate) { return gate.ok || gate.waived; }

// Thrown by a gate's judge when this machine cannot judge.
class CouldNotRun : public Error {
 public:
  using Error::Error;
};

// Runs one gate: `judge` adds findings and fills `detail`; it is ok if there are none. What it throws makes the gate
// one that could not run, which is a failure too; only Cancelled goes on. A waiver of that name lets a failure pass,
// and is named in `detail`.
GateResult run_gate(const std::string& name, const std::vector<Waiver>& waivers,
                    const std::function<void(GateResult& result)>& judge);

struct ProgramResult {
  int exit_status = 0;  // 128 + signal for a killed one
  bool timed_out = false;
  std::string out, err;  // at most kMaxProgramOutput each
};
inline constexpr std::size_t kMaxProgramOutput = 64u << 20;

// Runs a program in a session of its own on a lazily mounted image, without network. Safe to use from any thread.
class SessionRunner {
 public:
  virtual ~SessionRunner() = default;
  // Throws Unsupported where this machine cannot run sessions: the gate could not run then.
  virtual ProgramResult run(const Digest& image, const std::vector<std::string>& command,
                            std::string_view standard_input, std::chrono::seconds limit) = 0;
};

// Old and new image as their gates see them. What the plan archives may be missing in the new one, and nothing else.
struct ImagePair {
  const packages::Inventory& before;
  const packages::Inventory& after;
  const Plan* plan = nullptr;  // null: nothing may be archived
};

// The distributions of the inventory to which the plan gives this verdict or a colder one, as indexes, ascending; what
// they vendor goes along.
std::vector<std::uint32_t> planned_distributions(const Plan& plan, const packages::Inventory& inventory, Verdict least);
// The distributions of the inventory that the plan archives, as indexes; what they vendor goes along. Empty without a
// plan. Throws Unsupported for one of the operating system: its package manager would still list it.
std::vector<std::uint32_t> archived_distributions(const Plan* plan, const packages::Inventory& inventory);

// What the placement took out of the old tree and put in.
struct TreeChange {
  std::vector<std::string> removed;  // files and links; folders that hold nothing else go too
  std::vector<index::AddedFile> added;
};

// Which times a rewritten image may have that the old one has not; bytecode of Python names those of its sources then.
struct TimesRule {
  std::set<std::uint32_t> of_previous;         // layers of the new image, base = 0, whose files may have any
  std::optional<std::int64_t> latest;          // later ones may have become this: seconds since 1970
  std::optional<std::int64_t> latest_created;  // the same for the config's "created"
};

// "tree": every entry of the old tree is in the new one as it was, names, attributes and content, but for the change
// and the times. `old_files`: of `before`, for bytecode; may be null where the rule allows nothing.
void judge_tree(const index::FlatTree& before, const index::FlatTree& after, const TreeChange& change,
                GateResult& result, const TimesRule& times = {}, const index::FileSource* old_files = nullptr);

// "metadata": every distribution that stays is there in its version, and nothing is wrong now that was not wrong before
// (check_inventory).
void judge_metadata(const ImagePair& images, GateResult& result);

// "elf": no file needs a library that was found before and is not. Throws as loader_of() does.
void judge_elf(const LoaderView& before, const LoaderView& after, GateResult& result);
// "cuda": the manifests are equal: every CUDA file, how the loader resolves it, the image's environment and the
// loader's configuration.
void judge_cuda(const cuda::Manifest& before, const cuda::Manifest& after, GateResult& result,
                const TimesRule& times = {});

struct ImportOptions {
  unsigned jobs = 0;                // processes at the same time; 0 = one per core
  std::chrono::seconds limit{120};  // of one name
};

// What the Pythons of both images have answered in this run (import_session.h): the gates that import share it, so that
// nothing is imported twice in the same image.
struct ImportAnswers;

// "imports": every name that a distribution that stays can be imported by, in a process of its own: it may not fail in
// another way than before, nor miss what it found before. Where the new image does all that is possible the old one is
// not asked. What was archived must seem absent to probes, and imports must say how to get it.
void judge_imports(SessionRunner& sessions, const ImagePair& images, const ImportOptions& options,
                   ImportAnswers& answers, GateResult& result);

inline constexpr std::size_t kMaxReplayedSets = 400;  // run in sessions; the others are looked up only

// "replay": the sets of tracked notebooks. Each name must be found in the new image if it was in the old one, and the
// largest sets are imported in one process each, as their notebooks do. Names of archived distributions are left out:
// the plan names who is affected by them.
void judge_replay(SessionRunner& sessions, const ImagePair& images, const ImportSets& sets,
                  const ImportOptions& options, ImportAnswers& answers, GateResult& result);

}  // namespace varve::prune
