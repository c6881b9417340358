#!/usr/bin/env python3
"""Where indexes and images lie, with the whole program and Debian's docker-registry on loopback: the index of a foreign repository in one's own (index-from),
one tag for all of an image's indexes, what `inspect` and `pin add` say of the place, tags that would be lost, platforms, images in docker-archive: and dir:."""
import hashlib, json, os, subprocess, sys, urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import layouts, program, tars  # noqa: E402
from test_export import registry_on_loopback  # noqa: E402


def expect(done, status, *words):
    text = (done.stdout + done.stderr).decode(errors="replace")
    assert done.returncode == status, f"exit {done.returncode}, not {status}: {done.args[1:]}\n{text}"
    for word in words:
        assert word in text, f"'{word}' is missing: {done.args[1:]}\n{text}"
    return text


def make_tars():
    return [tars.Tar().dir("etc").file("etc/motd", b"hello\n" * 5000).bytes(), tars.Tar().dir("data").file("data/x", os.urandom(300_000)).bytes(),
            tars.Tar().dir("opt").file("opt/y", b"y" * 200_000).bytes()]


def tags_of(host, repository):
    return json.load(urllib.request.urlopen(f"http://{host}/v2/{repository}/tags/list"))["tags"]


class Machine(program.Varve):
    """A machine that knows nothing yet: a root and a daemon of its own."""

    def __init__(self, work, name, config=""):
        super().__init__(work)
        self.root = work / name
        (work / f"{name}.toml").write_text(config)
        self.environment = {**self.environment, "VARVE_ROOT": str(self.root), "VARVE_CONFIG": str(work / f"{name}.toml"), "COSIGN_PASSWORD": ""}


def check_places(work, host, fuse):
    layout = layouts.gzip_image(work / "image", make_tars())
    foreign, indexes = f"{host}/foreign/app:v1", f"{host}/team/indexes"
    with Machine(work, "ci") as ci:
        ci.run("image", "export", layout, foreign, check=True)
        expect(ci.run("run", foreign, "--", "true"), 125, f"varve index docker://{foreign}", "--index-from")
        expect(ci.run("ls", foreign), 1, f"`varve index {foreign}`")
        ci.run("keygen", "-o", work / "ci", check=True)
        made = ci.json("index", foreign, "--to", indexes, "--sign", work / "ci.key")
        assert {one["reference"].split("@")[0] for one in made["signatures"]} == {f"{host}/foreign/app", indexes}, made["signatures"]
        assert tags_of(host, "foreign/app") == ["v1"], "nothing is written beside the image"
        seen = ci.json("inspect", foreign)
        assert seen["index_location"] == "this-machine" and seen["index_repository"] is None, seen
        assert "on this machine only" in expect(ci.run("inspect", foreign), 0, f"varve index {foreign}")
        seen = ci.json("inspect", foreign, "--index-from", indexes)
        assert seen["index_location"] == "index-from" and seen["index_repository"] == indexes, seen
        expect(ci.run("pin", "add", foreign), 0, "on this machine only", f"varve index {foreign}")

    # All indexes of an image and its layers under one tag, and their signatures.
    digest = hashlib.sha256(urllib.request.urlopen(urllib.request.Request(f"http://{host}/v2/foreign/app/manifests/v1", headers={"Accept": "application/vnd.oci.image.manifest.v1+json"})).read()).hexdigest()
    tags = tags_of(host, "team/indexes")
    lists = [tag for tag in tags if not tag.endswith(".sig")]
    assert lists == [f"sha256-{digest}"], tags

    believing = f'index-from = ["{indexes}"]\n'
    with Machine(work, "nobody", believing) as nobody:  # no key: who may write to the place of indexes is not believed
        text = expect(nobody.run("ls", foreign), 1, "index-from", "not the image's own repository")
        assert f"varve index {host}/foreign/app:v1" in text, text
        shown = nobody.json("trust", "show", foreign)
        assert not shown["trusted"] and [one["index_from"] for one in shown["candidates"]] == [indexes], shown
    with Machine(work, "node", believing + f'[trust]\nindex = "signed"\nkeys = ["{work}/ci.pub"]\n') as node:
        assert b"motd" in node.run("ls", foreign, "/etc", check=True).stdout
        assert node.json("trust", "show", foreign)["vouched"]
        if fuse:
            with node.mounted(foreign, "fuse") as tree:
                assert Path(tree, "etc/motd").read_bytes() == b"hello\n" * 5000
    with Machine(work, "words", '[trust]\nindex = "pinned"\n') as words:  # the option alone travels to the daemon
        expect(words.run("pull", "--wait", foreign), 1, "is not indexed")
        expect(words.run("pull", "--wait", "--index-from", f"docker://{host}/none/there", "--index-from", indexes, foreign), 0)
        assert words.json("inspect", foreign, "--index-from", indexes)["believed"]

    with Machine(work, "owner") as owner:  # beside the image: reused, and one tag more
        owner.run("index", foreign, check=True)
        assert owner.json("inspect", foreign)["index_location"] == "beside-image"
        assert [tag for tag in tags_of(host, "foreign/app") if tag.startswith("sha256-")] == [f"sha256-{digest}"]
        again = owner.json("index", foreign)
        assert all(layer["reused"] for layer in again["layers"])
        expect(owner.run("ls", f"{host}/foreign/app:none"), 1, "none")


