"""Raw tar writing: header by header, so that what no library would write can be written too."""
import struct

BLOCK = 512
REGULAR, HARDLINK, SYMLINK, CHAR, BLOCK_DEVICE, DIRECTORY, FIFO, CONTIGUOUS = b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7"


def padded(data):
    return data + b"\0" * (-len(data) % BLOCK)


def octal(value, width):
    return b"%0*o\0" % (width - 1, value)


def base256(value, width):
    number = value & ((1 << (8 * width - 1)) - 1)
    encoded = bytearray(number.to_bytes(width, "big"))
    encoded[0] |= 0x80 | (0x40 if value < 0 else 0)
    return bytes(encoded) if value >= 0 else b"\xff" + (value & ((1 << (8 * (width - 1))) - 1)).to_bytes(width - 1, "big")


def number(value, width):
    return octal(value, width) if 0 <= value < 8 ** (width - 1) else base256(value, width)


def header(name, kind, *, mode=0o644, uid=0, gid=0, size=0, mtime=1_600_000_000, link=b"", major=0, minor=0, magic=b"ustar\00000", prefix=b"", uname=b"", gname=b"", tail=None):
    """One block. Fields are cut to their width as a careless writer would."""
    block = bytearray(BLOCK)
    struct.pack_into("100s8s8s8s12s12s8ss100s8s32s32s8s8s155s", block, 0, name[:100], number(mode, 8), number(uid, 8), number(gid, 8), number(size, 12),
                     number(mtime, 12), b" " * 8, kind, link[:100], magic, uname, gname, number(major, 8) if magic else b"", number(minor, 8) if magic else b"", prefix)
    if tail:
        block[tail[0]:tail[0] + len(tail[1])] = tail[1]
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def pax_records(records):
    out = b""
    for key, value in records:
        body = b" " + key + b"=" + value + b"\n"
        length = len(body) + 1
        while len(b"%d" % length) + len(body) != length:
            length = len(b"%d" % length) + len(body)
        out += b"%d" % length + body
    return out


def pax(records, kind=b"x", name=b"PaxHeaders.0/x"):
    data = pax_records(records)
    return header(name, kind, size=len(data)) + padded(data)


def gnu_long(kind, text):
    """kind L: the next entry's name; K: its link target."""
    return header(b"././@LongLink", kind, size=len(text) + 1, magic=b"ustar  \0") + padded(text + b"\0")


class Tar:
    """Collects blocks. Every method returns self, so a layer reads as a list."""

    def __init__(self):
        self.blocks = []

    def raw(self, data):
        self.blocks.append(data)
        return self

    def entry(self, name, kind=REGULAR, data=b"", records=(), **fields):
        name = name.encode() if isinstance(name, str) else name
        if "link" in fields and isinstance(fields["link"], str):
            fields["link"] = fields["link"].encode()
        records = list(records)
        if len(name) > 100:
            records.append((b"path", name))
        if len(fields.get("link", b"")) > 100:
            records.append((b"linkpath", fields["link"]))
        if records:
            self.raw(pax(records))
        fields.setdefault("size", len(data))
        return self.raw(header(name, kind, **fields) + padded(data))

    def file(self, name, data=b"", **fields):
        return self.entry(name, REGULAR, data, **fields)

    def dir(self, name, **fields):
        return self.entry(name, DIRECTORY, mode=fields.pop("mode", 0o755), **fields)

    def symlink(self, name, target, **fields):
        return self.entry(name, SYMLINK, link=target, mode=0o777, **fields)

    def hardlink(self, name, target, **fields):
        return self.entry(name, HARDLINK, link=target, **fields)

    def whiteout(self, path):
        parent, _, name = path.rpartition("/")
        return self.file((parent + "/" if parent else "") + ".wh." + name)

    def opaque(self, path):
        return self.file(path + "/.wh..wh..opq")

    def bytes(self, end=b"\0" * 1024):
        return b"".join(self.blocks) + end
