#!/usr/bin/python3
"""What a loader is about to read is fetched before it asks: after the first bytes of a module, all that readelf says a loader reads of it and of what it needs has been asked
of the registry, and little else; after two modules of a Python package its others have. The layer is not compressed, so that what is asked of it are bytes of its files."""
import random, re, subprocess
from pathlib import Path

from images import Asked, layouts, Tar
from machine import expect, wait_for
from program import modes, need_fuse, need_root, need_tools, Varve, work_folder

NOISE = 6_000_000  # bytes in each library and in front of it that no loader reads
READ_AT_LOAD = {".gnu.hash", ".dynsym", ".dynstr", ".gnu.version", ".gnu.version_r", ".rela.dyn", ".rela.plt", ".init_array", ".data.rel.ro", ".dynamic", ".got", ".data"}
# What the loader has by its own search, by the search path of who needs it, and by nothing but the name.
LIBRARIES = {"opt/app/module.so": ["near", "deep"], "opt/app/libs/libnear.so": ["far"], "usr/lib/libdeep.so": [], "srv/elsewhere/libfar.so": []}
BYSTANDER = "opt/app/other.so"
MODULES = [f"usr/lib/python3/dist-packages/pack/{name}.py" for name in ("__init__", "first", "sub/__init__", "sub/second", "third")]
OTHER_MODULES = ["usr/lib/python3/dist-packages/pack/tests/test_first.py", "usr/lib/python3/dist-packages/pack/first.txt", "usr/lib/python3/dist-packages/single.py"]


def make_library(work, path, needed):
    """With relocations, data that is relocated, names of its own, and constants in between that nobody reads."""
    name = re.sub(r"^lib", "", Path(path).stem)
    source, out = work / f"{name}.s", work / Path(path).name
    (work / f"{name}.noise").write_bytes(random.Random(name).randbytes(NOISE))
    lines = [".text", f".globl {name}_f", f".type {name}_f, @function", f"{name}_f:", "ret", ".section .rodata", ".globl %s_noise" % name, f"{name}_noise:", f'.incbin "{work / name}.noise"',
             '.section .data.rel.ro, "aw"', f".globl {name}_table", f"{name}_table:"]
    lines += [f".quad {name}_f, {name}_noise"] * 2000 + [f".quad {other}_f" for other in needed]
    lines += [".data", f"{name}_data:", f".quad {name}_table"] + [".byte 1"] * 5000 + ['.section .note.GNU-stack, ""']
    source.write_text("\n".join(lines) + "\n")
    libraries = [word for other in needed for word in ("-L", str(work), f"-l{other}")]
    subprocess.run(["cc", "-shared", "-nostdlib", "-o", out, source, f"-Wl,-soname,{out.name},--hash-style=gnu,-z,now", "-Wl,-rpath,$ORIGIN/libs", "-Wl,--no-as-needed", *libraries,
                    "-Wl,--unresolved-symbols=ignore-all"], check=True, timeout=120)
    return out.read_bytes()


def parts_of(library):
    """(name, offset, length) of the sections that a loader reads."""
    text = subprocess.run(["readelf", "-SW", library], check=True, stdout=subprocess.PIPE, text=True, env={"LC_ALL": "C"}).stdout
    found = re.findall(r"^ +\[ *\d+\] (\S+) +\S+ +[0-9a-f]+ ([0-9a-f]+) ([0-9a-f]+)", text, re.M)
    return [(name, int(offset, 16), int(size, 16)) for name, offset, size in found if name in READ_AT_LOAD]


def begin_to_load(path):
    with open(path, "rb", buffering=0) as file:
        expect(len(file.read(832)) == 832, "what ld.so reads first")


def main():
    need_root(), need_fuse(), need_tools("cc", "readelf")
    with work_folder() as work, Varve(work / "learner") as learner:
        learner.work.mkdir()
        tar, places, noise = Tar(), {}, random.Random(1)
        made = {}
        for path in reversed([*LIBRARIES, BYSTANDER]):
            made[path] = make_library(work, path, LIBRARIES.get(path, []))
        for path, content in made.items():
            tar.file(f"noise/{Path(path).name}", noise.randbytes(NOISE)).file(path, content, mode=0o755)
        for path in [*MODULES, *OTHER_MODULES]:
            made[path] = f"# {path}\n".encode() * 1000
            tar.file(f"noise/{path}", noise.randbytes(NOISE // 10)).file(path, made[path])
        content = tar.bytes()
        for path, library in made.items():
            places[path] = content.index(library)
        image = layouts.write_image(work / "image", [(content, content, layouts.TAR, None)], tag="latest")
        learner.index(image)
        for mode in modes():
            with Varve(work / mode) as varve:
                varve.work.mkdir()
                for options, is_ahead in ((["--no-prefetch"], False), ([], True)):
                    asked = Asked(work / "image")
                    with varve.mounted(asked.reference, mode, *options) as folder:
                        before = asked.bytes()
                        begin_to_load(Path(folder) / "opt/app/module.so")
                        if is_ahead:
                            for path in LIBRARIES:
                                for name, offset, length in parts_of(work / Path(path).name):
                                    begin = places[path] + offset
                                    wait_for(f"{mode}: {name} of {path} is asked for", lambda begin=begin, end=begin + length: asked.has(begin, end))
                        else:
                            expect(not asked.has(places["srv/elsewhere/libfar.so"], places["srv/elsewhere/libfar.so"] + 832), f"{mode}: --no-prefetch fetches nothing ahead")
                        expect(not asked.has(places[BYSTANDER], places[BYSTANDER] + 832), f"{mode}: a library that nobody loads")
                        for path in (MODULES[0], MODULES[3]):
                            with open(Path(folder) / path, "rb", buffering=0) as file:
                                expect(file.read(10) == made[path][:10], "what Python reads")
                        if is_ahead:
                            for path in MODULES:
                                wait_for(f"{mode}: {path} is asked for", lambda begin=places[path], end=places[path] + len(made[path]): asked.has(begin, end))
                        else:
                            expect(not asked.has(places[MODULES[4]], places[MODULES[4]] + 512), f"{mode}: --no-prefetch fetches no modules ahead")
                        for path in OTHER_MODULES:
                            expect(not asked.has(places[path], places[path] + 512), f"{mode}: {path} is of no import")
                        spent = asked.bytes() - before
                        expect(spent < len(LIBRARIES) * NOISE / 2, f"{mode} {options}: {spent} bytes fetched")
                        for path in LIBRARIES:
                            expect((Path(folder) / path).read_bytes() == made[path], f"{mode}: {path} is right")
                    asked.server.shutdown()
                    varve.run("daemon", "--stop", "--force")
                    varve.run("images", "rm", "--force", asked.reference, check=True)


if __name__ == "__main__":
    main()
