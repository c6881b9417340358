#include "analyzer/prune/probe/learned_starts.h"

#include <algorithm>
#include <map>
#include <set>

#include "analyzer/prune/probe/start_session.h"
#include "analyzer/python/module_file.h"
#include "core/base/text/image_path.h"
#include "core/base/text/safe_text.h"

namespace varve::prune {
namespace {

using usage::ProbedKind;
using What = LearnedStart::What;

// -c looks into the working directory first.
constexpr std::string_view kWithoutWorkingDirectory = "import sys; sys.path[:] = [p for p in sys.path if p]\n";

// The name comes as a word of its own, so it is never code.
constexpr std::string_view kImport = "__import__(sys.argv[1])";

// Begins twice: in the environment of the image, then in a bare one with one of Python's variables. Whoever starts it
// has some other environment, and each page of code that only that needs (a locale, a number) would cost a round trip.
constexpr std::string_view kPrint = "print()";
constexpr std::string_view kPrintTwice =
    "import os, sys; print(flush=True); "
    "os.execve(sys.argv[1], [sys.argv[1], '-c', 'print()'], {'PYTHONDONTWRITEBYTECODE': '1'})";

// Whoever starts a kernel has imported it: servers, nbclient, IDEs. It looks at the entry points of everything that is
// installed, and imports the kernel's package, before it reads of the kernel it is to start: so far one goes that there
// is not.
constexpr std::string_view kKernelClient = "jupyter_client";
constexpr std::string_view kStartNoKernel = R"(import jupyter_client
try:
    from jupyter_client.manager import KernelManager
    KernelManager(kernel_name='varve-no-such-kernel').start_kernel()
except Exception:
    pass
try:
    import ipykernel.kernelspec
except ImportError:
    pass
)";

// An import alone opens no GPU, and its first use reads more than the import: kernels, compilers. A library that has
// none falls back to the CPU, which is not to be learnt.
struct FirstUse {
  std::string_view name, code;
};
constexpr FirstUse kFirstUses[] = {
    {"torch", "import torch; x = torch.ones(64, 64, device='cuda'); print((x @ x).sum().item())"},
    {"torch",
     "import torch; m = torch.nn.Conv2d(3, 8, 3).cuda(); m(torch.ones(1, 3, 64, 64).cuda()).sum().backward(); "
     "torch.optim.SGD(m.parameters()).step(); torch.cuda.synchronize()"},
    {"jax", "import jax; assert jax.default_backend() == 'gpu'; x = jax.numpy.ones((64, 64)); print((x @ x).sum())"},
    {"cupy", "import cupy; x = cupy.ones((64, 64)); print((x @ x).sum())"},
    {"tensorflow",
     "import tensorflow as tf; assert tf.config.list_physical_devices('GPU'); x = tf.ones((64, 64)); "
     "print(tf.reduce_sum(x @ x).numpy())"},
};
// Several run beside each other, and by default two of these libraries take all of a GPU's memory.
constexpr std::string_view kTakeLittleMemory =
    "import os; os.environ.update(XLA_PYTHON_CLIENT_PREALLOCATE='false', TF_FORCE_GPU_ALLOW_GROWTH='true')\n";

constexpr std::size_t kMaxShellText = 200;

// How much an import is wanted; more comes first.
struct Wish {
  std::uint64_t sessions = 0, of_distribution = 0, notebooks = 0, bytes = 0;
  bool is_used() const { return sessions + of_distribution + notebooks != 0; }
  auto operator<=>(const Wish&) const = default;
};

class Wishes {
 public:
  Wishes(const packages::Inventory& inventory, const usage::Snapshot* used) {
    for (const auto& one : inventory.distributions)
      bytes_[one.normalized] = std::max(bytes_[one.normalized], one.bytes);
    if (used == nullptr) return;
    for (const auto& one : used->distributions) uses_.emplace(one.name, &one);
  }

  Wish of(const std::string& distribution, const std::string& name) const {
    Wish wish;
    if (const auto bytes = bytes_.find(distribution); bytes != bytes_.end()) wish.bytes = bytes->second;
    const auto use = uses_.find(distribution);
    if (use == uses_.end()) return wish;
    if (const auto module = use->second->modules.find(name); module != use->second->modules.end())
      wish.sessions = module->second;
    wish.of_distribution = usage::used_in(*use->second);
    wish.notebooks = use->second->notebooks;
    return wish;
  }

 private:
  std::map<std::string, std::uint64_t> bytes_;
  std::map<std::string, const usage::DistributionUse*> uses_;
};

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./:=,@%+").find(c) != std::string_view::npos;
}

// Of the image's first Python.
bool is_on_path(const packages::Inventory& inventory, const std::string& site) {
  if (inventory.interpreters.empty()) return false;
  const auto& sites = inventory.interpreters.front().sites;
  return std::ranges::find(sites, site) != sites.end();
}

std::string without_working_directory(std::string_view code) {
  return std::string(kWithoutWorkingDirectory) + std::string(code);
}

LearnedStart import_of(const std::string& python, const std::string& name) {
  return {.what = What::kImport,
          .name = name,
          .words = {"/" + python, "-c", without_working_directory(kImport), name},
          .ends = true};
}

