"""Bytes: read and its kin, holes, mappings, O_DIRECT, copies out of the tree."""
import ctypes, errno, fcntl, mmap, os, socket

from asking import Among, checked, in_child, libc, opened, whole


def read(ask):
    size = os.stat("f").st_size
    ask("all of it", lambda: opened("f", use=lambda fd: os.read(fd, size + 100)))
    ask("a second read at the end", lambda: opened("f", use=lambda fd: (len(os.read(fd, size)), os.read(fd, 10))),
        (size, b""))
    for name, offset, length, must in (("the last byte", size - 1, 1, None), ("over the end", size - 3, 100, None),
                                       ("at the end", size, 10, b""), ("beyond the end", size + 1, 10, b""),
                                       ("far beyond", 1 << 40, 10, b""), ("nothing", 0, 0, b""),
                                       ("nothing, beyond the end", size + 5, 0, b""),
                                       ("at the largest offset", (1 << 63) - 1, 1, None),
                                       ("at a negative offset", -1, 10, "EINVAL"),
                                       ("over the largest offset", (1 << 63) - 5, 10, None),
                                       ("over a page", 4090, 12, None), ("over a block of 512", 510, 4, None)):
        ask(f"pread {name}", lambda: opened("f", use=lambda fd: os.pread(fd, length, offset)), must)
    for path in ("empty", "page", "large", "sparse", "only-a-hole", "hard/one", "acl/for-nobody"):
        ask(f"content of {path}", lambda: whole(path))
        ask(f"bytes of {path} are its size", lambda: len(whole(path)) == os.stat(path).st_size, True)

    def vector(fd, *where):
        buffers = [bytearray(n) for n in (1, 0, 511, 4096, 5000)]
        count = os.readv(fd, buffers) if not where else os.preadv(fd, buffers, *where)
        return count, b"".join(buffers)[:count]
    ask("readv over the end", lambda: opened("large", use=lambda fd: (os.lseek(fd, -100, os.SEEK_END), vector(fd))))
    ask("readv of the beginning", lambda: opened("large", use=vector))
    ask("preadv, odd offset", lambda: opened("large", use=lambda fd: vector(fd, 65_537)))
    ask("preadv, negative offset", lambda: opened("large", use=lambda fd: vector(fd, -7)), "EINVAL")
    ask("preadv leaves the offset",
        lambda: opened("large", use=lambda fd: (vector(fd, 100)[0], os.lseek(fd, 0, os.SEEK_CUR))), (9608, 0))
    ask("readv of more vectors than there may be",
        lambda: opened("f", use=lambda fd: os.readv(fd, [bytearray(1)] * 1025)), "EINVAL")
    ask("into memory that is not there",
        lambda: opened("f", use=lambda fd: checked(libc.read(fd, ctypes.c_void_p(8), ctypes.c_size_t(100)))), "EFAULT")
    ask("a directory", lambda: opened("d", use=lambda fd: os.read(fd, 10)), "EISDIR")
    ask("pread of a directory", lambda: opened("d", use=lambda fd: os.pread(fd, 10, 0)), "EISDIR")
    ask("random pieces of the large file", lambda: opened("large", use=pieces))
    ask("in two descriptors, offsets of their own",
        lambda: opened("f",
                       use=lambda one: opened("f", use=lambda two: (os.read(one, 5), os.read(two, 3),
                                                                    os.read(one, 5)))))
    ask("in a duplicate, one offset",
        lambda: opened("f", use=lambda one: (os.read(one, 5), duplicate_reads(one, 3),
                                             os.lseek(one, 0, os.SEEK_CUR)))[2], None)
    ask("write to it", lambda: opened("f", use=lambda fd: os.write(fd, b"x")), "EBADF")
    ask("pwrite to it", lambda: opened("f", use=lambda fd: os.pwrite(fd, b"x", 0)), "EBADF")
    for what in ("fsync", "fdatasync"):
        ask(f"{what} of a file", lambda: opened("f", use=getattr(os, what)), None)
        ask(f"{what} of a directory", lambda: opened("d", use=getattr(os, what)), None)
    for advice in ("NORMAL", "SEQUENTIAL", "RANDOM", "WILLNEED", "DONTNEED", "NOREUSE"):
        ask(f"posix_fadvise {advice}, read again",
            lambda: opened("large", use=lambda fd: (os.posix_fadvise(fd, 0, 0, getattr(os, "POSIX_FADV_" + advice)),
                                                    pieces(fd))[1]))
    ask("readahead",
        lambda: opened("large",
                       use=lambda fd: checked(libc.readahead(fd, ctypes.c_int64(0), ctypes.c_size_t(1 << 20)))), 0)


def pieces(fd):
    size, found, at = os.fstat(fd).st_size, [], 1
    for _ in range(60):
        at = (at * 1_103_515_245 + 12_345) % (1 << 31)
        found.append(os.pread(fd, (1, 100, 4096, 131_072)[at % 4], at % size))
    return b"".join(found)


def duplicate_reads(fd, length):
    other = os.dup(fd)
    try:
        return os.read(other, length)
    finally:
        os.close(other)


