"""Filling: the rest of an image comes while it is mounted, behind readers, and no longer than somebody uses it."""
import time

import layouts
from images import noise_image, Source
from machine import expect, Machine, wait_for
from program import modes, need_fuse, need_root, work_folder
from tars import Tar


def status(varve):
    return varve.json("status")


def is_complete(varve):
    mounts = status(varve)["mounts"]
    return mounts and all(m["present_bytes"] == m["image_stream_bytes"] for m in mounts)


def fills(varve):
    return [pull for pull in status(varve)["pulls"] if pull["fill"]]


def the_rest_comes_while_it_is_mounted(work, source, contents):
    for mode in modes():
        with Machine(work) as varve:
            place = varve.work / "m"
            source.open.clear()
            varve.run("mount", "--fill", "--mkdir", "--mode", mode, source.reference, place, check=True)
            varve.mounts.append(str(place))
            under_way = wait_for("a fill", lambda: fills(varve))
            expect(len(under_way) == 1 and under_way[0]["reference"].endswith("image:latest") and not under_way[0]["cold"], f"listed: {under_way}")
            expect(b"fill of " in varve.run("status").stdout, "and told to people")
            source.open.set()
            wait_for("all of the image", lambda: is_complete(varve))
            wait_for("its end", lambda: status(varve)["pulls"] == [])
            for path, content in contents.items():
                expect((place / path).read_bytes() == content, f"{mode}: {path}")


def it_ends_with_the_mount(work, source, contents):
    with Machine(work, keep_mounted=900) as varve:
        for ended_by in ("unmount", "session"):
            source.open.clear()
            source.asked.clear()
            if ended_by == "unmount":
                place = varve.work / "m"
                varve.run("mount", "--fill", "--mkdir", source.reference, place, check=True)
                wait_for("a request", source.asked.is_set)
                before = time.monotonic()
                varve.run("unmount", place, check=True)
                expect(time.monotonic() - before < 30, "a registry that hangs holds up no unmount")
            else:
                done = varve.run("run", "--rm", "--fill", "--network", "host", source.reference, "--", "/nothing", timeout=60)
                expect(done.returncode == 127, f"a session all the same, though there is no such program: {done}")
            expect(status(varve)["pulls"] == [], f"{ended_by}: nobody needs it any more: {status(varve)['pulls']}")
        place = varve.work / "last"
        varve.run("mount", "--fill", "--mkdir", source.reference, place, check=True)
        wait_for("a fill", lambda: fills(varve))
        varve.run("unmount", place, check=True)
    source.open.set()  # after the daemon's end, which waits for no registry either


def what_somebody_pulls_goes_on_without_the_mount(work, source, contents):
    with Machine(work) as varve:
        place = varve.work / "m"
        source.open.clear()
        varve.run("mount", "--fill", "--mkdir", source.reference, place, check=True)
        wait_for("a fill", lambda: fills(varve))
        varve.run("pull", source.reference, check=True)
        expect(fills(varve) == [] and len(status(varve)["pulls"]) == 1, "one pull, that of who asked for it")
        varve.run("unmount", place, check=True)
        expect(len(status(varve)["pulls"]) == 1, "it goes on")
        source.open.set()
        pulled = varve.json("pull", "--wait", source.reference)
        expect(pulled["present_bytes"] == pulled["image_stream_bytes"], f"all is here: {pulled}")


def the_next_daemon_goes_on(work, source, contents):
    with Machine(work) as varve:
        place = varve.work / "m"
        source.open.clear()
        varve.run("mount", "--fill", "--mkdir", source.reference, place, check=True)
        varve.mounts.append(str(place))
        wait_for("a fill", lambda: fills(varve))
        varve.next_daemon(varve.kill_daemon())
        wait_for("a fill of the next daemon", lambda: fills(varve))
        source.open.set()
        wait_for("all of the image", lambda: is_complete(varve))


