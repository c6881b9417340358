#include <algorithm>
#include <ctime>
#include <memory>
#include <ostream>

#include <nlohmann/json.hpp>

#include "cli/base/open_image.h"
#include "cli/command.h"
#include "core/base/progress.h"
#include "core/base/text/safe_text.h"
#include "core/base/text/utf8.h"

namespace varve::cli {
namespace {

struct LsArguments {
  std::string image;
  std::string path = "/";
  bool recursive = false;
  bool details = false;
};

std::string_view type_name(FileType type) {
  switch (type) {
    case FileType::kRegular:
      return "file";
    case FileType::kDirectory:
      return "directory";
    case FileType::kCharDevice:
      return "char-device";
    case FileType::kBlockDevice:
      return "block-device";
    case FileType::kFifo:
      return "fifo";
    case FileType::kSymlink:
      return "symlink";
    case FileType::kHardLink:
      break;  // a tree has none
  }
  return "unknown";
}

char type_letter(FileType type) {
  switch (type) {
    case FileType::kDirectory:
      return 'd';
    case FileType::kCharDevice:
      return 'c';
    case FileType::kBlockDevice:
      return 'b';
    case FileType::kFifo:
      return 'p';
    case FileType::kSymlink:
      return 'l';
    default:
      return '-';
  }
}

// "drwxr-sr-t", as ls -l shows it.
std::string mode_text(const index::InodeInfo& inode) {
  std::string text(1, type_letter(inode.type));
  for (int shift = 6; shift >= 0; shift -= 3) {
    text += (inode.mode >> shift & 4) != 0 ? 'r' : '-';
    text += (inode.mode >> shift & 2) != 0 ? 'w' : '-';
    text += (inode.mode >> shift & 1) != 0 ? 'x' : '-';
  }
  const auto mark = [&](unsigned bit, std::size_t at, char with_x, char without) {
    if ((inode.mode & bit) != 0) text[at] = text[at] == 'x' ? with_x : without;
  };
  mark(04000, 3, 's', 'S');
  mark(02000, 6, 's', 'S');
  mark(01000, 9, 't', 'T');
  return text;
}

std::string time_text(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  if (::gmtime_r(&time, &parts) == nullptr) return fmt::format("@{}", seconds);
  char text[64];
  const auto length = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return {text, length};
}

class Lister {
 public:
  Lister(Context& context, const index::OpenedImage& image, const LsArguments& arguments)
      : context_(context), tree_(*image.index().tree), arguments_(arguments) {}

  // `path` as the user wrote it, without slashes at its ends.
  void list(index::Nid nid, const std::string& path) {
    if (tree_.inode(nid).type != FileType::kDirectory) return show(nid, path, path);
    // A stack of folders still to be listed: trees can be deeper than the program's own stack.
    std::vector<std::pair<index::Nid, std::string>> waiting{{nid, path}};
    while (!waiting.empty()) {
      context_.cancel.throw_if_cancelled();
      const auto [folder, folder_path] = waiting.back();
      waiting.pop_back();
      list_folder(folder, folder_path, waiting);
    }
  }

  nlohmann::json take_entries() { return std::move(entries_); }

 private:
  void list_folder(index::Nid folder, const std::string& path,
                   std::vector<std::pair<index::Nid, std::string>>& waiting) {
    const auto first_child = waiting.size();
    tree_.read_directory(folder, 0, [&](std::string_view name, index::Nid nid, FileType type, std::uint64_t) {
      if (name == "." || name == "..") return true;
      const auto child = path.empty() ? std::string(name) : path + "/" + std::string(name);
      show(nid, child, arguments_.recursive ? child : std::string(name));
      if (arguments_.recursive && type == FileType::kDirectory) waiting.emplace_back(nid, child);
      return true;
    });
    std::reverse(waiting.begin() + std::ptrdiff_t(first_child), waiting.end());  // so that folders come in order
  }

