"""A hand-made image of everything a tar may legally hold and layers may legally do."""
import hashlib, struct

from scan import Entry
from tars import CONTIGUOUS, DIRECTORY, REGULAR, Tar, base256, gnu_long, header, padded, pax

NS = b"1700000000.123456789"
CAPABILITY = struct.pack("<5I", 0x02000001, 1 << 10, 0, 0, 0)  # v2, effective, CAP_NET_BIND_SERVICE
# u::rw- u:1000:r-- g::r-- m::r-- o::---, as the kernel stores it
ACL = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, permission, who) for tag, permission, who in
                                      [(1, 6, 0xFFFFFFFF), (2, 4, 1000), (4, 4, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)])


def names(tar):
    """Spellings of names, and how long and strange they may be."""
    tar.entry("./", DIRECTORY, mode=0o755, mtime=1_500_000_000)
    tar.dir("./dotted").file("./dotted/file", b"./ is dropped\n").file("/absolute", b"/ is dropped\n").file("double//slash///file", b"slashes collapse\n")
    tar.file("implied/parents/of/a/file", b"no directory entry at all\n")
    tar.file(b"raw/\xff\xfe\x80.bin", b"not UTF-8\n").file("raw/new\nline", b"n").file("raw/ leading and trailing ", b"s").file("raw/quote\"'\\backslash", b"q").file("raw/ünï", b"u")
    tar.symlink(b"raw/link-to-bytes", b"\xff\xfe\x80.bin")
    tar.file("raw/" + "n" * 255, b"a name of 255 bytes\n")
    tar.symlink("raw/long-target", "t/" * 1900 + "end")
    deep = "deep/" + "/".join(("d%03d" % i) + "x" * 120 for i in range(29))
    tar.file(deep + "/at-the-end", b"a path of about 3700 bytes\n")
    tar.raw(gnu_long(b"L", b"gnu/" + b"g" * 200)).raw(header(b"gnu/" + b"g" * 96, REGULAR, size=4, magic=b"ustar  \0") + padded(b"gnu\n"))
    tar.raw(gnu_long(b"K", b"k" * 300)).raw(gnu_long(b"L", b"gnu/link-" + b"l" * 150)).raw(header(b"gnu/link", b"2", link=b"k" * 100, magic=b"ustar  \0"))
    tar.raw(header(b"in-the-name-field", REGULAR, prefix=b"prefix/of/ustar", size=2) + padded(b"p\n"))
    tar.raw(header(b"v7/file", b"\0", magic=b"", size=3) + padded(b"v7\n")).raw(header(b"v7/dir/", b"\0", magic=b"", mode=0o750))
    # The pax path beats both fields of the header; a record may hold a newline.
    tar.raw(pax([(b"path", b"pax/the real\nname"), (b"comment", b"a=b\nc")])).raw(header(b"pax/not-this-name", REGULAR, prefix=b"nor/this", size=1) + padded(b"x"))


def attributes(tar):
    tar.dir("attr").file("attr/setuid", b"#!", mode=0o4755).file("attr/setgid", b"#!", mode=0o2755).dir("attr/sticky", mode=0o1777).file("attr/none", b"", mode=0)
    tar.file("attr/uid-70000", b"", uid=70000, gid=70001).file("attr/uid-base256", b"", uid=3_000_000_000, gid=4_000_000_000)
    tar.entry("attr/uid-pax", records=[(b"uid", b"4294967294"), (b"gid", b"2097152")])
    tar.entry("attr/ns", records=[(b"mtime", NS)], data=b"ns").entry("attr/ns-dir", DIRECTORY, mode=0o755, records=[(b"mtime", NS)])
    tar.entry("attr/before-1970-ns", records=[(b"mtime", b"-0.5")]).entry("attr/1960", records=[(b"mtime", b"-315619200.25")])
    tar.file("attr/before-1970-base256", b"", mtime=-86400).file("attr/epoch", b"", mtime=0).file("attr/after-2038", b"", mtime=5_000_000_000)
    tar.raw(header(b"attr/size-base256", REGULAR, tail=(124, base256(5, 12))) + padded(b"five\n"))
    tar.entry("attr/xattrs", data=b"x", records=[(b"SCHILY.xattr.user.binary", b"\0\xff\n=\0"), (b"SCHILY.xattr.user.long", b"v" * 1500),
                                                 (b"SCHILY.xattr.trusted.thing", b"t")])
    tar.entry("attr/dir-xattr", DIRECTORY, mode=0o755, records=[(b"SCHILY.xattr.user.on-dir", b"d")])
    tar.entry("attr/capable", data=b"c", mode=0o755, records=[(b"SCHILY.xattr.security.capability", CAPABILITY)])
    tar.entry("attr/acl", data=b"a", mode=0o640, records=[(b"SCHILY.xattr.system.posix_acl_access", ACL)])
    tar.entry("attr/acl-dir", DIRECTORY, mode=0o750, records=[(b"SCHILY.xattr.system.posix_acl_default", ACL)])
    tar.entry("dev/null", b"3", mode=0o666, major=1, minor=3).entry("dev/loop", b"4", mode=0o660, major=7, minor=200, gid=6).entry("dev/large", b"4", mode=0o600, major=259, minor=70000)
    tar.entry("dev/fifo", b"6", mode=0o622, mtime=1_234_567_890)


