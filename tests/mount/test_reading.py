"""Bytes through both mounts while they arrive, from a source that is slow, dead or damaged on disk."""
import errno, json, mmap, os, signal, subprocess, sys, threading, time
from pathlib import Path

from images import Source, noise_image
from program import Varve, modes, need_fuse, need_root, work_folder


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def in_threads(count, work):
    failures = []

    def guarded(i):
        try:
            work(i)
        except BaseException as error:  # noqa: BLE001  every failure of a thread is the test's
            failures.append(f"thread {i}: {error!r}")
    threads = [threading.Thread(target=guarded, args=(i,)) for i in range(count)]
    [t.start() for t in threads], [t.join() for t in threads]
    expect(not failures, "; ".join(failures[:5]))


def fresh(work, source, mode, daemon_options=()):
    """A state folder of its own, its daemon in the foreground, the image mounted."""
    varve = Varve(work / f"w{os.urandom(4).hex()}")
    varve.work.mkdir()
    varve.daemon = subprocess.Popen([varve.binary, "daemon", *daemon_options], stdout=subprocess.PIPE, stderr=open(varve.work / "log", "w"), env=varve.environment)
    for _ in range(400):
        if varve.daemon_pid():
            break
        threading.Event().wait(0.05)
    place = varve.work / "m"
    place.mkdir()
    varve.run("mount", "--mode", mode, source, place, check=True)
    varve.mounts.append(str(place))
    return varve, place


def ended(varve):
    varve.__exit__()
    expect(varve.daemon.wait(60) == 0, "the daemon's exit status")


# A process of its own: a page fault holds Python's lock, and the source that must answer it is a thread of this process.
RANDOM_READER = """
import mmap, os, random, sys
path, expected, seed = sys.argv[1:]
large, rng = open(expected, "rb").read(), random.Random(int(seed))
with open(path, "rb", buffering=0) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
    for turn in range(60):
        offset, length = rng.randrange(len(large)), rng.choice([1, 100, 4096, 70_000, 1_500_000])
        got = mapped[offset:offset + length] if turn % 2 else os.pread(file.fileno(), length, offset)
        if got != large[offset:offset + length]:
            sys.exit(f"{offset}+{length} differs")
"""