  void show(index::Nid nid, const std::string& path, const std::string& shown) {
    const auto inode = tree_.inode(nid);
    const auto target = inode.type == FileType::kSymlink ? tree_.symlink_target(nid) : std::string();
    if (context_.global.json) {
      entries_.push_back(to_json(inode, nid, path, target));
    } else if (arguments_.details) {
      const bool device = inode.type == FileType::kCharDevice || inode.type == FileType::kBlockDevice;
      const auto size =
          device ? fmt::format("{},{}", inode.device_major, inode.device_minor) : fmt::format("{}", inode.size);
      context_.out << fmt::format("{} {:>3} {:>6} {:>6} {:>12} {} {}{}\n", mode_text(inode), inode.nlink, inode.uid,
                                  inode.gid, size, time_text(inode.mtime_seconds), printable(shown),
                                  target.empty() ? "" : " -> " + printable(target));
    } else {
      context_.out << printable(shown) << '\n';
    }
  }

  static nlohmann::json to_json(const index::InodeInfo& inode, index::Nid nid, const std::string& path,
                                const std::string& target) {
    // JSON is text and names are bytes: a name that is not UTF-8 is given escaped, and says so.
    nlohmann::json entry{{"path", json_name(path)},
                         {"type", type_name(inode.type)},
                         {"mode", fmt::format("{:04o}", inode.mode)},
                         {"uid", inode.uid},
                         {"gid", inode.gid},
                         {"links", inode.nlink},
                         {"bytes", inode.type == FileType::kRegular ? inode.size : 0},
                         {"mtime", double(inode.mtime_seconds) + double(inode.mtime_nanoseconds) / 1e9},
                         {"inode", nid}};
    if (!is_utf8(path)) entry["escaped"] = true;
    if (inode.type == FileType::kSymlink) entry["target"] = json_name(target);
    if (inode.type == FileType::kCharDevice || inode.type == FileType::kBlockDevice)
      entry["device"] = fmt::format("{}:{}", inode.device_major, inode.device_minor);
    return entry;
  }

  Context& context_;
  const index::ErofsReader& tree_;
  const LsArguments& arguments_;
  nlohmann::json entries_ = nlohmann::json::array();
};

// As ls does: a link to a folder is the folder, any other link is shown itself.
index::Nid find_shown(const index::OpenedImage& image, const std::string& path) {
  const auto named = find_file(image, path, false);
  if (image.index().tree->inode(named).type != FileType::kSymlink) return named;
  const auto target = image.index().tree->resolve(path, true);
  return target && image.index().tree->inode(*target).type == FileType::kDirectory ? *target : named;
}

void run_ls(Context& context, const LsArguments& arguments) {
  const auto image = open_indexed(context, arguments.image);
  auto path = arguments.path;
  path.erase(0, path.find_first_not_of('/'));
  path.erase(path.find_last_not_of('/') + 1);
  Lister lister(context, image, arguments);
  lister.list(find_shown(image, arguments.path), path);
  if (context.global.json)
    context.print_json({{"image", image.digest().to_string()}, {"entries", lister.take_entries()}});
}

}  // namespace

void add_ls_command(CLI::App& app, Context& context) {
  const auto arguments = std::make_shared<LsArguments>();
  auto* command = app.add_subcommand("ls", "Lists files of an image through its index; no layer is read");
  command->add_option("IMAGE", arguments->image, "An indexed image")->required();
  command->add_option("PATH", arguments->path, "A folder or file inside the image; / if none is given");
  command->add_flag("-R,--recursive", arguments->recursive, "Folders and all below them");
  command->add_flag("-l,--long", arguments->details, "Mode, links, owner, size and time (UTC) as well");
  command->footer(
      "Examples:\n  varve ls -l oci:image:latest /usr/bin\n  varve ls -R --json oci:image:latest /usr/lib/python3");
  command->callback([&context, arguments] { run_ls(context, *arguments); });
}

}  // namespace varve::cli
