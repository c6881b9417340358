"""Profiles: what a session reads is recorded in order, merged, attached to the image, and fetched ahead by machines that mount it; in both modes."""
import json, os, random, subprocess, sys, time
from pathlib import Path

from images import Source, layouts, Tar
from program import Varve, modes, need_fuse, need_root, work_folder

MEGABYTE = 1_000_000
FILES = {f"data/part{i}": 1 for i in range(12)}  # megabytes of noise


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def image_of_parts(folder):
    """Twelve files of noise in two layers, and a statically linked shell to read them with."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run"))
    from tiny_image import needed_files
    noise = random.Random(5)
    contents = {path: noise.randbytes(size * MEGABYTE) for path, size in FILES.items()}
    base, upper = Tar().dir("bin").dir("tmp", mode=0o1777).dir("data"), Tar()
    for path, content in sorted(needed_files().items()):
        base.file(path, content, mode=0o755)
    for i, (path, content) in enumerate(contents.items()):
        (base if i % 2 else upper).file(path, content)
    streams = [base.bytes(), upper.bytes()]
    image = layouts.gzip_image(folder, streams, "latest")
    return image, contents, Parts(folder, streams, contents)


class Parts:
    """Which files a profile names, in order. The kernel asks for a file in several pieces, which come in any order: their bytes count, not their number."""

    def __init__(self, layout, streams, contents):
        def blob(descriptor):
            return json.loads((Path(layout) / "blobs" / descriptor["digest"].replace(":", "/")).read_bytes())
        layers = blob(json.loads((Path(layout) / "index.json").read_text())["manifests"][0])["layers"]
        self.places = {}  # of a part: its layer, where it begins and ends in the layer's stream
        for path, content in contents.items():
            number = next(i for i, stream in enumerate(streams) if content in stream)
            begin = streams[number].index(content)
            self.places[int(path.removeprefix("data/part"))] = (layers[number]["digest"], begin, begin + len(content))

    def of(self, profile):
        """[part, the largest number of recordings that have most of it] in the order of the first reads."""
        found = {}  # of a part: bytes by number of recordings
        for span in profile["spans"]:
            for part, (layer, begin, end) in self.places.items():
                common = min(end, span["stream_offset"] + span["length"]) - max(begin, span["stream_offset"])
                if span["layer"] == layer and common > 0:
                    counts = found.setdefault(part, {})
                    counts[span["recordings"]] = counts.get(span["recordings"], 0) + common
        # Of a neighbour the kernel may read a little ahead.
        return [[part, max(counts, key=counts.get)] for part, counts in found.items() if sum(counts.values()) > 0.6 * MEGABYTE]


def machine(work):
    varve = Varve(work / f"machine-{os.urandom(3).hex()}")
    varve.work.mkdir()
    return varve


def record(varve, image, mode, output, *parts):
    """The profile of a session that reads these parts, in that order."""
    read = "; ".join(f"cat data/part{part} > /dev/null" for part in parts)
    done = varve.run("profile", "record", "--json", "--mode", mode, image, "-o", output, "-w", "/", "--", "sh", "-c", f"echo to be seen; {read}", check=True)
    expect(b"to be seen" in done.stderr, "the command's output is where messages are, as the document is on standard output")
    return json.loads(done.stdout)


def what_is_read_is_recorded_in_order(varve, image, parts, work, mode):
    forth = record(varve, image, mode, work / f"forth-{mode}", 1, 4, 7)
    expect(forth["recordings"] == 1 and 3 * MEGABYTE < forth["bytes"] < 8 * MEGABYTE, f"what was read, and no more than the kernel adds: {forth['bytes']}")
    expect(all(a["seconds"] <= b["seconds"] for a, b in zip(forth["spans"], forth["spans"][1:])), "in order of time")
    expect(parts.of(forth) == [[1, 1], [4, 1], [7, 1]], f"three large files: {parts.of(forth)}")
    # All is in the store now. A recording sees the same again.
    varve.run("pull", "--wait", image, check=True)
    back = record(varve, image, mode, work / f"back-{mode}", 7, 4, 1)
    expect(parts.of(back) == parts.of(forth)[::-1], f"{parts.of(forth)} backwards: {parts.of(back)}")
    shown = varve.json("profile", "show", work / f"back-{mode}")
    expect(shown["spans"] == back["spans"] and shown["bytes"] == back["bytes"], "show says what record said")
    text = varve.run("profile", "show", "--limit", 2, work / f"back-{mode}", check=True).stdout.decode()
    expect("SECONDS" in text and "and " in text, text)


def merged(varve, parts, work):
    """Of three recordings: part 1 in all of them, part 2 in two, part 3 in one."""
    made = varve.json("profile", "merge", work / "a", work / "b", work / "c", "-o", work / "all")
    expect(made["recordings"] == 3, f"{made['recordings']}")
    expect(parts.of(made) == [[1, 3], [2, 2], [3, 1]], f"by median position, with how many have it: {parts.of(made)}")
    common = varve.json("profile", "merge", "--min-share", 1, work / "a", work / "b", work / "c", "-o", work / "common")
    expect(common["bytes"] < made["bytes"] and all(span["recordings"] == 3 for span in common["spans"]), "what all have")
    expect(varve.run("profile", "merge", work / "nowhere", "-o", work / "x").returncode == 1, "no such file")
    expect(varve.run("profile", "merge", work / "a").returncode == 2, "no output named")


def wait_for(condition, what):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(what)


def status_of(varve, place):
    return varve.json("status", place)["mounts"][0]


def a_mount_fetches_ahead(work, mode, source, contents):
    with machine(work) as varve:
        with varve.mounted(source.reference, mode) as place:
            wait_for(lambda: (lambda s: s["fetching"] == 0 and s["prefetched_bytes"] >= 2 * MEGABYTE)(status_of(varve, place)), f"prefetched: {status_of(varve, place)}")
            before = status_of(varve, place)
            expect(before["prefetched_bytes"] <= before["fetched_bytes"] < 6 * MEGABYTE and before["requests"] <= 8, f"the profile, in few requests: {before}")
            source.open.clear()  # from here on the registry hangs
            for part in (1, 2):
                expect((Path(place) / f"data/part{part}").read_bytes() == contents[f"data/part{part}"], f"part {part}")
            source.open.set()
            expect((Path(place) / "data/part9").read_bytes() == contents["data/part9"], "what it does not name is read all the same")
            expect(status_of(varve, place)["fetched_bytes"] > before["fetched_bytes"], "and fetched then")
    with machine(work) as varve:
        stats = varve.work / "stats.json"
        varve.run("run", "--rm", "--mode", mode, "--no-prefetch", "--stats", stats, source.reference, "--", "cat", "/data/part1", check=True)
        without = json.loads(stats.read_text())
        expect(without["prefetched_bytes"] == 0, f"switched off: {without}")
        varve.run("run", "--rm", "--mode", mode, "--stats", stats, source.reference, "--", "sh", "-c", "cat /data/part1 > /dev/null; sleep 2", check=True)
        expect(json.loads(stats.read_text())["prefetched_bytes"] > 0, f"a session fetches ahead as well: {stats.read_text()}")


def stops_with_its_mount(work, mode, source):
    """The registry hangs; the mount goes all the same, and nothing is wanted after it."""
    source.asked.clear(), source.open.clear()
    with machine(work) as varve:
        with varve.mounted(source.reference, mode):
            source.asked.wait()
        source.open.set()
        expect(varve.json("status")["mounts"] == [], "unmounted")


def main():
    need_root(), need_fuse()
    with work_folder() as work, Varve(work) as owner:
        image, contents, parts = image_of_parts(work / "image")
        owner.index(image)
        expect(owner.run("profile", "show", image).returncode == 1, "no profile yet")
        for mode in modes():
            what_is_read_is_recorded_in_order(owner, image, parts, work, mode)
        failed = owner.run("profile", "record", image, "-o", work / "failed", "--", "sh", "-c", "exit 7")
        expect(failed.returncode == 7 and (work / "failed").exists(), "the status is the command's")
        expect(owner.run("profile", "record", image, "-o", work / "x", "--", "/nothing").returncode == 127 and not (work / "x").exists(), "nothing ran")
        for name, read in (("a", (1, 2, 3)), ("b", (1, 2)), ("c", (1,))):
            record(owner, image, modes()[0], work / name, *read)
        merged(owner, parts, work)
        expect(owner.run("profile", "attach", image, Path("/dev/null")).returncode == 1, "not a profile")
        attached = owner.json("profile", "attach", image, work / "b")
        expect(attached["left_out_bytes"] == 0 and attached["index"] != attached["image"], f"{attached}")
        expect(owner.json("profile", "show", image)["spans"] == attached["spans"], "found beside the image")
        inspected = owner.json("inspect", image)
        expect(inspected["profile_bytes"] == attached["bytes"] and inspected["index"] == attached["index"], f"{inspected}")
        again = owner.index(image, "--force")
        expect(owner.json("inspect", image)["profile_bytes"] == attached["bytes"], f"indexing again keeps it: {again}")
        with Source(work / "image") as source:
            for mode in modes():
                a_mount_fetches_ahead(work, mode, source, contents)
                stops_with_its_mount(work, mode, source)
        bare = owner.json("profile", "attach", "--remove", image)
        expect(bare["spans"] == [] and owner.run("profile", "show", image).returncode == 1, "taken away")


if __name__ == "__main__":
    main()
