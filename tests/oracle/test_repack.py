"""`varve image optimize --repack`: other layers, the same tree, for tools that are not ours; the next version reuses layers; nothing half done is ever seen."""
import base64, csv, hashlib, io, json, os, random, shutil, signal, subprocess, sys, time

import horrors
import layouts
from program import Varve, modes, need_fuse, need_root, need_tools, unpack, work_folder
from scan import differences, scan
from tars import Tar
from test_export import registry_on_loopback, run
from test_trees import realistic_layers

SITE = "usr/lib/python3.11/site-packages"


def distribution(tar, name, version, files):
    """A wheel as pip leaves it: its files, and the RECORD that says whose they are."""
    rows, info = io.StringIO(), f"{name}-{version}.dist-info"
    members = {f"{name}/{path}": data for path, data in files.items()} | {f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(), f"{info}/INSTALLER": b"pip\n"}
    for path, data in members.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        csv.writer(rows, lineterminator="\n").writerow([path, f"sha256={digest}", len(data)])
    rows.write(f"{info}/RECORD,,\n")
    tar.dir(f"{SITE}/{name}").dir(f"{SITE}/{info}")
    for path, data in (members | {f"{info}/RECORD": rows.getvalue().encode()}).items():
        tar.file(f"{SITE}/{path}", data)


def notebook_tars(versions, time_of_install=1_650_000_000):
    """A base, a layer of distributions, and one that removes and replaces. `versions`: name -> version."""
    base, packages, changes = Tar(), Tar(), Tar()
    base.dir(".", mode=0o755).dir("usr").dir("usr/lib").dir("usr/bin").dir("etc").dir("var").dir("var/log")
    base.file("usr/lib/libc.so.6", random.Random("libc").randbytes(2_000_000), mode=0o755).file("etc/hostname", b"x\n").file("var/log/build", b"old\n").symlink("lib", "usr/lib")
    packages.dir("usr").dir("usr/lib").dir("usr/lib/python3.11").dir(SITE, mtime=time_of_install)
    for name, version in versions.items():
        noise = random.Random(f"{name} {version}")
        files = {"__init__.py": b"import os\n" * noise.randrange(1, 300), "core.so": noise.randbytes(noise.randrange(2_000_000, 4_000_000)), "data.bin": b"\0" * 300_000 + noise.randbytes(1000)}
        distribution(packages, name, version, files | {f"m{i}.py": b"x = %d\n" % i * noise.randrange(1, 100) for i in range(60)})
    packages.hardlink(f"{SITE}/alpha/linked.so", f"{SITE}/alpha/core.so").hardlink(f"{SITE}/beta/of-alpha", f"{SITE}/alpha/core.so").dir(f"{SITE}/alpha/empty", mode=0o700)
    changes.dir("etc", mtime=1_640_000_000).file("etc/hostname", b"y\n").dir("var").dir("var/log").whiteout("var/log/build").dir("opt", mode=0o2775, gid=50)
    return [base.bytes(), packages.bytes(), changes.bytes()]


VERSIONS = {"alpha": "1.0", "beta": "2.0", "gamma": "3.0", "delta": "4.0"}


def shown(varve, label, image, expected):
    lines = []
    varve.index(image)
    for mode in modes():
        with varve.mounted(image, mode) as tree:
            lines += [f"{label}, {mode}: {line}" for line in differences(expected, scan(tree))]
    return lines


def unpacked(work, label, image):
    return scan(unpack(image, work / f"unpacked-{label}"))


def trees(work, varve):
    """The same tree before and after, as umoci unpacks both and as both are mounted."""
    lines = []
    for label, tars, correct in (("notebook", notebook_tars(VERSIONS), lambda tree: tree), ("realistic", realistic_layers(), lambda tree: tree), ("horrors", horrors.image_tars(), horrors.corrected)):
        image = layouts.gzip_image(work / label, tars)
        expected = correct(unpacked(work, label, image))
        if label == "realistic":
            expected[b"."].mtime_ns = 0  # a root without an entry has the time of unpacking
        varve.index(image)
        for what, options in (("own choice", ()), ("none", ("--take-over", "none")), ("gzip", ("--take-over", "none", "--format", "gzip"))):
            name = f"{label}-{what.replace(' ', '-')}"
            target = f"oci:{work}/{name}:new"
            report = varve.json("image", "optimize", "--repack", image, target, *options)
            run("skopeo", "copy", "--insecure-policy", target, f"oci:{work}/{name}-copy:t")  # which checks manifest and blobs
            lines += shown(varve, name, target, expected)
            if what == "gzip":
                again = correct(unpacked(work, name, target))
                if label == "realistic":
                    again[b"."].mtime_ns = 0
                lines += [f"{name}, umoci: {line}" for line in differences(expected, again)]
            shutil.rmtree(work / f"{name}-copy")
        if label == "notebook" and [layer["taken_over"] for layer in report["layers"]].count(True):
            lines.append("--take-over none takes layers over")
    return lines


