"""One daemon a root: started on demand, shared by mounts, gone without a trace."""
import contextlib, fcntl, json, os, signal, socket, subprocess, sys, threading
from pathlib import Path

from images import noise_image
from program import is_running, Varve, modes, need_fuse, need_root, work_folder


def mount_lines(work):
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(work) in line]


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def folder(work, name):
    (work / name).mkdir()
    return work / name


def nothing_runs_at_first(work, varve, image):
    status = varve.json("status")
    expect(status["daemon"] is None and status["mounts"] == [], f"status without a daemon: {status}")
    expect(varve.run("unmount", work).returncode == 1, "unmount of nothing must fail")


def many_commands_start_one_daemon(work, varve, image):
    folders, results = [folder(work, f"many{i}") for i in range(6)], {}
    threads = [threading.Thread(target=lambda f=f: results.__setitem__(f, varve.run("mount", image, f))) for f in folders]
    [t.start() for t in threads], [t.join() for t in threads]
    for f, done in results.items():
        expect(done.returncode == 0, f"mount {f}: {done.stderr.decode()}")
    expect(len({os.stat(f).st_dev for f in folders}) == 1, "mounts of one image must share one file system")
    expect(len(varve.json("status")["mounts"]) == 6, "status shows all mounts")
    for f in folders:
        varve.run("unmount", f, check=True)
    expect([line for line in mount_lines(work)] == [], "unmount must leave nothing")


def a_busy_mount_is_an_error_until_detached(work, varve, image):
    for mode in modes():
        place = folder(work, "busy-" + mode)
        varve.run("mount", "--mode", mode, image, place, check=True)
        with open(place / "upper/file") as held:
            done = varve.run("unmount", place)
            expect(done.returncode == 1 and b"a process is in it" in done.stderr, f"busy: {done.returncode} {done.stderr.decode()}")
            varve.run("unmount", "--detach", place, check=True)
            expect(not os.path.ismount(place), "detached means out of sight")
            expect(held.read() == "above\n", "what is open can still be read")


def wrong_places_are_refused(work, varve, image):
    place = folder(work, "wrong")
    (place / "file").write_text("x")
    expect(varve.run("mount", image, place).returncode == 2, "a folder that is not empty")
    for asked in (image, "no.such.host.invalid/team/image:1"):  # the folder is looked at before the image is asked for
        absent = varve.run("mount", asked, work / "absent")
        expect(absent.returncode == 1 and b"absent: no such folder to mount at" in absent.stderr and b"--mkdir" in absent.stderr, f"a folder that is not there: {absent.stderr.decode()}")
    made = work / "outer/inner"
    expect(varve.run("mount", "--mkdir", "oci:" + str(work / "no-image"), made).returncode == 1 and not made.parent.exists(), "what was made for a mount that failed goes again")
    varve.run("mount", "--mkdir", image, made, check=True)
    expect(os.path.ismount(made), "--mkdir makes the folders")
    varve.run("unmount", made, check=True)
    good = folder(work, "twice")
    varve.run("mount", image, good, check=True)
    twice = varve.run("mount", image, good)
    expect(twice.returncode == 2 and f"{good}: {image} is mounted there already".encode() in twice.stderr, f"a folder where it is mounted already: {twice}")
    varve.run("unmount", good, check=True)


