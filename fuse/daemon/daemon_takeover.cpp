// How a daemon goes on with what another one has mounted, and the record that it keeps for the next one.
#include <unistd.h>

#include <algorithm>

#include "core/base/errors.h"
#include "core/base/files/file.h"
#include "core/base/files/scratch_file.h"
#include "core/base/journal.h"
#include "core/base/log.h"
#include "fuse/daemon/daemon.h"
#include "fuse/daemon/kept_images.h"
#include "fuse/daemon/stale_mounts.h"
#include "fuse/mount/fuse_channel.h"
#include "fuse/mount/fuse_mount.h"

namespace varve::fuse {
namespace {

namespace fs = std::filesystem;

// Absent if there is none, or none that can be read: what was mounted is then cleaned up.
std::optional<Handover> read_record(const fs::path& path) {
  try {
    const auto text = read_file_if_there(path, kMaxHandoverBytes);
    if (text) return decode_handover(as_text(*text));
  } catch (const std::exception& error) {
    log::warn("{}: {}", path.string(), error.what());
  }
  return std::nullopt;
}

// Which file system is on top at the folders where a daemon of this root has mounted something.
std::map<fs::path, std::string> our_devices(const DaemonPaths& paths) {
  const auto table = read_mount_table();
  const auto ours = find_stale_mounts(table, paths, {});
  std::map<fs::path, std::string> devices;
  for (const auto& entry : table) {
    if (std::find(ours.begin(), ours.end(), entry.dir) != ours.end()) devices[entry.dir] = entry.device;
  }
  return devices;
}

}  // namespace

struct Daemon::TakeOver {
  Handover record;
  std::map<std::string, UniqueFd> descriptors;
  std::map<fs::path, std::string> devices;
  std::map<Digest, std::shared_ptr<ServedImage>> images;  // by the manifest of their index
  std::set<fs::path> served;                              // our own mounts that go on

