"""Layer blobs in every compression found in the wild, and OCI layout folders of them."""
import base64, gzip, hashlib, io, json, struct, subprocess, sys, tarfile, zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "images"))
import build  # noqa: E402  the image builder: one writer of layout folders is enough

GZIP, ZSTD, TAR = build.MEDIA + "layer.v1.tar+gzip", build.MEDIA + "layer.v1.tar+zstd", build.MEDIA + "layer.v1.tar"


def piped(*command):
    def compress(tar, work):
        done = subprocess.run(command, input=tar, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise RuntimeError(f"{command[0]} failed: {done.stderr.decode(errors='replace')}")
        return done.stdout
    return compress


def go_gzip(tar, work):
    blob = Path(work) / "go.blob"
    build.compress_with_go(lambda sink: sink.write(tar), blob, Path(work))
    data = blob.read_bytes()
    blob.unlink()
    return data


def zlib_gzip(**options):
    """zlib with its own strategies: stored blocks, fixed codes, flush points."""
    def compress(tar, work):
        deflate = zlib.compressobj(level=options.get("level", 6), wbits=31, strategy=options.get("strategy", zlib.Z_DEFAULT_STRATEGY))
        out, step = b"", options.get("flush_every", len(tar) or 1)
        for start in range(0, len(tar), step):
            out += deflate.compress(tar[start:start + step])
            if "flush_every" in options:
                out += deflate.flush(options["flush"])
        return out + deflate.flush()
    return compress


def members(size, trailer=b""):
    """Many gzip members, cut without any regard for tar blocks."""
    def compress(tar, work):
        return b"".join(gzip.compress(tar[start:start + size], mtime=0) for start in range(0, len(tar), size)) + trailer
    return compress


def gzip_with_names(tar, work):
    """A header with every optional field: extra, name, comment, header checksum."""
    raw = zlib.compressobj(wbits=-15)
    head = b"\x1f\x8b\x08\x1e" + b"\0" * 4 + b"\0\xff" + struct.pack("<H", 5) + b"AB\x01\0x" + b"layer.tar\0" + b"a comment\0"
    head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    return head + raw.compress(tar) + raw.flush() + struct.pack("<II", zlib.crc32(tar), len(tar) & 0xFFFFFFFF)


def zstd_frames(size, *options):
    def compress(tar, work):
        one = piped("zstd", "-q", "-c", *options)
        return b"".join(one(tar[start:start + size], work) for start in range(0, len(tar), size))
    return compress


def zstd_seekable(tar, work):
    """Frames and the seek table of the seekable format, in a skippable frame at the end."""
    one, out, table, size = piped("zstd", "-q", "-c"), b"", b"", 300_000
    for start in range(0, len(tar), size):
        frame = one(tar[start:start + size], work)
        out += frame
        table += struct.pack("<II", len(frame), len(tar[start:start + size]))
    table += struct.pack("<IBI", len(table) // 8, 0, 0x8F92EAB1)
    return out + struct.pack("<II", 0x184D2A5E, len(table)) + table


# ---------------------------------------------------------------- formats with a table of contents


def payloads(tar):
    """(first byte of the headers, TarInfo, data range) of each entry; and where the last entry ends."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as reader:
        found = [(m.offset, m, m.offset_data, m.offset_data + (m.size if m.isreg() else 0)) for m in reader]
    end = found[-1][3] + (-found[-1][3] % 512) if found else 0
    return found, end


KIND = {tarfile.REGTYPE: "reg", tarfile.AREGTYPE: "reg", tarfile.DIRTYPE: "dir", tarfile.SYMTYPE: "symlink", tarfile.LNKTYPE: "hardlink", tarfile.CHRTYPE: "char",
        tarfile.BLKTYPE: "block", tarfile.FIFOTYPE: "fifo"}


def toc_entry(member):
    entry = {"type": KIND[member.type], "name": member.name + ("/" if member.isdir() else ""), "mode": member.mode, "uid": member.uid, "gid": member.gid, "modtime": "2020-09-13T12:26:40Z"}
    if member.linkname:
        entry["linkName"] = member.linkname
    if member.isdev():
        entry |= {"devMajor": member.devmajor, "devMinor": member.devminor}
    xattrs = {k[len("SCHILY.xattr."):]: base64.b64encode(v.encode("utf-8", "surrogateescape")).decode() for k, v in member.pax_headers.items() if k.startswith("SCHILY.xattr.")}
    return entry | ({"xattrs": xattrs} if xattrs else {})


def cut_at_payloads(tar, chunk, add):
    """Calls add(bytes) for each piece that must be a compressed unit of its own, in order; add returns the unit's offset.
    Yields (member, [(offset in blob, offset in file, content)]) per entry."""
    found, end = payloads(tar)
    written = 0
    for _, member, start, stop in found:
        units = []
        if start != stop:
            add(tar[written:start])
            for at in range(start, stop, chunk):
                piece = tar[at:min(at + chunk, stop)]
                units.append((add(piece), at - start, piece))
            written = stop
        yield member, units
    yield None, (written, end)


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def estargz(tar, chunk=200_000):
    """(blob, annotations, the tar it decompresses to)."""
    blob, stream = bytearray(), bytearray()

    def add(piece):
        at = len(blob)
        blob.extend(gzip.compress(piece, 9, mtime=0))
        stream.extend(piece)
        return at
    landmark = tarfile.TarInfo(".no.prefetch.landmark")
    landmark.size = 1
    tar = landmark.tobuf() + b"\x0f" + b"\0" * 511 + tar
    entries, written, end = [], 0, 0
    for member, units in cut_at_payloads(tar, chunk, add):
        if member is None:
            written, end = units
            continue
        entry = toc_entry(member)
        if member.isreg():
            entry |= {"size": member.size, "digest": digest(b"".join(u[2] for u in units))}
        entries.append(entry)
        for i, (at, offset, piece) in enumerate(units):
            target = entry if i == 0 else {"type": "chunk", "name": entry["name"]}
            target |= {"offset": at, "chunkDigest": digest(piece)} | ({"chunkOffset": offset} if offset else {}) | ({"chunkSize": len(piece)} if i + 1 < len(units) else {})
            if i:
                entries.append(target)
    if written < end:
        add(tar[written:end])
    toc = json.dumps({"version": 1, "entries": entries}, indent="\t").encode()
    info = tarfile.TarInfo("stargz.index.json")
    info.size = len(toc)
    toc_offset = add(info.tobuf() + toc + b"\0" * (-len(toc) % 512) + b"\0" * 1024)
    extra = b"SG" + struct.pack("<H", 22) + b"%016xSTARGZ" % toc_offset
    footer = b"\x1f\x8b\x08\x04" + b"\0" * 4 + b"\0\xff" + struct.pack("<H", len(extra)) + extra + b"\x01\0\0\xff\xff" + b"\0" * 8
    return bytes(blob) + footer, {"containerd.io/snapshot/stargz/toc.digest": digest(toc), "io.containers.estargz.uncompressed-size": str(len(stream))}, bytes(stream)


def zstd_chunked(tar, dialect="new", chunk=65_536):
    """(blob, annotations). `new` is what podman writes since 2024 (64-byte footer), `old` what came before (40 bytes)."""
    one, blob, entries, written = piped("zstd", "-q", "-c"), bytearray(), [], 0

    def add(piece):
        at = len(blob)
        blob.extend(one(piece, None))
        return at
    segments, previous = [], 0
    for member, units in cut_at_payloads(tar, chunk, add):
        if member is None:
            written = units[0]
            continue
        entry = toc_entry(member)
        if member.isreg():
            entry["size"] = member.size
        entries.append(entry)
        if units:
            content = b"".join(u[2] for u in units)
            entry |= {"digest": digest(content), "offset": units[0][0], "endOffset": len(blob)}
            if len(units) > 1:
                for i, (at, offset, piece) in enumerate(units):
                    target = entry if i == 0 else {"type": "chunk", "name": entry["name"]}
                    target |= {"offset": at, "chunkSize": len(piece), "chunkOffset": offset, "chunkDigest": digest(piece)}
                    if i:
                        entries.append(target)
        segments.append({"type": 2, "payload": base64.b64encode(tar[previous:member.offset_data]).decode()})
        segments.append({"type": 1, "name": member.name, "size": member.size if member.isreg() else 0, "payload": None})
        previous = member.offset_data + (member.size if member.isreg() else 0)
    if written < len(tar):
        add(tar[written:])
    segments.append({"type": 2, "payload": base64.b64encode(tar[previous:]).decode()})
    split_raw = b"".join(json.dumps(s | {"position": i}).encode() + b"\n" for i, s in enumerate(segments))
    split = one(split_raw, None)
    toc = {"version": 1, "entries": entries} | ({"tarSplitDigest": digest(split)} if dialect == "new" else {})
    toc_raw = json.dumps(toc, separators=(",", ":")).encode()
    packed = one(toc_raw, None)

    def skippable(payload):
        at = len(blob) + 8
        blob.extend(struct.pack("<II", 0x184D2A50, len(payload)) + payload)
        return at
    toc_at = skippable(packed)
    place = f"{toc_at}:{len(packed)}:{len(toc_raw)}:1"
    if dialect == "new":
        split_at = skippable(split)
        skippable(struct.pack("<7Q", toc_at, len(packed), len(toc_raw), 1, split_at, len(split), len(split_raw)) + b"GNUlInUx")
        prefix = "io.github.containers.zstd-chunked."
        return bytes(blob), {prefix + "manifest-checksum": digest(packed), prefix + "manifest-position": place, prefix + "tarsplit-position": f"{split_at}:{len(split)}:{len(split_raw)}"}
    skippable(struct.pack("<4Q", toc_at, len(packed), len(toc_raw), 1) + b"GnUlInUx")
    prefix = "io.containers.zstd-chunked."
    return bytes(blob), {prefix + "manifest-checksum": digest(packed), prefix + "manifest-position": place}


# ---------------------------------------------------------------- image folders


def write_image(folder, layers, tag="t", config=None):
    """layers: (blob, tar, media type, annotations). Returns the reference."""
    folder = Path(folder)
    layout, descriptors = build.Layout(folder), []
    for blob, _, media_type, annotations in layers:
        path = folder / "blob"
        path.write_bytes(blob)
        descriptors.append(layout.take(path, media_type) | ({"annotations": annotations} if annotations else {}))
    made = layout.add_json({"architecture": "amd64", "os": "linux", "config": config or {"Cmd": ["sh"]}, "rootfs": {"type": "layers", "diff_ids": [digest(tar) for _, tar, _, _ in layers]}},
                           build.MEDIA + "config.v1+json")
    manifest = layout.add_json({"schemaVersion": 2, "mediaType": build.MEDIA + "manifest.v1+json", "config": made, "layers": descriptors}, build.MEDIA + "manifest.v1+json")
    layout.tags[tag] = manifest
    layout.finish()
    return f"oci:{folder}:{tag}"


def gzip_image(folder, tars, tag="t"):
    return write_image(folder, [(gzip.compress(tar, 6, mtime=0), tar, GZIP, None) for tar in tars], tag)


def manifest_of(reference):
    """(descriptor, manifest) of oci:DIR:TAG."""
    folder, tag = reference.removeprefix("oci:").rsplit(":", 1)
    index = json.loads((Path(folder) / "index.json").read_text())
    entry = next(m for m in index["manifests"] if m.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag)
    return entry, json.loads(blob_path(reference, entry["digest"]).read_text())


def blob_path(reference, name):
    return Path(reference.removeprefix("oci:").rsplit(":", 1)[0]) / "blobs" / name.replace(":", "/")
