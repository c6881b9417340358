// The probe of `varve gpu-check`: runs one step inside an image. gpu/probe_output.h says what it prints;
// docs/guide/gpu-check.md what each step checks.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "gpu/probe/step.h"
#include "gpu/probe/words.h"

namespace varve::gpu::probe {
namespace {

constexpr int kWrongUsage = 2;

// Libraries print what they like, on both outputs: it goes to the standard error, and what we say to a descriptor of
// our own.
int take_standard_output() {
  const int ours = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (ours < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) fail_errno<>("duplicate the standard output");
  return ours;
}

int run_step(const Words& words, int output) {
  Report report(output);
  try {
    Step step{.report = report,
              .folders = LibraryFolders(words.folders),
              .device = words.device,
              .size = words.size,
              .repetitions = words.repetitions};
    const auto entry = std::ranges::find(step_entries(), words.step, &StepEntry::name);
    // The detail is complete, and the watch over the device has spoken, before the last line.
    return report.end(Outcome::kOk, entry->run(step));
  } catch (const Skip& reason) {
    return report.end(Outcome::kSkipped, reason.what());
  } catch (const std::exception& error) {
    return report.end(Outcome::kFailed, error.what());
  }
}

int probe_main(int argc, char** argv) {
  Words words;
  try {
    words = parse_words({argv + std::min(argc, 1), argv + argc});
  } catch (const WrongUsage& error) {
    std::fprintf(stderr, "%s\nRun with --help for more information.\n", error.what());
    return kWrongUsage;
  }
  if (words.help) {
    std::fputs(help_text(argc > 0 ? argv[0] : "varve-gpu-probe").c_str(), stdout);
    return 0;
  }
  // Times with a cold cache of compiled kernels are what a fresh machine sees; and arithmetic in 32 bits is what the
  // limits of errors are for.
  ::setenv("CUDA_CACHE_DISABLE", "1", 1);
  ::unsetenv("NVIDIA_TF32_OVERRIDE");
  return run_step(words, take_standard_output());
}

}  // namespace
}  // namespace varve::gpu::probe

int main(int argc, char** argv) {
  int status = 1;
  try {
    status = varve::gpu::probe::probe_main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
  }
  // Without the destructors of the libraries: what they do at the end of a process in which a device failed is not what
  // was checked.
  std::fflush(nullptr);
  std::_Exit(status);
}
