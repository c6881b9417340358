"""A user without rights mounts and reads in fuse mode, through fusermount3."""
import os, shutil, signal, subprocess, sys, time

from images import noise_image
from program import Varve, need_fuse, need_root, need_tools, skip, work_folder

NOBODY = 65534


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def prepare_device(work):
    """This machine's /dev/fuse may be root's alone: in this mount namespace everybody gets one."""
    devices = work / "dev"
    devices.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", devices], check=True)
    os.mknod(devices / "fuse", 0o20666, os.makedev(10, 229))
    os.chmod(devices / "fuse", 0o666)
    subprocess.run(["mount", "--bind", devices / "fuse", "/dev/fuse"], check=True)


def become_nobody(home):
    os.environ.update(HOME=str(home), XDG_RUNTIME_DIR=str(home))
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)


def survive_a_kill(varve, place, contents):
    """The keeper of a plain user holds the descriptor that fusermount3 gave."""
    with open(place / "data/large", "rb", buffering=0) as held:
        held.read(100)
        before = varve.daemon_pid()
        os.kill(before, signal.SIGKILL)
        os.posix_fadvise(held.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        expect(os.pread(held.fileno(), 1_000_000, 0) == contents["data/large"][:1_000_000], "read while no daemon is there")
    for _ in range(1000):
        if varve.daemon_pid() not in (None, before):
            break
        time.sleep(0.01)
    status = varve.json("status")
    expect(status["daemon"]["pid"] != before and [m["dir"] for m in status["mounts"]] == [str(place)], f"status of the next daemon: {status}")
    for path, content in contents.items():
        expect((place / path).read_bytes() == content, f"{path} differs after a kill")


def as_nobody(work, image, contents):
    home = work / "home"
    become_nobody(home)
    varve = Varve(home)
    place = home / "m"
    place.mkdir()
    with varve:
        done = varve.run("mount", "--json", image, place, check=True)
        expect(b'"fuse"' in done.stdout and b"kernel mode needs root" in done.stdout, done.stdout.decode())
        varve.mounts.append(str(place))
        for path, content in contents.items():
            expect((place / path).read_bytes() == content, f"{path} differs")
        owner = os.stat(place / "data/small0")
        expect((owner.st_uid, owner.st_gid) == (NOBODY, NOBODY), f"root's files are shown as the user's own: {owner}")
        expect(oct(owner.st_mode) == "0o100640", oct(owner.st_mode))
        refused = varve.run("index", "--force", image)
        expect(refused.returncode == 1 and b"cannot be written to" in refused.stderr, f"root's folder: {refused}")
        survive_a_kill(varve, place, contents)
        with open(place / "upper/file"):
            expect(varve.run("unmount", place).returncode == 1, "busy")
        varve.run("unmount", place, check=True)
        varve.mounts.clear()
        expect(not os.path.ismount(place), "unmounted")
        varve.run("mount", image, place, check=True)
        with open(place / "upper/file"):  # by a process that has changed its user, so that its like may not look at it
            refused = varve.run("daemon", "--stop")
            expect(refused.returncode == 1 and str(place) in refused.stderr.decode(), f"in use: {refused}")
        with subprocess.Popen(["sleep", "1000"], cwd=place) as sleeper:
            refused = varve.run("daemon", "--stop")
            sleeper.kill()
        expect(refused.returncode == 1 and f"sleep (process {sleeper.pid})" in refused.stderr.decode(), f"in use: {refused}")
        subprocess.run(["fusermount3", "-u", place], check=True)
        expect(varve.json("status")["mounts"] == [], "unmounted by others")
        varve.run("mount", image, place, check=True)
    expect(not os.path.ismount(place), "the end of the daemon unmounts")


def without_device(work, image):
    """A machine that keeps /dev/fuse for root: the message says so, and what to do."""
    home = work / "home"
    become_nobody(home)
    with Varve(home) as varve:
        refused = varve.run("mount", image, home / "m")
        expect(refused.returncode == 1 and b"/dev/fuse may not be opened" in refused.stderr and b"chmod" in refused.stderr, f"{refused}")


def in_child(work_as_user, *arguments):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work_as_user(*arguments)
            status = 0
        except BaseException as error:  # noqa: BLE001  the child's end is its report
            print(f"{error!r}", flush=True)
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main():
    need_root(), need_fuse(), need_tools("fusermount3")
    if not os.path.exists("/etc/mtab"):
        skip("fusermount3 unmounts nothing for a plain user without /etc/mtab")
    with work_folder() as work:
        image, contents = noise_image(work / "image", 2)
        Varve(work / "indexer").run("index", image, check=True)
        try:
            prepare_device(work)
        except (OSError, subprocess.CalledProcessError) as error:
            skip(f"no device for plain users here: {error}")
        # The checkout may lie where a plain user may not go, as in root's home.
        os.environ["VARVE"] = str(shutil.copy(Varve(work / "indexer").binary, work / "varve"))
        (work / "home").mkdir()
        os.chown(work / "home", NOBODY, NOBODY)
        status = in_child(as_nobody, work, image, contents)
        os.chmod(work / "dev/fuse", 0o600)
        status = status or in_child(without_device, work, image)
        subprocess.run(["umount", "/dev/fuse"])
        subprocess.run(["umount", work / "dev"])
        sys.exit(status)


main()
