#include "fuse/daemon/kept_connections.h"

#include <algorithm>
#include <charconv>
#include <ranges>
#include <set>

#include "core/base/errors.h"
#include "core/base/random.h"
#include "fuse/daemon/mounted_image.h"
#include "fuse/mount/fuse_channel.h"

namespace varve::fuse {
namespace {

constexpr std::string_view kNamePrefix = "varve-";

// Of the files that the kernel has open through FUSE.
std::vector<Ino> opened_by(const KeptConnections::Files& files) {
  const auto names = blob_names_of(*files.image);
  std::vector<Ino> opened;
  for (std::size_t i = 0; i < std::min(names.size(), files.opened.size()); ++i)
    if (files.opened[i]) opened.push_back(BlobFs::ino_of(names[i]));
  return opened;
}

// Takes those out that nobody reads any more. `mounted` are the images' trees that are. One that was unmounted is read
// while somebody is in it: the kernel then has a file of it open once more than those have that are mounted. A layer
// that it shares with them is no reason to keep it.
std::vector<KeptConnections::Files> take_unused(KeptConnections::Connection& connection, std::set<Digest> mounted) {
  std::map<Ino, std::size_t> opens;
  std::vector<KeptConnections::Files> unmounted, used, unused;
  for (auto& files : std::views::reverse(connection.files)) {  // a tree that was mounted again: the last is
    if (mounted.erase(files.image->tree_name()) == 0) {
      unmounted.push_back(std::move(files));
      continue;
    }
    for (const auto ino : opened_by(files)) ++opens[ino];
    used.push_back(std::move(files));
  }
  for (auto& files : unmounted) {
    const auto opened = opened_by(files);
    const bool is_read =
        std::ranges::any_of(opened, [&](const Ino ino) { return connection.blobs->opens(ino) > opens[ino]; });
    (is_read ? used : unused).push_back(std::move(files));
  }
  std::ranges::reverse(used);
  connection.files = std::move(used);
  return unused;
}

}  // namespace

std::string KeptConnections::new_name() {
  const auto number = last_number_.with([](std::uint64_t& last) { return ++last; });
  return fmt::format("{}{:08}-{}", kNamePrefix, number, random_hex(4));
}

FuseKeeping KeptConnections::keeping(const std::string& name) {
  FuseKeeping keeping;
  keeping.ended = [self = shared_from_this(), name] { self->drop(name); };
  return keeping;
}

FuseKeeping KeptConnections::begin(const std::string& name, Connection connection) {
  auto result = keeping(name);
  result.keep = [self = shared_from_this(), name, connection = std::move(connection)](int fd, ByteView init_request,
                                                                                      bool by_helper) mutable {
    self->store_->keep(name, fd);
    connection.init_request = to_bytes(init_request);
    connection.by_helper = by_helper;
    self->connections_.with([&](auto& connections) { connections[name] = std::move(connection); });
  };
  return result;
}

FuseKeeping KeptConnections::take_over(const std::string& name, Connection connection, UniqueFd fd) {
  std::uint64_t number = 0;
  if (name.starts_with(kNamePrefix))
    std::from_chars(name.data() + kNamePrefix.size(), name.data() + name.size(), number);
  last_number_.with([&](std::uint64_t& last) { last = std::max(last, number); });
  auto result = keeping(name);
  result.earlier = std::make_shared<FuseKeeping::Earlier>(FuseKeeping::Earlier{
      .fd = std::move(fd), .init_request = connection.init_request, .by_helper = connection.by_helper});
  connections_.with([&](auto& connections) { connections[name] = std::move(connection); });
  return result;
}

void KeptConnections::add_files(const std::string& name, Files files) {
  connections_.with([&](auto& connections) {
    if (const auto found = connections.find(name); found != connections.end())
      found->second.files.push_back(std::move(files));
  });
}

void KeptConnections::drop(const std::string& name) noexcept {
  const auto dropped =
      connections_.with([&](auto& connections) { return connections.extract(name); });  // freed outside the lock
  store_->forget(name);
}

void KeptConnections::write_to(Handover& handover) {
  std::map<Digest, std::shared_ptr<ServedImage>> images;
  std::vector<Files> unused;  // freed outside the lock
  connections_.with([&](auto& connections) {
    for (auto& [name, connection] : connections) {
      HandoverConnection entry{.name = name,
                               .dir = connection.dir,
                               .init_request = connection.init_request,
                               .by_helper = connection.by_helper,
                               .tree = {},
                               .files = {}};
      if (connection.tree) {
        entry.tree = connection.tree->tree_name();
        images[*entry.tree] = connection.tree;
      }
      std::set<Digest> mounted;
      for (const auto& mount : handover.mounts)
        if (mount.connection == name) mounted.insert(mount.index);
      std::ranges::move(take_unused(connection, std::move(mounted)), std::back_inserter(unused));
      for (const auto& files : connection.files) {
        entry.files.push_back({.index = files.image->tree_name(), .opened = files.opened});
        images[files.image->tree_name()] = files.image;
      }
      handover.connections.push_back(std::move(entry));
    }
  });
  for (const auto& [digest, image] : images)
    handover.images.push_back(
        {.digest = image->digest(),
         .spec = image->spec(),
         .index = image->index_digest(),
         .layers = image->tree_layers(),
         .tree = image->tree_layers() == 0 ? std::nullopt : std::optional(image->index().blobs.tree.digest)});
}

}  // namespace varve::fuse
