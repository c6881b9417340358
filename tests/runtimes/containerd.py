"""A containerd of its own for a test: folders, socket and configuration below the test's folder, ctr, and the CRI's image service."""
import json, os, shutil, subprocess, time
from pathlib import Path

# Of any containerd that is one's own.
BASE = """version = 2
root = "{work}/root"
state = "{work}/state"
oom_score = 0
[grpc]
  address = "{work}/containerd.sock"
[ttrpc]
  address = "{work}/containerd.sock.ttrpc"
[debug]
  level = "warn"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/opt"
"""
CONFIG = BASE + """
[proxy_plugins.varve]
  type = "snapshot"
  address = "{snapshotter}"
  capabilities = ["remap-ids"]
  [proxy_plugins.varve.exports]
    root = "{exports}"
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  stream_server_port = "0"
  sandbox_image = "{pause}"
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{work}/cni"
  conf_dir = "{work}/cni"
[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "varve"
  disable_snapshot_annotations = false
[plugins."io.containerd.gc.v1.scheduler"]
  deletion_threshold = 1
"""

# A network plugin that gives pods a network of their own and changes nothing of the machine's.
NETWORK = """#!/bin/sh
case $CNI_COMMAND in
  VERSION) echo '{"cniVersion": "0.4.0", "supportedVersions": ["0.3.1", "0.4.0"]}' ;;
  ADD) echo '{"cniVersion": "0.4.0", "interfaces": [{"name": "'$CNI_IFNAME'", "sandbox": "'$CNI_NETNS'"}], "ips": [{"version": "4", "interface": 0, "address": "192.0.2.2/24"}]}' ;;
esac
"""


def varint(number):
    out = b""
    while number > 0x7F:
        out, number = out + bytes([number & 0x7F | 0x80]), number >> 7
    return out + bytes([number])


def field(number, content):
    """A protobuf field of bytes, text or a message."""
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2) + varint(len(content)) + content


