#!/usr/bin/python3
"""In kernel mode each mount has the read-ahead that its daemon asks for, although the kernel does not say whose is whose: also where daemons mount at the same moment."""
import os, threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import layouts, tars
from machine import expect
from program import Varve, kernel_mode_works, need_fuse, need_root, skip, work_folder

KILOBYTES = 12 + 4 * (os.getpid() % 28)  # nobody else asks for that, nor does the kernel
DAEMONS, ROUNDS = 6, 8


class Node(Varve):
    def __init__(self, work):
        super().__init__(work)
        self.work.mkdir()
        (self.work / "varve.toml").write_text(f"[daemon]\nread-ahead = {KILOBYTES}\nkeep-mounted = 0\n")
        self.environment["VARVE_CONFIG"] = str(self.work / "varve.toml")


def bdis():
    """By name, which no two ever have, with their read-ahead. What is unmounted may stay for a while: a session that began meanwhile has a copy of the mount."""
    found = {}
    for bdi in Path("/sys/class/bdi").glob("erofs-*"):
        with suppress(OSError):  # unmounted meanwhile, by others
            found[bdi.name] = int((bdi / "read_ahead_kb").read_text())
    return found


def make_image(folder):
    tar = tars.Tar()
    tar.file("hello", b"hello", mtime=1_600_000_000)
    return layouts.gzip_image(folder, [tar.bytes()], "one")


def main():
    need_root(), need_fuse()
    if not kernel_mode_works():
        skip("no kernel mode here")
    with work_folder() as work, ExitStack() as stack, ThreadPoolExecutor(DAEMONS) as pool:
        image = make_image(work / "image")
        nodes = [stack.enter_context(Node(work / f"node{i}")) for i in range(DAEMONS)]
        nodes[0].index(image)
        ready = threading.Barrier(DAEMONS)
        places = [node.work / "mnt" for node in nodes]

        def mount(node, place):
            place.mkdir(exist_ok=True)
            node.mounts.append(str(place))
            ready.wait()
            node.run("mount", "--mode", "kernel", image, place, check=True)

        for number in range(ROUNDS):
            before = bdis()
            list(pool.map(mount, nodes, places))
            for node, place in zip(nodes, places):
                expect((place / "hello").read_text() == "hello", place)
            new = {name: kilobytes for name, kilobytes in bdis().items() if name not in before}
            expect(list(new.values()).count(KILOBYTES) == DAEMONS, f"round {number}: {new}")
            for node, place in zip(nodes, places):
                node.run("unmount", place, check=True)
                node.mounts.remove(str(place))
        expect(not any("read-ahead stays" in (node.root / "daemon.log").read_text() for node in nodes), "nobody gave up")


if __name__ == "__main__":
    main()
