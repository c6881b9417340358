"""A Python of its own for the recorder's tests: a virtual environment with made-up distributions, a spool, and ways to run programs in it."""
import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "analyzer", "recorder", "python")
KINDS = {"start", "import", "failed", "install", "gpu", "beat", "end", "full"}
FIELDS = {
    "start": {"t", "v", "session", "process", "parent", "day", "image", "writer", "user", "python", "platform", "main"},
    "import": {"t", "m", "how", "by", "site", "d", "ver", "base", "at"},
    "failed": {"t", "m", "how", "at"},
    "install": {"t", "d", "from", "to", "why", "tool", "at"},
    "gpu": {"t", "present", "models", "driver", "used", "at"},
    "beat": {"t", "at", "cells", "busy", "idle", "gpu_used"},
    "end": {"t", "at", "exit"},
    "full": {"t", "at", "dropped"},
}


class Failure(Exception):
    pass


def expect(actual, wanted, what):
    if actual != wanted:
        raise Failure("%s\n  is:     %s\n  wanted: %s" % (what, actual, wanted))


def check_file(name, content):
    """One spool file, held against docs/formats/usage-spool.md. Returns its records."""
    if content and not content.endswith(b"\n"):
        content = content[:content.rfind(b"\n") + 1]     # half a record, as of a killed writer
    records = []
    for line in content.splitlines():
        if len(line) > 4096:
            raise Failure("a line of %d bytes" % len(line))
        record = json.loads(line.decode("utf-8"))
        if record["t"] not in KINDS or set(record) - FIELDS[record["t"]]:
            raise Failure("not in the format: %s" % record)
        if "at" in record and record["at"] % 10:
            raise Failure("a time that is not rounded: %s" % record)
        records.append(record)
    if records:
        start = records[0]
        expect(start["t"], "start", "the first record of %s" % name)
        expect("%s-%s.jsonl" % (start["session"], start["process"]), name, "the name of a spool file")
        expect([r["t"] for r in records[1:]].count("start"), 0, "further start records")
    return records


class Result:
    """What a program printed, and what the recorder wrote about it."""

    def __init__(self, status, out, err, files):
        self.status, self.out, self.err, self.files = status, out, err, files
        self.records = [record for records in files for record in records]

    def of(self, kind):
        return [record for record in self.records if record["t"] == kind]

    def imports(self, how=None):
        """{(module, how, by)} without the kernel's own."""
        return {(r["m"], r["how"], r.get("by")) for r in self.of("import") if not r.get("base") and how in (None, r["how"])}

    def modules(self, how):
        return {r["m"] for r in self.of("import") if r["how"] == how and not r.get("base")}

    def failed(self):
        return {(r["m"], r["how"]) for r in self.of("failed")}


