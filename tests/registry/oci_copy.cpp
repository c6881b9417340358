// Drives core/oci against real registries for registry_test.py: copies images, attaches artifacts, reads ranges.
#include <cstdio>
#include <exception>
#include <random>
#include <string>
#include <vector>

#include "core/base/errors.h"
#include "core/oci/image.h"
#include "core/oci/registry_repository.h"

namespace {

using namespace varve;
using namespace varve::oci;

struct Arguments {
  RegistryOptions options;
  std::string mount_from;
  std::vector<std::string> words;
};

Arguments parse_arguments(int argc, char** argv) {
  Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&] {
      return i + 1 < argc ? std::string(argv[++i]) : throw UsageError(word + " needs a value");
    };
    if (word == "--authfile")
      arguments.options.authfile = value();
    else if (word == "--ca")
      arguments.options.ca_file = value();
    else if (word == "--chunk")
      arguments.options.upload_chunk_bytes = std::stoull(value());
    else if (word == "--mount-from")
      arguments.mount_from = value();
    else
      arguments.words.push_back(word);
  }
  return arguments;
}

std::shared_ptr<Repository> open_destination(const Reference& reference, const Arguments& arguments) {
  if (reference.kind == Reference::Kind::kLayout) return create_layout(reference.layout_dir);
  auto repository = std::make_shared<RegistryRepository>(reference, arguments.options);
  repository->set_mount_source(arguments.mount_from);
  return repository;
}

void copy(const Arguments& arguments) {
  const auto to = Reference::parse(arguments.words.at(2));
  const auto image = open_image({.reference = Reference::parse(arguments.words.at(1)), .registry = arguments.options});
  const auto destination = open_destination(to, arguments);
  std::uint64_t sent = 0;
  auto blobs = image.manifest.layers;
  blobs.push_back(image.manifest.config);
  for (const auto& blob : blobs) {
    destination->put_blob(blob, [&](ByteRange range, const ByteSink& sink) {
      sent += range.length;
      image.repository->read_blob(blob, range, sink);
    });
  }
  const auto put =
      destination->put_manifest(image.document.bytes, image.document.descriptor.media_type, to.tag.value_or(""));
  std::printf("%s sent %llu\n", put.digest.to_string().c_str(), static_cast<unsigned long long>(sent));
}

void attach(const Arguments& arguments) {
  const auto image = open_image({.reference = Reference::parse(arguments.words.at(1)), .registry = arguments.options});
  ArtifactManifest artifact;
  artifact.artifact_type = arguments.words.at(2);
  artifact.subject = image.document.descriptor;
  artifact.layers = {put_bytes(*image.repository, as_bytes(arguments.words.at(3)), "text/plain")};
  put_bytes(*image.repository, empty_json(), kEmptyJsonType);
  std::printf("%s\n",
              image.repository->put_manifest(artifact.to_json(), kOciManifestType, "").digest.to_string().c_str());
}

void list_referrers(const Arguments& arguments) {
  const auto image = open_image({.reference = Reference::parse(arguments.words.at(1)), .registry = arguments.options});
  for (const auto& referrer : image.repository->referrers(image.digest(), arguments.words.at(2)))
    std::printf("%s\n", referrer.digest.to_string().c_str());
}

// Compares ranges of every layer with the layer as a whole.
void compare_ranges(const Arguments& arguments) {
  const auto image = open_image({.reference = Reference::parse(arguments.words.at(1)), .registry = arguments.options});
  std::minstd_rand random(1);
  for (const auto& layer : image.manifest.layers) {
    const auto whole = read_whole_blob(*image.repository, layer, std::uint64_t(1) << 30);
    for (int i = 0; i < 50; ++i) {
      const auto offset = random() % layer.size;
      const auto length = 1 + random() % std::min<std::uint64_t>(layer.size - offset, 300'000);
      Bytes part;
      image.repository->read_blob(layer, {.offset = offset, .length = length},
                                  [&](ByteView bytes) { append(part, bytes); });
      if (!std::equal(part.begin(), part.end(), whole.begin() + std::ptrdiff_t(offset),
                      whole.begin() + std::ptrdiff_t(offset + length)))
        fail<CorruptData>("range {}+{} of {} differs", offset, length, layer.digest.to_string());
    }
  }
  std::printf("ranges agree: %d\n", image.repository->serves_ranges());
}

}  // namespace

int main(int argc, char** argv) try {
  const auto arguments = parse_arguments(argc, argv);
  const auto verb = arguments.words.empty() ? std::string() : arguments.words[0];
  if (verb == "copy")
    copy(arguments);
  else if (verb == "attach")
    attach(arguments);
  else if (verb == "referrers")
    list_referrers(arguments);
  else if (verb == "ranges")
    compare_ranges(arguments);
  else
    throw varve::UsageError(
        "usage: oci_copy copy FROM TO | attach IMAGE TYPE TEXT | referrers IMAGE TYPE | ranges IMAGE");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return varve::exit_status_for(error);
}
