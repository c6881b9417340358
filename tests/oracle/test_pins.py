"""Pins are kept, checked and honoured by gc, whatever pushes and kills come between."""
import json, os, random, shutil, signal, subprocess, sys, time

import layouts
from program import Varve, need_tools, work_folder
from tars import Tar
from test_export import registry_on_loopback, run

OLD = time.time() - 10 * 24 * 3600


def image_tars(number):
    """Version `number` shares its base with all others and has a layer of its own."""
    base = Tar().dir("usr").file("usr/base", b"the base of all versions\n" * 3000).bytes()
    noise = random.Random(number)
    return [base, Tar().dir("opt").file("opt/version", b"%d" % number).file("opt/noise", noise.randbytes(50_000)).bytes()]


def series(folder, versions):
    """One layout folder with tags v0, v1 …"""
    for number in range(versions):
        single = folder.parent / f"{folder.name}-v{number}"
        reference = layouts.gzip_image(single, image_tars(number), tag=f"v{number}")
        run("skopeo", "copy", "--insecure-policy", reference, f"oci:{folder}:v{number}")
        shutil.rmtree(single)
    return folder


def make_old(folder):
    for file in (folder / "blobs/sha256").iterdir():
        os.utime(file, (OLD, OLD))


def digest_of(folder, tag):
    return layouts.manifest_of(f"oci:{folder}:{tag}")[0]["digest"]


def untag(folder, tag):
    """As other tools drop a name: the entry goes, the blobs stay."""
    index = json.loads((folder / "index.json").read_text())
    index["manifests"] = [m for m in index["manifests"] if m.get("annotations", {}).get("org.opencontainers.image.ref.name") != tag]
    (folder / "index.json").write_text(json.dumps(index))


def pinning(work, varve):
    lines, folder = [], series(work / "p", 3)
    varve.index(f"oci:{folder}:v0")
    for tag in ("v0", "v1"):
        varve.run("pin", "add", f"oci:{folder}:{tag}", "--by", "tester", "--reason", "why not", check=True)
    listed = varve.json("pin", "ls", f"oci:{folder}")["pins"]
    if sorted((p["name"], p["image"], p["by"], p["index"] is not None) for p in listed) != [("v0", digest_of(folder, "v0"), "tester", True), ("v1", digest_of(folder, "v1"), "tester", False)]:
        lines.append(f"pin ls: {listed}")
    again = varve.json("pin", "add", f"oci:{folder}:v0", "--reason", "still")
    if again["added"] or again["pins"][0]["since"] != next(p["since"] for p in listed if p["name"] == "v0"):
        lines.append(f"pinned twice: {again}")
    if "sha256" not in json.loads(run("skopeo", "inspect", f"oci:{folder}:v1"))["Digest"]:
        lines.append("skopeo cannot read the folder any more")
    for deep in ((), ("--deep",)):
        done = varve.run("pin", "check", *deep)  # all that this machine knows
        if done.returncode or b"2 pins checked" not in done.stdout:
            lines.append(f"pin check {deep} of whole images: {done}")
    layer = layouts.blob_path(f"oci:{folder}:v1", layouts.manifest_of(f"oci:{folder}:v1")[1]["layers"][1]["digest"])
    good = layer.read_bytes()
    layer.write_bytes(good[:100] + bytes([good[100] ^ 1]) + good[101:])
    if varve.run("pin", "check", f"oci:{folder}").returncode != 0:
        lines.append("a check that is not deep reads bytes")
    done = varve.run("pin", "check", "--deep", "--json", f"oci:{folder}")
    broken = [p for p in json.loads(done.stdout)["pins"] if not p["ok"]]
    if done.returncode != 3 or [p["name"] for p in broken] != ["v1"] or layer.name not in broken[0]["problems"][0]:
        lines.append(f"a flipped bit: {done}")
    layer.unlink()
    done = varve.run("pin", "check", f"oci:{folder}")
    if done.returncode != 3 or layer.name.encode() not in done.stdout:
        lines.append(f"a missing layer: {done}")
    layer.write_bytes(good)
    index_blob = max((f for f in (folder / "blobs/sha256").iterdir() if b"vnd.varve.tree" in f.read_bytes()[:5000]), key=lambda f: f.stat().st_size)
    kept = index_blob.read_bytes()
    index_blob.unlink()
    done = varve.run("pin", "check", f"oci:{folder}")
    if done.returncode != 3 or index_blob.name.encode() not in done.stdout:
        lines.append(f"a missing index: {done}")
    index_blob.write_bytes(kept)
    untag(folder, "varve-pins")
    done = varve.run("pin", "check")
    if done.returncode != 3 or done.stdout.count(b"names it no more") != 2:
        lines.append(f"a list that was lost: {done}")
    for words, status in ((("add", f"oci:{folder}:nosuch"), 1), (("rm", f"oci:{folder}:v2"), 1), (("add",), 2), (("check", f"oci:{folder}-nosuch"), 1)):
        done = varve.run("pin", *words)
        if done.returncode != status:
            lines.append(f"pin {words}: {done}")
    return lines


