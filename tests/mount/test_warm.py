"""An image stays mounted after its last session, so that the next finds its pages: for a while, in nobody's way, and for nobody who could not open it himself."""
import json, os, signal, subprocess, time
from pathlib import Path

from images import noise_image, Source
from machine import expect, Machine, mount_lines, wait_for
from program import is_running, kernel_mode_works, modes, need_fuse, need_root, work_folder

LONG = 3600
HOST = [word for folder in ("/usr", "/lib", "/lib64", "/bin") for word in ("--volume", f"{folder}:{folder}:ro")]


def session(varve, image, mode, *words, check=True, options=()):
    """Done, and what its statistics say."""
    stats = varve.work / "stats.json"
    stats.unlink(missing_ok=True)
    done = varve.run("run", "--rm", "--mode", mode, "--runtime", "none", "--stats", stats, *HOST, *options, image, "--", *(words or ("/usr/bin/cat", "/data/text")), check=check)
    return done, json.loads(stats.read_text()) if stats.exists() else None


def idle(varve):
    return varve.json("status")["idle"]


def image_mounts(varve):
    """What is at RUN/images, and how often anything was mounted there."""
    there = [line.split()[0] for line in mount_lines(varve) if line.split()[4].startswith(str(varve.root / "run/images/"))]
    return there, (varve.root / "daemon.log").read_text().count(" info mounted ")


def the_next_session_finds_it(work, source, mode):
    with Machine(work, keep_mounted=LONG) as varve:
        _, first = session(varve, source.reference, mode)
        status, mounts = varve.json("status"), image_mounts(varve)
        expect(status["mounts"] == [] and [(one["mode"], one["image"]) for one in status["idle"]] == [(mode, first["image"])] and 0 <= status["idle"][0]["idle_seconds"] < 60, f"{status}")
        expect("nobody uses it since" in varve.run("status", check=True).stdout.decode(), "and the text says so")
        expect(first["loaded_bytes"] > 0 and first["fetched_bytes"] > first["loaded_bytes"], f"{first}")
        wait_for("what the first has read ahead", lambda: session(varve, source.reference, mode)[1]["fetched_bytes"] == 0)
        before = source.blobs_served
        for _ in range(2):
            _, again = session(varve, source.reference, mode)
            expect(image_mounts(varve) == mounts, "the same mount")
            expect((again["loaded_bytes"], again["fetched_bytes"], again["requests"]) == (0, 0, 0) and source.blobs_served == before, f"nothing is fetched again: {again}")
        holding = subprocess.Popen([varve.binary, "run", "--rm", "--mode", mode, "--runtime", "none", *HOST, source.reference, "--", "/usr/bin/sleep", "1000"], env=varve.environment)
        try:
            wait_for("a session that holds it", lambda: varve.json("status")["mounts"])
            expect(idle(varve) == [], "what is used is not idle")
        finally:
            holding.kill(), holding.wait()
        wait_for("its end", lambda: idle(varve))
        place = varve.mount(source.reference, mode)
        expect(idle(varve) == [] and image_mounts(varve) == mounts, "`mount` takes it, too")
        varve.run("unmount", place, check=True)
        varve.mounts.clear()
        expect(mount_lines(varve) == [], f"what a user unmounts is not kept: {mount_lines(varve)}")


def its_time_is_limited(work, source, mode):
    with Machine(work, keep_mounted=2) as varve:
        session(varve, source.reference, mode)
        expect(idle(varve), "for a while")
        wait_for("its end", lambda: mount_lines(varve) == [], seconds=20)
        expect(idle(varve) == [], "unmounted")
    with Machine(work, keep_mounted=0) as varve:
        session(varve, source.reference, mode)
        wait_for("its end", lambda: mount_lines(varve) == [], seconds=5)
        expect("stays mounted" not in (varve.root / "daemon.log").read_text(), "never kept")


def it_holds_nobody_up(work, source, mode):
    for end in (lambda varve, pid: varve.run("daemon", "--stop", check=True), lambda varve, pid: os.kill(pid, signal.SIGTERM)):
        with Machine(work, keep_mounted=LONG) as varve:
            session(varve, source.reference, mode)
            pid = varve.daemon_pid()
            end(varve, pid)
            wait_for("the end of the daemon", lambda: not is_running(pid))
            expect(mount_lines(varve) == [], f"left: {mount_lines(varve)}")
    with Machine(work, keep_mounted=LONG) as varve:
        session(varve, source.reference, mode)
        removed = varve.json("images", "rm", source.reference)
        expect(removed["freed_bytes"] > 0 and idle(varve) == [] and mount_lines(varve) == [], f"{removed} {mount_lines(varve)}")
        session(varve, source.reference, mode)
        subprocess.run(["umount", next(iter((varve.root / "run/images").iterdir()))], check=True)
        wait_for("it is noticed", lambda: idle(varve) == [])
        session(varve, source.reference, mode)
        expect(idle(varve), "mounted anew")
        held = subprocess.Popen([varve.binary, "run", "--rm", "--mode", mode, "--runtime", "none", *HOST, source.reference, "--", "/usr/bin/sleep", "1000"], env=varve.environment)
        other = "fuse" if mode == "kernel" else None
        try:
            wait_for("a session", lambda: varve.json("status")["mounts"])
            if other:
                session(varve, source.reference, other)
                expect([one["mode"] for one in idle(varve)] == [other], "the other one is idle")
            refused = varve.run("daemon", "--stop")
            expect(refused.returncode == 1 and refused.stderr.count(b" of ") >= 1, f"{refused}")
            os.kill(pid := varve.daemon_pid(), signal.SIGTERM)
            wait_for("who waits for its end keeps nothing", lambda: len(image_mounts(varve)[0]) == 1)
        finally:
            held.kill(), held.wait()
        wait_for("the end", lambda: not is_running(pid))


