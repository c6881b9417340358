"""Paths: open(2) and openat2(2), access, symbolic links, the working folder."""
import ctypes, fcntl, os, struct

from asking import (AT_EACCESS, AT_FDCWD, AT_NO_FOLLOW, READ_ONLY_OR_DENIED, as_nobody, checked, in_child, libc, opened,
                    through_many_links)
from image import NOBODY, SOMEBODY


def open_(ask):
    for flags, must in (("O_RDONLY", "opened"), ("O_WRONLY", "EROFS"), ("O_RDWR", "EROFS"),
                        ("O_RDONLY|O_TRUNC", "EROFS"), ("O_WRONLY|O_APPEND", "EROFS"), ("O_RDONLY|O_CREAT", "opened"),
                        ("O_RDONLY|O_CREAT|O_EXCL", "EEXIST"), ("O_RDONLY|O_DIRECTORY", "ENOTDIR"),
                        ("O_RDONLY|O_NOFOLLOW", "opened"), ("O_RDONLY|O_NONBLOCK|O_SYNC|O_NOATIME", "opened"),
                        ("O_PATH", "opened")):
        ask(f"a file, {flags}", lambda: opened("f", flags_of(flags)), must)
    for flags, must in (("O_RDONLY", "opened"), ("O_WRONLY", "EISDIR"), ("O_RDWR", "EISDIR"),
                        ("O_RDONLY|O_CREAT", "EISDIR"), ("O_RDONLY|O_DIRECTORY", "opened"),
                        ("O_RDONLY|O_TRUNC", "EISDIR")):
        ask(f"a directory, {flags}", lambda: opened("d", flags_of(flags)), must)
    for flags, must in (("O_RDONLY", "ENOENT"), ("O_WRONLY|O_CREAT", "EROFS"), ("O_RDWR|O_CREAT|O_EXCL", "EROFS")):
        ask(f"no such name, {flags}", lambda: opened("absent", flags_of(flags)), must)
    ask("O_TMPFILE", lambda: opened("d", os.O_TMPFILE | os.O_RDWR), "EROFS")
    for path, must in (("", "ENOENT"), ("absent/x", "ENOENT"), ("f/x", "ENOTDIR"), ("f/", "ENOTDIR"),
                       ("f/..", "ENOTDIR"), ("d/", "opened"), ("d/.", "opened"), ("d/../f", "opened"),
                       ("././/d///file", "opened"), ("dangling", "ENOENT"), ("to-file/", "ENOTDIR"),
                       ("to-folder/file", "opened"), ("loop", "ELOOP"), ("itself", "ELOOP"), ("chain-40", "opened"),
                       ("chain-41", "ELOOP"), ("n" * 255, "opened"), ("m" * 255, "ENOENT"), ("n" * 256, "ENAMETOOLONG"),
                       ("d/" + "n" * 300, "ENAMETOOLONG"), ("n" * 1025, "ENAMETOOLONG"),
                       ("d/" + "./" * 2040 + "file", "opened"), ("./" * 2048 + "f", "ENAMETOOLONG"),
                       ("n" * 256 + "/x", "ENAMETOOLONG")):
        ask(f"path {path[:20]!r} of {len(path)}", lambda: through_many_links(lambda: opened(path)), must)
    ask("create a name of 256", lambda: opened("n" * 256, os.O_CREAT | os.O_WRONLY), "ENAMETOOLONG")
    ask("O_NOFOLLOW of a symlink", lambda: opened("to-file", os.O_RDONLY | os.O_NOFOLLOW), "ELOOP")
    ask("O_NOFOLLOW|O_DIRECTORY of a symlink to a folder",
        lambda: opened("to-folder", os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY), "ENOTDIR")
    ask("O_CREAT through a symlink to nothing yet", lambda: opened("to-absent", os.O_CREAT | os.O_WRONLY), "EROFS")
    ask("O_PATH of a symlink itself", lambda: opened("to-file", os.O_PATH | os.O_NOFOLLOW,
                                                     use=lambda fd: os.readlink("", dir_fd=fd)), "f")
    ask("O_PATH is for no read", lambda: opened("f", os.O_PATH, use=lambda fd: os.read(fd, 1)), "EBADF")
    ask("O_PATH, then open it for reading",
        lambda: opened("f", os.O_PATH, use=lambda fd: opened(f"/proc/self/fd/{fd}")), "opened")
    ask("O_PATH, then open it for writing",
        lambda: opened("f", os.O_PATH, use=lambda fd: opened(f"/proc/self/fd/{fd}", os.O_WRONLY)), "EROFS")
    ask("a device of a nodev mount", lambda: opened("dev/null"), "EACCES")
    ask("a fifo to read, nobody writes", lambda: opened("dev/fifo", os.O_RDONLY | os.O_NONBLOCK), "opened")
    ask("a fifo to write, nobody reads", lambda: opened("dev/fifo", os.O_WRONLY | os.O_NONBLOCK), "ENXIO")
    ask("a fifo for both: data is no data of the file system",
        lambda: opened("dev/fifo", os.O_RDWR, use=lambda fd: (os.write(fd, b"through"), os.read(fd, 9))),
        (7, b"through"))
    ask("a fifo for both, twice: one pipe",
        lambda: opened("dev/fifo", os.O_RDWR,
                       use=lambda fd: (os.write(fd, b"x"), opened("dev/fifo", os.O_RDONLY | os.O_NONBLOCK,
                                                                  use=lambda other: os.read(other, 1)))), (1, b"x"))
    ask("openat of a file's descriptor", lambda: opened("f", use=lambda fd: opened("x", dir_fd=fd)), "ENOTDIR")
    ask("openat of a folder's descriptor", lambda: opened("d", use=lambda fd: opened("file", dir_fd=fd)), "opened")
    ask("F_GETFL", lambda: opened("f", os.O_RDONLY | os.O_NONBLOCK,
                                  use=lambda fd: fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_ACCMODE | os.O_NONBLOCK)),
        os.O_NONBLOCK)


