"""Pins are kept, checked and honoured by gc, whatever pushes and kills come between."""
import hashlib, json, os, random, shutil, signal, subprocess, sys, time

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
    varve.run("index", "--to", f"oci:{work}/g-indexes", f"oci:{folder}:v0", check=True)
    for place in (work / "g-indexes", varve.root / "index"):
        there = sorted(file.name for file in (place / "blobs/sha256").iterdir())
        done = varve.run("gc", "--grace", "0", f"oci:{place}")
        if done.returncode != 2 or b"images elsewhere" not in done.stderr or there != sorted(file.name for file in (place / "blobs/sha256").iterdir()):
            lines.append(f"gc of indexes whose images lie elsewhere: {done}")
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
        # A registry, too, takes several promises on one image, keeps the list's tag from us, and gets it back when others took it.
        varve.run("pin", "add", f"{host}/team/app:v1", "--by", "you", check=True)
        listed = varve.json("pin", "ls", f"{host}/team/app")["pins"]
        done = varve.run("image", "export", image, f"{host}/team/app:varve-pins")
        if [p["by"] for p in listed] != ["me", "you"] or done.returncode != 2:
            lines.append(f"two promises in a registry: {listed}, {done}")
        run("skopeo", "copy", "--insecure-policy", "--dest-tls-verify=false", image, f"docker://{host}/team/app:varve-pins")
        done = varve.run("pin", "rm", f"{host}/team/app:v1", "--by", "you")
        report = varve.json("pin", "repair", f"{host}/team/app")
        if done.returncode != 1 or len(report["restored"]) != 2 or varve.json("pin", "ls", f"{host}/team/app")["pins"] != listed:
            lines.append(f"repair in a registry: {done}, {report}")
        varve.run("pin", "rm", f"{host}/team/app", "--name", "v1", "--by", "you", check=True)
        varve.run("pin", "rm", f"{host}/team/app:v1", check=True)
        if varve.json("pin", "ls", f"{host}/team/app")["pins"]:
            lines.append("pin rm in a registry")
    return lines


def several_promises(work, varve):
    """Ann and Bob promise the same image: it is free when both have taken their word back."""
    lines, folder = [], series(work / "s", 2)
    image, digest = f"oci:{folder}:v0", digest_of(folder, "v0")
    for words in (("--by", "ann", "--reason", "a course"), ("--by", "bob", "--reason", "a paper"), ("--by", "bob", "--name", "paper", "--reason", "its figures")):
        varve.run("pin", "add", image, *words, check=True)
    again = varve.json("pin", "add", image, "--by", "bob", "--reason", "a paper, second edition")
    listed = [(p["name"], p["by"], p["reason"], p["image"]) for p in varve.json("pin", "ls", f"oci:{folder}")["pins"]]
    if again["added"] or listed != [("paper", "bob", "its figures", digest), ("v0", "ann", "a course", digest), ("v0", "bob", "a paper, second edition", digest)]:
        lines.append(f"three promises on one image: {again} {listed}")
    checked = varve.json("pin", "check", f"oci:{folder}")["pins"]
    if [(p["name"], p["ok"]) for p in checked] != [("paper", True), ("v0", True), ("v0", True)]:
        lines.append(f"pin check of three promises: {checked}")
    for words, names in (((image,), (b'"paper" of "bob"', b'"v0" of "ann"', b'"v0" of "bob"')), ((image, "--name", "v0"), (b'"ann"', b'"bob"')), ((image, "--by", "bob"), (b'"paper"', b'"v0"'))):
        done = varve.run("pin", "rm", *words)
        if done.returncode != 2 or not all(name in done.stderr for name in names):
            lines.append(f"pin rm {words} of three promises: {done}")
    if varve.run("pin", "rm", image, "--name", "nosuch").returncode != 1 or varve.run("pin", "rm", f"oci:{folder}:v1", "--name", "paper").returncode != 1:
        lines.append("pin rm takes a promise that is not there, or another image's")
    varve.run("pin", "rm", image, "--name", "paper", check=True)
    done = varve.run("pin", "rm", f"oci:{folder}", "--name", "v0", "--by", "bob", check=True)
    if b'stays pinned: "v0" of "ann"' not in done.stdout:
        lines.append(f"pin rm of bob's: {done}")
    untag(folder, "v0")
    varve.run("gc", "--untagged", "--grace", "0", f"oci:{folder}", check=True)
    if varve.run("pin", "check", "--deep", f"oci:{folder}").returncode:
        lines.append("gc frees an image that ann still promises")
    varve.run("pin", "rm", f"oci:{folder}@{digest}", check=True)  # the only one left needs no name
    if digest not in varve.json("gc", "--untagged", "--grace", "0", f"oci:{folder}")["removed"]:
        lines.append("an image whose last promise is gone stays")
    return lines


