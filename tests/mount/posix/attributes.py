"""stat, statx, extended attributes, statvfs."""
import ctypes, os, stat, struct, time

from asking import (AT_EMPTY_PATH, AT_FDCWD, AT_NO_FOLLOW, as_nobody, checked, fields_of, libc, opened,
                    through_many_links, whole)


def stat_(ask):
    paths = ("f", "empty", "page", "large", "sparse", "hard/one", "d", "d/sub", "locked", "root-only", "group", "owned",
             "suid", "sgid-folder", "sticky", "to-file", "dangling", "loop", "long-target", "dev/null", "dev/block",
             "dev/fifo", "exec/program", "times/ns", "times/before-1970", "times/after-2038", "times/epoch", "many",
             "n" * 255, ".")
    for path in paths:
        ask(f"lstat of {path[:20]}", lambda: fields_of(os.lstat(path)))
        ask(f"statx of {path[:20]} says the same", lambda: statx_fields(path), fields_of(os.lstat(path)))
        ask(f"times of {path[:20]}, all there", lambda: times_are_sane(os.lstat(path)), True)
    for path in ("to-file", "to-folder", "chain-40"):
        ask(f"stat of {path} follows", lambda: fields_of(through_many_links(lambda: os.stat(path))))
    ask("names of one file have one number",
        lambda: len({os.stat(p).st_ino for p in ("hard/one", "hard/two", "three")}), 1)
    ask("other files have numbers of their own", lambda: len({os.lstat(p).st_ino for p in paths}), len(paths))
    ask("one device for all", lambda: len({os.lstat(p).st_dev for p in paths}), 1)
    ask("the root is no other name of something inside",
        lambda: os.stat(".").st_ino not in {os.lstat(p).st_ino for p in paths if p != "."}, True)
    ask("links of folders are 2 and their folders, or 1", lambda: [os.stat(p).st_nlink for p in ("d", "d/sub", "many")])
    ask("blocks of an empty file", lambda: os.stat("empty").st_blocks, 0)
    ask("blocks hold the content",
        lambda: all(os.stat(p).st_blocks * 512 >= os.stat(p).st_size for p in ("f", "page", "large")), True)
    ask("blocks of a file with holes are less than its size",
        lambda: os.stat("sparse").st_blocks * 512 < os.stat("sparse").st_size)
    ask("block size is sane", lambda: os.stat("f").st_blksize)
    ask("fstat is stat", lambda: opened("f", use=lambda fd: os.fstat(fd) == os.stat("f")), True)
    ask("fstatat by a folder", lambda: opened("d", use=lambda fd: os.stat("file", dir_fd=fd).st_size))
    ask("statx AT_EMPTY_PATH", lambda: opened("f", os.O_PATH, use=lambda fd: statx_fields("", fd, AT_EMPTY_PATH)
                                              == fields_of(os.stat("f"))), True)
    ask("statx marks the mount's root", lambda: bool(struct.unpack_from("<Q", statx("."), 8)[0] & 0x2000), True)
    ask("reading changes no time", reading_changes_no_time, True)
    for path, must in (("absent", "ENOENT"), ("f/x", "ENOTDIR"), ("", "ENOENT"), ("loop", "ELOOP"),
                       ("n" * 256, "ENAMETOOLONG"), ("to-file/", "ENOTDIR")):
        ask(f"stat of {path[:20]!r}", lambda: os.stat(path).st_size, must)


def reading_changes_no_time():
    before = os.stat("f"), os.stat("d")
    whole("f"), os.listdir("d")
    return [s.st_atime_ns for s in before] == [os.stat(p).st_atime_ns for p in ("f", "d")]


def times_are_sane(info):
    """Nothing of an image was changed after it was made, and nobody's clock is asked."""
    return info.st_ctime_ns >= info.st_mtime_ns or info.st_mtime > time.time() - 1


def statx(path, at=AT_FDCWD, flags=AT_NO_FOLLOW):
    buffer = ctypes.create_string_buffer(256)
    checked(libc.statx(at, os.fsencode(path), flags, 0x7FF, buffer))
    return buffer.raw


def statx_fields(path, at=AT_FDCWD, flags=AT_NO_FOLLOW):
    raw = statx(path, at, flags)
    mask = struct.unpack_from("<I", raw)[0]
    if (mask | 0x20) & 0x7FF != 0x7FF:  # who keeps no access times says that the one he gives is none
        return f"mask 0x{mask:x}"
    links, uid, gid, mode = struct.unpack_from("<IIIH", raw, 16)
    size = struct.unpack_from("<Q", raw, 40)[0]
    seconds, nanoseconds = struct.unpack_from("<qI", raw, 112)
    major, minor = struct.unpack_from("<II", raw, 128)
    if stat.S_ISDIR(mode):
        links = size = 0
    return [oct(mode), links, uid, gid, size, major, minor, seconds * 1_000_000_000 + nanoseconds]


