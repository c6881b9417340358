#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/destination.h"
#include "cli/command.h"
#include "cli/image/image_command.h"
#include "core/base/errors.h"
#include "core/base/progress.h"
#include "core/base/text/units.h"
#include "indexer/export_image.h"

namespace varve::cli {
namespace {

constexpr std::string_view kDockerArchive = "docker-archive:";

struct ExportArguments {
  std::string image;
  std::string destination;
  bool replace = false;
  indexer::ExportOptions options;
};

// "FILE[:REPO[:TAG]]", as skopeo and podman write it.
indexer::ExportReport export_to_archive(const Context& context, const oci::Image& image, const std::string& text,
                                        Progress& progress) {
  const auto colon = text.find(':');
  const auto file = text.substr(0, colon);
  auto name = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (file.empty()) throw UsageError("docker-archive: names no file: write docker-archive:FILE[:NAME[:TAG]]");
  if (!name.empty()) {
    const auto reference = oci::Reference::parse("docker://" + name);
    if (reference.digest) fail<UsageError>("{}: an archive cannot hold a digest as its name, only NAME[:TAG]", name);
    refuse_own_tag(reference);  // whoever loads it pushes it under that name
    if (name.find(':', name.rfind('/') == std::string::npos ? 0 : name.rfind('/')) == std::string::npos)
      name += ":latest";
  }
  return indexer::export_docker_archive(image, file, name, {progress, context.cancel});
}

void run_export(const Context& context, const ExportArguments& arguments) {
  const bool archive = arguments.destination.starts_with(kDockerArchive);
  const auto reference = archive ? oci::Reference() : parse_destination(arguments.destination);
  const auto image = context.open_image(arguments.image);
  Progress progress;
  indexer::ExportReport report;
  Destination destination;
  if (archive) {
    if (arguments.options.with_index)
      throw UsageError("a docker-archive has no place for an index: leave out --with-index");
    const ProgressLine line(progress, "export", context.global.quiet);
    report = export_to_archive(context, image, arguments.destination.substr(kDockerArchive.size()), progress);
  } else {
    destination = open_destination(context, arguments.image, reference);
    refuse_own_source(arguments.image, std::nullopt, destination, arguments.replace);
    const ProgressLine line(progress, "export", context.global.quiet);
    report = indexer::export_image(image, *destination.repository, destination.tag(), arguments.options,
                                   {progress, context.cancel});
  }
  if (context.global.json)
    return context.print_json({{"image", report.image.to_string()},
                               {"copied_bytes", report.copied_bytes},
                               {"reused_bytes", report.reused_bytes},
                               {"replaced", replaced_json(destination, report.image)}});
  context.out << fmt::format("{}\n{} written, {} was there already\n{}", report.image.to_string(),
                             human_bytes(report.copied_bytes), human_bytes(report.reused_bytes),
                             moved_text(destination, report.image));
}

}  // namespace

void add_image_export_command(CLI::App& image, Context& context) {
  const auto arguments = std::make_shared<ExportArguments>();
  auto* command = image.add_subcommand("export", "Copies an image, byte for byte, to where other tools take it from");
  command->add_option("IMAGE", arguments->image, "The image: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]")->required();
  command
      ->add_option("DEST", arguments->destination,
                   "oci:DIR[:TAG], docker-archive:FILE[:NAME[:TAG]] or [docker://]HOST/REPO[:TAG]")
      ->required();
  command->add_option("--jobs", arguments->options.jobs, "Blobs on their way at the same time")
      ->type_name("N")
      ->check(CLI::Range(1u, 64u))
      ->capture_default_str();
  command->add_flag("--with-index", arguments->options.with_index,
                    "The index goes along, with its signatures, so that the copy can be mounted lazily");
  add_replace_option(*command, arguments->replace);
  command->footer(
      "Examples:\n"
      "  varve image export registry.example/team/notebook:v143 oci:/srv/notebook:v143\n"
      "  varve image export oci:image:latest docker-archive:image.tar:team/notebook:v143\n\n"
      "The manifest keeps its digest. A docker-archive holds the layers unpacked: `docker load`, `podman load` and "
      "`skopeo copy` read it.");
  command->callback([&context, arguments] { run_export(context, *arguments); });
}

}  // namespace varve::cli
