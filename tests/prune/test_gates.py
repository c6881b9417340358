#!/usr/bin/python3
"""`varve prune check` on images with seeded faults: each is found by its gate and by name, and a faithful copy passes."""
import shutil
import subprocess
from pathlib import Path

from images import DISTRIBUTIONS, SITE, Images, expect, failed, finding, gates_of, tree
import program, layouts, python_image  # noqa: E402

ALWAYS = ["tree", "metadata", "elf", "imports", "cuda", "pins"]


def faithful_copies(varve, images):
    """The same tree in other layers; what failed before may go on failing."""
    new = images.write("cut", tree(), layers=3)
    varve.index(new)
    status, gates = gates_of(varve, images.old, new)
    expect((status, failed(gates)) == (0, []), gates)
    expect(all(gates[name]["asked"] for name in ALWAYS), gates)
    expect(not gates["replay"]["asked"] and not gates["rebuild"]["asked"], "nothing to replay and nothing to rebuild")
    # "caller" failed before as well: had there been a network, it would have waited for its connection.
    expect("where 2 failed as well" in gates["imports"]["detail"], gates["imports"])
    status, gates = gates_of(varve, images.old, images.old)
    expect(status == 0, gates)
    text = varve.run("prune", "check", images.old, new, check=True).stdout.decode()
    expect([line.split()[1] for line in text.splitlines() if line.split()[0] in ALWAYS] == ["ok"] * len(ALWAYS), text)


def changed_files(varve, images):
    new = images.write("mode", tree(), mode=0o600)
    varve.index(new)
    status, gates = gates_of(varve, images.old, new)
    expect((status, failed(gates)) == (3, ["cuda", "tree"]), (status, failed(gates)))
    expect(finding(gates["tree"], f"{SITE}/plots/__init__.py", "mode 0600 instead of 0644"), gates["tree"]["findings"][:5])
    new = images.write("edit", tree(changes={"plots/__init__.py": "colour = 'grey'\n", "extra.py": "x = 1\n"}))
    varve.index(new)
    status, gates = gates_of(varve, images.old, new)
    expect(failed(gates) == ["tree"], gates)
    expect(finding(gates["tree"], f"{SITE}/plots/__init__.py", "content sha256:") and finding(gates["tree"], f"{SITE}/extra.py", "new"), gates["tree"])


def lost_distributions(varve, images):
    new = images.write("lost", tree(names=[name for name in DISTRIBUTIONS if name != "soup"]))
    varve.index(new)
    status, gates = gates_of(varve, images.old, new)
    expect((status, failed(gates)) == (3, ["imports", "metadata", "tree"]), (status, failed(gates)))
    expect(finding(gates["metadata"], "soup 4.12.3", "no longer installed"), gates["metadata"])
    # Only because web-app asks for the extra.
    expect(finding(gates["metadata"], "lab", "soup", "extra web"), gates["metadata"])
    expect(finding(gates["imports"], "import soup", "ModuleNotFoundError", "before: ok"), gates["imports"])
    expect(finding(gates["imports"], "import lab", "looks for soup"), gates["imports"])
    expect(finding(gates["tree"], f"{SITE}/soup/element.py", "not there"), gates["tree"])


def imports_that_do_worse(varve, images):
    """Faults that leave the records as they are; and a copy of lower version that nobody asked for."""
    faults = {"plots/__init__.py": "raise ValueError('grey')\n",
              "broken/__init__.py": "raise KeyError('new')\n",
              "crash/__init__.py": "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n",
              "slow/__init__.py": "import time\ntime.sleep(600)\n",
              "parts/one/__init__.py": "import sys\nprint('on standard output', flush=True)\nsys.exit(4)\n",
              "taste.py": None, "taste-0.3.dist-info/METADATA": None, "taste-0.3.dist-info/RECORD": None, "taste-0.3.dist-info/INSTALLER": None}
    new = images.write("worse", tree(changes=faults))
    varve.index(new)
    status, gates = gates_of(varve, "--import-limit", "3", images.old, new)
    gate = gates["imports"]
    expect(status == 3 and not gate["ok"], gates)
    for words in (("import plots", "ValueError: grey", "before: ok"), ("import broken", "KeyError", "before: RuntimeError"), ("import crash", "signal 11"),
                  ("import slow", "time limit"), ("import parts.one", "SystemExit: 4"), ("import probes", "looks for taste"), ("import lab", "ValueError"), ("import taste",)):
        expect(finding(gate, *words), (words, gate["findings"]))
    expect(not any("import caller" in text or "import soup:" in text or "import parts.two" in text for text in gate["findings"]), gate["findings"])
    expect(finding(gates["metadata"], "taste 0.3", "no longer installed") and finding(gates["metadata"], "soup", "taste"), gates["metadata"])
    text = varve.run("prune", "check", "--import-limit", "3", images.old, new)
    expect(text.returncode == 3 and b"imports   FAILED" in text.stdout, text)


