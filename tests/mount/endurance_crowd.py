"""Many images with many sessions each, open at once on one daemon, for test_endurance.py: all answer, also after the daemon has died; how long `status` and `session ls` take is told."""
import concurrent.futures, os, subprocess, time

from machine import expect, wait_for
from tiny_image import make_image

STARTED_AT_ONCE = 8


def crowd_images(folder, count, indexer):
    """Of one base, each with a file of its own."""
    def make(number):
        image = make_image(folder / f"crowd{number}", more=[("etc/number", str(number).encode())])
        indexer.run("index", image, check=True)
        return image
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(make, range(count)))


def quickest(varve, *question):
    """Of five, as other work lies between."""
    times = []
    for _ in range(5):
        begin = time.monotonic()
        answer = varve.json(*question)
        times.append(time.monotonic() - begin)
    return answer, min(times)


class Crowd:
    def __init__(self, world, images, sessions):
        self.world, self.images, self.sessions, self.running = world, images, sessions, []
        self.folder = world.varve.work / "crowd"
        self.folder.mkdir()
        os.mkfifo(self.folder / "gate")

    def begin(self, number):
        """Sessions of all images in turn. Each says which image it sees, and waits for nothing that takes time."""
        image, turn = number % len(self.images), number // len(self.images)
        words = ["run", "--rm", "--mode", self.world.mode, "--runtime", "none", "--volume", f"{self.folder}:/crowd", self.images[image], "--",
                 "sh", "-c", 'echo "$(cat /etc/number) $0" > /crowd/new.$0; read -r gone < /crowd/gate; exit 3', f"{image}.{turn}"]
        session = subprocess.Popen([self.world.varve.binary, *map(str, words)], env=self.world.varve.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        self.running.append(session)
        wait_for(f"session {image}.{turn}", lambda: self.says(image, turn) or session.poll() is not None, seconds=120, every=0.05)
        expect(session.poll() is None and self.says(image, turn) == [str(image), f"{image}.{turn}"], f"session {image}.{turn}: exit {session.returncode}, {self.says(image, turn)}")

    def says(self, image, turn):
        path = self.folder / f"new.{image}.{turn}"
        return path.exists() and (words := path.read_text().split()) and len(words) == 2 and words

    def check(self):
        status, status_time = quickest(self.world.varve, "status")
        wanted = len(self.images) * self.sessions
        expect(len(status["mounts"]) == len(self.images) and sum(len(mount["holders"]) for mount in status["mounts"]) == wanted, f"{len(status['mounts'])} mounts, not {len(self.images)}")
        listed, list_time = quickest(self.world.varve, "session", "ls")
        expect([one["status"] for one in listed["sessions"]] == ["running"] * wanted, f"{len(listed['sessions'])} sessions are listed, not {wanted}")
        return status_time, list_time

    def end(self):
        with open(self.folder / "gate", "w"):
            time.sleep(0.5)  # all of them wait in open(2), which has to come back before the end of the file
        for session in self.running:
            _, said = session.communicate(timeout=120)
            expect(session.returncode == 3, f"a session of many: exit {session.returncode}: {said.decode()}")

    def kill(self):
        for session in self.running:
            session.kill()


def many_at_once(world, images, sessions):
    crowd = Crowd(world, images, sessions)
    begin = time.monotonic()
    try:
        with concurrent.futures.ThreadPoolExecutor(STARTED_AT_ONCE) as pool:
            list(pool.map(crowd.begin, range(len(images) * sessions)))
        began = time.monotonic() - begin
        times = crowd.check()
        world.kill_the_daemon()
        times_after = crowd.check()
        crowd.end()
    except BaseException:
        crowd.kill()
        raise
    wait_for("the end of all leases", lambda: world.ask("status")["mounts"] == [])
    expect(world.varve.json("session", "ls")["sessions"] == [], "no session is left")
    print(f"{world.mode} mode: {len(images)} images with {sessions} sessions each, begun in {began:.1f} s; ms: status {1e3 * times[0]:.0f}, session ls {1e3 * times[1]:.0f}; "
          f"by the next daemon {1e3 * times_after[0]:.0f} and {1e3 * times_after[1]:.0f}", flush=True)
