#include "cli/gpu/gpu_places.h"

#include "analyzer/cuda/manifest.h"
#include "analyzer/prune/image_view.h"
#include "cli/base/open_image.h"
#include "cli/session/child_sessions.h"
#include "core/base/embedded.h"
#include "core/base/files/file.h"
#include "core/base/text/strings.h"
#include "fuse/control/control_client.h"
#include "fuse/session/gpus.h"
#include "gpu/places.h"

namespace varve::cli {

EmbeddedFiles gpu_probe_files();

namespace {

std::vector<std::string> words_of_session(const Context& context, const GpuPlace& place,
                                          const std::filesystem::path& probe, const std::filesystem::path& root,
                                          const std::filesystem::path& stats) {
  auto words = session_words(context, root);
  words.insert(words.end(),
               {"--stats", stats.string(), "--volume", fmt::format("{}:{}:ro", probe.string(), gpu::kProbeInSession),
                "--runtime", place.runtime});
  for (const auto& variable : place.env) words.insert(words.end(), {"--env", variable});
  const auto devices = words_of(place.devices);
  words.insert(words.end(), devices.begin(), devices.end());
  if (place.image.empty()) {
    words.insert(words.end(), {"--rootfs", place.rootfs.string()});
  } else {
    words.insert(words.end(), {"--mode", place.mode, place.image});
  }
  words.emplace_back("--");
  return words;
}

gpu::StepResult compare_manifest(const Context& context, const GpuPlace& place) {
  const auto text = read_file(place.manifest, cuda::kMaxManifestBytes);
  const auto wanted = cuda::parse_manifest(as_text(text), place.manifest.string());
  const auto image = open_indexed(context, place.image);
  const auto differences = cuda::compare(wanted, prune::ImageView(place.image, image).cuda_manifest());
  gpu::StepResult result;
  result.step = "manifest";
  result.outcome = differences.empty() ? gpu::Outcome::kOk : gpu::Outcome::kFailed;
  result.detail = differences.empty()
                      ? fmt::format("{} files, the loader's ways to them and the configuration are those of {}",
                                    wanted.files.size(), place.manifest.string())
                      : fmt::format("{} differences from {}, first: {}", differences.size(), place.manifest.string(),
                                    differences.front());
  return result;
}

}  // namespace

std::filesystem::path probe_file(const std::filesystem::path& root) {
  const auto program = embedded_file(gpu_probe_files(), "varve-gpu-probe");
  const auto digest = digest_of(program);
  const auto file = root / "gpu" / ("varve-gpu-probe-" + digest.hex().substr(0, 16));
  const auto there = read_file_if_there(file, program.size() + 1);
  if (there && digest_of(*there) == digest) return file;
  std::filesystem::create_directories(file.parent_path());
  write_file_atomically(file, as_bytes(program), 0755);
  return file;
}

std::string why_no_gpu(const Context& context, const GpuPlace& place) {
  try {
    find_devices(context, place.devices, place.runtime);
    return "";
  } catch (const NotFound& error) {
    const auto driver = fuse::installed_driver_version();
    if (!driver.empty())
      fail<Unsupported>("the driver {} is loaded, but sessions cannot have its devices: {}", driver, error.what());
    return error.what();
  }
}

std::unique_ptr<gpu::StepRunner> make_step_runner(const Context& context, const GpuPlace& place) {
  const auto probe = probe_file(context.global.root);
  if (place.image.empty() && place.rootfs.empty()) return gpu::run_on_this_machine(probe, context.cancel);
  gpu::SessionPlace sessions{
      .name = place.image.empty() ? place.rootfs.string() : place.image,
      .lazy = !place.image.empty(),
      .root = context.global.root,
      .session = [&context, place, probe](
                     const auto& root,
                     const auto& stats) { return words_of_session(context, place, probe, root, stats); },
      .end_store =
          [](const auto& root) {
            if (auto client = fuse::ControlClient::connect({.root = root, .run_dir = root / "run"})) client->shutdown();
          },
      .manifest = {}};
  if (!place.manifest.empty()) sessions.manifest = [&context, place] { return compare_manifest(context, place); };
  return gpu::run_in_sessions(std::move(sessions), context.cancel);
}

std::string cuda_manifest_json(const Context& context, const std::string& image) {
  const auto opened = open_indexed(context, image);
  return cuda::to_json(prune::ImageView(image, opened).cuda_manifest());
}

}  // namespace varve::cli
