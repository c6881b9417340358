# Varve: imports libraries of an image, each in a process of its own, and says what came of it. Handed to the image's Python with -c; the tasks
# come as JSON on standard input, the answers go as lines of JSON to standard output (analyzer/prune/import_session.h). For Python 3.5 and later.
import sys

sys.dont_write_bytecode = True
sys.path[:] = [folder for folder in sys.path if folder]   # -c looks into the working directory first

import json
import os
import select
import signal
import time

MAX_MISSED = 20000
MAX_FILES = 20000
RECORDS = (".dist-info", ".egg-info", "EGG-INFO", "conda-meta")   # read to list what is installed, not to use it


def is_text(name):
    try:
        return bool(name.encode("utf-8"))
    except UnicodeError:                      # a name that JSON cannot hold
        return False


class Spy:
    """Notes what imports look for and which files they open, shared libraries included."""

    def __init__(self):
        self.asked, self.opened = set(), set()
        self.known = set(sys.modules)
        self.stdlib = os.path.dirname(os.__file__) + os.sep
        sys.meta_path.insert(0, self)
        if hasattr(sys, "addaudithook"):      # 3.8
            sys.addaudithook(self.hear)

    def find_spec(self, name, path=None, target=None):
        if len(self.asked) < MAX_MISSED:
            self.asked.add(name)
        return None

    def hear(self, event, words):
        if event == "open" and len(self.opened) < MAX_FILES and isinstance(words[0], str):
            self.opened.add(words[0])

    def is_of_a_library(self, path):
        if path.startswith(("/proc/", "/dev/", "/sys/")):
            return False
        if path.startswith(self.stdlib) and "-packages/" not in path:
            return False
        return not any(part.endswith(RECORDS) for part in path.split("/"))

    def say(self):
        """What is new since it was asked before."""
        try:
            with open("/proc/self/maps") as lines:
                mapped = {line[line.index("/"):].rstrip("\n") for line in lines if "/" in line}
        except OSError:
            mapped = set()
        now = set(name for name in sys.modules if isinstance(name, str))
        loaded, tried = now - self.known, self.asked - now
        files = {os.path.abspath(path) for path in list(self.opened)} | mapped
        self.known = now
        self.asked, self.opened = set(), set()
        lists = {"loaded": loaded, "tried": tried, "files": filter(self.is_of_a_library, files)}
        return {name: sorted(filter(is_text, them))[:MAX_FILES] for name, them in lists.items()}


class Missed:
    """Notes what nobody found: the optional parts that a library looks for, by import or by probe."""

    def __init__(self):
        self.names = set()

    def find_spec(self, name, path=None, target=None):
        if len(self.names) < MAX_MISSED:
            self.names.add(name)
        return None


def kind_of(error):
    kind = type(error)
    module = getattr(kind, "__module__", "builtins")
    return kind.__name__ if module == "builtins" else "%s.%s" % (module, kind.__name__)


def words_of(error):
    try:
        return " ".join(str(error).split())[:400]
    except Exception:
        return ""


def import_one(name, importlib):
    module, _, attribute = name.partition(":")    # of an entry point
    try:
        found = importlib.import_module(module)
        for part in filter(None, attribute.split(".")):
            found = getattr(found, part)
    except BaseException as error:
        return kind_of(error), words_of(error)
    return "ok", ""


def look_for_archived(name, importlib):
    """It must seem absent to a probe, and an import must say how to get it."""
    try:
        if importlib.util.find_spec(name) is not None:
            return "found", "find_spec finds it"
    except ImportError:
        pass
    try:
        importlib.import_module(name)
    except ImportError as error:
        return ("archived" if " was archived. " in str(error) else "no word"), words_of(error)
    except BaseException as error:
        return kind_of(error), words_of(error)
    return "found", "it can be imported"


def work(number, task, out):
    """In a child."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    import importlib
    import importlib.util
    missed = Missed()
    place = [i for i, finder in enumerate(sys.meta_path) if type(finder).__module__ == "varve_archived"]
    sys.meta_path.insert(place[0] if place else len(sys.meta_path), missed)
    one = look_for_archived if task.get("archived") else import_one
    spy = Spy() if task.get("spy") else None
    for name in task["names"]:
        began = time.time()
        outcome, detail = one(name, importlib)
        answer = {"task": number, "name": name, "outcome": outcome, "detail": detail, "seconds": round(time.time() - began, 3), "missed": sorted(missed.names)}
        missed.names.clear()
        if spy:
            answer.update(spy.say())
        line = (json.dumps(answer) + "\n").encode("ascii")
        while line:
            line = line[os.write(out, line):]


class Child:
    def __init__(self, number, task, limit):
        self.number, self.task, self.limit = number, task, limit
        self.text, self.answered, self.timed_out = b"", 0, False
        self.began = time.time()
        self.out, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                os.close(self.out)
                work(number, task, write)
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        os.set_blocking(self.out, False)

    def read(self):
        try:
            while True:
                piece = os.read(self.out, 1 << 16)
                if not piece:
                    break
                self.text += piece
        except OSError:
            pass
        lines = self.text.split(b"\n")
        self.text = lines.pop()
        for line in lines:
            tell(line.decode("ascii", "replace"))
            self.answered += 1
            self.began = time.time()

    def is_done(self):
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0 and time.time() - self.began > self.limit:
            self.timed_out = True
            kill(self.pid)
            pid, status = os.waitpid(self.pid, 0)
        if pid == 0:
            return False
        self.read()
        kill(self.pid)                    # what it started
        os.close(self.out)
        outcome = "time limit" if self.timed_out else "signal %d" % os.WTERMSIG(status) if os.WIFSIGNALED(status) else "exit %d" % os.WEXITSTATUS(status)
        for name in self.task["names"][self.answered:]:
            tell(json.dumps({"task": self.number, "name": name, "outcome": outcome, "detail": "", "seconds": round(time.time() - self.began, 3), "missed": []}))
            outcome = "not reached"
        return True


def kill(pid):
    for send in (os.killpg, os.kill):     # the group may not be there yet
        try:
            send(pid, signal.SIGKILL)
        except OSError:
            pass


def tell(line):
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main():
    orders = json.loads(sys.stdin.read())
    waiting = list(enumerate(orders["tasks"]))[::-1]
    running = []
    while waiting or running:
        while waiting and len(running) < orders["jobs"]:
            running.append(Child(*waiting.pop(), limit=orders["seconds"]))
        select.select([child.out for child in running], [], [], 0.02)
        for child in running:
            child.read()
        running = [child for child in running if not child.is_done()]
    tell(json.dumps({"done": True}))


main()
