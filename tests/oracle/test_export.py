"""What `varve image export` writes is read by skopeo and umoci, and holds the same image."""
import contextlib, hashlib, json, shutil, socket, subprocess, sys, time, urllib.request

import layouts
from layouts import GZIP, TAR, ZSTD
from program import Varve, modes, need_fuse, need_root, need_tools, unpack, work_folder
from scan import differences, scan
from test_trees import realistic_layers

KINDS = {"gzip": (layouts.piped("gzip", "-n"), GZIP), "zstd": (layouts.piped("zstd", "-q"), ZSTD), "tar": (lambda tar, work: tar, TAR)}
CONFIG = {"Env": ["PATH=/usr/bin"], "Labels": {"a": "b"}}


def run(*command):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
    return done.stdout


def image_of(folder, tars, kind, work):
    compress, media = KINDS[kind]
    return layouts.write_image(folder, [(compress(tar, work), tar, media, None) for tar in tars], config=CONFIG)


def archives(work, varve, tars, expected):
    """Layers of each kind, one image with a layer twice; skopeo reads the archive, umoci what skopeo made of it."""
    lines = []
    for kind in KINDS:
        image = image_of(work / f"a-{kind}", [*tars, tars[-1]], kind, work)
        archive = work / f"{kind}.tar"
        (work / f"{kind}.tar.tmp-1-0").write_bytes(b"what a killed export leaves")
        report = varve.json("image", "export", image, f"docker-archive:{archive}:team/app:v1")
        if report["image"] != layouts.manifest_of(image)[0]["digest"] or report["copied_bytes"] != archive.stat().st_size:
            lines.append(f"{kind}: a wrong report: {report}")
        if json.loads(run("skopeo", "inspect", f"docker-archive:{archive}:team/app:v1"))["Env"] != ["PATH=/usr/bin"]:
            lines.append(f"{kind}: skopeo finds another environment")
        run("skopeo", "copy", "--insecure-policy", f"docker-archive:{archive}:team/app:v1", f"oci:{work}/back-{kind}:t")
        lines += [f"docker-archive of {kind}: {line}" for line in differences(expected, scan(unpack(f"oci:{work}/back-{kind}:t", work / f"b-{kind}")))]
        if list(work.glob(f"{kind}.tar.tmp-*")):
            lines.append(f"{kind}: what a killed export left stays beside the archive")
        first = hashlib.sha256(archive.read_bytes()).digest()
        varve.run("image", "export", image, f"docker-archive:{archive}:team/app:v1", check=True)
        if hashlib.sha256(archive.read_bytes()).digest() != first:
            lines.append(f"{kind}: the same image gives another archive")
    return lines


def layout_with_index(work, varve, image, expected):
    lines = []
    target = f"oci:{work}/copy:v7"
    refused = varve.run("image", "export", image, target, "--with-index")
    if refused.returncode != 1 or b"varve index" not in refused.stderr or (work / "copy/blobs").exists() and list((work / "copy/blobs").rglob("*/*")):
        lines.append(f"--with-index of an image without one: {refused}")
    varve.index(image)
    report = varve.json("image", "export", image, target, "--with-index")
    raw = run("skopeo", "inspect", "--raw", target)
    if "sha256:" + hashlib.sha256(raw).hexdigest() != report["image"] or report["reused_bytes"] != 0:
        lines.append(f"the copy has another manifest, or the report is wrong: {report}")
    shutil.rmtree(varve.root, ignore_errors=True)  # nothing known here: the index must come from the copy
    for mode in modes():
        with varve.mounted(target, mode) as tree:
            lines += [f"copy with index, {mode}: {line}" for line in differences(expected, scan(tree))]
    again = varve.json("image", "export", image, target)
    if again["copied_bytes"] != 0 or again["reused_bytes"] != report["copied_bytes"]:
        lines.append(f"a second export copies again: {again}")
    return lines


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def registry_on_loopback(work, storage=""):
    """Debian's registry; gives its host and port. `storage`: further settings of where it keeps things."""
    port = free_port()
    (work / "registry.yml").write_text(f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {work}/registry}}, {storage}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n")
    server = subprocess.Popen(["docker-registry", "serve", str(work / "registry.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(500):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/").close()
                break
            except OSError:
                time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def registry(work, varve, image):
    lines = []
    with registry_on_loopback(work) as host:
        first = varve.json("image", "export", image, f"{host}/team/app:v1")
        inside = varve.json("image", "export", f"{host}/team/app:v1", f"{host}/other/app:v2")
        if first["reused_bytes"] != 0 or inside["copied_bytes"] != 0 or inside["reused_bytes"] != first["copied_bytes"]:
            lines.append(f"blobs are sent within one registry: {first}, {inside}")
        raw = run("skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{host}/other/app:v2")
        if "sha256:" + hashlib.sha256(raw).hexdigest() != first["image"]:
            lines.append("the registry has another manifest")
    return lines


def broken(work, varve, tars):
    """Nothing half-written is left, and the message names what was wrong."""
    lines = []
    good = layouts.gzip_image(work / "good", tars)
    digest = json.loads(run("skopeo", "inspect", "--raw", good))["layers"][1]["digest"].removeprefix("sha256:")
    blob = work / "good/blobs/sha256" / digest
    data = bytearray(blob.read_bytes())
    data[len(data) // 2] ^= 0x40
    blob.write_bytes(data)
    for target, left in ((f"docker-archive:{work}/broken.tar", work / "broken.tar"), (f"oci:{work}/broken:t", work / "broken/blobs/sha256" / digest)):
        done = varve.run("image", "export", good, target)
        if done.returncode != 1 or digest.encode() not in done.stderr or done.stderr.count(b"\n") != 1 or left.exists() or list(work.glob("*broken.tar*")):
            lines.append(f"a damaged layer to {target}: {done}")
    if (work / "broken/index.json").exists() and json.loads((work / "broken/index.json").read_text())["manifests"]:
        lines.append("the copy of a damaged image can be found")
    image = layouts.write_image(work / "swapped", [(tars[0], tars[1], TAR, None)])  # diff_id of another layer
    done = varve.run("image", "export", image, f"docker-archive:{work}/swapped.tar")
    if done.returncode != 1 or b"config says" not in done.stderr or (work / "swapped.tar").exists():
        lines.append(f"a layer that is not its diff_id: {done}")
    for words, status in ((("docker-archive:",), 2), ((f"docker-archive:{work}/x.tar:UPPER/case",), 2), ((f"docker-archive:{work}/x.tar", "--with-index"), 2),
                          ((f"oci:{work}/y@sha256:" + "0" * 64,), 2), ((f"docker-archive:{work}/no/such/folder/x.tar",), 1)):
        done = varve.run("image", "export", image, *words)
        if done.returncode != status or done.stderr.count(b"\n") != 1:
            lines.append(f"export to {words}: {done}")
    return lines


def main():
    need_root()
    need_tools("umoci", "skopeo", "gzip", "zstd", "docker-registry")
    need_fuse()
    with work_folder() as work, Varve(work) as varve:
        tars = realistic_layers()
        image = layouts.gzip_image(work / "image", tars)
        expected = scan(unpack(image, work / "expected"))
        lines = archives(work, varve, tars, expected) + layout_with_index(work, varve, image, expected) + registry(work, varve, image) + broken(work, varve, tars)
        print("\n".join(lines))
        sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
