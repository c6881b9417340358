"""How a mounted tree is asked: one call, one answer; an error is its name. Calls that Python lacks are libc's."""
import ctypes, errno, hashlib, json, os, signal, stat, sys, traceback

from image import NOBODY

libc = ctypes.CDLL(None, use_errno=True)
for name, result in {"opendir": ctypes.c_void_p, "readdir": ctypes.c_void_p, "telldir": ctypes.c_long,
                     "mmap": ctypes.c_void_p, "lgetxattr": ctypes.c_ssize_t, "llistxattr": ctypes.c_ssize_t,
                     "readlink": ctypes.c_ssize_t, "read": ctypes.c_ssize_t, "getdents64": ctypes.c_ssize_t}.items():
    getattr(libc, name).restype = result
AT_FDCWD, AT_NO_FOLLOW, AT_EMPTY_PATH, AT_EACCESS = -100, 0x100, 0x1000, 0x200


class Among(tuple):
    """Answers between which the standard leaves the choice."""


READ_ONLY_OR_DENIED = Among(("EROFS", "EACCES"))


class Answers:
    def __init__(self):
        self.found, self.section = {}, ""

    def ask(self, question, call, must=None):
        """An OSError is an answer; so is what the call returns."""
        key = f"{self.section}: {question}"
        if key in self.found:
            sys.exit(f"asked twice: {key}")
        try:
            answer = call()
        except OSError as error:
            answer = errno.errorcode[error.errno]
        self.found[key] = {"answer": plain(answer), "must": plain(must), "among": isinstance(must, Among)}


def plain(value):
    """As JSON has it."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace") if len(value) < 100 else hashlib.sha256(value).hexdigest()
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return value


def checked(result):
    if result is None or result == -1:
        raise OSError(ctypes.get_errno(), "")
    return result


def opened(path, flags=os.O_RDONLY, mode=0o644, use=lambda fd: "opened", dir_fd=None):
    fd = os.open(path, flags | os.O_CLOEXEC, mode, dir_fd=dir_fd)
    try:
        return use(fd)
    finally:
        os.close(fd)


def through_many_links(call):
    """Asked again where there seem to be too many: a walk that a mount elsewhere disturbs is done a second time, and Linux counts the links of both (set_nameidata)."""
    for _ in range(20):
        try:
            return call()
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
    return call()


def in_child(call, uid=None, groups=()):
    """What the call answers in a process of its own, as another user if asked; the name of the signal that ended it."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if uid is not None:
                os.setgroups(list(groups))
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            try:
                answer = call()
            except OSError as error:
                answer = errno.errorcode[error.errno]
            os.write(writing, json.dumps(plain(answer)).encode())
            os._exit(0)
        except BaseException:  # the probe is wrong, not the tree
            traceback.print_exc()
        finally:
            os._exit(70)
    os.close(writing)
    said = b"".join(iter(lambda: os.read(reading, 65536), b""))
    os.close(reading)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    if os.WEXITSTATUS(status) != 0:
        sys.exit(f"a probe failed in its process: {os.WEXITSTATUS(status)}")
    return json.loads(said)


def as_nobody(call):
    return in_child(call, NOBODY)


def whole(path):
    with open(path, "rb") as file:
        return file.read()


def fields_of(info):
    """What any tree of the image must show; of a folder neither size nor links."""
    size = 0 if stat.S_ISDIR(info.st_mode) else info.st_size
    links = 0 if stat.S_ISDIR(info.st_mode) else info.st_nlink
    return [oct(info.st_mode), links, info.st_uid, info.st_gid, size, os.major(info.st_rdev), os.minor(info.st_rdev),
            info.st_mtime_ns]
