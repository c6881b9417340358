"""Damaged and malicious images: each is refused with exit 1 and one line that names the object, and leaves nothing behind."""
import gzip, os, shutil, sys

import layouts
from layouts import GZIP
from program import Varve, modes, need_fuse, need_root, work_folder
from tars import Tar, header, pax


def good_tar():
    return Tar().dir("d").file("d/file", bytes(range(256)) * 4000).file("d/other", b"x" * 3000).bytes()


def flipped(path, at):
    data = bytearray(path.read_bytes())
    data[at if at >= 0 else len(data) + at] ^= 0x10
    path.chmod(0o644)
    path.write_bytes(bytes(data))


def files_of(folder):
    return {str(p.relative_to(folder)): p.stat().st_size for p in folder.rglob("*") if p.is_file()} if folder.exists() else {}


class Checks:
    def __init__(self, work):
        self.work, self.lines, self.count = work, [], 0

    def image(self, name, tars):
        return layouts.gzip_image(self.work / name, tars)

    def refused(self, label, image, names, arguments=("index",), varve=None):
        """exit 1; one line on stderr that holds one of `names`; the image folder as it was."""
        self.count += 1
        folder = self.work / image.removeprefix("oci:").rsplit(":", 1)[0]
        before = files_of(folder)
        state = self.work / f"state-{self.count}"
        with (varve or Varve(state)) as program:
            done = program.run(*arguments, image, *(() if arguments[0] == "index" else (self.mount_point(),)))
        error = done.stderr.decode(errors="replace").strip()
        said = [line for line in error.splitlines() if "error" in line.lower()] or error.splitlines()
        if done.returncode != 1:
            self.lines.append(f"{label}: exit {done.returncode}, expected 1; it said: {error[-300:]}")
        elif len(said) != 1:
            self.lines.append(f"{label}: expected one line of error, found {len(said)}: {error[-600:]}")
        elif not any(name in said[0] for name in names):
            self.lines.append(f"{label}: the error names none of {names}: {said[0]}")
        if files_of(folder) != before:
            self.lines.append(f"{label}: files were left in or taken from the image: {sorted(set(files_of(folder)) ^ set(before))[:5]}")
        left = [name for name in files_of(state) if "tmp" in name or ".unfinished" in name or ".part" in name]
        if left:
            self.lines.append(f"{label}: half-written files were left in the state folder: {left[:5]}")

    def mount_point(self):
        point = self.work / f"point-{self.count}"
        point.mkdir(exist_ok=True)
        return point


