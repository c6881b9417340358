#!/usr/bin/python3
"""What a session does beyond importing: copies of its own, installs, cells of IPython and of a real kernel, accelerators, its user."""
import hashlib
import hmac
import json
import os
import shutil
import subprocess
import sys
import time

from world import SOURCES, Failure, World, every_version, expect, main, wait_until


def copies(result):
    return {r["m"]: (r["site"], r.get("d"), r.get("ver")) for r in result.of("import") if not r.get("base")}


@every_version
def the_sessions_own_copies_with_name_and_version(world):
    world.distribution("Old-Dist", "1.0", {"old/__init__.py": "", "old_single.py": ""})
    started = "%.6f" % wait_for_a_later_file(world)
    world.distribution("New_Dist.x", "2.0rc1", {"new/__init__.py": "import newsub\n", "new/a,b.py": "", "newsub.py": ""})
    result = world.run("import old, old_single, new\n", VARVE_SESSION_STARTED=started)
    standard = subprocess.run([world.python, "-c", "import os; print(os.__file__)"], stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
    beside = os.stat(world.site).st_dev in {os.stat(path).st_dev for path in ("/", standard)}
    old = ("image", None, None) if beside else ("session", "Old_Dist", "1.0")     # where /tmp is a device of its own
    expect(copies(result), {"old": old, "old_single": old,
                            "new": ("session", "New_Dist.x", "2.0rc1"), "newsub": ("session", "New_Dist.x", "2.0rc1")}, "copies")


def wait_for_a_later_file(world):
    """The time of the file system's clock, after it has moved on: files made from here on are later."""
    path = os.path.join(world.folder, "clock")
    open(path, "w").close()
    before = os.stat(path).st_ctime

    def moved():
        open(path, "w").write("x")
        return os.stat(path).st_ctime > before + 0.01
    wait_until(moved, "the clock")
    return (before + os.stat(path).st_ctime) / 2


@every_version
def folders_that_pip_was_told_to_install_into(world):
    target = os.path.join(world.work, "libs")
    started = "%.6f" % wait_for_a_later_file(world)
    world.distribution("targeted", "3.1", {"targeted/__init__.py": "import targeted_too\n", "targeted_too.py": ""}, folder=target)
    world.write("libs/my_private_module.py", "import targeted_too\n")
    result = world.run("import sys\nsys.path.insert(0, 'libs')\nsys.path.insert(0, %r)\nimport my_private_module, targeted\n" % target, VARVE_SESSION_STARTED=started)
    expect(copies(result), {"targeted": ("session", "targeted", "3.1"), "targeted_too": ("session", "targeted", "3.1")}, "copies")
    expect(b"my_private" in world.raw(), False, "a user's module beside them is written")


def the_users_own_site_folder(world):
    user = World(sys.executable, system_site=True)
    try:
        base = os.path.join(user.work, "base")
        started = "%.6f" % wait_for_a_later_file(user)
        site = os.path.join(base, "lib", "python%d.%d" % user.version, "site-packages")
        user.distribution("own", "0.1", {"own_module.py": ""}, folder=site)
        result = user.run("import own_module\n", PYTHONUSERBASE=base, VARVE_SESSION_STARTED=started)
        # The machine's own site folder may import something at its start, too.
        expect(copies(result).get("own_module"), ("session", "own", "0.1"), "its copy")
    finally:
        user.close()


def installs_at_run_time_by_pip(world):
    offline = World(sys.executable, with_pip=True)
    try:
        for name, version in (("up", "1.0"), ("down", "2.0"), ("stay", "1.0"), ("gone", "1.0")):
            offline.distribution(name, version, {name + ".py": ""})
        wheels = [offline.wheel(name, version, {name + ".py": ""}) for name, version in (("up", "1.10"), ("down", "1.9"), ("stay", "1.0"), ("fresh", "0.1"))]
        pip = "subprocess.run([sys.executable, '-m', 'pip', '-q', '--disable-pip-version-check', %s], check=True, env=dict(os.environ, PIP_NO_INPUT='1'))\n"
        result = offline.run("import os, subprocess, sys, up\n"
                             + pip % ("'install', '--no-index', '--no-deps', '--force-reinstall', " + ", ".join(map(repr, wheels)))
                             + pip % "'uninstall', '-y', 'gone'", quiet=False)
        own = [records for records in result.files if records[0]["main"] == "script"][0]
        expect(sorted((r["d"], r.get("from"), r.get("to"), r["why"], r["tool"]) for r in own if r["t"] == "install"),
               [("down", "2.0", "1.9", "downgrade", "pip"), ("fresh", None, "0.1", "new", "pip"), ("gone", "1.0", None, "removed", "other"),
                ("stay", "1.0", "1.0", "same", "pip"), ("up", "1.0", "1.10", "upgrade", "pip")], "installs")
        expect("pip" in result.modules("direct"), True, "pip itself was used")
    finally:
        offline.close()


def versions_are_ordered_as_packaging_orders_them(world):
    sys.path.insert(0, SOURCES)
    from varve_recorder_copies import compare_versions, name_and_version, normalised
    ordered = ["0.9", "1.0.dev1", "1.0a1.dev2", "1.0a1", "1.0a1.post1", "1.0a2", "1.0b1", "1.0rc1", "1.0", "1.0+cpu", "1.0+cu118", "1.0+cu118.2", "1.0.post0.dev1",
               "1.0.post1", "1.0.1", "1.9", "1.10", "2021.3", "1!0.1"]
    for i, old in enumerate(ordered):
        for j, new in enumerate(ordered):
            expect(compare_versions(old, new), "same" if i == j else "upgrade" if i < j else "downgrade", "%s -> %s" % (old, new))
    for old, new in (("1.0", "1.0.0"), ("1.0-1", "1.0.post1"), ("1.0RC1", "1.0c1"), ("v1.0", "1.0"), ("1.0alpha1", "1.0a1")):
        expect(compare_versions(old, new), "same", "%s -> %s" % (old, new))
    expect(compare_versions("unknown", "1.0"), "upgrade", "no version at all")
    try:
        from packaging.version import Version
    except ImportError:
        from pip._vendor.packaging.version import Version
    import random
    chance = random.Random(1)

    def version():
        return "".join([chance.choice(["", "", "", "1!"]), ".".join(str(chance.randrange(3)) for _ in range(chance.randrange(1, 4))),
                        chance.choice(["", "", "a1", "b0", ".rc2", "-alpha", "c1"]), chance.choice(["", "", ".post1", "-2", ".rev3"]),
                        chance.choice(["", "", ".dev0", "-dev1"]), chance.choice(["", "", "+cpu", "+1.a", "+10"])])
    for _ in range(3000):
        a, b = version(), version()
        x, y = Version(a), Version(b)
        expect(compare_versions(a, b), "same" if x == y else "upgrade" if x < y else "downgrade", "%s -> %s" % (a, b))
    expect(name_and_version("zope.interface-5.0-py3.11.egg-info"), ("zope.interface", "5.0"), "egg-info")
    expect(normalised("Zope.Inter__face"), "zope-inter-face", "normalised")


CELLS = """import alpha
x = '''
import in_a_string
'''
%time import beta
import delta; y = 1
if True: import delta
# import in_a_comment
from gamma import (one,
    two as second)
1/0
"""


def cells_of_an_ipython_process(world):
    shell = World(sys.executable, system_site=True)
    try:
        if subprocess.run([shell.python, "-c", "import IPython"], stderr=subprocess.DEVNULL).returncode:
            return print("no IPython here: its case is skipped")
        libraries_for_cells(shell)
        shell.distribution("magical", "1.0", {"magical.py": "def load_ipython_extension(shell):\n    pass\n"})
        lines = b"import holder\nimport alpha\n%time import beta\nif 1: import delta\n\n%load_ext magical\nx = 'import in_a_string'\nimport traitlets\n1/0\nexit()\n"
        result = shell.run(None, words=["-m", "IPython", "--simple-prompt", "--no-banner", "--quick"], stdin=lines, quiet=False, IPYTHONDIR=shell.folder + "/ipython")
        expect(result.modules("static") & {"alpha", "beta", "delta", "traitlets", "in_a_string"}, {"alpha", "beta", "delta", "traitlets"}, "static")
        expect({"holder", "magical"} - result.modules("direct"), set(), "direct")
        base = {r["m"] for r in result.of("import") if r.get("base")}
        expect({"IPython", "traitlets", "prompt_toolkit"} - base, set(), "what the shell loaded for itself")
        expect({r["how"] for r in result.of("import") if r.get("base")}, {"transitive"}, "as what")
        beat = result.of("beat")[-1]
        expect(beat["cells"] >= 8, True, "cells: %s" % beat)
        expect((result.of("start")[0]["main"], result.of("end")[0]["exit"]), ("repl", "ok"), "start and end")
    finally:
        shell.close()


def libraries_for_cells(world):
    world.distribution("cells", "1.0", {"holder.py": "import alpha, beta, delta, gamma, gamma.one, omega\n", "alpha.py": "", "beta.py": "", "delta.py": "",
                                        "gamma/__init__.py": "two = 2\n", "gamma/one.py": "", "omega.py": ""})


def a_real_kernel(world):
    kernel = World(sys.executable, system_site=True)
    try:
        if subprocess.run([kernel.python, "-c", "import ipykernel, jupyter_client"], stderr=subprocess.DEVNULL).returncode:
            return print("no ipykernel here: its case is skipped")
        libraries_for_cells(kernel)
        kernel.write("drive.py", """
import json, os, signal, sys
from jupyter_client import KernelManager
manager = KernelManager(kernel_name="python3", ip="127.0.0.1")
manager.kernel_spec.argv[:] = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
manager.start_kernel(env=dict(os.environ))
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=60)
for code in json.loads(sys.argv[1]):
    client.execute_interactive(code, timeout=60, output_hook=lambda message: None)
os.kill(manager.provisioner.pid, signal.SIGKILL)
client.stop_channels()
print("done")
""")
        cells = ["import holder", CELLS, "%%bash\nimport omega\n", "!import omega", "def f():\n    import omega\n", "import IPython"]
        kernel.clean()
        # The one that drives the kernel is recorded as well; its kernel is of the same session. Its file of connections stays behind.
        process = kernel.start(["drive.py", json.dumps(cells)], JUPYTER_RUNTIME_DIR=kernel.folder, IPYTHONDIR=kernel.folder + "/ipython", TMPDIR=kernel.folder)
        out, err = process.communicate(timeout=120)
        expect(out.decode(), "done\n", "the driver said %s" % err.decode()[-2000:])
        records = [records for records in kernel.spooled() if records[0]["main"] == "kernel"][0]
        own = [r for r in records if r["t"] == "import" and not r.get("base")]
        expect({r["m"] for r in own if r["how"] == "static"}, {"alpha", "beta", "delta", "gamma", "gamma.one", "omega", "IPython"}, "static")
        expect({r["m"] for r in own if r["how"] == "direct"}, {"holder"}, "direct")
        expect({"ipykernel", "zmq", "tornado", "IPython"} - {r["m"] for r in records if r.get("base")}, set(), "what the kernel loaded for itself")
        expect([r for r in own if r["m"].startswith(("ipykernel", "zmq", "tornado"))], [], "of the kernel's, counted for its user")
        expect([r for r in records if r["t"] == "end"], [], "end of a killed kernel")
    finally:
        kernel.close()


def cells_read_as_text(world):
    sys.path.insert(0, SOURCES)
    import varve_recorder_text as text
    named = set()
    text.declare, real = (lambda recorder, name: named.add(name)), text.declare
    try:
        for cell, wanted in (
                (CELLS, {"alpha", "beta", "delta", "gamma", "gamma.one", "gamma.two"}),
                ("%%time\nimport a.b as c, d\n", {"a.b", "d"}),
                ("%%bash\nimport a\n", set()),
                ("%%writefile x.py\nimport a\n", set()),
                ("from . import x\nfrom .y import z\nfrom a import *\n", {"a"}),
                ("from a \\\n  import b, \\\n c\n", {"a", "a.b", "a.c"}),
                ("try:\n    import a\nexcept ImportError: import b\n", {"a", "b"}),
                ('"""import a\n', set()), ("'''\nimport a\n'''", set()), ("print('; import a')", set()), ("x = 1 # ; import a", set()),
                ("important = 1\nfromage = 2\nimport_module('x')", set()), ("import", set()), ("import a as", {"a"}), ("from a import (b", {"a"}),
                ("lambda: 1; import a;import b", {"a", "b"}), ("import 1a, a-b", set()), ("x = \"\"\"a\\\"\"\"\"\nimport a", {"a"}), ("import a\r\nimport b\r\n", {"a", "b"}),
                ("import \u00e9t\u00e9\n", {"\u00e9t\u00e9"})):
            named.clear()
            text.read_cell(None, cell)
            if cell == "from a import (b":
                expect("a" in named, True, cell)
                continue
            expect(named, wanted, "cell %r" % cell)
        for hostile in ("'" * 100000, '"""' * 30000, "from " * 50000, "import a," * 50000, "(" * 100000 + "import", "\\\n" * 100000 + "import a", "import " + "a" * 100000):
            began = time.monotonic()
            text.read_cell(None, hostile + " import")
            if time.monotonic() - began > 5:
                raise Failure("a hostile cell took too long: %r" % hostile[:20])
    finally:
        text.declare = real


def accelerators(world):
    sys.path.insert(0, SOURCES)
    import varve_recorder_life as life
    root = os.path.join(world.work, "root")

    class Recorder:
        is_first, main, lines = True, "script", []

        def write(self, text):
            self.lines.append(json.loads(text))

        def at(self):
            return 0

    def look(recorder=Recorder()):
        recorder.lines.clear()
        life.look_at_gpu(recorder, life.LIFE.next_gpu_look + 1)
        return list(recorder.lines)

    def put(path, content):
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        with open(root + path, "w") as file:
            file.write(content)
    life.ROOT = root
    try:
        life.LIFE.gpu = None
        os.mkdir(root)
        expect(look(), [{"t": "gpu", "present": False, "models": [], "used": False, "at": 0}], "no accelerator")
        life.LIFE.gpu = None
        put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 18:56:32 UTC 2023\nGCC version: 12.2.0\n")
        put("/proc/driver/nvidia/gpus/0000:00:01.0/information", "Model: \t\t NVIDIA H200\nIRQ: 1\nDevice Minor: \t 0\n")
        put("/proc/driver/nvidia/gpus/0000:00:02.0/information", "Model: \t\t Tesla \"T4\"\\\nDevice Minor: \t 1\n")
        put("/proc/self/maps", "7f00-7f01 r-xp 00000000 00:00 0 /usr/lib/libcudart.so.12\n")
        expect(look(), [{"t": "gpu", "present": True, "models": ["NVIDIA H200", "Tesla T4"], "driver": "535.129.03", "used": False, "at": 0}], "two, of whom is not known")
        expect(look(), [], "nothing new: a framework's own libraries are no use of the device")
        put("/proc/self/maps", "7f00-7f01 rw-s 00000000 00:06 1 /dev/nvidiactl\n7f01-7f02 r-xp 00000000 00:00 0 /usr/lib/x86_64-linux-gnu/libcuda.so.535.129.03\n")
        expect([r["used"] for r in look()], [True], "used")
        expect(look(), [], "once")
        life.LIFE.gpu = None
        put("/dev/nvidia1", "")
        expect(look()[0]["models"], ["Tesla T4"], "only the device that this container has")
    finally:
        life.ROOT = ""


def users_as_salted_hashes(world):
    world.distribution("lib", "1.0", {"lib.py": ""})

    def user(**environment):
        world.run("import lib\n", keep=True, **environment)
        return [records[0].get("user") for records in world.spooled()][-1]
    world.clean()
    first = user(VARVE_USAGE_USER="ada")
    month = time.strftime("%Y-%m", time.gmtime())
    salt_path = os.path.join(world.spool, "salt-" + month)
    salt = open(salt_path, "rb").read()
    expect((len(salt), oct(os.stat(salt_path).st_mode & 0o777)), (32, "0o600"), "salt")
    expect([name for name in os.listdir(world.spool) if name.startswith(".")], [], "left over")

    def hashed(name, key=salt):
        return hmac.new(key, name.encode(), hashlib.sha256).hexdigest()[:32]
    expect(first, hashed("ada"), "user")
    clear = {"VARVE_USAGE_USER": None, "JUPYTERHUB_USER": None, "NB_USER": None, "USER": None}
    expect(user(**dict(clear, JUPYTERHUB_USER="hub", NB_USER="nb", USER="x")), hashed("hub"), "the hub's user")
    expect(user(**dict(clear, NB_USER="nb", USER="x")), hashed("nb"), "the notebook's user")
    expect(user(**dict(clear, USER="x")), hashed("x"), "the system's user")
    expect(user(**clear), hashed(str(os.getuid())), "the number")
    expect(user(VARVE_USAGE_USER="ada", VARVE_USAGE_SALT="fleet" * 20), hashed("ada", b"fleet" * 20), "the fleet's salt, longer than a block")
    expect(user(VARVE_USAGE_USER="ada", VARVE_USAGE_USER_HASH="0123456789abcdef" * 2), "0123456789abcdef" * 2, "given from outside")
    expect(user(VARVE_USAGE_USER="ada", VARVE_USAGE_USER_HASH=""), None, "unknown on purpose")
    target = os.path.join(world.spool, "of-a-neighbour")
    os.rename(salt_path, target)
    puts = [os.mkfifo, lambda path: os.symlink(target, path)]
    if os.geteuid() == 0:
        puts.append(lambda path: (shutil.copy(target, path), os.chown(path, 12345, 12345)))
    for put in puts:
        put(salt_path)
        expect(user(VARVE_USAGE_USER="ada"), None, "a pipe, a link, or somebody else's file is no salt")
        os.unlink(salt_path)
    os.unlink(target)
    world.clean()
    processes = [world.start(["-c", "import lib"], VARVE_USAGE_USER="ada") for _ in range(8)]
    for process in processes:
        process.communicate()
    expect(len({records[0]["user"] for records in world.spooled()}), 1, "hashes of one user by eight processes that began together")


def shown_by_the_program(world):
    varve = os.environ.get("VARVE")
    if not varve:
        return print("no $VARVE: the command's case is skipped")
    other = World(sys.executable)
    try:
        for name in os.listdir(other.site):
            if name.startswith("varve_recorder"):
                os.unlink(os.path.join(other.site, name))
        other.distribution("lib", "1.0", {"lib.py": ""})
        other.write("sitecustomize.py", "print('customized')\n")
        script = other.write("script.py", "import lib, sys\nprint('to', 'the user', sys.argv[1:])\n")

        def show(*words, **environment):
            return subprocess.run([varve] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, check=True,
                                  env=other.environment(PYTHONPATH=other.work, **environment))
        done = show("usage", "recorder", "show", "--as-user", "ada", "--", other.python, script, "[1,2]", "--json")
        records = [json.loads(line) for line in done.stdout.splitlines()]
        expect([r["t"] for r in records], ["start", "gpu", "import", "beat", "end"], "records")
        expect("customized\nto the user ['[1,2]', '--json']\n" in done.stderr, True, "the command's own output: " + done.stderr)
        expect(os.listdir(other.spool), [], "left in the spool of the environment")
        document = json.loads(show("usage", "recorder", "show", "--json", "--", other.python, script).stdout)
        expect([r.get("m") for r in document["files"][0]["records"] if r["t"] == "import"], ["lib"], "imports")
        expect(show("usage", "recorder", "show", "--", other.python, script, DO_NOT_TRACK="1").stdout, "", "when switched off")
        show("usage", "recorder", "install", os.path.dirname(os.path.dirname(other.python)))
        expect(other.run("import lib\n").modules("direct"), {"lib"}, "after install")
        show("usage", "recorder", "uninstall", os.path.dirname(os.path.dirname(other.python)))
        expect(other.run("import lib\n").files, [], "after uninstall")
    finally:
        other.close()


CASES = [the_sessions_own_copies_with_name_and_version, folders_that_pip_was_told_to_install_into, the_users_own_site_folder, installs_at_run_time_by_pip,
         versions_are_ordered_as_packaging_orders_them, cells_of_an_ipython_process, a_real_kernel, cells_read_as_text, accelerators, users_as_salted_hashes,
         shown_by_the_program]

if __name__ == "__main__":
    sys.exit(main(CASES, sys.argv[1:]))