class World:
    def __init__(self, python, system_site=False, with_pip=False):
        self.folder = tempfile.mkdtemp(prefix="varve-recorder-")
        self.spool = os.path.join(self.folder, "spool")
        self.work = os.path.join(self.folder, "work")
        os.mkdir(self.spool)
        os.mkdir(self.work)
        venv = os.path.join(self.folder, "venv")
        words = [python, "-m", "venv"] + ([] if with_pip else ["--without-pip"]) + (["--system-site-packages"] if system_site else [])
        subprocess.run(words + [venv], check=True, stdout=subprocess.PIPE)
        self.python = os.path.join(venv, "bin", "python")
        answer = subprocess.run([self.python, "-c", "import sys, sysconfig; print(sysconfig.get_path('purelib')); print('%d.%d' % sys.version_info[:2])"],
                                check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout.split()
        self.site, self.version = answer[0], tuple(int(part) for part in answer[1].split("."))
        for name in os.listdir(SOURCES):
            if name.startswith("varve_recorder"):
                shutil.copy(os.path.join(SOURCES, name), self.site)

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def write(self, path, text):
        path = os.path.join(self.work, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def distribution(self, name, version, files, folder=None):
        """An installed distribution: its files, and a dist-info folder that owns them."""
        folder = folder or self.site
        info = "%s-%s.dist-info" % (name.replace("-", "_"), version)
        for path, text in list(files.items()) + [(info + "/METADATA", "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version)), (info + "/INSTALLER", "pip\n")]:
            full = os.path.join(folder, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        with open(os.path.join(folder, info, "RECORD"), "w", encoding="utf-8") as file:
            for path in files:
                file.write(('"%s",,\n' if "," in path else "%s,,\n") % path)
            file.write("".join("%s/%s,,\n" % (info, name) for name in ("METADATA", "INSTALLER", "RECORD")))

    def wheel(self, name, version, files):
        """A wheel in the work folder; its path."""
        info = "%s-%s.dist-info" % (name, version)
        files = dict(files)
        files[info + "/METADATA"] = "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version)
        files[info + "/WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        lines = ["%s,sha256=%s,%d" % (path, base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("="), len(text.encode()))
                 for path, text in files.items()]
        files[info + "/RECORD"] = "\n".join(lines + [info + "/RECORD,,"]) + "\n"
        path = os.path.join(self.work, "%s-%s-py3-none-any.whl" % (name, version))
        with zipfile.ZipFile(path, "w") as archive:
            for inside, text in files.items():
                archive.writestr(inside, text)
        return path

    def environment(self, **more):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("VARVE_", "PYTHON", "DO_NOT_TRACK"))}
        environment.update(VARVE_USAGE_SPOOL=self.spool, PYTHONDONTWRITEBYTECODE="1", HOME=self.work)
        environment.update(more)
        return {name: value for name, value in environment.items() if value is not None}

    def clean(self):
        for name in os.listdir(self.spool):
            os.unlink(os.path.join(self.spool, name))

    def start(self, words, **environment):
        return subprocess.Popen([self.python] + words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.work,
                                env=self.environment(**environment))

    def spooled(self):
        names = sorted((name for name in os.listdir(self.spool) if name.endswith(".jsonl")), key=lambda name: os.stat(os.path.join(self.spool, name)).st_mtime_ns)
        return [check_file(name, open(os.path.join(self.spool, name), "rb").read()) for name in names]

    def raw(self):
        return b"".join(open(os.path.join(self.spool, name), "rb").read() for name in os.listdir(self.spool))

    def run(self, code, words=None, status=0, stdin=b"", quiet=True, keep=False, options=(), **environment):
        """Runs a script (or `words`) and returns what happened. The recorder's rule that it never prints is checked each time."""
        if not keep:
            self.clean()
        if words is None:
            words = list(options) + [self.write("main_script.py", code)]
        process = self.start(words, **environment)
        out, err = process.communicate(stdin, timeout=120)
        if process.returncode != status or (quiet and err):
            raise Failure("exit status %s, wanted %s\n%s\n%s" % (process.returncode, status, out.decode()[-2000:], err.decode()[-3000:]))
        if "importtime" not in options and b"varve_recorder" in err + out:
            raise Failure("the recorder shows: " + err.decode())
        return Result(process.returncode, out.decode(), err.decode(), self.spooled())


def wait_until(condition, what, seconds=20):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Failure("waited for " + what)
        time.sleep(0.01)


def pythons(wanted):
    """Pythons to test: those asked for, else the system's and one of each minor version that $PATH or pyenv has."""
    if wanted:
        return wanted
    found = {}
    places = [os.path.join(folder, name) for folder in ["/usr/bin"] + os.environ.get("PATH", "").split(":") if os.path.isdir(folder)
              for name in sorted(os.listdir(folder)) if re.fullmatch(r"python3(\.\d+)?", name)]
    pyenv = os.path.expanduser("~/.pyenv/versions")
    if os.path.isdir(pyenv):
        places += [os.path.join(pyenv, name, "bin", "python3") for name in sorted(os.listdir(pyenv))]
    for path in places:
        try:
            answer = subprocess.run([path, "-c", "import sys, venv; print(sys.version_info[1], hasattr(sys, 'real_prefix'))"], stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, universal_newlines=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if answer.returncode == 0 and int(answer.stdout.split()[0]) >= 8:
            found.setdefault(answer.stdout.split()[0], path)
    return list(found.values())


def main(cases, argv):
    """Runs cases {name: function(world)} on Pythons; `short` ones on every version, all on the first."""
    import argparse
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", action="append", help="test this one (may be repeated); all cases")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args(argv)
    failures = 0
    began = time.monotonic()
    for number, python in enumerate(pythons(arguments.python)):
        world = World(python)
        try:
            chosen = [case for case in cases if (not arguments.names or case.__name__ in arguments.names)
                      and (number == 0 or arguments.python or getattr(case, "on_every_version", False))]
            for case in chosen:
                try:
                    case(world)
                except Exception as error:
                    failures += 1
                    print("FAILED %s on %s: %s" % (case.__name__, python, str(error)[:3000]))
                    if not isinstance(error, Failure):
                        import traceback
                        traceback.print_exc()
                for name in os.listdir(world.work):
                    path = os.path.join(world.work, name)
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            print("%s (%d.%d): %d cases, %.1f s" % (python, world.version[0], world.version[1], len(chosen), time.monotonic() - began))
        finally:
            world.close()
    return 1 if failures else 0


def every_version(case):
    case.on_every_version = True
    return case