def old_lists(work, varve):
    """What the first version wrote, list and memory, is read, honoured and added to."""
    lines, folder = [], series(work / "o", 2)
    digest, platform = digest_of(folder, "v0"), {"os": "linux", "architecture": "amd64"}
    manifest = layouts.blob_path(f"oci:{folder}:v0", digest)
    entry = {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "size": manifest.stat().st_size, "platform": platform,
             "annotations": {"dev.varve.pin.name": "v0", "dev.varve.pin.since": "2026-01-01T00:00:00Z", "dev.varve.pin.by": "ann", "dev.varve.pin.reason": "old"}}
    document = {"artifactType": "application/vnd.varve.pins.v1", "manifests": [entry], "mediaType": "application/vnd.oci.image.index.v1+json", "schemaVersion": 2}
    put_under_tag(folder, json.dumps(document, sort_keys=True, separators=(",", ":")).encode(), document["mediaType"], "varve-pins")
    varve.root.mkdir(parents=True, exist_ok=True)
    (varve.root / "pins.json").write_text(json.dumps({"places": {f"oci:{folder}": [digest]}}))
    listed = varve.json("pin", "ls", f"oci:{folder}")["pins"]
    if [(p["name"], p["by"], p["since"]) for p in listed] != [("v0", "ann", "2026-01-01T00:00:00Z")] or varve.run("pin", "check").returncode:
        lines.append(f"a list of the first version: {listed}")
    varve.run("pin", "add", f"oci:{folder}:v0", "--by", "bob", check=True)
    if [p["by"] for p in varve.json("pin", "ls", f"oci:{folder}")["pins"]] != ["ann", "bob"]:
        lines.append("a promise beside one of the first version")
    # Of a lost list the first version's memory has digests alone.
    (varve.root / "pins.json").write_text(json.dumps({"places": {f"oci:{folder}": [digest]}}))
    untag(folder, "varve-pins")
    if varve.run("gc", "--untagged", "--grace", "0", f"oci:{folder}").returncode != 1:
        lines.append("gc goes on though the list that an old memory knows is gone")
    varve.run("pin", "repair", f"oci:{folder}", check=True)
    if [p["image"] for p in varve.json("pin", "ls", f"oci:{folder}")["pins"]] != [digest]:
        lines.append("repair by an old memory")
    return lines


