#!/usr/bin/python3
"""ELF facts against readelf (binutils): needed libraries, names, loader paths and program interpreters of every ELF file of this machine, and of wheels whose
libraries auditwheel has rewritten; device code against the names of sections and the bytes themselves.

    test_elf_facts.py [--most-bytes N] [--without-wheels] [FOLDER...]
"""
import argparse, json, mmap, os, re, subprocess, sys, tempfile, zipfile
from pathlib import Path

from elf_files import elf_files
from program import need_tools, skip

DEVICE_SECTIONS = {".nv_fatbin", "__nv_relfatbin", ".nvFatBinSegment"}
FATBIN_HEADER = bytes.fromhex("50ed55ba01001000")
# The first and the last are rewritten by patchelf (names at the end), the second holds device code.
WHEELS = ["numpy==2.2.6", "nvidia-nvjpeg-cu12==12.4.0.76", "scikit-learn==1.6.1"]


def by_readelf(path):
    """What readelf says, in the words of the facts; None if readelf finds the file broken."""
    done = subprocess.run(["readelf", "-W", "-h", "-l", "-d", "-S", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"})
    text = done.stdout.decode(errors="replace")
    if done.returncode or "Error" in done.stderr.decode(errors="replace"):
        return None

    def last(pattern):
        found = re.findall(pattern, text)
        return found[-1] if found else ""

    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        has_container = content.find(FATBIN_HEADER) >= 0
    sections = set(re.findall(r"^  \[ *\d+\] (\S+)", text, re.M))
    return {
        "is_64": "ELF64" in last(r"Class: +(\S+)"),
        "interpreter": last(r"\[Requesting program interpreter: (.*)\]"),
        "soname": last(r"\(SONAME\) +Library soname: \[(.*)\]"),
        "rpath": last(r"\(RPATH\) +Library rpath: \[(.*)\]"),
        "runpath": last(r"\(RUNPATH\) +Library runpath: \[(.*)\]"),
        "needed": re.findall(r"\(NEEDED\) +Shared library: \[(.*)\]", text),
        "device_code": has_container or bool(sections & DEVICE_SECTIONS),
    }


def compare(probe, paths):
    done = subprocess.run([probe], input="\n".join(paths), stdout=subprocess.PIPE, text=True, check=True)
    differences, broken, devices = [], [], 0
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths), f"{len(lines)} answers for {len(paths)} files"
    for path, line in zip(paths, lines):
        ours = json.loads(line)
        theirs = by_readelf(path)
        if theirs is None:
            broken.append(f"{path}: readelf cannot read it, we say: {ours.get('broken')}")
            continue
        devices += theirs["device_code"]
        for name, value in theirs.items():
            if ours.get(name) != value:
                differences.append(f"{path}: {name} {ours.get(name)!r}, readelf: {value!r} ({ours.get('broken')})")
        if ours.get("broken"):
            differences.append(f"{path}: broken for us only: {ours['broken']}")
    return differences, broken, devices


def unpack_wheels(folder):
    done = subprocess.run(["/usr/bin/python3", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--python-version", "3.11", "--platform",
                           "manylinux_2_28_x86_64", "--platform", "manylinux2014_x86_64", "-d", folder, *WHEELS], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        print(f"without wheels: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'pip failed'}")
        return False
    for wheel in Path(folder).glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(Path(folder) / wheel.stem)
    return True


def link_odd_ones(folder):
    """Files as no package of this machine has them: RPATH instead of RUNPATH, names behind 4 MiB of others, a static program, an object, stripped headers."""
    source = Path(folder) / "odd.c"
    source.write_text("int odd(void){return 1;}\n")
    symbols = Path(folder) / "many.c"
    symbols.write_text("".join(f"int a_function_with_a_name_that_fills_the_string_table_{'x' * 160}_{i}(void){{return {i};}}\n" for i in range(24_000)))
    main = Path(folder) / "main.c"
    main.write_text("int main(void){return 0;}\n")
    for name, arguments in {
        "librpath.so": ["-shared", "-fPIC", source, "-Wl,--disable-new-dtags,-rpath,/opt/odd/lib:$ORIGIN", "-Wl,-soname,libodd.so.3"],
        "librunpath.so": ["-shared", "-fPIC", source, "-Wl,--enable-new-dtags,-rpath,$ORIGIN/../x"],
        "liblarge.so": ["-shared", "-fPIC", "-O0", symbols, "-Wl,-soname,liblarge.so.1", "-Wl,--no-as-needed", "-lm", "-Wl,--enable-new-dtags,-rpath,$ORIGIN"],
        "static": ["-static", main],
        "static-pie": ["-static-pie", main],
        "object.o": ["-c", source],
        "program": [main, "-Wl,--no-as-needed", "-lm"],
    }.items():
        subprocess.run(["gcc", *map(str, arguments), "-o", str(Path(folder) / name)], check=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="*")
    parser.add_argument("--most-bytes", type=int, default=1_500_000_000)
    parser.add_argument("--without-wheels", action="store_true")
    options = parser.parse_args()
    need_tools("readelf", "gcc")
    probe = os.environ["PROBE"]
    with tempfile.TemporaryDirectory() as work:
        odd, wheels = os.path.join(work, "odd"), os.path.join(work, "wheels")
        os.mkdir(odd)
        os.mkdir(wheels)
        link_odd_ones(odd)
        with_wheels = not options.without_wheels and unpack_wheels(wheels)
        groups = [("made here", list(elf_files([odd], any_name=True)))]
        if with_wheels:
            groups.append(("wheels", list(elf_files([wheels], any_name=True))))
        groups.append(("this machine", list(elf_files(options.folders or ["/usr"], options.most_bytes))))
        failed = False
        for title, paths in groups:
            differences, broken, devices = compare(probe, paths)
            print(f"{title}: {len(paths)} ELF files, {devices} with device code, {len(differences)} differences, {len(broken)} that readelf cannot read")
            print("\n".join(f"  {line}" for line in (differences + broken)[:40]))
            failed |= bool(differences) or not paths
            if title == "wheels":
                failed |= devices == 0
        sys.exit(1 if failed else 0)


main()