def damaged_layers(checks):
    for label, damage in (("flipped bit in the middle of a layer", 4000), ("flipped bit in the gzip header", 1), ("flipped bit in the gzip trailer", -6), ("flipped last bit", -1)):
        name = f"flip{damage}"
        image = checks.image(name, [good_tar()])
        layer = layouts.manifest_of(image)[1]["layers"][0]["digest"]
        flipped(layouts.blob_path(image, layer), min(damage, layouts.blob_path(image, layer).stat().st_size // 2) if damage > 0 else damage)
        checks.refused(label, image, [layer, layer[7:19]])
    image = checks.image("short", [good_tar()])
    layer = layouts.manifest_of(image)[1]["layers"][0]["digest"]
    path = layouts.blob_path(image, layer)
    path.write_bytes(path.read_bytes()[:-100])
    checks.refused("truncated layer", image, [layer, layer[7:19]])
    image = checks.image("absent", [good_tar()])
    layer = layouts.manifest_of(image)[1]["layers"][0]["digest"]
    layouts.blob_path(image, layer).unlink()
    checks.refused("missing layer", image, [layer, layer[7:19]])


def damaged_documents(checks):
    image = checks.image("manifest", [good_tar()])
    entry, manifest = layouts.manifest_of(image)
    flipped(layouts.blob_path(image, entry["digest"]), 20)
    checks.refused("flipped bit in the manifest", image, [entry["digest"], entry["digest"][7:19]])
    image = checks.image("config", [good_tar()])
    config = layouts.manifest_of(image)[1]["config"]["digest"]
    flipped(layouts.blob_path(image, config), 30)
    checks.refused("flipped bit in the config", image, [config, config[7:19]])
    folder = checks.work / "no-tag"
    layouts.gzip_image(folder, [good_tar()])
    checks.refused("a tag that is not there", f"oci:{folder}:other", ["other"])
    wrong = good_tar()
    image = layouts.write_image(checks.work / "diffid", [(gzip.compress(wrong, mtime=0), wrong + b"\0", GZIP, None)])
    layer = layouts.manifest_of(image)[1]["layers"][0]["digest"]
    checks.refused("a diff_id that is not the layer's", image, [layer, layer[7:19], layouts.digest(wrong + b"\0")])


def hostile_tars(checks):
    cases = {
        "a name with ..": (Tar().file("a/../../etc/passwd", b"x").bytes(), "etc/passwd"),
        "a hard link that leaves the root": (Tar().file("f", b"x").hardlink("l", "../../etc/shadow").bytes(), "shadow"),
        "a hard link to nothing": (Tar().hardlink("l", "nowhere").bytes(), "nowhere"),
        "a bad header checksum": (Tar().file("f", b"x").bytes()[:148] + b"0000000\0" + Tar().file("f", b"x").bytes()[156:], ""),
        "an entry cut short": (Tar().file("f", b"x" * 5000).bytes()[:2000], ""),
        "a size beyond 2^63": (header(b"f", b"0", tail=(124, b"\x80" + b"\xff" * 11)) + b"\0" * 1024, ""),
        "a negative size": (header(b"f", b"0", tail=(124, b"\xff" * 12)) + b"\0" * 1024, ""),
        "a pax record longer than its block": (header(b"p", b"x", size=20) + (b"999999999 path=x\n" + b"\0" * 512)[:512] + header(b"f", b"0") + b"\0" * 1024, ""),
        "a pax header of 1 GiB": (header(b"p", b"x", size=1 << 30) + b"\0" * 4096, ""),
        "a bare whiteout": (Tar().file(".wh.", b"").bytes(), ".wh."),
        "a name of 256 bytes": (Tar().file("n" * 256, b"").bytes(), ""),
        "a sparse map that runs backwards": (pax([(b"GNU.sparse.size", b"100"), (b"GNU.sparse.map", b"50,10,0,10"), (b"GNU.sparse.name", b"s")]) + header(b"s", b"0", size=20) + b"\0" * 1536, ""),
        "a sparse map beyond the file": (pax([(b"GNU.sparse.size", b"100"), (b"GNU.sparse.map", b"0,10,18446744073709551610,20"), (b"GNU.sparse.name", b"s")]) + header(b"s", b"0", size=30) + b"\0" * 1536, ""),
    }
    for number, (label, (tar, name)) in enumerate(cases.items()):
        image = checks.image(f"tar-{number}", [tar])
        layer = layouts.manifest_of(image)[1]["layers"][0]["digest"]
        checks.refused(label, image, [layer, layer[7:19]] + ([name] if name else []))


def symlinks_stay_inside(checks):
    """Legal, and harmless: what lies below a symlink to outside lands inside the root."""
    outside = checks.work / "outside"
    outside.mkdir()
    lower = Tar().symlink("escape", str(outside)).symlink("up", "../../../../../../../../.." + str(outside)).bytes()
    upper = Tar().file("escape/one", b"1").file("up/two", b"2").bytes()
    image = checks.image("symlinks", [lower, upper])
    with Varve(checks.work / "state-symlinks") as varve:
        done = varve.run("index", image)
        if done.returncode == 0:
            for mode in modes():
                with varve.mounted(image, mode) as tree:
                    inside = tree + str(outside)
                    found = sorted(os.listdir(inside)) if os.path.isdir(inside) else None
                    if found != ["one", "two"]:
                        checks.lines.append(f"entries below symlinks to outside ({mode} mode): expected them at the same path inside the root, found {found}")
        elif done.returncode != 1:
            checks.lines.append(f"entries below symlinks to outside: exit {done.returncode}")
    if list(outside.iterdir()):
        checks.lines.append("entries below symlinks to outside were written outside")


def damaged_index(checks):
    """Each blob of an index in turn gets one bit flipped, and is cut short: a mount refuses it, or reads are refused; never wrong bytes."""
    image, content = checks.image("indexed", [good_tar()]), bytes(range(256)) * 4000
    before = set(files_of(checks.work / "indexed"))
    with Varve(checks.work / "state-indexed") as varve:
        varve.index(image)
    added = sorted(name for name in set(files_of(checks.work / "indexed")) - before if name.startswith("blobs"))
    if not added:
        checks.lines.append("the index left no blob beside the image")
    for number, name in enumerate(added):
        for how in ("flipped", "cut"):
            copy = checks.work / f"damaged-{number}-{how}"
            shutil.copytree(checks.work / "indexed", copy)
            path = copy / name
            if how == "flipped":
                flipped(path, path.stat().st_size // 2)
            else:
                path.write_bytes(path.read_bytes()[:-1])
            with Varve(checks.work / f"state-{number}-{how}") as varve:
                point = checks.mount_point()
                done = varve.run("mount", "--mode", "fuse", f"oci:{copy}:t", point)
                if done.returncode == 0:
                    varve.mounts.append(str(point))
                    read_must_not_lie(checks, point / "d/file", content, f"index blob {name[-12:]} {how}")
                elif done.returncode != 1 or not done.stderr.strip():
                    checks.lines.append(f"index blob {name[-12:]} {how}: exit {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")


def read_must_not_lie(checks, path, content, label):
    try:
        if path.read_bytes() != content:
            checks.lines.append(f"{label}: wrong bytes were served")
    except OSError:
        pass  # refused: that is what damage must lead to


def damaged_layer_under_a_mount(checks):
    """The index is right, the layer changed afterwards: reads fail, nothing wrong is served or kept."""
    image, content = checks.image("under", [good_tar()]), bytes(range(256)) * 4000
    layer = layouts.manifest_of(image)[1]["layers"][0]["digest"]
    with Varve(checks.work / "state-under") as varve:
        varve.index(image)
        flipped(layouts.blob_path(image, layer), layouts.blob_path(image, layer).stat().st_size // 2)
        for mode in modes():
            with varve.mounted(image, mode) as tree:
                read_must_not_lie(checks, checks.work / tree / "d/file", content, f"layer changed under a mount, {mode} mode")


def index_of_another_image(checks):
    """A referrer that names this image as its subject, yet was made for another one."""
    import json
    first, second = checks.image("first", [good_tar()]), checks.image("second", [Tar().file("other", b"image" * 1000).bytes()])
    with Varve(checks.work / "state-first") as varve:
        varve.index(first)
        subject = layouts.manifest_of(second)[0]
        shutil.copytree(checks.work / "first/blobs", checks.work / "second/blobs", dirs_exist_ok=True)
        listing = json.loads((checks.work / "first/index.json").read_text())
        mine = json.loads((checks.work / "second/index.json").read_text())
        for entry in listing["manifests"]:
            path = layouts.blob_path(first, entry["digest"])
            document = json.loads(path.read_text()) if path.stat().st_size < 1 << 20 else {}
            if "subject" in document:
                document["subject"] = {k: subject[k] for k in ("mediaType", "digest", "size")}
                made = json.dumps(document).encode()
                (checks.work / "second/blobs/sha256" / layouts.digest(made)[7:]).write_bytes(made)
                mine["manifests"].append(entry | {"digest": layouts.digest(made), "size": len(made)})
        if len(mine["manifests"]) == 1:
            checks.lines.append("the index of an OCI folder has no manifest with a subject in index.json")
            return
        (checks.work / "second/index.json").write_text(json.dumps(mine))
    with Varve(checks.work / "state-second") as varve:
        point = checks.mount_point()
        done = varve.run("mount", second, point)
        if done.returncode == 0:
            varve.mounts.append(str(point))
            checks.lines.append("an index made for another image was accepted")
        elif done.returncode != 1:
            checks.lines.append(f"an index made for another image: exit {done.returncode}: {done.stderr.decode(errors='replace')[-300:]}")


def bomb(checks):
    """100 GiB of zeros in a blob of 100 MB would be refused by the limit; here the limit is lowered instead."""
    tar = Tar().file("zeros", b"\0" * (64 << 20)).bytes()
    image = checks.image("bomb", [tar])
    layer = layouts.manifest_of(image)[1]["layers"][0]["digest"]
    checks.refused("a layer that inflates beyond its limit", image, [layer, layer[7:19]], arguments=("index", "--max-layer-bytes", str(16 << 20)))


def main():
    need_root()
    need_fuse()
    with work_folder() as work:
        checks = Checks(work)
        for part in (damaged_layers, damaged_documents, hostile_tars, symlinks_stay_inside, damaged_index, damaged_layer_under_a_mount, index_of_another_image, bomb):
            part(checks)
    print("\n".join(checks.lines))
    sys.exit(1 if checks.lines else 0)


if __name__ == "__main__":
    main()