def hard_links(tar):
    tar.dir("links").file("links/a/target", b"shared by four names\n", mode=0o640).hardlink("links/b/first", "links/a/target").hardlink("links/c", "./links/b/first")
    # Some writers put the target's size into a link's header; no data follows.
    tar.hardlink("links/with-size", "/links/a/target", size=21)
    tar.symlink("links/sym", "c").hardlink("links/sym-hard", "links/sym").entry("links/fifo", b"6").hardlink("links/fifo-hard", "links/fifo")
    tar.file("links/replaced-below", b"the old content stays under the other name\n").hardlink("links/keeps-old", "links/replaced-below")
    tar.file("links/removed-below", b"one name goes, one stays\n").hardlink("links/survivor", "links/removed-below")
    tar.hardlink("links/" + "h" * 120, "links/a/target")


def sparse(tar):
    """The same content in each of the three pax ways to say it: data at 4096 and at 1 MiB, holes elsewhere."""
    first, second, size = b"A" * 512, b"B" * 1024, (1 << 20) + 1024
    tar.raw(pax([(b"GNU.sparse.size", b"%d" % size), (b"GNU.sparse.numblocks", b"2"), (b"GNU.sparse.offset", b"4096"), (b"GNU.sparse.numbytes", b"512"), (b"GNU.sparse.offset", b"1048576"),
                 (b"GNU.sparse.numbytes", b"1024")])).raw(header(b"sparse/pax-0.0", REGULAR, size=1536) + first + second)
    tar.raw(pax([(b"GNU.sparse.size", b"%d" % size), (b"GNU.sparse.numblocks", b"2"), (b"GNU.sparse.map", b"4096,512,1048576,1024"), (b"GNU.sparse.name", b"sparse/pax-0.1")]))
    tar.raw(header(b"GNUSparseFile.0/pax-0.1", REGULAR, size=1536) + first + second)
    table = padded(b"2\n4096\n512\n1048576\n1024\n")
    tar.raw(pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"sparse/pax-1.0"), (b"GNU.sparse.realsize", b"%d" % size)]))
    tar.raw(header(b"GNUSparseFile.0/pax-1.0", REGULAR, size=len(table) + 1536) + table + first + second)
    tar.raw(pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"sparse/only-a-hole"), (b"GNU.sparse.realsize", b"300000")]))
    tar.raw(header(b"GNUSparseFile.0/only-a-hole", REGULAR, size=512) + padded(b"1\n300000\n0\n"))


def targets_for_upper_layers(tar):
    for folder in ("white/gone", "white/kept", "opaque", "opaque/sub", "opaque-late", "again/dir", "types/dir-to-file", "types/dir-to-link", "real"):
        tar.dir(folder, uid=5)
        tar.file(folder + "/old", folder.encode())
    tar.file("white/file", b"w").file("types/file-to-dir", b"f").symlink("types/link-to-dir", "nowhere").file("types/file-to-fifo", b"f").entry("types/dev-to-file", b"3", major=1, minor=5)
    tar.symlink("alias", "real").file("again/file", b"lower").dir("merged", mode=0o700, uid=7).file("merged/lower", b"l").file("white/.whatever", b"not a whiteout")
    tar.file("duplicate", b"first").file("duplicate", b"the last one wins\n", mode=0o600)


def upper_layer():
    """What one layer may do to those below, in an order no tool would choose."""
    tar = Tar()
    tar.whiteout("white/gone").whiteout("white/file").whiteout("white/never-was-there")
    # Opaque comes after the new children of its directory, and hides only what lower layers had.
    tar.dir("opaque", mode=0o711).file("opaque/new", b"new").dir("opaque/sub").file("opaque/sub/new", b"new").opaque("opaque")
    tar.opaque("opaque-late").file("opaque-late/new", b"the directory has no entry here\n")
    tar.file("types/dir-to-file", b"now a file\n").symlink("types/dir-to-link", "../real").dir("types/file-to-dir").file("types/file-to-dir/child", b"c").dir("types/link-to-dir").file("types/link-to-dir/x", b"x")
    tar.entry("types/file-to-fifo", b"6").file("types/dev-to-file", b"now a file\n")
    tar.dir("merged", mode=0o755, uid=8, mtime=1_650_000_000).file("merged/upper", b"u")
    # The parent is a symlink of the lower layer: followed, inside the root.
    tar.file("alias/through", b"written through a symlink\n")
    tar.file("links/replaced-below", b"new content, new inode\n").hardlink("links/to-new", "links/replaced-below").whiteout("links/removed-below").hardlink("links/to-lower", "links/a/target")
    return tar


