#!/usr/bin/env python3
"""`varve run` as its user meets it: a daemon, an indexed image, a runtime of this machine. Both mount modes, as root."""
import fcntl, json, os, signal, subprocess, time
from pathlib import Path

from tiny_image import TOOLS, expect, make_image, needed_files
import program  # noqa: E402  tiny_image says where it lies


class Runner:
    def __init__(self, varve, image, mode):
        self.varve, self.image, self.mode = varve, image, mode

    def run(self, *command, options=("--rm",)):
        return self.varve.run("run", "--mode", self.mode, *options, self.image, *(("--",) + command if command else ()))

    def output(self, *command, options=("--rm",)):
        done = self.run(*command, options=options)
        expect(done.returncode == 0, f"{command}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode()


def wait_for(what, condition):
    for _ in range(1200):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError(f"{what}: not within a minute")


def check_config(runner):
    expect(runner.output() == "default command\n", "the image's own command runs")
    expect(runner.output("pwd") == "/work\n", "the working directory is made where the image lacks it")
    seen = runner.output("env", options=("--rm", "--env", "MINE=1"))
    expect("OF_IMAGE=yes\n" in seen and "MINE=1\n" in seen, seen)
    expect(runner.output("id", "-u", options=("--rm", "--user", "user")) == "1234\n", "a user of the image by name")


def check_exit_statuses(runner):
    for command, status in ((("sh", "-c", "exit 7"), 7), (("/no/such/command",), 127), (("/etc/shared",), 126), (("sh", "-c", "kill -TERM $$"), 143)):
        done = runner.run(*command)
        expect(done.returncode == status, f"{command}: exit {done.returncode}, not {status}: {done.stderr.decode(errors='replace')}")
    done = runner.varve.run("run", "--rm", runner.image + "-not-there", "--", "sh")
    expect(done.returncode == 125 and done.stderr.count(b"\n") == 1, done)


def check_unindexed(varve, work):
    """An image that nobody has indexed: one line says how it gets an index, and --index-here makes it on the way."""
    image = make_image(work / "unindexed", more=[("etc/other", b"x")])
    refused = varve.run("run", "--rm", image, "--", "true")
    expect(refused.returncode == 125 and refused.stderr.count(b"\n") == 1 and b"varve index" in refused.stderr and b"--index-here" in refused.stderr, refused)
    done = varve.run("run", "--rm", "--index-here", image, "--", "cat", "/etc/other")
    expect(done.returncode == 0 and done.stdout == b"x", done)


def check_isolation(runner):
    """What one session writes no other sees, and the shared part stays as it is."""
    kept = runner.output("sh", "-c", "echo changed > /etc/shared; touch /mine; cat /etc/shared", options=("--name", "writer"))
    expect(kept == "changed\n", kept)
    expect(runner.output("sh", "-c", "cat /etc/shared; ls /mine 2>/dev/null || echo none") == "of the image\nnone\n", "a second session sees the image")
    sessions = runner.varve.json("session", "ls")["sessions"]
    expect([s["name"] for s in sessions] == ["writer"], sessions)
    runner.varve.run("session", "rm", "writer", check=True)
    expect(runner.varve.json("session", "ls")["sessions"] == [], "removed")
    with runner.varve.mounted(runner.image, runner.mode) as folder:
        expect((Path(folder) / "etc/shared").read_text() == "of the image\n", "the mount is untouched")
        try:
            (Path(folder) / "etc/shared").write_text("x")
            raise AssertionError("the shared part could be written to")
        except OSError:
            pass


def check_stats(runner, work):
    stats = work / "stats.json"
    options = ("--rm", "--stats", str(stats))
    runner.output("cat", "/etc/shared", options=options)
    seen = json.loads(stats.read_text())
    for field in ("ready_seconds", "seconds", "fetched_bytes", "requests", "stream_bytes", "exit_status"):
        expect(field in seen, f"{field} is missing in {seen}")
    runner.output("cat", "/etc/shared", options=options)
    warm = json.loads(stats.read_text())
    expect(warm["fetched_bytes"] == 0 and warm["requests"] == 0, f"what was fetched once is fetched again: {warm}")


def check_interrupt(runner, work):
    """Ctrl-C ends the session and leaves nothing."""
    marker = work / f"marker-{runner.mode}"
    marker.mkdir()
    # As a terminal sends it: the signal reaches a process that does not ignore it.
    process = subprocess.Popen([runner.varve.binary, "run", "--mode", runner.mode, "--rm", "--volume", f"{marker}:/marker", runner.image, "--", "sh", "-c",
                                "trap 'exit 5' INT; touch /marker/started; while :; do sleep 0.05; done"], env=runner.varve.environment)
    wait_for("the session", lambda: (marker / "started").exists())
    process.send_signal(signal.SIGINT)
    expect(process.wait(timeout=60) == 5, f"exit {process.returncode}, not the command's own 5")
    expect(runner.varve.json("session", "ls")["sessions"] == [], "a session is left")


def check_stop_of_the_daemon(runner, work):
    """`daemon --stop` takes no session its files; with --force sessions end first, also one that does not listen."""
    varve, marker = runner.varve, work / f"stop-{runner.mode}"
    marker.mkdir()
    session = subprocess.Popen([varve.binary, "run", "--mode", runner.mode, "--rm", "--name", "lab", "--volume", f"{marker}:/marker", runner.image, "--", "sh", "-c",
                                "trap '' TERM; touch /marker/started; while [ ! -e /marker/go ]; do sleep 0.05; done; cat /etc/shared > /marker/read; while :; do sleep 0.05; done"],
                               env=varve.environment, stderr=subprocess.PIPE)
    try:
        wait_for("the session", lambda: (marker / "started").exists())
        status = varve.json("status")["mounts"][0]
        expect(status["session"] and status["sessions"] == ["lab"] and status["holders"] == [session.pid], status)
        said = varve.run("status", check=True).stdout.decode()
        expect("\nsession lab  " in said and max(map(len, said.splitlines())) <= 100, said)
        for _ in range(2):
            refused = varve.run("daemon", "--stop")
            expect(refused.returncode == 1 and b"session lab of " in refused.stderr and b"--force" in refused.stderr, refused)
        (marker / "go").touch()
        wait_for("the session's read", lambda: (marker / "read").exists() and (marker / "read").read_text() == "of the image\n")
        varve.run("daemon", "--stop", "--force", "--time", "1", check=True)
        expect(session.wait(timeout=20) != 0 and varve.json("session", "ls")["sessions"] == [], "the session has ended and is tidied up")
    finally:
        session.kill()
        session.communicate()
    left = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(work) in line]
    expect(not left and not varve.daemon_pid(), f"left: {left}")


