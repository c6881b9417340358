"""What docs/howto/docker.md takes for given: a registry with an image, Varve's daemon and snapshotter, containerd and Docker of Debian 13 as services, as their packages leave them."""
import contextlib, json, os, sys, threading, time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("oracle", "run", "runtimes")]
import program  # noqa: E402
from containerd import Containerd, Snapshotter  # noqa: E402
from test_cri import known, make_images  # noqa: E402
from test_docker import Docker, docker_of_debian_13  # noqa: E402
from test_export import registry_on_loopback  # noqa: E402
from tiny_image import expect  # noqa: E402

# Its first line is all that Docker's own package (containerd.io) says there; the rest keeps it in the test's folder.
CONFIG = """disabled_plugins = ["cri"]
root = "{work}/root"
state = "{work}/state"
[grpc]
  address = "{work}/containerd.sock"
[ttrpc]
  address = "{work}/containerd.sock.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/opt"
"""
# As `systemctl restart NAME`: asks the test, which has the processes, and waits until it is done.
SYSTEMCTL = """#!/bin/sh
test "$1" = restart && mkdir "{place}/$2" || exit 1
while [ -d "{place}/$2" ]; do sleep 0.05; done
"""


class Services:
    """Those that were asked for are restarted until the block ends."""

    def __init__(self, place, services):
        self.place, self.services, self.ended, self.failed = place, services, threading.Event(), []
        self.thread = threading.Thread(target=self.serve)

    def serve(self):
        while not self.ended.wait(0.05):
            for asked in self.place.iterdir():
                try:
                    self.services[asked.name].stop()
                    self.services[asked.name].start()
                except (Exception, SystemExit) as error:  # dockerd may not run on this machine
                    self.failed.append(error)
                asked.rmdir()

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()
        for error in self.failed:
            raise error


def prepare(folder, varve):
    return machine(folder.parent, varve, docker_of_debian_13())


@contextlib.contextmanager
def machine(place, varve, root):
    made = make_images(place / "images")
    address = varve.root / "run/snapshotter.sock"
    for name in ("asked", "stand-in"):
        (place / name).mkdir()
    (place / "stand-in/systemctl").write_text(SYSTEMCTL.format(place=place / "asked"))
    (place / "stand-in/systemctl").chmod(0o755)
    with registry_on_loopback(place) as host, Snapshotter(varve, program.modes()[0], address) as varve.snapshotter:
        varve.index(made["app"])
        varve.run("image", "export", made["app"], f"{host}/team/app:v1", check=True)
        known(varve, f"{host}/team/app:v1")
        node = Containerd(place / "containerd", address, varve.root, root / "usr/bin", config=CONFIG)
        docker = Docker(node, root / "usr/bin", root / "usr/sbin/dockerd")
        docker.settings.unlink()
        with contextlib.ExitStack() as ends:
            ends.push(node.__exit__)
            ends.push(docker.__exit__)
            varve.environment.update(REGISTRY=host, CONFIG=str(node.config), CONTAINERD=str(node.socket), DOCKER=str(docker.work), DOCKER_HOST=f"unix://{docker.work}/docker.sock",
                                     PATH=f"{place}/stand-in:{root}/usr/bin:{os.environ['PATH']}")
            with Services(place / "asked", {"containerd": node, "docker": docker}):
                yield
            expect(json.loads(docker.docker("info", "--format", "json", check=True).stdout)["Driver"] == "varve", "Docker is not on Varve's snapshotter")
            expect(node.content_bytes() < 100_000, f"{node.content_bytes()} bytes of an indexed image were fetched: {varve.snapshotter.log.read_text()[-2000:]}")


def check(folder, output):
    lines = output.splitlines()
    expect("two" in lines and "mine" in lines and "A /data/three" in lines, output)
    expect("cri" in output and "team/app" in output, output)
