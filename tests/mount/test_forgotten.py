#!/usr/bin/python3
"""What a machine keeps of an image beside the store, its index and its tree, goes with `images rm`: nothing of another image, which mounts while its registry is away; and the image
mounts again when somebody wants it."""
import json, os, subprocess, time
from pathlib import Path

from images import layouts, Source, Tar
from machine import expect, wait_for
from program import modes, need_fuse, need_root, need_tools, Varve, work_folder

LATER = ("application/vnd.varve.layer-entries.", "application/vnd.varve.windows.")  # fetched when somebody needs them
CONTENTS = {tag: {"data/shared": b"of both\n" * 2000, f"data/{tag}": tag.encode() * 5000} for tag in ("first", "second")}


def make_images(folder):
    shared = Tar().dir("data").file("data/shared", CONTENTS["first"]["data/shared"]).bytes()
    for tag, contents in CONTENTS.items():
        own = Tar().file(f"data/{tag}", contents[f"data/{tag}"]).bytes()
        image = layouts.write_image(folder.parent / tag, [(layouts.gzip.compress(tar, mtime=0), tar, layouts.GZIP, None) for tar in (shared, own)], tag=tag)
        subprocess.run(["skopeo", "--insecure-policy", "copy", "--quiet", image, f"oci:{folder}:{tag}"], check=True, timeout=120)


def kept(varve):
    return {path for name in ("index/blobs/sha256", "trees") for path in (varve.root / name).iterdir()}


def blobs_of(folder):
    """Tag -> names of the blobs that a mount needs, of its own and of its index."""
    def read(digest):
        return json.loads((folder / "blobs" / digest.replace(":", "/")).read_text())
    entries = json.loads((folder / "index.json").read_text())["manifests"]
    found = {}
    for entry in entries:
        tag = entry.get("annotations", {}).get("org.opencontainers.image.ref.name")
        if tag in CONTENTS:
            indexes = [one["digest"] for one in entries if read(one["digest"]).get("subject", {}).get("digest") == entry["digest"]]
            digests = [entry["digest"], read(entry["digest"])["config"]["digest"], *indexes, *(layer["digest"] for index in indexes for layer in read(index)["layers"] if not layer["mediaType"].startswith(LATER))]
            found[tag] = {digest.removeprefix("sha256:") for digest in digests}
    return found


def made_long_ago(varve):
    then = time.time() - 7200
    for path in kept(varve):
        os.utime(path, (then, then))


def check_reads(varve, image, tag, mode):
    with varve.mounted(image, mode) as tree:
        for path, content in CONTENTS[tag].items():
            expect(Path(tree, path).read_bytes() == content, f"{mode}: {path} of {tag}")


def remove(varve, image):
    """A layer may still be fetched, ahead of nobody any more."""
    wait_for("its layers are left alone", lambda: (done := varve.run("images", "rm", image)).returncode != 75 and expect(done.returncode == 0, done.stderr) is None, every=0.1)


def main():
    need_root(), need_fuse(), need_tools("skopeo")
    with work_folder() as work, Varve(work / "indexer") as indexer:
        indexer.work.mkdir()
        make_images(work / "image")
        for tag in CONTENTS:
            indexer.index(f"oci:{work}/image:{tag}")
        blobs = blobs_of(work / "image")
        for mode in modes():
            with Source(work / "image") as source, Varve(work / mode) as varve:
                varve.work.mkdir()
                varve.config = varve.work / "varve.toml"
                varve.config.write_text("[daemon]\nkeep-mounted = 0\n")
                varve.environment["VARVE_CONFIG"] = str(varve.config)
                first, second = (source.reference.replace(":latest", f":{tag}") for tag in CONTENTS)
                check_reads(varve, second, "second", mode)

                def is_forgotten():
                    check_reads(varve, first, "first", mode)
                    expect(blobs["first"] <= {path.name for path in kept(varve)}, f"{mode}: what a mount needs is kept")
                    made_long_ago(varve)
                    remove(varve, first)
                    left = {path.name for path in kept(varve)}
                    expect(blobs["second"] <= left, f"{mode}: gone {blobs['second'] - left}")
                    return not (blobs["first"] - blobs["second"]) & left
                # What its layers hold is learnt after the mount: if that came just now, the index that names it stays for an hour.
                wait_for(f"{mode}: nothing that the first alone needs", is_forgotten)
                trees = {path.stem for path in kept(varve) if path.suffix == ".erofs"}
                expect(len(trees) == 1 and trees <= blobs["second"], f"{mode}: trees {trees}")
                expect(varve.json("verify", "--store")["bad"] == [], "the store is verified by what stays")
                check_reads(varve, first, "first", mode)
                source.server.shutdown(), source.server.server_close()
                check_reads(varve, second, "second", mode)
        check_made_here(work)


def check_made_here(work):
    """Nobody else may have it."""
    with Varve(work / "own") as varve:
        varve.work.mkdir()
        image = f"oci:{work}/image:first"
        varve.run("index", "--force", "--to", f"oci:{work}/elsewhere", image, check=True)
        check_reads(varve, image, "first", "fuse")
        before = {path for path in kept(varve) if path.suffix == ".erofs"}
        made_long_ago(varve)
        varve.run("images", "rm", "--force", image, check=True)
        expect({path for path in kept(varve) if path.suffix == ".erofs"} == before, "the tree of an index that was made here stays")


if __name__ == "__main__":
    main()
