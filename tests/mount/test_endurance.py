#!/usr/bin/env python3
"""Kills of daemon and keeper, and daemons that are replaced, in random order and number, under readers, sessions, mounts, pulls and eviction, in both modes at once: no read
fails or differs, and nothing is left. Both killed at once is the one death that mounts do not outlive: then readers get an error and do not hang, and the next daemon tidies
up. Then open() while an image comes and goes, and many images and sessions on one daemon. A failure names the seed, which repeats the order of events (not their timing)."""
import argparse, collections, contextlib, json, os, random, re, signal, socket, statistics, subprocess, sys, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run"))
from endurance_crowd import crowd_images, many_at_once  # noqa: E402
from endurance_load import Mounts, Openers, Pulls, Writers  # noqa: E402
from endurance_readers import DEAD, read_whole, RECORD, State  # noqa: E402
from images import image_with_many_names, layouts, noise_image, Tar  # noqa: E402
from machine import expect, Machine, mount_lines, wait_for  # noqa: E402
from program import children_of, is_running, modes, need_fuse, need_root, need_tools, open_files, work_folder  # noqa: E402
from tiny_image import make_image, TOOLS  # noqa: E402

HERE = Path(__file__).resolve().parent
EVENTS = ("kill the daemon",) * 11 + ("kill the daemon as it takes over",) * 2 + ("kill the keeper",) * 3 + ("replace",) * 3 + ("kill both",)
SETTLED = 1.05  # s; a daemon that died sooner is started again after a pause that grows with the deaths
PERMANENT = ("daemon.lock", ".lock", "blobs", "images")
STORE, BULK = 20_000_000, 16_000_000
SPARE = collections.Counter({"socket": 16, "anon_inode:[eventfd]": 1})  # connections to the registry that are kept for a while; what watched sessions taken over
IMAGES = ("image:latest", "other:latest", "bulk:latest", "small:t")


def end_after(process, patience=10):
    process.terminate()
    process.wait(patience)


class Registry:
    """Of layouts, in a process of its own: the kills are timed in this one."""

    def __init__(self, *folders):
        self.process = subprocess.Popen(["/usr/bin/python3", "-B", HERE.parents[1] / "bench/layout_registry.py", *folders], stdout=subprocess.PIPE)
        self.host = f"127.0.0.1:{int(self.process.stdout.readline())}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        end_after(self.process)


def ask(varve, call, patience=20):
    """A call at the daemon's socket: what it says, or None if there is no daemon that answers."""
    try:
        with socket.socket(socket.AF_UNIX) as asked:
            asked.settimeout(patience)
            asked.connect(str(varve.root / "run/daemon.sock"))
            asked.sendall(json.dumps({"version": 1, "call": call}).encode() + b"\n")
            with asked.makefile("rb") as answers:
                line = answers.readline()
        return json.loads(line)["result"] if line else None
    except (ConnectionError, FileNotFoundError):
        return None


def fails_or_is_right(file, truth):
    """What nobody serves any more: what the kernel still has, or finds in the store without a daemon (a complete layer in kernel mode), and else an error."""
    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        return read_whole(file.fileno(), len(truth), 0) == truth
    except OSError as error:
        return error.errno in DEAD


def descriptors(pid):
    """How many of each kind. A file of the store counts as such, and the number of the process itself is no difference."""
    return collections.Counter(re.sub(r"/store/.*|:\[\d+\]|(?<=/proc/)\d+", "", file) for file in open_files(pid))


def status_kb(pid, field):
    return next(int(line.split()[1]) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(field + ":"))