def top_layer():
    tar = Tar()
    # Removed and made again in one layer: what is here replaces, nothing of the lower directory shines through.
    tar.whiteout("again/dir").dir("again/dir").file("again/dir/new", b"n").whiteout("again/file").file("again/file", b"upper")
    tar.file("implied/parents/second", b"the parents keep what they had\n")
    return tar


def image_tars():
    base = Tar()
    for part in (names, attributes, hard_links, sparse, targets_for_upper_layers):
        part(base)
    # The second layer is empty, the third ends without its zero blocks, the last is followed by junk, which is part of the stream all the same.
    return [base.bytes(), Tar().bytes(), upper_layer().bytes(end=b""), top_layer().bytes(end=b"\0" * 1024 + b"junk" * 2304)]


# ---------------------------------------------------------------- where umoci is wrong by the specification

SECOND = 1_000_000_000
# umoci gives directories that no layer has an entry for the time of unpacking; the specification leaves it open, ours is the epoch.
IMPLIED = (b"again", b"dev", b"double", b"double/slash", b"gnu", b"implied", b"implied/parents", b"implied/parents/of", b"implied/parents/of/a", b"links/a", b"links/b", b"pax", b"prefix",
           b"prefix/of", b"prefix/of/ustar", b"raw", b"sparse", b"types", b"v7", b"white")
# umoci puts a directory's time back only when it adds a direct child: making two levels, or an opaque mark, leaves the time of unpacking.
TOUCHED = {b".": 1_500_000_000 * SECOND, b"links": 1_600_000_000 * SECOND, b"opaque/sub": 1_600_000_000 * SECOND}


def corrected(expected):
    for path, entry in expected.items():
        if path in IMPLIED or path == b"deep" or (path.startswith(b"deep/") and entry.type == "dir"):
            entry.mtime_ns = 0
        elif path in TOUCHED:
            entry.mtime_ns = TOUCHED[path]
    return expected


def file_entry(path, content, **fields):
    entry = Entry(type="file", mode=0o644, mtime_ns=1_600_000_000 * SECOND, size=len(content), sha256=hashlib.sha256(content).hexdigest(), links=frozenset([path]))
    for name, value in fields.items():
        setattr(entry, name, value)
    return path, entry


def beyond_umoci():
    """(layer tars, expected entries): what umoci 0.4.7 refuses (types 7, S and g; paths longer than the machine's limit) or gets wrong."""
    hole, first, second = b"\0" * 4096, b"A" * 512, b"B" * 1024
    content = hole + first + b"\0" * (1048576 - 4608) + second
    old = b"%011o\0%011o\0" % (4096, 512) + b"%011o\0%011o\0" % (1048576, 1024) + b"\0" * 48 + b"\0" + b"%011o\0" % len(content)
    lower, upper = Tar(), Tar()
    lower.raw(pax([(b"comment", b"0123456789abcdef")], kind=b"g", name=b"pax_global_header"))
    lower.dir("d").raw(header(b"d/old-gnu-sparse", b"S", size=1536, magic=b"ustar  \0", tail=(386, old)) + first + second)
    lower.raw(header(b"d/contiguous", CONTIGUOUS, size=2) + padded(b"c\n"))
    lower.entry("d/xattr", records=[(b"LIBARCHIVE.xattr.user.url%20name", b"dmFsdWU=")], data=b"")
    longest = b"p/" + b"/".join(b"%03d" % i + b"y" * 250 for i in range(16)) + b"/"
    longest += b"z" * (4095 - len(longest))
    parts = longest.split(b"/")
    lower.file(longest, b"a path of 4095 bytes\n").file("d/new-then-removed", b"lower")
    # A whiteout hides what lower layers had, also when it follows the entry that replaces it.
    upper.file("d/new-then-removed", b"upper\n").whiteout("d/new-then-removed").file("d/.wh..wh.plnk", b"aufs left this behind")
    folder = Entry(type="dir", mode=0o755, mtime_ns=0)
    expected = dict([file_entry(b"d/old-gnu-sparse", content), file_entry(b"d/contiguous", b"c\n"), file_entry(b"d/xattr", b"", xattrs={"user.url name": b"value"}),
                     file_entry(longest, b"a path of 4095 bytes\n"), file_entry(b"d/new-then-removed", b"upper\n"), (b".", folder),
                     (b"d", Entry(type="dir", mode=0o755, mtime_ns=1_600_000_000 * SECOND))])
    expected |= {b"/".join(parts[:n]): folder for n in range(1, len(parts))}
    return [lower.bytes(), upper.bytes()], expected
