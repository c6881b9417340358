"""Mounts and sessions outlive their daemon: killed at any moment or replaced, they notice a pause and nothing else."""
import concurrent.futures, contextlib, ctypes, errno, fcntl, hashlib, json, os, random, shlex, signal, socket, subprocess, sys, threading, time
from pathlib import Path

import layouts
from images import image_with_many_names, Source
from machine import expect, keeper_pid, Machine, mount_lines, wait_for
from program import children_of, end_all_in, is_running, modes, need_fuse, need_root, processes_of, Varve, work_folder
from tars import Tar

KILLS = 10
UNMOUNTS = 12
UMOUNT2, READ = {"x86_64": ("166", "0"), "aarch64": ("39", "63")}[os.uname().machine]
AT_ONCE_SECONDS = 20  # an orderly start takes a tenth of a second; one that waits for an answer of the source takes for ever


# Reads at random places, mapped and not, until it is told to end; lists a folder as well. A process of its own, as a page fault holds Python's lock.
READER = """
import mmap, os, random, sys, time
root, expected, stop, seed = sys.argv[1:]
large, rng, turns = open(expected, "rb").read(), random.Random(int(seed)), 0
names = set(os.listdir(root + "/many"))
assert len(names) == 3000, len(names)
with open(root + "/data/large", "rb", buffering=0) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
    while not os.path.exists(stop):
        turns += 1
        time.sleep(0.002)  # else three of them take both cores, and what is waited for is the daemon that they ask
        offset, length = rng.randrange(len(large)), rng.choice([1, 100, 4096, 70_000, 1_500_000])
        got = mapped[offset:offset + length] if turns % 2 else os.pread(file.fileno(), length, offset)
        if got != large[offset:offset + length]:
            sys.exit(f"{offset}+{length} differs")
        if turns % 5 == 0:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # so that the daemon is asked again
            if set(os.listdir(root + "/many")) != names:
                sys.exit("the listing differs")
        if turns % 7 == 0:
            name = rng.choice(sorted(names))
            if open(f"{root}/many/{name}").read() != name:
                sys.exit(f"{name} differs")
print(turns)
"""


