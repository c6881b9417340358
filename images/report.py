#!/usr/bin/python3
"""report.py LAYOUT FILE: where the bytes of images built by build.py are: per layer and per distribution; a table on stdout, JSON in FILE.

Distributions are those of the images' own records (RECORD of a wheel, dpkg's lists). What is compressed together cannot be told apart to the byte: a file has
the part of its layer's blob that was read while its content came out, so the sum over a layer is its blob."""
import argparse, bisect, csv, json, os, re, tarfile, zlib
from pathlib import Path

from layers import say

STEP = 1 << 14  # how finely bytes of a blob are told apart


class MeasuredGzip:
    """Reads a gzip blob and keeps which of its bytes belong to which of the stream's."""

    def __init__(self, path):
        self.file, self.plain, self.packed, self.at_plain, self.at_packed = open(path, "rb"), 0, 0, [0], [0]
        self.inflate, self.left = zlib.decompressobj(wbits=31), b""

    def read(self, size):
        out = []
        while size > 0:
            data = self.left or self.file.read(STEP)
            if not data:
                break
            piece = self.inflate.decompress(data, size)
            self.left = self.inflate.unconsumed_tail or self.inflate.unused_data
            self.packed += len(data) - len(self.left)
            if self.inflate.eof:  # another member may follow
                self.inflate = zlib.decompressobj(wbits=31)
            self.plain += len(piece)
            size -= len(piece)
            out.append(piece)
            if self.plain - self.at_plain[-1] >= STEP:
                self.mark()
        return b"".join(out)

    def mark(self):
        if self.plain > self.at_plain[-1]:
            self.at_plain.append(self.plain)
            self.at_packed.append(self.packed)
        else:
            self.at_packed[-1] = self.packed

    def packed_until(self, plain):
        """Compressed bytes before this place of the stream, by the straight line between the two nearest marks."""
        after = bisect.bisect_right(self.at_plain, plain)
        if after == len(self.at_plain):
            return self.at_packed[-1]
        span = self.at_plain[after] - self.at_plain[after - 1]
        return self.at_packed[after - 1] + (self.at_packed[after] - self.at_packed[after - 1]) * (plain - self.at_plain[after - 1]) / span


def read_layer(path):
    """(entries, records): [(name, size, compressed bytes of its run)] in order, and what the layer's package records say."""
    source, entries, records = MeasuredGzip(path), [], {}
    with tarfile.open(fileobj=source, mode="r|", bufsize=1 << 20) as tar:
        for member in tar:
            name = member.name.removeprefix("./")
            entries.append((name, member.size if member.isreg() else 0, member.offset))
            if re.search(r"\.dist-info/RECORD$|^var/lib/dpkg/info/[^/]+\.list$", name) and member.isreg():
                records[name] = tar.extractfile(member).read().decode(errors="replace")
    while source.read(1 << 20):
        pass
    source.mark()
    ends = [source.packed_until(start) for _, _, start in entries[1:]] + [source.packed]
    begins = [0.0, *ends[:-1]]
    return [(name, size, end - begin) for (name, size, _), begin, end in zip(entries, begins, ends)], records


def owners(records):
    """{path: distribution}, bytecode not included."""
    found = {}
    for record, text in records.items():
        if record.endswith(".list"):
            name = Path(record).name[:-len(".list")].split(":")[0] + " (dpkg)"
            found |= {line.lstrip("/"): name for line in text.splitlines()}
        else:
            folder = Path(record).parent
            name = re.sub(r"[-_.]+", "-", folder.name.split("-")[0]).lower()
            found |= {os.path.normpath(folder.parent / row[0]): name for row in csv.reader(text.splitlines()) if row}
    return found


def owner_of(path, owned):
    source = re.sub(r"__pycache__/([^/]+)\.cpython-\d+\.pyc$", r"\1.py", path)
    # Debian merged /bin and /lib into /usr; dpkg's lists name the files as they were packed.
    return owned.get(source) or owned.get(source.removeprefix("usr/")) or "(none)"