def random_reads_and_mappings(work, source, contents, mode):
    varve, place = fresh(work, source.reference, mode)
    expected = work / "expected-large"
    expected.write_bytes(contents["data/large"])

    def read(i):
        done = subprocess.run([sys.executable, "-B", "-c", RANDOM_READER, str(place / "data/large"), str(expected), str(i)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        expect(done.returncode == 0, f"reader {i}: {done.stdout}")
    in_threads(8, read)
    for path, content in contents.items():
        expect((place / path).read_bytes() == content, f"{path} differs")
    expect(not (place / "data/gone").exists(), "a whiteout hides")
    ended(varve)


def readers_of_one_cold_file_share_its_download(work, source, contents, mode):
    varve, place = fresh(work, source.reference, mode)
    in_threads(64, lambda i: expect((place / "data/large").read_bytes() == contents["data/large"], "differs"))
    mount = varve.json("status", place)["mounts"][0]
    layers = sum(layer["compressed_bytes"] for layer in varve.json("inspect", source.reference)["layers"])
    expect(mount["fetched_bytes"] <= layers * 1.1, f"{mount['fetched_bytes']} fetched of {layers}")
    expect(mount["decoded_bytes"] <= mount["image_stream_bytes"], "each span is decoded once")
    ended(varve)


def a_hanging_source_hangs_nobody_else(work, source, contents, mode):
    varve, place = fresh(work, source.reference, mode)
    (place / "upper/file").read_bytes()
    source.open.clear(), source.asked.clear()
    got = []
    reader = threading.Thread(target=lambda: got.append((place / "data/large").read_bytes()))
    reader.start()
    expect(source.asked.wait(60), "the source must be asked")
    status = varve.json("status", timeout=30)
    expect(status["mounts"][0]["fetching"] > 0, f"status says what is being fetched: {status}")
    expect((place / "upper/file").read_bytes() == b"above\n", "what is here can be read")
    time.sleep(1)
    mount, host = varve.json("status", place)["mounts"][0], source.reference.partition("/")[0]
    expect(mount["waiting_for"] == f"{host}/image" and mount["waiting_seconds"] >= 1 and mount["errors"] == 0, f"status says what is waited for: {mount}")
    said = varve.run("status", check=True).stdout.decode()
    expect(f"image:latest: a reader is waiting for {host} since " in said and max(map(len, said.splitlines())) <= 100, f"for people too: {said}")
    victim = subprocess.Popen(["cat", place / "data/text"], stdout=subprocess.DEVNULL)
    threading.Event().wait(0.2)
    victim.kill()
    victim.wait(30)  # a reader that is killed goes
    source.open.set()
    reader.join(120)
    expect(got == [contents["data/large"]], "the reader gets its bytes in the end")
    mount = varve.json("status", place)["mounts"][0]
    expect(mount["waiting_for"] == "" and mount["bytes_from"] == {"registry": mount["fetched_bytes"], "mirror": 0, "pack": 0, "local": 0}, f"{mount}")
    ended(varve)


def a_pull_that_nobody_waits_for_is_seen(work, source, contents, mode):
    varve, place = fresh(work, source.reference, mode)
    expect(varve.json("status")["pulls"] == [], "none")
    source.open.clear(), source.asked.clear()
    varve.run("pull", source.reference, check=True)
    expect(source.asked.wait(60), "the source must be asked")
    pull = varve.json("status")["pulls"][0]
    whole = varve.json("status")["mounts"][0]["image_stream_bytes"]
    expect(pull["reference"].endswith("image:latest") and pull["done_bytes"] < pull["total_bytes"] == whole and pull["error"] == "", f"{pull}")
    said = varve.run("status", check=True).stdout.decode()
    expect("pull of image:latest: " in said and "/s, since " in said, said)
    checked = varve.json("verify", source.reference)
    expect(checked["checked_bytes"] + checked["absent_bytes"] == whole and checked["absent_bytes"] > 0, f"verify says what it could not check: {checked}")
    expect(b"not checked: " in varve.run("verify", source.reference, check=True).stdout, "for people too")
    source.open.set()
    for _ in range(600):
        if not varve.json("status")["pulls"]:
            break
        threading.Event().wait(0.05)
    status = varve.json("status")
    expect(status["pulls"] == [] and status["mounts"][0]["complete"], f"{status}")
    watching = subprocess.Popen([varve.binary, "status", "--json", "--watch=0.1"], stdout=subprocess.PIPE, env=varve.environment)
    seen = [json.loads(watching.stdout.readline()) for _ in range(3)]
    watching.send_signal(signal.SIGINT)
    expect(watching.wait(30) == 130 and all(document["mounts"] == seen[0]["mounts"] for document in seen), f"{watching.returncode} {seen}")
    ended(varve)


def a_dead_source_is_an_error_after_the_deadline(work, source, contents, mode):
    varve, place = fresh(work, source.reference, mode, ["--deadline", "2"])
    source.failing = True
    try:
        (place / "data/large").read_bytes()
        raise AssertionError("a read without a source must fail")
    except OSError as error:
        expect(error.errno == errno.EIO, f"{error!r}")
    log = (varve.work / "log").read_text()
    layer = varve.json("inspect", source.reference)["layers"][0]["digest"]
    expect(layer in log, f"the log must name the layer {layer}: {log[-2000:]}")
    mount = varve.json("status", place)["mounts"][0]
    expect(mount["errors"] > 0 and mount["last_error"], f"{mount}")
    # Who has the error finds the layer, the source and its answer with the command that `mount` named.
    host = source.reference.partition("/")[0]
    for command in (("status", place), ("unmount", "--detach", place)):
        done = varve.run(*command, check=True)
        said = (done.stdout + done.stderr).decode()
        expect(all(word in said for word in (layer, host, "503")), f"{command[0]} names {layer}, {host} and its answer: {said}")
    hint = varve.run("mount", "--mode", mode, source.reference, place, check=True).stderr.decode()
    expect(f"`varve status {place}` says why" in hint, hint)
    expect(b"says why" not in varve.run("--quiet", "mount", "--mkdir", "--mode", mode, source.reference, varve.work / "quiet", check=True).stderr, "--quiet")
    varve.run("unmount", varve.work / "quiet", check=True)
    source.failing = False
    expect((place / "data/large").read_bytes() == contents["data/large"], "and when the source is back it is read")
    ended(varve)


def what_is_here_needs_no_source_and_is_verified(work, source, contents, mode):
    varve, place = fresh(work, source.reference, mode)
    pulled = varve.json("pull", "--wait", source.reference)
    expect(pulled["present_bytes"] == varve.json("status", place)["mounts"][0]["image_stream_bytes"], f"{pulled}")
    ended(varve)
    # The largest file of the store is the large layer; damage in the middle of its noise.
    store_file = max((p for p in (varve.root / "store").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    with open(store_file, "r+b") as file:
        file.seek(2_000_000)
        byte = file.read(1)[0]
        file.seek(2_000_000)
        file.write(bytes([byte ^ 1]))
    before = source.blobs_served
    for arguments, status in ((("verify", source.reference), 3), (("verify", source.reference), 0), (("verify", "--store"), 0)):
        done = varve.run(*arguments, "--json")
        report = json.loads(done.stdout or b"{}")
        expect(done.returncode == status, f"{arguments}: exit {done.returncode} {done.stderr.decode()} {report}")
        expect(len(report["bad"]) == (1 if status else 0), f"{report}")
        expect(report["checked_bytes"] > 0, f"{report}")
    varve.run("mount", "--mode", mode, source.reference, place, check=True)
    expect((place / "data/large").read_bytes() == contents["data/large"], "the damaged span is fetched anew")
    served = source.blobs_served - before
    expect(1 <= served <= 4, f"only the damaged span is fetched: {served} requests")
    varve.run("unmount", place, check=True)
    # Complete again, so that kernel mode reads the store file itself: what is damaged under a mount is repaired before anybody sees a hole.
    varve.run("pull", "--wait", source.reference, check=True)
    varve.run("mount", "--mode", mode, source.reference, place, check=True)
    with open(store_file, "r+b") as file:
        file.seek(3_000_000)
        file.write(b"damage")
    expect(varve.run("verify", source.reference).returncode == 3, "the damage is found")
    expect((place / "data/large").read_bytes() == contents["data/large"], "and repaired")
    varve.__exit__()


def what_was_damaged_is_seen_right_again_or_said_to_be_held(work, source, contents, mode):
    varve, place = fresh(work, source.reference, mode, ["--deadline", "2"])
    varve.run("pull", "--wait", source.reference, check=True)
    varve.run("unmount", place, check=True)
    varve.run("mount", "--mode", mode, source.reference, place, check=True)  # in kernel mode now over the store's own file
    store_file = max((p for p in (varve.root / "store").rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    large = place / "data/large"

    def damage(at):
        with open(store_file, "r+b") as opened:
            opened.seek(at)
            opened.write(b"damage")
        with open(large, "rb") as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def verify(status, bad, stale):
        done = varve.run("verify", "--json", source.reference)
        report = json.loads(done.stdout)
        expect((done.returncode, len(report["bad"]), len(report.get("stale", []))) == (status, bad, stale), f"exit {done.returncode}: {report} {done.stderr.decode()}")
        return report.get("stale", [])
    damage(3_000_000)
    expect(large.read_bytes() != contents["data/large"], "the damage is seen, and in the page cache of the mount")
    verify(3, 1, 0)
    expect(large.read_bytes() == contents["data/large"], "what is repaired is seen by the next reader")
    verify(0, 0, 0)
    # A page that somebody has mapped stays whatever one does: that is said until it is gone, by later daemons, too.
    damage(4_000_000)
    with open(large, "rb") as file:
        held = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    expect(held[:] != contents["data/large"], "the damage is seen")
    stale = verify(3, 1, 1)[0]
    expect(stale["reference"].endswith(f"/{source.reference}") and (stale["file"], stale["files"]) == ("/data/large", 1), f"{stale}")
    expect(held[:] != contents["data/large"], "the kernel keeps what is mapped")
    verify(3, 0, 1)
    varve.run("daemon", "--replace", check=True)
    said = varve.run("verify", "--store")
    expect(said.returncode == 3 and f"/{source.reference} (" in said.stdout.decode().partition("mount anew: ")[2], f"{said}")
    held.close()
    verify(0, 0, 0)
    expect(large.read_bytes() == contents["data/large"], "and now it is right")
    expect(varve.run("verify", "--store").returncode == 0, "and forgotten")
    # Without a source nothing is repaired, and nothing is believed to be right.
    damage(5_000_000)
    expect(large.read_bytes() != contents["data/large"], "the damage is seen")
    source.failing = True
    expect(varve.run("verify", source.reference, timeout=200).returncode == 3, "damaged")
    source.failing = False
    expect(varve.run("verify", source.reference).returncode in (0, 3), "found once more, or fetched meanwhile")
    expect(varve.run("verify", source.reference).returncode == 0, "repaired")
    expect(large.read_bytes() == contents["data/large"], "and right")
    ended(varve)


def a_store_smaller_than_the_image_reads_it_right(work, source, contents, mode):
    limit = 3_000_000
    varve, place = fresh(work, source.reference, mode, ["--store-size", str(limit), "--evict-idle", "0"])
    in_threads(4, lambda i: expect((place / "data/large").read_bytes() == contents["data/large"], "differs"))
    expect((place / "data/text").read_bytes() == contents["data/text"], "differs")
    store = varve.json("status")["store"]
    for _ in range(300):
        if store["bytes"] <= limit:
            break
        threading.Event().wait(0.1)
        store = varve.json("status")["store"]
    expect(store["bytes"] <= limit == store["max_bytes"], f"{store}")
    with open(place / "data/large", "rb") as file:  # what the kernel has in memory would hide the store
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    before = varve.json("status")["mounts"][0]["fetched_bytes"]
    expect((place / "data/large").read_bytes() == contents["data/large"], "what went is fetched anew")
    expect(varve.json("status")["mounts"][0]["fetched_bytes"] > before, "nothing had gone")
    expect(varve.run("verify", "--store").returncode == 0, "what is left is right")
    ended(varve)


def main():
    need_root(), need_fuse()
    checks = (random_reads_and_mappings, readers_of_one_cold_file_share_its_download, a_hanging_source_hangs_nobody_else,
              a_pull_that_nobody_waits_for_is_seen, a_dead_source_is_an_error_after_the_deadline, what_is_here_needs_no_source_and_is_verified,
              what_was_damaged_is_seen_right_again_or_said_to_be_held, a_store_smaller_than_the_image_reads_it_right)
    with work_folder() as work:
        image, contents = noise_image(work / "image")
        Varve(work / "indexer").run("index", image, check=True)
        for mode in modes():
            for check in checks:
                print(mode, check.__name__, flush=True)
                with Source(work / "image") as source:
                    check(work, source, contents, mode)


main()
sys.exit(0)
