#include "cli/prune/pinned_savings.h"

#include <set>

#include "core/base/errors.h"
#include "indexer/pins.h"

namespace varve::cli {
namespace {

prune::ImageShares read_shares(const Context& context, const index::OpenedImage& beside, const indexer::Pin& pin) {
  const auto platform = context.global.platform.empty() ? oci::Platform::of_this_machine()
                                                        : oci::Platform::parse(context.global.platform);
  auto image = oci::open_image(beside.image().repository, pin.image.digest.to_string(), platform);
  image.registry = context.global.registry;
  const index::OpenedImage opened(beside.local(), std::move(image));
  return prune::shares_of(packages::read_inventory(opened), pin.name);
}

}  // namespace

prune::Savings pinned_savings(const Context& context, const index::OpenedImage& image,
                              const packages::Inventory& inventory) {
  const prune::SharesCache cache(context.global.root / "shares");
  prune::Savings savings;
  savings.add(prune::shares_of(inventory, ""));
  std::set<Digest> counted{image.digest()};  // an image may be promised more than once
  for (const auto& pin : indexer::read_pins(*image.image().repository)) {
    if (!counted.insert(pin.image.digest).second) continue;
    context.cancel.throw_if_cancelled();
    try {
      auto shares = cache.find(pin.image.digest);
      if (!shares) {
        shares = read_shares(context, image, pin);
        cache.put(*shares);
      }
      savings.add(*shares);
    } catch (const Cancelled&) {
      throw;
    } catch (const NotFound& error) {
      savings.add_unknown(pin.image.digest, pin.name, error.what());
    } catch (const CorruptData& error) {
      savings.add_unknown(pin.image.digest, pin.name, error.what());
    } catch (const Unsupported& error) {
      savings.add_unknown(pin.image.digest, pin.name, error.what());
    }
  }
  return savings;
}

}  // namespace varve::cli