def check_tags_and_platforms(work):
    layout = layouts.gzip_image(work / "own", make_tars(), tag="v1")
    folder = layout.rpartition(":")[0]
    other = {"x86_64": "linux/arm64"}.get(os.uname().machine, "linux/amd64")
    with Machine(work, "owner2") as varve:
        varve.index(layout)
        before = layouts.manifest_of(layout)[0]["digest"]
        for words in (["image", "optimize"], ["image", "optimize", "--repack"], ["image", "export"]):
            expect(varve.run(*words, layout, layout), 2, layout, "--replace")
        expect(varve.run("image", "optimize", folder, layout), 2, "--replace")
        assert varve.json("inspect", layout)["image"] == before
        varve.run("image", "export", layout, folder + ":v2", check=True)
        text = expect(varve.run("image", "optimize", layout, folder + ":v2"), 0)
        assert f"{folder}:v2 was {before}, is sha256:" in text, text
        report = varve.json("image", "optimize", layout, layout, "--replace")
        assert report["replaced"] == before, report
        assert report["image"] == varve.json("inspect", layout)["image"] != before
        expect(varve.run("inspect", folder + ":v3"), 1, "no tag 'v3'", "v1", "v2")

        expect(varve.run("inspect", layout, "--platform", other), 1, layout, "not for " + other)
        expect(varve.run("inspect", layout, "--platform", "foo"), 2, "foo", "linux/amd64")
        expect(varve.run("inspect", layout, "--ca-file", work / "none.pem"), 2, "--ca-file", "none.pem")
        expect(varve.run("inspect", layout, "--authfile", work / "none.json"), 2, "--authfile", "none.json")
        expect(varve.run("inspect", layout, "--index-from", "UPPER"), 2, "--index-from", "UPPER")
        expect(varve.run("inspect", folder.removeprefix("oci:")), 2, f"did you mean {folder}?")


def check_other_forms(work, fuse):
    layout = layouts.gzip_image(work / "plain", make_tars(), tag="v1")
    with Machine(work, "forms") as varve:
        archive, folder = f"docker-archive:{work}/image.tar", f"dir:{work}/folder"
        varve.run("image", "export", layout, archive + ":team/app:v1", check=True)
        subprocess.run(["skopeo", "--insecure-policy", "copy", "-q", layout, folder], check=True)
        for image in (archive, archive + ":team/app:v1", folder):
            expect(varve.run("index", image), 0, "kept on this machine only", image)
            assert varve.run("cat", image, "/etc/motd", check=True).stdout == b"hello\n" * 5000, image
            varve.run("image", "diff", image, layout, check=True)
            seen = varve.json("inspect", image)
            assert seen["indexed"] and seen["index_location"] == "this-machine", seen
            if fuse:
                with varve.mounted(image, "fuse") as tree:
                    assert Path(tree, "etc/motd").read_bytes() == b"hello\n" * 5000, image
            name = hashlib.sha256(image.encode()).hexdigest()[:8]
            report = varve.json("image", "optimize", image, f"oci:{work}/made:{name}")
            back = varve.json("image", "export", image, f"oci:{work}/copied:{name}")
            assert back["image"] == seen["image"] and report["image"] != seen["image"]
            expect(varve.run("pin", "add", image), 1, "nothing can be added")
            expect(varve.run("image", "optimize", layout, image), 2, "only read")
        expect(varve.run("index", archive, "--sign", "none.key"), 2, "--to")
        expect(varve.run("inspect", f"docker-archive:{work}/none.tar"), 1, "none.tar")
        expect(varve.run("inspect", archive + ":team/other"), 1, "docker.io/team/app:v1")


def main():
    program.need_tools("docker-registry", "skopeo")
    fuse = os.path.exists("/dev/fuse") and os.getuid() == 0
    with program.work_folder() as work:
        check_tags_and_platforms(work)
        check_other_forms(work, fuse)
        with registry_on_loopback(work) as host:
            check_places(work, host, fuse)
    if not fuse:
        print("skipped: mounts (no /dev/fuse, or no root)")


if __name__ == "__main__":
    main()
