"""Which pages of a tree a program needs: the physical limit of any lazy loader is to bring these, compressed, over the link."""
import contextlib, ctypes, os, zlib
from pathlib import Path

PAGE = os.sysconf("SC_PAGESIZE")
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]


def drop_caches():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


@contextlib.contextmanager
def without_read_ahead(tree):
    """The kernel reads what is asked for and nothing else, on the whole disk: only while this measures."""
    device = os.stat(tree).st_dev
    knob = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    if not knob.exists():
        whole = (Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve().parent / "dev").read_text().strip()
        knob = Path(f"/sys/class/bdi/{whole}/read_ahead_kb")
    before = knob.read_text()
    knob.write_text("0\n")
    try:
        yield
    finally:
        knob.write_text(before)


def pages_of(path):
    """One byte per page of the file, its lowest bit set if the page is in memory."""
    size = os.path.getsize(path)
    if size == 0:
        return b""
    with open(path, "rb") as file:
        address = libc.mmap(None, size, 1, 1, file.fileno(), 0)
    if address in (None, ctypes.c_void_p(-1).value):
        raise OSError(ctypes.get_errno(), f"mmap {path}")
    pages = ctypes.create_string_buffer((size + PAGE - 1) // PAGE)
    failed = libc.mincore(address, size, pages)
    libc.munmap(address, size)
    if failed:
        raise OSError(ctypes.get_errno(), f"mincore {path}")
    return pages.raw


def touched(tree, run):
    """(files, bytes of pages, bytes of those pages as gzip -6 makes them) that run() needs of the tree, caches being cold."""
    drop_caches()
    with without_read_ahead(tree):
        run()
        found = []
        for folder, _, names in os.walk(tree):
            for name in names:
                path = os.path.join(folder, name)
                if not os.path.islink(path) and os.path.isfile(path):
                    pages = pages_of(path)
                    if any(page & 1 for page in pages):
                        found.append((path, pages))
    raw = packed = 0
    for path, pages in found:
        deflate = zlib.compressobj(6)
        with open(path, "rb") as file:
            for number, page in enumerate(pages):
                if page & 1:
                    file.seek(number * PAGE)
                    data = file.read(PAGE)
                    raw += len(data)
                    packed += len(deflate.compress(data))
        packed += len(deflate.flush())
    return len(found), raw, packed
