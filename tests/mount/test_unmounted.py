#!/usr/bin/python3
"""Of an image that was unmounted the daemon keeps nothing, though it shares layers with one that is mounted; one that somebody is still in is served on, by the next daemon, too."""
import json, os, random, socket, subprocess, sys

import layouts
from machine import expect, Machine, wait_for
from program import modes, need_fuse, need_root, open_files, work_folder
from tars import Tar

VERSIONS = 8


def versions(folder):
    """Images with one layer in common."""
    noise = random.Random(5)
    contents = {"base/file": noise.randbytes(3_000_000)}
    base = Tar().dir("base").file("base/file", contents["base/file"]).bytes()
    return [layouts.gzip_image(folder / f"v{i}", [base, Tar().dir("own").file("own/file", noise.randbytes(1_000_000)).bytes()], "latest") for i in range(VERSIONS)], contents


def kept(varve):
    """Files that the record for the next daemon has of the blobs' connection: the images that are served in kernel mode."""
    record = json.loads((varve.root / "run/handover.json").read_text())
    return [len(connection["files"]) for connection in record["connections"] if connection["files"]]


def holds(varve):
    process = f"/proc/{varve.daemon_pid()}"
    return len(os.listdir(f"{process}/task")), len(os.listdir(f"{process}/fd"))


def open_in_store(varve):
    return [file for file in open_files(varve.daemon_pid()) if "/store/" in file and not file.endswith("/lock")]


def mounted(varve, image, mode, name):
    place = varve.work / name
    varve.run("mount", "--mkdir", "--mode", mode, image, place, check=True)
    varve.mounts.append(str(place))
    return place


def unmount(varve, place):
    varve.run("unmount", place, check=True)
    varve.mounts.remove(str(place))


def nothing_is_kept(work, images, contents, mode):
    with Machine(work) as varve:
        stays = mounted(varve, images[0], mode, "stays")
        place = mounted(varve, images[1], mode, "m")
        expect((place / "base/file").read_bytes() == contents["base/file"], "the shared layer")
        unmount(varve, place)
        before = holds(varve)
        for image in [*images[1:], *images[1:4], images[1], images[1]]:
            place = mounted(varve, image, mode, "m")
            (place / "own/file").read_bytes()
            unmount(varve, place)
        status = varve.json("status")
        expect(len(status["mounts"]) == 1, status["mounts"])
        threads, descriptors = wait_for("threads and descriptors as before", lambda: (now := holds(varve)) and now[0] <= before[0] + 2 and now[1] <= before[1] + 6 and now)
        print(f"{mode}: {before} threads and descriptors before, {threads, descriptors} after {len(images) + 4} mounts", flush=True)
        if mode == "kernel":
            expect(kept(varve) in ([1], [2]), f"one image is served, the last unmounted one may be closing: {kept(varve)}")
        expect((stays / "base/file").read_bytes() == contents["base/file"], "the shared layer")
        varve.next_daemon(varve.kill_daemon())
        expect((stays / "base/file").read_bytes() == contents["base/file"] and len((stays / "own/file").read_bytes()) == 1_000_000, "by the next daemon")


def what_a_client_asked_of_is_let_go(work, image):
    """A connection holds the images that it asked of. Nothing happens after its end that would close them by the way."""
    with Machine(work) as varve, socket.socket(socket.AF_UNIX) as client:
        place = mounted(varve, image, modes()[0], "m")
        expect((place / "base/file").read_bytes(), "a layer of which something is here")
        client.connect(str(varve.root / "run/daemon.sock"))
        client.sendall(json.dumps({"version": 1, "call": "present", "image": {"reference": image}}).encode() + b"\n")
        with client.makefile("rb") as answers:
            answer = json.loads(answers.readline())
        expect("result" in answer, answer)
        unmount(varve, place)
        expect(open_in_store(varve), "what the client asked of stays open")
        client.close()
        wait_for("the end of what it asked of", lambda: not open_in_store(varve))


def who_is_still_in_one_reads_on(work, images, contents, mode):
    """The layer in common is read through the file of the image that was mounted first."""
    with Machine(work) as varve:
        first = mounted(varve, images[0], mode, "first")
        second = mounted(varve, images[1], mode, "second")
        with open(first / "base/file", "rb") as file, open(second / "base/file", "rb") as other:
            expect(file.read(1000) == contents["base/file"][:1000], "its beginning")
            varve.run("unmount", "--detach", first, check=True)
            varve.mounts.remove(str(first))
            third = mounted(varve, images[2], mode, "third")
            unmount(varve, third)
            for _ in range(2):
                subprocess.run(["sync"], check=True)
                with open("/proc/sys/vm/drop_caches", "w") as drop:
                    drop.write("1\n")
                for one in (file, other):
                    one.seek(2_000_000)
                    expect(one.read() == contents["base/file"][2_000_000:], f"{mode}: the rest of it")
                varve.next_daemon(varve.kill_daemon())
            expect(varve.run("unmount", second).returncode != 0, "somebody is in it")
            expect(file.seek(0) == 0 and file.read() == contents["base/file"], "all of it")
        unmount(varve, second)
        if mode == "kernel":
            wait_for("nobody's files", lambda: varve.run("mount", "--mode", mode, "--mkdir", images[3], varve.work / "last").returncode == 0 and varve.run("unmount", varve.work / "last").returncode == 0 and kept(varve) in ([], [1]))


def main():
    need_root(), need_fuse()
    with work_folder() as work:
        images, contents = versions(work)
        with Machine(work) as owner:
            for image in images:
                owner.index(image)
        what_a_client_asked_of_is_let_go(work, images[0])
        for mode in modes():
            nothing_is_kept(work, images, contents, mode)
            who_is_still_in_one_reads_on(work, images, contents, mode)


if __name__ == "__main__":
    main()
