// A record of podman's store, the lists of podman's own storage, and storage.conf, with any content. What is a record
// is written and read again as the same; a changed storage.conf names the store.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/base/errors.h"
#include "fuse/podman/image_store.h"
#include "fuse/podman/storage_conf.h"
#include "fuse/podman/store_users.h"

namespace {

namespace podman = varve::fuse::podman;

template <typename Read>
void attempt(Read read) {
  try {
    read();
  } catch (const varve::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] {
    const auto image = podman::parse_stored_image(text, "record");
    const auto written = podman::stored_image_json(image);
    if (podman::stored_image_json(podman::parse_stored_image(written, "again")) != written) std::abort();
  });
  podman::StorageLists lists;
  attempt([&] { podman::parse_layer_list(text, "layers", lists); });
  attempt([&] { podman::parse_image_list(text, "images", lists); });
  attempt([&] { podman::parse_container_list(text, "containers", lists); });
  podman::StoredImage image;
  image.manifests.resize(1);
  image.layers = 1;
  podman::find_users(image, lists);
  attempt([&] { podman::parse_storage_conf(text, "conf"); });
  attempt([&] {
    const auto changed = podman::add_image_store(text, "conf", "/store");
    if (!podman::parse_storage_conf(changed, "conf").names("/store")) std::abort();
  });
  return 0;
}