def umount_behind_its_back_is_noticed(work, varve, image):
    for mode in modes():
        place, other = folder(work, "behind-" + mode), folder(work, "beside-" + mode)
        for options in ([], ["-l"]):
            varve.run("mount", "--mode", mode, image, place, check=True)
            with contextlib.ExitStack() as stack:
                held = stack.enter_context(open(place / "upper/file")) if options else None
                subprocess.run(["umount", *options, place], check=True)
                expect(varve.json("status")["mounts"] == [], "status does not list what is not there")
                expect(varve.run("unmount", place).returncode == 1, "nothing is mounted there")
                varve.run("mount", "--mode", mode, image, place, check=True)
                expect((place / "upper/file").read_text() == "above\n" and (not held or held.read() == "above\n"), "mounted anew; what was open is served")
            varve.run("unmount", place, check=True)
        # The folder that all mounts of an image come from: the next one must not show an empty folder.
        varve.run("mount", "--mode", mode, image, place, check=True)
        subprocess.run(["umount", *(varve.root / "run/images").iterdir()], check=True)
        varve.run("mount", "--mode", mode, image, other, check=True)
        expect((other / "upper/file").read_text() == "above\n" and (place / "upper/file").read_text() == "above\n", "both show the image")
        expect(len(varve.json("status")["mounts"]) == 2, "both are known")
        # What somebody mounts over it is not ours to take away.
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", other], check=True)
        (other / "theirs").touch()
        covered = varve.run("unmount", other)
        expect(covered.returncode == 1 and b"mounted over it" in covered.stderr and (other / "theirs").exists(), f"{covered}")
        subprocess.run(["umount", other], check=True)
        for one in (place, other):
            varve.run("unmount", one, check=True)
        expect(mount_lines(work) == [], f"left: {mount_lines(work)}")


def stop_takes_nothing_from_anybody(work, varve, image):
    for mode in modes():
        place, free = folder(work, "used-" + mode), folder(work, "free-" + mode)
        for one in (place, free):
            varve.run("mount", "--mode", mode, image, one, check=True)
        reader = subprocess.Popen(["sleep", "1000"], cwd=place / "data")
        try:
            for _ in range(2):
                refused = varve.run("daemon", "--stop", "--json")
                expect(refused.returncode == 1 and f"{place} of ".encode() in refused.stderr and f"sleep (process {reader.pid})".encode() in refused.stderr
                       and b"--force" in refused.stderr and str(free).encode() not in refused.stderr, f"{refused}")
                document = json.loads(refused.stdout)
                expect([use["dir"] for use in document["in_use"]] == [str(place)] and not document["stopped"], f"{document}")
                expect((place / "upper/file").read_text() == "above\n" and os.path.ismount(free), "all is as it was")
            pid = varve.daemon_pid()
            os.kill(pid, signal.SIGTERM)
            for _ in range(200):
                if varve.run("mount", image, folder(work, f"late-{os.urandom(3).hex()}")).returncode == 75:
                    break
                threading.Event().wait(0.05)
            expect(is_running(pid) and (place / "upper/file").read_text() == "above\n", "SIGTERM waits for who is in it, and lets nobody in")
        finally:
            reader.kill(), reader.wait()
        for _ in range(400):
            if not is_running(pid):
                break
            threading.Event().wait(0.05)
        expect(not is_running(pid) and mount_lines(work) == [], f"and then ends: {mount_lines(work)}")
    varve.run("mount", image, place, check=True)
    with open(place / "upper/file"):
        varve.run("daemon", "--stop", "--force", check=True)
    expect(mount_lines(work) == [], f"left: {mount_lines(work)}")
    expect(varve.run("daemon", "--stop").returncode == 0, "none runs: that is what was asked for")


def another_mount_namespace_is_refused(work, varve, image):
    done = subprocess.run(["unshare", "-m", varve.binary, "mount", image, folder(work, "elsewhere")], capture_output=True, text=True, env=varve.environment)
    expect(done.returncode == 1 and "another mount namespace" in done.stderr, f"{done.returncode}: {done.stderr}")


