#!/usr/bin/python3
"""Whether a start takes longer on a machine that has seen many versions of an image: known_versions.py [--versions 100] [--layers 40] [--rounds 7].
A daemon that has just begun mounts one, and then once more. Root; VARVE is the program, default build/release/varve."""
import argparse, statistics, sys, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/oracle"))
import layouts  # noqa: E402
from program import Varve, need_fuse, need_root, work_folder  # noqa: E402
from run import cpu_seconds  # noqa: E402
from tars import Tar  # noqa: E402


def layer(name, content):
    return Tar().file(name, content, mtime=1_600_000_000).bytes()


def make_versions(work, count, layers):
    shared = [layer(f"shared{number}", b"%d" % number) for number in range(layers - 1)]
    return [layouts.gzip_image(work / f"version{number}", [*shared, layer("own", b"%d" % number)], "latest") for number in range(count)]


def mount(varve, image, place):
    """(ms until it is there, the daemon)"""
    began = time.monotonic()
    varve.run("mount", image, place, check=True)
    took = (time.monotonic() - began) * 1000
    daemon = varve.daemon_pid()
    varve.run("unmount", place, check=True)
    time.sleep(0.5)  # what it does afterwards counts, too
    return took, daemon


def measure(work, versions, layers, rounds):
    with Varve(work / f"machine{versions}") as varve:
        varve.work.mkdir()
        (varve.work / "varve.toml").write_text("[daemon]\nkeep-mounted = 0\n")
        varve.environment["VARVE_CONFIG"] = str(varve.work / "varve.toml")
        place = varve.work / "mnt"
        place.mkdir()
        images = make_versions(varve.work, versions, layers)
        for image in images:
            varve.index(image)
            mount(varve, image, place)
        rows = []
        for _ in range(rounds):
            varve.stop_daemon()
            first, daemon = mount(varve, images[-1], place)
            first_cpu = cpu_seconds(daemon) * 1000
            second, _ = mount(varve, images[-1], place)
            rows.append((first, first_cpu, second, cpu_seconds(daemon) * 1000 - first_cpu))
        first, first_cpu, second, second_cpu = (statistics.median(column) for column in zip(*rows))
        print(f"{versions} versions of {layers} layers: a fresh daemon's first mount {first:.0f} ms, its CPU {first_cpu:.0f}; the second {second:.0f}, {second_cpu:.0f}", flush=True)


def main():
    need_root(), need_fuse()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", type=int, default=100)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    with work_folder() as work:
        for versions in (3, options.versions):
            measure(work, versions, options.layers, options.rounds)


if __name__ == "__main__":
    main()
