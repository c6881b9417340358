"""test_trees.py CASE: an image is indexed and mounted in both modes, and every name, attribute and byte compared with an oracle."""
import hashlib, random, shutil, sys, zlib

import horrors
import layouts
from layouts import GZIP, TAR, ZSTD
from program import Varve, modes, need_fuse, need_root, need_tools, unpack, work_folder
from scan import differences, scan
from tars import Tar


class Failures:
    def __init__(self):
        self.lines = []

    def add(self, where, lines):
        self.lines += [f"{where}: {line}" for line in lines[:20]] + ([f"{where}: and {len(lines) - 20} more"] if len(lines) > 20 else [])

    def finish(self):
        print("\n".join(self.lines))
        sys.exit(1 if self.lines else 0)


def compare_mounts(varve, failures, image, expected, label, wanted_modes):
    for mode in wanted_modes:
        with varve.mounted(image, mode) as tree:
            failures.add(f"{label}, {mode} mode", differences(expected, scan(tree)))


def case_horrors(work, varve, failures):
    image = layouts.gzip_image(work / "image", horrors.image_tars())
    expected = horrors.corrected(scan(unpack(image, work / "b")))
    varve.index(image)
    compare_mounts(varve, failures, image, expected, "horrors", modes())


def case_beyond(work, varve, failures):
    tars, expected = horrors.beyond_umoci()
    image = layouts.gzip_image(work / "image", tars)
    varve.index(image)
    compare_mounts(varve, failures, image, expected, "beyond umoci", modes())


def realistic_layers():
    """Two layers of all kinds of content: text, noise, zeros, many small files, one large."""
    noise = random.Random(4)
    lower, upper = Tar(), Tar()
    lower.dir("usr").dir("usr/lib").dir("etc", mode=0o750)
    lower.file("usr/lib/text", b"".join(b"line %d of a text that repeats itself\n" % i for i in range(60_000)))
    lower.file("usr/lib/noise", noise.randbytes(3_000_000)).file("usr/lib/zeros", b"\0" * 2_500_000).file("usr/lib/empty", b"")
    lower.file("usr/lib/mixed", b"".join(noise.randbytes(700) + b"\0" * 3000 + b"abc" * 400 for _ in range(500)), mode=0o755)
    for i in range(400):
        lower.file(f"etc/f{i:03d}", b"%d\n" % i * noise.randrange(1, 400), mtime=1_600_000_000 + i)
    lower.hardlink("etc/hard", "etc/f001").symlink("lib", "usr/lib")
    upper.whiteout("usr/lib/zeros").file("usr/lib/text", noise.randbytes(100_000)).dir("opt").file("opt/one-byte", b"x").file("etc/f002", b"")
    upper.file("opt/large", b"".join(hashlib.sha256(b"%d" % i).digest() * 8 for i in range(16_000)))
    return [lower.bytes(), upper.bytes()]


