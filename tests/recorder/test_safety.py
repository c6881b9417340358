#!/usr/bin/python3
"""The recorder does no harm: hostile spools and programs, bounds, switches, and no secret in what it writes."""
import json
import os
import random
import shutil
import string
import subprocess
import sys

from world import SOURCES, Failure, World, every_version, expect, main


def libraries(world, count=30):
    for number in range(count):
        world.distribution("lib%d" % number, "1.0", {"lib%d.py" % number: ""})


PROGRAM = "import lib0, lib1\nprint('fine')\n"


def spools_that_are_none(world):
    libraries(world, 2)
    file = world.write("a_file", "")
    loop = os.path.join(world.work, "loop")
    os.symlink("loop", loop)
    for spool in ("/nonexistent/spool", file, loop, "relative/spool", "", "/dev/null", "/proc/self/fd", "/" + "x" * 5000, world.work + "/\u00e9\n"):
        expect(world.run(PROGRAM, VARVE_USAGE_SPOOL=spool).out, "fine\n", "with the spool %r" % spool[:40])
    expect(world.run(PROGRAM, VARVE_USAGE_SPOOL=None).files, [], "files without a spool")


@every_version
def a_spool_that_goes_away(world):
    libraries(world, 2)
    spool = os.path.join(world.work, "spool")
    os.mkdir(spool)
    result = world.run("import lib0, os, shutil\nshutil.rmtree(os.environ['VARVE_USAGE_SPOOL'])\nimport lib1\npid = os.fork()\n"
                       "if pid == 0:\n    import lib2_absent_in_child\n", status=0, VARVE_USAGE_SPOOL=spool, quiet=False)
    expect(os.path.exists(spool), False, "the spool came back")


@every_version
def a_full_disk_breaks_no_line(world):
    libraries(world)
    result = world.run("""
import resource, lib0
resource.setrlimit(resource.RLIMIT_FSIZE, (900, resource.RLIM_INFINITY))
for number in range(1, 15):
    __import__("lib%d" % number)
import glob, os
print(max(os.stat(path).st_size for path in glob.glob(os.environ["VARVE_USAGE_SPOOL"] + "/*.jsonl")))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
for number in range(15, 30):
    __import__("lib%d" % number)
""")
    expect(result.out, "900\n", "size at the limit")
    expect(result.modules("direct"), {"lib%d" % number for number in range(30)}, "direct, written when there was room again")


@every_version
def descriptors_closed_and_given_to_others(world):
    libraries(world, 3)
    result = world.run("""
import lib0, os
os.closerange(3, 4096)
files = [os.open("mine%d" % number, os.O_RDWR | os.O_CREAT) for number in range(600)]
import lib1
os.closerange(3, 4096)
import lib2
print([name for name in os.listdir(".") if name.startswith("mine") and os.stat(name).st_size])
""")
    expect(result.out, "[]\n", "files of the program that were written to")
    expect(len(result.files), 1, "files")
    expect(result.modules("direct"), {"lib0", "lib1", "lib2"}, "direct")


@every_version
def few_descriptors_and_a_closed_standard_error(world):
    libraries(world, 3)
    result = world.run("import lib0, resource, os\nresource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))\nimport lib1\n"
                       "held = []\ntry:\n    while True:\n        held.append(os.dup(0))\nexcept OSError:\n    pass\n"
                       "pid = os.fork()\nif pid == 0:\n    try:\n        import absent_here\n    except ImportError:\n        os._exit(0)\n"
                       "print(os.waitpid(pid, 0)[1])\n")
    expect(result.out, "0\n", "status of a child without descriptors")
    process = subprocess.run([world.python, "-c", "import os, sys\nos.close(0); os.close(1); os.close(2)\nimport lib2\nos._exit(5)"], env=world.environment())
    expect(process.returncode, 5, "exit status without standard streams")


def a_changed_root(world):
    if os.geteuid():
        return print("changing the root needs root: its case is skipped")
    libraries(world, 2)
    root = os.path.join(world.work, "root")
    os.mkdir(root)
    result = world.run("import lib0, os\nos.chroot(%r)\nos.chdir('/')\nos.closerange(3, 4096)\ntry:\n    import lib1\nexcept ImportError:\n    print('gone')\n" % root)
    expect(result.out, "gone\n", "output")


