#include "cli/gpu/gpu_check_command.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/gpu/gpu_check_history.h"
#include "cli/gpu/gpu_check_pairs.h"
#include "cli/gpu/gpu_check_report.h"
#include "cli/gpu/gpu_places.h"
#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/file_lock.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"
#include "core/oci/reference.h"
#include "gpu/probe_output.h"
#include "gpu/report.h"

namespace varve::cli {
namespace {

constexpr int kFindings = 3;

struct GpuCheckArguments {
  GpuPlace place;
  gpu::SuiteOptions suite;
  std::uint32_t limit_seconds = 0;
  std::string family;
  std::vector<std::string> sizes;
  std::filesystem::path junit, write_manifest;
  bool list = false;
  std::string other_image;             // --ab
  std::filesystem::path other_rootfs;  // --ab-rootfs
  std::uint32_t pairs = 10;

  std::string history;  // "" = under the root
  bool no_history = false, show_history = false;
  std::string accept, reason;  // a metric

  // Times of problems of another size are not those of the metric's other hours: they are kept only where somebody says
  // where.
  bool keeps() const { return !no_history && (sizes.empty() || !history.empty()); }
  bool pairs_wanted() const { return !other_image.empty() || !other_rootfs.empty(); }
};

// Two checks at once would measure each other.
UniqueFd lock_checks(const std::filesystem::path& root) {
  std::filesystem::create_directories(root / "gpu");
  auto lock = try_lock(root / "gpu" / "lock", 0644);
  if (!lock)
    fail<TemporaryError>("another varve gpu-check is running on {}: two at once would measure each other",
                         root.string());
  return std::move(*lock);
}

std::string family_of(const GpuCheckArguments& arguments) {
  if (!arguments.family.empty()) return arguments.family;
  if (!arguments.place.rootfs.empty())
    return "rootfs:" + std::filesystem::absolute(arguments.place.rootfs).lexically_normal().string();
  if (arguments.place.image.empty()) return "this machine";
  auto reference = oci::Reference::parse(arguments.place.image);
  reference.tag.reset();
  reference.digest.reset();
  return reference.to_string();
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

gpu::RunIdentity identify(const Context& context, const GpuCheckArguments& arguments) {
  gpu::RunIdentity identity;
  identity.unix_seconds = std::time(nullptr);
  identity.family = family_of(arguments);
  if (!arguments.place.image.empty()) identity.image = context.open_image(arguments.place.image).digest().to_string();
  return identity;
}

// STEP=N
std::pair<std::string, std::uint64_t> parse_size(const std::string& text) {
  const auto equals = text.find('=');
  const auto digits = equals == text.npos ? "" : text.substr(equals + 1);
  if (digits.empty() || digits.size() > 9 || digits.find_first_not_of("0123456789") != digits.npos ||
      std::stoull(digits) == 0)
    fail<UsageError>("--size {}: write STEP=N", text);
  return {text.substr(0, equals), std::stoull(digits)};
}

int end_without_gpu(const Context& context, const GpuCheckArguments& arguments, const gpu::Report& report) {
  if (!arguments.junit.empty()) write_file_atomically(arguments.junit, as_bytes(gpu::to_junit(report)));
  if (context.global.json) context.print_json(gpu::to_json(report));
  return tell_no_gpu(context, report.run.no_gpu_reason);
}

void check_words(const GpuCheckArguments& arguments) {
  const auto& place = arguments.place;
  if (!place.image.empty() && !place.rootfs.empty()) throw UsageError("either an IMAGE or --rootfs DIR");
  if (place.image.empty() && (!place.manifest.empty() || !arguments.write_manifest.empty()))
    throw UsageError("--manifest and --write-manifest need an IMAGE: the index knows its digests");
  if (place.image.empty() && arguments.suite.cold)
    throw UsageError("--cold needs an IMAGE: only what is mounted lazily can be cold");
  if (!arguments.other_image.empty() && !arguments.other_rootfs.empty())
    throw UsageError("either --ab IMAGE or --ab-rootfs DIR");
  if (arguments.pairs_wanted() && (arguments.suite.cold || !arguments.junit.empty() || !place.manifest.empty()))
    throw UsageError("--ab compares times: --cold, --junit and --manifest are not for it");
  gpu::check_steps(arguments.suite);
}

std::string place_name(const GpuPlace& place) {
  return !place.image.empty() ? place.image : !place.rootfs.empty() ? place.rootfs.string() : "this machine";
}

int run_pairs(const Context& context, const GpuCheckArguments& arguments) {
  GpuPairs wanted{.a = arguments.place,
                  .b = arguments.place,
                  .name_a = place_name(arguments.place),
                  .name_b = {},
                  .pairs = arguments.pairs,
                  .suite = arguments.suite};
  wanted.b.image = arguments.other_image;
  wanted.b.rootfs = arguments.other_rootfs;
  wanted.name_b = place_name(wanted.b);
  const auto reason = why_no_gpu(context, wanted.b);
  return reason.empty() ? check_pairs(context, wanted) : tell_no_gpu(context, reason);
}

int run_check(const Context& context, GpuCheckArguments arguments) {
  auto& place = arguments.place;
  for (const auto& size : arguments.sizes) arguments.suite.sizes.insert(parse_size(size));
  arguments.suite.limit = std::chrono::seconds(arguments.limit_seconds);
  check_words(arguments);
  const bool sessions = !place.image.empty() || !place.rootfs.empty();
  if (!arguments.write_manifest.empty()) {
    write_file_atomically(arguments.write_manifest, as_bytes(cuda_manifest_json(context, place.image)));
    return 0;
  }
  const auto lock = lock_checks(context.global.root);
  if (arguments.pairs_wanted()) return run_pairs(context, arguments);
  gpu::Report report;
  report.run.no_gpu_reason = sessions ? why_no_gpu(context, place) : "";
  report.run.no_gpu = !report.run.no_gpu_reason.empty();
  if (report.run.no_gpu) {
    report.identity.family = family_of(arguments);
    report.identity.unix_seconds = std::time(nullptr);
    return end_without_gpu(context, arguments, report);
  }
  report.identity = identify(context, arguments);
  const auto runner = make_step_runner(context, place);
  CheckPrinter printer(context);
  report.run = gpu::run_suite(*runner, arguments.suite, context.cancel, [&](const gpu::SuiteRun::Check& check) {
    if (!context.global.json) printer(check);
  });
  report.identity.machine = report.run.machine;
  report.identity.machine.name = host_name();
  if (report.run.no_gpu && report.run.all_good()) return end_without_gpu(context, arguments, report);
  report.metrics = gpu::metrics_of(report.run);
  // What was found is told, also where it cannot be kept.
  int not_kept = 0;
  try {
    if (arguments.keeps()) keep_and_assess(history_database(context, arguments.history), report);
  } catch (const std::exception& error) {
    context.err << "varve: error: this run is not kept: " << error.what() << '\n';
    not_kept = exit_status_for(error);
  }
  if (!arguments.junit.empty()) write_file_atomically(arguments.junit, as_bytes(gpu::to_junit(report)));
  if (context.global.json) {
    context.print_json(gpu::to_json(report));
  } else {
    printer.flush();
    print_report(context, report);
  }
  return report.good() ? not_kept : kFindings;
}

// What needs no GPU: true if that was asked for, and is done.
bool only_tell(const Context& context, const GpuCheckArguments& arguments) {
  if (arguments.accept.empty() != arguments.reason.empty())
    throw UsageError("--accept METRIC needs --reason TEXT, and the other way round");
  const bool one_lineage =
      !arguments.family.empty() || !arguments.place.image.empty() || !arguments.place.rootfs.empty();
  const auto family = one_lineage ? family_of(arguments) : "";
  if (arguments.list) {
    list_steps(context);
  } else if (arguments.show_history) {
    show_history(context, history_database(context, arguments.history), family);
  } else if (!arguments.accept.empty()) {
    accept_metric(context, history_database(context, arguments.history),
                  {.metric = arguments.accept, .family = family, .reason = arguments.reason});
  } else {
    return false;
  }
  return true;
}

void add_place_options(CLI::App* check, GpuCheckArguments& arguments) {
  auto& place = arguments.place;
  check
      ->add_option("IMAGE,--image", place.image,
                   "The image, indexed: each step is a session of its own on it. Without: this machine as it is")
      ->type_name("IMAGE");
  check->add_option("--rootfs", place.rootfs, "In place of an image: a folder with an unpacked tree")->type_name("DIR");
  check->add_option("--gpus", place.devices.gpus, "all, or how many of the machine's GPUs the sessions get")
      ->type_name("GPUS")
      ->capture_default_str();
  check->add_option("-e,--env", place.env, "A variable for the sessions; may be repeated")
      ->type_name("K=V")
      ->allow_extra_args(false);
  check
      ->add_option("--cdi-spec-dir", place.devices.cdi_dirs,
                   "Where devices are described; may be repeated, a later folder wins")
      ->type_name("DIR")
      ->allow_extra_args(false)
      ->capture_default_str();
  check->add_option("--mode", place.mode, "How the image is mounted: auto, kernel or fuse")
      ->type_name("MODE")
      ->check(CLI::IsMember({"auto", "kernel", "fuse"}));
  check->add_option("--runtime", place.runtime, "Who carries the sessions out: auto, runc, crun or none")
      ->type_name("RUNTIME")
      ->check(CLI::IsMember({"auto", "runc", "crun", "none", "nvidia"}));
  check->add_option("--manifest", place.manifest, "What the image should hold of CUDA")->type_name("FILE");
  check
      ->add_option("--write-manifest", arguments.write_manifest,
                   "Write what the image holds of CUDA, for --manifest, and do nothing else")
      ->type_name("FILE");
}

void add_suite_options(CLI::App* check, GpuCheckArguments& arguments) {
  auto& suite = arguments.suite;
  check->add_option("--only", suite.only, "Only this step (and the driver's); may be repeated")
      ->type_name("STEP")
      ->allow_extra_args(false);
  check->add_option("--require", suite.required, "It fails where it would be skipped; may be repeated")
      ->type_name("STEP")
      ->allow_extra_args(false);
  check->add_option("--repetitions", suite.repetitions, "Fresh processes for each step that takes times")
      ->type_name("N")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  check
      ->add_option("--limit", arguments.limit_seconds,
                   "Seconds that a process may take, instead of the step's own limit")
      ->type_name("S")
      ->check(CLI::Range(1, 86'400));
  check
      ->add_option("--size", arguments.sizes,
                   "How large the problem of a step is, STEP=N as `varve-gpu-probe --help` counts it; may be repeated")
      ->type_name("STEP=N")
      ->allow_extra_args(false);
  check->add_flag("--cold", suite.cold, "Also with an empty store: what the first session on a fresh machine meets");
}

void add_history_options(CLI::App* check, GpuCheckArguments& arguments) {
  check
      ->add_option("--family,--lineage", arguments.family,
                   "What the image is a version of; the reference without tag and digest if not said")
      ->type_name("NAME");
  check
      ->add_option("--history", arguments.history,
                   "Where runs are kept: a file, or postgresql://... (default: gpu/history.db under --root)")
      ->type_name("DB");
  check->add_flag("--no-history", arguments.no_history, "Keep nothing of this run, and judge it by nothing");
  check->add_flag("--show-history", arguments.show_history,
                  "Show what is kept, of this IMAGE's or --family, or all, and do nothing else");
  check
      ->add_option(
          "--accept", arguments.accept,
          "This metric is slower for a --reason: judge it by its present speed from now on, and do nothing else")
      ->type_name("METRIC");
  check->add_option("--reason", arguments.reason, "Why, for --accept")->type_name("TEXT");
}

void add_pair_options(CLI::App* check, GpuCheckArguments& arguments) {
  check
      ->add_option("--ab", arguments.other_image,
                   "Compare this image with IMAGE in pairs of fresh processes: is it slower?")
      ->type_name("IMAGE");
  check->add_option("--ab-rootfs", arguments.other_rootfs, "The same with an unpacked tree")->type_name("DIR");
  check->add_option("--pairs", arguments.pairs, "How many pairs of --ab")
      ->type_name("N")
      ->check(CLI::Range(6, 1000))
      ->capture_default_str();
}

}  // namespace

void add_gpu_check_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<GpuCheckArguments>();
  auto* check = app.add_subcommand(
      "gpu-check",
      "Do GPU, driver and the image's CUDA libraries work, and as fast as they did? Exit status 3 if not, 77 "
      "without a GPU");
  add_place_options(check, *arguments);
  add_suite_options(check, *arguments);
  check->add_option("--junit", arguments->junit, "Also write the results as JUnit XML")->type_name("FILE");
  add_history_options(check, *arguments);
  add_pair_options(check, *arguments);
  check->add_flag("--list", arguments->list, "List the steps and do nothing else");
  check->footer(
      "Examples:\n  varve gpu-check                                      # this machine: driver, devices, "
      "libraries that it finds\n"
      "  varve gpu-check registry.example/team/notebook:v143  # in sessions on the lazily mounted image\n"
      "  varve gpu-check IMAGE --only torch --require torch --repetitions 1\n"
      "  varve gpu-check --rootfs /srv/unpacked --junit results.xml\n"
      "  varve gpu-check --show-history && varve gpu-check --accept gemm.steady --reason 'driver 590 is slower, "
      "known to NVIDIA'\n"
      "  varve gpu-check registry.example/team/notebook:v143 --ab registry.example/team/notebook:v144\n"
      "  varve gpu-check IMAGE --write-manifest cuda.json && varve gpu-check IMAGE --manifest cuda.json\n\n"
      "Exit status: 0 all good, 3 a check failed or a metric raised an alarm, 77 no driver or no GPU (one line "
      "on standard error), 75 another check is running, 1 own failure.");
  check->callback([&context, arguments] {
    if (!only_tell(context, *arguments)) context.exit_status = run_check(context, *arguments);
  });
}

}  // namespace varve::cli
