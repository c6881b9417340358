"""What must not be done: every call that would change the tree."""
import ctypes, os, socket

from asking import AT_FDCWD, READ_ONLY_OR_DENIED, as_nobody, checked, fields_of, libc, opened, whole

NO_REPLACE, EXCHANGE = 1, 2  # renameat2


def writes(ask):
    """With the first error that POSIX allows; existing names where the kernel looks at the name first."""
    def fd_of(path, call):
        return lambda: opened(path, use=call)
    for who, run in (("root", lambda call: call()), ("plain user", as_nobody)):
        calls = (("truncate", lambda: os.truncate("f", 0), "EROFS"),
                 ("truncate longer", lambda: os.truncate("f", 1 << 20), "EROFS"),
                 ("truncate of a directory", lambda: os.truncate("d", 0), "EISDIR"),
                 ("unlink", lambda: os.unlink("f"), "EROFS"), ("unlink of a directory", lambda: os.unlink("d"), None),
                 ("unlink of nothing", lambda: os.unlink("absent"), None),
                 ("rmdir", lambda: os.rmdir("d/sub"), "EROFS"), ("rmdir of a file", lambda: os.rmdir("f"), None),
                 ("rename", lambda: os.rename("f", "g"), "EROFS"),
                 ("rename over", lambda: os.rename("f", "page"), "EROFS"),
                 ("rename to another file system", lambda: os.rename("f", "/tmp/varve-must-not-appear"), "EXDEV"),
                 ("rename of a folder", lambda: os.rename("d", "e"), "EROFS"),
                 ("renameat2 EXCHANGE", lambda: renamed(EXCHANGE), "EROFS"),
                 ("renameat2 NOREPLACE", lambda: renamed(NO_REPLACE), None),
                 ("link", lambda: os.link("f", "g"), "EROFS"),
                 ("link over a name", lambda: os.link("f", "page"), "EEXIST"),
                 ("symlink", lambda: os.symlink("f", "g"), "EROFS"),
                 ("symlink over a name", lambda: os.symlink("f", "page"), "EEXIST"),
                 ("mkdir", lambda: os.mkdir("g"), "EROFS"), ("mkdir over a name", lambda: os.mkdir("d"), "EEXIST"),
                 ("mkdir of a name of 256", lambda: os.mkdir("n" * 256), "ENAMETOOLONG"),
                 ("mkdir below nothing", lambda: os.mkdir("absent/g"), "ENOENT"),
                 ("mkfifo", lambda: os.mkfifo("g"), "EROFS"),
                 ("mknod of a file", lambda: os.mknod("g", 0o100644), "EROFS"),
                 ("bind of a socket", bound_socket, "EROFS"), ("chmod", lambda: os.chmod("f", 0o777), "EROFS"),
                 ("chmod of nothing", lambda: os.chmod("absent", 0o777), "ENOENT"),
                 ("chown", lambda: os.chown("f", 1, 1), "EROFS"),
                 ("lchown", lambda: os.lchown("to-file", 1, 1), "EROFS"),
                 ("chown to nobody in particular", lambda: os.chown("f", -1, -1), "EROFS"),
                 ("utime", lambda: os.utime("f"), "EROFS"),
                 ("utime of a symlink", lambda: os.utime("to-file", (0, 0), follow_symlinks=False), "EROFS"),
                 ("setxattr", lambda: os.setxattr("x", "user.new", b"v"), "EROFS"),
                 ("removexattr", lambda: os.removexattr("x", "user.binary"), "EROFS"),
                 ("setxattr of a symlink",
                  lambda: os.setxattr("to-file", "trusted.new", b"v", follow_symlinks=False), "EROFS"),
                 ("fchmod", fd_of("f", lambda fd: os.fchmod(fd, 0o777)), "EROFS"),
                 ("fchown", fd_of("f", lambda fd: os.fchown(fd, 1, 1)), "EROFS"),
                 ("futimens", fd_of("f", os.utime), "EROFS"),
                 ("fsetxattr", fd_of("x", lambda fd: os.setxattr(fd, "user.new", b"v")), "EROFS"),
                 ("ftruncate", fd_of("f", lambda fd: os.ftruncate(fd, 0)), "EINVAL"),
                 ("posix_fallocate", fd_of("f", lambda fd: os.posix_fallocate(fd, 0, 10)), "EBADF"),
                 ("fallocate, punching", fd_of("f", punched), "EBADF"))
        for name, call, must in calls:
            both = who == "plain user" and must == "EROFS"  # not his to write, and nobody's
            ask(f"{name}, {who}", lambda: run(call), READ_ONLY_OR_DENIED if both else must)
    ask("mknod of a device, root", lambda: os.mknod("g", 0o020644, os.makedev(1, 3)), "EROFS")
    ask("all is as it was", lambda: (sorted(os.listdir(".")), whole("f"), fields_of(os.stat("f"))))
    ask("nothing was left elsewhere", lambda: os.path.lexists("/tmp/varve-must-not-appear"), False)


def renamed(flags):
    return checked(libc.renameat2(AT_FDCWD, b"f", AT_FDCWD, b"page", flags))


def punched(fd):
    return checked(libc.fallocate(fd, 3, ctypes.c_int64(0), ctypes.c_int64(4096)))


def bound_socket():
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("socket")