def flags_of(names):
    flags = 0
    for name in names.split("|"):
        flags |= getattr(os, name)
    return flags


def open_as_a_plain_user(ask):
    for path, must in (("f", "opened"), ("root-only", "EACCES"), ("group", "EACCES"), ("locked", "EACCES"),
                       ("locked/file", "EACCES"), ("locked/absent", "EACCES"), ("listed-only", "opened"),
                       ("listed-only/file", "EACCES"), ("passed-only", "EACCES"), ("passed-only/file", "opened"),
                       ("owned", "opened"), ("unreadable-by-owner", "EACCES"), ("acl/for-nobody", "opened"),
                       ("acl/masked", "EACCES"), ("acl/against-nobody", "EACCES"), ("to-locked", "EACCES")):
        ask(path, lambda: as_nobody(lambda: opened(path)), must)
    ask("group, as a member", lambda: in_child(lambda: opened("group"), NOBODY, [SOMEBODY]), "opened")
    ask("acl/for-group, as a member", lambda: in_child(lambda: opened("acl/for-group"), NOBODY, [SOMEBODY]), "opened")
    ask("acl/for-group, as none", lambda: as_nobody(lambda: opened("acl/for-group")), "EACCES")
    ask("to write his own", lambda: as_nobody(lambda: opened("owned", os.O_WRONLY)), "EROFS")
    ask("to write what is not his to write", lambda: as_nobody(lambda: opened("root-only", os.O_WRONLY)),
        READ_ONLY_OR_DENIED)
    ask("O_NOATIME of another's file", lambda: as_nobody(lambda: opened("f", os.O_RDONLY | os.O_NOATIME)), "EPERM")
    ask("O_NOATIME of his own", lambda: as_nobody(lambda: opened("owned", os.O_RDONLY | os.O_NOATIME)), "opened")
    ask("all names of a folder that can only be listed", lambda: as_nobody(lambda: os.listdir("listed-only")), ["file"])
    ask("stat in a folder that can only be listed", lambda: as_nobody(lambda: os.stat("listed-only/file").st_size),
        "EACCES")
    ask("chdir into locked", lambda: as_nobody(lambda: os.chdir("locked")), "EACCES")
    ask("a descriptor from before goes on",
        lambda: opened("root-only", use=lambda fd: as_nobody(lambda: os.pread(fd, 4, 0))), b"root")