def lists_of_pins(work, varve):
    """A file with reasons and owners pins what it names, or nothing."""
    lines, folder, file = [], series(work / "l", 3), work / "pins.toml"
    first = '[[pin]]\nimage = ":v0"\nname = "zero"\nreason = "a course uses it"\nowner = "ann"\n'
    for wrong, status, words in (('[[pin]]\nimage = ":nosuch"\nreason = "r"\nowner = "o"\n', 1, b"nosuch"), ('[[pin]]\nimage = ":v1"\nreason = "r"\n', 1, b"pins.toml:6"),
                                 ('[[pin]]\nimage = ":v1"\nreason = " "\nowner = "o"\n', 1, b"'reason' is empty"), ('[[pin]]\nimage = ":v1"\nreason = "r"\nowner = "o"\nwhy = "?"\n', 1, b"why")):
        file.write_text(first + wrong)
        done = varve.run("pin", "add", "--from", file, f"oci:{folder}")
        if done.returncode != status or words not in done.stderr or varve.json("pin", "ls", f"oci:{folder}")["pins"]:
            lines.append(f"a list with {wrong!r}: {done}")
    file.write_text(first + f'[[pin]]\nimage = "oci:{folder}:v2"\nreason = "release"\nowner = "bob"\n')
    if varve.run("pin", "add", "--from", file).returncode != 2 or varve.run("pin", "add", "--from", file, f"oci:{folder}", "--reason", "x").returncode != 2:
        lines.append("a list without its repository, or with a reason beside it, is taken")
    report = varve.json("pin", "add", "--from", file, f"oci:{folder}")
    again = varve.json("pin", "add", "--from", file, f"oci:{folder}:v1")
    listed = sorted((p["name"], p["image"], p["by"], p["reason"]) for p in varve.json("pin", "ls", f"oci:{folder}")["pins"])
    if listed != [("v2", digest_of(folder, "v2"), "bob", "release"), ("zero", digest_of(folder, "v0"), "ann", "a course uses it")] or not report["added"] or again["added"]:
        lines.append(f"pins of a list: {listed}, {report}, {again}")
    return lines


def many_writers(work, varve):
    folder = series(work / "w", 6)
    writers = [subprocess.Popen([varve.binary, "pin", "add", f"oci:{folder}:v{i}", "--quiet"], env=varve.environment, stdout=subprocess.DEVNULL) for i in range(6)]
    statuses = [writer.wait(120) for writer in writers]
    names = sorted(p["name"] for p in varve.json("pin", "ls", f"oci:{folder}")["pins"])
    varve.run("pin", "rm", f"oci:{folder}", "--name", "v3", check=True)
    varve.run("pin", "rm", f"oci:{folder}@{digest_of(folder, 'v4')}", check=True)
    left = sorted(p["name"] for p in varve.json("pin", "ls", f"oci:{folder}")["pins"])
    return [] if (statuses, names, left) == ([0] * 6, [f"v{i}" for i in range(6)], ["v0", "v1", "v2", "v5"]) else [f"six writers: {statuses} {names}, then {left}"]


