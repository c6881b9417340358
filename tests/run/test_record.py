#!/usr/bin/env python3
"""`varve run --record` as its user meets it: what is written where, what the session sees of it, who may say no, and that it never stands in the way."""
import json, os, shutil, signal, stat, subprocess, sys, tempfile, time
from pathlib import Path

from tiny_image import TOOLS, expect, make_image
import program  # noqa: E402  tiny_image says where it lies

NOBODY = 65534
SITE = "usr/lib/python3.11/dist-packages"


class Recorded:
    """What one session left in a spool."""

    def __init__(self, spool, stats=None):
        folders = [path for path in Path(spool).iterdir() if path.is_dir()]
        if stats:
            folders = [Path(spool) / json.loads(stats.read_text())["recorded"]["session"]]
        expect(len(folders) == 1, f"one session was recorded, not {folders}")
        self.folder = folders[0]
        self.files = sorted(self.folder.glob("*.jsonl"))
        expect(len(self.files) == 1, f"varve run alone writes here: {self.files}")
        text = self.files[0].read_text()
        expect(text.endswith("\n"), "whole lines")
        self.records = [json.loads(line) for line in text.splitlines()]
        self.start = self.records[0]

    def kinds(self):
        return [record["t"] for record in self.records]

    def paths(self, op):
        return {record["p"].lstrip("/") for record in self.records if record["t"] == "file" and record["op"] == op}


