"""Prewarming: profiles first, then packages by use per byte, within a budget; a session after it fetches nothing of what was fetched; stopped, it goes on."""
import base64, hashlib, json, os, random, signal, subprocess, sys, time
from pathlib import Path

from images import Source, layouts, Tar
from prewarming import prewarmed, spool_of, summary
from program import Varve, need_fuse, need_root, work_folder

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run"))
from tiny_image import needed_files  # noqa: E402

MEGABYTE = 1_000_000
SITE = "usr/lib/python3/dist-packages"
NOISE = random.Random(3)
# Name -> {path in the site folder: megabytes of noise}. Each module's __init__.py comes by itself.
LIBRARIES = {
    "popular": {"popular/data.bin": 1, "popular/tests/data.bin": 2},
    "huge": {"huge/data.bin": 9},
    "rare": {"rare/data.bin": 1},
    "unused": {"unused/data.bin": 2},
    "forgotten": {"forgotten/data.bin": 1},
}
SESSIONS = {"popular": 20, "huge": 18, "rare": 1, "forgotten": 3}  # that use it


TAGS = ("v1", "v2", "v3")


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def library(name, files):
    folder, record = f"{name}-1.0.dist-info", []
    contents = {f"{name}/__init__.py": b"", f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n".encode(), f"{folder}/INSTALLER": b"pip\n"}
    for path, size in files.items():
        contents[f"{Path(path).parent}/__init__.py"] = b""
        contents[path] = NOISE.randbytes(size * MEGABYTE)
    for path, content in contents.items():
        record.append(f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()},{len(content)}\n")
    contents[f"{folder}/RECORD"] = ("".join(record) + f"{folder}/RECORD,,\n").encode()
    return {f"{SITE}/{path}": content for path, content in contents.items()}


def make_images(folder):
    """Two releases that share the layer of libraries; each has a file that its start reads. In a third the same libraries were installed again."""
    base = Tar().dir("bin").dir("tmp", mode=0o1777)
    for path, content in sorted(needed_files().items()):
        base.file(path, content, mode=0o755)
    base.file("usr/bin/python3.11", b"", mode=0o755).symlink("usr/bin/python3", "python3.11").file("usr/lib/python3.11/os.py", b"")
    shared, again, contents = Tar(), Tar(), {}
    for name, files in LIBRARIES.items():
        contents |= library(name, files)
    for path, content in sorted(contents.items()):
        shared.file(path, content)
        again.file(path, content, mtime=60)
    for tag in TAGS:
        contents[f"start-{tag}"] = NOISE.randbytes(2 * MEGABYTE)
        layouts.gzip_image(folder / tag, [base.bytes(), (again if tag == "v3" else shared).bytes(), Tar().file(f"start-{tag}", contents[f"start-{tag}"]).bytes()], "latest")
    return contents


def machine(work):
    varve = Varve(work / f"machine-{os.urandom(3).hex()}")
    varve.work.mkdir()
    return varve


def fetched_by_session(varve, source, *paths):
    """How many bytes, when it reads these files."""
    stats = varve.work / "stats.json"
    varve.run("run", "--rm", "--no-prefetch", "--stats", stats, source.reference, "--", "cat", *(f"/{path}" for path in paths), check=True)
    written = json.loads(stats.read_text())
    return written["fetched_bytes"] - written["loaded_bytes"]


def all_here(varve, source, *paths):
    """A session reads these files while the registry gives nothing. (What is fetched ahead beyond their ends hangs, and harms nobody.)"""
    source.open.clear()
    try:
        fetched_by_session(varve, source, *paths)
    finally:
        source.open.set()


def without_use_the_profiles_in_the_order_named(work, sources):
    with machine(work) as varve:
        whole = prewarmed(varve, "--budget", "1GB", "--dry-run", sources["v2"].reference, sources["v1"].reference)
        expect([item["state"] for item in whole["items"]] == ["planned", "planned"], f"{summary(whole)}")
        budget = whole["items"][0]["planned_bytes"] + MEGABYTE * 3 // 2
        planned = prewarmed(varve, "--budget", budget, "--dry-run", sources["v2"].reference, sources["v1"].reference)
        expect([item["state"] for item in planned["items"]] == ["planned", "planned-part"], f"{summary(planned)}")
        expect(planned["fetched_bytes"] == 0 and planned["planned_bytes"] <= budget, f"a dry run fetches nothing: {planned}")
        done = prewarmed(varve, "--budget", "8MB", sources["v2"].reference, sources["v1"].reference)
        expect(summary(done) == [("profile", "", "fetched")] * 2, f"{summary(done)}")
        expect(4 * MEGABYTE < done["fetched_bytes"] <= done["planned_bytes"] <= 8 * MEGABYTE, f"{done['fetched_bytes']} of {done['planned_bytes']}")
        for tag in ("v1", "v2"):
            all_here(varve, sources[tag], f"start-{tag}")  # what a session does that its profile says
        again = prewarmed(varve, "--budget", "8MB", sources["v2"].reference, sources["v1"].reference)
        expect(summary(again) == [("profile", "", "here")] * 2 and again["fetched_bytes"] == 0, f"{summary(again)}")


def with_use_the_most_used_first(work, sources, database):
    with machine(work) as varve:
        whole = prewarmed(varve, "--budget", "1GB", "--dry-run", "--usage", database, sources["v2"].reference, sources["v1"].reference)
        huge = next(item["planned_bytes"] for item in whole["items"] if item["name"] == "huge")
        budget = whole["planned_bytes"] - huge + 2 * MEGABYTE
        done = prewarmed(varve, "--budget", budget, "--usage", database, sources["v2"].reference, sources["v1"].reference)
        # v1 has the sessions, so its profile is first although it was named last. Of v2 no session was heard: it is used as v1, and the layer is the same.
        states = summary(done)
        expect(states[:2] == [("profile", "", "fetched")] * 2 and done["items"][0]["sessions"] == 20 and done["items"][1]["sessions"] == 0, f"{done['items'][:2]}")
        packages = [(name, state) for kind, name, state in states if kind == "package"]
        fetched = [name for name, state in packages if state == "fetched"]
        expect(fetched == ["popular", "forgotten", "rare"], f"by sessions per byte: {packages}")
        expect(("huge", "over-budget") in packages and not any(name == "unused" for name, _ in packages), f"too large, and unused: {packages}")
        expect(sorted(name for name, state in packages if state == "here") == ["forgotten", "popular", "rare"], f"once for both images: {packages}")
        expect(done["fetched_bytes"] <= budget, f"within the budget: {done['fetched_bytes']}")
        for tag in ("v1", "v2"):
            all_here(varve, sources[tag], f"{SITE}/popular/data.bin", f"{SITE}/rare/data.bin", f"start-{tag}")
        text = varve.run("prewarm", "--budget", "20MB", "--usage", database, sources["v1"].reference, check=True).stdout.decode()
        expect("used in 18 sessions" in text and "were fetched" in text, text)
        all_here(varve, sources["v1"], f"{SITE}/huge/data.bin")  # with a larger budget the rest comes


def what_no_session_loaded_is_left(work, sources, database):
    with machine(work) as varve:
        prewarmed(varve, "--budget", "1GB", "--usage", database, sources["v1"].reference)
        # The last of the layer first: nothing of the other is fetched ahead of its reader.
        expect(fetched_by_session(varve, sources["v1"], f"{SITE}/unused/data.bin") > MEGABYTE // 2, "what nobody used")
        expect(fetched_by_session(varve, sources["v1"], f"{SITE}/popular/tests/data.bin") > MEGABYTE // 2, "the tests of a library")


def nothing_cold(work, folder, sources, database, owner):
    done = subprocess.run([os.environ["MARK_COLD"], owner.root, f"oci:{folder / 'v1'}:latest", f"{SITE}/popular/"], capture_output=True, text=True)
    expect(done.returncode == 0, done.stderr)
    with machine(work) as varve:
        prewarmed(varve, "--budget", "100MB", "--usage", database, sources["v1"].reference)
        expect(fetched_by_session(varve, sources["v1"], f"{SITE}/popular/data.bin") > MEGABYTE // 2, "cold content is not fetched, however much it was used")


def what_is_here_is_copied(work, sources, database):
    with machine(work) as varve:
        first = prewarmed(varve, "--budget", "100MB", "--usage", database, sources["v1"].reference)
        again = prewarmed(varve, "--budget", "100MB", "--usage", database, sources["v3"].reference)
        packages = [item for item in again["items"] if item["kind"] == "package"]
        expect({item["name"] for item in packages if item["state"] == "fetched"} >= {"popular", "huge"}, f"{summary(again)}")
        expect(again["fetched_bytes"] < 3 * MEGABYTE and first["fetched_bytes"] > 12 * MEGABYTE, f"all but its start is here under v1's layer: {again['fetched_bytes']}, {first['fetched_bytes']}")
        all_here(varve, sources["v3"], f"{SITE}/popular/data.bin", f"{SITE}/huge/data.bin")


def stopped_and_run_again(work, hung, database):
    with machine(work) as varve:
        hung.asked.clear(), hung.open.clear()
        process = subprocess.Popen([varve.binary, "prewarm", "--budget", "30MB", hung.reference], env=varve.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        hung.asked.wait()
        process.send_signal(signal.SIGINT)
        expect(process.wait(60) != 0, "stopped")
        hung.open.set()
        done = prewarmed(varve, "--budget", "30MB", "--usage", database, hung.reference)
        expect(all(item["state"] in ("fetched", "here") for item in done["items"]), f"{summary(done)}")
        all_here(varve, hung, "start-v2", f"{SITE}/huge/data.bin")


def main():
    need_root(), need_fuse()
    with work_folder() as work, Varve(work) as owner:
        folder = work / "images"
        folder.mkdir()
        make_images(folder)
        for tag in TAGS:
            image = f"oci:{folder / tag}:latest"
            owner.index(image)
            owner.run("profile", "record", image, "-o", work / tag, "--", "cat", f"/start-{tag}", check=True)
            owner.run("profile", "attach", image, work / tag, check=True)
        first, database = f"oci:{folder / 'v1'}:latest", work / "usage.db"
        spool_of(work / "spool", owner.json("inspect", first)["image"], SESSIONS)
        owner.run("usage", "collect", "--db", database, "--image", first, work / "spool", check=True)
        expect(owner.run("prewarm", first).returncode == 2, "a budget must be named")
        expect(owner.run("prewarm", "--budget", "1GB", "--usage", work / "nowhere", first).returncode == 1, "no such database")
        with Source(folder / "v1") as one, Source(folder / "v2") as two, Source(folder / "v3") as three:
            sources = {"v1": one, "v2": two, "v3": three}
            without_use_the_profiles_in_the_order_named(work, sources)
            with_use_the_most_used_first(work, sources, database)
            what_no_session_loaded_is_left(work, sources, database)
            what_is_here_is_copied(work, sources, database)
            nothing_cold(work, folder, sources, database, owner)
            stopped_and_run_again(work, two, database)


if __name__ == "__main__":
    main()
