"""`varve image optimize --repack` of images that were built anew: the same wheels installed at another time. Their layers are used again, Python takes all their bytecode, and the gates know what changed."""
import json, os, re, subprocess, sys, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "howto"))
import python_image
from program import Varve, modes, need_fuse, need_root, skip, unpack, work_folder
from scan import differences, scan
from tars import Tar

WHEELS = ["attrs==23.2.0", "idna==3.7", "urllib3==2.2.2", "requests==2.32.3", "charset-normalizer==3.3.2", "certifi==2024.7.4", "Pygments==2.18.0", "networkx==3.2.1", "pytz==2024.1"]
MODULES = ["attr", "idna", "urllib3", "requests", "certifi", "pygments.lexers.python", "networkx", "pytz"]
SITE = "usr/lib/python3/dist-packages"
PIP = [python_image.PYTHON, "-m", "pip", "-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "15"]
EPOCH = 1_700_000_000


def fetch(work):
    done = subprocess.run([*PIP, "download", "--no-deps", "--only-binary", ":all:", "--platform", "any", "-d", work / "wheels", *WHEELS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        skip(f"pip cannot fetch wheels from PyPI here: {done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.returncode}")


def installed(work, name):
    """What pip leaves, compiled at build time, with the times of now."""
    site = work / name
    subprocess.run([*PIP, "install", "--no-index", "--no-deps", "--no-compile", "--target", site, *sorted((work / "wheels").iterdir())], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([python_image.PYTHON, "-m", "compileall", "-q", "-s", site, "-p", "/" + SITE, site], check=True)
    return site


def layer(site):
    tar = Tar().dir("usr").dir("usr/lib").dir("usr/lib/python3").dir(SITE, mtime=int(site.stat().st_mtime))
    for path in sorted(site.rglob("*")):
        name, told = f"{SITE}/{path.relative_to(site)}", path.stat()
        if path.is_dir():
            tar.dir(name, mtime=int(told.st_mtime))
        else:
            tar.file(name, path.read_bytes(), mode=told.st_mode & 0o777, mtime=int(told.st_mtime))
    return tar.bytes()


def share_reused(report):
    """Of the bytes that were packed: what is kept of the image itself does not count."""
    packed = [one for one in report["layers"] if not one["taken_over"]]
    return sum(one["compressed_bytes"] for one in packed if one["reused"]) / sum(one["compressed_bytes"] for one in packed)


def stale_bytecode(tree):
    """Imports in the tree, and what of its packages Python compiled although bytecode was there."""
    program = "import importlib\n" + "".join(f"importlib.import_module({name!r})\n" for name in MODULES)
    done = subprocess.run(["/usr/sbin/chroot", tree, "/usr/bin/python3", "-v", "-c", program], env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        return [f"imports fail: {done.stderr[-2000:]}"]
    taken = re.findall(rf"^# \S+ matches /{SITE}/(\S+)", done.stderr, re.M)
    compiled = re.findall(rf"^# code object from /{SITE}/(\S+)", done.stderr, re.M)
    lines = [f"{name}: compiled at its import" for name in compiled]
    if len(taken) < 200:
        lines.append(f"only {len(taken)} modules came from bytecode: the look at it is blind")
    return lines


def contents(tree, site=SITE):
    return {path: one.sha256 for path, one in scan(tree).items() if path.startswith(site.encode()) and not path.endswith(b".pyc")}


def tree_gate(varve, old, new):
    done = varve.run("prune", "check", old, new, "--json", timeout=900)
    gates = {gate["name"]: gate for gate in json.loads(done.stdout)["gates"]}
    return done.returncode, gates


def rebuilt(work, varve, first, second, lines):
    better = f"oci:{work}/better"
    varve.json("image", "optimize", "--repack", first, better + ":v1")
    report = varve.json("image", "optimize", "--repack", second, better + ":v2", "--previous", better + ":v1")
    share = share_reused(report)
    print(f"a rebuild of the same wheels: {share:.2%} reused, {report['new_bytes']} bytes written, {sum(one['files_with_previous_times'] for one in report['layers'])} files with times of before")
    if share < 0.99:
        lines.append(f"only {share:.2%} of a rebuild are reused")
    text = varve.run("image", "optimize", "--repack", second, f"oci:{work}/elsewhere:v2", "--previous", better + ":v1", check=True).stdout.decode()
    if "times of" not in text or "previous version's" not in text or "copied there" not in text:
        lines.append(f"the report says nothing of times or of what was sent: {text[-300:]}")
    varve.index(better + ":v2")
    expected = contents(unpack(second, work / "unpacked-second"))
    for mode in modes():
        with varve.mounted(better + ":v2", mode) as tree:
            lines += [f"{mode}: {line}" for line in stale_bytecode(tree)]
            if contents(tree) != expected:
                lines.append(f"{mode}: the contents are not those of the new image")
    status, gates = tree_gate(varve, second, better + ":v2")
    if status or "are the previous version's" not in gates["tree"]["detail"]:
        lines.append(f"prune check: {status} {[gate for gate in gates.values() if not gate['ok']]} {gates['tree']}")
    return better


def exact(work, varve, second, site, better, lines):
    named = {f"{SITE}/{path.relative_to(site)}".encode() for path in site.rglob("*")}  # others have no entry of their own, and any time
    report = varve.json("image", "optimize", "--repack", second, better + ":exact", "--previous", better + ":v1", "--times", "exact")
    if any(one["reused"] for one in report["layers"]):
        lines.append("--times exact takes layers of another time")
    varve.index(better + ":exact")
    with varve.mounted(better + ":exact", "fuse") as tree:
        expected, found = ({path: one for path, one in scan(root).items() if path in named} for root in (unpack(second, work / "unpacked-exact"), tree))
        lines += [f"exact: {line}" for line in differences(expected, found) + stale_bytecode(tree)]


def clamped(work, varve, first, second, lines):
    made = [varve.json("image", "optimize", "--repack", image, f"oci:{work}/clamped-{number}:t", f"--clamp-mtime={EPOCH}")["image"] for number, image in enumerate((first, second))]
    if made[0] != made[1]:
        lines.append(f"set back to one time, two builds are two images: {made}")
    new = f"oci:{work}/clamped-1:t"
    varve.index(new)
    with varve.mounted(new, "fuse") as tree:
        lines += [f"clamped: {line}" for line in stale_bytecode(tree)]
        late = [path for path, one in scan(tree).items() if path.startswith(SITE.encode()) and one.mtime_ns > EPOCH * 10**9]
        if late:
            lines.append(f"clamped: {late[:3]} are later")
    status, gates = tree_gate(varve, second, new)
    if status or "are set back to" not in gates["tree"]["detail"]:
        lines.append(f"clamped, prune check: {status} {[gate for gate in gates.values() if not gate['ok']]} {gates['tree']}")
    done = varve.run("image", "optimize", "--repack", first, f"oci:{work}/none:t", "--clamp-mtime")
    if done.returncode != 2 or b"SOURCE_DATE_EPOCH" not in done.stderr:
        lines.append(f"--clamp-mtime without a time: {done}")
    varve.environment["SOURCE_DATE_EPOCH"] = str(EPOCH)
    by_variable = varve.json("image", "optimize", "--repack", first, f"oci:{work}/variable:t", "--clamp-mtime")["image"]
    del varve.environment["SOURCE_DATE_EPOCH"]
    if by_variable != made[0]:
        lines.append("SOURCE_DATE_EPOCH and --clamp-mtime=SECONDS give two images")


def only_what_is_equal(work, varve, site, better, lines):
    """A change that a look at sizes and headers does not see: the component is written as it is in the new image."""
    source, code = site / "idna/core.py", next((site / "idna/__pycache__").glob("core.*.pyc"))
    changes = {"another source of the same size": (source, lambda data: data.replace(b"a", b"b", 1)),
               "other code under the same header": (code, lambda data: data[:16] + data[16:].replace(b"idna", b"idnb", 1))}
    for what, (path, change) in changes.items():
        before, times = path.read_bytes(), path.stat()
        path.write_bytes(change(before))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        image = python_image.make(work / f"changed-{path.name}", "t", more=[layer(site)])
        path.write_bytes(before)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        varve.index(image)
        report = varve.json("image", "optimize", "--repack", image, f"oci:{work}/changed:t", "--previous", better + ":v1")
        if "pip:idna" in {component for one in report["layers"] if one["reused"] for component in one["components"]}:
            lines.append(f"{what} is taken for unchanged")
        varve.index(f"oci:{work}/changed:t")
        with varve.mounted(f"oci:{work}/changed:t", "fuse") as tree:
            if (Path(tree) / SITE / path.relative_to(site)).read_bytes() != change(before):
                lines.append(f"{what}: the image has the old one")


def main():
    need_root()
    need_fuse()
    with work_folder() as work, Varve(work) as varve:
        fetch(work)
        lines, sites, images = [], [], []
        for number in range(2):
            sites.append(installed(work, f"site-{number}"))
            images.append(python_image.make(work / f"image-{number}", "t", more=[layer(sites[-1])]))
            varve.index(images[-1])
            end = int(time.time()) + 2
            while time.time() < end:  # the next install has other seconds
                time.sleep(0.1)
        better = rebuilt(work, varve, *images, lines)
        exact(work, varve, images[1], sites[1], better, lines)
        clamped(work, varve, *images, lines)
        only_what_is_equal(work, varve, sites[1], better, lines)
        print("\n".join(lines))
        sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
