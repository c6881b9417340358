"""A second version of an image takes from the first what is equal: built again a minute later, its layers in other order, one file new."""
import json, os, random, time
from pathlib import Path

import layouts
from images import Source
from program import Varve, modes, need_fuse, need_root, work_folder
from tars import Tar


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def bytecode(built, source_bytes, noise):
    return b"\xa7\r\r\n" + (0).to_bytes(4, "little") + built.to_bytes(4, "little") + source_bytes.to_bytes(4, "little") + noise


def library(built):
    """Files as pip leaves them at a time: the same every time, but for that."""
    noise = random.Random(5)
    files = {"lib/core.so": noise.randbytes(3_500_000), "lib/data": noise.randbytes(400_000)}
    for i in range(120):
        source, code = noise.randbytes(noise.randrange(1, 4000)), noise.randbytes(noise.randrange(1, 6000))
        files[f"lib/m{i}.py"] = source
        files[f"lib/__pycache__/m{i}.cpython-311.pyc"] = bytecode(built, len(source), code)
    return files


def tar_of(files, built):
    tar = Tar().dir("lib", mtime=built).dir("lib/__pycache__", mtime=built)
    for path, content in files.items():
        tar.file(path, content, mtime=built)
    return tar.bytes()


def make_versions(folder):
    """Two tags of one repository, and what is in the second."""
    first, second = library(1_700_000_000), library(1_700_000_060)
    parts = [dict(list(second.items())[:100]), dict(list(second.items())[100:])]  # other layers
    parts[0]["lib/new"] = random.Random(6).randbytes(20_000)
    layouts.gzip_image(folder, [tar_of(first, 1_700_000_000)], "first")
    one = json.loads((folder / "index.json").read_text())["manifests"]
    layouts.gzip_image(folder, [tar_of(part, 1_700_000_060) for part in reversed(parts)], "second")
    document = json.loads((folder / "index.json").read_text())
    document["manifests"] += [m for m in one if m["digest"] not in {n["digest"] for n in document["manifests"]}]
    (folder / "index.json").write_text(json.dumps(document))
    return {**parts[0], **parts[1]}


def wait_for_contents(varve, image):
    layers = [layer["digest"].split(":")[1] for layer in varve.json("inspect", image)["layers"]]
    for _ in range(600):
        if all(list((varve.root / "store").glob(layer + "-*/units")) for layer in layers):
            return time.sleep(0.2)  # and where to look
        time.sleep(0.05)
    raise AssertionError("what the layers hold is not known after 30 s")


def of_mount(varve, folder):
    return next(m for m in varve.json("status")["mounts"] if m["dir"] == folder)


def read_all(folder, contents):
    for path, content in contents.items():
        expect(Path(folder, path).read_bytes() == content, f"{path} differs")


def test_a_mount_copies_and_outlives_the_registry(work, mode, folder, contents):
    with Source(folder) as source, Varve(work / f"{mode}-mount") as varve:
        varve.work.mkdir()
        repository = source.reference.rpartition(":")[0]
        with varve.mounted(repository + ":first", mode) as first:
            read_all(first, library(1_700_000_000))
            expect(not list((varve.root / "store").glob("*/units")), "an image alone costs no entries")
        with varve.mounted(repository + ":second", mode) as second:
            wait_for_contents(varve, repository + ":second")
            served = source.blobs_served
            expect(Path(second, "lib/new").read_bytes() == contents["lib/new"], "the new file differs")
            expect(source.blobs_served > served, "the new file came from somewhere else")
            source.failing = True
            read_all(second, contents)
            stats = of_mount(varve, second)
            expect(0.9 * sum(map(len, contents.values())) < stats["copied_bytes"] <= sum(map(len, contents.values())), f"{stats}")
            expect(stats["bytes_from"]["local"] == stats["copied_bytes"] and stats["bytes_from"]["registry"] == stats["fetched_bytes"], f"{stats['bytes_from']}")
            expect(stats["fetched_bytes"] < 400_000 and stats["errors"] == 0, f"{stats}")
            source.failing = False
            with varve.mounted(repository + ":second", mode) as again:
                expect(Path(again, "lib/new").read_bytes() == contents["lib/new"], "the new file differs")
        for _ in range(2):
            result = varve.json("verify", "--store")
            expect(result["bad"] == [], f"{result}")
        expect((varve.root / "daemon.log").read_text().count("is not fetched again") == 1, "what was learnt of an image is learnt again")
        # The first version may go, and the copies stay.
        source.failing = False
        digest = next(image["image"] for image in varve.json("images")["images"] if any(":first" in name for name in image["references"]))
        varve.run("images", "rm", digest, check=True)
        source.failing = True
        varve.stop_daemon()
        source.failing = False
        with varve.mounted(repository + ":second", mode) as second:
            source.failing = True
            read_all(second, contents)
            expect(of_mount(varve, second)["fetched_bytes"] < 5_000, "copies were fetched again")