def xattrs(ask):
    for path in ("x", "x-folder", "capable", "acl/for-nobody", "acl/folder", "f", "d", "to-x", "dev/fifo"):
        ask(f"names of {path}", lambda: sorted(os.listxattr(path)))
        ask(f"names of {path}, plain user", lambda: as_nobody(lambda: sorted(os.listxattr(path))))
        ask(f"values of {path}", lambda: [os.getxattr(path, name) for name in sorted(os.listxattr(path))])
    ask("a symlink has none", lambda: os.listxattr("to-x", follow_symlinks=False), [])
    ask("one that is not there", lambda: os.getxattr("x", "user.absent"), "ENODATA")
    ask("one of a file without any", lambda: os.getxattr("f", "user.absent"), "ENODATA")
    ask("of a prefix without a handler", lambda: os.getxattr("x", "unknown.name"), "ENOTSUP")
    ask("without a prefix", lambda: os.getxattr("x", "name"), "ENOTSUP")
    ask("only a prefix", lambda: os.getxattr("x", "user."), "EINVAL")
    ask("an empty name", lambda: os.getxattr("x", ""), "ERANGE")
    ask("a name of 256", lambda: os.getxattr("x", "user." + "n" * 251), "ERANGE")
    ask("a name of 255", lambda: os.getxattr("x", "user." + "n" * 250), "ENODATA")
    ask("user.* of a symlink", lambda: os.getxattr("to-file", "user.x", follow_symlinks=False), "ENODATA")
    ask("user.* of a fifo", lambda: os.getxattr("dev/fifo", "user.x"), "ENODATA")
    ask("trusted.* by a plain user", lambda: as_nobody(lambda: os.getxattr("x", "trusted.thing")), "ENODATA")
    ask("user.* of an unreadable file, plain user", lambda: as_nobody(lambda: os.getxattr("root-only", "user.secret")),
        "EACCES")
    ask("security.capability by a plain user", lambda: as_nobody(lambda: os.getxattr("capable", "security.capability")))
    for size in (0, 1, 1499, 1500, 65536):
        buffer = ctypes.create_string_buffer(65536)
        ask(f"a value of 1500 into {size}",
            lambda: checked(libc.lgetxattr(b"x", b"user.long", buffer, ctypes.c_size_t(size))),
            "ERANGE" if 0 < size < 1500 else 1500)
    buffer = ctypes.create_string_buffer(65536)
    ask("the list's size", lambda: checked(libc.llistxattr(b"x", None, ctypes.c_size_t(0))))
    ask("the list into too little", lambda: checked(libc.llistxattr(b"x", buffer, ctypes.c_size_t(5))), "ERANGE")
    ask("an empty value", lambda: os.getxattr("x", "user.empty"), b"")
    ask("by descriptor", lambda: opened("x", use=lambda fd: os.getxattr(fd, "user.binary")))
    ask("by O_PATH", lambda: opened("x", os.O_PATH, use=lambda fd: os.getxattr(fd, "user.binary")), "EBADF")


def statvfs(ask):
    def flags(info):
        return [name for name in ("ST_RDONLY", "ST_NOSUID", "ST_NODEV", "ST_NOEXEC") if info.f_flag & getattr(os, name)]
    ask("flags", lambda: flags(os.statvfs(".")), ["ST_RDONLY", "ST_NOSUID", "ST_NODEV"])
    ask("the longest name", lambda: os.statvfs("d/file").f_namemax, 255)
    ask("pathconf NAME_MAX", lambda: os.pathconf("d", "PC_NAME_MAX"), 255)
    ask("pathconf LINK_MAX is enough for what is there", lambda: os.pathconf("d", "PC_LINK_MAX") >= 3, True)
    ask("sizes are sane", lambda: sane_sizes(os.statvfs(".")), True)
    ask("by descriptor the same", lambda: opened("f", use=lambda fd: os.fstatvfs(fd)[:3] == os.statvfs(".")[:3]), True)


def sane_sizes(info):
    free = info.f_blocks >= info.f_bfree >= info.f_bavail >= 0 and info.f_files >= info.f_ffree
    return free and info.f_bsize >= 512 and info.f_frsize >= 512
