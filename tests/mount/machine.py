"""A root of its own with its daemon, which is killed, replaced and ended; what tests of survival share."""
import os, signal, subprocess, time
from pathlib import Path

from program import is_running, Varve


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def wait_for(what, condition, seconds=60, every=0.01):
    """What `condition` returns once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(every)
    raise AssertionError(f"{what}: not within {seconds} s")


def mount_lines(varve):
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(varve.work) in line]


def keeper_pid(varve):
    return varve.json("status")["daemon"]["keeper_pid"]


class Machine(Varve):
    """A state folder of its own with its daemon, which leaves nothing behind: no process, no mount."""

    def __init__(self, work, max_restarts=1000, keep_mounted=0):
        super().__init__(work / f"w{os.urandom(4).hex()}")
        self.work.mkdir()
        self.config = self.work / "varve.toml"
        self.config.write_text(f"[daemon]\nmax-restarts = {max_restarts}\nkeep-mounted = {keep_mounted}\n")
        self.environment["VARVE_CONFIG"] = str(self.config)

    def mount(self, image, mode, name="m"):
        place = self.work / name
        place.mkdir(exist_ok=True)
        self.run("mount", "--mode", mode, image, place, check=True)
        self.mounts.append(str(place))
        return place

    def kill_daemon(self):
        pid = wait_for("a daemon", self.daemon_pid)
        os.kill(pid, signal.SIGKILL)
        return pid

    def next_daemon(self, before):
        return wait_for("the next daemon", lambda: (pid := self.daemon_pid()) and pid != before and pid, every=0.05)  # each asks with a process

    def __exit__(self, *failure):
        keeper = keeper_pid(self) if self.daemon_pid() else 0
        try:
            super().__exit__(*failure)
            if failure[0] is None:
                expect(mount_lines(self) == [], f"left: {mount_lines(self)}")
                expect(not keeper or wait_for("the end of the keeper", lambda: not is_running(keeper)), "")
        finally:
            if failure[0] is not None:
                print((self.root / "daemon.log").read_text()[-6000:] if (self.root / "daemon.log").exists() else "no log", flush=True)
            if keeper and is_running(keeper):
                os.kill(keeper, signal.SIGKILL)
            for line in reversed(mount_lines(self)):
                subprocess.run(["umount", "-l", line.split()[4]])