  const HandoverMount* mount_of(const HandoverConnection& connection, const Digest& index) const {
    const auto found = std::find_if(record.mounts.begin(), record.mounts.end(), [&](const auto& mount) {
      return mount.connection == connection.name && mount.index == index && devices.contains(mount.dir);
    });
    return found == record.mounts.end() ? nullptr : &*found;
  }
};

// What the daemon before was killed before it could. A name that means another image by now is left to that.
void Daemon::list_again(const ImageSpec& spec, const ServedImage& image) {
  index::list_this_index(*local_, image.index());
  const auto is_it = [&](const OpenedImage& opened) {
    return opened.current && opened.image == image.digest() && opened.reference == spec.reference &&
           opened.platform == spec.platform;
  };
  if (std::ranges::any_of(opened_.list(), is_it)) keep_image(*local_, spec, image.image());
}

void Daemon::take_over() {
  TakeOver work{.record = {},
                .descriptors = options_.descriptors->take(),
                .devices = our_devices(options_.paths),
                .images = {},
                .served = {}};
  if (!work.descriptors.empty()) {
    if (auto record = read_record(options_.paths.handover_file())) work.record = std::move(*record);
  }
  for (auto& image : work.record.images) image.spec.registry.credential_providers = options_.credential_providers;
  for (const auto& image : work.record.images) {
    const log::Field about_image("IMAGE", image.spec.reference);
    try {
      const auto spec = watched(image.spec);
      auto whole =
          ServedImage::reopen(spec, open_kept_image(local_, spec, image.digest), image.index, local_, *streams_);
      list_again(spec, *whole);
      auto& served = work.images[name_of_tree(image.index, image.layers)];
      if (image.layers != 0) {
        auto tree = ServedImage::of_first_layers(*whole, image.layers, local_, *streams_);
        if (tree->index().blobs.tree.digest != image.tree)
          fail<CorruptData>("the tree of its first {} layers is not the one that is mounted", image.layers);
        served = std::move(tree);
        continue;
      }
      served = std::move(whole);
      proofs_.watch(served);
      contents_.learn_later(served, ContentSources::By::kSeeds);
    } catch (const std::exception& error) {
      log::error("{} cannot be served any more: {}", image.digest.to_string(), error.what());
    }
  }
  for (const auto& connection : work.record.connections) {
    if (!work.descriptors.contains(connection.name)) continue;
    try {
      if (connection.tree)
        take_over_tree(work, connection);
      else
        take_over_blobs(work, connection);
    } catch (const std::exception& error) {
      log::error("{} is given up: {}", connection.dir.string(), error.what());
      kept_->drop(connection.name);
    }
    work.descriptors.erase(connection.name);
  }
  for (const auto& [name, fd] : work.descriptors) kept_->drop(name);  // of a mount that was never finished
  work.descriptors.clear();
  take_over_names(work);
  take_over_leases(work);
  unmount_stale(options_.paths, work.served);
  take_over_holds(work);
  remove_free_folders();
  drop_unused_mounts();
  std::vector<fs::path> filled;
  images_.for_each([&](const ImageMount& mount) {
    if (mount.fill) filled.push_back(mount.dir);
  });
  for (const auto& mount : filled) start_fill(*images_.find(mount));
  write_record();
}

void Daemon::adopt(std::unique_ptr<MountedImage> mounted, const HandoverMount& record) {
  auto mount = std::make_unique<ImageMount>();
  mount->dir = record.dir;
  mount->mounted = std::move(mounted);
  mount->entry = find_own_mount(read_mount_table(), options_.paths, record.dir);
  mount->why = record.why;
  mount->shared = record.shared;
  mount->fill = record.fill;
  mount->missing_at_first = record.missing_at_first;
  if (record.idle_since) mount->idle_since = std::min(*record.idle_since, std::chrono::steady_clock::now());
  if (record.dir.parent_path() == options_.paths.images_dir()) {
    mount->folders = {record.dir};
    if (!record.shared)
      mount->folders.push_back(record.dir.string() + "-blobs");  // it was recorded; nobody records it now
  }
  const auto& image = mount->mounted->image();
  const auto digest = image.digest().to_string();
  const log::Field about_digest("IMAGE", digest), about_image("IMAGE", image.reference());
  log::info("goes on with {} ({}) in {} mode at {}", digest, image.reference(), to_string(record.mode),
            record.dir.string());
  mount->mounted->image().run_ahead_of_loaders();
  mount->mounted->image().use_packs();  // its sessions may have read the triggers before us
  mount->mounted->bring_start_pages();
  images_.add(std::move(mount));
}

void Daemon::take_over_tree(TakeOver& work, const HandoverConnection& connection) {
  const auto image = work.images.find(*connection.tree);
  if (image == work.images.end())
    fail<NotFound>("the image of index {} cannot be opened", connection.tree->to_string());
  const auto* mount = work.mount_of(connection, *connection.tree);
  KeptConnections::Connection kept{.dir = connection.dir,
                                   .init_request = connection.init_request,
                                   .by_helper = connection.by_helper,
                                   .tree = image->second,
                                   .blobs = nullptr,
                                   .files = {}};
  auto mounted =
      MountedImage::taken_over(connection.name, std::move(kept), std::move(work.descriptors[connection.name]),
                               mount != nullptr, settings_, channels_, *kept_);
  if (mount == nullptr) return;  // detached: its channel lives until the last process has left it
  adopt(std::move(mounted), *mount);
  work.served.insert(mount->dir);
}

void Daemon::take_over_blobs(TakeOver& work, const HandoverConnection& connection) {
  KeptConnections::Connection kept{.dir = connection.dir,
                                   .init_request = connection.init_request,
                                   .by_helper = connection.by_helper,
                                   .tree = nullptr,
                                   .blobs = nullptr,
                                   .files = {}};
  std::vector<const HandoverMount*> mounts;
  for (const auto& files : connection.files) {
    const auto image = work.images.find(files.index);
    if (image == work.images.end()) continue;
    kept.files.push_back({.image = image->second, .opened = files.opened});
    const auto* mount = work.mount_of(connection, files.index);
    if (mount != nullptr && std::find(mounts.begin(), mounts.end(), mount) == mounts.end()) mounts.push_back(mount);
  }
  // Of several connections only the last can be at the folder; those before it are detached and serve what is still
  // open.
  const auto later =
      std::any_of(work.record.connections.begin(), work.record.connections.end(), [&](const auto& other) {
        return !other.tree && other.dir == connection.dir && other.name > connection.name &&
               work.descriptors.contains(other.name);
      });
  const bool mounted = !later && work.devices.contains(connection.dir);
  auto blobs =
      std::make_shared<BlobMount>(connection.name, std::move(kept), std::move(work.descriptors[connection.name]),
                                  mounted, settings_, channels_, *kept_);
  for (const auto* mount : mounts) {
    adopt(MountedImage::taken_over(work.images.at(mount->index), mount->dir, blobs), *mount);
    work.served.insert(mount->dir);
  }
  if (mounts.empty() || !mounted) return;
  work.served.insert(connection.dir);
  if (connection.dir == options_.paths.blobs_dir()) blobs_ = blobs;
}

void Daemon::take_over_names(TakeOver& work) {
  for (const auto& name : work.record.names) {
    if (images_.find(name.mount) == nullptr || !work.devices.contains(name.dir) ||
        work.devices.at(name.dir) != work.devices.at(name.mount))
      continue;  // stale, or unmounted by hand
    if (!name.settled) {
      // Who asked for it was told that it failed.
      try {
        unmount_dir(name.dir, true, !may_mount());
      } catch (const std::exception& error) {
        log::warn("{}", error.what());
      }
      continue;
    }
    images_.set_name(name);
  }
}

// A tree that somebody has unmounted since is mounted again.
void Daemon::take_over_holds(TakeOver& work) {
  for (const auto& hold : work.record.holds) leases_.hold(hold.name, hold.mount);
  for (const auto& hold : work.record.holds) {
    if (images_.find(hold.mount) != nullptr) continue;
    const auto mount = std::ranges::find(work.record.mounts, hold.mount, &HandoverMount::dir);
    const auto image = mount == work.record.mounts.end() ? work.images.end() : work.images.find(mount->index);
    if (image != work.images.end()) {
      mount_held_again(hold.mount, image->second, mount->mode, mount->why);
    } else if (leases_.forget_hold(hold.name)) {
      log::error("{}: cannot be served any more; {:?} holds nothing now", hold.mount.string(), hold.name);
    }
  }
}

void Daemon::take_over_leases(TakeOver& work) {
  std::erase_if(work.record.leases, [this](const auto& lease) { return images_.find(lease.mount) == nullptr; });
  leases_.take_over(work.record.leases);
}

// A daemon that died may have had nothing mounted at them yet, or any more. One with a mount is busy.
void Daemon::remove_free_folders() {
  for (const auto& entry : fs::directory_iterator(options_.paths.images_dir())) {
    std::error_code busy;
    if (images_.find(entry.path()) == nullptr) fs::remove(entry.path(), busy);
  }
}

// What is not to be kept goes with the next look at what nobody uses: the kernel may wait, as long as a source is
// silent, for reads ahead that this daemon answers, and its clients must not.
void Daemon::drop_unused_mounts() {
  std::vector<fs::path> mounts;
  images_.for_each([&](const ImageMount& mount) { mounts.push_back(mount.dir); });
  const Change change(*this);
  for (const auto& mount : mounts) end_use(mount, Afterwards::kUnmountSoon);
}

// It is worth nothing without the descriptors, and those do not outlive the machine.
void Daemon::write_record() noexcept {
  try {
    Handover record;
    images_.write_to(record);
    leases_.write_to(record);
    kept_->write_to(record);
    write_scratch_file(options_.paths.handover_file(), as_bytes(encode_handover(record)), 0600);
  } catch (const std::exception& error) {
    log::error("what a next daemon must know cannot be written down: {}", error.what());
  }
}

void Daemon::check_successor(HandoverFormats formats) const {
  if (options_.descriptors->kind() == "none")
    fail<Unsupported>(
        "nothing keeps the mounts of this daemon (its log says why); end it with `varve daemon --stop` and start the "
        "other one");
  if (kHandoverFormat < formats.oldest || kHandoverFormat > formats.newest)
    fail<Unsupported>(
        "this daemon ({}) leaves a record of format {}, and the other program reads {} to {}: it could not go on with "
        "the mounts; let sessions end, then `varve daemon --stop`",
        options_.version, kHandoverFormat, formats.oldest, formats.newest);
}

void Daemon::check_leave(HandoverFormats formats) const {
  check_successor(formats);
  if (options_.descriptors->kind() != "systemd")
    fail<Unsupported>(
        "no service manager keeps the mounts of this daemon while none runs; `varve daemon --replace` puts another "
        "program in its place");
}

std::unique_lock<std::mutex> Daemon::hand_over() {
  local_->wait_until_listed();  // what comes after that the next one lists
  auto guard = when_nothing_ends();
  refuse_if_stopping();
  write_record();
  // A process of theirs that outlives this program would be nobody's.
  images_.for_each([](const ImageMount& mount) { mount.mounted->end_start_pages(); });
  options_.descriptors->expect_successor();
  return guard;
}

}  // namespace varve::fuse