def test_a_pull_takes_what_is_here_first(work, mode, folder, contents):
    with Source(folder) as source, Varve(work / f"{mode}-pull") as varve:
        varve.work.mkdir()
        repository = source.reference.rpartition(":")[0]
        first = varve.json("pull", "--wait", repository + ":first")
        second = varve.json("pull", "--wait", repository + ":second")
        expect(second["fetched_bytes"] < 0.1 * first["fetched_bytes"], f"{first}, {second}")
        expect(second["copied_bytes"] > 0.9 * sum(map(len, contents.values())), f"{second}")
        with varve.mounted(repository + ":second", mode) as folder:
            source.failing = True
            read_all(folder, contents)
            source.failing = False


def test_parts_of_files_are_read_where_both_indexes_count(work, mode, folder, contents):
    """A content that is here in part cannot be proved alone: its entries' word counts only if somebody vouches for both."""
    place, length = (2 << 20) - 16384, 4096  # near the end of the second MiB, whose beginning lies in other spans

    def part_of(mounted):
        fd = os.open(Path(mounted, "lib/core.so"), os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            return os.pread(fd, length, place)
        finally:
            os.close(fd)
    for made_here in (True, False):
        with Source(folder) as source, Varve(work / f"{mode}-parts-{made_here}") as varve:
            varve.work.mkdir()
            repository = source.reference.rpartition(":")[0]
            for tag in ("first", "second") if made_here else ():
                varve.index(f"oci:{folder}:{tag}")
            with varve.mounted(repository + ":first", mode) as first:
                expect(part_of(first) == contents["lib/core.so"][place:place + length], "the part differs")
            with varve.mounted(repository + ":second", mode) as second:
                wait_for_contents(varve, repository + ":second")
                source.failing = made_here
                expect(part_of(second) == contents["lib/core.so"][place:place + length], "the part differs")
                stats = of_mount(varve, second)
                expect((stats["copied_bytes"] >= length, stats["fetched_bytes"] > 100_000) == (made_here, not made_here), f"{stats}")
                source.failing = False


def test_diff_says_what_need_not_be_fetched(work, folder):
    with Varve(work / "diff") as varve:
        varve.work.mkdir()
        images = [f"oci:{folder}:{tag}" for tag in ("first", "second")]
        content = varve.json("image", "diff", *images)["content"]
        pyc = sum(len(data) for path, data in library(0).items() if path.endswith(".pyc"))
        expect(content["bytecode_bytes"] == pyc, f"{content}")
        expect(content["bytes"] - content["shared_bytes"] - pyc == 20_000, f"{content}")
        expect("bytecode of sources" in varve.run("image", "diff", *images, check=True).stdout.decode(), "the table says nothing of bytecode")


def main():
    need_fuse(), need_root()
    with work_folder() as work:
        folder = work / "image"
        contents = make_versions(folder)
        with Varve(work / "indexer") as varve:
            varve.work.mkdir()
            for tag in ("first", "second"):
                varve.index(f"oci:{folder}:{tag}")
        for mode in modes():
            test_a_mount_copies_and_outlives_the_registry(work, mode, folder, contents)
            test_a_pull_takes_what_is_here_first(work, mode, folder, contents)
            test_parts_of_files_are_read_where_both_indexes_count(work, mode, folder, contents)
        test_diff_says_what_need_not_be_fetched(work, folder)


if __name__ == "__main__":
    main()
