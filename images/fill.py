#!/usr/bin/python3
"""Made-up content with the file sizes and the entropy of a real image.

  fill.py LAYOUT[:TAG] > images/fill/mix.toml    measures an image: how many files of which size, and how well files of that size compress

build.py writes such images (`--fill BYTES --files N`). Equal options give equal tars: everything comes from one seed."""
import functools, io, json, random, sys, tarfile, tomllib, zlib
from pathlib import Path

CLASSES = 10         # of compressibility: compressed size / size, in steps of a tenth
SAMPLE = 64 << 10    # of a large file this much is compressed, in four places
SMALL = 1 << 20      # files of this size and more are made larger or smaller until the sum is right: the many small ones stay as they are
POOL_MAX = 4 << 20   # more than the two MiB that zstd looks back at its usual levels
NAMES = "usr/local/lib/python3.11/dist-packages"


# ---------------------------------------------------------------- measuring


def bucket_of(size):
    """Files of bucket n have more than 2^(n-1) and up to 2^n bytes; bucket 0 has one byte, and -1 none."""
    return (size - 1).bit_length() if size else -1


def ratio_of(data):
    if len(data) > 4 * SAMPLE:
        step = (len(data) - SAMPLE) // 3
        data = b"".join(data[i * step:i * step + SAMPLE] for i in range(4))
    return min(1.0, len(zlib.compress(data, 6)) / len(data))


def measure(layout, tag):
    index = json.loads((layout / "index.json").read_text())
    named = {m.get("annotations", {}).get("org.opencontainers.image.ref.name"): m for m in reversed(index["manifests"])}
    manifest = named[tag] if tag else index["manifests"][0]
    blob = lambda digest: layout / "blobs" / digest.replace(":", "/")  # noqa: E731
    buckets, folders = {}, set()
    for layer in json.loads(blob(manifest["digest"]).read_text())["layers"]:
        with tarfile.open(blob(layer["digest"]), "r|gz", bufsize=1 << 20) as tar:
            for member in tar:
                if not member.isreg():
                    continue
                folders.add(member.name.rpartition("/")[0])
                count = buckets.setdefault(bucket_of(member.size), [0, 0, [0] * CLASSES])
                count[0] += 1
                count[1] += member.size
                if member.size:
                    count[2][min(CLASSES - 1, int(ratio_of(tar.extractfile(member).read()) * CLASSES))] += 1
    return manifest["digest"], buckets, len(folders)


def print_mix(source, digest, buckets, folders):
    files, size = sum(b[0] for b in buckets.values()), sum(b[1] for b in buckets.values())
    print(f"# The mix of {source} ({digest[:19]}): {files} files, {size} bytes, {folders} folders with files; measured by images/fill.py.")
    print("# A bucket: files of more than 2^(power-1) and up to 2^power bytes (power -1: empty); mean_bytes of one; ratios: files whose zlib -6 size")
    print("# is up to 0.1, 0.2 … 1.0 of theirs (up to 256 KiB of each file, from four places).")
    print(f"files_per_folder = {files / folders:.1f}")
    for power, (count, total, ratios) in sorted(buckets.items()):
        print(f"\n[[bucket]]\npower = {power}\nfiles = {count}\nmean_bytes = {total // count}\nratios = {ratios}")


# ---------------------------------------------------------------- writing


def shared_out(total, weights):
    """Whole numbers with this sum, as the weights have it: the largest remainders get one more."""
    exact = [total * weight / sum(weights) for weight in weights]
    found = [int(one) for one in exact]
    for place in sorted(range(len(exact)), key=lambda n: (found[n] - exact[n], n))[:total - sum(found)]:
        found[place] += 1
    return found


def sizes_in(bucket, count, chance):
    """Sizes within the bucket whose mean is about that of the real files."""
    if bucket["power"] < 1:
        return [bucket["mean_bytes"]] * count
    low, high = (1 << bucket["power"] - 1) + 1, 1 << bucket["power"]
    bend = (high - bucket["mean_bytes"]) / max(1, bucket["mean_bytes"] - low)  # of x^bend over 0..1 the mean is 1 / (1 + bend)
    return [low + int((high - low) * chance.random() ** bend) for _ in range(count)]


