// The probe of `varve gpu-check`: runs one step inside an image. gpu/probe_output.h says what it prints;
// docs/guide/gpu-check.md what each step checks.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include "gpu/probe/step.h"

namespace varve::gpu::probe {
namespace {

constexpr int kWrongUsage = 2;

struct Words {
  std::string step;
  std::optional<int> device;
  int repetitions = 9;
  std::size_t size = 0;
  std::vector<std::string> folders;
};

std::string steps_text() {
  std::string text = "Steps, and what --size counts (default):\n";
  for (const auto& entry : step_entries()) {
    text += fmt::format("  {:<12} {}\n", entry.name, entry.what);
    if (!entry.measure.empty()) text += fmt::format("  {:<12} --size: {}\n", "", entry.measure);
  }
  text +=
      "\nExit status: 0 ok, 1 failed, 2 wrong usage, 77 skipped: the image or the machine lacks what the step "
      "needs.\n\nExamples:\n  varve-gpu-probe driver\n  varve-gpu-probe gemm --device 1\n";
  text += "  varve-gpu-probe libraries --library-dir /usr/local/lib/python3.11/site-packages\n";
  return text;
}

void describe(CLI::App& app, Words& words) {
  app.add_option("STEP", words.step, "One of the steps below")->required()->check([](const std::string& name) {
    return std::ranges::any_of(step_entries(), [&](const StepEntry& entry) { return entry.name == name; })
               ? std::string()
               : "there is no step " + name;
  });
  app.add_option("--device", words.device,
                 "Number of the device, as the driver counts. Without it: device looks at all, the others use the "
                 "first; nccl uses all in any case")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option("--size", words.size, "How large the problem is, see below")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 30));
  app.add_option("--repetitions", words.repetitions, "How often steady calls are timed; the median counts (9)")
      ->check(CLI::Range(1, 1000));
  app.add_option("--library-dir", words.folders,
                 "Looks for libraries here, and in nvidia/*/lib below, after the loader's own search; may be given "
                 "again. Without it: the usual site-packages")
      ->type_name("DIR")
      ->allow_extra_args(false);
  app.footer(steps_text());
}

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
  CLI::App app("Checks the GPU and its libraries from inside an image: one step in one process");
  Words words;
  describe(app, words);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kWrongUsage;
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