def measure(blob):
    entries, records = read_layer(blob)
    owned, parts = owners(records), {}
    for name, size, compressed in entries:
        part = parts.setdefault(owner_of(name, owned), {"bytes": 0, "compressed_bytes": 0.0, "files": 0})
        part["bytes"] += size
        part["compressed_bytes"] += compressed
        part["files"] += 1
    return parts


def add_up(layers):
    total = {}
    for layer in layers:
        for part in layer["distributions"]:
            into = total.setdefault(part["name"], {"name": part["name"], "bytes": 0, "compressed_bytes": 0, "files": 0})
            for key in ("bytes", "compressed_bytes", "files"):
                into[key] += part[key]
    return sorted(total.values(), key=lambda d: -d["compressed_bytes"])


def describe(layout):
    """The report as a document. Layers that several images have are measured once."""
    index, seen, images = json.loads((layout / "index.json").read_text()), {}, []
    blob = lambda digest: layout / "blobs" / digest.replace(":", "/")  # noqa: E731
    for entry in index["manifests"]:
        tag = entry.get("annotations", {}).get("org.opencontainers.image.ref.name")
        manifest = json.loads(blob(entry["digest"]).read_text())
        if not tag or "layers" not in manifest or manifest.get("artifactType") or "subject" in manifest:
            continue
        history = json.loads(blob(manifest["config"]["digest"]).read_text())["history"]
        layers = []
        for layer, made in zip(manifest["layers"], history):
            if layer["digest"] not in seen:
                parts = measure(blob(layer["digest"]))
                rows = [{"name": name, **part, "compressed_bytes": round(part["compressed_bytes"])} for name, part in parts.items()]
                seen[layer["digest"]] = {"digest": layer["digest"], "compressed_bytes": layer["size"], "bytes": sum(r["bytes"] for r in rows), "files": sum(r["files"] for r in rows),
                                         "distributions": sorted(rows, key=lambda r: -r["compressed_bytes"])}
            layers.append({"comment": made["created_by"], **seen[layer["digest"]]})
        images.append({"tag": tag, "image": entry["digest"], "compressed_bytes": sum(layer["compressed_bytes"] for layer in layers), "bytes": sum(layer["bytes"] for layer in layers),
                       "files": sum(layer["files"] for layer in layers), "layers": layers, "distributions": add_up(layers)})
    return {"images": images, "stored_bytes": sum(layer["compressed_bytes"] for layer in seen.values())}


def row(name, part):
    return f"  {name[:70]:70} {part['compressed_bytes'] / 1e6:10.1f} {part['bytes'] / 1e6:10.1f} {part['files']:9d}"


def table(report, most):
    for image in report["images"]:
        others = {layer["digest"] for other in report["images"] if other is not image for layer in other["layers"]}
        yield f"{image['tag']}   {image['image']}"
        yield f"  {'':70} {'compr. MB':>10} {'MB':>10} {'entries':>9}"
        for layer in image["layers"]:
            yield row(("= " if layer["digest"] in others else "  ") + layer["comment"], layer)
        yield row("in all", image)
        for part in image["distributions"][:most]:
            yield row("    " + part["name"], part)
    if len(report["images"]) > 1:
        yield f"= also in another image here. Stored: {report['stored_bytes'] / 1e6:.1f} MB; apart the images have {sum(i['compressed_bytes'] for i in report['images']) / 1e6:.1f} MB"


def write(layout, path, most=25):
    say(f"measuring {layout} ...")
    report = describe(layout)
    path.write_text(json.dumps(report, indent=1))
    print("\n".join(table(report, most)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layout", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--most", type=int, default=25, help="distributions in the table; the file has all")
    options = parser.parse_args()
    write(options.layout, options.file, options.most)


if __name__ == "__main__":
    main()