FORMATS = {  # name: (compressor, media type, the format that `varve index` must report)
    "go": (layouts.go_gzip, GZIP, "gzip"),
    "pigz": (layouts.piped("pigz", "-n", "-p2"), GZIP, "gzip"),
    "pigz-independent": (layouts.piped("pigz", "-n", "-i", "-b", "64"), GZIP, "gzip"),
    "gzip-1": (layouts.piped("gzip", "-n", "-1"), GZIP, "gzip"),
    "gzip-9": (layouts.piped("gzip", "-n", "-9"), GZIP, "gzip"),
    "gzip-rsyncable": (layouts.piped("gzip", "-n", "--rsyncable"), GZIP, "gzip"),
    "stored": (layouts.zlib_gzip(level=0), GZIP, "gzip"),
    "fixed-codes": (layouts.zlib_gzip(strategy=zlib.Z_FIXED), GZIP, "gzip"),
    "huffman-only": (layouts.zlib_gzip(strategy=zlib.Z_HUFFMAN_ONLY), GZIP, "gzip"),
    "full-flushes": (layouts.zlib_gzip(flush_every=70_001, flush=zlib.Z_FULL_FLUSH), GZIP, "gzip"),
    "sync-flushes": (layouts.zlib_gzip(flush_every=10_007, flush=zlib.Z_SYNC_FLUSH), GZIP, "gzip"),
    "members": (layouts.members(300_007), GZIP, "gzip"),
    "tiny-members": (layouts.members(5_003), GZIP, "gzip"),
    "padded": (layouts.members(4_000_000, trailer=b"\0" * 700), GZIP, "gzip"),
    "gzip-header-fields": (layouts.gzip_with_names, GZIP, "gzip"),
    "zstd-single": (layouts.piped("zstd", "-q", "-c"), ZSTD, "zstd-single"),
    "zstd-19-long": (layouts.piped("zstd", "-q", "-c", "-12", "--long=27"), ZSTD, "zstd-single"),
    "zstd-frames": (layouts.zstd_frames(400_000), ZSTD, "zstd"),
    "zstd-frames-no-size": (layouts.zstd_frames(900_000, "--no-check"), ZSTD, "zstd"),
    "zstd-seekable": (layouts.zstd_seekable, ZSTD, "zstd"),
    "tar": (lambda tar, work: tar, TAR, "tar"),
}


def salted(tars, expected, name):
    """The same layers with one more file each, so that no two formats share a layer: the store would answer for the decoder."""
    marks = [horrors.file_entry(b"salt-%d" % number, name.encode()) for number in range(len(tars))]
    longer = [b"".join(Tar().file(path, name.encode()).blocks) + tar for (path, _), tar in zip(marks, tars)]
    return longer, expected | dict(marks)


def check_format(varve, failures, image, label, wanted, expected, wanted_modes):
    try:
        report = varve.index(image)
    except AssertionError as error:
        return failures.add(label, [str(error)])
    found = [layer["format"] for layer in report["layers"]]
    if any(f != wanted for f in found):
        failures.add(label, [f"layers are reported as {found}, expected {wanted}"])
    compare_mounts(varve, failures, image, expected, label, wanted_modes)


def reference_tree(work, tars):
    expected = scan(unpack(layouts.gzip_image(work / "reference", tars), work / "b"))
    shutil.rmtree(work / "b")
    # umoci gives a root without an entry the time of unpacking.
    expected[b"."].mtime_ns = 0
    return expected


def case_formats(work, varve, failures):
    tars = realistic_layers()
    expected, wanted_modes = reference_tree(work, tars), modes()
    for name, (compress, media_type, wanted) in FORMATS.items():
        own_tars, own_tree = salted(tars, expected, name)
        image = layouts.write_image(work / name, [(compress(tar, work), tar, media_type, None) for tar in own_tars])
        # Each format once, in the mode that has the least between it and the decoder; the first one in both.
        check_format(varve, failures, image, name, wanted, own_tree, wanted_modes if name == "go" else wanted_modes[-1:])
        shutil.rmtree(work / name)


def case_tables(work, varve, failures):
    """Layers that carry a table of contents, made here by the sheet and by the tools that make them."""
    tars = realistic_layers()
    expected, wanted_modes = reference_tree(work, tars), modes()
    for dialect in ("new", "old"):
        own_tars, own_tree = salted(tars, expected, dialect)
        layers = [(*layouts.zstd_chunked(tar, dialect), tar) for tar in own_tars]
        image = layouts.write_image(work / dialect, [(blob, tar, ZSTD, notes) for blob, notes, tar in layers])
        check_format(varve, failures, image, f"zstd:chunked, {dialect} dialect", "zstd-chunked", own_tree, wanted_modes)
    layers = [layouts.estargz(tar) for tar in tars]
    image = layouts.write_image(work / "estargz", [(blob, stream, GZIP, notes) for blob, notes, stream in layers])
    # Tools that do not know eStargz show its table and landmark as files; so does the oracle.
    visible = scan(unpack(image, work / "e"))
    visible[b"."].mtime_ns = 0
    check_format(varve, failures, image, "eStargz", "estargz", visible, wanted_modes)
    for compression, wanted in (("zstd:chunked", "zstd-chunked"), ("zstd", "zstd-single")):
        own_tars, own_tree = salted(tars, expected, "skopeo " + compression)
        made = skopeo_copy(work, layouts.gzip_image(work / f"source-{wanted}", own_tars), compression)
        check_format(varve, failures, made, f"skopeo {compression}", wanted, own_tree, wanted_modes[-1:])


