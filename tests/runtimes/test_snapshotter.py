#!/usr/bin/env python3
"""`varve snapshotter` under the real containerd: images with an index are not fetched, all others work as ever, and whoever of the three is killed, containers go on and nothing is left."""
import contextlib, os, signal, socket, subprocess, sys, time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "oracle"), str(TESTS / "run")]
import layouts, program, tars, tiny_image  # noqa: E402
from containerd import Containerd, Snapshotter, need_containerd, wait_for  # noqa: E402
from test_export import registry_on_loopback  # noqa: E402
from tiny_image import expect  # noqa: E402


def layer(tar):
    return (layouts.zlib_gzip(level=1)(tar, None), tar, layouts.GZIP, None)


def tools():
    """A layer with a shell."""
    base = tars.Tar().dir("bin").dir("etc").dir("tmp", mode=0o1777)
    for path, content in sorted(tiny_image.needed_files().items()):
        base.file(path, content, mode=0o755)
    return base.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n").file("etc/gone", b"x")


def make_images(folder):
    """name -> reference: app and its two lowest layers; other has those two and one more, and plain nothing of them."""
    config = {"Cmd": ["sh"], "Env": ["PATH=/bin"], "WorkingDir": "/"}
    first = layer(tools().bytes())
    second = layer(tars.Tar().dir("data", mode=0o750).file("data/two", b"two\n").file("data/changed", b"old\n").whiteout("etc/gone").bytes())
    more = [layer(tars.Tar().file("data/three", os.urandom(3_000_000)).bytes()), layer(tars.Tar().file("data/changed", b"new\n").file("owned", b"", uid=1000, gid=1001).bytes())]
    own = layer(tars.Tar().file("data/five", b"five\n").whiteout("data/two").bytes())
    plain = [layer(tools().file("etc/plain", b"plain\n").bytes()), layer(tars.Tar().file("top", b"top\n").whiteout("etc/gone").bytes())]
    stacks = {"app": [first, second, *more], "base": [first, second], "other": [first, second, own], "plain": plain, "pause": [first]}
    return {name: layouts.write_image(folder / name, layers, config=config) for name, layers in stacks.items()}


def lines_of(snapshotter, word):
    return [line for line in snapshotter.log.read_text().splitlines() if word in line]


def pull_and_run(node, varve, host):
    seconds = node.pull(f"{host}/app:v1")
    fetched = node.content_bytes()
    expect(fetched < 100_000, f"{fetched} bytes of an indexed image were fetched: {varve.snapshotter.log.read_text()}")
    said = node.run(f"{host}/app:v1", "first", "sh", "-c", "cat /data/two /data/changed; ls -d /etc/gone 2> /tmp/none; echo written > /data/mine; cat /data/mine")
    expect(said == "two\nnew\nwritten\n", said)
    # Its chain is known to containerd: no Prepare says what image it is.
    node.pull(f"{host}/base:v1")
    said = node.run(f"{host}/base:v1", "prefix", "sh", "-c", "cat /data/changed; ls /data; ls -d /etc/gone 2> /tmp/none; true")
    expect(said == "old\nchanged\ntwo\n", said)
    node.pull(f"{host}/other:v1")
    said = node.run(f"{host}/other:v1", "above", "sh", "-c", "ls /data; ls -d /etc/gone 2> /tmp/none; true")
    expect(said == "changed\nfive\n", said)
    return seconds


def run_plain(node, varve, host):
    seconds = node.pull(f"{host}/plain:v1")
    said = node.run(f"{host}/plain:v1", "plain", "cat", "/etc/plain", "/top")
    expect(said == "plain\ntop\n", said)
    refused = varve.snapshotter.status()["refused"]
    expect([one for one in refused if "/plain:v1" in one["reference"] and one["why"]], refused)
    expect(lines_of(varve.snapshotter, "not mounted lazily"), "nothing in the log of an image that was fetched whole")
    # Without labels, all fetched first: what ctr of 1.6 does.
    node.ctr("images", "pull", "--snapshotter", "varve", "--plain-http", f"{host}/plain:v1", namespace="default", check=True)
    expect(node.run(f"{host}/plain:v1", "again", "cat", "/top", namespace="default") == "top\n", "an image that ctr pulled")
    return seconds


def owners(node, host):
    """A user namespace: in kernel mode by mounts with other owners, and no file is copied."""
    node.ctr("run", "--snapshotter", "varve", "-d", "--remap-labels", "--uidmap", "0:100000:65536", "--gidmap", "0:100000:65536", f"{host}/app:v1", "mapped", "sh", "-c",
             "ls -ln /owned > /tmp/seen; echo x > /data/new && sleep 300", check=True)
    pid = int(next(line.split()[1] for line in node.ctr("tasks", "ls").stdout.splitlines() if line.startswith("mapped")))
    upper = Path(f"/proc/{pid}/root")
    wait_for("the container writes", lambda: (upper / "data/new").exists())
    seen = (upper / "tmp/seen").read_text().split()
    expect(seen[2:4] == ["1000", "1001"], seen)
    made = (upper / "data/new").stat()
    expect((made.st_uid, made.st_gid) == (100000, 100000), f"what the container's root writes belongs to {made.st_uid}")
    expect((upper / "owned").stat().st_uid == 101000, "owners beneath are not mapped")
    node.ctr("tasks", "rm", "-f", "mapped", check=True)
    node.ctr("containers", "rm", "mapped", check=True)


