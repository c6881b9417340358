"""Whose index is believed: another repository's and another image's index never speak for an image, what is asked for by digest needs somebody who vouches, an index that is used is
complete, and what lies under the root is repaired or refused when it was changed."""
import hashlib, json, os, random, shutil, sys
from pathlib import Path

from images import Tar, layouts, noise_image
from program import Varve, modes, need_fuse, need_root, work_folder

TAR = "application/vnd.oci.image.layer.v1.tar"
LAYER_INDEX = "application/vnd.varve.layer-index.v1"
GOOD, EVIL = b"good content\n" * 200_000, b"EVIL content\n" * 200_000  # several spans: none of them is the whole layer


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def sha(data):
    return hashlib.sha256(data).digest()


def base_layer(content, mode=0o755):
    return Tar().dir("bin").file("bin/tool", content, mode=mode).file("bin/other", b"other\n").bytes()


def plain_image(folder, tars, tag):
    return layouts.write_image(folder, [(tar, tar, TAR, None) for tar in tars], tag)


def machine(work, name=None):
    varve = Varve(work / (name or f"machine-{os.urandom(3).hex()}"))
    varve.work.mkdir()
    return varve


def by_digest(reference):
    return f"{reference.rsplit(':', 1)[0]}@{layouts.manifest_of(reference)[0]['digest']}"


