"""Folders read as streams: each name once, wherever one goes on."""
import ctypes, os, stat, struct

from asking import checked, in_child, libc, opened
from image import MANY


class Dirent(ctypes.Structure):
    _fields_ = [("ino", ctypes.c_uint64), ("off", ctypes.c_int64), ("reclen", ctypes.c_uint16),
                ("type", ctypes.c_uint8), ("name", ctypes.c_char * 256)]


class Folder:
    def __init__(self, path):
        self.stream = ctypes.c_void_p(checked(libc.opendir(os.fsencode(path))))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        libc.closedir(self.stream)

    def next(self):
        ctypes.set_errno(0)
        at = libc.readdir(self.stream)
        if not at and ctypes.get_errno():
            raise OSError(ctypes.get_errno(), "")
        if not at:
            return None
        fixed = ctypes.string_at(at, Dirent.name.offset)  # what follows the name may be no memory of ours
        return Dirent.from_buffer_copy((fixed + ctypes.string_at(at + len(fixed))).ljust(ctypes.sizeof(Dirent), b"\0"))

    def rest(self):
        found = []
        while entry := self.next():
            found.append(entry)
        return found

    def tell(self):
        return libc.telldir(self.stream)

    def seek(self, position):
        libc.seekdir(self.stream, ctypes.c_long(position))


def readdir(ask):
    kinds = {stat.S_IFREG: 8, stat.S_IFDIR: 4, stat.S_IFLNK: 10, stat.S_IFCHR: 2, stat.S_IFBLK: 6, stat.S_IFIFO: 1}
    for path in (".", "d", "d/sub", "many", "dev", "bytes"):
        def entries():
            with Folder(path) as folder:
                return folder.rest()
        ask(f"names of {path}", lambda: sorted(e.name for e in entries()))
        ask(f"each name of {path} once", lambda: len({e.name for e in entries()}) == len(entries()), True)
        ask(f"'.' and '..' in {path}", lambda: sum(e.name in (b".", b"..") for e in entries()), 2)
        ask(f"types in {path}",
            lambda: all(e.type == kinds[stat.S_IFMT(os.lstat(os.path.join(path.encode(), e.name)).st_mode)]
                        for e in entries()), True)
        # What is mounted over the tree, and what lies over its root, is not the tree's to know.
        ask(f"numbers in {path} are stat's", lambda: all(e.ino == os.lstat(os.path.join(path.encode(), e.name)).st_ino
                                                         for e in entries() if not (path == "." and e.name == b"..")),
            True)
    ask("count of many", lambda: len(os.listdir("many")), MANY)
    ask("scandir of many knows each type without asking",
        lambda: all(e.is_file(follow_symlinks=False) for e in os.scandir("many")), True)
    ask("telldir, seekdir: what came after comes again", seek_everywhere, True)
    ask("rewinddir in the middle gives all", rewound, True)
    ask("lookups between reads", reads_with_lookups, MANY)
    ask("two streams do not disturb each other", two_streams, (MANY + 2, MANY + 2))
    ask("read over a fork, one offset", fork_in_the_middle, MANY + 2)
    ask("getdents64 into too little",
        lambda: opened("d", use=lambda fd: getdents(fd, ctypes.create_string_buffer(16), 16)), "EINVAL")
    ask("getdents64 at the end, twice",
        lambda: opened("d/sub",
                       use=lambda fd: (len(os.listdir(fd)), getdents(fd, ctypes.create_string_buffer(4096), 4096))))
    ask("getdents64 in pieces of 300 bytes", lambda: opened("many", use=lambda fd: small_pieces(fd, 300)), MANY + 2)
    ask("lseek of a folder to 0 begins again",
        lambda: opened("many", use=lambda fd: (len(os.listdir(fd)), os.lseek(fd, 0, os.SEEK_SET),
                                               small_pieces(fd, 65536))), (MANY, 0, MANY + 2))
    ask("lseek of a folder, negative", lambda: opened("d", use=lambda fd: os.lseek(fd, -1, os.SEEK_SET)), "EINVAL")
    ask("seek to nonsense breaks nothing",
        lambda: opened("many", use=lambda fd: (seek_somewhere(fd, 0x7FFFFFFFFFFF), small_pieces(fd, 65536) <= MANY + 2,
                                               os.lseek(fd, 0, os.SEEK_SET), small_pieces(fd, 65536))[1:]),
        (True, 0, MANY + 2))
    ask("opendir of a file", lambda: os.listdir("f"), "ENOTDIR")
    ask("opendir of nothing", lambda: os.listdir("absent"), "ENOENT")
    ask("'..' of the root of the tree leaves it", lambda: os.stat("..").st_dev == os.stat("../.").st_dev, True)
    ask("'..' of a folder inside", lambda: os.path.samestat(os.stat("d/sub/.."), os.stat("d")), True)


def seek_somewhere(fd, where):
    try:
        return os.lseek(fd, where, os.SEEK_SET)
    except OSError:
        return -1


def seek_everywhere():
    with Folder("many") as folder:
        places, names = [folder.tell()], []
        while entry := folder.next():
            names.append(entry.name)
            places.append(folder.tell())
        for at in (0, 1, 2, 777, len(names) // 2, len(names) - 1, len(names)):
            folder.seek(places[at])
            if [e.name for e in folder.rest()] != names[at:]:
                return f"after the name {at} of {len(names)} others come"
    return True


def rewound():
    with Folder("many") as folder:
        first = [folder.next().name for _ in range(5000)]
        libc.rewinddir(folder.stream)
        again = [e.name for e in folder.rest()]
    return again[:5000] == first and len(again) == MANY + 2


def reads_with_lookups():
    count = 0
    with os.scandir("many") as entries:
        for entry in entries:
            count += os.stat(entry.path).st_size == len(entry.name)
    return count


def two_streams():
    with Folder("many") as one, Folder("many") as two:
        first, second = set(), set()
        while True:
            a, b = one.next(), two.next()
            if not a and not b:
                return len(first), len(second)
            first.add(a.name), second.add(b.name)


def getdents(fd, buffer, length):
    return checked(libc.getdents64(fd, buffer, ctypes.c_size_t(length)))


def small_pieces(fd, length):
    buffer, count = ctypes.create_string_buffer(length), 0
    while used := getdents(fd, buffer, length):
        at = 0
        while at < used:
            at += struct.unpack_from("<H", buffer.raw[:used], at + 16)[0]
            count += 1
    return count


def fork_in_the_middle():
    """Parent and child share the description: together they see each name once."""
    return opened("many", use=lambda fd: one_piece(fd, 8192) + in_child(lambda: small_pieces(fd, 4096))
                  + small_pieces(fd, 4096))


def one_piece(fd, length):
    buffer, at, count = ctypes.create_string_buffer(length), 0, 0
    used = getdents(fd, buffer, length)
    while at < used:
        at += struct.unpack_from("<H", buffer.raw, at + 16)[0]
        count += 1
    return count
