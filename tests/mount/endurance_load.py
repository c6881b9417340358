"""What goes on around the readers of test_endurance.py while daemons die: mounts that come and go, sessions that write, short sessions, pulls that evict. Each load has a
thread and a dice of its own, and says in `failure` what was wrong. A load that was under way when daemon and keeper died at once may have failed at it."""
import contextlib, os, random, subprocess, threading, time
from pathlib import Path

from machine import expect, wait_for

TEMPORARY = 75  # the command lost its daemon, and may be given again
NOT_STARTED = 125  # what `run` makes of it
WRITER = """
turn=0
while [ ! -e /go/stop ]; do
  turn=$((turn+1)); file=/etc/written$((turn%10))
  echo "$turn by $1" > $file; read -r got < $file
  [ "$got" = "$turn by $1" ] || { echo "written $turn, read $got"; exit 9; }
  [ "$(cat /etc/shared)" = "of the image" ] || { echo "turn $turn: the image's file differs"; exit 8; }
  echo $turn > /go/turn$1; sleep 0.3
done
"""


class Load(threading.Thread):
    """`turn()` again and again. Between two epochs, while `epoch` is odd, nothing begins."""

    def __init__(self, world, pause):
        super().__init__(daemon=True)
        self.world, self.varve, self.pause = world, world.varve, pause
        self.rng, self.failure, self.turns, self.ended = random.Random(f"{world.seed}/{self.title}"), None, {}, False

    @property
    def title(self):
        return type(self).__name__.lower()

    def count(self, what):
        self.turns[what] = self.turns.get(what, 0) + 1

    def run(self):
        while not self.ended:
            time.sleep(self.rng.uniform(0, self.pause))
            epoch = self.world.state.epoch
            if epoch % 2 or self.ended:
                continue
            try:
                self.turn()
            except Exception as error:  # noqa: B902  whatever it is, it is a finding
                if self.world.state.epoch == epoch:
                    self.failure = f"{time.monotonic():.3f} {self.title}, after {self.turns}: {type(error).__name__}: {error}"
                    return
                self.count("cut short")
                wait_for("the next epoch", lambda: self.world.state.epoch % 2 == 0 or self.ended)
                self.tidy_up()

    def tidy_up(self):
        """What a turn that was cut short has left."""

    def end(self):
        self.ended = True
        self.join(120)
        expect(not self.is_alive(), f"{self.title} hangs: {self.turns}")
        expect(self.failure is None, self.failure)

    def again_if_temporary(self, *words):
        """Until the command ends with another status than that of a daemon that has gone, each time that it was asked; at most a minute."""
        end = time.monotonic() + 60
        while True:
            done = self.varve.run(*words)
            gone = done.returncode == TEMPORARY or done.returncode == NOT_STARTED and b"has gone" in done.stderr
            if not gone or time.monotonic() > end:
                return done
            self.count("given again")


class Mounts(Load):
    """Mounts of another image: plain, unmounted with a file open, beneath each other, and by umount(8) behind the daemon's back."""

    @property
    def places(self):
        return [self.varve.work / f"p{i}" for i in range(3)]

    def mount(self, place, image=None):
        place.mkdir(exist_ok=True)
        end = time.monotonic() + 60
        while (done := self.varve.run("mount", "--mode", self.world.mode, image or self.world.other, place)).returncode == TEMPORARY and time.monotonic() < end:
            # Carried out with its last breath, perhaps: then only the answer was lost.
            wait_for("a daemon", self.world.daemon)
            self.count("mounted, answer lost" if os.path.ismount(place) else "mounted again")
            if os.path.ismount(place):
                break
        expect(done.returncode in (0, TEMPORARY) and os.path.ismount(place), f"mount {place.name}: {done.returncode} {done.stderr.decode()}")

    def unmount(self, place, *options):
        done = self.varve.run("unmount", *options, place)
        if done.returncode == TEMPORARY:
            wait_for("a daemon", self.world.daemon)
            self.count("unmounted, answer lost" if not os.path.ismount(place) else "unmounted again")
            if os.path.ismount(place):
                return self.unmount(place, *options)
        expect(done.returncode in (0, TEMPORARY) and not os.path.ismount(place), f"unmount {place.name}: {done.returncode} {done.stderr.decode()}")

    def tidy_up(self):
        for place in self.places:
            while os.path.ismount(place):
                self.varve.run("unmount", "--detach", place)

    def look(self, place):
        offset, large = self.rng.randrange(1_000_000), self.world.other_contents["data/large"]
        with open(place / "data/large", "rb", buffering=0) as file:
            expect(os.pread(file.fileno(), 300_000, offset) == large[offset:offset + 300_000], f"{place.name}: {offset} differs")

    def turn(self):
        place = self.rng.choice(self.places)
        how = self.rng.choice(("plainly", "with a file open", "nested", "by umount"))
        if how == "nested":
            inner = place / "go"
            self.mount(place, self.world.image)
            self.mount(inner)
            self.look(inner)
            expect((place / "many/f0001").read_text() == "f0001", "around it: differs")
            if self.rng.random() < 0.5:
                self.unmount(inner)
                self.unmount(place)
            else:
                self.unmount(place, "--detach")
            return self.count(how)
        self.mount(place)
        self.look(place)
        if how == "with a file open":
            with open(place / "data/large", "rb", buffering=0) as held:
                held.read(1000)
                self.unmount(place, "--detach")
                time.sleep(self.rng.uniform(0, 1))
                os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                expect(os.pread(held.fileno(), 400_000, 1_000_000) == self.world.other_contents["data/large"][1_000_000:1_400_000], "detached: differs")
        elif how == "by umount":
            subprocess.run(["umount", "-l", place], check=True)
            wait_for("that it is noticed", lambda: (status := self.world.ask("status")) and str(place) not in {mount["dir"] for mount in status["mounts"]})
        else:
            self.unmount(place)
        self.count(how)


