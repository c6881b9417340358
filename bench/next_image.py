#!/usr/bin/python3
"""The mount of an image by a daemon that has another one of its repository open: next_image.py [--rate 200] [--rtt 20] [--rounds 7] [VARVE...].
The registry asks for TLS and a token, as public ones do. Root, skopeo, openssl; several programs are measured in turn; default build/release/varve."""
import argparse, contextlib, statistics, subprocess, sys, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/oracle"))
import layouts  # noqa: E402
from program import Varve, need_fuse, need_root, need_tools, work_folder  # noqa: E402
from run import empty_machine, served  # noqa: E402
from tars import Tar  # noqa: E402

LAYERS = 8


def make_repository(work):
    """Two images that share no layer, indexed, in one layout."""
    folder = work / "repository"
    with Varve(work / "pipeline") as varve:
        varve.work.mkdir()
        for name in ("first", "second"):
            tars = [Tar().file(f"{name}{number}", b"%d" % number, mtime=1_600_000_000).bytes() for number in range(LAYERS)]
            subprocess.run(["skopeo", "copy", "-q", layouts.gzip_image(work / name, tars), f"oci:{folder}:{name}"], check=True)
            varve.index(f"oci:{folder}:{name}")
    return folder


def make_certificate(work):
    pem, key = work / "registry.pem", work / "key.pem"
    words = "-x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=registry -addext subjectAltName=IP:127.0.0.1"
    subprocess.run(["openssl", "req", *words.split(), "-keyout", key, "-out", pem], check=True, stderr=subprocess.DEVNULL)
    pem.write_text(pem.read_text() + key.read_text())
    return pem


def mount_all(varve, images):
    """ms of each, the others being there"""
    times = []
    with contextlib.ExitStack() as mounts:
        for image in images:
            began = time.monotonic()
            mounts.enter_context(varve.mounted(image, "kernel"))
            times.append((time.monotonic() - began) * 1000)
    return times


def main():
    need_root(), need_fuse(), need_tools("skopeo", "openssl")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", type=Path, default=[Path(__file__).resolve().parents[1] / "build/release/varve"])
    parser.add_argument("--rate", type=int, default=200, help="Mbit/s")
    parser.add_argument("--rtt", type=float, default=20, help="ms")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    rows = {program: [] for program in options.programs}
    with work_folder() as work:
        folder, pem = make_repository(work), make_certificate(work)
        with served(Varve(work).binary, [folder], options.rate, options.rtt, registry_options=("--token", "--tls", pem)) as address:
            for round_number in range(options.rounds):
                for number, program in enumerate(options.programs):
                    with empty_machine(program, work / f"machine{round_number}-{number}") as varve:
                        (varve.work / "varve.toml").write_text(f'ca-file = "{pem}"\n')
                        varve.environment["VARVE_CONFIG"] = str(varve.work / "varve.toml")
                        images = [f"docker://{address}/{folder.name}:{name}" for name in ("first", "second")]
                        rows[program].append(mount_all(varve, images))
    for program, times in rows.items():
        first, second = (f"{min(column):.0f} / {statistics.median(column):.0f} / {max(column):.0f}" for column in zip(*times))
        print(f"{program}: {options.rate} Mbit/s, {options.rtt:g} ms: mount by a new daemon {first} ms; of the next image {second} ms")


if __name__ == "__main__":
    main()