def libraries(varve, images):
    """A library that the interpreter's own modules need is gone; CUDA is another; the environment is."""
    base = python_image.python_files()
    wanted = next(path for path in base if Path(path).name.startswith("libssl.so") or Path(path).name.startswith("libcrypto.so"))
    cudart = f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12"
    new = images.write("libraries", tree(changes={cudart.removeprefix(SITE + "/"): "of CUDA, stripped\n"}), gone=[wanted], env=["LD_LIBRARY_PATH=/elsewhere"])
    varve.index(new)
    status, gates = gates_of(varve, images.old, new)
    expect((status, failed(gates)) == (3, ["cuda", "elf", "tree"]), (status, failed(gates)))
    expect(finding(gates["elf"], "lib-dynload/_", f"needs {Path(wanted).name}"), gates["elf"])
    expect(cudart in gates["cuda"]["findings"][0] and finding(gates["cuda"], "Env"), gates["cuda"])


def pins(varve, images):
    varve.run("pin", "add", images.old, "--name", "first", "--reason", "test", check=True)
    status, gates = gates_of(varve, images.old, images.old)
    expect(status == 0 and "1 pinned image" in gates["pins"]["detail"], gates["pins"])
    other = images.write("other", tree(changes={"taste.py": "bitter = 2\n"}))
    varve.index(other)
    varve.run("pin", "add", other, "--name", "second", "--reason", "test", check=True)
    manifest = layouts.manifest_of(other)[1]
    blob = layouts.blob_path(other, manifest["layers"][-1]["digest"])
    kept = blob.with_name("kept")
    shutil.move(blob, kept)
    try:
        status, gates = gates_of(varve, images.old, images.old)
        expect((status, failed(gates)) == (3, ["pins"]), (status, gates))
        expect(finding(gates["pins"], "second"), gates["pins"])
    finally:
        shutil.move(kept, blob)


def wrong_words(varve, images):
    done = varve.run("prune", "check", images.old, images.old.rpartition(":")[0] + ":nothing")
    expect(done.returncode == 1 and b"nothing" in done.stderr, done)
    unindexed = images.write("unindexed", tree(changes={"taste.py": "bitter = 3\n"}))
    done = varve.run("prune", "check", images.old, unindexed)
    expect(done.returncode == 1 and b"varve index" in done.stderr, done)


def a_machine_without_sessions(varve, images):
    """A gate that could not run is a failure: here the daemon cannot be reached."""
    blocked = dict(varve.environment)
    state = varve.root / "run"
    varve.stop_daemon()
    kept = state.with_name("run-kept")
    if state.exists():
        state.rename(kept)
    state.write_text("no folder")
    try:
        done = subprocess.run([varve.binary, "prune", "check", images.old, images.old], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=blocked, timeout=120)
        expect(done.returncode == 3 and b"imports   FAILED  could not run" in done.stdout, done)
    finally:
        state.unlink()
        if kept.exists():
            kept.rename(state)


def main():
    program.need_root(), program.need_fuse()
    with program.work_folder() as work, program.Varve(work) as varve:
        images = Images(work / "images")
        images.old = images.write("v1", tree())
        varve.index(images.old)
        for case in (faithful_copies, changed_files, lost_distributions, imports_that_do_worse, libraries, pins, wrong_words, a_machine_without_sessions):
            case(varve, images)
            print(f"{case.__name__}: as it should be", flush=True)
        left = varve.json("session", "ls")["sessions"]
        expect(left == [], f"sessions are left: {left}")


main()