def garbage(work, varve):
    lines, folder = [], series(work / "g", 4)
    for tag in ("v0", "v2"):
        varve.index(f"oci:{folder}:{tag}")
    varve.run("pin", "add", f"oci:{folder}:v1", check=True)
    pinned, indexed = digest_of(folder, "v1"), digest_of(folder, "v2")
    gone = {layer["digest"] for layer in layouts.manifest_of(f"oci:{folder}:v2")[1]["layers"][1:]} | {indexed}
    for tag in ("v1", "v2"):
        untag(folder, tag)
    before = sorted(f.name for f in (folder / "blobs/sha256").iterdir())
    if varve.json("gc", f"oci:{folder}")["removed"]:
        lines.append("gc removes what is young")
    make_old(folder)
    dry = varve.json("gc", "--dry-run", f"oci:{folder}")
    if before != sorted(f.name for f in (folder / "blobs/sha256").iterdir()) or not gone <= set(dry["removed"]):
        lines.append(f"gc --dry-run: {dry}")
    report = varve.json("gc", f"oci:{folder}")
    if report["removed"] != dry["removed"] or report["freed_bytes"] != dry["freed_bytes"] or (folder / "varve-trash").exists():
        lines.append(f"gc differs from its dry run: {dry}, {report}")
    left = {m["digest"] for m in json.loads((folder / "index.json").read_text())["manifests"]}
    if any(not (folder / "blobs/sha256" / digest.removeprefix("sha256:")).exists() for digest in left):
        lines.append("index.json names manifests that are gone")
    for tag in ("v0", "v3"):
        run("skopeo", "copy", "--insecure-policy", f"oci:{folder}:{tag}", f"oci:{work}/g-copy-{tag}:t")
    if varve.run("pin", "check", "--deep", f"oci:{folder}").returncode or varve.run("ls", f"oci:{folder}:v0", "/opt").returncode:
        lines.append("gc took something of a pinned or indexed image")
    if varve.json("gc", f"oci:{folder}")["removed"]:
        lines.append("a second gc finds more")
    varve.run("pin", "rm", f"oci:{folder}@{pinned}", check=True)
    make_old(folder)
    if pinned not in varve.json("gc", f"oci:{folder}")["removed"]:
        lines.append("an image whose pin is gone stays")
    manifest = layouts.blob_path(f"oci:{folder}:v3", digest_of(folder, "v3"))
    manifest.rename(work / "kept")
    count = len(list((folder / "blobs/sha256").iterdir()))
    done = varve.run("gc", "--grace", "0", f"oci:{folder}")
    if done.returncode != 1 or manifest.name.encode() not in done.stderr or count != len(list((folder / "blobs/sha256").iterdir())):
        lines.append(f"gc with a missing manifest: {done}")
    return lines


def pushes_and_kills(work, varve):
    """An image is pushed while its old blobs are collected, and collectors are killed: what a push reported done is whole."""
    lines, folder, noise = [], series(work / "k", 2), random.Random(5)
    source = layouts.gzip_image(work / "k-source", image_tars(7), tag="v7")
    for _ in range(12):
        make_old(folder)  # blobs of v7 of the round before are unreached and old
        collectors = [subprocess.Popen([varve.binary, "gc", "--grace", "1", f"oci:{folder}", "--quiet"], env=varve.environment, stdout=subprocess.DEVNULL) for _ in range(2)]
        push = subprocess.Popen([varve.binary, "image", "export", source, f"oci:{folder}:v7", "--quiet"], env=varve.environment, stdout=subprocess.DEVNULL)
        time.sleep(noise.random() * 0.02)
        collectors[0].send_signal(signal.SIGKILL)
        if push.wait(60) != 0 or collectors[1].wait(60) != 0 or collectors[0].wait(60) not in (0, -signal.SIGKILL):
            lines.append("a push or a collector failed")
        varve.run("gc", f"oci:{folder}", check=True)
        for tag in ("v0", "v1", "v7"):
            done = subprocess.run(["skopeo", "copy", "-q", "--insecure-policy", f"oci:{folder}:{tag}", f"oci:{work}/k-copy:{tag}"], stderr=subprocess.PIPE)
            if done.returncode:
                lines.append(f"{tag} is not whole: {done.stderr[-300:]}")
        untag(folder, "v7")
    return lines


def in_a_registry(work, varve):
    lines, image = [], layouts.gzip_image(work / "r", image_tars(1), tag="v1")
    with registry_on_loopback(work) as host:
        varve.run("image", "export", image, f"{host}/team/app:v1", check=True)
        varve.run("pin", "add", f"{host}/team/app:v1", "--by", "me", check=True)
        listed = varve.json("pin", "ls", f"{host}/team/app")["pins"]
        checked = varve.run("pin", "check", "--deep", f"{host}/team/app")
        if [p["image"] for p in listed] != [digest_of(work / "r", "v1")] or checked.returncode:
            lines.append(f"pins in a registry: {listed} {checked}")
        if varve.run("gc", f"{host}/team/app").returncode != 2:
            lines.append("gc of a registry")
        varve.run("pin", "rm", f"{host}/team/app:v1", check=True)
        if varve.json("pin", "ls", f"{host}/team/app")["pins"]:
            lines.append("pin rm in a registry")
    return lines


def main():
    need_tools("skopeo", "docker-registry")
    with work_folder() as work, Varve(work) as varve:
        lines = pinning(work, varve) + lists_of_pins(work, varve) + many_writers(work, varve) + garbage(work, varve) + pushes_and_kills(work, varve) + in_a_registry(work, varve)
        print("\n".join(lines))
        sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
