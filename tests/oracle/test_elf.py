"""Which library a file would get, against the loader itself: `ld-linux --list` of this machine, over its own programs and libraries, over wheels that bring libraries along, and over a folder
of hard cases made with the compiler. `--all` takes every file of this machine instead of a sample."""
import json, os, platform, shutil, subprocess, sys, tempfile, zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import program  # noqa: E402
from elf_files import elf_files  # noqa: E402

PROBE = os.environ.get("PROBE") or str(Path(__file__).resolve().parents[2] / "build/release/tests/oracle/elf_probe")
LOADER = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}.get(platform.machine())
failures = 0


def ours(subjects, *folders):
    """`subjects`: (LD_LIBRARY_PATH, path). One pass over the machine's libraries answers them all."""
    tops = [name for name in ("usr", "lib", "lib64", "lib32", "bin", "sbin", "etc") if os.path.lexists("/" + name)]
    tops += [str(folder).lstrip("/") for folder in folders]
    done = subprocess.run([PROBE, "ldd", "/", "-", *tops], input="".join(f"{where}\t{path}\n" for where, path in subjects), stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def listed(path, library_path=""):
    """{needed: real path or None} as the loader prints it; None if it cannot load the file at all."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LD_")}
    if library_path:
        environment["LD_LIBRARY_PATH"] = library_path
    done = subprocess.run([LOADER, "--list", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environment)
    if done.returncode and not done.stdout:
        return None
    found = {}
    for line in done.stdout.splitlines():
        name, arrow, rest = line.strip().partition(" => ")
        if arrow:
            found[name] = None if rest.startswith("not found") else os.path.realpath(rest.rsplit(" (", 1)[0])
        elif name.startswith("/"):
            found[os.path.basename(name.split(" (")[0])] = os.path.realpath(name.split(" (")[0])
    return found


def compare(what, subjects, answers):
    global failures
    compared = needs = 0
    for where, path in subjects:
        expected = listed(path, where)
        if expected is None:
            continue
        # A needed name with "/" is printed by its last part; the loader itself is printed where something needs it, and for programs always.
        answer = {os.path.basename(name): value for name, value in answers[f"{where}\t{path}"].items()}
        for name in (os.path.basename(LOADER), "statically linked"):
            expected.pop(name, None)
            answer.pop(name, None)
        compared += 1
        needs += len(expected)
        if answer != expected:
            failures += 1
            if failures <= 20:
                for name in sorted(set(answer) | set(expected)):
                    if answer.get(name, "absent") != expected.get(name, "absent"):
                        print(f"{what}: LD_LIBRARY_PATH={where} {path} needs {name}: ours {answer.get(name, 'absent')}, ld.so {expected.get(name, 'absent')}")
    print(f"{what}: {compared} of {len(subjects)} files can be listed, {needs} needs compared", flush=True)


def loadable(*folders, any_name=False):
    return [path for path in elf_files(folders, any_name=any_name) if Path(path).suffix not in (".o", ".ko", ".debug")]


def of_machine(everything):
    paths = loadable("/usr/bin", "/usr/lib", "/usr/sbin", "/usr/libexec")
    return [("", path) for path in (paths if everything else paths[::max(1, len(paths) // 300)])]


SOURCE = "int %s(void) { return 0; }\n"


class Cases:
    """Libraries in a folder of this machine: the probe sees the same absolute paths, below a root that is the machine's."""

    def __init__(self, work):
        self.work = Path(work).resolve()
        (self.work / "x.c").write_text(SOURCE % "x")
        (self.work / "main.c").write_text("int main(void) { return 0; }\n")

    def library(self, path, *options, soname=None):
        target = self.work / path
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["gcc", "-shared", "-fPIC", "-nostdlib", "-o", target, self.work / "x.c", f"-Wl,-soname,{soname or target.name}", "-Wl,--no-as-needed", *map(str, options)], check=True)
        return str(target)

    def needing(self, path, needed, *options):
        """A library that needs others by bare name: linked against empty ones of that name."""
        stubs = self.work / "stubs-for-the-linker"
        links = []
        for name in needed:
            links.append(self.library(f"{stubs.name}/{name}"))
        return self.library(path, *links, *options)


