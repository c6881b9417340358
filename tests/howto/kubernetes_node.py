"""What docs/howto/kubernetes-node.md takes for given: a registry with an image, Varve's daemon and snapshotter, and containerd's file as it was. When the page is through, containerd starts with what it wrote, and a
pod's image is pulled by the kubelet's calls and not fetched."""
import contextlib, sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("oracle", "run", "runtimes")]
import program, tiny_image  # noqa: E402
from containerd import Containerd, Snapshotter, need_containerd  # noqa: E402
from cri import Pod, pull  # noqa: E402
from test_cri import known, make_images  # noqa: E402
from test_export import registry_on_loopback  # noqa: E402

CONFIG = """version = 2
root = "{work}/root"
state = "{work}/state"  # of this node
[grpc]
  address = "{work}/containerd.sock"
[ttrpc]
  address = "{work}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/opt"
"""


def prepare(folder, varve):
    need_containerd()
    return node(folder, varve)


@contextlib.contextmanager
def node(folder, varve):
    made = make_images(folder.parent / "images")
    address = varve.root / "run/snapshotter.sock"
    with registry_on_loopback(folder.parent) as host, Snapshotter(varve, program.modes()[0], address) as varve.snapshotter:
        varve.run("daemon", "--stop", check=True)  # that none runs is found below
        for name in ("app", "pause"):
            varve.run("--root", folder.parent / "pipeline", "image", "export", made[name], f"{host}/team/{name}:v1", check=True)
        containerd = Containerd(folder.parent / "containerd", address, varve.root, pause=f"{host}/team/pause:v1", config=CONFIG)
        varve.environment.update(REGISTRY=host, CONFIG=str(containerd.config))
        yield
        written = containerd.config.read_text()
        tiny_image.expect("# of this node" in written and '# was: snapshotter = "overlayfs"' in written, written)
        tiny_image.expect(len(list(containerd.work.glob("config.toml.before-varve-*"))) == 1, "what was there is kept")
        with containerd, contextlib.ExitStack() as pods:
            known(varve, f"{host}/team/app:v1")
            pull(containerd, f"{host}/team/app:v1")
            tiny_image.expect(containerd.content_bytes() < 100_000, f"{containerd.content_bytes()} bytes of an indexed image were fetched: {varve.snapshotter.log.read_text()[-2000:]}")
            pod = pods.enter_context(Pod(containerd, "one"))
            container = pod.start(f"{host}/team/app:v1", "app")
            tiny_image.expect(pod.run(container, "cat", "/data/changed") == "new\n", "the pod's files")


def check(folder, output):
    for words in ("[proxy_plugins.varve]", "running containers go on", "systemctl enable --now varve.service"):
        tiny_image.expect(words in output, f"{words}: {output}")