class Containerd:
    """Use as a context manager: it and its containers are gone when it ends, whatever happened."""

    def __init__(self, work, snapshotter, exports, binaries="/usr/bin", pause="", config=CONFIG):
        self.work, self.binaries = Path(work), Path(binaries)
        self.socket, self.process = self.work / "containerd.sock", None
        self.work.mkdir(parents=True, exist_ok=True)
        self.config, self.log = self.work / "config.toml", self.work / "log"
        self.config.write_text(config.format(work=self.work, snapshotter=snapshotter, exports=exports, pause=pause))
        network = self.work / "cni"
        network.mkdir()
        for plugin in ("loopback", "none"):
            (network / plugin).write_text(NETWORK)
            (network / plugin).chmod(0o755)
        (network / "none.conflist").write_text('{"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "none"}]}')

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        try:
            for namespace in ("default", "k8s.io"):
                for container in self.ctr("tasks", "ls", "-q", namespace=namespace).stdout.split():
                    self.ctr("tasks", "rm", "-f", container, namespace=namespace)
        finally:
            self.stop()
            for line in sorted(Path("/proc/self/mounts").read_text().splitlines(), reverse=True):
                if line.split()[1].startswith(f"{self.work}/"):
                    subprocess.run(["umount", "-l", line.split()[1]])

    def start(self):
        environment = {**os.environ, "PATH": f"{self.binaries}:{os.environ['PATH']}"}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([self.binaries / "containerd", "--config", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        for _ in range(600):
            if self.process.poll() is not None:
                break
            if self.socket.exists() and self.ctr("version").returncode == 0:
                return
            time.sleep(0.05)
        raise AssertionError(f"containerd does not start: {self.log.read_text()[-2000:]}")

    def stop(self, kill=False):
        if self.process:
            self.process.kill() if kill else self.process.terminate()
            self.process.wait(30)
            self.process = None

    def ctr(self, *arguments, namespace="k8s.io", check=False, timeout=60):
        done = subprocess.run([self.binaries / "ctr", "--address", self.socket, "--namespace", namespace, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=timeout)
        if check and done.returncode:
            raise AssertionError(f"ctr {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr}{self.log.read_text()[-3000:]}")
        return done

    def run(self, image, name, *command, options=(), namespace="k8s.io", check=True):
        """What a container that ends with its command says; on the machine's network, and without a limit."""
        return self.said(("run", "--rm", "--snapshotter", "varve", "--net-host", *options), (image, name, *command), namespace, check)

    def exec(self, container, name, *command, namespace="k8s.io"):
        return self.said(("tasks", "exec", "--exec-id", name), (container, *command), namespace, True)

    def said(self, call, words, namespace, check):
        """Through a file: ctr stops reading its pipes when the process ends, and loses the last line on a busy machine."""
        said = self.work / "said"
        said.unlink(missing_ok=True)
        done = self.ctr(*call, "--log-uri", f"file://{said}", *words, namespace=namespace)
        text = said.read_text() if said.exists() else ""
        if check and done.returncode:
            raise AssertionError(f"ctr {' '.join(map(str, (*call, *words)))}: exit {done.returncode}\n{text}{done.stderr}{self.log.read_text()[-3000:]}")
        return text

    def cri(self, method, message):
        """One call of the CRI by HTTP/2, as curl speaks it. Returns the answer's bytes."""
        asked, heads = self.work / "asked", self.work / "heads"
        asked.write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
        done = subprocess.run(["curl", "-sS", "--http2-prior-knowledge", "--unix-socket", self.socket, "-D", heads, "-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", f"@{asked}",
                               f"http://localhost/runtime.v1.{method}"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
        said = dict(line.lower().split(": ", 1) for line in heads.read_text().splitlines() if ": " in line)
        if done.returncode or said.get("grpc-status") != "0":
            raise AssertionError(f"{method}: {done.stderr.decode()} {said}\n{self.log.read_text()[-3000:]}")
        return done.stdout[5:]

    def pull(self, image):
        """As kubelet does. Seconds that it took."""
        began = time.monotonic()
        self.cri("ImageService/PullImage", field(1, field(1, image)))
        return time.monotonic() - began

    def remove_image(self, image):
        self.cri("ImageService/RemoveImage", field(1, field(1, image)))

    def snapshots(self, namespace="k8s.io"):
        return self.ctr("snapshots", "--snapshotter", "varve", "ls", namespace=namespace, check=True).stdout.splitlines()[1:]

    def wait_for_snapshotter(self):
        """containerd tries again only after a while, up to 3 s."""
        wait_for("containerd reaches the snapshotter", lambda: self.ctr("snapshots", "--snapshotter", "varve", "ls").returncode == 0)

    def content_bytes(self):
        """Of blobs that were fetched."""
        return sum(f.stat().st_size for f in (self.work / "root/io.containerd.content.v1.content/blobs").rglob("*") if f.is_file())


def wait_for(what, condition, seconds=30):
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.05)


class Snapshotter:
    """`varve snapshotter` on the state of a program.Varve."""

    def __init__(self, varve, mode="auto", address=None):
        self.varve, self.mode, self.process = varve, mode, None
        self.address = address or varve.work / "snapshotter.sock"
        self.log = varve.work / "snapshotter.log"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, listener=None):
        """`listener`: a listening socket at the address, handed over as systemd does."""
        command = [self.varve.binary, "-v", "snapshotter", "--address", self.address, "--mode", self.mode]
        if listener:
            command = ["sh", "-c", f'exec 3<&{listener.fileno()}; LISTEN_FDS=1 LISTEN_PID=$$ exec "$@"', "sh", *command]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.varve.environment, pass_fds=[listener.fileno()] if listener else [])
        wait_for(f"the snapshotter serves; {self.log.read_text()[-500:]}", lambda: self.process.poll() is not None or self.status().get("serving"))
        if self.process.poll() is not None:
            raise AssertionError(f"the snapshotter ended: {self.log.read_text()[-2000:]}")

    def stop(self, kill=False):
        if self.process:
            self.process.kill() if kill else self.process.terminate()
            self.process.wait(30)
            self.process = None

    def status(self):
        done = self.varve.run("snapshotter", "--status", "--json", "--address", self.address)
        return {} if done.returncode else json.loads(done.stdout)


def need_containerd():
    import program
    program.need_root()
    program.need_own_root()
    program.need_fuse()
    program.need_tools("containerd", "ctr", "runc", "docker-registry", "curl")
    assert shutil.which("containerd-shim-runc-v2"), "containerd without its shim"
