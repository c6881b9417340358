#!/usr/bin/python3
"""What a machine fetches of an image that was built again a minute later, the same files with new times, bytecode compiled anew; or of
the release after (--next).

Makes the second build of --image by moving all times in its layers, bytecode's included, as pip would have; then the same imports
start on an empty machine and on one that ran the first build, which is told what is equal by seeds (of a signed index) or by the
entries of both, also of indexes that the machine made itself, and both builds are pulled. Fetched is what the registry sent, indexes and all. Needs root. See bench/README.md.
"""
import argparse, contextlib, io, json, os, shutil, subprocess, sys, tarfile, tempfile, threading, time
from http.server import ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests/oracle"))
sys.path.insert(0, str(HERE.parent / "images"))
import build  # noqa: E402
from layout_registry import Registry  # noqa: E402
from program import Varve  # noqa: E402

MINUTE = 60


def later(data):
    """Bytecode of a source that is a minute younger (PEP 552)."""
    if len(data) < 16 or data[4:8] != b"\0\0\0\0":
        return data
    return data[:8] + ((int.from_bytes(data[8:12], "little") + MINUTE) % 2**32).to_bytes(4, "little") + data[12:]


def rebuilt(tar, sink):
    with tarfile.open(fileobj=tar, mode="r|*") as old, tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as new:
        for member in old:
            member.mtime += MINUTE
            member.pax_headers.pop("mtime", None)
            data = old.extractfile(member).read() if member.isreg() else None
            if data is not None and member.name.endswith(".pyc"):
                data = later(data)
            new.addfile(member, io.BytesIO(data) if data is not None else None)


def read_json(layout, digest):
    return json.loads((layout / "blobs" / digest.replace(":", "/")).read_text())


def make_builds(image, folder):
    """A layout with the tags `first` and `second`."""
    source, _, tag = image.removeprefix("oci:").rpartition(":")
    source = Path(source)
    entry = next(m for m in json.loads((source / "index.json").read_text())["manifests"] if m["annotations"]["org.opencontainers.image.ref.name"] == tag)
    manifest = read_json(source, entry["digest"])
    shutil.copytree(source / "blobs", folder / "blobs", copy_function=os.link)
    config = read_json(source, manifest["config"]["digest"])
    layout = build.Layout(folder)
    layers, diff_ids = [], []
    for layer in manifest["layers"]:
        plain, packed = folder / "plain", folder / "packed"
        with open(layout.blob(layer["digest"]), "rb") as blob, open(plain, "wb") as sink:
            rebuilt(blob, sink)
        with open(plain, "rb") as tar:
            diff_ids.append("sha256:" + build.hashlib.file_digest(tar, "sha256").hexdigest())
        with open(packed, "wb") as blob:
            subprocess.run(["pigz", "-n", "-6", "-c", plain], stdout=blob, check=True)
        layers.append(layout.take(packed, build.MEDIA + "layer.v1.tar+gzip"))
        plain.unlink()
    config["rootfs"]["diff_ids"] = diff_ids
    new = {**manifest, "config": layout.add_json(config, manifest["config"]["mediaType"]), "layers": layers}
    layout.tags = {"first": {k: entry[k] for k in ("mediaType", "digest", "size")}, "second": layout.add_json(new, manifest["mediaType"])}
    layout.finish()


@contextlib.contextmanager
def registry_of(folder):
    class Served(Registry):
        layouts = {"image": folder}
        sent = 0

        def send_header(self, name, value):
            if name == "Content-Length" and self.command == "GET":
                Served.sent += int(value)
            super().send_header(name, value)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}/image", Served
    finally:
        server.shutdown()


@contextlib.contextmanager
def machine(work, key=None):
    with tempfile.TemporaryDirectory(dir=work) as folder:
        varve = Varve(folder)
        if key:
            (varve.work / "varve.toml").write_text(f'[trust]\nkeys = ["{key.resolve()}"]\n')
            varve.environment["VARVE_CONFIG"] = str(varve.work / "varve.toml")
        if "VARVE" in os.environ:
            varve.binary = os.path.abspath(os.environ["VARVE"])
        with varve:
            yield varve