def direct_io(ask):
    def direct(fd, offset, length, shift=0):
        with mmap.mmap(-1, 1 << 20) as buffer:
            view = memoryview(buffer)[shift:shift + length]
            try:
                count = os.preadv(fd, [view], offset)
                return count, bytes(view[:count])
            finally:
                view.release()
    for offset, length in ((0, 4096), (8192, 1 << 19), (3 << 20, 4096)):
        ask(f"O_DIRECT {offset}+{length}", lambda: opened("large", os.O_RDONLY | os.O_DIRECT,
                                                          use=lambda fd: direct(fd, offset, length)))


def lseek(ask):
    size = os.stat("f").st_size
    for name, offset, whence, must in (("SEEK_SET", 10, os.SEEK_SET, 10),
                                       ("SEEK_SET negative", -1, os.SEEK_SET, "EINVAL"),
                                       ("SEEK_END", -10, os.SEEK_END, size - 10),
                                       ("before the beginning", -size - 1, os.SEEK_END, "EINVAL"),
                                       ("beyond the end", 5, os.SEEK_END, size + 5),
                                       ("whence of none", 0, 99, "EINVAL"), ("SEEK_CUR", 0, os.SEEK_CUR, 0),
                                       ("SEEK_DATA at 0", 0, os.SEEK_DATA, 0),
                                       ("SEEK_DATA at the end", size, os.SEEK_DATA, "ENXIO"),
                                       ("SEEK_HOLE at 0 of a file without any", 0, os.SEEK_HOLE, size),
                                       ("SEEK_HOLE at the end", size, os.SEEK_HOLE, "ENXIO"),
                                       ("SEEK_DATA negative", -1, os.SEEK_DATA, "ENXIO"),
                                       ("SEEK_HOLE in the middle", 777, os.SEEK_HOLE, size)):
        ask(name, lambda: opened("f", use=lambda fd: os.lseek(fd, offset, whence)), must)
    for path in ("large", "empty", "sparse", "only-a-hole"):
        ask(f"data of {path} covers what is not zero, and holes read as zeros",
            lambda: opened(path, use=holes_are_true), "true")
    ask("holes of a sparse file are told",
        lambda: opened("sparse", use=lambda fd: [os.lseek(fd, 0, os.SEEK_HOLE), os.lseek(fd, 0, os.SEEK_DATA)]),
        [0, 65_536])
    ask("a file that is one hole", lambda: opened("only-a-hole", use=lambda fd: os.lseek(fd, 0, os.SEEK_DATA)), "ENXIO")
    ask("of a fifo", lambda: opened("dev/fifo", os.O_RDONLY | os.O_NONBLOCK,
                                    use=lambda fd: os.lseek(fd, 0, os.SEEK_SET)), "ESPIPE")


