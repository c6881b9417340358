// Marks files of an indexed image as cold, for test_cold.py and measurements: mark_cold ROOT IMAGE [PREFIX...]. Without
// prefixes it takes all marks away.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "core/index/merge/mark_cold.h"
#include "core/index/publish_index.h"
#include "core/oci/reference.h"

int main(int argc, char** argv) try {
  using namespace varve;
  if (argc < 3) return 2;
  const std::vector<std::string> prefixes(argv + 3, argv + argc);
  index::LocalIndex local(argv[1]);
  oci::ImageRequest request;
  request.reference = oci::Reference::parse(argv[2]);
  const auto image = oci::open_image(request);
  const auto loaded = index::load_index(local, image, index::IndexPlace::kRepository);
  const auto tree = index::read_flat_tree(local, loaded, image);
  index::ColdContent content;
  for (const auto& [path, entry] : tree.entries) {
    for (const auto& prefix : prefixes) {
      if (path.starts_with(prefix)) content.files.insert(path);
    }
  }
  index::ColdSummary summary;
  const auto cold = index::mark_cold(tree, loaded.maps, content, &summary);
  const auto blobs = index::publish_cold(image, loaded, cold, local, *image.repository, CancelFlag());
  std::printf(R"({"index": "%s", "generation": %llu, "files": %llu, "content_bytes": %llu, "stream_bytes": %llu, )"
              R"("compressed_bytes": %llu, "shared_span_bytes": %llu, "blob_bytes": %llu})"
              "\n",
              blobs.manifest.digest.to_string().c_str(), static_cast<unsigned long long>(blobs.generation),
              static_cast<unsigned long long>(summary.files), static_cast<unsigned long long>(summary.content_bytes),
              static_cast<unsigned long long>(summary.stream_bytes),
              static_cast<unsigned long long>(summary.compressed_bytes),
              static_cast<unsigned long long>(summary.shared_span_bytes),
              static_cast<unsigned long long>(blobs.cold ? blobs.cold->size : 0));
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return 1;
}
