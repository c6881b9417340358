#!/usr/bin/env python3
"""What kubelet does, with containerd 1.6 of Debian 12 and 1.7 of Debian 13: pods of images that are mounted lazily, from a registry that wants a password, images that go while others share their layers, and users of their own."""
import base64, contextlib, json, os, re, subprocess, sys, time, urllib.error, urllib.request
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "oracle"), str(TESTS / "run")]
import debian13, layouts, program, tars, tiny_image  # noqa: E402
from containerd import Containerd, Snapshotter, need_containerd, wait_for  # noqa: E402
from cri import Pod, image_file_system, images, pull  # noqa: E402
from test_export import free_port  # noqa: E402
from tiny_image import expect  # noqa: E402

USER, PASSWORD = "kubelet", "s3cret"


def layer(tar):
    data = tar.bytes()
    return (layouts.zlib_gzip(level=1)(data, None), data, layouts.GZIP, None)


def make_images(folder):
    """name -> reference. app, whose lowest layers are base and pause; plain, which shares nothing."""
    config = {"Cmd": ["sleep", "100000"], "Env": ["PATH=/bin"], "WorkingDir": "/"}
    tools = tars.Tar().dir("bin").dir("etc").dir("tmp", mode=0o1777)
    for path, content in sorted(tiny_image.needed_files().items()):
        tools.file(path, content, mode=0o755)
    first = layer(tools.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n").file("etc/gone", b"x"))
    second = layer(tars.Tar().dir("data").file("data/two", b"two\n").file("data/changed", b"old\n").whiteout("etc/gone"))
    third = layer(tars.Tar().file("data/changed", b"new\n").file("data/large", os.urandom(2_000_000)).file("owned", b"owned\n", uid=1000, gid=1001, mode=0o600))
    plain = layer(tars.Tar().file("plain", b"plain\n"))
    stacks = {"app": [first, second, third], "base": [first, second], "pause": [first], "plain": [layer(tools.file("etc/other", b"y")), plain]}
    return {name: layouts.write_image(folder / name, layers, config=config) for name, layers in stacks.items()}


@contextlib.contextmanager
def private_registry(work):
    """Debian's registry, which answers nobody without the password."""
    port = free_port()
    hashed = subprocess.run(["htpasswd", "-Bbn", USER, PASSWORD], stdout=subprocess.PIPE, check=True).stdout
    (work / "htpasswd").write_bytes(hashed)
    (work / "registry.yml").write_text(f"version: 0.1\nlog: {{level: error}}\nstorage: {{filesystem: {{rootdirectory: {work}/registry}}}}\nhttp: {{addr: 127.0.0.1:{port}}}\n"
                                       f"auth: {{htpasswd: {{realm: test, path: {work}/htpasswd}}}}\n")
    server = subprocess.Popen(["docker-registry", "serve", str(work / "registry.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def answers():
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/").close()
        except urllib.error.HTTPError as error:
            return error.code == 401
        except OSError:
            return False
    try:
        wait_for("the registry answers", answers)
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


@contextlib.contextmanager
def node_of(place):
    """A Varve whose daemon ends also when a test has failed and trees are still held."""
    place.mkdir()
    with program.Varve(place) as varve:
        try:
            yield varve
        except BaseException:
            varve.run("daemon", "--stop", "--force", "--time", "1")
            raise


def held(varve):
    return sorted(name for mount in varve.json("status")["mounts"] for name in mount["held_by"])


def logs(node, varve):
    return f"the snapshotter: {varve.snapshotter.log.read_text()[-5000:]}\ncontainerd: {node.log.read_text()[-5000:]}"


def known(varve, image):
    """The daemon has opened it once, so that a loaded machine finds it within the snapshotter's 2 s."""
    folder = varve.work / "known"
    folder.mkdir(exist_ok=True)
    varve.run("mount", image, folder, check=True)
    varve.run("unmount", folder, check=True)


def pods(node, varve, host, mode, version):
    try:
        pull(node, f"{host}/app:v1")
        raise SystemExit("a registry that wants a password gave an image without")
    except AssertionError:
        pass
    began = time.monotonic()
    app = pull(node, f"{host}/app:v1", USER, PASSWORD)
    seconds = time.monotonic() - began
    expect(node.content_bytes() < 100_000, f"{node.content_bytes()} bytes of an indexed image were fetched: {varve.snapshotter.log.read_text()[-3000:]}")
    for name in ("base", "pause", "plain"):
        pull(node, f"{host}/{name}:v1", USER, PASSWORD)
    expect(set(images(node)) == {f"{host}/{name}:v1" for name in ("app", "base", "pause", "plain")}, f"images: {images(node)}")
    expect(images(node)[f"{host}/app:v1"] > 2_000_000, "kubelet counts what a registry has of it")
    if version >= (1, 7):  # 1.6.20 knows no exports
        expect(image_file_system(node) == str(varve.root), f"the disk that kubelet watches: {image_file_system(node)}")

    began = time.monotonic()
    with Pod(node, "one") as pod:
        first = pod.start(app, "first")
        started = time.monotonic() - began
        expect(pod.run(first, "cat", "/data/two", "/data/changed") == "two\nnew\n", "the whole image")
        expect(pod.run(first, "sh", "-c", "echo mine > /data/two; cat /data/two; test -e /etc/gone || echo gone") == "mine\ngone\n", "a layer of its own")
        # Its chain is known: containerd asks for no layer of it, and says of none what image it is of.
        base = pod.start(f"{host}/base:v1", "base")
        expect(pod.run(base, "cat", "/data/two", "/data/changed") == "two\nold\n", "the two lowest layers")
        expect("exit 2" in pod.run(base, "ls", "/data/large"), "and no other")
        plain = pod.start(f"{host}/plain:v1", "plain")
        expect(pod.run(plain, "cat", "/plain", "/etc/other") == "plain\ny", "an image without an index")
        pod.remove(plain)
        second = pod.start(app, "second")
        expect(pod.run(second, "cat", "/data/two") == "two\n", "another container of the image")
        parts = {mount["tree_layers"] for mount in varve.json("status")["mounts"] if mount["held_by"]}
        expect(parts == {0, 1, 2}, f"trees that are held: {parts}")

        # kubelet takes the image that nobody has used for the longest time, and layers that others have stay.
        pod.remove(first)
        pod.remove(second)
        node.remove_image(f"{host}/app:v1")
        node.remove_image(f"{host}/plain:v1")
        wait_for("the whole image's tree goes", lambda: {mount["tree_layers"] for mount in varve.json("status")["mounts"] if mount["held_by"]} == {1, 2})
        expect(pod.run(base, "sh", "-c", "cat /data/changed; ls /data") == "old\nchanged\ntwo\n", "what shares layers with it runs on")
        again = pod.start(f"{host}/base:v1", "again")
        expect(pod.run(again, "cat", "/data/changed") == "old\n", "and is started")
        began = time.monotonic()
        pull(node, f"{host}/app:v1", USER, PASSWORD)
        back = pod.start(f"{host}/app:v1", "back")
        expect(pod.run(back, "cat", "/data/changed") == "new\n", "the image is back")
    if version >= (1, 7):
        (in_user_namespaces if mode == "kernel" else users_are_refused)(node, varve, f"{host}/app:v1")
        node.stop()
        node.config.write_text(node.config.read_text().replace("remap-ids", "none"))
        node.start()
        in_user_namespaces(node, varve, f"{host}/app:v1", copied=True)
    for name in ("app", "base", "pause"):
        node.remove_image(f"{host}/{name}:v1")
    wait_for("nothing is held", lambda: not held(varve))
    wait_for("snapshots go", lambda: not node.snapshots())
    return seconds, started


def owners_of(pod, container, *paths):
    """[(user, group)] as the container sees them, in the order of the paths' names."""
    return [tuple(line.split()[2:4]) for line in pod.run(container, "ls", "-ldn", *paths).splitlines()]


def in_user_namespaces(node, varve, app, copied=False):
    """hostUsers: false. Each pod's root is somebody else outside; no file of the image is copied for it, but by a containerd that does not know better."""
    with Pod(node, "mapped", root=200000) as one, Pod(node, "beside", root=300000) as other:
        mapped, beside = one.start(app, "mapped"), other.start(app, "beside")
        for pod, container, root in ((one, mapped, 200000), (other, beside, 300000)):
            expect(pod.run(container, "cat", "/proc/self/uid_map").split() == ["0", str(root), "65536"], "a user namespace")
            found = owners_of(pod, container, "/", "/data", "/data/two", "/owned")
            expect(found == [("0", "0")] * 3 + [("1000", "1001")], found)
            expect(pod.run(container, "sh", "-c", "cat /owned; echo more >> /owned; echo mine > /data/new; cat /owned /data/new") == "owned\nowned\nmore\nmine\n", "what it writes")
            expect(owners_of(pod, container, "/data/new", "/owned") == [("0", "0"), ("1000", "1001")], "owners stay")
        made = {path.stat().st_uid: path.parents[2] for path in varve.root.glob("snapshotter/snapshots/*/fs/data/new")}
        expect(set(made) == {200000, 300000}, f"outside it belongs to {sorted(made)}")
        for folder in made.values():
            written = sorted(str(path.relative_to(folder / "fs")) for path in (folder / "fs").rglob("*") if path.is_file() and path.stat().st_size)
            expect(written == ["data/new", "owned"] or copied, f"copied: {written}")
            expect((folder / "fs/owned").stat().st_uid - (folder / "fs/data/new").stat().st_uid == 1000, "owners outside")
        varve.snapshotter.stop(kill=True)
        varve.snapshotter.start()
        node.wait_for_snapshotter()
        expect(one.run(one.start(app, "later"), "cat", "/data/changed") == "new\n", "a container that is started by the next snapshotter")
    def gone():
        return f"{varve.root}/snapshotter/" not in Path("/proc/self/mountinfo").read_text()
    try:
        wait_for("what showed other owners goes", gone)
    except AssertionError:  # a collection that failed containerd repeats when something else is removed
        print(f"what showed other owners is still there; {logs(node, varve)}", flush=True)
        with Pod(node, "another"):
            pass
        wait_for("what showed other owners goes with what is removed next", gone)


def users_are_refused(node, varve, app):
    """In fuse mode owners cannot be mapped: the pod does not start, kubelet is told why, and nothing is left of it."""
    before = len(node.snapshots())
    try:
        with Pod(node, "mapped", root=200000):
            raise SystemExit("a user namespace in fuse mode")
    except AssertionError as error:
        said = re.search(r"'grpc-message': (.*?)[}]", str(error))[1]
        expect("user namespace" in said and "--mode kernel" in said, said)
    wait_for("its snapshots go", lambda: len(node.snapshots()) == before)


def check(work, mode, name, binaries, version):
    place = work / name
    place.mkdir()
    made = make_images(place / "images")
    with private_registry(place) as host, node_of(place / "v") as varve:
        login = place / "auth.json"
        login.write_text(json.dumps({"auths": {host: {"auth": base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()}}}))
        login.chmod(0o600)
        varve.environment["REGISTRY_AUTH_FILE"] = str(login)
        for one, image in made.items():
            varve.json("image", "export", image, f"{host}/{one}:v1")
        varve.run("--root", place / "pipeline", "index", f"{host}/app:v1", check=True)  # by others, and signed by nobody: it counts for who asks by tag
        known(varve, f"{host}/app:v1")
        with Snapshotter(varve, mode) as varve.snapshotter, Containerd(place / "containerd", varve.snapshotter.address, varve.root, binaries, pause=f"{host}/pause:v1") as node:
            try:
                pulled, started = pods(node, varve, host, mode, version)
            except BaseException:
                print(f"{name}: {logs(node, varve)}", flush=True)
                raise
        print(f"{name}, {mode} mode: pull {pulled:.2f} s, sandbox + create + start {started:.2f} s", flush=True)


def main():
    need_containerd()
    program.need_tools("htpasswd")
    modes = program.modes()
    with program.work_folder() as work:
        check(work, modes[0], "containerd-1.6", "/usr/bin", (1, 6))
        try:
            root = debian13.cached("containerd")
        except debian13.Missing as error:
            return print(f"skipped: containerd of Debian 13 cannot be had: {error}")
        for mode in modes:
            check(work, mode, f"containerd-1.7-{mode}", root / "usr/bin", (1, 7))


if __name__ == "__main__":
    main()
