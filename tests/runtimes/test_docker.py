#!/usr/bin/env python3
"""Docker of Debian 13 with the containerd store on Varve's snapshotter: run, build on top by commit, run that; plain images as ever."""
import json, os, signal, subprocess, sys, time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "oracle"), str(TESTS / "run")]
import debian13, program  # noqa: E402
from containerd import Containerd, Snapshotter, need_containerd, wait_for  # noqa: E402
from test_cri import known, make_images, node_of  # noqa: E402
from test_export import registry_on_loopback  # noqa: E402
from tiny_image import expect  # noqa: E402


class Docker:
    """dockerd with a root of its own, over somebody else's containerd; containers are on the machine's network. Use as a context manager."""

    def __init__(self, node, binaries, daemon):
        self.node, self.client, self.daemon, self.work = node, binaries / "docker", daemon, node.work.parent / "docker"
        self.work.mkdir()
        self.settings = self.work / "daemon.json"
        self.settings.write_text(json.dumps({"features": {"containerd-snapshotter": True}, "storage-driver": "varve", "containerd": str(node.socket)}))
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def start(self):
        words = [self.daemon, "--config-file", self.settings, "--data-root", self.work / "data", "--exec-root", self.work / "exec", "--pidfile", self.work / "pid",
                 "-H", f"unix://{self.work}/docker.sock", "--bridge=none", "--iptables=false", "--ip6tables=false", "--userland-proxy=false", "--exec-opt", "native.cgroupdriver=cgroupfs"]
        environment = {**os.environ, "PATH": f"{self.node.binaries}:{os.environ['PATH']}", "TMPDIR": str(self.work)}
        with (self.work / "log").open("ab") as log:
            self.process = subprocess.Popen([*map(str, words)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        wait_for("dockerd answers", lambda: self.process.poll() is not None or not self.docker("version").returncode)
        if self.process.poll() is not None:
            program.skip(f"dockerd does not run here: {(self.work / 'log').read_text().strip().splitlines()[-1]}")

    def stop(self):
        if self.process:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(30)
            self.process = None

    def __exit__(self, *_):
        try:
            containers = self.docker("ps", "-aq").stdout.split()
            if containers:
                self.docker("rm", "-f", *containers)
        finally:
            self.stop()
            for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
                if line.split()[1].startswith(f"{self.work}/"):  # its network namespace, for one
                    subprocess.run(["umount", "-l", line.split()[1]])

    def docker(self, *words, check=False):
        done = subprocess.run([self.client, "-H", f"unix://{self.work}/docker.sock", *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120,
                              env={**os.environ, "HOME": str(self.work), "DOCKER_BUILDKIT": "0"})  # the builder that needs no plugin
        if check and done.returncode:
            raise AssertionError(f"docker {' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr}\n{(self.work / 'log').read_text()[-2000:]}")
        return done

    def run(self, *words):
        return self.docker("run", "--network=host", *words, check=True).stdout


def check(work, mode, root):
    made = make_images(work / "images")
    with registry_on_loopback(work) as host, node_of(work / "v") as varve:
        varve.index(made["app"])
        for name in ("app", "plain"):
            varve.json("image", "export", made[name], f"{host}/{name}:v1")
        known(varve, f"{host}/app:v1")
        with Snapshotter(varve, mode) as varve.snapshotter, Containerd(work / "containerd", varve.snapshotter.address, varve.root, root / "usr/bin") as node, \
                Docker(node, root / "usr/bin", root / "usr/sbin/dockerd") as docker:
            (empty := docker.work / "empty").mkdir()
            began = time.monotonic()
            docker.docker("pull", f"{host}/app:v1", check=True)
            pulled = time.monotonic() - began
            expect(node.content_bytes() < 100_000, f"{node.content_bytes()} bytes of an indexed image were fetched: {varve.snapshotter.log.read_text()[-2000:]}")
            expect(docker.run("--rm", f"{host}/app:v1", "cat", "/data/two", "/data/changed") == "two\nnew\n", "run")
            docker.run("--name", "build", f"{host}/app:v1", "sh", "-c", "echo built > /data/built; echo more > /data/two")
            docker.docker("commit", "-c", 'CMD ["ls", "/data"]', "build", "built:v1", check=True)
            expect(docker.run("--rm", "built:v1") == "built\nchanged\nlarge\ntwo\n", "what was committed runs")
            changed = sorted(docker.docker("diff", "build", check=True).stdout.splitlines())
            expect([line for line in changed if "/data" in line] == ["A /data/built", "C /data", "C /data/two"], f"docker diff: {changed}")
            (docker.work / "Dockerfile").write_text(f"FROM {host}/app:v1\nRUN echo step > /data/step\nCMD [\"cat\", \"/data/step\", \"/data/two\"]\n")
            docker.docker("build", "--network=host", "-t", "stepped:v1", "-f", docker.work / "Dockerfile", empty, check=True)
            expect(docker.run("--rm", "stepped:v1") == "step\ntwo\n", "what was built on top runs")
            expect(docker.run("--rm", f"{host}/plain:v1", "cat", "/plain") == "plain\n", "an image without an index")
            docker.docker("rm", "build", check=True)
            for image in ("built:v1", "stepped:v1", f"{host}/app:v1", f"{host}/plain:v1"):
                docker.docker("rmi", image, check=True)
            wait_for("nothing is held", lambda: not [mount for mount in varve.json("status")["mounts"] if mount["held_by"]])
    print(f"docker, {mode} mode: pull {pulled:.2f} s", flush=True)


def docker_of_debian_13():
    """The root folder of its programs."""
    need_containerd()
    try:
        return debian13.cached("containerd", "docker.io", "docker-cli")
    except debian13.Missing as error:
        program.skip(f"Docker of Debian 13 cannot be had: {error}")


def main():
    root = docker_of_debian_13()
    with program.work_folder() as work:
        check(work, program.modes()[0], root)


if __name__ == "__main__":
    main()