class Writers(Load):
    """Sessions that write into their layer all the time, each as long as an epoch; and short ones, which begin and end meanwhile."""

    def __init__(self, world, pause, count):
        super().__init__(world, pause)
        self.go, self.running, self.wanted = world.varve.work / "go", [], count
        self.go.mkdir()

    def command(self, *words):
        return ["run", "--rm", "--mode", self.world.mode, "--runtime", "none", *words]

    def begin_sessions(self):
        with contextlib.suppress(FileNotFoundError):
            (self.go / "stop").unlink()
        for i in range(self.wanted):
            (self.go / f"turn{i}").unlink(missing_ok=True)
            words = self.command("--volume", f"{self.go}:/go", self.world.small, "--", "sh", "-c", WRITER, "sh", str(i))
            self.running.append(subprocess.Popen([self.varve.binary, *map(str, words)], env=self.varve.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        wait_for("the sessions", lambda: all((self.go / f"turn{i}").exists() for i in range(self.wanted)) or self.one_has_ended())

    def one_has_ended(self):
        for session in list(self.running):
            expect(session.poll() is None, f"a session that writes: exit {session.returncode}")
        return False

    def end_sessions(self, dead=False):
        (self.go / "stop").touch()
        for session in self.running:
            if dead:
                session.terminate()  # its files are gone: it ends, however
            said = session.communicate(timeout=60)[0].decode()
            expect(dead or session.returncode == 0, f"session: exit {session.returncode}: {said}")
        self.running.clear()

    def turn(self):
        self.one_has_ended()
        done = self.again_if_temporary(*self.command(self.world.small, "--", "sh", "-c", "echo x > /etc/mine; cat /etc/shared /etc/mine"))
        expect(done.returncode == 0 and done.stdout == b"of the image\nx\n", f"a short session: {done}")
        self.count("short sessions")


class Pulls(Load):
    """Of two images that do not fit into the store together, in turn."""

    def turn(self):
        image = self.rng.choice((self.world.bulk, self.world.other))
        words = ("pull", "--wait", image) if self.rng.random() < 0.7 else ("pull", image)
        done = self.again_if_temporary(*words)
        expect(done.returncode == 0, f"{words}: {done.returncode} {done.stderr.decode()}")
        self.count("pulls" if len(words) == 3 else "pulls that nobody waits for")


class Openers:
    """Processes that open and read a file of a place in a loop while mounts of it come and go. What they may see: its bytes, or that it is not there."""

    CODE = """
import errno, os, sys, time
path, expected, stop = sys.argv[1], open(sys.argv[2], "rb").read(), sys.argv[3]
seen = {"read": 0, "ENOENT": 0, "ENOTCONN": 0}
while not os.path.exists(stop):
    for _ in range(50):
        try:
            with open(path, "rb", buffering=0) as file:
                offset = (seen["read"] * 7919) % (len(expected) - 5000)
                if os.pread(file.fileno(), 5000, offset) != expected[offset:offset + 5000]:
                    sys.exit(f"{offset} differs")
                seen["read"] += 1
        except OSError as error:
            name = errno.errorcode[error.errno]
            if name not in seen or name == "ENOTCONN" and os.path.ismount(os.path.dirname(os.path.dirname(path))):
                sys.exit(f"{error}, seen before it: {seen}")
            seen[name] += 1
        time.sleep(0.002)
print(seen["read"], seen["ENOENT"], seen["ENOTCONN"])
"""

    def __init__(self, path, expected, stop, count):
        self.stop = Path(stop)
        self.stop.unlink(missing_ok=True)
        self.running = [subprocess.Popen(["/usr/bin/python3", "-B", "-c", self.CODE, path, expected, stop], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(count)]

    def end(self):
        """(read, absent, not connected), of all."""
        self.stop.touch()
        sums = [0, 0, 0]
        for opener in self.running:
            said, _ = opener.communicate(timeout=60)
            expect(opener.returncode == 0, f"open() while it is mounted and unmounted: {said}")
            sums = [a + int(b) for a, b in zip(sums, said.split())]
        return sums
