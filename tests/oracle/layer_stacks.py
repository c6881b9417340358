"""Stacks of layers made at random, of few names, so that they meet: every rule of layers and many that nobody wrote."""
import random

from horrors import CAPABILITY
from tars import BLOCK_DEVICE, CHAR, DIRECTORY, FIFO, REGULAR, SYMLINK, Tar, gnu_long, header, padded, pax

NAMES = ("a", "b", "c", "d.e", "l" * 101, "n" * 255, "ü", " ", "-")
WEIGHTS = (9, 9, 9, 3, 1, 0.5, 1, 0.5, 0.5)
TARGETS = ("a", "b", "a/b", "/a", "/a/b", "/b/c", "..", "../b", "../../a", "../../../../c", "/", ".", "nowhere", "a/",
           "./b")


class Stack:
    """What a seed makes: layers of (a line that says what an entry is, its blocks of tar). `names` is what is there by
    then (roughly: it ends where layers do what umoci refuses), so that entries have parents and links targets."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names, self.clock = {"": "dir"}, 1_000_000_000
        counts = [self.random.randrange(1, 16) for _ in range(self.random.randrange(1, 5))]
        self.layers = [[self.entry() for _ in range(count)] for count in counts]

    def resolve(self, path):
        """Where a path leads, symlinks on the way followed inside the root; None if nowhere."""
        at, rest, left = [], path.split("/"), 30
        while rest:
            name = rest.pop(0)
            if name in ("", "."):
                continue
            if name == "..":
                at = at[:-1]
                continue
            here = "/".join(at + [name])
            kind = self.names.get(here, "")
            if kind.startswith("->") and rest:
                left -= 1
                if left == 0:
                    return None
                rest = kind[2:].split("/") + rest
                at = [] if kind.startswith("->/") else at
            elif rest and kind not in ("", "dir") and any(rest):
                return None
            else:
                at.append(name)
        return "/".join(at)

    def known(self, wanted):
        """A name that is there, if there is one."""
        names = [name for name, kind in self.names.items() if kind == wanted and name]
        return self.random.choice(names) if names else ""

    def path(self):
        """Most often in a folder that is there, or behind a symlink; seldom with a file in the way."""
        links = self.random.random() < 0.15
        folders = [name for name, kind in self.names.items() if kind == "dir" or (links and kind.startswith("->"))]
        for _ in range(20):
            path = self.random.choice(folders)
            for _ in range(self.random.choice((1, 1, 1, 1, 1, 2, 3))):
                path += ("/" if path else "") + self.random.choices(NAMES, WEIGHTS)[0]
            if self.resolve(path) is not None or self.random.random() < 0.005:
                return path
        return self.random.choices(NAMES, WEIGHTS)[0]

    def free(self, kind):
        """A path for an entry of its own; what is there already gives way."""
        path = self.path()
        self.put(path, kind)
        return path

    def put(self, path, kind):
        path = self.resolve(path) or path
        parts = path.split("/")
        for n in range(1, len(parts)):
            self.names.setdefault("/".join(parts[:n]), "dir")
        if kind != "dir" or self.names.get(path) != "dir":
            self.take(path)
        self.names[path] = kind

    def take(self, path):
        gone = [name for name in self.names if name == path or name.startswith(path + "/")]
        for name in gone:
            del self.names[name]

    def spelled(self, path):
        """With what writers put before and between names."""
        before = self.random.choice(("", "", "", "", "", "./", "/", ".//"))
        return before + path.replace("/", self.random.choice(("/",) * 9 + ("//", "/./")))

    def attributes(self):
        self.clock += 1000
        fields = {"mtime": self.random.choices((self.clock, 0, -86_400, 5_000_000_000), (30, 1, 1, 1))[0],
                  "mode": self.random.choice((0o644, 0o755, 0o755, 0o700, 0o4755, 0o2755, 0o1777, 0))}
        if self.random.random() < 0.2:
            fields |= {"uid": self.random.choice((1, 1000, 70_000, 3_000_000_000)),
                       "gid": self.random.choice((1, 65_536))}
        return fields

    def records(self, special=False):
        """`special`: neither file nor folder; the kernel gives those no attributes of users."""
        records = []
        if self.random.random() < 0.15 and not special:
            records.append((b"SCHILY.xattr.user.u%d" % self.random.randrange(3),
                            b"v" * self.random.choice((1, 30, 900))))
        if self.random.random() < 0.05:
            records.append((b"SCHILY.xattr.trusted.t", b"t"))
        if self.random.random() < 0.03 and not special:
            records.append((b"SCHILY.xattr.security.capability", CAPABILITY))
        if self.random.random() < 0.1:
            self.clock += 1000
            records.append((b"mtime", b"%d.%09d" % (self.clock, self.random.randrange(1_000_000_000))))
        return records

    def entry(self):
        """(a line that says what it is, the blocks it is in a tar)"""
        kind = self.random.choices(("dir", "file", "sparse", "symlink", "hardlink", "fifo", "device", "whiteout",
                                    "opaque", "root"), (22, 26, 3, 13, 12, 2, 1.5, 11, 4, 1))[0]
        return getattr(self, "make_" + kind)()

    def make_dir(self):
        path, fields, records = self.free("dir"), self.folder_attributes(), self.records()
        name = self.spelled(path) + self.random.choice(("", "/"))
        return f"dir {name} {fields} {records}", self.named(name, DIRECTORY, records=records, **fields)

    def folder_attributes(self):
        """No setgid: folders below, that no layer has an entry for, inherit it or not as the machine likes."""
        fields = self.attributes()
        return fields | {"mode": fields["mode"] & ~0o2000}

    def make_root(self):
        fields = self.folder_attributes()
        name = self.random.choice(("./", ".", "/"))
        return f"dir {name} {fields}", Tar().entry(name, DIRECTORY, **fields).bytes(b"")

    def make_file(self):
        path, fields, records = self.free("file"), self.attributes(), self.records()
        content = self.random.randbytes(self.random.choice((0, 1, 30, 511, 512, 513, 3000)))
        name = self.spelled(path)
        blocks = self.named(name, REGULAR, data=content, records=records, **fields)
        return f"file {name} {len(content)} {fields} {records}", blocks

    def make_sparse(self):
        path, fields = self.free("file"), self.attributes()
        pieces, at = [], 0
        for _ in range(self.random.randrange(4)):
            at += self.random.choice((0, 512, 700, 4096, 100_000))
            pieces.append((at, self.random.randbytes(self.random.choice((1, 512, 1000)))))
            at += len(pieces[-1][1])
        size = at + self.random.choice((0, 100, 8192))
        pieces = pieces or [(size, b"")]
        content = b"".join(piece for _, piece in pieces)
        table = padded(b"%d\n" % len(pieces) + b"".join(b"%d\n%d\n" % (offset, len(piece)) for offset, piece in pieces))
        blocks = pax([(b"GNU.sparse.major", b"1"), (b"GNU.sparse.minor", b"0"),
                      (b"GNU.sparse.name", self.spelled(path).encode()), (b"GNU.sparse.realsize", b"%d" % size)])
        blocks += header(b"GNUSparseFile.0/x", REGULAR, size=len(table) + len(content), **fields)
        blocks += table + padded(content)
        return f"sparse {path} {size} {[(offset, len(piece)) for offset, piece in pieces]} {fields}", blocks

    def make_symlink(self):
        target = self.random.choice(TARGETS) if self.random.random() < 0.4 else "/" + self.known("dir")
        if self.random.random() < 0.03:
            target += "/." * self.random.choice((50, 300, 1500))
        path, fields, records = self.free("->" + target), self.attributes() | {"mode": 0o777}, self.records(special=True)
        name = self.spelled(path)
        line = f"symlink {name} -> {target} {fields} {records}"
        return line, self.named(name, SYMLINK, records=records, link=target, **fields)

    def named(self, name, kind, **fields):
        """A long name as GNU tar writes it, or as pax does."""
        if len(name.encode()) <= 100 or self.random.random() < 0.7:
            return Tar().entry(name, kind, **fields).bytes(b"")
        return gnu_long(b"L", name.encode()) + Tar().entry(name.encode()[:100], kind, **fields).bytes(b"")

    def make_hardlink(self):
        links = [name for name, kind in self.names.items() if kind.startswith("->")]
        target = self.random.choice(links) if links and self.random.random() < 0.1 else self.known("file")
        path = self.path()
        there = self.resolve(path) or path
        if not target or target == there or target.startswith(there + "/"):
            return self.make_file()
        self.put(path, self.names[target])
        target, name = self.spelled(target), self.spelled(path)
        return f"hardlink {name} -> {target}", Tar().hardlink(name, target).bytes(b"")

    def make_fifo(self):
        path, fields, records = self.free("file"), self.attributes(), self.records(special=True)
        return f"fifo {path} {fields} {records}", self.named(path, FIFO, records=records, **fields)

    def make_device(self):
        path, kind = self.free("file"), self.random.choice((CHAR, BLOCK_DEVICE))
        fields = self.attributes() | {"major": self.random.choice((1, 259)), "minor": self.random.choice((3, 70_000))}
        return f"device {path} {kind} {fields}", Tar().entry(path, kind, **fields).bytes(b"")

    def make_whiteout(self):
        path = self.random.choice([name for name in self.names if name] or ["a"])
        if self.random.random() < 0.1:
            path = self.path()
        self.take(self.resolve(path) or path)
        parent, _, name = path.rpartition("/")
        name = self.spelled(parent + "/" if parent else "") + ".wh." + name[:251]
        return f"whiteout {name}", Tar().file(name).bytes(b"")

    def make_opaque(self):
        path = self.random.choices((self.known("dir"), "", self.path()), (18, 2, 1))[0]
        for name in [name for name in self.names if name and name.startswith(path + "/" if path else "")]:
            del self.names[name]
        name = self.spelled(path + "/" if path else "") + ".wh..wh..opq"
        return f"opaque {name}", Tar().file(name).bytes(b"")


def tars_of(layers):
    return [b"".join(blocks for _, blocks in layer) + b"\0" * 1024 for layer in layers]


def whiteouts_first(layers):
    """By the specification the same: whiteouts hide what lower layers have, wherever they stand."""
    return [sorted(layer, key=lambda entry: not is_whiteout(entry)) for layer in layers]


def deepest_whiteouts_first(layers):
    """The same again; and none hides a symlink on the way to another before that was obeyed."""
    return [sorted(layer, key=lambda entry: -len(entry[0].split("/")) if is_whiteout(entry) else 0) for layer in layers]


def is_whiteout(entry):
    return entry[0].startswith(("whiteout", "opaque"))


def smaller(layers, is_wrong):
    """The same fault with as few entries as leaving them out one by one gives."""
    done = False
    while not done:
        done = True
        for at in range(len(layers)):
            for i in reversed(range(len(layers[at]))):
                fewer = [layer[:i] + layer[i + 1:] if number == at else layer for number, layer in enumerate(layers)]
                if is_wrong(fewer):
                    layers, done = fewer, False
        fewer = [layer for layer in layers if layer]
        if len(fewer) < len(layers) and fewer and is_wrong(fewer):
            layers = fewer
    return layers
