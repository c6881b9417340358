#!/usr/bin/python3
"""What a machine fetches of an image that was built again a minute later: the same files with new times, bytecode compiled anew.

Makes the second build of --image by moving all times in its layers, bytecode's included, as pip would have; then the same imports
start on an empty machine, on one that ran the first build, and both builds are pulled. Needs root. See bench/README.md.
"""
import argparse, contextlib, gzip, io, json, os, shutil, subprocess, sys, tarfile, tempfile, threading, time
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
    shutil.copytree(source / "blobs", folder / "blobs")
    config = read_json(source, manifest["config"]["digest"])
    layout = build.Layout(folder)
    layers, diff_ids = [], []
    for layer in manifest["layers"]:
        plain, packed = folder / "plain", folder / "packed"
        with open(layout.blob(layer["digest"]), "rb") as blob, open(plain, "wb") as sink:
            rebuilt(blob, sink)
        with open(plain, "rb") as tar:
            diff_ids.append("sha256:" + build.hashlib.file_digest(tar, "sha256").hexdigest())
        with open(plain, "rb") as tar, gzip.GzipFile(packed, "wb", 6, mtime=0) as blob:
            shutil.copyfileobj(tar, blob, 1 << 20)
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

    server = ThreadingHTTPServer(("127.0.0.1", 0), Served)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}/image"
    finally:
        server.shutdown()


@contextlib.contextmanager
def machine(work):
    with tempfile.TemporaryDirectory(dir=work) as folder:
        varve = Varve(folder)
        if "VARVE" in os.environ:
            varve.binary = os.path.abspath(os.environ["VARVE"])
        with varve:
            yield varve


def run(varve, image, code):
    stats = varve.work / "stats"
    varve.run("run", "--rm", "--stats", stats, image, "--", "/usr/bin/python3", "-B", "-c", code, check=True)
    return json.loads(stats.read_text())


def wait_for_contents(varve, layers):
    """Until the layers' contents are known: until then reads go the old way."""
    for _ in range(600):
        if len(list((varve.root / "store").glob("*/units"))) >= layers:
            return time.sleep(0.2)
        time.sleep(0.05)
    raise SystemExit("the layers' contents are not known after 30 s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--image", required=True, help="oci:DIR:TAG; its layers are gzip, zstd needs Python 3.14")
    parser.add_argument("--work", type=Path, default=Path("out/rebuilt"))
    parser.add_argument("--code", default="import numpy, pandas, sklearn")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    layout = options.work / "layout"
    if not (layout / "index.json").exists():
        shutil.rmtree(layout, ignore_errors=True)
        make_builds(options.image, layout)
    with machine(options.work) as indexer:
        for tag in ("first", "second"):
            indexer.run("index", f"oci:{layout.resolve()}:{tag}", check=True)
    rows = []
    with registry_of(layout.resolve()) as repository:
        first, second = repository + ":first", repository + ":second"

        def row(name, stats, seconds=None):
            rows.append((name, stats["fetched_bytes"] - stats.get("loaded_bytes", 0), stats.get("copied_bytes", 0), stats.get("requests", 0), seconds if seconds is not None else stats["seconds"]))

        with machine(options.work) as empty:
            row("second build, empty machine", run(empty, second, options.code))
        with machine(options.work) as used:
            row("first build, empty machine", run(used, first, options.code))
            row("second build at once after it", run(used, second, options.code))
        with machine(options.work) as used:
            run(used, first, options.code)
            with used.mounted(second, "auto"):
                layers = sum(1 for _ in (used.root / "store").iterdir() if _.is_dir())
                wait_for_contents(used, layers)
                row("second build, mounted before", run(used, second, options.code))
        with machine(options.work) as pulled:
            for name, image in (("pull of the first build", first), ("pull of the second build after it", second)):
                started = time.monotonic()
                result = pulled.json("pull", "--wait", image)
                row(name, result, time.monotonic() - started)
    print(f"{'':36}{'fetched':>12}{'copied':>12}{'requests':>10}{'seconds':>9}")
    for name, fetched, copied, requests, seconds in rows:
        print(f"{name:36}{fetched / 1e6:9.2f} MB{copied / 1e6:9.2f} MB{requests:10}{seconds:9.2f}")


if __name__ == "__main__":
    main()