std::vector<LearnedStart> first_uses(const std::string& python, const std::string& name) {
  std::vector<LearnedStart> starts;
  for (const auto& use : kFirstUses) {
    if (use.name != name) continue;
    const std::string code(use.code);
    starts.push_back({.what = What::kCommand,
                      .name = shell_text({"python3", "-c", code}),
                      .words = {"/" + python, "-c", without_working_directory(std::string(kTakeLittleMemory) + code)},
                      .ends = true});
  }
  return starts;
}

std::vector<LearnedStart> imports(const std::vector<ProbeTarget>& targets, const packages::Inventory& inventory,
                                  const std::string& python, const LearnOptions& options) {
  const Wishes wishes(inventory, options.used);
  std::map<std::string, Wish> wanted;  // a name may be of several distributions
  const auto want = [&](const std::string& distribution, const std::string& name) {
    if (!python::is_dotted_name(name) || printable(name) != name) return;
    const auto wish = wishes.of(distribution, name);
    if (options.used != nullptr && !wish.is_used()) return;
    auto& best = wanted[name];
    best = std::max(best, wish);
  };
  for (const auto& target : targets)
    if (target.kind == ProbedKind::kImport && target.python == python) want(target.distribution, target.object);
  // What dpkg installed is no target of gates, as nothing moves it; people import it all the same.
  for (const auto& one : inventory.distributions)
    if (one.source == packages::Source::kDpkg && one.vendored_by.empty() && is_on_path(inventory, one.site))
      for (const auto& name : one.imports) want(one.normalized, name);
  std::vector<std::pair<std::string, Wish>> ordered(wanted.begin(), wanted.end());
  std::ranges::stable_sort(ordered, std::greater(), [](const auto& one) { return one.second; });
  std::vector<LearnedStart> starts;
  for (const auto& [name, wish] : ordered) {
    if (starts.size() == options.top) break;
    starts.push_back(import_of(python, name));
  }
  return starts;
}

}  // namespace

bool LearnedStart::is_fine(int exit_status, const std::string& out) const {
  constexpr int kNeverBegan = 125;  // and 126, 127, as shells say it
  if (!ends) return exit_status < kNeverBegan || exit_status > kNeverBegan + 2;
  if (exit_status != 0) return false;
  if (what != What::kKernel) return true;
  const auto reply = read_kernel_reply({.outcome = "exit 0", .out = out, .err = {}, .files = {}});
  return reply.outcome == "ok" || reply.outcome == "runs";
}

std::string shell_text(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) {
    if (!text.empty()) text += ' ';
    const char quote = word.find('\'') == word.npos ? '\'' : '"';
    if (word.empty() || !std::ranges::all_of(word, is_plain))
      text += quote + word + quote;
    else
      text += word;
  }
  // Nothing in it is to be escaped, so that it is the same wherever it is printed.
  std::ranges::replace(text, '\\', ' ');
  return single_line(text, kMaxShellText);
}

std::vector<LearnedStart> starts_to_learn(const std::vector<ProbeTarget>& targets, const packages::Inventory& inventory,
                                          const LearnOptions& options) {
  const auto python = inventory.interpreters.empty() ? std::string() : inventory.interpreters.front().executable;
  std::vector<LearnedStart> starts;
  const auto add = [&](What what, std::string name, std::vector<std::string> words, bool ends) {
    starts.push_back({.what = what, .name = std::move(name), .words = std::move(words), .ends = ends});
  };
  for (const auto& target : targets)
    if (target.kind == ProbedKind::kPython) {
      const auto& python_path = target.words.front();
      add(What::kPython, shell_text({python_path, "-c", std::string(kPrint)}),
          {python_path, "-c", std::string(kPrintTwice), python_path}, true);
    }
  for (const auto& target : targets)
    if (target.kind == ProbedKind::kKernel && !python.empty())
      add(What::kKernel, shell_text({"jupyter", "kernel", "--kernel=" + target.name}),
          kernel_start_words(python, target.kernel_spec, options.limit), true);
  const bool has_kernel =
      std::ranges::any_of(starts, [](const LearnedStart& start) { return start.what == What::kKernel; });
  const bool has_client = std::ranges::any_of(targets, [&](const ProbeTarget& target) {
    return target.kind == ProbedKind::kImport && target.object == kKernelClient && target.python == python;
  });
  if (has_kernel && has_client) {
    starts.push_back({.what = What::kImport,
                      .name = std::string(kKernelClient),
                      .words = {"/" + python, "-c", without_working_directory(kStartNoKernel)},
                      .ends = true,
                      .before_kernels = true});
  }
  for (const auto& target : targets)
    if (target.kind == ProbedKind::kCommand) add(What::kCommand, shell_text(target.words), target.words, false);
  for (const auto& start : imports(targets, inventory, python, options)) {
    starts.push_back(start);
    if (options.gpu) std::ranges::move(first_uses(python, start.name), std::back_inserter(starts));
  }
  // Kernels of one name in several folders; a command that is the very start of Python.
  std::set<std::pair<bool, std::string>> seen;
  std::erase_if(starts, [&](const LearnedStart& start) {
    return !seen.insert({start.what == What::kImport, start.name}).second;
  });
  return starts;
}

}  // namespace varve::prune