def survive(node, varve, host):
    """The snapshotter, the daemon and containerd die while a container runs."""
    node.ctr("run", "--snapshotter", "varve", "-d", "--net-host", f"{host}/app:v1", "kept", "sleep", "300", check=True)
    step = iter(range(100))

    def works(after):
        node.wait_for_snapshotter()
        said = node.exec("kept", f"e{next(step)}", "sh", "-c", "cat /data/two; cat /data/three | od -An -c -N1 > /dev/null && echo read")
        expect(said == "two\nread\n", f"after {after}: {said}")
        expect(node.run(f"{host}/app:v1", f"new{next(step)}", "cat", "/data/changed") == "new\n", f"after {after}")

    varve.snapshotter.stop(kill=True)
    expect(node.exec("kept", "alone", "cat", "/data/two") == "two\n", "without a snapshotter a container goes on")
    expect(node.run(f"{host}/app:v1", "refused", "true", check=False) == "", "no snapshotter")
    varve.snapshotter.start()
    works("kill -9 of the snapshotter")
    os.kill(varve.daemon_pid(), signal.SIGKILL)
    works("kill -9 of the daemon")
    varve.snapshotter.stop()
    os.kill(varve.daemon_pid(), signal.SIGKILL)
    varve.snapshotter.start()
    node.stop(kill=True)
    node.start()
    works("all three")
    varve.run("daemon", "--replace", check=True)
    works("an upgrade of the daemon")
    with socket.socket(socket.AF_UNIX) as listener:  # kept open by systemd while one snapshotter follows another
        varve.snapshotter.stop()
        listener.bind(str(varve.snapshotter.address))
        listener.listen()
        waiting = subprocess.Popen([node.binaries / "ctr", "--address", node.socket, "-n", "k8s.io", "run", "--rm", "--snapshotter", "varve", "--net-host", f"{host}/app:v1", "waits", "cat", "/data/two"],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(0.3)
        varve.snapshotter.start(listener)
        said = waiting.communicate(timeout=60)
        expect(said[0] == "two\n", f"a container that was asked for meanwhile: {said}")
        works("a restart with a socket that stays open")
    node.ctr("tasks", "rm", "-f", "kept", check=True)
    node.ctr("containers", "rm", "kept", check=True)


def crowd(node, varve, host, count, at_once=8):
    """Many at a time; then as many snapshots as before."""
    wait_for("snapshots of removed containers go", lambda: varve.snapshotter.status()["snapshots"]["active"] == 0)
    script = f'i=$1; exec {node.binaries}/ctr --address {node.socket} -n k8s.io run --rm --snapshotter varve --net-host {host}/app:v1 crowd-$i cat /data/two'
    done = subprocess.run(["xargs", "-P", str(at_once), "-I{}", "sh", "-c", script, "sh", "{}"], input="\n".join(map(str, range(count))), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
    expect(done.stdout == "two\n" * count, f"{done.stdout.count('two')} of {count} containers ran: {done.stderr[-2000:]}")


def remove_all(node, varve, host):
    for name in ("app", "base", "other", "plain"):
        node.remove_image(f"{host}/{name}:v1")
    for image in node.ctr("images", "ls", "-q", namespace="default").stdout.split():
        node.ctr("images", "rm", "--sync", image, namespace="default", check=True)
    wait_for("containerd removes snapshots", lambda: not node.snapshots() and not node.snapshots("default"))
    wait_for("nothing is left", lambda: varve.snapshotter.status()["snapshots"] == {"active": 0, "views": 0, "unpacked": 0, "placeholders": 0})
    folders = varve.root / "snapshotter/snapshots"
    wait_for("folders go", lambda: not list(folders.iterdir()))
    wait_for("no tree is held", lambda: not [mount for mount in varve.json("status")["mounts"] if mount.get("held_by")])


@contextlib.contextmanager
def held_no_more(varve):
    """What a test that failed leaves held keeps the daemon."""
    try:
        yield
    except BaseException:
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{varve.root}/"):
                subprocess.run(["umount", "-l", line.split()[1]])
        varve.run("daemon", "--stop", "--force", "--time", "1")
        print(varve.snapshotter.log.read_text()[-3000:], file=sys.stderr)
        raise


def check(work, mode, *crowded):
    images = make_images(work / "images")
    with registry_on_loopback(work) as host, program.Varve(work) as varve:
        for name in ("app", "plain", "base", "other", "pause"):
            if name == "app":
                varve.index(images[name])
            varve.json("image", "export", images[name], f"{host}/{name}:v1")
        varve.snapshotter = Snapshotter(varve, mode)
        with held_no_more(varve), varve.snapshotter, Containerd(work / "containerd", varve.snapshotter.address, varve.root, pause=f"{host}/pause:v1") as node:
            seconds = pull_and_run(node, varve, host), run_plain(node, varve, host)
            if mode == "kernel":
                owners(node, host)
            survive(node, varve, host)
            crowd(node, varve, host, *crowded)
            memory = int(next(line.split()[1] for line in Path(f"/proc/{varve.snapshotter.process.pid}/status").read_text().splitlines() if line.startswith("VmRSS")))
            remove_all(node, varve, host)
            print(f"{mode} mode: pull {seconds[0]:.2f} s lazily, {seconds[1]:.2f} s plain; {crowded[0]} containers; the snapshotter has {memory / 1024:.1f} MiB", flush=True)


def main():
    need_containerd()
    crowded = [int(word) for word in sys.argv[1:]] or [12]  # how many containers, and how many at a time
    with program.work_folder() as work:
        check(work, program.modes()[0], *crowded)


if __name__ == "__main__":
    main()