def processes_of(work):
    """Those that have the folder in their words, their working folder or what they have open."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(work) in words or str(work) in os.readlink(process / "cwd"):
                found[int(process.name)] = words
        except OSError:
            pass
    return found


class World:
    def __init__(self, varve, mode, host, folder, options, contents, other_contents):
        self.varve, self.mode, self.seed, self.readers = varve, mode, f"{options.seed}/{mode}", options.readers
        self.image, self.other, self.bulk, self.small = (f"{host}/{name}" for name in IMAGES)
        self.contents, self.other_contents, self.rng = contents, other_contents, random.Random(f"{self.seed}/events")
        self.place, self.pauses, self.counts = varve.work / "m", {}, {}
        self.state = State(varve.work / "state-of-readers", options.readers)
        (varve.work / "times").mkdir()
        (varve.work / "truth").write_bytes(contents["data/large"])
        varve.environment["TMPDIR"] = str(varve.work / "tmp")
        (varve.work / "tmp").mkdir()

    def ask(self, call):
        return ask(self.varve, call)

    def daemon(self):
        return self.ask("ping") is not None

    def who(self):
        """(daemon, its keeper) once both are there."""
        def both():
            status = self.ask("status")
            return status and status["daemon"]["keeper_pid"] and (status["daemon"]["pid"], status["daemon"]["keeper_pid"])
        return wait_for("daemon and keeper", both)

    def next_daemon(self, *before):
        wait_for("the next daemon", lambda: (status := self.ask("status")) and status["daemon"]["pid"] not in before)

    def start_readers(self):
        words = [HERE / "endurance_readers.py", self.place, self.varve.work / "truth", self.varve.work / "state-of-readers", self.varve.work / "times", self.readers, self.seed]
        self.reading = subprocess.Popen(["/usr/bin/python3", "-B", *map(str, words)], stdout=open(self.varve.work / "readers", "w"), stderr=subprocess.STDOUT)
        self.wait_for_all_readers()

    def check_readers(self):
        if self.reading.poll() is not None:
            raise AssertionError(f"readers: {(self.varve.work / 'readers').read_text()}")

    def wait_for_all_readers(self):
        before = self.state.reads()

        def all_have_read():
            self.check_readers()
            return all(now > then for now, then in zip(self.state.reads(), before))
        try:
            wait_for("a read of every reader", all_have_read, every=0.05)
        except AssertionError as error:
            still = [reader for reader, (now, then) in enumerate(zip(self.state.reads(), before)) if now == then]
            raise AssertionError(f"{error}; readers that hang: {still}; {(self.varve.work / 'readers').read_text()}") from None

    # ------------------------------------------------------------------ events

    def kill_the_daemon(self):
        daemon, _ = self.who()
        os.kill(daemon, signal.SIGKILL)
        self.next_daemon(daemon)

    def kill_the_daemon_as_it_takes_over(self):
        daemon, keeper = self.who()
        os.kill(daemon, signal.SIGKILL)
        successor = wait_for("a daemon that begins", lambda: [pid for pid in children_of(keeper) if pid != daemon], every=0.001)[0]
        time.sleep(self.rng.uniform(0, 0.1))
        with contextlib.suppress(ProcessLookupError):  # the one before was still dying, and the keeper begins another
            os.kill(successor, signal.SIGKILL)
        self.next_daemon(daemon, successor)

    def kill_the_keeper(self):
        _, keeper = self.who()
        os.kill(keeper, signal.SIGKILL)
        wait_for("another keeper", lambda: self.who()[1] != keeper)

    def replace(self):
        daemon, keeper = self.who()
        done = self.varve.run("daemon", "--replace")
        expect(done.returncode == 0 and self.who() == (daemon, keeper), f"replace: {done.returncode} {done.stderr.decode()}; {daemon} and {keeper}, now {self.who()}")

    def kill_both(self):
        """The end of an epoch. What the documentation promises: an error and no hang, and the next daemon cleans up."""
        daemon, keeper = self.who()
        with open(self.place / "data/large", "rb", buffering=0) as held:
            self.state.epoch += 1
            for pid in (keeper, daemon):
                os.kill(pid, signal.SIGSTOP)  # so that neither can help the other
            for pid in (keeper, daemon):
                os.kill(pid, signal.SIGKILL)
            wait_for("the end of both", lambda: not is_running(keeper) and not is_running(daemon))
            expect(fails_or_is_right(held, self.contents["data/large"]), "dead means an error that says so")
        self.writers.end_sessions(dead=True)
        done = self.varve.run("mount", "--mode", self.mode, self.image, self.place)
        expect(done.returncode == 0, f"mount after both have died: {done.returncode} {done.stderr.decode()}")
        self.writers.begin_sessions()
        self.state.epoch += 1
        self.wait_for_all_readers()

    # ------------------------------------------------------------------ the whole

    def survive(self, kills):
        self.varve.mount(self.image, self.mode)
        self.start_readers()
        self.writers = Writers(self, 0.5, 3)
        self.writers.begin_sessions()
        loads = [self.writers, Mounts(self, 0.2), Pulls(self, 0.7)]
        for load in loads:
            load.start()
        events = []
        try:
            for number in range(kills):
                self.one_event(number, events, loads)
            self.wait_for_all_readers()
            for load in loads:
                load.end()
            self.writers.end_sessions()
        except BaseException:
            print(f"seed {self.seed}: event {len(events)}, the last ones {events[-5:]}; {[load.failure for load in loads]}", flush=True)
            raise
        finally:
            self.state.ended = 1
            for load in loads:
                load.ended = True
            self.reading.wait(60)
            (self.writers.go / "stop").touch()
        expect(self.reading.returncode == 0, (self.varve.work / "readers").read_text())
        self.report(events, loads)

    def one_event(self, number, events, loads):
        kind = self.rng.choice(EVENTS)
        time.sleep(SETTLED + self.rng.uniform(0, 0.3) if events and "daemon" in events[-1][0] else self.rng.uniform(0, 0.3))
        begin = time.monotonic()
        events.append([kind, begin, None])
        getattr(self, kind.replace(" ", "_"))()
        events[-1][2] = time.monotonic()
        self.check_readers()
        for load in loads:
            expect(load.failure is None, load.failure)

    def report(self, events, loads):
        times = [RECORD.unpack_from(data, at) for log in (self.varve.work / "times").iterdir() for data in [log.read_bytes()] for at in range(0, len(data) // RECORD.size * RECORD.size, RECORD.size)]
        for kind in dict.fromkeys(kind for kind, _, _ in events):
            spans = [(begin, end) for event, begin, end in events if event == kind]
            if kind == "kill both":
                print(f"  {kind}: {len(spans)} times", flush=True)
                continue
            pauses = sorted(max((took for at, took in times if at < end and at + took > begin), default=0) for begin, end in spans)
            print(f"  {kind}: {len(spans)} times; longest read of each, ms: p50 {1e3 * statistics.median(pauses):.0f}, p99 {1e3 * pauses[int(0.99 * len(pauses))]:.0f}, max {1e3 * pauses[-1]:.0f}", flush=True)
        for load in loads:
            print(f"  {load.title}: {load.turns}", flush=True)
        print(f"{self.mode} mode, seed {self.seed}: {len(events)} events, {sum(self.state.reads())} reads of {self.readers} readers, none failed, none differed", flush=True)


class Idle:
    """What a daemon with nothing to do and its keeper hold: before and after, it must be the same."""

    def __init__(self, world):
        self.pids = world.who()
        self.descriptors = [descriptors(pid) for pid in self.pids]
        # Each connection that ends has a thread for a moment: the fewest of some looks are those that stay.
        looks = [[status_kb(pid, "Threads") for pid in self.pids] for _ in range(30) if not time.sleep(0.01)]
        self.threads = [min(counts) for counts in zip(*looks)]
        self.memory = [status_kb(pid, "VmRSS") for pid in self.pids]
        self.folders = sorted(path.name for path in (world.varve.root / "run").iterdir())

    def expect_no_more_than(self, before):
        for who, now, then, spare in zip(("daemon", "keeper"), self.descriptors, before.descriptors, (SPARE, collections.Counter())):
            expect(not now - then - spare, f"descriptors of an idle {who}: {then} before, {now} now")
        # One may be of the connection that was just asked over.
        expect(all(now <= then + 1 for now, then in zip(self.threads, before.threads)), f"threads of an idle daemon and its keeper: {before.threads} before, {self.threads} now")
        expect(self.folders == before.folders, f"the run folder: {before.folders} before, {self.folders} now")
        if os.environ.get("SANITIZED"):
            return  # sanitizers keep for a while what was freed
        for now, then, more, who in zip(self.memory, before.memory, (64_000, 4_000), ("daemon", "keeper")):
            expect(now < then + more, f"memory of an idle {who}, KB: {then} before, {now} now")


def idle(world):
    """Once nothing is used. A keeper lives as long as there is something to keep, so a mount is made and goes."""
    wait_for("nothing to be mounted and pulled", lambda: (status := world.ask("status")) and not status["mounts"] and not status["idle"] and not status["pulls"])
    world.varve.run("mount", "--mode", world.mode, world.small, world.place, check=True)
    world.varve.run("unmount", world.place, check=True)
    calm = []

    def settled():  # threads and descriptors of what was unmounted go a moment later
        calm.append(Idle(world))
        return len(calm) > 3 and all(vars(one) | {"memory": 0} == vars(calm[-1]) | {"memory": 0} for one in calm[-4:]) and calm[-1]
    return wait_for("calm", settled, every=0.25)


def expect_nothing_left(varve):
    work = varve.work
    expect(mount_lines(varve) == [], f"mounts: {mount_lines(varve)}")
    wait_for("the end of all processes", lambda: not (left := processes_of(work)) or print(left), every=1, seconds=20)
    for folder in (work / "tmp", varve.root / "run", varve.root / "sessions"):
        left = [str(path) for path in folder.rglob("*") if path.name not in PERMANENT] if folder.exists() else []
        expect(left == [], f"files: {left}")
    left = [str(path) for path in varve.root.rglob("*") if path.suffix in (".new", ".tmp") or path.name.startswith(".") and path.name not in PERMANENT]
    expect(left == [], f"temporary files: {left}")


def race_of_open_and_mounts(world, turns):
    """open() all the time while the same image is mounted and unmounted: it is there or it is not; an error there is none."""
    openers = Openers(f"{world.place}/data/large", world.varve.work / "truth", world.varve.work / "stop-openers", 4)
    try:
        for turn in range(turns):
            world.varve.run("mount", "--mode", world.mode, world.image, world.place, check=True)
            if turn % 2 == 0:
                world.varve.run("unmount", "--detach", world.place, check=True)
                continue
            while (done := world.varve.run("unmount", world.place)).returncode:
                expect(b"a process is in it" in done.stderr, f"unmount: {done.stderr.decode()}")
    finally:
        seen = openers.end()
    expect(seen[0] > 0 and seen[1] > 0, f"both were seen: {seen}")
    print(f"{world.mode} mode: {turns} mounts under open(): {seen[0]} reads, {seen[1]} times absent, {seen[2]} times not connected, no other error", flush=True)


def run_mode(work, host, mode, options, contents, other_contents, crowd):
    with Machine(work) as varve:
        (varve.work / "varve.toml").write_text(f"[daemon]\nmax-restarts = 1000\nstore-size = {STORE}\nevict-idle = 1\nkeep-mounted = 2\n")
        world = World(varve, mode, host, work, options, contents, other_contents)
        world.place.mkdir()
        varve.run("mount", "--mode", mode, world.small, world.place, check=True)
        world.kill_the_daemon()  # so that it is one that the keeper has started, as later ones are
        varve.run("unmount", world.place, check=True)
        before = idle(world)
        world.survive(options.kills)
        varve.run("unmount", world.place, check=True)
        varve.mounts.clear()
        race_of_open_and_mounts(world, options.races)
        many_at_once(world, crowd, options.sessions)
        checked = varve.json("verify", "--store")
        expect(checked["bad"] == [], f"the store: {checked}")
        # What is compared is a daemon that has done all this, and a keeper as old as the last daemon that had none.
        after = idle(world)
        for _ in range(600):  # what images hold of each other is looked up after a mount, at the lowest priority, and let go of then
            if not after.descriptors[0] - before.descriptors[0] - SPARE:
                break
            time.sleep(0.2)
            after = Idle(world)
        after.expect_no_more_than(before)
        print(f"{mode} mode: daemon and keeper as before: {[len(one) for one in after.descriptors]} descriptors, {after.threads} threads, {before.memory} KB before, {after.memory} KB now", flush=True)
        varve.stop_daemon()
        expect_nothing_left(varve)


def main():
    need_root(), need_fuse(), need_tools("ldd", *TOOLS)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="events of each mode")
    parser.add_argument("--readers", type=int, default=64)
    parser.add_argument("--races", type=int, default=40, help="mounts under open()")
    parser.add_argument("--images", type=int, default=50, help="at once, after the kills")
    parser.add_argument("--sessions", type=int, default=20, help="of each of these images")
    parser.add_argument("--seed", default=str(random.SystemRandom().randrange(10**6)))
    parser.add_argument("--mode", choices=("kernel", "fuse"), action="append")
    parser.add_argument("--apart", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if len(options.mode or modes()) != 1 or not options.apart:
        sys.exit(each_apart(options))
    with work_folder() as work:
        _, contents = image_with_many_names(work / "image")
        _, other_contents = noise_image(work / "other", 2)
        layouts.gzip_image(work / "bulk", [Tar().dir("data").file("data/bulk", random.Random(11).randbytes(BULK)).bytes()], "latest")
        make_image(work / "small")
        indexer = Machine(work)
        for name in IMAGES:
            indexer.run("index", f"oci:{work / name}", check=True)
        crowd = crowd_images(work, options.images, indexer)
        with Registry(*(work / name.partition(":")[0] for name in IMAGES)) as registry:
            run_mode(work, registry.host, options.mode[0], options, contents, other_contents, crowd)


def each_apart(options):
    """Each mode in a process of its own, and so with its own mounts (need_fuse)."""
    print(f"seed {options.seed}", flush=True)
    words = [word for name in ("kills", "readers", "races", "images", "sessions", "seed") for word in (f"--{name}", str(getattr(options, name)))]
    running = [subprocess.Popen([sys.executable, "-B", __file__, "--apart", "--mode", mode, *words]) for mode in options.mode or modes()]
    return max(process.wait() for process in running)


main()