def releases(work, varve):
    """An upgrade of one distribution, whose install changes the time of site-packages: everything else is reused. The first image stays as it was."""
    lines, better = [], f"oci:{work}/better"
    first = layouts.gzip_image(work / "v1", notebook_tars(VERSIONS))
    second = layouts.gzip_image(work / "v2", notebook_tars(VERSIONS | {"gamma": "3.1"}, 1_660_000_000))
    for image in (first, second):
        varve.index(image)
    one = varve.json("image", "optimize", "--repack", first, better + ":v1")
    two = varve.json("image", "optimize", "--repack", second, better + ":v2", "--previous", better + ":v1")
    anew = {component for layer in two["layers"] if not layer["reused"] and not layer["taken_over"] for component in layer["components"]}
    known = {component for layer in two["layers"] if layer["reused"] for component in layer["components"]}
    if "pip:gamma" not in anew or "pip:gamma" in known or one["layers"][0] | {"seconds": 0} != two["layers"][0] | {"seconds": 0}:
        lines.append(f"the next version: {anew} anew, {known} reused")
    lines += shown(varve, "v1", better + ":v1", unpacked(work, "v1", first)) + shown(varve, "v2", better + ":v2", unpacked(work, "v2", second))
    alone = varve.json("image", "optimize", "--repack", second, f"oci:{work}/elsewhere:v2", "--previous", better + ":v1", "--jobs", "1")
    if alone["image"] != two["image"]:
        lines.append("the same image, elsewhere and with one job, is another one")
    config = [json.loads(run("skopeo", "inspect", "--config", "--raw", image)) for image in (second, better + ":v2")]
    for entry in config:
        del entry["rootfs"]["diff_ids"]
        entry.pop("history", None)
    if config[0] != config[1]:
        lines.append(f"the config changed: {config}")
    done = varve.run("image", "optimize", "--repack", second, f"oci:{work}/n:t", "--previous", first)
    if done.returncode != 1 or b"--previous takes" not in done.stderr:
        lines.append(f"--previous of an ordinary image: {done}")
    return lines


def seeded(work, varve):
    """That the comparison sees what it should: one byte, one mode, one time and one link changed after writing."""
    image = layouts.gzip_image(work / "seed", notebook_tars(VERSIONS))
    folder = unpack(image, work / "seeded")
    expected, site, lines = scan(folder), f"{folder}/{SITE}", []
    with open(f"{site}/beta/core.so", "r+b") as file:
        file.write(b"?")
    os.chmod(f"{site}/gamma/core.so", 0o600)
    os.utime(f"{site}/delta", (1, 1))
    os.unlink(f"{site}/alpha/linked.so")
    shutil.copy2(f"{site}/alpha/core.so", f"{site}/alpha/linked.so")
    found = "\n".join(differences(expected, scan(folder)))
    for path, what in (("beta/core.so", "sha256"), ("gamma/core.so", "mode"), ("delta'", "mtime_ns"), ("alpha/linked.so", "links")):
        if not any(path in line and what in line for line in found.splitlines()):
            lines.append(f"a changed {what} of {path} is not seen")
    return lines


def manifests_of(folder):
    index = folder / "index.json"
    return json.loads(index.read_text())["manifests"] if index.exists() else []


