"""What is marked cold: left out of `pull`, fetched when it is read, in both modes; a machine with the older index learns of the marks."""
import json, os, random, subprocess, sys, time
from pathlib import Path

from images import Source, layouts, Tar
from program import Varve, modes, need_fuse, need_root, work_folder


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def image_of_packages(folder):
    """Two packages of Python with large data, one after the other in a layer, and a hard link into the second."""
    noise = random.Random(11)
    contents, layer = {}, Tar()
    layer.dir("site")
    for name, megabytes in (("hot", 3), ("cold", 8), ("late", 2)):
        data = noise.randbytes(megabytes * 1_000_000)
        contents[f"site/{name}pkg/data.bin"] = data
        contents[f"site/{name}pkg/__init__.py"] = f"import os\nSIZE = len(open(os.path.join(os.path.dirname(__file__), 'data.bin'), 'rb').read())\nNAME = '{name}'\n".encode()
        layer.dir(f"site/{name}pkg")
        for file in (f"site/{name}pkg/__init__.py", f"site/{name}pkg/data.bin"):
            layer.file(file, contents[file])
    linked = noise.randbytes(3_000_000)
    contents["site/coldpkg/linked.bin"] = contents["hot.bin"] = linked
    layer.file("site/coldpkg/linked.bin", linked).hardlink("hot.bin", "site/coldpkg/linked.bin")
    return layouts.gzip_image(folder, [layer.bytes(), Tar().dir("etc").file("etc/motd", b"hello\n").bytes()], "latest"), contents


def mark(varve, image, *prefixes):
    done = subprocess.run([os.environ["MARK_COLD"], varve.root, image, *prefixes], capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
    return json.loads(done.stdout)


def machine(work):
    varve = Varve(work / f"machine-{os.urandom(3).hex()}")
    varve.work.mkdir()
    return varve


def imported(place, name):
    """Size and name that the package says, from a Python of its own."""
    done = subprocess.run([sys.executable, "-B", "-c", f"import {name} as p; print(p.SIZE, p.NAME)"], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": f"{place}/site"})
    expect(done.returncode == 0, done.stderr)
    return done.stdout.split()


def mount_of(varve, place):
    return varve.json("status", place)["mounts"][0]


def cold_stays_away_until_it_is_read(work, mode, source, contents, marked):
    with machine(work) as varve:
        pulled = varve.json("pull", "--wait", source)
        expect(pulled["cold_bytes"] == marked["stream_bytes"] and pulled["cold_present_bytes"] == 0, f"pull leaves out what is cold: {pulled}")
        expect(pulled["present_bytes"] == pulled["image_stream_bytes"] - pulled["cold_bytes"], f"and nothing else: {pulled}")
        expect("are marked cold" in varve.run("pull", "--wait", source, check=True).stdout.decode(), "the text of pull says so")
        with varve.mounted(source, mode) as place:
            before = mount_of(varve, place)
            expect(before["complete"] and before["fetched_bytes"] == 0, f"complete but for what is cold: {before}")
            expect(imported(place, "hotpkg") == ["3000000", "hot"], "the hot package")
            expect((Path(place) / "hot.bin").read_bytes() == contents["hot.bin"], "a file with a name that is not cold")
            expect(imported(place, "latepkg") == ["2000000", "late"], "the one behind the cold one")
            expect(mount_of(varve, place)["fetched_bytes"] == 0, "what is hot is here: nothing is fetched for it")
            # The layer is not complete in the store, so it must not be mounted straight from its file: that would read zeros here.
            expect(imported(place, "coldpkg") == ["8000000", "cold"], "a cold package can be imported")
            expect((Path(place) / "site/coldpkg/data.bin").read_bytes() == contents["site/coldpkg/data.bin"], "with its true content")
            for _ in range(200):  # a reader is answered before the store has what it read
                after = mount_of(varve, place)
                if after["fetching"] == 0:
                    break
                time.sleep(0.05)
            # Noise does not compress, and the edges of its spans are not cold.
            expect(7_000_000 < after["fetched_bytes"] < 9_000_000, f"its bytes are fetched when it is read: {after}")
            expect(after["errors"] == 0 and after["cold_present_bytes"] > 7_000_000, f"{after}")
        everything = varve.json("pull", "--wait", "--cold", source)
        expect(everything["present_bytes"] == everything["image_stream_bytes"], f"--cold pulls the rest: {everything}")
        with varve.mounted(source, mode) as place:
            for path, content in contents.items():
                expect((Path(place) / path).read_bytes() == content, f"{path} of the complete image")


def nobody_is_followed_into_what_is_cold(work, mode, source, contents, marked):
    with machine(work) as varve, varve.mounted(source, mode) as place:
        for path in ("site/hotpkg/data.bin", "site/hotpkg/__init__.py", "etc/motd"):
            expect((Path(place) / path).read_bytes() == contents.get(path, b"hello\n"), path)
        for _ in range(100):
            state = mount_of(varve, place)
            if state["fetching"] == 0:
                break
        expect(state["cold_present_bytes"] == 0, f"reading what is hot up to its end fetches nothing cold ahead: {state}")


def an_older_index_is_replaced_by_pull(work, mode, image, source, varve_owner):
    mark(varve_owner, image)  # nothing
    with machine(work) as varve, varve.mounted(source, mode) as place:
        expect(mount_of(varve, place)["cold_bytes"] == 0, "no marks yet")
        marked = mark(varve_owner, image, "site/coldpkg/")
        expect(mount_of(varve, place)["cold_bytes"] == 0, "nobody told the machine")
        pulled = varve.json("pull", "--wait", source)
        expect(pulled["cold_bytes"] == marked["stream_bytes"] and pulled["cold_present_bytes"] == 0, f"pull asks for newer marks: {pulled}")
        state = mount_of(varve, place)
        expect(state["complete"] and state["cold_bytes"] == marked["stream_bytes"], f"so does the mount know: {state}")


def main():
    need_root(), need_fuse()
    with work_folder() as work, Varve(work) as owner:
        image, contents = image_of_packages(work / "image")
        first = owner.index(image)
        marked = mark(owner, image, "site/coldpkg/")
        expect(marked["generation"] == 1 and marked["content_bytes"] > 8_000_000, f"{marked}")
        expect(marked["stream_bytes"] < 8_001_000 and marked["stream_bytes"] > 6_000_000, f"what has a name outside is not cold: {marked}")
        inspected = owner.json("inspect", image)
        expect(inspected["index"] == marked["index"] != first["index"] and inspected["cold_bytes"] == marked["stream_bytes"], f"{inspected}")
        expect(mark(owner, image, "site/coldpkg/")["index"] == marked["index"], "the same marks again are the same index")
        again = owner.index(image, "--force")
        expect(owner.json("inspect", image)["cold_bytes"] == marked["stream_bytes"], f"indexing again keeps the marks: {again}")
        with Source(work / "image") as source:
            for mode in modes():
                cold_stays_away_until_it_is_read(work, mode, source.reference, contents, marked)
                nobody_is_followed_into_what_is_cold(work, mode, source.reference, contents, marked)
                an_older_index_is_replaced_by_pull(work, mode, image, source.reference, owner)


if __name__ == "__main__":
    main()