def check_rootfs(varve, work):
    """An unpacked tree in place of an image: the session's writes stay in the session."""
    tree = work / "tree"
    for path, content in needed_files().items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        (tree / path).write_bytes(content)
        (tree / path).chmod(0o755)
    stats = work / "rootfs.json"
    done = varve.run("run", "--rm", "--rootfs", tree, "--env", "PATH=/bin", "--stats", stats, "--", "sh", "-c", "touch /mine; echo x > /bin/id; ls /; exit 5")
    expect(done.returncode == 5 and b"mine" in done.stdout, done)
    expect(not (tree / "mine").exists() and (tree / "bin/id").stat().st_size > 2, "the tree is as it was")
    expect(json.loads(stats.read_text())["exit_status"] == 5, stats.read_text())
    for words, status in (((), 2), (("--rootfs", tree, "oci:x"), 2), (("--rootfs", tree, "--record"), 2), (("--rootfs", work / "nowhere"), 125)):
        done = varve.run("run", *words, "--", "sh")
        expect(done.returncode == status, f"{words}: {done}")


def check_callers_descriptors(work, image):
    """A command hands on nothing that its caller has open: a lock held by the caller's shell is free when the shell ends, though the daemon lives."""
    folder = work / "descriptors"
    folder.mkdir()
    with program.Varve(folder) as varve:
        varve.index(image)
        locked = folder / "locked"
        with locked.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            os.set_inheritable(file.fileno(), True)
            done = subprocess.run([varve.binary, "run", "--rm", image, "--", "sh", "-c", f"test -e /proc/self/fd/{file.fileno()} && echo leaked || echo none"],
                                  stdout=subprocess.PIPE, env=varve.environment, close_fds=False)
            expect(done.stdout == b"none\n", done)
        expect(varve.daemon_pid(), "a daemon was started")
        with locked.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for process in Path("/proc").glob("[0-9]*/fd/*"):
            try:
                expect(os.readlink(process) != str(locked), f"{process} holds the caller's file")
            except OSError:
                pass


