"""What `varve image optimize` writes unpacks to the same image, for tools that are not ours, and is the same bytes at any number of jobs."""
import base64, gzip, hashlib, json, random, subprocess, sys

import horrors
import layouts
from layouts import GZIP, ZSTD
from program import Varve, modes, need_fuse, need_root, need_tools, unpack, work_folder
from scan import differences, scan
from tars import Tar
from test_export import run
from test_trees import realistic_layers


def python_like_layer():
    """Many small files, some large, one that is mostly zeros, in the order pip writes them."""
    noise, tar = random.Random(8), Tar()
    tar.dir("usr").dir("usr/lib").dir("usr/lib/p")
    for i in range(300):
        tar.file(f"usr/lib/p/m{i:04d}.py", b"import os, sys\n# line\n" * noise.randrange(0, 60))
    tar.file("usr/lib/p/big.so", noise.randbytes(5_000_000) + b"\0" * 3_000_000 + noise.randbytes(900_000), mode=0o755)
    return tar.bytes()


def manifest_and_blob(reference):
    manifest = json.loads(run("skopeo", "inspect", "--raw", reference))
    return manifest, [layouts.blob_path(reference, layer["digest"]).read_bytes() for layer in manifest["layers"]]


def frame(blob, position):
    offset, size, content = (int(n) for n in position.split(":")[:3])
    data = subprocess.run(["zstd", "-dc"], input=blob[offset:offset + size], stdout=subprocess.PIPE, check=True).stdout
    return blob[offset:offset + size], data if len(data) == content else None


def files_end(toc, entry):
    """Where the frames of the file end that a chunk belongs to."""
    return next(e["endOffset"] for e in toc["entries"] if e["type"] == "reg" and e["name"] == entry["name"])