def daemons_hand_it_on(work, source, mode):
    with Machine(work, keep_mounted=LONG) as varve:
        session(varve, source.reference, mode)
        mounts = image_mounts(varve)
        time.sleep(1.1)
        varve.next_daemon(varve.kill_daemon())
        expect(idle(varve)[0]["idle_seconds"] >= 1, f"since its last session: {idle(varve)}")
        varve.run("daemon", "--replace", check=True)
        before = source.blobs_served
        done, stats = session(varve, source.reference, mode)
        expect(len(done.stdout) > 1_000_000 and image_mounts(varve) == mounts and source.blobs_served == before, f"the same mount: {stats}")
        checked = varve.run("verify", source.reference)
        expect(checked.returncode == 0, f"{checked}")
    with Machine(work, keep_mounted=3) as varve:
        session(varve, source.reference, mode)
        varve.next_daemon(varve.kill_daemon())
        wait_for("its end", lambda: mount_lines(varve) == [], seconds=20)


def it_opens_an_image_to_nobody(work, source, mode):
    """Each session is judged as if nothing were mounted."""
    with Machine(work, keep_mounted=LONG) as varve:
        session(varve, source.reference, mode)
        source.denying = True
        try:
            refused, _ = session(varve, source.reference, mode, check=False)
            expect(refused.returncode == 125 and b"denied" in refused.stderr and refused.stdout == b"", f"the registry refuses this user: {refused}")
        finally:
            source.denying = False
        session(varve, source.reference, mode)
        plain = varve.config.read_text()
        index = varve.json("inspect", source.reference)["index"]
        varve.config.write_text(plain + f"[trust]\ndeny = [\"{index if isinstance(index, str) else index['digest']}\"]\n")
        varve.run("daemon", "--replace", check=True)
        expect(len(idle(varve)) == 1, "it is still mounted")
        refused, _ = session(varve, source.reference, mode, check=False)
        expect(refused.returncode == 125 and b"deny" in refused.stderr, f"the index counts no more: {refused}")
        varve.config.write_text(plain + "[trust]\nindex = \"signed\"\n")
        varve.run("daemon", "--replace", check=True)
        refused, _ = session(varve, source.reference, mode, check=False)
        expect(refused.returncode == 125 and b"trust" in refused.stderr, f"nor one without a signature: {refused}")
        varve.config.write_text(plain)
        varve.run("daemon", "--replace", check=True)
        session(varve, source.reference, mode)


def what_an_index_notes_later_counts(work, image, mode):
    with Machine(work, keep_mounted=LONG) as varve:
        session(varve, image, mode)
        mounts = image_mounts(varve)
        done = subprocess.run([os.environ["MARK_COLD"], varve.root, image, "data/large"], capture_output=True, text=True)
        expect(done.returncode == 0, done.stderr)
        session(varve, image, mode)
        expect(image_mounts(varve)[1] == mounts[1] + 1 and len(idle(varve)) == 1, "a mount by an index that lacks the marks is not used again")


def a_full_store_takes_it(work, source, mode):
    """Layers that are complete are read by the kernel from the store, and cannot be evicted while they are mounted."""
    with Machine(work, keep_mounted=LONG) as varve:
        varve.run("pull", "--wait", source.reference, check=True)
        varve.stop_daemon()
        varve.config.write_text(varve.config.read_text() + "store-size = \"2MB\"\n")
        session(varve, source.reference, mode)
        expect("it stays mounted" in (varve.root / "daemon.log").read_text(), "kept")
        wait_for("room", lambda: mount_lines(varve) == [], seconds=40, every=0.5)
        expect("the store is full" in (varve.root / "daemon.log").read_text(), "and the log says why")


def short_memory_takes_it(work, source, mode):
    """Its mounts are its own (need_fuse): what the kernel says of memory is ours to write there."""
    if not os.path.exists("/proc/pressure/memory"):
        print("skipped: this kernel does not count waits for memory (PSI)")
        return
    fake = work / "pressure"
    waited = 0

    def write():
        fake.write_text(f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    write()
    subprocess.run(["mount", "--bind", fake, "/proc/pressure/memory"], check=True)
    try:
        with Machine(work, keep_mounted=LONG) as varve:
            session(varve, source.reference, mode)
            time.sleep(2.5)
            expect(len(idle(varve)) == 1, "nobody waits for memory")
            end = time.monotonic() + 30
            while mount_lines(varve) and time.monotonic() < end:
                waited += 100_000
                write()
                time.sleep(0.2)
            expect(mount_lines(varve) == [] and "processes wait for memory" in (varve.root / "daemon.log").read_text(), "it goes")
    finally:
        subprocess.run(["umount", "/proc/pressure/memory"], check=True)


def main():
    need_root(), need_fuse()
    with work_folder() as work, Machine(work) as owner:
        image, _ = noise_image(work / "image", 3)
        owner.index(image)
        for mode in modes():
            with Source(work / "image") as source:
                for check in (the_next_session_finds_it, its_time_is_limited, it_holds_nobody_up, daemons_hand_it_on, it_opens_an_image_to_nobody, short_memory_takes_it):
                    print(mode, check.__name__, flush=True)
                    check(work, source, mode)
                if mode == "kernel":
                    print(mode, "a_full_store_takes_it", flush=True)
                    a_full_store_takes_it(work, source, mode)
        print("what_an_index_notes_later_counts", flush=True)
        what_an_index_notes_later_counts(work, image, modes()[0])  # the last: from here on the image has two indexes


if __name__ == "__main__":
    main()
