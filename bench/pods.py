#!/usr/bin/python3
"""pods.py oci:DIR:TAG: pods of an image by the calls that kubelet makes. Their start, step by step, beside overlayfs with the image unpacked; and an import's first time in a pod beside `varve run`, both on
an empty machine behind a link. The image must have python3 and sleep, and gets an index. Needs root and what tests/runtimes needs. See bench/README.md.
"""
import argparse, contextlib, statistics, sys, time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "tests" / name) for name in ("oracle", "run", "runtimes")]
import debian13, layouts  # noqa: E402
from containerd import CONFIG, Containerd, Snapshotter, need_containerd, wait_for  # noqa: E402
from cri import Pod  # noqa: E402
from program import work_folder  # noqa: E402
from run import empty_machine, layout_of, served, spread  # noqa: E402
from test_snapshotter import layer, tools  # noqa: E402
from touched import drop_caches  # noqa: E402

STEPS = ("RunPodSandbox", "CreateContainer", "StartContainer")


class Node(Containerd):
    """It knows how long the last call of each name took."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.seconds = {}

    def cri(self, method, message):
        began = time.monotonic()
        answer = super().cri(method, message)
        self.seconds[method.rpartition("/")[2]] = time.monotonic() - began
        return answer


class Bench:
    def __init__(self, options, binaries):
        self.options, self.binaries = options, binaries
        self.layout, self.tag = layout_of(options.image)

    def varve(self, work):
        return empty_machine(self.options.varve, work)

    def node(self, varve, host, name="varve"):
        return Node(varve.work / name, varve.snapshotter.address, varve.root, self.binaries, pause=f"{host}/pause:latest", config=CONFIG.replace('snapshotter = "varve"', f'snapshotter = "{name}"'))

    def pull(self, node, varve):
        seconds = node.pull(self.image)
        if node.work.name == "varve" and (refused := varve.snapshotter.status()["refused"]):
            sys.exit(f"the image is not mounted lazily: {refused}")
        return seconds

    def run(self, work):
        pause = layouts.write_image(work / "pause", [layer(tools().bytes())], tag="latest", config={"Cmd": ["sleep", "100000"], "Env": ["PATH=/bin"]})
        with self.varve(work / "index") as varve:
            for image in (pause, self.options.image):
                varve.index(image, timeout=3600)
        with served(self.options.varve, [self.layout, work / "pause"], self.options.rate_mbit, self.options.rtt_ms) as host:
            self.image = f"{host}/{self.layout.name}:{self.tag}"
            self.starts(work / "starts", host)
            if self.options.code:
                self.imports(work, host)

    def starts(self, work, host):
        """In turn, so that what else the machine does falls on both."""
        with self.varve(work) as varve, Snapshotter(varve) as varve.snapshotter, self.node(varve, host) as lazy, self.node(varve, host, "overlayfs") as plain:
            for node in (lazy, plain):
                node.pull(f"{host}/pause:latest")
                print(f"pull, {node.work.name}, s: {self.pull(node, varve):.2f}, {node.content_bytes() / 1e6:.0f} MB", flush=True)
            steps = {node: {step: [] for step in STEPS} for node in (lazy, plain)}
            for number in range(self.options.rounds + 1):
                for node in (lazy, plain):
                    with Pod(node, f"pod{number}") as pod:
                        pod.start(self.image, "main", "sleep", "100000")
                    for step in STEPS if number else ():  # the first one also loads containerd's own pages
                        steps[node][step].append(node.seconds[step])
        whole = {node: [sum(times) for times in zip(*steps[node].values())] for node in steps}
        for step in (*STEPS, "in all"):
            mine, others = (whole[node] if step == "in all" else steps[node][step] for node in (lazy, plain))
            print(f"{step}, s: varve {spread(mine, '{:.3f}')}, overlayfs {spread(others, '{:.3f}')}, {statistics.median(mine) - statistics.median(others):+.3f}", flush=True)

    def imports(self, work, host):
        code = f"import time; began = time.monotonic(); {self.options.code}; print(time.monotonic() - began)"
        ways, inside, whole = {"run": self.by_run, "pod": self.by_pod}, {}, {}
        for number in range(self.options.import_rounds):
            for way, start in ways.items():
                seconds, all_of_it = start(work / f"{way}{number}", host, ("python3", "-c", code))
                inside.setdefault(way, []).append(seconds)
                whole.setdefault(way, []).append(all_of_it)
        for way in ways:
            print(f"{self.options.code}, {way}, s: {spread(inside[way])}; from the first word to its end {spread(whole[way])}", flush=True)
        print(f"the import in a pod: {statistics.median(inside['pod']) / statistics.median(inside['run']):.3f}x of run (reach 1.05)")

    def by_run(self, work, host, command):
        with self.varve(work) as varve:
            drop_caches()
            began = time.monotonic()
            said = varve.run("run", "--rm", self.image, "--", *command, check=True).stdout
            return float(said), time.monotonic() - began

    def by_pod(self, work, host, command):
        with self.varve(work) as varve, Snapshotter(varve) as varve.snapshotter, self.node(varve, host) as node:
            node.pull(f"{host}/pause:latest")
            drop_caches()
            began = time.monotonic()
            self.pull(node, varve)
            with Pod(node, "pod") as pod:
                pod.start(self.image, "main", *command)
                log = node.work / "logs-pod/main.log"
                wait_for("the import's end", lambda: log.read_text().endswith("\n"), 600)
                return float(log.read_text().split()[-1]), time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image")
    parser.add_argument("--varve", type=Path, default=REPOSITORY / "build/release/varve")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--code", help="the import, for example: import torch")
    parser.add_argument("--import-rounds", type=int, default=3)
    parser.add_argument("--rate-mbit", type=float, default=1000)
    parser.add_argument("--rtt-ms", type=float, default=2)
    parser.add_argument("--debian-13", action="store_true", help="containerd 1.7 of Debian 13, and not the machine's")
    options = parser.parse_args()
    need_containerd()
    binaries = debian13.cached("containerd") / "usr/bin" if options.debian_13 else Path("/usr/bin")
    with work_folder() as work:
        Bench(options, binaries).run(work)


if __name__ == "__main__":
    main()