class Runner:
    def __init__(self, varve, image, mode, work):
        self.varve, self.image, self.mode, self.work, self.count = varve, image, mode, work, 0

    def start(self, command, options=(), **how):
        """The words of a `varve run --record` into a spool of its own."""
        self.count += 1
        self.spool, self.stats = self.work / f"spool-{self.mode}-{self.count}", self.work / f"stats-{self.count}"
        return ["run", "--mode", self.mode, "--rm", "--record", "--usage-spool", self.spool, "--stats", self.stats, *options, self.image, "--", *command]

    def run(self, *command, options=()):
        return self.varve.run(*self.start(command, options))

    def recorded(self, *command, options=(), status=0):
        done = self.run(*command, options=options)
        expect(done.returncode == status, f"{command}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
        self.out, self.err = done.stdout.decode(), done.stderr.decode()
        return Recorded(self.spool, self.stats)


def check_records(runner):
    seen = runner.recorded("sh", "-c", "cat /etc/shared; echo x > /etc/shared; cat /etc/shared; exit 3", status=3)
    expect(seen.kinds()[:2] == ["start", "launch"] and seen.kinds()[-1] == "end", seen.kinds())
    expect(seen.records[-1]["exit"] == "error" and seen.records[-1]["all_files"], seen.records[-1])
    expect(seen.start["image"] == json.loads(runner.stats.read_text())["image"] and seen.start["writer"].startswith("run "), seen.start)
    expect(len(seen.start["user"]) == 32 and seen.folder.name == seen.start["session"], seen.start)
    expect("etc/shared" in seen.paths("open") and {"bin/sh", "bin/cat"} <= seen.paths("exec"), seen.records)
    expect(seen.kinds().count("file") == len(seen.paths("open")) + len(seen.paths("exec")), "each once")
    again = runner.recorded("sh", "-c", "exit 0")
    expect(again.start["session"] != seen.start["session"] and again.records[-1]["exit"] == "ok", again.records)


def check_what_the_session_sees(runner):
    seen = runner.recorded("sh", "-c", f"env; ls /{SITE}; touch /{SITE}/varve_recorder.py; cat /{SITE}/varve_recorder.pth; touch /run/varve/spool/mine; ls /run/varve/spool",
                           options=("--user", "1234"), status=2)
    variables = dict(line.split("=", 1) for line in runner.out.splitlines() if "=" in line)
    expect(variables["VARVE_USAGE_SPOOL"] == "/run/varve/spool" and variables["VARVE_USAGE_SESSION"] == seen.start["session"], variables)
    expect(variables["VARVE_IMAGE"] == seen.start["image"] and variables["VARVE_USAGE_USER_HASH"] == seen.start["user"], variables)
    expect(abs(float(variables["VARVE_SESSION_STARTED"]) - time.time()) < 600, variables)
    expect("varve_recorder.py\n" in runner.out and "thing.py\n" in runner.out, runner.out)
    expect((seen.folder / "mine").exists() and (seen.folder / "mine").stat().st_uid == 1234, "the session's user adds files")
    expect("spool" in runner.err and "mine\n" not in runner.out, f"he cannot list them: {runner.out}{runner.err}")
    for folder, mode in ((seen.folder, 0o1733), (runner.spool, 0o711), (runner.varve.root / "usage/salts", 0o700)):
        expect(stat.S_IMODE(folder.stat().st_mode) == mode, f"{folder}: {folder.stat().st_mode:o}")
    expect(stat.S_IMODE(seen.files[0].stat().st_mode) == 0o600, "records are for their owner")
    # A session's root, who may read everything, has nothing but its own to read.
    seen = runner.recorded("sh", "-c", f"touch /{SITE}/varve_recorder.py && echo wrote; ls /run/varve/spool")
    expect(runner.out.split() in ([], [seen.files[0].name]), runner.out)  # it comes when `varve run` learns that the command runs


def check_what_counts(runner):
    """A session counts from its command on: what never came so far is no launch, and leaves nothing. One without Python is heard by its files."""
    held = runner.work / f"held-{runner.mode}"
    held.mkdir()
    first = subprocess.Popen([runner.varve.binary, *map(str, runner.start(("sh", "-c", "touch /held/started; sleep 1000"), ("--name", "held", "--volume", f"{held}:/held")))],
                             env=runner.varve.environment)
    spool = runner.spool
    deadline = time.monotonic() + 60
    while not (held / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    common = ("run", "--mode", runner.mode, "--rm", "--record", "--usage-spool", spool)
    for status, options, command in ((125, ("--name", "held"), "pwd"), (125, ("--volume", f"{held}/nowhere:/x"), "pwd"), (127, (), "nosuch"), (126, (), "/etc/shared")):
        done = runner.varve.run(*common, *options, runner.image, "--", command)
        expect(done.returncode == status, f"{options} {command}: {done}")
        expect(len(list(spool.iterdir())) == 1, f"{options} {command}: {list(spool.iterdir())}")
    first.terminate()
    first.wait()
    runner.varve.run(*common, runner.image, "--", "pwd", check=True)
    database = runner.work / f"usage-{runner.mode}.db"
    counts = runner.varve.json("usage", "collect", "--db", database, "--remove", spool)
    expect(counts["sessions"] == 2 and counts["removed_files"] == 2 and not list(spool.iterdir()), f"{counts}: {list(spool.iterdir())}")
    coverage = runner.varve.json("usage", "report", "--db", database)["coverage"]
    expect((coverage["launched"], coverage["heard"]) == (2, 2), coverage)


def check_switches(runner, image_off):
    for options, what in ((("--env", "DO_NOT_TRACK=1"), "DO_NOT_TRACK"), (("--env", "VARVE_USAGE=off"), "VARVE_USAGE")):
        seen = runner.recorded("sh", "-c", f"env; ls /{SITE}", options=options)
        expect(seen.kinds() == ["start", "launch", "end"] and "user" not in seen.start, f"{what}: {seen.records}")
        expect("VARVE_USAGE_SPOOL" not in runner.out and "varve_recorder" not in runner.out, f"{what}: {runner.out}")
    quiet = Runner(runner.varve, image_off, runner.mode, runner.work / "off")
    quiet.work.mkdir(exist_ok=True)
    seen = quiet.recorded("cat", "/etc/shared")
    expect(seen.kinds() == ["start", "launch", "end"], f"the image's owner said no: {seen.records}")
    # A default of the machine, and its opposite for once.
    config = runner.work / "varve.toml"
    config.write_text(f'[run]\nrecord = true\nusage-spool = "{runner.work}/configured"\n')
    environment, runner.varve.environment = runner.varve.environment, {**runner.varve.environment, "VARVE_CONFIG": str(config)}
    try:
        for options, count in (((), 1), (("--no-record",), 1), ((), 2)):
            runner.varve.run("run", "--mode", runner.mode, "--rm", *options, runner.image, check=True)
            expect(len([path for path in (runner.work / "configured").iterdir() if path.is_dir()]) == count, f"{options}: {list((runner.work / 'configured').iterdir())}")
    finally:
        runner.varve.environment = environment
        shutil.rmtree(runner.work / "configured")
    expect(runner.varve.run("run", "--rm", runner.image).returncode == 0 and not (runner.varve.root / "usage/spool").exists(), "nothing is recorded that nobody asked for")
    runner.varve.run("run", "--rm", "--record", runner.image, check=True)
    expect(list((runner.varve.root / "usage/spool").glob("*/*.jsonl")), "the default spool lies under the root")
    shutil.rmtree(runner.varve.root / "usage/spool")


def check_never_in_the_way(runner):
    (runner.work / "file").touch()
    done = runner.varve.run("run", "--rm", "--record", "--usage-spool", runner.work / "file/spool", runner.image, check=True)
    expect(done.stdout == b"default command\n" and done.stderr.count(b"not recorded") == 1 and done.stderr.count(b"\n") == 1, done)
    # A volume where the recorder would go: the session is as its user wants it.
    volume = runner.work / "volume"
    volume.mkdir(exist_ok=True)
    runner.recorded("ls", "/run/varve", "/" + SITE, options=("--volume", f"{volume}:/run/varve", "--volume", f"{volume}:/{SITE}:ro"))
    expect("varve_recorder" not in runner.out and not list(volume.iterdir()), runner.out)
    # A full disk while the session runs: what fits is there, the session goes on, one warning.
    small = runner.work / "small"
    small.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=755", "tmpfs", small], check=True)
    try:
        done = runner.varve.run("run", "--rm", "--record", "--usage-spool", small / "spool", "--volume", f"{small}:/small", runner.image, "--",
                                "sh", "-c", "while echo filled >> /small/filler; do :; done 2>/dev/null; cat /data/*; exit 4")
        expect(done.returncode == 4 and done.stderr.count(b"records of the session are lost") == 1, done)
    finally:
        subprocess.run(["umount", small], check=True)


def check_killed(runner):
    """What was seen before is in the spool, also without an end."""
    marker = runner.work / f"marker-{runner.mode}"
    marker.mkdir()
    process = subprocess.Popen([runner.varve.binary, *map(str, runner.start(("sh", "-c", "cat /etc/shared; touch /marker/started; sleep 1000"), ("--volume", f"{marker}:/marker")))],
                               env=runner.varve.environment, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not (marker / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    expect((marker / "started").exists(), "the session did not start within a minute")
    while not any(runner.spool.glob("*/*.jsonl")) and time.monotonic() < deadline:  # `varve run` learns a moment later that its command runs
        time.sleep(0.02)
    while "etc/shared" not in (paths := Recorded(runner.spool).paths("open")) and time.monotonic() < deadline:
        time.sleep(0.02)
    expect("etc/shared" in paths, "told while the session runs")
    process.send_signal(signal.SIGKILL)
    process.wait()
    seen = Recorded(runner.spool)
    expect("etc/shared" in seen.paths("open") and "end" not in seen.kinds(), seen.records)


def as_nobody(work, image):
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    home = work / "home"
    os.environ.update(HOME=str(home), XDG_RUNTIME_DIR=str(home))
    with program.Varve(home) as varve:
        runner = Runner(varve, image, "fuse", home)
        seen = runner.recorded("sh", "-c", f"cat /{SITE}/varve_recorder.pth; env", options=("--verbose",))
        expect(seen.kinds() == ["start", "launch", "end"] and "user" in seen.start, seen.records)
        expect("VARVE_USAGE_SPOOL=/run/varve/spool" in runner.out and "varve_recorder" in runner.out, runner.out)
        expect(runner.err.count("which files of the image the session opens is not recorded") == 1, runner.err)


def check_plain_user(work, image):
    """In a mount namespace where everybody may use /dev/fuse."""
    (work / "home").mkdir()
    os.chown(work / "home", NOBODY, NOBODY)
    device = work / "dev"
    device.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", device], check=True)
    os.mknod(device / "fuse", 0o20666, os.makedev(10, 229))
    os.chmod(device / "fuse", 0o666)
    subprocess.run(["mount", "--bind", device / "fuse", "/dev/fuse"], check=True)
    os.environ["VARVE"] = str(shutil.copy(program.Varve(work).binary, work / "varve"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            as_nobody(work, image)
            status = 0
        except BaseException as error:  # noqa: BLE001  the child's end is its report
            print(f"as a plain user: {error!r}", flush=True)
        os._exit(status)
    expect(os.waitpid(child, 0)[1] == 0, "a plain user's session is recorded")


def fill_chroot(root):
    """Everything of this machine, without being it; gone with the mount namespace."""
    for source in Path("/").iterdir():
        target = root / source.name
        if source.is_symlink():
            target.symlink_to(os.readlink(source))
        elif source.is_dir():
            target.mkdir()
            subprocess.run(["mount", "--rbind" if source.name in ("proc", "dev", "sys") else "--bind", source, target], check=True)


def in_chroot(root, work, image):
    """Sessions start, and what they open is told by its path in the image, with every runtime that is here."""
    fill_chroot(root)
    inside = work / "in-chroot"
    inside.write_text(f'#!/bin/sh\nexec chroot {root} {program.Varve(work).binary} "$@"\n')
    inside.chmod(0o755)
    home = Path(tempfile.mkdtemp(prefix="home-", dir=work))
    with program.Varve(home) as varve:
        varve.binary = str(inside)
        for mode in program.modes():
            runner = Runner(varve, image, mode, home)
            for runtime in ("none", *filter(shutil.which, ("runc", "crun"))):
                seen = runner.recorded("sh", "-c", "cat /etc/shared; pwd", options=("--runtime", runtime))
                expect(runner.out == "of the image\n/work\n", runner.out)
                expect("etc/shared" in seen.paths("open") and {"bin/sh", "bin/cat"} <= seen.paths("exec"), f"{runtime} in {mode} mode: {seen.records}")


def check_chroots(work, image):
    """In a chroot, whether its root is a mount of its own or a folder like any other."""
    for first in ([], ["mount", "--bind"]):
        root = Path(tempfile.mkdtemp(prefix="vo-chroot-"))  # never removed with what is in it: that is the machine itself if a mount were left
        own_mount = " ".join([*first, str(root), str(root)]) if first else "true"
        done = subprocess.run(["unshare", "-m", "--propagation", "private", "sh", "-c", f'{own_mount} && exec "$@"', "sh",
                               sys.executable, "-B", __file__, "chroot", root, work, image])
        for path in root.iterdir():
            path.unlink() if path.is_symlink() else path.rmdir()
        root.rmdir()
        expect(done.returncode == 0, f"in a chroot whose root is {'a mount' if first else 'no mount point'}")


def main():
    if sys.argv[1:2] == ["chroot"]:
        return in_chroot(Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
    program.need_root(), program.need_fuse(), program.need_tools("ldd", "unshare", "fusermount3", *TOOLS)
    with program.work_folder() as work:
        with program.Varve(work) as varve:
            image = make_image(work / "image", [(f"{SITE}/thing.py", b""), *((f"data/file{i}", b"") for i in range(200))])
            image_off = make_image(work / "image-off", [("etc/varve/usage-off", b"")])
            varve.index(image), varve.index(image_off)
            for mode in program.modes():
                runner = Runner(varve, image, mode, work)
                check_records(runner)
                check_what_the_session_sees(runner)
                check_what_counts(runner)
                check_switches(runner, image_off)
                check_never_in_the_way(runner)
                check_killed(runner)
                print(f"{mode} mode: records, what the session sees, switches, obstacles and kills are right", flush=True)
        check_chroots(work, image)
        print("sessions in a chroot are recorded too", flush=True)
        if not program.has_user_namespaces():
            print("skipped: a plain user's session (no user namespaces for plain users here: a chroot, or a setting of the kernel)", flush=True)
            return
        try:
            check_plain_user(work, image)
        finally:
            subprocess.run(["umount", "/dev/fuse", work / "dev"])
        print("a plain user's session is recorded too", flush=True)


main()
