#!/usr/bin/env python3
"""ls, cat and inspect look into images of every layer format; what they say is held against the tar that was put in."""
import hashlib, random, subprocess, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import horrors, layouts, program, tars  # noqa: E402

NOT_UTF8 = b"data/latin-\xe9"


def contents():
    """Path -> content: small files, one over many spans, one of text, all the same in every run."""
    rng = random.Random(7)
    words = [b"%d" % rng.randrange(1 << 40) for _ in range(300)]
    text = lambda count: b" ".join(rng.choice(words) for _ in range(count))  # noqa: E731
    files = {f"data/small-{i:03}".encode(): text(20 + i) for i in range(100)}
    files[b"data/large"] = rng.randbytes(3_000_000) + text(200_000)
    files[b"data/empty"] = b""
    files[NOT_UTF8] = b"a name of bytes\n"
    return files


def make_tar(files):
    tar = tars.Tar().dir("data")
    for path, data in files.items():
        tar.file(path, data)
    tar.symlink("data/link", "large").symlink("data/up", "../data/small-001")
    tar.dir("sparse")
    horrors.sparse(tar)
    return tar.bytes()


FORMATS = {
    "gzip": (layouts.zlib_gzip(level=6), layouts.GZIP),
    "zstd": (layouts.zstd_frames(300_000, "-3"), layouts.ZSTD),
    "zstd-single": (layouts.piped("zstd", "-q", "-c", "-3"), layouts.ZSTD),
    "tar": (lambda tar, work: tar, layouts.TAR),
}


def check_cat(varve, image, files):
    for path in [b"data/large", b"data/small-007", b"data/empty", NOT_UTF8]:
        done = subprocess.run([varve.binary, "cat", image, b"/" + path], stdout=subprocess.PIPE, check=True, env=varve.environment)
        assert done.stdout == files[path], f"{image}: cat {path} gives {len(done.stdout)} bytes of {len(files[path])}"
    two = varve.run("cat", image, "data/link", "/data/up", check=True).stdout
    assert two == files[b"data/large"] + files[b"data/small-001"], f"{image}: links are followed, files follow each other"
    expected = bytearray((1 << 20) + 1024)
    expected[4096:4608], expected[1 << 20:] = b"A" * 512, b"B" * 1024
    for name in ("pax-0.0", "pax-0.1", "pax-1.0"):
        assert varve.run("cat", image, f"/sparse/{name}", check=True).stdout == expected, f"{image}: {name}"
    assert varve.run("cat", image, "/sparse/only-a-hole", check=True).stdout == bytes(300_000)


def check_ls(varve, image, files):
    entries = {e["path"]: e for e in varve.json("ls", "-R", image)["entries"]}
    for path, data in files.items():
        shown = path.decode() if path != NOT_UTF8 else "data/latin-\\xe9"
        assert entries[shown]["bytes"] == len(data) and entries[shown]["type"] == "file", entries[shown]
    assert entries["data/latin-\\xe9"]["escaped"] is True
    assert entries["data/link"]["target"] == "large" and entries["data"]["type"] == "directory"
    names = varve.run("ls", image, "/data/", check=True).stdout.decode().splitlines()
    assert names == sorted(names) and "large" in names and len(names) == len(files) + 2, names
    line = varve.run("ls", "-l", image, "data/link", check=True).stdout.decode()
    assert line.startswith("lrwxrwxrwx") and line.endswith("data/link -> large\n"), line


def check_inspect(varve, image, expected_format, tar, index):
    seen = varve.json("inspect", image)
    assert seen["indexed"] and seen["index"] == index["index"] and seen["indexed_by"].startswith("varve "), seen
    layer = seen["layers"][0]
    assert (layer["format"], layer["stream_bytes"]) == (expected_format, len(tar)), layer
    assert seen["index_bytes"] == index["index_bytes"] and seen["first_load_bytes"] == index["first_load_bytes"]


def check_errors(varve, image, folder):
    for arguments, said in ((("cat", image, "/data"), b"not a regular file"), (("cat", image, "/nothing"), b"no such file"), (("ls", image, "/nothing"), b"no such file")):
        done = varve.run(*arguments)
        assert done.returncode == 1 and said in done.stderr and done.stderr.count(b"\n") == 1, (arguments, done)
    fresh = layouts.gzip_image(folder / "fresh", [tars.Tar().file("a", b"b").bytes()])
    assert varve.json("inspect", fresh)["indexed"] is False
    done = varve.run("ls", fresh)
    assert done.returncode == 1 and b"varve index" in done.stderr, done


def main():
    program.need_tools("zstd")
    files = contents()
    tar = make_tar(files)
    with program.work_folder() as work, program.Varve(work) as varve:
        for name, (compress, media_type) in FORMATS.items():
            image = layouts.write_image(work / name, [(compress(tar, work), tar, media_type, None)])
            index = varve.index(image)
            assert index["layers"][0]["format"] == name, index
            check_cat(varve, image, files)
            check_ls(varve, image, files)
            check_inspect(varve, image, name, tar, index)
            print(f"{name}: {index['layers'][0]['spans']} spans, {hashlib.sha256(tar).hexdigest()[:12]}", flush=True)
        check_errors(varve, image, work)


main()