@every_version
def a_writer_that_reached_its_bound(world):
    libraries(world)
    result = world.run("""
import sys, varve_recorder
varve_recorder.FINDER.load()
import varve_recorder_core
varve_recorder_core.MAX_BYTES = 5000 + varve_recorder_core.MAX_LINE
for number in range(30):
    __import__("lib%d" % number)
for number in range(200):
    try:
        __import__("absent_module_%d" % number)
    except ImportError:
        pass
""")
    expect(result.records[-1]["t"], "full", "the last record")
    expect(len(result.of("full")), 1, "full records")
    expect(len(world.raw()) < 5200, True, "bytes: %d" % len(world.raw()))


@every_version
def modules_that_others_put_into_sys_modules(world):
    libraries(world)
    result = world.run("""
import sys, threading, types

class Hostile(types.ModuleType):
    def __getattribute__(self, name):
        print("touched", name)
        raise RuntimeError(name)

class NoModule:
    __slots__ = ()

sys.modules["hostile"] = Hostile("hostile")
sys.modules["none"] = None
sys.modules["slots"] = NoModule()
sys.modules[42] = NoModule()
sys.modules["listed"] = [1, 2]
odd = types.ModuleType("odd")
odd.__file__ = 42
sys.modules["odd"] = odd
stop = False
def stir():
    number = 0
    while not stop:
        number += 1
        sys.modules["stirred%d" % (number % 100)] = types.ModuleType("x")
        sys.modules.pop("stirred%d" % ((number * 7) % 100), None)
thread = threading.Thread(target=stir)
thread.start()
for number in range(30):
    __import__("lib%d" % number)
    varve = sys.meta_path[-2].load()
    varve.life_part().beat(varve)
stop = True
thread.join()
del sys.modules[42], sys.modules["hostile"]
print("fine")
""")
    expect(result.out, "fine\n", "output")
    expect(result.modules("direct"), {"lib%d" % number for number in range(30)}, "direct")


@every_version
def what_a_signal_handler_raises_arrives(world):
    libraries(world)
    result = world.run("""
import signal, sys
import lib0
recorder = sys.meta_path[-2].recorder

class Timeout(Exception):
    pass

def on_alarm(number, frame):
    raise Timeout

signal.signal(signal.SIGALRM, on_alarm)
real = type(recorder).note
def interrupted(self, *arguments):               # the signal arrives while the recorder is at work
    signal.raise_signal(signal.SIGALRM)
    real(self, *arguments)
interrupted.__code__ = interrupted.__code__.replace(co_filename=real.__code__.co_filename)
type(recorder).note = interrupted
try:
    import lib1
    print("lost")
except Timeout:
    print("arrived")
def broken(self, *arguments):
    raise ValueError("ours")
broken.__code__ = broken.__code__.replace(co_filename=real.__code__.co_filename)
type(recorder).note = broken
import lib2
def stopped(self, *arguments):
    raise KeyboardInterrupt
stopped.__code__ = stopped.__code__.replace(co_filename=real.__code__.co_filename)
type(recorder).note = stopped
try:
    import lib3
    print("lost")
except KeyboardInterrupt:
    print("stopped")
type(recorder).note = real
""")
    expect(result.out, "arrived\nstopped\n", "output")


def output_and_tracebacks_are_as_without_it(world):
    world.distribution("bad", "1.0", {"bad_syntax.py": "def\n", "bad_value/__init__.py": "import bad_value.inner\n", "bad_value/inner.py": "raise ValueError('x')\n",
                                      "bad_import.py": "import really_absent\n"})
    for code, status in (("import bad_syntax\n", 1), ("import bad_value\n", 1), ("import bad_import\n", 1), ("import absent.one\n", 1), ("from bad_value import y\n", 1),
                         ("import sys\nprint(len(sys.argv), __name__, sys.flags)\n", 0), ("import threading, os\nprint(threading.active_count(), sorted(os.listdir('/proc/self/fd')))\n", 0)):
        with_it = world.run(code, status=status, quiet=False)
        without = world.run(code, status=status, quiet=False, VARVE_USAGE_SPOOL=None)
        expect((with_it.out, with_it.err), (without.out, without.err), "what %r printed" % code)