def plan(mix, total, wanted, seed):
    """[(size, class of compressibility)] of all files, in the order they are written."""
    chance, files = random.Random(seed), []
    for bucket, count in zip(mix["bucket"], shared_out(wanted, [b["files"] for b in mix["bucket"]])):
        classes = [n for n, files_of in enumerate(shared_out(count, bucket["ratios"])) for _ in range(files_of)] if sum(bucket["ratios"]) else [0] * count
        files += zip(sizes_in(bucket, count, chance), classes)
    files.sort()
    first = next((n for n, (size, _) in enumerate(files) if size >= SMALL), 0)
    small, large = sum(size for size, _ in files[:first]), sum(size for size, _ in files[first:])
    factor = (total - small) / max(1, large)
    if not 0.05 <= factor <= 20:
        sys.exit(f"--fill: {wanted} files of this mix have about {small + large} bytes; {total} would be another mix. "
                 f"Ask for {small + large // 10} to {small + 10 * large} bytes, or another number of files")
    files[first:] = [(int(size * factor), kind) for size, kind in files[first:]]
    files[-1] = (files[-1][0] + total - sum(size for size, _ in files), files[-1][1])
    chance.shuffle(files)
    return files


def pool_of(ratio, size, chance):
    """Bytes that deflate makes about `ratio` of: noise, which stays as it is, and repetitions of what came shortly before, which cost some three bytes each.
    Very compressible ones are runs. Files below some 2 KiB come out less compressible than real ones: what they repeat lies before them in the pool."""
    noise, out = chance.randbytes(size), bytearray(chance.randbytes(64))
    if ratio < 0.09:
        while len(out) < size:
            out += bytes([chance.randrange(256)]) * chance.randrange(100, 600)
        return bytes(out[:size])
    # A piece of noise has 16 bytes and costs 16.3; a repetition has 40 in the middle and costs 3.2.
    share = min(1.0, (40 * ratio - 3.2) / (13.1 + 24 * ratio))
    while len(out) < size:
        if chance.random() < share:
            out += noise[len(out):len(out) + 16]
        else:
            start = len(out) - chance.randrange(64, min(600, len(out)) + 1)
            out += out[start:start + chance.randrange(16, 65)]
    return bytes(out[:size])


class Slice(io.RawIOBase):
    """Bytes of a pool from anywhere in it, round and round. The pool's size is odd, so a round never lies as the one before."""

    def __init__(self, pool, start, size):
        self.pool, self.at, self.left = pool, start, size

    def read(self, size=-1):
        size = min(self.left if size < 0 else size, self.left)
        out = self.pool[self.at:self.at + size]
        while len(out) < size:
            out += self.pool[:size - len(out)]
        self.at, self.left = (self.at + size) % len(self.pool), self.left - size
        return out


@functools.cache
def prepared(mix_file, size, count, seed):
    """The mix, the files and the pools of an image: once for all its layers."""
    mix = tomllib.loads(mix_file.read_text())
    pool_size = min(POOL_MAX, max(1 << 18, size // 64)) | 1
    return mix, plan(mix, size, count, seed), [pool_of((n + 0.5) / CLASSES, pool_size, random.Random(seed * CLASSES + n)) for n in range(CLASSES)]


def write_part(layer, recipe):
    """The files of one layer: every n-th of all."""
    fill, part = recipe["fill"], layer["part"]
    mix, files, pools = prepared(recipe["folder"] / layer["mix"], fill["bytes"], fill["files"], fill["seed"])
    in_folder = max(1, round(mix["files_per_folder"]))

    def write(sink):
        chance = random.Random(fill["seed"] * 1009 + part)
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 20, copybufsize=1 << 20) as tar:
            for number, (size, kind) in enumerate(files[part::fill["parts"]]):
                folder = number // in_folder
                info = tarfile.TarInfo(f"{NAMES}/fill{part}_{folder // 8}/part{folder % 8}/file{number}.bin")
                info.size, info.mode, info.mtime = size, 0o644, recipe["epoch"]
                tar.addfile(info, Slice(pools[kind], chance.randrange(len(pools[kind])), size))
    return write


def main():
    layout, _, tag = sys.argv[1].partition(":") if len(sys.argv) == 2 else sys.exit(__doc__)
    print_mix(tag or Path(layout).name, *measure(Path(layout), tag))


if __name__ == "__main__":
    main()
