#!/usr/bin/python3
"""What a session's command needs at first is asked of the registry while its runtime starts: a runtime that waits for this test shows it. The layer is not compressed, so that
what is asked of it are bytes of its files."""
import random, subprocess
from pathlib import Path

from images import Asked, layouts, Tar
from tars import FIFO
from machine import expect, wait_for
from program import children_of, need_fuse, need_own_root, need_root, Varve, work_folder

NOISE = 3_000_000  # bytes in front of each file that nobody reads
RUNTIME = """#!/bin/sh
touch "{work}/started"
for i in $(seq 600); do [ -e "{work}/go" ] && exit 1; sleep 0.1; done
"""
FILES = {  # path -> content; what `command` is, and by whom it is run
    "srv/app/command": b"#! /bin/env -S X=1 -i tool --flag\n",
    "bin/env": b"\x7fELF, of env\n",
    "opt/bin/tool": b"#!/opt/bin/last\tword\n",
    "opt/bin/last": b"\x7fELF, of the last\n",
    "opt/bin/other": b"\x7fELF, which nobody runs\n",
    "opt/bin/itself": b"#!/opt/bin/itself\n",
    "opt/bin/endless": b"#!" + b" " * 300 + b"\n",
    "opt/bin/gone": b"#!../../../etc/hostname\n",
    "opt/bin/nameless": b"#!\n",
    "opt/bin/short": b"#",
    "opt/bin/empty": b"",
}


class Session:
    """A `varve run` whose runtime has been started and waits."""

    def __init__(self, varve, *words):
        for name in ("started", "go"):
            (varve.work / name).unlink(missing_ok=True)
        self.go, self.words = varve.work / "go", words
        self.process = subprocess.Popen([varve.binary, "run", "--rm", "--runtime", "runc", *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env=varve.environment)
        wait_for(f"{words}: the runtime is started", (varve.work / "started").exists)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go.touch()
        said = self.process.communicate(timeout=60)[0]
        expect(self.process.returncode == 125, f"{self.words}: exit {self.process.returncode}: {said}")


def main():
    need_root(), need_fuse(), need_own_root()
    with work_folder() as work, Varve(work / "machine") as varve:
        (varve.work / "bin").mkdir(parents=True)
        runtime = varve.work / "bin/runc"
        runtime.write_text(RUNTIME.format(work=varve.work))
        runtime.chmod(0o755)
        varve.environment["PATH"] = f"{runtime.parent}:{varve.environment['PATH']}"
        noise, tar, contents = random.Random(1), Tar().dir("etc").file("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n").file("etc/group", b"root:x:0:\n"), {}
        tar.symlink("bin/command", "/../../srv/app/command").entry("opt/bin/pipe", FIFO, mode=0o755)
        for path, head in FILES.items():
            contents[path] = head + noise.randbytes(20_000) if head else b""
            tar.file(f"noise/{path}", noise.randbytes(NOISE)).file(path, contents[path], mode=0o755)
        content = tar.bytes()
        image = layouts.write_image(work / "image", [(content, content, layouts.TAR, None)], config={"Env": ["PATH=/bin:/opt/bin"]}, tag="latest")
        varve.index(image)
        asked = Asked(work / "image")

        def is_asked(path):
            begin = content.index(contents[path])
            return asked.has(begin, begin + 256)

        volume = work / "volume"
        volume.mkdir()
        (volume / "command").write_text("#!/bin/env tool\n")
        (volume / "command").chmod(0o755)
        with Session(varve, "--volume", f"{volume}:/bin", asked.reference, "--", "command"):
            expect(not is_asked("srv/app/command"), "a volume may hold the command")
        before = asked.bytes()
        with Session(varve, asked.reference, "--", "command") as session:
            for path in ("srv/app/command", "bin/env", "opt/bin/tool", "opt/bin/last"):
                wait_for(f"{path} is asked for", lambda path=path: is_asked(path))
            wait_for("who read them has ended and is collected", lambda: len(children_of(session.process.pid)) == 1)
        expect(not is_asked("opt/bin/other"), "nobody runs it")
        spent = asked.bytes() - before
        expect(spent < 2 * NOISE, f"{spent} bytes fetched")
        for name in ("itself", "endless", "gone", "nameless", "short", "empty"):
            with Session(varve, asked.reference, "--", f"/opt/bin/{name}"):
                if contents[f"opt/bin/{name}"]:
                    wait_for(f"{name} is asked for", lambda name=name: is_asked(f"opt/bin/{name}"))
        for name, status in (("/opt/bin/pipe", 126), ("nothing", 127)):
            done = varve.run("run", "--rm", "--runtime", "runc", asked.reference, "--", name, timeout=60)
            expect(done.returncode == status, f"{name}: exit {done.returncode}: {done.stderr}")
        asked.server.shutdown()
        left = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"{varve.root}/sessions" in line]
        expect(not left, f"mounts are left: {left}")


if __name__ == "__main__":
    main()
