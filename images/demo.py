#!/usr/bin/python3
"""The demonstration of `make demo`: a real image is made, indexed, mounted lazily and run, beside a full pull and unpack of the same image."""
import argparse, json, os, shutil, signal, subprocess, sys, time
from pathlib import Path

HERE = Path(__file__).resolve().parent
WORK = "import numpy, pandas, sklearn; print('numpy', numpy.__version__, 'pandas', pandas.__version__, 'sklearn', sklearn.__version__)"


def fail(text):
    sys.exit(f"make demo: {text}")


class Demo:
    def __init__(self, varve, out):
        self.varve, self.out, self.image_dir = Path(varve).resolve(), Path(out).resolve(), Path(out).resolve() / "image"
        self.image = f"oci:{self.image_dir}:latest"
        self.state, self.tree = self.out / "state", self.out / "unpacked"
        self.environment = {**os.environ, "VARVE_ROOT": str(self.state), "VARVE_CONFIG": "/dev/null"}
        self.rows, self.mounted = [], None

    def call(self, *arguments):
        command = [str(self.varve), *map(str, arguments)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment)
        if done.returncode:
            fail(f"`varve {' '.join(map(str, arguments))}` ended with {done.returncode}:\n{done.stderr.strip()}")
        return done.stdout

    def json(self, *arguments):
        return json.loads(self.call(*arguments, "--json"))

    def make_image(self):
        subprocess.run(["/usr/bin/python3", HERE / "build.py", HERE / "demo", self.image_dir], check=True)
        index = json.loads((self.image_dir / "index.json").read_text())
        entry = next(m for m in index["manifests"] if m.get("annotations", {}).get("org.opencontainers.image.ref.name") == "latest")
        self.layers = json.loads((self.image_dir / "blobs" / entry["digest"].replace(":", "/")).read_text())["layers"]
        self.image_bytes = sum(layer["size"] for layer in self.layers)

    def index(self):
        report = self.json("index", "--force", self.image)
        stream = sum(layer["stream_bytes"] for layer in report["layers"])
        print(f"\nimage    {mb(self.image_bytes)} in {len(self.layers)} layers, {mb(stream)} unpacked: {self.image}")
        print(f"index    {report['seconds']:.2f} s, {mb(report['index_bytes'])} beside the image ({100 * report['index_bytes'] / self.image_bytes:.2f} % of it); "
              f"{mb(report['first_load_bytes'])} are loaded to mount it; the image is as it was")

    def full_pull(self):
        """What a runtime without lazy loading does: reads and unpacks every layer before the first instruction."""
        shutil.rmtree(self.tree, ignore_errors=True)
        started = time.monotonic()
        rootless = [] if os.getuid() == 0 else ["--rootless"]
        done = subprocess.run(["umoci", "unpack", *rootless, "--image", f"{self.image_dir}:latest", self.tree], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            fail(f"umoci unpack: {done.stdout[-1000:]}")
        ready = time.monotonic() - started
        for name in ("full pull, unpacked (umoci)", "the same, second run"):
            started = time.monotonic()
            self.call("run", "--rm", "--rootfs", self.tree / "rootfs", "--", "/usr/bin/python3", "-c", WORK)
            seconds = time.monotonic() - started
            self.rows.insert(0 if ready else 1, (name, ready, ready + seconds, self.image_bytes if ready else 0, len(self.layers) if ready else 0))
            ready = 0.0

    def mount(self):
        folder = self.out / "mnt"
        folder.mkdir(exist_ok=True)
        report = self.json("mount", self.image, folder)
        self.mounted = folder
        print(f"mount    {report['seconds']:.2f} s, {report['mode']} mode, {mb(report['loaded_bytes'])} read: {folder}")
        return report

    def lazy_runs(self):
        mount = self.mount()
        for name in ("varve run, cold", "varve run, warm"):
            stats_file = self.out / "stats.json"
            started = time.monotonic()
            said = self.call("run", "--rm", "--stats", stats_file, self.image, "--", "python3", "-c", WORK)
            seconds, stats = time.monotonic() - started, json.loads(stats_file.read_text())
            first = mount["seconds"] if name.endswith("cold") else 0.0
            loaded = mount["loaded_bytes"] if name.endswith("cold") else 0
            self.rows.append((name, first + stats["ready_seconds"], first + seconds, stats["fetched_bytes"] + loaded, stats["requests"]))
            print(f"{name.split()[-1]:8} {said.strip()}")

    def table(self):
        print(f"\n{'':30}{'ready, s':>10}{'done, s':>10}{'read':>12}{'of image':>10}{'requests':>10}")
        for name, ready, done, read, requests in self.rows:
            print(f"{name:30}{ready:10.2f}{done:10.2f}{mb(read):>12}{100 * read / self.image_bytes:8.1f} %{requests:10d}")
        print("ready: the command can start; done: numpy, pandas and sklearn are imported; read: compressed bytes taken from the image")

    def clean_up(self):
        if self.mounted:
            subprocess.run([self.varve, "unmount", self.mounted], env=self.environment, stdout=subprocess.DEVNULL)
        status = subprocess.run([self.varve, "status", "--json"], env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        daemon = json.loads(status.stdout).get("daemon") if status.returncode == 0 and status.stdout else None
        if isinstance(daemon, dict) and daemon.get("pid"):
            subprocess.run([self.varve, "daemon", "--stop", "--force"], env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for line in Path("/proc/self/mounts").read_text().splitlines():
            if line.split()[1].startswith(str(self.out) + "/"):
                subprocess.run(["umount", "-l", line.split()[1]], stderr=subprocess.DEVNULL)
        # umoci leaves folders that their owner may not write: files of the image are gone with the rest.
        for folder in (self.tree, self.state):
            subprocess.run(["chmod", "-R", "u+rwX", folder], stderr=subprocess.DEVNULL) if os.getuid() else None
            shutil.rmtree(folder, ignore_errors=True)


def mb(count):
    return f"{count / 1e6:.1f} MB"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--varve", required=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    Path(options.out).mkdir(parents=True, exist_ok=True)
    demo = Demo(options.varve, options.out)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        demo.make_image()
        demo.clean_up()  # what a demo that was killed may have left
        demo.index()
        demo.lazy_runs()
        demo.full_pull()
        demo.table()
    finally:
        demo.clean_up()


if __name__ == "__main__":
    main()