def skopeo_copy(work, image, compression):
    import subprocess
    target = f"oci:{work}/skopeo-{compression.replace(':', '-')}:t"
    subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", "--dest-compress-format", compression, image, target], check=True, stdout=subprocess.DEVNULL)
    return target


def case_many(work, varve, failures):
    """127 layers, a directory of 20,000 entries, names in every layer, and 2,000 links to one file."""
    first = Tar().dir("many").dir("links").file("links/target", b"t")
    for i in range(20_000):
        first.file(f"many/entry-{i:06d}", b"")
    for i in range(2_000):
        first.hardlink(f"links/{i}", "links/target")
    tars = [first.bytes()]
    for i in range(1, 127):
        tars.append(Tar().dir("layer").file(f"layer/{i}", b"%d" % i).file("layer/always", b"%d" % i, mtime=1_600_000_000 + i).whiteout(f"many/entry-{i:06d}").bytes())
    image = layouts.gzip_image(work / "image", tars)
    expected = scan(unpack(image, work / "b"))
    expected[b"."].mtime_ns = 0
    varve.index(image)
    compare_mounts(varve, failures, image, expected, "127 layers", modes())


def case_large(work, varve, failures):
    """A file above 4 GiB, nearly all of it holes in the tar, with marks where a 32-bit offset would wrap."""
    import os
    from tars import REGULAR, header, padded, pax
    size, at = (4 << 30) + (3 << 20), [0, (2 << 30) - 512, (4 << 30) - 512, 4 << 30, (4 << 30) + (3 << 20) - 512]
    marks = {offset: bytes([65 + i]) * 512 for i, offset in enumerate(at)}
    table = padded(b"%d\n" % len(at) + b"".join(b"%d\n512\n" % offset for offset in at))
    tar = Tar().raw(pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"), (b"GNU.sparse.name", b"large"), (b"GNU.sparse.realsize", b"%d" % size)]))
    tar.raw(header(b"GNUSparseFile.0/large", REGULAR, size=len(table) + 512 * len(at)) + table + b"".join(marks.values()))
    image = layouts.gzip_image(work / "image", [tar.bytes()])
    varve.index(image)
    for mode in modes():
        with varve.mounted(image, mode) as tree, open(os.path.join(tree, "large"), "rb") as file:
            if os.fstat(file.fileno()).st_size != size:
                failures.add(f"large, {mode} mode", [f"size is {os.fstat(file.fileno()).st_size}, expected {size}"])
            for offset, mark in marks.items():
                file.seek(max(0, offset - 8))
                found = file.read(528)[(0 if offset == 0 else 8):][:512]
                if found != mark:
                    failures.add(f"large, {mode} mode", [f"at {offset}: {found[:8]!r}, expected {mark[:8]!r}"])
            file.seek(1 << 30)
            if file.read(1 << 16) != b"\0" * (1 << 16):
                failures.add(f"large, {mode} mode", ["a hole does not read as zeros"])


CASES = {name.removeprefix("case_"): function for name, function in list(globals().items()) if name.startswith("case_")}


def main():
    if len(sys.argv) != 2 or sys.argv[1] not in CASES:
        sys.exit(f"usage: test_trees.py {'|'.join(CASES)}")
    need_root()
    need_fuse()
    need_tools("umoci", "skopeo", "zstd", "pigz")
    failures = Failures()
    with work_folder() as work, Varve(work) as varve:
        CASES[sys.argv[1]](work, varve, failures)
    failures.finish()


if __name__ == "__main__":
    main()
