"""What a tree looks like from outside: every name with its attributes, and how two trees differ."""
import errno, hashlib, os, stat
from dataclasses import dataclass, field, fields


@dataclass
class Entry:
    type: str = ""
    mode: int = 0
    uid: int = 0
    gid: int = 0
    mtime_ns: int = 0
    size: int = 0
    rdev: tuple = (0, 0)
    target: bytes = b""
    xattrs: dict = field(default_factory=dict)
    sha256: str = ""
    links: frozenset = frozenset()  # all names of the same inode, this one included


TYPES = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "symlink", stat.S_IFCHR: "char", stat.S_IFBLK: "block", stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket"}


def digest_of(descriptor):
    with open(descriptor, "rb", closefd=True) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def xattrs_of(path):
    """Relative to the current folder: the calls for extended attributes have no form that takes a folder's descriptor."""
    try:
        names = os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        # A tree without any extended attribute may say that it has none to list: the kernel then never asks again.
        if error.errno != errno.ENOTSUP:
            raise
        return {}
    return {name: os.getxattr(path, name, follow_symlinks=False) for name in names if name != "security.selinux"}


def scan(root, contents=True):
    """{path as bytes: Entry}, the root being b"." . Walks by descriptor, so paths longer than PATH_MAX are no obstacle."""
    entries, inodes = {}, {}
    home = os.open(".", os.O_RDONLY | os.O_DIRECTORY)

    def visit(prefix, name, folder_fd):
        info = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        kind = TYPES[stat.S_IFMT(info.st_mode)]
        path = prefix + name if prefix != b"./" else name
        entry = Entry(type=kind, mode=stat.S_IMODE(info.st_mode), uid=info.st_uid, gid=info.st_gid, mtime_ns=info.st_mtime_ns)
        entries[path] = entry
        entry.xattrs = xattrs_of(name)
        if kind == "file":
            entry.size = info.st_size
            if contents:
                entry.sha256 = digest_of(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder_fd))
        elif kind == "symlink":
            entry.target = os.readlink(name, dir_fd=folder_fd)
        elif kind in ("char", "block"):
            entry.rdev = (os.major(info.st_rdev), os.minor(info.st_rdev))
        if kind != "dir":
            inodes.setdefault((info.st_dev, info.st_ino), []).append(path)
            if info.st_nlink < len(inodes[(info.st_dev, info.st_ino)]):
                raise AssertionError(f"{path!r}: {info.st_nlink} links, but seen under {inodes[(info.st_dev, info.st_ino)]}")
        return kind

    def walk(prefix, folder_fd):
        os.fchdir(folder_fd)
        names = sorted(os.fsencode(n) for n in os.listdir(folder_fd))
        folders = [name for name in names if visit(prefix, name, folder_fd) == "dir"]
        for name in folders:
            child = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder_fd)
            try:
                walk((prefix + name if prefix != b"./" else name) + b"/", child)
                os.fchdir(folder_fd)
            finally:
                os.close(child)

    top = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fchdir(top)
        visit(b"", b".", top)
        walk(b"./", top)
    finally:
        os.fchdir(home)
        os.close(home)
        os.close(top)
    for names in inodes.values():
        group = frozenset(names)
        for name in names:
            entries[name].links = group
    return entries


def differences(expected, found, ignore=()):
    """One line per difference. `ignore` holds (path, field) pairs; a field of "*" means the whole entry."""
    lines = []
    for path in sorted(expected.keys() | found.keys()):
        if (path, "*") in ignore:
            continue
        if path not in found:
            lines.append(f"{path!r}: missing, expected {expected[path].type}")
        elif path not in expected:
            lines.append(f"{path!r}: is there as {found[path].type}, not expected")
        else:
            for item in fields(Entry):
                want, got = getattr(expected[path], item.name), getattr(found[path], item.name)
                if want != got and (path, item.name) not in ignore:
                    lines.append(f"{path!r}: {item.name} is {got!r}, expected {want!r}")
    return lines