def check_words(varve, image):
    """The words behind the image are the command, as container engines have it; those before are Varve's."""
    def said(*words, status=0):
        done = varve.run(*words)
        expect(done.returncode == status, f"{words}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode() if status == 0 else done.stderr.decode()

    expect(said("run", "--rm", image, "sh", "-c", "echo $0 $1", "--rm", "-v") == "--rm -v\n", "options behind the image are the command's")
    expect(said("run", "--rm", image, "sh", "-c", "echo $0 $1", "--", "x") == "-- x\n", "also a --")
    expect(said("run", image, "--rm", "--env", "A=b", "--", "sh", "-c", "echo $A") == "b\n", "options between image and -- are Varve's, as ever")
    expect(said("run", "--rm", "--entrypoint", "/bin/sh", image, "-c", "echo entered") == "entered\n", "a command that begins with an option")
    expect(said("run", "--rm", "-v", f"{varve.work}:/x:ro", "-eA=b", image, "sh", "-c", "ls -d /x/state; echo $A") == "/x/state\nb\n", "-v is a volume")
    expect("without limits: --memory" in said("-v", "run", "--rm", "--limits", "best-effort", "--memory", "1GB", "--runtime", "none", image, "sh", "-c", "exit 9", status=9), "-v before it says more")
    for words, text in ((("--mode", "bogus"), "bogus"), (("--network", "bogus"), "bogus"), (("--runtime", "bogus"), "bogus"), (("--memory", "lots"), "--memory"), (("--memory", "1kB"), "6MiB"),
                        (("--cpus", "-1"), "--cpus"), (("--hostname", "a b"), "--hostname"), (("--tmpfs", "x"), "--tmpfs"), (("--tmpfs", "/x:size=1,uid=0"), "uid=0"), (("--json",), "--stats"),
                        (("--limits", "maybe"), "--limits"), (("-t",), "--tty"), (("-dit",), "--detach")):
        expect(text in said("run", *words, image, "true", status=2), f"{words} is wrong usage and named")
    expect(said("run", "-i", "--rm", image, "sh", "-c", "echo $0", "-it") == "-it\n", "-i stands for what is done anyway")
    said("run", "--name", "again", image, "no-such-command", status=127)
    expect(said("run", "--rm", "--name", "again", image, "sh", "-c", "echo ran") == "ran\n", "what never started keeps no name")
    expect("--entrypoint ''" in said("run", "--rm", "--entrypoint", "", image, status=125), "an empty entrypoint leaves no command")


def check_life(varve, image, work):
    """A session that is left running, looked into, ended and gone on with."""
    first = subprocess.run(["nsenter", "--mount=/proc/self/ns/mnt", "stat", "-c", "%d:%i", "/"], stdout=subprocess.PIPE).stdout.decode().strip()
    if first and first != f"{os.stat('/').st_dev}:{os.stat('/').st_ino}":
        return print("skipped: runtimes enter no session in a chroot")
    variables = work / "variables"
    variables.write_text("# of a file\n\nFILE=from file\nBOTH=file\nHANDED_ON\n")
    varve.environment["HANDED_ON"] = "by name"
    started = json.loads(varve.run("--json", "run", "-d", "--name", "lab", "--env-file", variables, "-e", "BOTH=option", "--hostname", "lab", image, "sh", "-c",
                         "echo $FILE $BOTH $HANDED_ON; echo to stderr >&2; touch /mine; trap 'exit 6' TERM; while :; do sleep 0.02; done", check=True).stdout)
    del varve.environment["HANDED_ON"]
    expect(started["name"] == "lab" and started["status"] == "running" and program.is_running(started["pid"]) and started["user"] == "root", started)
    [listed] = varve.json("session", "ls")["sessions"]
    for field in ("name", "pid", "command", "user", "status", "started", "bytes", "state", "upper_bytes", "exit_status", "id"):
        expect(field in listed, f"{field} is missing in {listed}")
    table = varve.run("session", "ls", check=True).stdout.decode()
    expect("lab" in table and "running" in table and str(started["pid"]) in table, table)
    follower = subprocess.Popen([varve.binary, "session", "logs", "-f", "lab"], env=varve.environment, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    done = varve.run("session", "exec", "lab", "sh", "-c", "echo $FILE; ls /mine; cat /etc/hostname; exit 5")
    expect(done.returncode == 5 and done.stdout == b"from file\n/mine\nlab\n", done)
    done = varve.run("session", "exec", "-e", "FILE=mine", "lab", "--", "sh", "-c", "echo $FILE")
    expect(done.stdout == b"mine\n", done)
    expect(varve.run("session", "exec", "lab").returncode == 2, "a command is wanted")
    expect(varve.run("session", "exec", "nobody", "true").returncode == 125, "no such session")
    expect(varve.run("session", "exec", "-t", "lab", "true").returncode == 2, "no terminal here")
    refused = varve.run("session", "start", "lab")
    expect(refused.returncode == 125 and b"is running" in refused.stderr, refused)
    refused = varve.run("session", "rm", "lab")
    expect(refused.returncode == 2, refused)
    varve.run("session", "stop", "lab", "--time", "1m", check=True)
    said = follower.communicate(timeout=60)[0].decode()
    expect(said == "from file option by name\nto stderr\n" or sorted(said.splitlines()) == ["from file option by name", "to stderr"], said)
    expect(varve.run("session", "logs", "-n", "1", "lab", check=True).stdout.decode() == said.splitlines()[-1] + "\n", "the last line")
    [ended] = varve.json("session", "ls")["sessions"]
    expect(ended["status"] == "ended" and ended["exit_status"] == 6 and ended["pid"] is None, ended)
    # Its options are those of the first time, whatever this shell's variables say.
    expect(varve.run("session", "start", "-d", "lab", check=True).stdout == b"lab\n", "the name is printed")
    expect(varve.run("session", "exec", "lab", "sh", "-c", "echo $HANDED_ON; ls /mine", check=True).stdout == b"by name\n/mine\n", "files and variables are kept")
    [again] = varve.json("session", "ls")["sessions"]
    expect(again["id"] == started["id"] and again["image_digest"] == started["image_digest"] and again["pid"] != started["pid"], again)
    # As after a crash of the machine: all that held it is gone at once.
    holder = int(Path(f"/proc/{again['pid']}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(holder, signal.SIGSTOP), os.kill(again["pid"], signal.SIGKILL), os.kill(holder, signal.SIGKILL)
    varve.run("session", "stop", "lab", check=True)
    [killed] = varve.json("session", "ls")["sessions"]
    expect(killed["status"] == "killed" and killed["pid"] is None, killed)
    varve.run("session", "start", "-d", "lab", check=True)
    varve.run("session", "stop", "lab", "--time", "0", check=True)
    varve.run("session", "rm", "lab", check=True)
    for words, status, text in ((("run", "-d", "--rm", image, "/no/such/command"), 127, b"/no/such/command"), (("run", "-d", "--rm", image + "-none", "sh"), 125, b"-none"),
                                (("session", "start", "lab"), 125, b"no session lab"), (("session", "stop", "lab"), 1, b"no session lab"), (("session", "logs", "lab"), 1, b"no session lab")):
        done = varve.run(*words)
        expect(done.returncode == status and text in done.stderr and done.stdout == b"", done)
    expect(varve.json("session", "ls")["sessions"] == [], "nothing is left")


def main():
    program.need_root(), program.need_fuse(), program.need_tools("ldd", *TOOLS)
    with program.work_folder() as work:
        with program.Varve(work) as varve:
            image = make_image(work / "image")
            varve.index(image)
            check_rootfs(varve, work)
            check_callers_descriptors(work, image)
            check_unindexed(varve, work)
            check_words(varve, image)
            check_life(varve, image, work)
            print("words, and the life of a session that is left running, are right", flush=True)
            for mode in program.modes():
                runner = Runner(varve, image, mode)
                check_config(runner)
                check_exit_statuses(runner)
                check_isolation(runner)
                check_stats(runner, work)
                check_interrupt(runner, work)
                check_stop_of_the_daemon(runner, work)
                print(f"{mode} mode: config, exit statuses, isolation, stats and interrupt are right", flush=True)
        left = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(work) in line]
        expect(not left, f"mounts are left: {left}")


main()
