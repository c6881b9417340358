#include <memory>
#include <ostream>

#include "cli/base/open_image.h"
#include "cli/command.h"
#include "core/base/log.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/units.h"

namespace varve::cli {
namespace {

struct CatArguments {
  std::string image;
  std::vector<std::string> paths;
};

void cat_file(Context& context, const index::OpenedImage& image, const std::string& path) {
  const auto nid = find_file(image, path);
  if (image.index().tree->inode(nid).type != FileType::kRegular)
    fail<Error>("{} is not a regular file", printable(path));
  const auto before = image.fetched();
  image.contents().read(nid, [&](ByteView bytes) {
    context.cancel.throw_if_cancelled();
    context.out.write(as_text(bytes).data(), std::streamsize(bytes.size()));
    if (!context.out) throw TemporaryError("write standard output: it takes no more");
  });
  const auto now = image.fetched();
  log::info("{}: {} fetched in {} requests", printable(path), human_bytes(now.bytes - before.bytes),
            now.requests - before.requests);
}

}  // namespace

void add_cat_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<CatArguments>();
  auto* command = app.add_subcommand("cat", "Prints files of an image, fetching only what holds them");
  command->add_option("IMAGE", arguments->image, "An indexed image")->required();
  command->add_option("PATH", arguments->paths, "Paths inside the image; symbolic links are followed")->required();
  command->footer("Example:\n  varve cat oci:image:latest /etc/os-release");
  command->callback([&context, arguments] {
    const auto image = open_indexed(context, arguments->image);
    for (const auto& path : arguments->paths) cat_file(context, image, path);
  });
}

}  // namespace varve::cli