def make_cases(work):
    case = Cases(work)
    rpath, runpath = "-Wl,--disable-new-dtags,-rpath,", "-Wl,--enable-new-dtags,-rpath,"
    root = case.work
    for folder in ("env", "own", "other", "wheel.libs", "hw"):
        case.library(f"{folder}/libone.so.1")
    case.library("own/libtwo.so", soname="libother-soname.so.7")
    subjects = [
        case.needing("a/runpath.so", ["libone.so.1"], f"{runpath}$ORIGIN/../own:$ORIGIN/../other"),
        case.needing("a/rpath.so", ["libone.so.1"], f"{rpath}$ORIGIN/../own"),
        case.needing("a/nothing.so", ["libone.so.1", "libgone.so.3"]),
        case.needing("a/absolute.so", ["libone.so.1"], f"{runpath}{root}/other"),
        case.needing("a/lib_token.so", ["libplat.so"], f"{runpath}{root}/p/$LIB:{root}/p/${{PLATFORM}}"),
        case.needing("a/system.so", ["libz.so.1", "libc.so.6", "libm.so.6"], f"{runpath}$ORIGIN"),
    ]
    # RPATHs go down the chain, RUNPATHs do not; a RUNPATH below switches them off.
    case.needing("wheel.libs/libmid.so", ["libone.so.1"])
    case.needing("wheel.libs/libmid-run.so", ["libone.so.1"], f"{runpath}/nowhere")
    subjects += [
        case.needing("wheel/ext.so", ["libmid.so", "libmid-run.so"], f"{rpath}$ORIGIN/../wheel.libs"),
        case.needing("wheel/ext-run.so", ["libmid.so"], f"{runpath}$ORIGIN/../wheel.libs"),
        case.needing("wheel/deep.so", ["libdeep.so"], f"{rpath}$ORIGIN/../wheel.libs:$ORIGIN/../deep"),
    ]
    case.needing("deep/libdeep.so", ["libmid.so"])
    case.library("p/lib/x86_64-linux-gnu/libplat.so")
    # Another class and another machine come first on the path and are passed over; so is what only looks like a library by name and is a folder.
    foreign = root / "foreign"
    foreign.mkdir()
    arm = bytearray((root / "own/libone.so.1").read_bytes())
    arm[18:20] = (183).to_bytes(2, "little") if platform.machine() == "x86_64" else (62).to_bytes(2, "little")
    (foreign / "libone.so.1").write_bytes(arm)
    small = root / "small"
    small.mkdir()
    narrow = bytearray((root / "own/libone.so.1").read_bytes())
    narrow[4] = 1
    (small / "libone.so.1").write_bytes(narrow)
    (root / "folders/libone.so.1").mkdir(parents=True)
    subjects.append(case.needing("a/foreign.so", ["libone.so.1"], f"{runpath}{foreign}:{small}:{root}/folders:{root}/other"))
    # Links: to a file elsewhere, to a folder, dangling, in circles.
    (root / "links").mkdir()
    (root / "links/libone.so.1").symlink_to("../own/libone.so.1")
    (root / "links-dir").symlink_to("other")
    (root / "dangling").mkdir()
    (root / "dangling/libone.so.1").symlink_to("nothing")
    (root / "circle").mkdir()
    (root / "circle/libone.so.1").symlink_to("libone.so.1")
    subjects += [
        case.needing("a/by_link.so", ["libone.so.1"], f"{runpath}$ORIGIN/../links"),
        case.needing("a/by_dir_link.so", ["libone.so.1"], f"{runpath}$ORIGIN/../links-dir"),
        case.needing("a/dangling.so", ["libone.so.1"], f"{runpath}$ORIGIN/../dangling:$ORIGIN/../circle:$ORIGIN/../own"),
    ]
    # What is loaded already is found by its soname too.
    subjects.append(case.needing("a/soname.so", ["libtwo.so", "libother-soname.so.7"], f"{runpath}$ORIGIN/../own"))
    (root / "by_name").mkdir()
    opened = root / "by_name/runpath.so"
    opened.symlink_to("../a/runpath.so")
    program_file = root / "bin/program"
    program_file.parent.mkdir()
    subprocess.run(["gcc", "-o", program_file, root / "main.c", "-Wl,--no-as-needed", root / "stubs-for-the-linker/libmid.so", f"{rpath}$ORIGIN/../wheel.libs", "-Wl,--allow-shlib-undefined"], check=True)
    subjects += [str(opened), str(program_file)]
    shutil.rmtree(root / "stubs-for-the-linker")
    library_paths = ("", f"{root}/env", f"{root}/foreign:{root}/env;{root}/other", f"{root}/env/:/nowhere")
    return [(where, path) for where in library_paths for path in subjects]


WHEELS = ("numpy==2.1.3", "pillow==11.0.0", "pyzmq==26.2.0", "shapely==2.0.6")


def fetch_wheels(work):
    site = Path(work).resolve() / "site-packages"
    fetched = Path(work) / "wheels"
    done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--python-version", "3.11", "--platform", f"manylinux2014_{platform.machine()}",
                           "--platform", f"manylinux_2_28_{platform.machine()}", "--platform", f"manylinux_2_17_{platform.machine()}", "--retries", "1", "--timeout", "15", "-d", fetched, *WHEELS],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        print("skipped: wheels with bundled libraries (no package index):", done.stdout.strip().splitlines()[-1:])
        return []
    for wheel in fetched.iterdir():
        zipfile.ZipFile(wheel).extractall(site)
    return [("", path) for path in loadable(site, any_name=True)]


def main():
    if LOADER is None or not os.path.exists(LOADER):
        program.skip("no glibc loader of a machine known here")
    program.need_tools("gcc")
    with tempfile.TemporaryDirectory(prefix="ve-") as work:
        work = Path(work).resolve()
        (work / "cases").mkdir()
        groups = {"hard cases": make_cases(work / "cases"), "wheels": fetch_wheels(work), "this machine": of_machine("--all" in sys.argv)}
        answers = ours([one for subjects in groups.values() for one in subjects], work)
        for what, subjects in groups.items():
            compare(what, subjects, answers)
    if failures:
        sys.exit(f"{failures} files differ")
    print("ok")


if __name__ == "__main__":
    main()
