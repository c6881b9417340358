# Varve: starts programs of an image, each for itself, and says what came of it. Handed to the image's Python with -c; the orders come as JSON on
# standard input, the answers go as lines of JSON to standard output (analyzer/prune/probe/start_session.h). For Python 3.5 and later.
import sys

sys.dont_write_bytecode = True
sys.path[:] = [folder for folder in sys.path if folder]   # -c looks into the working directory first

import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time

MAX_SAID = 65536      # of each output
MAX_FILES = 20000
QUIET_SECONDS = 3     # after the first words nothing more is loaded, mostly
RECORDS = (".dist-info", ".egg-info", "EGG-INFO", "conda-meta")


def is_of_a_library(path):
    return not path.startswith(("/proc/", "/dev/", "/sys/")) and not any(part.endswith(RECORDS) for part in path.split("/"))


class Program:
    def __init__(self, number, order, orders):
        self.number, self.order, self.limit = number, order, order.get("seconds", orders["seconds"])
        self.said = {"out": b"", "err": b""}
        self.heard = 0
        self.began = time.time()
        self.folder = None
        self.child = None
        self.failed = None
        environment = dict(os.environ)
        spied = {}
        if order.get("spy"):
            try:
                self.folder = tempfile.mkdtemp()
                with open(os.path.join(self.folder, "sitecustomize.py"), "w") as file:
                    file.write(orders["spy"])
                older = environment.get("PYTHONPATH")
                spied = {"PYTHONPATH": self.folder + (os.pathsep + older if older else ""), "VARVE_SPY": os.path.join(self.folder, "files"),
                         "PYTHONDONTWRITEBYTECODE": "1"}
            except OSError:                        # nowhere to write: the program is started all the same
                spied = {}
        words = order["words"]
        if order.get("kernel"):
            words = [sys.executable, "-c", orders["kernel"], order["kernel"], str(self.limit)] + ["%s=%s" % one for one in spied.items()]
            self.limit += 30
        else:
            environment.update(spied)
        try:
            self.child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, start_new_session=True)
        except OSError as error:
            self.failed = error
            return
        self.pipes = {self.child.stdout: "out", self.child.stderr: "err"}
        for pipe in self.pipes:
            os.set_blocking(pipe.fileno(), False)

    def read(self):
        for pipe, name in list(self.pipes.items()):
            try:
                piece = os.read(pipe.fileno(), 1 << 16)
            except OSError:
                continue
            if not piece:
                del self.pipes[pipe]
                continue
            self.heard = time.time()
            self.said[name] = (self.said[name] + piece)[:MAX_SAID]

    def ended(self):
        """The outcome, or None while it goes on."""
        if self.failed:
            return "no start"
        self.read()
        status = self.child.poll()
        if status is not None:
            for _ in range(64):                    # what it left in the pipes
                self.read()
            return "signal %d" % -status if status < 0 else "exit %d" % status
        now = time.time()
        if self.order["until"] == "output" and self.heard and now - self.heard > QUIET_SECONDS:
            return "ok"
        if now - self.began > self.limit:
            return ("ok" if self.heard else "runs") if self.order["until"] == "output" else "time limit"
        return None

    def close(self, outcome):
        files = set()
        if self.child:
            end(self.child)
            self.child.stdout.close()
            self.child.stderr.close()
        if self.folder:
            try:
                with open(os.path.join(self.folder, "files"), "rb") as lines:
                    for line in lines:
                        if len(files) < MAX_FILES:
                            files.add(line.rstrip(b"\n").decode("utf-8", "ignore"))
            except OSError:
                pass
            shutil.rmtree(self.folder, ignore_errors=True)
        files = sorted(path for path in files if is_of_a_library(path) and not path.startswith(self.folder or "\0"))
        if self.failed:
            self.said["err"] = str(self.failed).encode("utf-8", "replace")
        out, err = (self.said[name].decode("utf-8", "replace") for name in ("out", "err"))
        tell({"program": self.number, "outcome": outcome, "out": out, "err": err, "files": files})


def end(child):
    """It, and what it started and left."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except OSError:
        pass
    if child.poll() is None:
        child.kill()
        child.wait()


def tell(answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main():
    orders = json.loads(sys.stdin.read())
    waiting = list(enumerate(orders["programs"]))[::-1]
    running = []
    while waiting or running:
        while waiting and len(running) < orders["jobs"]:
            running.append(Program(*waiting.pop(), orders=orders))
        pipes = [pipe for program in running if not program.failed for pipe in program.pipes]
        select.select(pipes, [], [], 0.02)
        going = []
        for program in running:
            outcome = program.ended()
            if outcome is None:
                going.append(program)
            else:
                program.close(outcome)
        running = going
    tell({"done": True})


main()
