#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/destination.h"
#include "cli/base/text.h"
#include "cli/command.h"
#include "cli/trust/signing.h"
#include "core/base/errors.h"
#include "core/base/progress.h"
#include "core/base/text/units.h"
#include "core/trust/sign.h"
#include "indexer/index_image.h"

namespace varve::cli {
namespace {

struct IndexArguments {
  std::string image;
  std::string destination;
  std::string previous;
  indexer::IndexOptions options;
  SigningOptions signing;
};

nlohmann::json to_json(const indexer::IndexReport& report) {
  auto layers = nlohmann::json::array();
  for (const auto& layer : report.layers)
    layers.push_back({{"digest", layer.digest.to_string()},
                      {"format", layer.format},
                      {"compressed_bytes", layer.compressed_bytes},
                      {"stream_bytes", layer.stream_bytes},
                      {"spans", layer.spans},
                      {"reused", layer.reused},
                      {"seconds", layer.seconds}});
  return {{"image", report.image.to_string()},   {"index", report.index.to_string()},
          {"layers", std::move(layers)},         {"tree_bytes", report.tree_bytes},
          {"index_bytes", report.index_bytes},   {"first_load_bytes", report.first_load_bytes},
          {"seeded_bytes", report.seeded_bytes}, {"seconds", report.seconds}};
}

void print_report(const indexer::IndexReport& report, std::ostream& out) {
  std::vector<std::vector<std::string>> rows{{"LAYER", "FORMAT", "COMPRESSED", "UNPACKED", "PIECES", "TOOK"}};
  std::uint64_t compressed_bytes = 0;
  for (const auto& layer : report.layers) {
    compressed_bytes += layer.compressed_bytes;
    rows.push_back({layer.digest.to_string().substr(0, 19), layer.format, human_bytes(layer.compressed_bytes),
                    human_bytes(layer.stream_bytes), fmt::format("{}", layer.spans),
                    layer.reused ? "reused" : fmt::format("{:.1f} s", layer.seconds)});
  }
  print_table(out, rows);
  out << fmt::format("image  {}\nindex  {}\n", report.image.to_string(), report.index.to_string());
  const double share = compressed_bytes == 0 ? 0 : 100.0 * double(report.index_bytes) / double(compressed_bytes);
  out << fmt::format("{} of index ({:.2f} % of the image), {} of it before a mount is usable; {:.1f} s\n",
                     human_bytes(report.index_bytes), share, human_bytes(report.first_load_bytes), report.seconds);
  if (report.seeded_bytes != 0)
    out << fmt::format("{} of its new layers are in the previous version: who has that does not fetch them\n",
                       human_bytes(report.seeded_bytes));
}

// With --reuse-foreign the index may say what others have said, for whom nobody here vouches.
std::vector<SignedManifest> sign_made(const IndexSigner& signer, const oci::Image& image,
                                      const indexer::IndexReport& report, index::LocalIndex& local,
                                      oci::Repository& destination) {
  index::FoundIndex made;
  made.document = destination.manifest(report.index.to_string());
  made.blobs = index::parse_index_manifest(made.document, image);
  if (!local.judge(image, made, destination, true).vouched)
    throw trust::Untrusted(fmt::format(
        "index {} was stored, but is not signed: it is made of layer indexes of others that no key signed which "
        "counts here; leave out --reuse-foreign",
        report.index.to_string()));
  auto done = signer.sign_index(image, made, destination);
  // Elsewhere it is the index of an image all the same: machines that find it by index-from ask for a signature that
  // names the image's repository; those that have a copy of the image there, for one that names that.
  const auto of_image = trust::identity_of(*image.repository);
  if (signer.has_identity() || of_image == trust::identity_of(destination)) return done;
  for (auto& one : signer.sign_index(image, made, destination, of_image)) done.push_back(std::move(one));
  return done;
}

void run_index(Context& context, const IndexArguments& arguments) {
  const bool beside = arguments.destination.empty();
  auto reference = beside ? oci::Reference() : parse_destination(arguments.destination);
  reference.tag.reset();  // an index has none
  const auto image = context.open_image(arguments.image);
  // Where nothing can be added, this machine keeps the index, as it does of every image that it indexes.
  const bool kept_here = beside && image.repository->is_read_only();
  if (kept_here && !arguments.signing.key.empty())
    fail<UsageError>("{}: nothing can be added there, neither an index nor its signature; say where with --to DEST",
                     arguments.image);
  auto local = context.local_index();
  const auto kept = std::shared_ptr<oci::Repository>(std::shared_ptr<void>(), &local.repository());
  const auto destination = kept_here ? kept
                           : beside  ? image.repository
                                     : open_destination(context, arguments.image, reference).repository;
  std::optional<IndexSigner> signer;  // before the work: a passphrase is not asked for an hour later
  if (!arguments.signing.key.empty()) signer.emplace(arguments.signing);
  auto options = arguments.options;
  if (!arguments.previous.empty())
    options.earlier = indexer::choose_earlier(context.open_image(arguments.previous), local);
  Progress progress;
  indexer::IndexReport report;
  {
    const ProgressLine line(progress, "index", context.global.quiet);
    report = indexer::index_image(image, *destination, local, options, {progress, context.cancel});
  }
  std::vector<SignedManifest> done;
  if (signer) done = sign_made(*signer, image, report, local, *destination);
  if (context.global.json) {
    auto document = to_json(report);
    if (signer) document["signatures"] = to_json(done, signer->public_key());
    context.print_json(document);
  } else {
    print_report(report, context.out);
    if (kept_here) context.out << "kept on this machine only: nothing can be added to " << arguments.image << '\n';
    if (signer) context.out << summary_of(done, signer->public_key()) << '\n';
  }
}

}  // namespace

void add_index_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<IndexArguments>();
  auto* command = app.add_subcommand("index", "Makes an image randomly accessible; not one byte of the image changes");
  command->add_option("IMAGE", arguments->image, "The image: oci:DIR[:TAG] or [docker://]HOST/REPO[:TAG]")->required();
  command
      ->add_option(
          "--to", arguments->destination,
          "Store the index in this layout folder or repository, not beside the image; machines find it there by "
          "--index-from DEST")
      ->type_name("DEST");
  command
      ->add_option("--previous", arguments->previous,
                   "The version before, indexed here or signed: the index says what of the new layers it has, so that "
                   "machines which ran it take that from there at once")
      ->type_name("IMAGE");
  command->add_option("--jobs", arguments->options.jobs, "Layers read at the same time; 0 means one per core")
      ->type_name("N");
  command->add_flag("--force", arguments->options.force, "Index layers again that were indexed before");
  add_signing_options(*command, arguments->signing, "--sign");
  command->add_flag(
      "--reuse-foreign", arguments->options.reuse_foreign,
      "Take layer indexes that others have published there and no trusted key has signed. Whoever made them decides "
      "what is in the layers");
  command
      ->add_option("--max-layer-bytes", arguments->options.max_stream_bytes,
                   "Refuse a layer that unpacks to more than this")
      ->type_name("N");
  command->footer(
      "Examples:\n"
      "  varve index oci:image:latest\n"
      "  varve index registry.example/team/notebook:2026-11\n"
      "  varve index registry.example/team/notebook:2026-11 --previous registry.example/team/notebook:2026-10\n"
      "  varve index registry.example/team/notebook:2026-11 --sign ci.key\n"
      "  varve index quay.io/jupyter/base-notebook:2026-11 --to registry.example/team/indexes --sign ci.key\n\n"
      "Layers that this machine has indexed before, for this or another image, or whose index a trusted key has "
      "signed, are not read again. A run that was stopped goes on with the layers\n"
      "that are done. The index can be read by everyone who can read the repository it is stored in.");
  command->callback([&context, arguments] { run_index(context, *arguments); });
}

}  // namespace varve::cli
