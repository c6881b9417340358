#!/usr/bin/python3
"""mirrors.py oci:DIR:TAG: an image's first start on an empty machine behind a link, alone; where its first mirror refuses connections; where that takes them and says nothing; and beside 64 readers
of a registry that has stopped. In turn, so that what else the machine does falls on all. The image must have python3, and gets an index. Needs root. See bench/README.md.
"""
import argparse, contextlib, os, signal, socket, subprocess, sys, threading, time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests" / name) for name in ("oracle", "registry", "mount")]
import layouts, tars  # noqa: E402
from machine import wait_for  # noqa: E402
from program import modes, need_fuse, need_root, work_folder  # noqa: E402
from run import HERE, empty_machine, layout_of, ratio, served, spread  # noqa: E402
from test_mirrors import hosts_toml  # noqa: E402
from touched import drop_caches  # noqa: E402

WAYS = {"alone": "", "a first mirror that refuses": "", "a silent first mirror": "reach 1.10", "beside readers": "reach 1.05"}
READERS, BYTES_EACH = 64, 300_000


@contextlib.contextmanager
def dead_host(listens):
    """Where it listens the kernel takes connections, which nobody ever looks at; else it refuses them."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        if listens:
            one.listen(1024)
        yield f"127.0.0.1:{one.getsockname()[1]}"


@contextlib.contextmanager
def registry_of(layout):
    """A process that can be stopped, and what its image is called."""
    process = subprocess.Popen(["/usr/bin/python3", HERE / "layout_registry.py", layout], stdout=subprocess.PIPE, text=True)
    try:
        yield process, f"docker://127.0.0.1:{int(process.stdout.readline())}/{layout.name}:latest"
    finally:
        process.terminate()
        process.wait()


def read(path):
    with contextlib.suppress(OSError):
        path.read_bytes()


class Bench:
    def __init__(self, options):
        self.options = options
        self.layout, self.tag = layout_of(options.image)

    def varve(self, work):
        return empty_machine(self.options.varve, work)

    def run(self, work):
        noise = tars.Tar().dir("data")
        for number in range(READERS):
            noise.file(f"data/{number}", os.urandom(BYTES_EACH))
        other = layouts.gzip_image(work / "other", [noise.bytes()], "latest")
        with self.varve(work / "index") as varve:
            for image in (other, self.options.image):
                varve.index(image, timeout=3600)
        with contextlib.ExitStack() as stack:
            self.registry, self.other = stack.enter_context(registry_of(work / "other"))
            self.host = stack.enter_context(served(self.options.varve, [self.layout], self.options.rate_mbit, self.options.rtt_ms))
            mirrors = {"a first mirror that refuses": stack.enter_context(dead_host(False)), "a silent first mirror": stack.enter_context(dead_host(True))}
            times = {way: [] for way in WAYS}
            for number in range(self.options.rounds):
                for turn, way in enumerate(WAYS):
                    times[way].append(self.start(work / f"{number}-{turn}", mirrors.get(way), way == "beside readers"))
                    print(f"{way}: {times[way][-1]:.2f}", flush=True)
        for way, reach in WAYS.items():
            print(f"{self.options.code}, {way}, s: {spread(times[way])}; {ratio(times[way], times['alone']):.3f}x of alone{f' ({reach})' if reach else ''}", flush=True)
        print(f"load: {os.getloadavg()[0]:.1f}", flush=True)

    def start(self, work, mirror, beside_readers):
        """The daemon runs already, with another image of another registry: in each way, as some need that."""
        with self.varve(work) as varve:
            # An empty file: none of the machine's own counts.
            settings = hosts_toml(work, self.host, f'[host."http://{mirror}"]\ncapabilities = ["pull", "resolve"]\n' if mirror else "")
            (work / "varve.toml").write_text(settings)
            varve.environment["VARVE_CONFIG"] = str(work / "varve.toml")
            with varve.mounted(self.other, self.options.mode or modes()[0], "--no-prefetch") as tree, self.readers(varve, tree) if beside_readers else contextlib.nullcontext():
                drop_caches()
                began = time.monotonic()
                varve.run("run", "--rm", f"{self.host}/{self.layout.name}:{self.tag}", "--", "python3", "-c", self.options.code, check=True)
                return time.monotonic() - began

    @contextlib.contextmanager
    def readers(self, varve, tree):
        """Each waits for bytes of its own, and gets them when all is measured."""
        threads = [threading.Thread(target=read, args=(Path(tree, f"data/{number}"),)) for number in range(READERS)]
        os.kill(self.registry.pid, signal.SIGSTOP)
        try:
            for thread in threads:
                thread.start()
            wait_for("readers that wait", lambda: any(mount["waiting_for"] for mount in varve.json("status")["mounts"]), every=0.1)
            yield
            if not all(thread.is_alive() for thread in threads):
                sys.exit("readers ended while their registry was stopped")
        finally:
            os.kill(self.registry.pid, signal.SIGCONT)
            for thread in threads:
                if thread.ident:
                    thread.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image")
    parser.add_argument("--varve", type=Path, default=REPOSITORY / "build/release/varve")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--code", default="import numpy, pandas, sklearn", help="what is started, for example: import torch")
    parser.add_argument("--mode", choices=("kernel", "fuse"), help="of the readers' mount")
    parser.add_argument("--rate-mbit", type=float, default=1000)
    parser.add_argument("--rtt-ms", type=float, default=2)
    options = parser.parse_args()
    need_root()
    need_fuse()
    with work_folder() as work:
        Bench(options).run(work)


if __name__ == "__main__":
    main()
