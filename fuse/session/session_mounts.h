#pragma once
// The mounts of a session that this program makes itself: its writable overlay, and for the direct runtime all others.
#include <filesystem>
#include <string>

#include "core/base/files/unique_fd.h"
#include "fuse/session/bundle.h"
#include "fuse/session/mount_copy.h"
#include "fuse/session/rootfs.h"
#include "fuse/session/session_store.h"

namespace varve::fuse {

// All of these change the calling process's mount namespace, which must be its own.

// From now on mounts made here stay here, while the machine's later ones (and their ends) still arrive.
void keep_mounts_private();
// A /proc of the calling process's PID namespace.
void mount_own_proc();

// The session's writable layer over `lower`, mounted on folder.merged(). Tries what the kernel offers in this
// namespace: overlayfs, with user xattrs where trusted ones need privilege, then fuse-overlayfs(1). Throws Unsupported
// saying what each answered.
struct OverlayOptions {
  bool in_user_namespace = false;
  bool is_new = true;            // false: the session has run before, and its root is what it made of it
  bool keep_after_crash = true;  // false: the layer goes with the session, so it need not reach the disk
};
void mount_overlay(const std::filesystem::path& lower, const SessionFolder& folder, const OverlayOptions& options);

// The option string of overlayfs for these folders: names with characters that it gives a meaning are escaped.
std::string overlay_options(const std::string& lower, const std::string& upper, const std::string& work);

// A bind of the spec on a tree that no session runs in yet; its destination is there and free of symlinks.
void mount_now(const SpecMount& mount, const Rootfs& root);

// Makes the spec's root the root of this process and mounts everything the spec says in it, in a mount namespace of its
// own. Every place is looked up inside that root and held by a descriptor, whatever links the image and the volumes
// have. Only the device files of the spec and the usual ones work in it. Throws what keeps a mount or a mask from being
// there.
void enter_session_root(const SessionSpec& spec);
// The terminal as the session's /dev/console, where programs look for its name. Call in the session's root.
void add_console(const std::string& terminal);

}  // namespace varve::fuse