def put_under_tag(folder, content, media_type, tag):
    """As other tools put a document into a folder."""
    digest = hashlib.sha256(content).hexdigest()
    (folder / "blobs/sha256" / digest).write_bytes(content)
    untag(folder, tag)
    index = json.loads((folder / "index.json").read_text())
    index["manifests"].append({"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content), "annotations": {"org.opencontainers.image.ref.name": tag}})
    (folder / "index.json").write_text(json.dumps(index))


def a_tag_of_its_own(work, varve):
    """Nothing of ours writes over the list."""
    lines, folder = [], series(work / "t", 1)
    image = f"oci:{folder}:v0"
    varve.index(image)
    varve.run("pin", "add", image, check=True)
    before = varve.run("pin", "ls", "--json", f"oci:{folder}").stdout
    (work / "plan.json").write_text("{}")
    for words in (("image", "export", image), ("image", "optimize", image), ("image", "optimize", "--repack", image), ("prune", "apply", work / "plan.json"), ("index", "--to", None, image)):
        for destination in (f"oci:{folder}:varve-pins", f"oci:{folder}:team/app:varve-pins", f"oci:{work}/new:varve-pins", "127.0.0.1:9/team/app:varve-pins"):
            done = varve.run(*[destination if word is None else word for word in words], *([] if None in words else [destination]))
            if done.returncode != 2 or b"list of pinned images" not in done.stderr or done.stderr.count(b"\n") != 1:
                lines.append(f"{words} to {destination}: {done}")
    for tag in ("varve-pins-replaced", "varve-pins-replaced-2", "sha256-" + "a" * 64, "sha256-" + "a" * 64 + ".sig"):
        for words in (("image", "export", image), ("image", "optimize", image), ("prune", "apply", work / "plan.json")):
            for destination in (f"oci:{folder}:{tag}", f"127.0.0.1:9/team/app:{tag}"):
                done = varve.run(*words, destination)
                if done.returncode != 2 or b"which would be lost" not in done.stderr:
                    lines.append(f"{words} to {destination}: {done}")
    if varve.run("image", "export", image, f"docker-archive:{work}/a.tar:team/app:varve-pins").returncode != 2:
        lines.append("an archive names its image as the list of pins")
    if (work / "new").exists() or varve.run("pin", "ls", "--json", f"oci:{folder}").stdout != before:
        lines.append("a refused destination was touched")
    return lines


def lost_lists(work, varve):
    """Other tools write over the list, take it away, damage it, put an old one back: nothing is collected until it is repaired."""
    lines, source = [], series(work / "x", 2)
    listed = None
    for case in ("image", "platforms", "gone", "damaged", "missing", "older"):
        folder = work / f"x-{case}"
        shutil.copytree(source, folder)
        place, digest = f"oci:{folder}", digest_of(folder, "v0")
        varve.run("pin", "add", f"{place}:v1", "--by", "ann", check=True)
        older = json.loads((folder / "index.json").read_text())["manifests"]
        varve.run("pin", "add", f"{place}:v0", "--name", "zero", "--by", "ann", "--reason", "because", check=True)
        listed = varve.json("pin", "ls", place)["pins"]
        list_entry = next(m for m in json.loads((folder / "index.json").read_text())["manifests"] if m["annotations"].get("org.opencontainers.image.ref.name") == "varve-pins")
        list_blob = folder / "blobs/sha256" / list_entry["digest"].removeprefix("sha256:")
        if case == "image":
            run("skopeo", "copy", "--insecure-policy", layouts.gzip_image(work / "x-other", image_tars(9), tag="t"), f"{place}:varve-pins")
        elif case == "platforms":
            many = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [m for m in older if m["annotations"].get("org.opencontainers.image.ref.name") == "v1"]}
            put_under_tag(folder, json.dumps(many).encode(), many["mediaType"], "varve-pins")
        elif case == "gone":
            untag(folder, "varve-pins")
        elif case == "damaged":
            list_blob.write_bytes(list_blob.read_bytes().replace(b"because", b"becomes"))
        elif case == "missing":
            list_blob.unlink()
        elif case == "older":
            (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": older}))
        untag(folder, "v0")
        files = sorted(f.name for f in (folder / "blobs/sha256").iterdir())
        os.symlink(folder, work / f"x-{case}-by-another-name")
        for place_again in (place, f"{place}-by-another-name"):
            done = varve.run("gc", "--untagged", "--grace", "0", place_again)
            if done.returncode != 1 or b"varve pin repair" not in done.stderr or b"nothing was removed" not in done.stderr or files != sorted(f.name for f in (folder / "blobs/sha256").iterdir()):
                lines.append(f"gc of {place_again} with a list that is {case}: {done}")
        for words in (("image", "export", f"{place}:v1"), ("image", "optimize", f"{place}:v1")):
            done = varve.run(*words, f"{place}:v1")
            if done.returncode != 1 or b"varve pin repair" not in done.stderr or b"left as it is" not in done.stderr:
                lines.append(f"{words} onto a tag where the list is {case}: {done}")
        varve.run("image", "export", f"{place}:v1", f"{place}:v1-too", check=True)  # nothing loses its name by it
        untag(folder, "v1-too")
        if case != "gone":
            done = varve.run("pin", "rm", f"{place}:v1")
            if done.returncode != 1 or b"varve pin repair" not in done.stderr:
                lines.append(f"pin rm with a list that is {case}: {done}")
        if varve.run("pin", "check", place).returncode not in (1, 3):
            lines.append(f"pin check with a list that is {case} is content")
        if case in ("gone", "older"):
            varve.run("pin", "add", f"{place}:v1", "--name", "late", "--by", "ann", check=True)
            if varve.run("gc", "--untagged", "--grace", "0", place).returncode != 1:
                lines.append("a further pin makes this machine forget what it knew")
            varve.run("pin", "rm", f"{place}:v1", "--name", "late")
            listed = sorted(listed + [p for p in varve.json("pin", "ls", place)["pins"] if p["name"] == "late"], key=lambda p: (p["image"], p["name"], p["by"]))
        report = varve.json("pin", "repair", place)
        if (report["set_aside"] != "") != (case in ("image", "platforms")) or report["gone"] or varve.json("pin", "ls", place)["pins"] != listed:
            lines.append(f"repair of a list that is {case}: {report}, {listed}")
        if case == "image" and varve.run("pin", "repair", place).returncode:
            lines.append("a second repair")
        if varve.run("gc", "--untagged", "--grace", "0", place).returncode or varve.run("pin", "check", "--deep", place).returncode or not (folder / "blobs/sha256" / digest.removeprefix("sha256:")).exists():
            lines.append(f"after the repair of a list that is {case} gc took what is promised, or stops still")
        if case == "image" and varve.run("ls", f"{place}:varve-pins-replaced").returncode not in (0, 1):
            lines.append("what lay in the list's place is lost")
    # An image that is gone cannot be promised again, and is forgotten only when somebody says so.
    folder = work / "x-gone"
    place, digest = f"oci:{folder}", digest_of(folder, "v1")
    untag(folder, "varve-pins")
    untag(folder, "v1")
    layouts_file = folder / "blobs/sha256" / digest.removeprefix("sha256:")
    layouts_file.unlink()
    done = varve.run("pin", "repair", "--json", place)
    if done.returncode != 3 or {p["image"] for p in json.loads(done.stdout)["gone"]} != {digest} or [p["name"] for p in json.loads(done.stdout)["restored"]] != ["zero"]:
        lines.append(f"repair with an image that is gone: {done}")
    if varve.run("gc", place).returncode != 1:
        lines.append("gc goes on though a promise could not be restored")
    for name in ("late", "v1"):
        varve.run("pin", "rm", f"{place}@{digest}", "--name", name)
    if varve.run("gc", place).returncode:
        lines.append("gc stops though what was lost is forgotten")
    return lines


def what_belongs_to_an_image(work, varve):
    """A pin promises index and signatures as well: check misses them, gc leaves them, repair lists what nothing names."""
    lines, folder, key = [], series(work / "b", 1), work / "ci.key"
    image, place = f"oci:{folder}:v0", f"oci:{folder}"
    varve.environment["COSIGN_PASSWORD"] = ""
    varve.run("keygen", "-o", work / "ci", check=True)
    varve.index(image)
    varve.run("sign", image, "--key", key, "--image", "--bundle", check=True)
    pin = varve.json("pin", "add", image, "--by", "ann")["pins"][0]
    whole = (folder / "index.json").read_text()
    entries = json.loads(whole)["manifests"]
    if not pin["index"] or len(pin["signatures"]) != 4 or varve.run("pin", "check", "--deep", place).returncode:
        lines.append(f"a pin of a signed image: {pin}, {varve.run('pin', 'check', place)}")
    bundle = next(m for m in entries if "sigstore.bundle" in m.get("artifactType", "") and json.loads(layouts.blob_path(image, m["digest"]).read_text())["subject"]["digest"] == pin["index"])
    signature = next(m for m in entries if m.get("annotations", {}).get("org.opencontainers.image.ref.name") == pin["index"].replace(":", "-") + ".sig")
    for what, entry, word in (("the bundle", bundle, b"signature"), ("the signature", signature, b"signature"), ("the index", next(m for m in entries if m["digest"] == pin["index"]), b"index")):
        (folder / "index.json").write_text(json.dumps(json.loads(whole) | {"manifests": [m for m in entries if m != entry]}))
        done = varve.run("pin", "check", place)
        if done.returncode != 3 or word not in done.stdout:
            lines.append(f"pin check where nothing names {what}: {done}")
    # The index is what was taken out last: its blobs stay, and it is named again.
    make_old(folder)
    report = varve.json("gc", "--untagged", "--grace", "0", place)
    if {pin["index"], *pin["signatures"]} & set(report["removed"]):
        lines.append(f"gc takes what was promised with an image: {report}")
    report = varve.json("pin", "repair", place)
    if [p["image"] for p in report["relisted"]] != [pin["image"]] or varve.run("pin", "check", "--deep", place).returncode or varve.json("pin", "repair", place)["relisted"]:
        lines.append(f"repair of an index that nothing names: {report}, {varve.run('pin', 'check', place)}")
    for what, digest in (("index", pin["index"]), ("image", pin["image"])):
        manifest = layouts.blob_path(image, digest)
        manifest.rename(work / "kept")
        done = varve.run("gc", "--grace", "0", place)
        if done.returncode != 1 or digest.encode() not in done.stderr or b"pin rm" not in done.stderr:
            lines.append(f"gc where the {what} of a promise is missing: {done}")
        if varve.run("pin", "check", place).returncode != 3:
            lines.append(f"pin check where the {what} of a promise is missing")
        (work / "kept").rename(manifest)
    return lines


def not_whole(work, varve):
    """What is not there is not promised."""
    lines, folder = [], series(work / "n", 1)
    layer = layouts.blob_path(f"oci:{folder}:v0", layouts.manifest_of(f"oci:{folder}:v0")[1]["layers"][1]["digest"])
    layer.rename(work / "n-layer")
    done = varve.run("pin", "add", f"oci:{folder}:v0")
    if done.returncode != 1 or layer.name.encode() not in done.stderr or varve.json("pin", "ls", f"oci:{folder}")["pins"]:
        lines.append(f"pin add of an image without one of its layers: {done}")
    (work / "n-layer").rename(layer)
    varve.run("pin", "add", f"oci:{folder}:v0", check=True)
    return lines


def manifests_as_layers(work, varve):
    """Who names the manifest of an image as a layer has reached one file of it, not the image."""
    lines, folder = [], series(work / "y", 2)
    innocent, manifest = layouts.manifest_of(f"oci:{folder}:v1")
    first, stranger = layouts.manifest_of(f"oci:{folder}:v0")
    stranger["layers"].append({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": innocent["digest"], "size": innocent["size"]})
    untag(folder, "v1")
    put_under_tag(folder, json.dumps(stranger).encode(), first["mediaType"], "a-stranger")
    index = json.loads((folder / "index.json").read_text())
    (folder / "index.json").write_text(json.dumps(index | {"manifests": [*index["manifests"], innocent]}))
    report = varve.json("gc", "--grace", "0", f"oci:{folder}")
    if set(report["removed"]) & {layer["digest"] for layer in manifest["layers"]}:
        lines.append(f"gc takes layers of an image that another one names as its layer: {report}")
    return lines


def all_at_once(work, varve):
    lines, folder = [], series(work / "m", 2)
    for tag, name, by in (("v0", "one", "ann"), ("v0", "two", "ann"), ("v0", "one", "bob"), ("v1", "one", "ann")):
        varve.run("pin", "add", f"oci:{folder}:{tag}", "--name", name, "--by", by, check=True)
    left = lambda: sorted((p["name"], p["by"]) for p in varve.json("pin", "ls", f"oci:{folder}")["pins"])
    if varve.run("pin", "rm", f"oci:{folder}", "--name", "one", "--all").returncode != 2 or len(left()) != 4:
        lines.append("pin rm --all takes promises of several images")
    varve.run("pin", "rm", f"oci:{folder}:v0", "--by", "ann", "--all", check=True)
    if left() != [("one", "ann"), ("one", "bob")]:
        lines.append(f"pin rm --all of ann's: {left()}")
    varve.run("pin", "add", f"oci:{folder}:v0", "--by", "ann", check=True)
    varve.run("pin", "rm", f"oci:{folder}:v0", "--all", check=True)
    if left() != [("one", "ann")] or varve.run("pin", "check", f"oci:{folder}").returncode:
        lines.append(f"pin rm --all: {left()}")
    return lines


def places_that_are_gone(work, varve):
    """One vanished folder, one registry that is away: the others are listed and checked all the same."""
    lines = []
    with Varve(work / "v") as other:
        other.environment.pop("USER", None)
        for name in ("va", "vb", "vc"):
            other.run("pin", "add", f"oci:{series(work / name, 1)}:v0", check=True)
        shutil.rmtree(work / "va")
        known = other.root / "pins.json"
        document = json.loads(known.read_text())
        document["places"]["127.0.0.1:9/team/app"] = document["places"][f"oci:{work}/vb"]
        known.write_text(json.dumps(document))
        listed, checked = other.run("pin", "ls", "--json"), other.run("pin", "check", "--json")
        for words, done in (("ls", listed), ("check", checked)):
            report = json.loads(done.stdout) if done.stdout else {}
            if done.returncode != 3 or [p["place"] for p in report.get("pins", [])] != [f"oci:{work}/vb", f"oci:{work}/vc"] or \
                    sorted(p["place"] for p in report.get("unreadable", [])) != ["127.0.0.1:9/team/app", f"oci:{work}/va"] or done.stderr.count(b"were not read") != 2:
                lines.append(f"pin {words} with places that are gone: {done}")
        text = other.run("pin", "check")
        if text.returncode != 3 or b"2 pins checked, 0 not whole, 2 places not read" not in text.stdout:
            lines.append(f"pin check with places that are gone: {text}")
    return lines


def main():
    need_tools("skopeo", "docker-registry")
    with work_folder(in_memory=True) as work, Varve(work) as varve:
        varve.environment.pop("USER", None)  # whoever runs this
        lines = pinning(work, varve) + lists_of_pins(work, varve) + many_writers(work, varve) + several_promises(work, varve) + what_belongs_to_an_image(work, varve) + not_whole(work, varve) + manifests_as_layers(work, varve) + all_at_once(work, varve) + places_that_are_gone(work, varve) + old_lists(work, varve) + a_tag_of_its_own(work, varve) + lost_lists(work, varve) + garbage(work, varve) + pushes_and_kills(work, varve) + in_a_registry(work, varve)
        print("\n".join(lines))
        sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
