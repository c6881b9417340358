#!/usr/bin/env python3
"""`varve run` at a terminal, started by a shell: keys and output go through, and the shell gets its terminal back as it was, also when Varve is killed. Each runtime, as root."""
import os, pty, select, shutil, signal, time

from tiny_image import TOOLS, expect, needed_files
import program  # noqa: E402  tiny_image says where it lies

PATIENCE = 60


class Shell:
    """A shell with a terminal of its own, which runs `script`."""

    def __init__(self, script, environment):
        self.said = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execve("/bin/sh", ["sh", "-c", script], environment)

    def wait_for(self, text):
        end = time.monotonic() + PATIENCE
        while text not in self.said:
            ready = select.select([self.terminal], [], [], max(0, end - time.monotonic()))[0]
            try:
                got = os.read(self.terminal, 4096) if ready else b""
            except OSError:
                got = b""
            expect(got, f"'{text}' is never said: {self.said}")
            self.said += got.decode(errors="replace")

    def type(self, text):
        os.write(self.terminal, text.encode())

    def child(self):
        return program.children_of(self.pid)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.terminal)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def check(varve, tree, runtime):
    run = f"{varve.binary} run --rm -it --runtime {runtime} --rootfs {tree} --env PATH=/bin --"
    # What the terminal is told to do with keys: the same words before and after.
    keep, compare = "before=$(stty -g)", "until [ \"$(stty -g)\" = \"$before\" ]; do sleep 0.05; done; echo as it was"
    with Shell(f"{keep}; {run} sh; echo status $?; {compare}", varve.environment) as shell:
        shell.type("echo from $((40 + 2))\n")
        shell.wait_for("from 42")
        shell.type("exit 7\n")
        shell.wait_for("status 7")
        shell.wait_for("as it was")
    with Shell(f"{keep}; {run} sh -c 'echo up; exec sleep 1000'; {compare}", varve.environment) as shell:
        shell.wait_for("up")
        os.kill(shell.child(), signal.SIGKILL)
        shell.wait_for("as it was")
    with Shell(f"{run} sh -c 'trap \"\" INT; echo up; read line; echo got $line'; echo end", varve.environment) as shell:
        shell.wait_for("up")
        shell.type("\x03word\n")
        shell.wait_for("got word")
        shell.wait_for("end")


def main():
    program.need_root(), program.need_tools("ldd", "stty", *TOOLS)
    with program.work_folder() as work, program.Varve(work) as varve:
        tree = work / "tree"
        for path, content in needed_files().items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(content)
            (tree / path).chmod(0o755)
        for runtime in ("runc", "crun", "none"):
            if runtime == "none" or shutil.which(runtime):
                check(varve, tree, runtime)
                print(f"{runtime}: keys, output and the caller's terminal are right", flush=True)
        expect(varve.json("session", "ls")["sessions"] == [], "a session is left")


main()