def switches_and_isolated_modes(world):
    libraries(world, 2)
    for switch in ({"DO_NOT_TRACK": "1"}, {"DO_NOT_TRACK": "true"}, {"VARVE_USAGE": "off"}, {"VARVE_USAGE": "OFF"}):
        result = world.run("import lib0, sys\nprint([f for f in sys.meta_path if 'varve' in repr(f)])\n", **switch)
        expect((result.out, os.listdir(world.spool)), ("[]\n", []), "with %s" % switch)
    expect(world.run(PROGRAM, DO_NOT_TRACK="0", VARVE_USAGE="on").modules("direct"), {"lib0", "lib1"}, "switched on")
    for option, wanted in (("-I", True), ("-E", True), ("-S", False), ("-s", True), ("-B", True), ("-O", True)):
        code = "import sys\nsys.path.append(%r)\nimport lib0\n" % world.site
        expect(bool(world.run(code, options=[option]).files), wanted, "recorded with %s" % option)


def the_switch_file_of_an_image(world):
    sys.path.insert(0, SOURCES)
    import varve_recorder
    environment = {"VARVE_USAGE_SPOOL": "/spool"}
    expect(varve_recorder.is_wanted(environment), not os.path.exists("/etc/varve/usage-off"), "without the file")
    real = os.path.exists
    os.path.exists = lambda path: path == "/etc/varve/usage-off"
    try:
        expect(varve_recorder.is_wanted(environment), False, "with the file")
    finally:
        os.path.exists = real


@every_version
def no_secret_is_written(world):
    chance = random.Random(7)
    secrets = []

    def secret(prefix=""):
        secrets.append(prefix + "".join(chance.choice(string.ascii_lowercase) for _ in range(16)))
        return secrets[-1]
    libraries(world, 3)
    folder, module, package = secret("dir"), secret("mod"), secret("pkg")
    world.write("%s/%s.py" % (folder, module), "import lib1\n%s = '%s'  # %s\n" % (secret("var"), secret("value"), secret("comment")))
    world.write("%s/%s/__init__.py" % (folder, package), "import lib2\n")
    world.write("%s/%s/%s.py" % (folder, package, secret("sub")), "")
    code = """
import sys, os
sys.path.insert(0, %r)
import lib0, %s, %s, %s.%s
from %s import %s as %s
os.environ[%r] = %r
open(%r, "w").close()
try:
    import %s.%s
except ImportError:
    pass
exec(%r)
""" % (os.path.join(world.work, folder), module, package, package, secrets[-1], package, secrets[-1], secret("alias"), secret("ENV"), secret("envvalue"),
       os.path.join(world.work, secret("file")), package, secret("failed"), "import lib1; %s = 1" % secret("exec"))
    result = world.run(code, words=None, VARVE_USAGE_USER=secret("user"), HOSTNAME=secret("host"))
    raw = world.raw()
    for word in secrets + [world.work, world.folder, "main_script"]:
        if word.encode() in raw:
            raise Failure("%r is in the spool" % word)
    expect({"lib0", "lib1", "lib2"} - result.modules("direct"), set(), "and yet all was seen")


@every_version
def names_that_are_no_names(world):
    world.distribution("odd", "1.0", {"with-dash.py": "", "quo\"te.py": "", "\u00fcn\u00efcode.py": "", "a b.py": "", "x" * 200 + ".py": ""})
    result = world.run("""
import importlib
for name in ("with-dash", 'quo"te', "\\u00fcn\\u00efcode", "a b", "x" * 200, "absent-dash", 'absent"quote', "absent\\nline", "a" * 5000, ".relative", "\\ud800", ""):
    try:
        importlib.import_module(name)
    except (ImportError, ValueError, TypeError, OSError, UnicodeError):
        pass
""")
    expect(result.modules("direct"), {"\u00fcn\u00efcode", "x" * 200}, "direct")
    expect(result.failed(), set(), "failed")


CASES = [case for case in list(globals().values()) if getattr(case, "on_every_version", False)] + [
    a_changed_root, the_switch_file_of_an_image, spools_that_are_none, output_and_tracebacks_are_as_without_it, switches_and_isolated_modes]

if __name__ == "__main__":
    sys.exit(main(CASES, sys.argv[1:]))