def a_machine_fills_all_but_what_shall_be_left(work, source, contents):
    with Machine(work) as varve:
        varve.config.write_text(varve.config.read_text() + "fill = true\n")
        refused = varve.run("mount", "--fill", "--no-prefetch", source.reference, varve.work)
        expect(refused.returncode == 2 and b"--fill" in refused.stderr, f"one or the other: {refused.stderr.decode()}")
        place = varve.work / "m"
        varve.run("mount", "--no-prefetch", "--mkdir", source.reference, place, check=True)
        varve.mounts.append(str(place))
        expect(status(varve)["pulls"] == [] and not is_complete(varve), "--no-prefetch fetches what is read")
        other = varve.work / "other"
        varve.run("mount", "--mkdir", source.reference, other, check=True)
        varve.mounts.append(str(other))
        wait_for("all of the image", lambda: is_complete(varve))


def lines(name, megabytes):
    """Soon made and read, and no two parts of it are equal."""
    return b"".join(b"%s %010d " % (name, i) + b"x" * 1000 + b"\n" for i in range(megabytes * 1_000_000 // 1014))


def who_reads_most_of_a_large_image_gets_the_rest(work):
    first, second = lines(b"first", 240), lines(b"second", 160)
    folder = work / "large"
    image = layouts.gzip_image(folder, [Tar().dir("data").file("data/first", first).file("data/second", second).bytes()], "latest")
    with Machine(work) as varve:
        varve.index(image)
    for mode in modes():
        with Source(folder) as source, Machine(work) as varve:
            place, other = varve.work / "m", varve.work / "other"
            varve.run("mount", "--no-prefetch", "--mkdir", "--mode", mode, source.reference, place, check=True)
            varve.mounts.append(str(place))
            with open(place / "data/first", "rb") as file:
                expect(file.read(60_000_000) == first[:60_000_000], f"{mode}: the file")
                varve.run("mount", "--mkdir", "--mode", mode, source.reference, other, check=True)
                varve.mounts.append(str(other))
                with open(other / "data/first", "rb") as again:
                    expect(again.read(100_000_000) == first[:100_000_000], f"{mode}: the file, as others see it")
                time.sleep(3)
                expect(fills(varve) == [] and not is_complete(varve), f"{mode}: not half of what it lacked when the second came: {status(varve)}")
                file.seek(100_000_000)
                expect(file.read() == first[100_000_000:], f"{mode}: the rest of the file")
            wait_for("all of the image", lambda: is_complete(varve))
            expect("most of " in (varve.root / "daemon.log").read_text(), "it says so")
            expect((place / "data/second").read_bytes() == second, f"{mode}: the second file")
        with Source(folder) as source, Machine(work) as varve:
            place = varve.work / "m"
            varve.run("mount", "--mkdir", "--mode", mode, source.reference, place, check=True)
            varve.mounts.append(str(place))
            with open(place / "data/first", "rb") as file:
                expect(file.read(100_000_000) == first[:100_000_000], f"{mode}: not half of it")
                time.sleep(3)  # by then it is on disk, which a kill takes away from nobody
                varve.next_daemon(varve.kill_daemon())
                file.seek(100_000_000)
                expect(file.read() == first[100_000_000:], f"{mode}: the rest, by the next daemon")
            wait_for("all of the image, by who reads the rest of what its predecessor saw", lambda: is_complete(varve))
        with Source(folder) as source, Machine(work) as varve:
            place = varve.work / "m"
            varve.run("mount", "--no-prefetch", "--mkdir", "--mode", mode, source.reference, place, check=True)
            varve.mounts.append(str(place))
            expect((place / "data/first").read_bytes() == first, f"{mode}: the file once more")
            time.sleep(3)
            expect(not is_complete(varve), f"{mode}: --no-prefetch fetches what is read")


def main():
    need_root()
    need_fuse()
    with work_folder() as work:
        image, contents = noise_image(work / "image", megabytes=24)
        with Machine(work) as varve:
            varve.index(image)
        for check in (the_rest_comes_while_it_is_mounted, it_ends_with_the_mount, what_somebody_pulls_goes_on_without_the_mount, the_next_daemon_goes_on, a_machine_fills_all_but_what_shall_be_left):
            with Source(work / "image") as source:
                check(work, source, contents)
            print(check.__name__.replace("_", " "), flush=True)
        who_reads_most_of_a_large_image_gets_the_rest(work)
        print("who reads most of a large image gets the rest", flush=True)


if __name__ == "__main__":
    main()