def openat2(ask):
    no_xdev, no_magic, no_symlinks, beneath, in_root = 1, 2, 4, 8, 16

    def resolve(path, how, flags=os.O_RDONLY, at="d"):
        def in_folder(folder):
            words = ctypes.create_string_buffer(struct.pack("<QQQ", flags, 0, how), 24)
            number, path_at = ctypes.c_long(437), ctypes.c_char_p(path.encode())  # openat2 has no function in libc
            fd = checked(libc.syscall(number, ctypes.c_long(folder), path_at, words, ctypes.c_size_t(24)))
            os.close(fd)
            return "opened"
        return opened(at, os.O_PATH | os.O_DIRECTORY, use=in_folder)
    for path, how, at, must in (("file", beneath, "d", "opened"), ("../f", beneath, "d", "EXDEV"),
                                ("../f", 0, "d", "opened"), ("/f", beneath, "d", "EXDEV"),
                                ("to-file", no_symlinks, ".", "ELOOP"), ("to-file", 0, ".", "opened"),
                                ("to-folder/file", no_symlinks, ".", "ELOOP"), ("/file", in_root, "d", "opened"),
                                ("../../file", in_root, "d", "opened"), ("../outside", beneath, ".", "EXDEV"),
                                ("d/file", no_xdev, ".", "opened"), ("..", no_xdev, ".", "EXDEV"),
                                ("to-absolute", in_root, ".", "opened"), ("to-absolute", beneath, ".", "EXDEV"),
                                ("f", no_magic, ".", "opened")):
        ask(f"{path!r} from {at!r} with RESOLVE 0x{how:x}", lambda: resolve(path, how, at=at), must)


def access(ask):
    modes = {"F": os.F_OK, "R": os.R_OK, "W": os.W_OK, "X": os.X_OK, "RX": os.R_OK | os.X_OK}
    for path in ("f", "root-only", "locked", "locked/file", "exec/program", "owned", "group", "to-locked", "dev/null",
                 "dev/fifo", "acl/for-nobody", "acl/masked", "suid"):
        for name, mode in modes.items():
            must = READ_ONLY_OR_DENIED if name == "W" and not path.startswith("dev/") else None
            ask(f"{path}, {name}, root", lambda: checked_access(path, mode), must)
            ask(f"{path}, {name}, plain user", lambda: as_nobody(lambda: checked_access(path, mode)), must)
    ask("absent", lambda: checked_access("absent", os.F_OK), "ENOENT")
    ask("W of a file", lambda: checked_access("f", os.W_OK), "EROFS")
    ask("X of a file without, as root", lambda: checked_access("f", os.X_OK), "EACCES")
    ask("a symlink itself", lambda: checked(libc.faccessat(AT_FDCWD, b"dangling", os.F_OK, AT_NO_FOLLOW)),
        0)
    ask("a dangling symlink, followed", lambda: checked_access("dangling", os.F_OK), "ENOENT")
    ask("AT_EACCESS", lambda: checked(libc.faccessat(AT_FDCWD, b"root-only", os.R_OK, AT_EACCESS)), 0)
    ask("a mode of none", lambda: checked_access("f", 64), "EINVAL")


def checked_access(path, mode):
    return checked(libc.access(os.fsencode(path), mode))


def symlinks(ask):
    for path, must in (("to-file", "f"), ("to-folder", "d"), ("dangling", "nowhere/at all"), ("loop", "loop-back"),
                       ("to-absolute", "/d/file"), ("f", "EINVAL"), ("d", "EINVAL"), ("absent", "ENOENT")):
        ask(f"readlink of {path}", lambda: os.readlink(path), must)
    ask("a target of 4095 bytes", lambda: os.readlink("long-target"))
    ask("its length in stat", lambda: os.lstat("long-target").st_size, 4095)
    for length in (1, 3, 4096):
        buffer = ctypes.create_string_buffer(b"#" * 5000)
        ask(f"readlink into {length} bytes is cut, without an end",
            lambda: (checked(libc.readlink(b"dangling", buffer, ctypes.c_size_t(length))), buffer.raw[:16]))
    ask("readlink into no bytes",
        lambda: checked(libc.readlink(b"dangling", ctypes.create_string_buffer(1), ctypes.c_size_t(0))), "EINVAL")
    ask("of a target with a name in bytes", lambda: os.readlink(b"to-bytes"))
    ask("opened by a target of 4095 bytes", lambda: opened("long-target"), "ENOTDIR")
    ask("realpath through all", lambda: os.path.relpath(os.path.realpath("chain-40"), os.path.realpath(".")), "f")


def folders(ask):
    ask("getcwd", lambda: in_child(lambda: (os.chdir("d/sub"), os.getcwd().endswith("/d/sub"))[1]), True)
    ask("fchdir", lambda: in_child(lambda: opened("d", use=lambda fd: (os.fchdir(fd), os.stat("file").st_size)[1])))
    ask("chdir to a file", lambda: in_child(lambda: os.chdir("f")), "ENOTDIR")
    ask("chroot, root", lambda: in_child(lambda: (os.chroot("d"), os.listdir("/"))[1]), None)