def stopped(work, varve):
    """Killed at any moment: nothing to be seen, the old image whole, and the rerun gives the same image without writing what was finished."""
    lines, image = [], layouts.gzip_image(work / "kill", notebook_tars({f"dist{i}": "1.0" for i in range(12)} | VERSIONS))
    varve.index(image)
    words = ("image", "optimize", "--repack", image, f"oci:{work}/killed:t", "--level", "12", "--max-layer-size", "9MB", "--jobs", "1")
    whole = varve.json(*words[:4], f"oci:{work}/whole:t", *words[5:])
    before = {path: path.read_bytes() for path in (work / "kill").rglob("*") if path.is_file()}
    kills, seconds = 0, 0.3
    while kills < 4 and seconds < 30:
        process = subprocess.Popen([varve.binary, *words], env=varve.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(seconds)
            break  # it was faster
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            # The last of its doings is to put the manifest: killed behind that, the image is there, and whole.
            seen = [m["digest"] for m in manifests_of(work / "killed") if "artifactType" not in m]
            if seen not in ([], [whole["image"]]) or list((work / "killed").rglob("*tmp*")):
                lines.append(f"killed after {seconds} s: {manifests_of(work / 'killed')}, {list((work / 'killed').rglob('*tmp*'))}")
            if seen:
                break
        seconds *= 1.5
    report = varve.json(*words)
    if report["image"] != whole["image"] or kills == 0:
        lines.append(f"after {kills} kills: {report['image']} instead of {whole['image']}")
    if {path: path.read_bytes() for path in before} != before:
        lines.append("the old image changed")
    return lines


def full_disk(work, varve):
    lines, image = [], layouts.gzip_image(work / "good", notebook_tars(VERSIONS))
    varve.index(image)
    whole = varve.json("image", "optimize", "--repack", image, f"oci:{work}/roomy:t")
    small = work / "small"
    small.mkdir()
    run("mount", "-t", "tmpfs", "-o", "size=7m", "tmpfs", small)
    try:
        words = ("image", "optimize", "--repack", image, f"oci:{small}/new:t")
        done = varve.run(*words)
        if done.returncode not in (1, 75) or b"space" not in done.stderr or manifests_of(small / "new") or list((small / "new").rglob("*tmp*")):
            lines.append(f"a full disk: {done} {list(small.rglob('*'))}")
        run("mount", "-o", "remount,size=64m", small)
        report = varve.json(*words)
        if report["image"] != whole["image"]:
            lines.append("a full disk: the rerun gives another image")
    finally:
        run("umount", small)
    return lines


def refusals(work, varve):
    # No other case has these layers, or its index would do.
    lines, image = [], layouts.gzip_image(work / "plain", notebook_tars(VERSIONS | {"alpha": "9.9"}))
    done = varve.run("image", "optimize", "--repack", image, f"oci:{work}/r:t")
    if done.returncode != 1 or b"varve index" not in done.stderr:
        lines.append(f"without an index: {done}")
    varve.index(image)
    for words, status in ((("--take-over", "0,x"), 2), (("--take-over", "7"), 2), (("--keep-layers", "1"), 2), (("--max-layer-size", "1MB"), 2), (("--max-layers", "1"), 2)):
        done = varve.run("image", "optimize", "--repack", image, f"oci:{work}/r:t", *words)
        if done.returncode != status or manifests_of(work / "r"):
            lines.append(f"{words}: {done}")
    done = varve.run("image", "optimize", image, f"oci:{work}/r:t", "--take-over", "0")
    if done.returncode != 2:
        lines.append(f"--take-over without --repack: {done}")
    # A broken layer is named.
    digest = layouts.manifest_of(image)[1]["layers"][1]["digest"]
    blob = layouts.blob_path(image, digest)
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 1
    blob.write_bytes(data)
    done = varve.run("image", "optimize", "--repack", image, f"oci:{work}/r:t")
    if done.returncode != 1 or digest.encode() not in done.stderr or manifests_of(work / "r"):
        lines.append(f"a broken layer: {done}")
    return lines


def registry(work, varve):
    """From a registry into the same one: layers taken over are mounted, not sent, and the second version finds the first one's layers."""
    if not shutil.which("docker-registry"):
        print("skipped: a registry (no docker-registry)")
        return []
    lines = []
    with registry_on_loopback(work) as host:
        for tag, versions in (("v1", VERSIONS), ("v2", VERSIONS | {"delta": "4.1"})):
            image = layouts.gzip_image(work / tag, notebook_tars(versions))
            varve.json("image", "export", image, f"{host}/team/app:{tag}")
            varve.index(f"{host}/team/app:{tag}")
            previous = ("--previous", f"{host}/team/better:v1") if tag == "v2" else ()
            report = varve.json("image", "optimize", "--repack", f"{host}/team/app:{tag}", f"{host}/team/better:{tag}", *previous)
            raw = run("skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{host}/team/better:{tag}")
            if "sha256:" + hashlib.sha256(raw).hexdigest() != report["image"]:
                lines.append(f"{tag}: the registry has another manifest")
            lines += shown(varve, tag, f"{host}/team/better:{tag}", unpacked(work, tag, image))
        if not any(layer["reused"] for layer in report["layers"]) and len(report["layers"]) > 3:
            lines.append(f"v2 reuses nothing: {report}")
    return lines


def plain_user(work, varve):
    """Owners, devices and capabilities are only told in a tar: nobody needs to be root to write one."""
    if not shutil.which("setpriv"):
        print("skipped: a plain user (no setpriv)")
        return []
    image = layouts.gzip_image(work / "user", horrors.image_tars())
    lines, home = [], work / "home"
    home.mkdir()
    os.chown(home, 65534, 65534)
    varve.index(image)
    root_made = varve.json("image", "optimize", "--repack", image, f"oci:{work}/by-root:t", "--take-over", "none")["image"]
    environment = {**os.environ, "VARVE_ROOT": str(home / "state"), "HOME": str(home)}
    words = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", varve.binary]
    done = subprocess.run([*words, "image", "optimize", "--repack", image, f"oci:{home}/new:t", "--take-over", "none", "--json"], env=environment, capture_output=True)
    if done.returncode or json.loads(done.stdout)["image"] != root_made:
        lines.append(f"a plain user: {done}")
    return lines


def main():
    need_root()
    need_tools("umoci", "skopeo", "gzip", "zstd")
    need_fuse()
    with work_folder() as work, Varve(work) as varve:
        lines = []
        for case in (trees, releases, seeded, stopped, full_disk, refusals, registry, plain_user):
            folder = work / case.__name__
            folder.mkdir()
            started = time.monotonic()
            found = case(folder, varve)
            lines += [f"{case.__name__}: {line}" for line in found]
            print(f"{case.__name__}: {len(found)} differences, {time.monotonic() - started:.1f} s", flush=True)
        print("\n".join(lines))
        sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