def check_tables(label, layer, blob, tar):
    """The table of contents and the tar-split read as the format's sheet says, without a line of ours."""
    prefix, lines = "io.github.containers.zstd-chunked.", []
    note = layer["annotations"]
    packed, toc = frame(blob, note[prefix + "manifest-position"])
    packed_split, split = frame(blob, note[prefix + "tarsplit-position"])
    toc = json.loads(toc)
    if "sha256:" + hashlib.sha256(packed).hexdigest() != note[prefix + "manifest-checksum"] or toc["tarSplitDigest"] != "sha256:" + hashlib.sha256(packed_split).hexdigest():
        lines.append(f"{label}: digests of the tables")
    offsets = [int(note[prefix + "manifest-position"].split(":")[0]), len(packed)]
    if blob[-8:] != b"GNUlInUx" or int.from_bytes(blob[-64:-56], "little") != offsets[0]:
        lines.append(f"{label}: footer")
    contents, order = {}, []
    for i, entry in enumerate(toc["entries"]):
        if "offset" not in entry:
            continue
        order.append((entry["offset"], entry, i))
    ends = [at for at, _, _ in order[1:]] + [order[-1][1].get("endOffset")] if order else []
    for (at, entry, _), following in zip(order, ends):
        end = entry["endOffset"] if "endOffset" in entry and "chunkSize" not in entry else min(following or len(blob), files_end(toc, entry))
        piece = subprocess.run(["zstd", "-dc"], input=blob[at:end], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        size = entry.get("chunkSize", entry.get("size"))
        contents.setdefault(entry["name"], bytearray()).extend(piece[:size])
        if "chunkDigest" in entry and entry["chunkDigest"] != "sha256:" + hashlib.sha256(piece[:size]).hexdigest():
            lines.append(f"{label}: chunk of {entry['name']}")
    for entry in toc["entries"]:
        if entry["type"] == "reg" and entry.get("size") and entry["digest"] != "sha256:" + hashlib.sha256(contents[entry["name"]]).hexdigest():
            lines.append(f"{label}: content of {entry['name']}")
    again = bytearray()
    for line in split.splitlines():
        item = json.loads(line)
        again += base64.b64decode(item["payload"]) if item["type"] == 2 else contents[item["name"]] if item.get("size") else b""
    if bytes(again) != tar:
        lines.append(f"{label}: the tar-split does not give the tar")
    return lines


def same_image(work, varve, label, image, tars, expected, *options):
    """Returns what differs, and the new image's reference."""
    target = f"oci:{work}/{label}:new"
    old = layouts.manifest_of(image)[1]
    report = varve.json("image", "optimize", image, target, *options)
    new, blobs = manifest_and_blob(target)
    lines = []
    if new["config"]["digest"] != old["config"]["digest"]:
        lines.append("the config changed")
    for tar, layer, blob in zip(tars, new["layers"], blobs):
        command = "gzip" if layer["mediaType"] == GZIP else "zstd"
        if subprocess.run([command, "-dc"], input=blob, stdout=subprocess.PIPE).stdout != tar:
            lines.append(f"{command} -dc does not give the tar of layer {layer['digest']}")
    run("skopeo", "copy", "--insecure-policy", target, f"oci:{work}/{label}-copy:t")  # which checks manifest and blobs
    varve.index(target)
    for mode in modes():
        with varve.mounted(target, mode) as tree:
            lines += [f"{mode}: {line}" for line in differences(expected, scan(tree))]
    return [f"{label}: {line}" for line in lines], target, report


def formats(work, varve):
    tars = [*realistic_layers(), python_like_layer()]
    image = layouts.gzip_image(work / "image", tars)
    expected = scan(unpack(image, work / "expected"))
    lines, chunked, report = same_image(work, varve, "chunked", image, tars, expected)
    new, blobs = manifest_and_blob(chunked)
    for layer, blob, tar in zip(new["layers"], blobs, tars):
        lines += check_tables("chunked", layer, blob, tar)
    if report["new_bytes"] != sum(layer["size"] for layer in new["layers"]) or not all(layer["table_of_contents"] for layer in report["layers"]):
        lines.append(f"chunked: a wrong report: {report}")
    for jobs in ("1", "5"):
        again = varve.json("image", "optimize", image, f"oci:{work}/jobs{jobs}:t", "--jobs", jobs)
        if again["image"] != report["image"]:
            lines.append(f"--jobs {jobs} changes the image")
    lines += same_image(work, varve, "gzipped", chunked, tars, expected, "--format", "gzip")[0]
    kept = varve.json("image", "optimize", image, f"oci:{work}/kept:t", "--keep-layers", "2")
    if [layer["kept"] for layer in kept["layers"]] != [True, True, False] or kept["layers"][0]["digest"] != layouts.manifest_of(image)[1]["layers"][0]["digest"]:
        lines.append(f"--keep-layers 2: {kept}")
    idle = varve.json("image", "optimize", chunked, f"oci:{work}/idle:t")
    if idle["new_bytes"] or not all(layer["kept"] for layer in idle["layers"]):
        lines.append(f"what has the form is written anew: {idle}")
    return lines


def single_frame_is_cured(work, varve):
    tar = python_like_layer()
    image = layouts.write_image(work / "single", [(layouts.piped("zstd", "-q")(tar, work), tar, ZSTD, None)])
    before = varve.index(image)["layers"][0]["format"]
    varve.run("image", "optimize", image, f"oci:{work}/cured:t", check=True)
    after = varve.index(f"oci:{work}/cured:t")["layers"][0]["format"]
    return [] if (before, after) == ("zstd-single", "zstd-chunked") else [f"single frame: {before} becomes {after}"]


def horrible_tars(work, varve):
    """Sparse files, double names, names of any bytes: no table, but the same tree."""
    tars = horrors.image_tars()
    image = layouts.gzip_image(work / "horrors", tars)
    expected = horrors.corrected(scan(unpack(image, work / "horrors-tree")))
    target = f"oci:{work}/horrors-new:t"
    done = varve.run("image", "optimize", image, target, check=True)
    lines = [] if b"cannot pull it in parts" in done.stderr else ["horrors: no word about layers without a table"]
    varve.index(target)
    for mode in modes():
        with varve.mounted(target, mode) as tree:
            lines += [f"horrors, {mode}: {line}" for line in differences(expected, scan(tree))]
    return lines


def broken(work, varve):
    lines, tars = [], realistic_layers()
    damaged = layouts.gzip_image(work / "damaged", tars)
    digest = layouts.manifest_of(damaged)[1]["layers"][1]["digest"]
    blob = layouts.blob_path(damaged, digest)
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)
    swapped = layouts.write_image(work / "swapped", [(gzip.compress(tars[0], mtime=0), tars[1], GZIP, None)])
    for image, word in ((damaged, digest.encode()), (swapped, b"config says")):
        done = varve.run("image", "optimize", image, f"oci:{work}/never:t")
        index = work / "never/index.json"
        if done.returncode != 1 or word not in done.stderr or done.stderr.count(b"\n") != 1 or index.exists() and json.loads(index.read_text())["manifests"]:
            lines.append(f"a damaged layer: {done}")
    # A full disk: the old image is as it was, nothing can be found, and with room again the run ends well.
    small = work / "small"
    small.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", small)
    try:
        good = layouts.gzip_image(work / "good", tars)
        done = varve.run("image", "optimize", good, f"oci:{small}/new:t")
        left = json.loads((small / "new/index.json").read_text())["manifests"] if (small / "new/index.json").exists() else []
        if done.returncode not in (1, 75) or b"space" not in done.stderr or left or list((small / "new").rglob("*tmp*")):
            lines.append(f"a full disk: {done} {left} {list(small.rglob('*'))}")
        run("mount", "-o", "remount,size=64m", small)
        varve.run("image", "optimize", good, f"oci:{small}/new:t", check=True)
    finally:
        run("umount", small)
    for words in (("--level", "12", "--format", "gzip"), ("--level", "0"), ("--format", "lz4")):
        done = varve.run("image", "optimize", good, f"oci:{work}/w:t", *words)
        if done.returncode != 2:
            lines.append(f"{words}: {done}")
    return lines


def main():
    need_root()
    need_tools("umoci", "skopeo", "gzip", "zstd")
    need_fuse()
    with work_folder() as work, Varve(work) as varve:
        lines = formats(work, varve) + single_frame_is_cured(work, varve) + horrible_tars(work, varve) + broken(work, varve)
        print("\n".join(lines))
        sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