def a_warm_walk_sends_no_request(work, varve, image):
    place = folder(work, "warm")
    varve.run("mount", "--mode", "fuse", image, place, check=True)

    def use():
        subprocess.run(["sh", "-c", f"find {place} -ls; cat {place}/data/* {place}/upper/file; ls {place}/absent"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        requests = varve.json("status", place)["mounts"][0]["fuse_requests"]
        # What the kernel evicts it forgets; statfs(2), which find calls, is not cached by any kernel.
        return {name: n for name, n in requests.items() if "FORGET" not in name and name != "STATFS"}
    cold, warm = use(), use()
    expect(cold == warm, f"warm: {warm}, cold: {cold}")
    expect(cold["OPEN"] == 1 and cold.get("OPENDIR") == 1, f"opens are not sent: {cold}")
    varve.run("unmount", place, check=True)


def signals_leave_nothing(work, varve, image):
    for stop in (lambda pid: os.kill(pid, signal.SIGTERM), lambda pid: varve.run("daemon", "--stop", check=True)):
        for mode in modes():
            place = folder(work, f"end-{mode}-{os.urandom(3).hex()}")
            varve.run("mount", "--mode", mode, image, place, check=True)
        pid = varve.daemon_pid()
        stop(pid)
        for _ in range(400):
            if not os.path.exists(f"/proc/{pid}"):
                break
            threading.Event().wait(0.05)
        expect(not os.path.exists(f"/proc/{pid}"), "the daemon must end")
        expect(mount_lines(work) == [], f"left: {mount_lines(work)}")
        expect(not (varve.root / "run/daemon.sock").exists(), "the socket must be gone")


def what_a_killed_daemon_left_is_cleaned(work, varve, image):
    places = {mode: folder(work, "killed-" + mode) for mode in modes()}
    for mode, place in places.items():
        varve.run("mount", "--mode", mode, image, place, check=True)
    daemon = varve.json("status")["daemon"]
    os.kill(daemon["keeper_pid"], signal.SIGSTOP)  # else it would start another one: test_survival.py
    for pid in (daemon["pid"], daemon["keeper_pid"]):
        os.kill(pid, signal.SIGKILL)
        while is_running(pid):  # until then it may still take a connection that it never answers
            threading.Event().wait(0.01)
    expect(varve.run("status").returncode == 0, "status must not hang on dead mounts")
    again = folder(work, "again")
    varve.run("mount", image, again, check=True)
    expect((again / "upper/file").read_text() == "above\n", "the new daemon serves")
    for place in places.values():
        expect(not os.path.ismount(place), f"{place} is left")
    varve.run("unmount", again, check=True)
    expect(mount_lines(work) == [], f"left: {mount_lines(work)}")


def a_daemon_that_dies_while_it_is_asked_is_none(work, varve, image):
    varve.stop_daemon()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(varve.root / "run/daemon.sock"))
        listener.listen()
        asking = subprocess.Popen([varve.binary, "status", "--json"], env=varve.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        listener.accept()[0].close()
    out, err = asking.communicate(timeout=60)
    expect(asking.returncode == 0 and json.loads(out)["daemon"] is None, f"status of a daemon that died: {asking.returncode} {out} {err}")
    os.unlink(varve.root / "run/daemon.sock")


def one_that_is_dying_is_waited_for(work, varve, image):
    varve.stop_daemon()
    with open(varve.root / "daemon.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # what the kernel has not taken from it yet
        place, end = folder(work, "after"), threading.Timer(1, lambda: fcntl.flock(lock, fcntl.LOCK_UN))
        end.start()
        varve.run("mount", image, place, check=True)
        end.join()
    varve.run("unmount", place, check=True)


def main():
    need_root(), need_fuse()
    with work_folder() as work, Varve(work) as varve:
        image, _ = noise_image(work / "image", 1)
        varve.index(image)
        for check in (nothing_runs_at_first, many_commands_start_one_daemon, a_busy_mount_is_an_error_until_detached, wrong_places_are_refused,
                      umount_behind_its_back_is_noticed, another_mount_namespace_is_refused, a_warm_walk_sends_no_request, stop_takes_nothing_from_anybody, signals_leave_nothing, what_a_killed_daemon_left_is_cleaned,
                      a_daemon_that_dies_while_it_is_asked_is_none, one_that_is_dying_is_waited_for):
            print(check.__name__, flush=True)
            check(work, varve, image)


main()
sys.exit(0)