def holes_are_true(fd):
    """Walks the file by SEEK_DATA and SEEK_HOLE."""
    size, at = os.fstat(fd).st_size, 0
    while at < size:
        try:
            data = os.lseek(fd, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            data = size
        if not at <= data <= size:
            return f"SEEK_DATA of {at} is {data}, of {size} bytes"
        for start in range(at, data, 1 << 20):
            if os.pread(fd, min(1 << 20, data - start), start).strip(b"\0"):
                return f"the hole from {at} to {data} has data"
        if data == size:
            break
        hole = os.lseek(fd, data, os.SEEK_HOLE)
        if not data < hole <= size:
            return f"SEEK_HOLE of {data} is {hole}, of {size} bytes"
        at = hole
    return "true"


def mmap_(ask):
    shared, private, readable, writable, executable = 1, 2, 1, 2, 4
    page, size = mmap.PAGESIZE, os.stat("f").st_size

    def mapped(fd, length, protection, flags, use=lambda at: "mapped", offset=0):
        at = libc.mmap(None, ctypes.c_size_t(length), protection, flags, fd, ctypes.c_int64(offset))
        if at == ctypes.c_void_p(-1).value:
            raise OSError(ctypes.get_errno(), "")
        try:
            return use(at)
        finally:
            libc.munmap(ctypes.c_void_p(at), ctypes.c_size_t(length))

    def of(path, length, protection, flags, use=lambda at: "mapped", offset=0):
        return opened(path, use=lambda fd: mapped(fd, length, protection, flags, use, offset))
    ask("MAP_SHARED, PROT_READ: the bytes",
        lambda: of("f", size, readable, shared, lambda at: ctypes.string_at(at, size)))
    ask("the large file, every byte", lambda: of("large", os.stat("large").st_size, readable, shared,
                                                 lambda at: ctypes.string_at(at, os.stat("large").st_size))
        == whole("large"), True)
    ask("the sparse file, every byte", lambda: of("sparse", os.stat("sparse").st_size, readable, private,
                                                  lambda at: ctypes.string_at(at, os.stat("sparse").st_size))
        == whole("sparse"), True)
    ask("MAP_SHARED, PROT_WRITE of a descriptor for reading", lambda: of("f", size, readable | writable, shared),
        "EACCES")
    ask("mprotect to writable later",
        lambda: of("f", size, readable, shared,
                   lambda at: checked(libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), readable | writable))),
        "EACCES")

    def written(at):
        ctypes.memset(at, 0x21, 10)
        return ctypes.string_at(at, 12), whole("f")[:12] == ctypes.string_at(at, 12)
    ask("MAP_PRIVATE, written: the file keeps its bytes", lambda: of("f", size, readable | writable, private, written))
    ask("MAP_PRIVATE, PROT_EXEC", lambda: of("exec/program", page, readable | executable, private), "mapped")
    ask("the rest of the last page is zeros",
        lambda: of("f", 3 * page, readable, shared,
                   lambda at: ctypes.string_at(at + size, 3 * page - size).strip(b"\0")), b"")
    for path in ("f", "page", "empty"):
        ask(f"a page beyond the end of {path}",
            lambda: in_child(lambda: of(path, 5 * page, readable, shared,
                                        lambda at: ctypes.string_at(at + 4 * page, 1))), "SIGBUS")
    ask("a write to pages for reading",
        lambda: in_child(lambda: of("f", page, readable, shared, lambda at: ctypes.memset(at, 1, 1))), "SIGSEGV")
    ask("at an offset in the middle of pages", lambda: of("f", page, readable, shared, offset=100), "EINVAL")
    ask("of no bytes", lambda: of("f", 0, readable, shared), "EINVAL")
    ask("beyond the end alone", lambda: of("f", page, readable, shared, offset=1 << 30), "mapped")
    ask("of a directory", lambda: of("d", page, readable, shared), "ENODEV")
    ask("of O_PATH", lambda: opened("f", os.O_PATH, use=lambda fd: mapped(fd, page, readable, shared)), "EBADF")
    ask("MAP_POPULATE|MAP_LOCKED", lambda: of("large", 1 << 20, readable, shared | 0x8000 | 0x2000,
                                              lambda at: ctypes.string_at(at, 1 << 20)))
    ask("stays when the descriptor is closed", lambda: stays_mapped(readable, shared))
    ask("msync",
        lambda: of("f", page, readable, shared,
                   lambda at: checked(libc.msync(ctypes.c_void_p(at), ctypes.c_size_t(page), 4))), 0)
    for name, advice in (("WILLNEED", 3), ("DONTNEED", 4), ("POPULATE_READ", 22)):
        ask(f"madvise {name}, read again", lambda: of("large", 1 << 20, readable, shared,
                                                      lambda at: (checked(libc.madvise(ctypes.c_void_p(at),
                                                                                       ctypes.c_size_t(1 << 20),
                                                                                       advice)),
                                                                  ctypes.string_at(at, 1 << 20))))

    def read_into(at):
        return opened("f", use=lambda fd: checked(libc.read(fd, ctypes.c_void_p(at), ctypes.c_size_t(page))))
    ask("read(2) into a mapping of the same file",
        lambda: of("f", 2 * page, readable | writable, private,
                   lambda at: (read_into(at), ctypes.string_at(at, page) == whole("f")[:page])), (page, True))


def stays_mapped(protection, flags):
    fd = os.open("large", os.O_RDONLY)
    length = os.fstat(fd).st_size
    kept = mmap.mmap(fd, length, flags=flags, prot=protection)
    os.close(fd)
    with kept:
        return kept[:]


def copies_out(ask):
    with os.fdopen(os.memfd_create("target"), "w+b", buffering=0) as target:
        def into(copy, length):
            target.truncate(0)
            target.seek(0)
            with open("large", "rb", buffering=0) as source:
                done = 0
                while done < length:
                    done += (count := copy(source.fileno(), target.fileno(), min(300_000, length - done)))
                    if count == 0:
                        break
            target.seek(0)
            return target.read()
        size = os.stat("large").st_size
        ask("sendfile into a file", lambda: into(lambda source, to, length: os.sendfile(to, source, None, length), size)
            == whole("large"), True)
        ask("sendfile into a socket, from an offset", lambda: sent_by_socket(100_001, 5000))
        ask("copy_file_range to another file system", lambda: into(os.copy_file_range, size) == whole("large"),
            Among((True, "EXDEV")))
        ask("copy_file_range into the tree",
            lambda: opened("f", use=lambda source: opened("page", use=lambda to: os.copy_file_range(source, to, 10))),
            "EBADF")
        ask("FICLONE out of it", lambda: opened("f", use=lambda fd: fcntl.ioctl(target.fileno(), 0x40049409, fd)),
            "EXDEV")
    ask("splice through a pipe", spliced)
    ask("sendfile of a directory", lambda: opened("d", use=lambda fd: os.sendfile(1, fd, 0, 10)), "EINVAL")


def sent_by_socket(offset, length):
    one, two = socket.socketpair()
    with one, two, open("large", "rb", buffering=0) as file:
        os.sendfile(one.fileno(), file.fileno(), offset, length)
        return two.recv(length, socket.MSG_WAITALL)


def spliced():
    reading, writing = os.pipe()
    found = b""
    with open("large", "rb", buffering=0) as file:
        while count := os.splice(file.fileno(), writing, 60_000):
            while count:
                found += (got := os.read(reading, count))
                count -= len(got)
    os.close(reading), os.close(writing)
    return found