def run(varve, image, code):
    stats = varve.work / "stats"
    varve.run("run", "--rm", "--stats", stats, image, "--", "/usr/bin/python3", "-B", "-c", code, check=True)
    return json.loads(stats.read_text())


def wait_until_told(varve):
    """What is equal: until then reads go the old way."""
    for _ in range(1200):
        if "is not fetched again" in (varve.root / "daemon.log").read_text():
            return time.sleep(0.2)
        time.sleep(0.05)
    raise SystemExit("what is equal is not known after 60 s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", required=True, help="oci:DIR:TAG; its layers are gzip, zstd needs Python 3.14")
    parser.add_argument("--next", metavar="TAG", help="the second is this tag of the same layout")
    parser.add_argument("--work", type=Path, default=Path("out/rebuilt"))
    parser.add_argument("--code", default="import numpy, pandas, sklearn")
    parser.add_argument("--settle", type=float, default=2, help="seconds after a start in which what goes on behind it counts")
    parser.add_argument("--pull", action="store_true", help="pull both builds, too")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    tags = ("first", "second")
    layout = options.work / "layout"
    if options.next:
        folder, _, tag = options.image.removeprefix("oci:").rpartition(":")
        layout, tags = Path(folder), (tag, options.next)
    elif not (layout / "index.json").exists():
        shutil.rmtree(layout, ignore_errors=True)
        make_builds(options.image, layout)
    key = options.work / "ci"
    with machine(options.work) as indexer:
        indexer.environment["COSIGN_PASSWORD"] = ""
        built = [f"oci:{layout.resolve()}:{tag}" for tag in tags]
        first, second = built
        if not key.with_suffix(".key").exists():
            indexer.run("keygen", "-o", key.resolve(), check=True)
        sign = ("--sign", key.with_suffix(".key").resolve(), "--bundle")
        indexer.run("index", first, *sign, check=True, timeout=3600)
        made = indexer.json("index", second, "--previous", first, *sign, timeout=3600)
        content = indexer.json("image", "diff", first, second)["content"]
        print(f"{content['bytes'] / 1e6:.1f} MB of files in the second, {content['shared_bytes'] / 1e6:.1f} of them in the first, {content['bytecode_bytes'] / 1e6:.1f} bytecode; seeds name {made['seeded_bytes'] / 1e6:.1f}")
    rows = []
    with registry_of(layout.resolve()) as (repository, registry):
        first, second = (f"{repository}:{tag}" for tag in tags)

        @contextlib.contextmanager
        def row(name):
            registry.sent, started, row = 0, time.monotonic(), {}
            yield row
            rows.append((name, registry.sent, row.get("copied_bytes", 0), row.get("requests", 0), time.monotonic() - started))

        def start(varve, image, name):
            with row(name) as stats:
                stats.update(run(varve, image, options.code))
                time.sleep(options.settle)

        with machine(options.work) as empty:
            start(empty, second, "second build, empty machine")
        for told, trusted in (("seeds", key.with_suffix(".pub")), ("entries", None)):
            with machine(options.work, trusted) as used:
                run(used, first, options.code)
                start(used, second, f"{told}: second build after the first")
            with machine(options.work, trusted) as used:
                run(used, first, options.code)
                with row(f"{told}: the same, mounted before") as stats, used.mounted(second, "auto"):
                    wait_until_told(used)
                    stats.update(run(used, second, options.code))
        with machine(options.work) as own:
            for image in built:
                own.run("index", image, "--to", f"oci:{own.work}/indexes", check=True, timeout=3600)
            run(own, first, options.code)
            start(own, second, "indexes made here: the same")
        if options.pull:
            with machine(options.work) as pulled:
                for name, image in (("pull of the first build", first), ("pull of the second build after it", second)):
                    with row(name) as stats:
                        stats.update(pulled.json("pull", "--wait", image, timeout=3600))
    print(f"{'':36}{'fetched':>12}{'copied':>12}{'requests':>10}{'seconds':>9}")
    for name, fetched, copied, requests, seconds in rows:
        print(f"{name:36}{fetched / 1e6:9.2f} MB{copied / 1e6:9.2f} MB{requests:10}{seconds:9.2f}")


if __name__ == "__main__":
    main()