@contextlib.contextmanager
def readers(varve, place, contents, count=3):
    """They run meanwhile, and must end well."""
    expected, stop = varve.work / "expected", varve.work / "stop"
    expected.write_bytes(contents["data/large"])
    stop.unlink(missing_ok=True)
    running = [subprocess.Popen([sys.executable, "-B", "-c", READER, str(place), str(expected), str(stop), str(i)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
               for i in range(count)]
    try:
        yield
        stop.touch()
        for reader in running:
            said, _ = reader.communicate(timeout=60)
            expect(reader.returncode == 0 and int(said) > 0, f"reader: exit {reader.returncode}: {said}")
    finally:
        for reader in running:
            if reader.poll() is None:
                reader.kill()


def killed_again_and_again(work, source, contents, mode):
    with Machine(work) as varve:
        place = varve.mount(source.reference, mode)
        rng = random.Random(5)
        with readers(varve, place, contents):
            for _ in range(KILLS):
                time.sleep(rng.uniform(0, 0.5))
                varve.next_daemon(varve.kill_daemon())
        status = varve.json("status")
        expect([(m["dir"], m["mode"], m["session"], m["errors"]) for m in status["mounts"]] == [(str(place), mode, False, 0)], f"status: {status}")
        for path, content in contents.items():
            expect((place / path).read_bytes() == content, f"{path} differs")
        checked = varve.json("verify", "--store")
        expect(checked["bad"] == [] and checked["checked_bytes"] > 0, f"the store: {checked}")
        busy = varve.run("unmount", place)
        expect(busy.returncode == 0, busy.stderr.decode())
        varve.mounts.clear()
        expect(mount_lines(varve) == [], f"left: {mount_lines(varve)}")


def a_read_that_waits_is_answered_by_the_next_daemon(work, source, contents, mode):
    with Machine(work) as varve:
        place = varve.mount(source.reference, mode)
        source.open.clear(), source.asked.clear()
        reader = subprocess.Popen(["sha256sum", place / "data/large"], stdout=subprocess.PIPE)
        listing = os.scandir(place / "many")
        first = [next(listing).name for _ in range(10)]
        try:
            expect(source.asked.wait(60), "the reader waits for the source")
            before = varve.kill_daemon()
            varve.next_daemon(before)
        finally:
            source.open.set()
        expect(reader.communicate(timeout=60)[0].decode().split()[0] == hashlib.sha256(contents["data/large"]).hexdigest(), "the bytes differ")
        with listing:
            names = first + [entry.name for entry in listing]
        expect(sorted(names) == sorted(f"f{i:04}" for i in range(3000)), f"an open listing goes on: {len(names)} names, {len(set(names))} different")


def detached_but_open_is_served_on(work, source, contents, mode):
    with Machine(work) as varve:
        place = varve.mount(source.reference, mode)
        with open(place / "data/large", "rb", buffering=0) as held:
            held.read(1000)
            varve.run("unmount", "--detach", place, check=True)
            varve.mounts.clear()
            varve.next_daemon(varve.kill_daemon())
            os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            expect(os.pread(held.fileno(), 5_000_000, 500_000) == contents["data/large"][500_000:5_500_000], "detached: the bytes differ")
            expect(varve.json("status")["mounts"] == [], "detached is not shown")
            again = varve.mount(source.reference, mode, "again")
            expect((again / "upper/file").read_bytes() == b"above\n", "a new mount beside it")
            varve.next_daemon(varve.kill_daemon())
            os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            expect(os.pread(held.fileno(), 100_000, 4_000_000) == contents["data/large"][4_000_000:4_100_000], "detached, after another death")
            expect((again / "many/f0007").read_text() == "f0007", "the mount beside it")


def the_image_may_be_gone(work, source, contents, mode):
    """The tag has moved and the registry is away: what was mounted is known without them."""
    with Machine(work) as varve:
        place = varve.mount(source.reference, mode)
        varve.run("pull", "--wait", source.reference, check=True)
        time.sleep(1.5)  # what came in the last half second is not recorded yet, and would be fetched again
        source.open.clear()  # nothing is answered any more
        try:
            varve.next_daemon(varve.kill_daemon())
            expect((place / "data/large").read_bytes() == contents["data/large"], "differs")
        finally:
            source.open.set()


def a_session_outlives_its_daemon(work, source, contents, mode):
    with Machine(work) as varve:
        stats, go = varve.work / "stats", varve.work / "go"
        go.mkdir()
        script = "import os, time\nfirst = open('/data/large', 'rb').read(1000)\nopen('/go/ready', 'w')\nwhile not os.path.exists('/go/on'): time.sleep(0.01)\n" \
                 "import hashlib\nprint(hashlib.sha256(open('/data/large', 'rb').read()).hexdigest(), len(os.listdir('/many')))"
        command = [varve.binary, "run", "--rm", "--mode", mode, "--runtime", "none", "--stats", stats, "--volume", f"{go}:/go"]
        for folder in ("/usr", "/lib", "/lib64", "/bin"):
            command += ["--volume", f"{folder}:{folder}:ro"]
        session = subprocess.Popen([*map(str, command), source.reference, "--", "/usr/bin/python3", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=varve.environment)
        try:
            wait_for("the session", lambda: (go / "ready").exists() or session.poll() is not None)
            if session.poll() is not None:
                raise AssertionError(f"the session: {session.communicate()}")
            varve.next_daemon(varve.kill_daemon())
            status = varve.json("status")
            expect([m["session"] for m in status["mounts"]] == [True], f"the lease is known: {status}")
            varve.next_daemon(varve.kill_daemon())
            (go / "on").touch()
            out, err = session.communicate(timeout=60)
        finally:
            if session.poll() is None:
                session.kill()
        expect(session.returncode == 0 and out.decode().split() == [hashlib.sha256(contents["data/large"]).hexdigest(), "3000"], f"{session.returncode}: {out} {err.decode()}")
        expect(json.loads(stats.read_text())["exit_status"] == 0, "its statistics")
        wait_for("the end of the lease", lambda: varve.json("status")["mounts"] == [] and mount_lines(varve) == [])


def a_program_takes_the_place_of_the_daemon(work, source, contents, mode):
    with Machine(work) as varve:
        place = varve.mount(source.reference, mode)
        before = varve.json("status")["daemon"]
        with readers(varve, place, contents):
            for _ in range(3):
                time.sleep(0.2)
                replaced = varve.json("daemon", "--replace")
                expect((replaced["pid"], replaced["mounts"]) == (before["pid"], 1), f"the same process: {replaced} {before}")
        after = varve.json("status")["daemon"]
        expect(after["keeper_pid"] == before["keeper_pid"], "the keeper stays")
        varve.next_daemon(varve.kill_daemon())
        expect((place / "many/f0001").read_text() == "f0001", "it is started again like the first")


def a_keeper_that_dies_is_replaced(work, source, contents, mode):
    with Machine(work) as varve:
        place = varve.mount(source.reference, mode)
        first = keeper_pid(varve)
        os.kill(first, signal.SIGKILL)
        wait_for("another keeper", lambda: keeper_pid(varve) not in (0, first))
        varve.next_daemon(varve.kill_daemon())
        expect((place / "data/large").read_bytes() == contents["data/large"], "differs")


def without_a_keeper_the_next_daemon_cleans_up(work, source, contents, mode):
    with Machine(work) as varve:
        place = varve.mount(source.reference, mode)
        (place / "upper/file").read_bytes()
        keeper, daemon = keeper_pid(varve), varve.daemon_pid()
        os.kill(keeper, signal.SIGSTOP)  # so that neither can help the other
        os.kill(daemon, signal.SIGKILL)
        os.kill(keeper, signal.SIGKILL)
        wait_for("the end of both", lambda: not is_running(keeper) and not is_running(daemon))
        try:
            (place / "many/f0001").read_bytes()
            raise AssertionError("nobody can have answered that")
        except OSError as error:
            expect(error.errno in (errno.ENOTCONN, errno.EIO, errno.ECONNABORTED), f"dead means an error and no hang: {error}")
        again = varve.mount(source.reference, mode, "again")
        expect((again / "upper/file").read_bytes() == b"above\n", "the next one serves")
        expect(not os.path.ismount(place), "the dead mount is gone")
        varve.mounts.remove(str(place))


def a_daemon_that_dies_too_often_is_given_up(work, source, contents, mode):
    with Machine(work, max_restarts=2) as varve:
        place = varve.mount(source.reference, mode)
        keeper = keeper_pid(varve)
        for _ in range(2):
            varve.next_daemon(varve.kill_daemon())
        varve.kill_daemon()
        wait_for("the end of the keeper", lambda: not is_running(keeper))
        try:
            (place / "many/f0001").read_bytes()
            raise AssertionError("nobody can have answered that")
        except OSError as error:
            expect(error.errno in (errno.ENOTCONN, errno.EIO, errno.ECONNABORTED), f"given up means an error and no hang: {error}")
        expect("are given up" in (varve.root / "daemon.log").read_text(), "the log says it")
        again = varve.mount(source.reference, mode, "again")
        expect((again / "upper/file").read_bytes() == b"above\n" and not os.path.ismount(place), "the next one cleans up and serves")
        varve.mounts.remove(str(place))


def killed_while_it_mounts_and_unmounts(work, source, contents, mode):
    """What commands were told is what is there."""
    with Machine(work) as varve:
        rng, places = random.Random(9), [varve.work / f"p{i}" for i in range(3)]
        for place in places:
            place.mkdir()
        there = set()
        for turn in range(14):
            place = rng.choice(places)
            command = ["unmount", place] if place in there else ["mount", "--mode", mode, source.reference, place]
            killer = threading.Timer(rng.uniform(0, 0.15), lambda: (pid := varve.daemon_pid()) and os.kill(pid, signal.SIGKILL))
            killer.start()
            done = varve.run(*command)
            killer.join()
            # A command starts a daemon if none is there; one that still reaches the dying one does not.
            absent = ("pull", f"oci:{varve.work / 'absent'}")
            status = wait_for("a daemon", lambda: varve.run(*absent) and varve.daemon_pid() and varve.json("status"))
            shown = {Path(m["dir"]) for m in status["mounts"]}
            expect(shown == {p for p in places if os.path.ismount(p)}, f"turn {turn}: status {shown}, mounted {mount_lines(varve)}")
            wanted = there ^ {place} if done.returncode == 0 else there
            # A command that lost its daemon may have been carried out before: of an unmount only the answer may be missing.
            expect(shown == wanted or (done.returncode and command[0] == "unmount" and shown == there - {place}), f"turn {turn} {command[0]}: {done.returncode} {done.stderr.decode()} {shown} {wanted}")
            there = shown
            for p in there:
                expect((p / "many/f0001").read_text() == "f0001", f"turn {turn}: {p}")
        varve.mounts = [str(p) for p in there]


def call_of(task):
    """The system call in which that task of /proc waits, and its arguments; [] if it runs or has ended."""
    with contextlib.suppress(OSError):
        words = (task / "syscall").read_text().split()
        return words if len(words) > 1 else []
    return []


def reads(pid, path):
    call = call_of(Path(f"/proc/{pid}"))
    with contextlib.suppress(OSError):
        return call[:1] == [READ] and os.readlink(f"/proc/{pid}/fd/{int(call[1], 16)}") == str(path)
    return False


def reader_killed_while_it_waits(source, path):
    """What was read ahead for it stays under way. That the source is asked is not enough: once it serves, a mount fetches more of its index, too."""
    reader = subprocess.Popen(["cat", path], stdout=subprocess.DEVNULL)
    expect(source.asked.wait(60), "the source is asked")
    wait_for("a reader that waits for the source", lambda: reads(reader.pid, path))
    reader.kill(), reader.wait(60)


def waits_to_unmount(daemon):
    """Whether a thread or a child of the daemon waits in the kernel for an unmount."""
    tasks = [*Path(f"/proc/{daemon}/task").glob("*"), *(Path(f"/proc/{child}") for child in children_of(daemon))]
    return any(call_of(task)[:1] == [UMOUNT2] for task in tasks)


def others_of(varve):
    """Processes besides the daemon and its keeper."""
    return set(processes_of(varve.work)) - {varve.daemon_pid(), keeper_pid(varve)}


def killed_while_the_kernel_unmounts(work, source, contents, mode):
    """Read-ahead under way keeps the kernel's unmount waiting, and only a daemon can answer it: the next one, which must come at once."""
    rng, waited = random.Random(11), 0
    for turn in range(UNMOUNTS):
        with Machine(work) as varve:
            place = varve.mount(source.reference, mode)
            before = varve.daemon_pid()
            source.open.clear(), source.asked.clear()
            try:
                reader_killed_while_it_waits(source, place / "data/large")
                unmount = subprocess.Popen([varve.binary, "unmount", place], env=varve.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                if turn % 2 == 0 and mode == "kernel":
                    # It may have ended before it was looked at: what counts is how often it did wait.
                    wait_for("the kernel's unmount", lambda: waits_to_unmount(before) or unmount.poll() is not None)
                time.sleep(rng.uniform(0, 0.1))
                waited += waits_to_unmount(before)
                os.kill(before, signal.SIGKILL)
                wait_for("the end of the daemon", lambda: not is_running(before), AT_ONCE_SECONDS)
                # A command starts one where the keeper has nothing to keep any more.
                wait_for("the next daemon", lambda: varve.run("pull", f"oci:{varve.work / 'absent'}") and varve.daemon_pid(), AT_ONCE_SECONDS)
            except AssertionError:
                # Ends what the daemon waits for; else each further command would wait for the daemon.
                for line in mount_lines(varve):
                    subprocess.run(["umount", "-f", line.split()[4]], stderr=subprocess.DEVNULL)
                end_all_in(varve.work)
                raise
            finally:
                source.open.set()
            unmount.wait(60)
            wait_for("the end of what unmounts", lambda: not others_of(varve))
            shown = [m["dir"] for m in varve.json("status")["mounts"]]
            expect(shown == ([str(place)] if os.path.ismount(place) else []), f"turn {turn}: status {shown}, mounted {mount_lines(varve)}")
            if shown:
                expect((place / "data/large").read_bytes() == contents["data/large"], f"turn {turn}: differs")
                varve.run("unmount", place, check=True)
            varve.mounts.clear()
    expect(mode != "kernel" or waited >= UNMOUNTS // 2, f"only {waited} times the kernel was waiting")


def what_nobody_uses_any_more_holds_nobody_up(work, source, contents, mode):
    """The last user went with the daemon, and the kernel's unmount waits for read-ahead that a silent source has: the next daemon serves others meanwhile."""
    with Machine(work) as varve:
        place = varve.mount(source.reference, mode)
        varve.run("unmount", place, check=True)  # what a mount must load is here
        source.open.clear(), source.asked.clear()
        try:
            varve.run("mount", "--fill", "--mode", mode, source.reference, place, check=True)
            before, keeper, record = varve.daemon_pid(), keeper_pid(varve), varve.root / "run/handover.json"
            reader_killed_while_it_waits(source, place / "data/large")
            os.kill(keeper, signal.SIGSTOP)
            os.kill(before, signal.SIGKILL)
            wait_for("the end of the daemon", lambda: not is_running(before), AT_ONCE_SECONDS)
            left = json.loads(record.read_text())
            expect([name["dir"] for name in left["names"]] == [str(place)] and [mount["fill"] for mount in left["mounts"]] == [True], left)
            record.write_text(json.dumps({**left, "names": []}))
            expect(ctypes.CDLL(None).umount2(str(place).encode(), 0) == 0, "as far as an unmount has come then (umount(8) asks the file system)")
            (orphan := varve.root / "run/images" / ("0" * 64)).mkdir()  # at which it would have mounted an image
            os.kill(keeper, signal.SIGCONT)
            wait_for("the next daemon", lambda: (pid := varve.daemon_pid()) and pid != before, AT_ONCE_SECONDS)
            expect(varve.json("status")["pulls"] == [], "nothing is fetched for nobody")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(keeper, signal.SIGCONT)
            source.open.set()
        wait_for("its end", lambda: mount_lines(varve) == [])
        expect(not orphan.exists(), "a folder with nothing at it")
        varve.mounts.clear()


def an_unmount_that_waits_holds_nobody_up(work, source, contents, mode):
    """The kernel's unmount waits for read-ahead that a silent source has: other images are mounted and unmounted meanwhile, the same one after it, and another program takes over when it may."""
    other = f"oci:{work / 'other'}:latest"
    with Machine(work) as varve:
        place, elsewhere = varve.mount(source.reference, mode), varve.work / "elsewhere"
        elsewhere.mkdir()
        daemon = varve.daemon_pid()
        source.open.clear(), source.asked.clear()
        begin = lambda *words: subprocess.Popen([varve.binary, *words], env=varve.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        under_way = []
        try:
            reader_killed_while_it_waits(source, place / "data/large")
            under_way.append(begin("unmount", place))
            if mode == "kernel":
                wait_for("the kernel's unmount", lambda: waits_to_unmount(daemon))
            second = varve.work / "second"
            for _ in range(3):
                varve.run("mount", "--mkdir", "--mode", mode, other, second, check=True, timeout=AT_ONCE_SECONDS)
                expect((second / "file").read_bytes() == b"of another image\n", "the other image")
                varve.run("unmount", second, check=True, timeout=AT_ONCE_SECONDS)
            expect(not os.path.ismount(place), "the one that is being unmounted is out of sight")
            expect(mode != "kernel" or (under_way[0].poll() is None and waits_to_unmount(daemon)), "it still waits")
            under_way.append(begin("mount", "--mode", mode, source.reference, elsewhere))
            under_way.append(begin("daemon", "--replace"))
            time.sleep(0.2)
            expect(mode != "kernel" or all(command.poll() is None for command in under_way), "the same image, and another program, after it")
        finally:
            source.open.set()
            ends = [(command.communicate(timeout=60)[0].decode(), command.returncode) for command in under_way]
        expect([code for _, code in ends] == [0, 0, 0], ends)
        varve.mounts[:] = [str(elsewhere)]
        expect((elsewhere / "data/large").read_bytes() == contents["data/large"], "it is mounted again")
        expect(sum(" erofs " in line for line in mount_lines(varve)) == (2 if mode == "kernel" else 0), mount_lines(varve))


class ServiceManager:
    """Does what systemd does for a service with FileDescriptorStoreMax=: takes descriptors, and hands them to the next process."""

    def __init__(self, varve):
        self.varve, self.kept, self.said, path = varve, {}, [], str(varve.work / "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(path)
        varve.environment["NOTIFY_SOCKET"] = path
        threading.Thread(target=self.listen, daemon=True).start()
        self.daemon = None

    def listen(self):
        while True:
            data, fds, _, _ = socket.recv_fds(self.socket, 65536, 4)
            lines = data.decode().split("\n")
            name = next((line.partition("=")[2] for line in lines if line.startswith("FDNAME=")), None)
            for fd in fds if "FDSTORE=1" in lines else ():
                self.kept[name] = fd
            if "FDSTOREREMOVE=1" in lines and name in self.kept:
                os.close(self.kept.pop(name))
            self.said.append(lines[0])

    def start(self):
        self.said.clear()
        names, fds = list(self.kept), list(self.kept.values())

        def place():  # in the child: from 3 on, as sd_listen_fds(3) says
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD, 200) for fd in fds]
            for number, fd in enumerate(high, 3):
                os.dup2(fd, number)
            os.closerange(3 + len(fds), 300)
        environment = {**self.varve.environment, "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": ":".join(names)}
        log = open(self.varve.work / "log", "a")
        self.daemon = subprocess.Popen(["sh", "-c", 'LISTEN_PID=$$ exec "$0" daemon', self.varve.binary], env=environment, stdout=log, stderr=log, preexec_fn=place, close_fds=False)
        wait_for("READY=1", lambda: "READY=1" in self.said)

    def kill(self):
        self.daemon.kill()
        self.daemon.wait()

    def stop(self, job):
        """What the unit says that `systemctl stop` or `restart` does."""
        unit = (Path(__file__).resolve().parents[2] / "packaging/varve.service").read_text()
        command = next(line for line in unit.splitlines() if line.startswith("ExecStop=")).partition("=")[2]
        systemctl = self.varve.work / "bin/systemctl"
        systemctl.parent.mkdir(exist_ok=True)
        systemctl.write_text(f"#!/bin/sh\n[ \"$*\" = 'list-jobs --no-legend --plain varve.service' ] && echo '7 varve.service {job} running'\n")
        systemctl.chmod(0o755)
        environment = {name: value for name, value in self.varve.environment.items() if name != "NOTIFY_SOCKET"}
        words = shlex.split(command.replace("%n", "varve.service").replace("/usr/local/bin/varve", self.varve.binary))
        subprocess.run(words, env={**environment, "PATH": f"{systemctl.parent}:{environment['PATH']}"}, check=True)
        expect(self.daemon.wait(60) == 0, "an orderly end")


def systemd_keeps_the_connections(work, source, contents, mode):
    with Machine(work) as varve:
        manager = ServiceManager(varve)
        manager.start()
        place = varve.mount(source.reference, mode)
        expect(len(manager.kept) == 1, f"kept: {manager.kept}")
        expect(varve.json("status")["daemon"]["keeper"] == "systemd", "status says who keeps")
        with readers(varve, place, contents, 2):
            for _ in range(2):
                time.sleep(0.2)
                manager.kill()
                time.sleep(0.2)
                manager.start()
            manager.said.clear()
            replaced = varve.json("daemon", "--replace")
            expect(replaced["pid"] == manager.daemon.pid and replaced["mounts"] == 1, f"the service's process stays: {replaced}")
        manager.kill()
        manager.start()
        for path, content in contents.items():
            expect((place / path).read_bytes() == content, f"{path} differs")
        with readers(varve, place, contents, 1):
            time.sleep(0.2)
            manager.stop("restart")
            manager.start()
        expect([m["dir"] for m in varve.json("status")["mounts"]] == [str(place)], "a restart leaves what nobody uses as well")
        with open(place / "upper/file"):
            manager.daemon.terminate()  # the unit of somebody who knows no ExecStop
            expect(manager.daemon.wait(60) == 0, "it leaves")
            manager.start()
            expect((place / "many/f0003").read_text() == "f0003", "to the next")
            manager.stop("stop")
        expect(mount_lines(varve) == [] and not manager.kept, "a stop leaves nothing")
        manager.start()
        varve.run("mount", "--mode", mode, source.reference, place, check=True)
        varve.run("unmount", place, check=True)
        varve.mounts.clear()
        wait_for("an empty store", lambda: not manager.kept)
        varve.stop_daemon()
        expect(manager.daemon.wait(60) == 0, "an orderly end")


CHECKS = (killed_again_and_again, a_read_that_waits_is_answered_by_the_next_daemon, detached_but_open_is_served_on, the_image_may_be_gone, a_session_outlives_its_daemon,
          a_program_takes_the_place_of_the_daemon, a_keeper_that_dies_is_replaced, without_a_keeper_the_next_daemon_cleans_up, a_daemon_that_dies_too_often_is_given_up,
          killed_while_it_mounts_and_unmounts, killed_while_the_kernel_unmounts, what_nobody_uses_any_more_holds_nobody_up, an_unmount_that_waits_holds_nobody_up,
          systemd_keeps_the_connections)


def check_mode(work, layout, contents, mode, only):
    with Source(layout) as source:
        for check in CHECKS:
            if only and check.__name__ not in only:
                continue
            begin = time.monotonic()
            check(work, source, contents, mode)
            print(f"{check.__name__} ({mode}): {time.monotonic() - begin:.1f} s", flush=True)


def main():
    need_root(), need_fuse()
    only = sys.argv[1:]
    with work_folder() as work:
        image, contents = image_with_many_names(work / "image")
        other = layouts.gzip_image(work / "other", [Tar().file("file", b"of another image\n").bytes()], "latest")
        for one in (image, other):
            Varve(work / "indexer").run("index", one, check=True)
        # Both at once: most of it is waiting for daemons that start again, each mode's own.
        with concurrent.futures.ThreadPoolExecutor() as pool:
            for done in [pool.submit(check_mode, work, work / "image", contents, mode, only) for mode in modes()]:
                done.result()


main()
