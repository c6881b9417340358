"""The image that probes.py asks: of each thing that a file system can be asked about, one."""
import random, shutil, struct
from pathlib import Path

from tars import BLOCK_DEVICE, CHAR, DIRECTORY, FIFO, REGULAR, Tar, header, padded, pax

NOBODY, SOMEBODY = 65534, 4242  # a plain user, and somebody whom files belong to
MANY = 20_000
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)  # v2, effective, CAP_NET_BIND_SERVICE
USER_OBJ, USER, GROUP_OBJ, GROUP, MASK, OTHER = 1, 2, 4, 8, 16, 32


def access_list(*rules):
    """(tag, permissions[, id]) as the kernel stores them."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *rule, *(() if len(rule) == 3 else (0xFFFFFFFF,)))
                                           for rule in rules)


def with_access_list(tar, name, mode, *rules, kind=b"access", entry_kind=REGULAR):
    return tar.entry(name, entry_kind, mode=mode,
                     records=[(b"SCHILY.xattr.system.posix_acl_" + kind, access_list(*rules))])


def plain_things(tar):
    noise = random.Random(16)
    tar.entry("./", DIRECTORY, mode=0o755).file("f", b"".join(b"line %d\n" % i for i in range(1100))[:10_000])
    tar.file("empty").file("page", noise.randbytes(4096)).file("large", noise.randbytes((3 << 20) + 123))
    tar.dir("d").file("d/file", b"in a folder\n").dir("d/sub").dir("d/sub/below")
    tar.dir("hard").file("hard/one", b"three names\n").hardlink("hard/two", "hard/one").hardlink("three", "hard/one")
    tar.file("n" * 255, b"a long name\n").file("root-only", b"root's alone\n", mode=0o600)
    tar.file("group", b"g", mode=0o640, gid=SOMEBODY).file("owned", b"his own\n", mode=0o600, uid=NOBODY, gid=NOBODY)
    tar.file("unreadable-by-owner", b"", mode=0o077, uid=NOBODY)
    folders = {"locked": 0o700, "listed-only": 0o744, "passed-only": 0o711, "sticky": 0o1777, "sgid-folder": 0o2755}
    for name, mode in folders.items():
        tar.dir(name, mode=mode).file(name + "/file", b"behind\n")
    tar.dir("bytes")
    for name in (b"\xff\xfe\x80", b"new\nline", b" \t", "ünï".encode(), b"...", b"-rf"):
        tar.file(b"bytes/" + name)
    tar.dir("dev").entry("dev/null", CHAR, mode=0o666, major=1, minor=3)
    tar.entry("dev/block", BLOCK_DEVICE, mode=0o660, major=259, minor=70_000).entry("dev/fifo", FIFO, mode=0o666)
    tar.dir("times").entry("times/ns", records=[(b"mtime", b"1700000000.123456789")])
    tar.entry("times/before-1970", records=[(b"mtime", b"-1.25")])
    tar.file("times/after-2038", b"", mtime=5_000_000_000).file("times/epoch", b"", mtime=0)
    tar.dir("many")
    for i in range(MANY):
        name = f"{i:x}" if i % 3 else f"name-{i:06d}"
        tar.file("many/" + name, b"." * len(name))


def symlinks(tar):
    for name, target in (("to-file", "f"), ("to-folder", "d"), ("dangling", "nowhere/at all"), ("to-absent", "absent"),
                         ("loop", "loop-back"), ("loop-back", "loop"), ("itself", "itself"), ("to-absolute", "/d/file"),
                         ("to-locked", "locked/file"), ("to-script", "exec/script"), ("to-x", "x"),
                         ("long-target", "./" * 2046 + "f/x"), ("chain-1", "f")):
        tar.symlink(name, target)
    tar.symlink(b"to-bytes", b"bytes/\xff\xfe\x80")
    for i in range(2, 42):
        tar.symlink(f"chain-{i}", f"chain-{i - 1}")


def sparse_files(tar):
    def sparse(name, size, *data):
        table = padded(b"%d\n" % len(data) + b"".join(b"%d\n%d\n" % (at, len(content)) for at, content in data))
        content = b"".join(content for _, content in data)
        tar.raw(pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", name),
                     (b"GNU.sparse.realsize", b"%d" % size)]))
        tar.raw(header(b"GNUSparseFile.0/" + name, REGULAR, size=len(table) + len(content)) + table + padded(content))
    sparse(b"sparse", (2 << 20) + 1000, (65_536, b"A" * 8192), (1 << 20, b"B" * 512), ((2 << 20), b"C" * 1000))
    sparse(b"only-a-hole", 300_000, (300_000, b""))


def attributes(tar):
    value = [(b"SCHILY.xattr.user.binary", b"\0\xff\n=\0"), (b"SCHILY.xattr.user.long", b"v" * 1500),
             (b"SCHILY.xattr.user.empty", b""), (b"SCHILY.xattr.trusted.thing", b"t"),
             (b"SCHILY.xattr.security.thing", b"s")]
    tar.entry("x", data=b"x", records=value).entry("x-folder", DIRECTORY, mode=0o755,
                                                   records=[(b"SCHILY.xattr.user.on-folder", b"d"),
                                                            (b"SCHILY.xattr.trusted.thing", b"t")])
    mask = (MASK, 4)
    nobody = ((USER_OBJ, 6), (USER, 4, NOBODY), (GROUP_OBJ, 0), mask, (OTHER, 0))
    tar.dir("acl")
    with_access_list(tar, "acl/for-nobody", 0o640, *nobody)
    with_access_list(tar, "acl/masked", 0o600, (USER_OBJ, 6), (USER, 4, NOBODY), (GROUP_OBJ, 0), (MASK, 0), (OTHER, 0))
    with_access_list(tar, "acl/against-nobody", 0o644, (USER_OBJ, 6), (USER, 0, NOBODY), (GROUP_OBJ, 4), mask,
                     (OTHER, 4))
    with_access_list(tar, "acl/for-group", 0o640, (USER_OBJ, 6), (GROUP_OBJ, 0), (GROUP, 4, SOMEBODY), mask, (OTHER, 0))
    with_access_list(tar, "acl/folder", 0o755, *nobody, kind=b"default", entry_kind=DIRECTORY)


def programs(tar):
    scripts = {"script": b"#!/bin/sh\necho a script says $1\n", "no-format": b"\x01\x02\x03 no format\n",
               "no-interpreter": b"#!/nowhere/interpreter\n", "interpreter-in-tree": b"#!exec/program -s\n"}
    tar.dir("exec").file("exec/program", Path("/bin/uname").read_bytes(), mode=0o755)
    tar.file("exec/for-root", b"#!/bin/sh\necho yes\n", mode=0o700)
    for name, content in scripts.items():
        tar.file("exec/" + name, content, mode=0o755)
    tar.file("suid", Path(shutil.which("id")).read_bytes(), mode=0o4755, uid=SOMEBODY)
    tar.entry("capable", data=Path(shutil.which("grep")).read_bytes(), mode=0o755,
              records=[(b"SCHILY.xattr.security.capability", CAPABILITY)])


def layers():
    lower, upper = Tar(), Tar()
    for part in (plain_things, symlinks, sparse_files, attributes, programs):
        part(lower)
    lower.file("replaced", b"old").file("d/gone", b"hidden")
    upper.file("replaced", b"new\n").whiteout("d/gone").hardlink("hard/upper", "hard/one")
    return [lower.bytes(), upper.bytes()]