class Layout:
    """Somebody who may push to a layout folder, and writes there what he likes."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def blob(self, data):
        name = sha(data).hex()
        (self.folder / "blobs/sha256" / name).write_bytes(data)
        return {"digest": "sha256:" + name, "size": len(data)}

    def artifacts(self, kind):
        entries = json.loads((self.folder / "index.json").read_text())["manifests"]
        return [entry for entry in entries if entry.get("artifactType") == kind]

    def read(self, entry):
        return (self.folder / "blobs" / entry["digest"].replace(":", "/")).read_bytes()

    def publish(self, manifest, instead_of=None):
        made = self.blob(json.dumps(manifest).encode())
        index = json.loads((self.folder / "index.json").read_text())
        if instead_of:
            index["manifests"] = [entry for entry in index["manifests"] if entry["digest"] != instead_of["digest"]]
        index["manifests"].append({**made, "mediaType": manifest["mediaType"], "artifactType": manifest["artifactType"], "annotations": manifest.get("annotations", {})})
        (self.folder / "index.json").write_text(json.dumps(index))


def described(layout, kind, media_type):
    """The only artifact of that kind, its manifest and the position of a blob in it."""
    (entry,) = layout.artifacts(kind)
    manifest = json.loads(layout.read(entry))
    (at,) = [i for i, layer in enumerate(manifest["layers"]) if layer["mediaType"] == media_type]
    return entry, manifest, at


def evil_twin(work, good_layout, evil_layout, other_tar, own_tar):
    """A copy of a layout whose layer `own_tar` has other bytes under its name, and whose index vouches for them."""
    shutil.copytree(good_layout, evil_layout)
    scratch = work / f"scratch-{os.urandom(3).hex()}"
    reference = plain_image(scratch, [other_tar], "x")
    with machine(work) as forger:
        forger.index(reference)
    entry, manifest, at = described(Layout(scratch), "application/vnd.varve.index.v1", "application/vnd.varve.layer-map.v1")
    forged = Layout(scratch).read(manifest["layers"][at]).replace(sha(other_tar), sha(own_tar))
    evil = Layout(evil_layout)
    (entry,) = evil.artifacts("application/vnd.varve.index.v1")
    manifest = json.loads(evil.read(entry))
    name = "sha256:" + sha(own_tar).hex()
    (at,) = [i for i, layer in enumerate(manifest["layers"]) if layer["mediaType"] == "application/vnd.varve.layer-map.v1" and layer["annotations"]["dev.varve.layer"] == name]
    manifest["layers"][at].update(evil.blob(forged))
    evil.publish(manifest, instead_of=entry)
    (Path(evil_layout) / "blobs/sha256" / sha(own_tar).hex()).write_bytes(other_tar)


def tool_of(place):
    return (Path(place) / "bin/tool").read_bytes()


def another_repository_does_not_speak_for_an_image(work, mode):
    good_tar, evil_tar = base_layer(GOOD), base_layer(EVIL)
    trusted = plain_image(work / f"trusted-{mode}", [good_tar], "v1")
    with machine(work, f"owner-{mode}") as owner:
        owner.index(trusted)
        evil_twin(work, work / f"trusted-{mode}", work / f"evil-{mode}", evil_tar, good_tar)
        with machine(work) as varve:
            with varve.mounted(f"oci:{work}/evil-{mode}:v1", mode) as place:
                expect(tool_of(place) == EVIL, "who asks that repository by tag gets what its writers say")
                with varve.mounted(trusted, mode) as other:
                    expect(tool_of(other) == GOOD, "and another repository's image is its own, at the same time")
            varve.stop_daemon()
            with varve.mounted(trusted, mode) as place:
                expect(tool_of(place) == GOOD, "and later")
        with machine(work) as varve:
            place = varve.work / "mnt"
            place.mkdir()
            refused = varve.run("mount", "--mode", mode, by_digest(trusted), place)
            says = refused.stderr.decode()
            expect(refused.returncode == 1 and all(part in says for part in ("varve keygen", "varve index", "--index-here", "pinned")), f"by digest nobody vouches: {says}")
            with varve.mounted(by_digest(trusted), mode, "--index-here") as place:
                expect(tool_of(place) == GOOD, "an index that was made here counts")
        with owner.mounted(by_digest(trusted), mode) as place:
            expect(tool_of(place) == GOOD, "its owner made it")


def another_image_does_not_speak_for_a_shared_layer(work, mode):
    good_tar, evil_tar = base_layer(GOOD), base_layer(EVIL)
    a = plain_image(work / f"a-{mode}", [good_tar, Tar().file("a", b"a\n").bytes()], "v1")
    b = plain_image(work / f"b-{mode}", [good_tar, Tar().file("b", b"b\n").bytes()], "v1")
    with machine(work) as owner:
        owner.index(a)
        owner.index(b)
    evil_twin(work, work / f"a-{mode}", work / f"evil-a-{mode}", evil_tar, good_tar)
    with machine(work) as varve, varve.mounted(f"oci:{work}/evil-a-{mode}:v1", mode) as first, varve.mounted(b, mode) as second:
        expect(tool_of(first) == EVIL and tool_of(second) == GOOD, "each image by its own index")
        expect(json.loads(varve.run("verify", "--store", "--json", check=True).stdout)["bad"] == [], "both are what their maps say")


def what_others_wrote_of_a_layer_is_not_published(work):
    good_tar, other_tar = base_layer(GOOD), base_layer(GOOD, mode=0o4777)
    lowly = plain_image(work / "lowly", [good_tar], "v1")
    crown = plain_image(work / "crown", [good_tar, Tar().file("crown", b"c\n").bytes()], "v1")
    with machine(work) as attacker:
        attacker.index(plain_image(work / "scratch", [other_tar], "x"))
        attacker.index(lowly)
    theirs, mine = Layout(work / "scratch"), Layout(work / "lowly")
    _, manifest, at = described(theirs, LAYER_INDEX, "application/vnd.varve.layer-entries.v1")
    entries = theirs.read(manifest["layers"][at]).replace(sha(other_tar), sha(good_tar))
    for tool in ("varve 99.0", "varve 0.2.0"):
        _, manifest, at = described(mine, LAYER_INDEX, "application/vnd.varve.layer-entries.v1") if tool == "varve 99.0" else (None, manifest, at)
        manifest["layers"][at].update(mine.blob(entries))
        manifest["annotations"]["dev.varve.tool"] = tool
        mine.publish(manifest)
    with machine(work) as owner:
        expect([layer["reused"] for layer in owner.index(lowly)["layers"]] == [False], "the layer is read")
        expect([layer["reused"] for layer in owner.index(crown)["layers"]] == [True, False], "what was made here is used again")
        expect("-rwxr-xr-x" in owner.run("ls", "-l", crown, "/bin/tool", check=True).stdout.decode(), "the mode that the layer has")
    with machine(work) as careless:
        expect(careless.index(lowly, "--reuse-foreign")["layers"][0]["reused"], "--reuse-foreign takes it")


def an_index_that_is_used_is_complete(work, mode):
    image, contents = noise_image(work / f"complete-{mode}", megabytes=2)
    moved, gone = work / f"moved-{mode}", work / f"gone-{mode}"
    with machine(work) as varve:
        varve.index(image)
        shutil.copytree(work / f"complete-{mode}", moved)
        everything = json.loads((moved / "index.json").read_text())
        everything["manifests"] = [entry for entry in everything["manifests"] if "artifactType" not in entry]
        (moved / "index.json").write_text(json.dumps(everything))
        windows = {layer["digest"].removeprefix("sha256:") for entry in Layout(work / f"complete-{mode}").artifacts("application/vnd.varve.index.v1")
                   for layer in json.loads(Layout(work / f"complete-{mode}").read(entry))["layers"] if layer["mediaType"] == "application/vnd.varve.windows.v1"}
        expect(windows, "the image has windows")
        for name in windows:
            (moved / "blobs/sha256" / name).unlink()
            (varve.root / "index/blobs/sha256" / name).unlink()
        (work / f"complete-{mode}").rename(gone)
        folder = varve.work / "mnt"
        folder.mkdir()
        refused = varve.run("mount", "--mode", mode, f"oci:{moved}:latest", folder)
        expect(refused.returncode == 1 and "windows" in refused.stderr.decode(), f"refused when it is mounted, not when it is read: {refused.stderr}")
        gone.rename(work / f"complete-{mode}")
        with varve.mounted(f"oci:{moved}:latest", mode) as place:
            for path, content in contents.items():
                expect((Path(place) / path).read_bytes() == content, f"{path}: windows came from where the index did")


def complete_layers_prove_an_index_or_refute_it(work, mode):
    good_tar, evil_tar = base_layer(GOOD), base_layer(EVIL)
    good = plain_image(work / f"prove-{mode}", [good_tar], "v1")
    with machine(work) as owner:
        owner.index(good)
    evil_twin(work, work / f"prove-{mode}", work / f"refute-{mode}", evil_tar, good_tar)
    with machine(work) as varve:
        expect(varve.json("verify", "--deep", good)["layers"][0]["complete"] is False, "nothing is here")
        varve.run("pull", "--wait", good, check=True)
        verified = varve.json("verify", "--deep", good)
        expect(verified["layers"][0]["proved"] and verified["tree_proved"], f"{verified}")
        with varve.mounted(by_digest(good), mode) as place:
            expect(tool_of(place) == GOOD, "what was proved counts by digest")
    with machine(work) as varve:
        evil = f"oci:{work}/refute-{mode}:v1"
        varve.run("pull", "--wait", evil, check=True)
        done = varve.run("verify", "--deep", "--json", evil)
        expect(done.returncode == 3 and json.loads(done.stdout)["layers"][0]["refuted"], f"{done.stdout} {done.stderr}")
        folder = varve.work / "mnt"
        folder.mkdir()
        refused = varve.run("mount", "--mode", mode, evil, folder)
        expect(refused.returncode == 1 and "false" in refused.stderr.decode(), f"it is not used again: {refused.stderr}")


def a_tree_that_was_exchanged_is_made_again(work):
    good_tar, other_tar = base_layer(GOOD), base_layer(GOOD, mode=0o4777)
    good = plain_image(work / "tree", [good_tar], "v1")
    other = plain_image(work / "other-tree", [other_tar], "v1")
    with machine(work) as owner:
        owner.index(good)
        owner.index(other)
    with machine(work) as forger:
        with forger.mounted(other, "fuse"):
            (tree,) = (forger.root / "trees").iterdir()
            forged = tree.read_bytes()
    with machine(work) as varve:
        varve.run("pull", "--wait", good, check=True)
        (tree,) = (varve.root / "trees").iterdir()
        honest = tree.read_bytes()
        tree.write_bytes(forged)
        with varve.mounted(good, "fuse") as place:
            expect(os.stat(f"{place}/bin/tool").st_mode & 0o7777 == 0o755, "a tree under the root that was changed is made again")
        expect(tree.read_bytes() == honest, "as it was")


def what_lies_under_the_root_is_repaired_or_refused(work):
    image, contents = noise_image(work / "tampered", megabytes=1)
    with machine(work) as owner:
        owner.index(image)
    noise = random.Random(3)
    with machine(work) as varve:
        with varve.mounted(image, "fuse"):
            pass
        varve.stop_daemon()
        for folder in ("index/blobs/sha256", "trees", "index-origin"):
            for file in sorted((varve.root / folder).iterdir()):
                if not file.is_file() or file.stat().st_size == 0:
                    continue
                right = file.read_bytes()
                for wrong in (right[:-1], b"", right[: (at := noise.randrange(len(right)))] + bytes([right[at] ^ 0x55]) + right[at + 1:]):
                    file.write_bytes(wrong)
                    folder_of_mount = varve.work / "mnt"
                    folder_of_mount.mkdir(exist_ok=True)
                    done = varve.run("mount", "--mode", "fuse", image, folder_of_mount)
                    if done.returncode == 0:
                        for path in ("upper/file", "data/text", "data/small7"):
                            expect((folder_of_mount / path).read_bytes() == contents[path], f"{file}: {path}")
                        varve.run("unmount", folder_of_mount, check=True)
                    else:
                        expect(done.returncode == 1 and done.stderr, f"{file}: {done}")
                    file.write_bytes(right)
                varve.stop_daemon()


def main():
    need_root()
    need_fuse()
    with work_folder() as work:
        what_others_wrote_of_a_layer_is_not_published(work)
        a_tree_that_was_exchanged_is_made_again(work)
        what_lies_under_the_root_is_repaired_or_refused(work)
        for mode in modes():
            another_repository_does_not_speak_for_an_image(work, mode)
            another_image_does_not_speak_for_a_shared_layer(work, mode)
            an_index_that_is_used_is_complete(work, mode)
            complete_layers_prove_an_index_or_refute_it(work, mode)
    print("ok", file=sys.stderr)


if __name__ == "__main__":
    main()
