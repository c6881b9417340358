#!/usr/bin/python3
"""Two builds of Varve in turn: what a change costs on the paths that people feel.

Each round does the same with one build and then with the other, so that a machine whose speed drifts treats both alike; the figure to quote
is the median of the ratios, round by round. Needs root and an image in a layout folder (`--layout`), as `bench/run.py`. Stop builds and other
work first: the load is printed.

  bench/against.py --varve build/release/varve --baseline /tmp/before/varve --layout out/bench/big --tree out/bench/tree/rootfs
"""
import argparse, contextlib, os, statistics, sys, time
from pathlib import Path

from run import IMPORTS, Bench, in_tree, read_all, spread, timed


class Against(Bench):
    def __init__(self, options):
        super().__init__(options)
        self.builds = {"before": options.baseline.resolve(), "now": options.varve.resolve()}

    def in_turn(self, what, measure, rounds=None):
        """measure(build) -> seconds, or a dict of several figures; the first round is not counted."""
        figures = {build: [] for build in self.builds}
        for number in range(1 + (rounds or self.options.rounds)):
            for build in self.builds:
                seconds = measure(build)
                figures[build] += [seconds] if number else []
        ratios = [now / before for now, before in zip(figures["now"], figures["before"])]
        self.row(what, f"now {spread(figures['now'], '{:.3f}')} s", f"before {spread(figures['before'], '{:.3f}')} s",
                 f"ratio {spread(ratios, '{:.3f}')}, {1000 * (statistics.median(figures['now']) - statistics.median(figures['before'])):+.0f} ms")

    @contextlib.contextmanager
    def as_build(self, build):
        self.binary = self.builds[build]
        yield
        self.binary = self.builds["now"]

    @contextlib.contextmanager
    def indexed_by_each(self):
        """The same image, indexed by each build in a folder of its own."""
        with contextlib.ExitStack() as stack:
            copies = {}
            for build in self.builds:
                copies[build] = stack.enter_context(self.copy_of(self.layout))
                with self.as_build(build), self.varve() as varve:
                    varve.index(f"oci:{copies[build]}:latest", timeout=1800)
            yield copies

    def measure_index(self):
        for path in self.layers:
            read_all(path)

        def index(build):
            with self.as_build(build), self.copy_of(self.layout) as copy, self.varve() as varve:
                return timed([varve.binary, "index", "--quiet", f"oci:{copy}:latest"], env=varve.environment)[0]
        self.in_turn("index", index, min(3, self.options.rounds))

    def measure_start(self):
        """A daemon that runs, an image that is mounted: what `varve run` adds to the command."""
        with self.indexed_by_each() as copies, contextlib.ExitStack() as stack:
            varves, commands = {}, {}
            for build in self.builds:
                with self.as_build(build):
                    varve = varves[build] = stack.enter_context(self.varve())
                stack.enter_context(varve.mounted(f"oci:{copies[build]}:latest", "auto"))
                commands[build] = [varve.binary, "run", "--rm", f"oci:{copies[build]}:latest", "--", "/bin/true"]
            self.in_turn("session start and end, image mounted", lambda build: timed(commands[build], env=varves[build].environment)[0],
                         5 * self.options.rounds)

    def measure_warm(self):
        self.prepare_tree()
        with self.indexed_by_each() as copies, contextlib.ExitStack() as stack:
            for mode in self.options.modes:
                trees = {}
                for build in self.builds:
                    with self.as_build(build):
                        varve = stack.enter_context(self.varve())
                    trees[build] = stack.enter_context(varve.mounted(f"oci:{copies[build]}:latest", mode))
                code = IMPORTS["numpy, pandas, sklearn"]
                rounds = 3 * self.options.rounds
                self.in_turn(f"warm import, {mode} mode", lambda build, trees=trees: timed(in_tree(trees[build], code))[0], rounds)
                self.in_turn(f"warm find, {mode} mode", lambda build, trees=trees: timed(["find", trees[build], "-size", "+100000k"])[0], rounds)

    def measure_cold(self):
        with self.indexed_by_each() as copies:
            for path in self.layers:
                read_all(path)
            for label, code in IMPORTS.items():
                for mode in self.options.modes:
                    def start(build, code=code, mode=mode):
                        with self.as_build(build), self.link(copies[build]) as address, self.varve() as varve:
                            started = time.monotonic()
                            with varve.mounted(f"docker://{address}/{copies[build].name}:latest", mode) as tree:
                                timed(in_tree(tree, code))
                                return time.monotonic() - started
                    self.in_turn(f"cold import {label}, {mode} mode", start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--varve", type=Path, required=True)
    parser.add_argument("--baseline", type=Path, required=True, help="the program of the commit before")
    parser.add_argument("--work", type=Path, default=Path(__file__).resolve().parent.parent / "out/bench")
    parser.add_argument("--layout", type=Path)
    parser.add_argument("--tree", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", default="start,warm,cold,index")
    parser.add_argument("--modes", default="kernel,fuse")
    parser.add_argument("--rate-mbit", type=float, default=1000)
    parser.add_argument("--rtt-ms", type=float, default=2)
    options = parser.parse_args()
    options.modes = options.modes.split(",")
    if os.getuid() != 0:
        print("skipped: this needs root (page caches, kernel mode)")
        sys.exit(77)
    bench = Against(options)
    print(f"{os.uname().release}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f}; min / median / max of {options.rounds} rounds", flush=True)
    bench.prepare_image()
    with bench.kept:
        for row in options.rows.split(","):
            getattr(bench, "measure_" + row)()


if __name__ == "__main__":
    main()
