"""Images that want out: what each of them has in its config or its last layer. All are over one base with the attacker as /bin/probe."""
import dataclasses, struct, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "oracle"))
from tars import BLOCK_DEVICE, CHAR, FIFO, Tar  # noqa: E402

PROBE = ["/bin/probe"]
SITE = "usr/lib/python3.11/dist-packages"
DRIVER = "usr/lib/driver"
LOADER_FILES = ("etc/ld.so.conf", "etc/ld.so.conf.d/00-varve-devices.conf", "etc/ld.so.conf.d/other.conf", "etc/ld.so.cache", "etc/ld.so.cache~",
                "var/cache/ldconfig/aux-cache", "var/cache/ldconfig/aux-cache~")
# Every file that Varve writes, binds or reads in a session.
FILES = ("etc/resolv.conf", "etc/hosts", "etc/hostname", "etc/passwd", "etc/group", "etc/varve/usage-off", *LOADER_FILES, f"{DRIVER}/libcuda.so.550.54",
         f"{DRIVER}/libcuda.so", f"{SITE}/varve_recorder.pth", f"{SITE}/varve_recorder.py", "run/varve/spool", "data")
# And every folder that it mounts upon, or that leads to one.
FOLDERS = ("proc", "dev", "sys", "etc", "run", "run/varve", "dev/shm", "dev/pts", "etc/ld.so.conf.d", DRIVER, SITE, "data", "tmp")
ESCAPE = "\x1b]0;owned\x07\x1b[2J"


@dataclasses.dataclass
class Image:
    name: str
    config: dict = dataclasses.field(default_factory=dict)
    layer: Tar = None
    nasty: bool = False   # tried under every runtime, with everything
    works: bool = False   # nothing is wrong with it: it must run
    ends: tuple = ()      # how its command may end by itself


def tree(path, put):
    """A layer with the folders above `path`, and what `put` puts there."""
    layer = Tar()
    parts = path.split("/")
    for i in range(1, len(parts)):
        layer.dir("/".join(parts[:i]))
    return put(layer, path)


def everywhere(paths, put):
    """One layer with `put` at each path; where one path lies beneath another, the upper one has it."""
    layer, made = Tar(), set()
    for path in sorted(paths):
        parts = path.split("/")
        if any("/".join(parts[:i]) in paths for i in range(1, len(parts))):
            continue
        for i in range(1, len(parts)):
            if (parent := "/".join(parts[:i])) not in made:
                made.add(parent)
                layer.dir(parent)
        put(layer, path)
    return layer


def fifo(layer, path):
    return layer.entry(path, FIFO)


def link(target):
    return lambda layer, path: layer.symlink(path, target)


def content(data, **fields):
    return lambda layer, path: layer.file(path, data, **fields)


def folder(layer, path):
    return layer.dir(path).file(path + "/inside", b"x")


def elf(machine, interpreter=b"/nowhere"):
    """The least of a 64-bit program: a header, its interpreter, one loaded page."""
    text = interpreter + b"\0"
    head = b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, 0x400000, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    interp = struct.pack("<IIQQQQQQ", 3, 4, 176, 0x4000B0, 0x4000B0, len(text), len(text), 1)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0x400000, 0x400000, 176 + len(text), 176 + len(text), 4096)
    return head + interp + load + text


def working_dirs(machine):
    for fd in (3, 4, 5, 6, 7, 8, 9, 10, 11, 12):
        yield Image(f"workdir fd {fd}", {"WorkingDir": f"/proc/self/fd/{fd}"}, nasty=fd in (3, 7, 9))
    for name, path in (("process 1", "/proc/1/root"), ("cwd", "/proc/self/cwd"), ("root", "/proc/self/root"), ("thread", "/proc/thread-self/root/.."), ("dev fd", "/dev/fd/9"),
                       ("up", "../../../../../../.."), ("up through proc", "/proc/self/fd/../../../../.."), ("cgroup", "/sys/fs/cgroup"), ("long", "/a" * 2600), ("long name", "/" + "n" * 300),
                       ("escapes", "/" + ESCAPE), ("newline", "/a\nvarve: error: b"), ("beneath a file", "/etc/passwd/x"), ("a file", "/bin/probe"), ("machine's", machine.canary_dir)):
        yield Image(f"workdir {name}", {"WorkingDir": path})
    yield Image("workdir empty", {"WorkingDir": ""}, works=True)
    for name, target in (("to an fd", "/proc/self/fd/9"), ("to proc", "/proc"), ("relative", "../../proc/self/fd/7"), ("itself", "w")):
        yield Image(f"workdir link {name}", {"WorkingDir": "/w/self/fd/9" if target == "/proc" else "/w"}, Tar().symlink("w", target), nasty=name == "to an fd")


def variables():
    many = [f"B{i}=1" for i in range(3200)]
    yield Image("env nul", {"Env": ["A=\0", *many]}, nasty=True)
    yield Image("env 3200", {"Env": many}, works=True)
    for name, env, works in (("200 kB", ["A=" + "x" * 200_000], False), ("4 MB", [f"A{i}=" + "x" * 100_000 for i in range(40)], False), ("no =", ["A", "", "=", "=x", "B=1"], True), ("newline", ["A=1\nB=2"], True),
                             ("twice", ["A=1", "A=2"], True), ("bytes", ["A=\udcff\udcfe"], False), ("name of escapes", [ESCAPE + "=1"], False), ("no PATH", ["PATH="], True), ("long PATH", ["PATH=" + ":".join(f"/x{i}" for i in range(15000))], False),
                             ("loader", ["LD_PRELOAD=/evil.so", "LD_LIBRARY_PATH=/proc/self/fd/9:/etc", "GCONV_PATH=/", "GLIBC_TUNABLES=glibc.malloc.check=3", "LD_AUDIT=/evil.so"], True),
                             ("HOME", ["HOME=/proc/self/fd/9", "HOSTNAME=" + "h" * 5000, "TERM=" + "t" * 5000], True),
                             ("Pythons", ["VIRTUAL_ENV=/proc/self/root", "CONDA_PREFIX=../../..", "VARVE_USAGE_SPOOL=/etc", "VARVE_ROOT=/", "VARVE_CONFIG=/etc/passwd"], True),
                             ("driver", ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=99.9 " + ESCAPE, "NVIDIA_DRIVER_CAPABILITIES=all," + ESCAPE], True)):
        yield Image(f"env {name}", {"Env": env}, Tar().file("evil.so", b"\x7fELF"), works=works)
    yield Image("env of no text", {"Env": {"A": 1}})
    yield Image("words of no text", {"Cmd": "probe", "WorkingDir": 5, "User": None})


def users(machine):
    for name, user in (("escapes", ESCAPE), ("2^32", "4294967296"), ("2^64", "18446744073709551616"), ("-1", "-1"), ("2^32-1", "4294967295"), ("2^31", "2147483648"), ("missing", "nobody-here"), ("group 2^40", "0:1099511627776"), ("group escapes", "0:" + ESCAPE),
                       ("colons", "0:0:0"), ("one colon", ":"), ("long", "u" * 1_000_000), ("nul", "0\0"), ("spaces", " 0"), ("machine's", "root:0,1,2")):
        yield Image(f"user {name}", {"User": user})
    yield Image("user 1000", {"User": "1000:1000"}, Tar().file("bin/probe", machine.probe, mode=0o4755))
    for name, put in (("fifo", fifo), ("disk", machine.disk), ("zero", lambda layer, path: layer.entry(path, CHAR, major=1, minor=5)), ("memory", link("/proc/self/mem")), ("folder", folder), ("machine's", link(machine.canary)),
                      ("one long line", content(b"root:" + b"x" * 4_000_000)), ("garbage", content(bytes(range(256)) * 64)), ("escapes", content(f"root:x:0:0:{ESCAPE}:/{ESCAPE}:/{ESCAPE}\n".encode())),
                      ("odd homes", content(b"root:x:0:0:root:/proc/self/fd/9:/bin/sh\nroot:x:-1:-1::/:/\nroot:x:99999999999:0::/:/\n"))):
        yield Image(f"passwd {name}", {"User": "root"}, tree("etc/passwd", put), nasty=name == "disk")
        yield Image(f"group {name}", {"User": "0:root"}, tree("etc/group", put))


def commands(machine):
    nobody = "no such " + ESCAPE
    for name, words, put in (("empty", [""], None), ("none", [], None), ("two empty", ["", ""], None), ("folder", ["/etc"], None), ("fifo", ["/c"], fifo), ("disk", ["/c"], machine.disk), ("missing", ["/" + nobody], None), ("missing name", [nobody], None),
                             ("other machine", ["/c"], content(elf(183 if machine.arch == "x86_64" else 62), mode=0o755)), ("cut short", ["/c"], content(elf(62)[:70], mode=0o755)), ("fifo loads it", ["/c"], content(elf(machine.elf, b"/fifo"), mode=0o755)),
                             ("fifo interprets it", ["/c"], content(b"#!/fifo\n", mode=0o755)), ("interprets itself", ["/c"], content(b"#!/c\n", mode=0o755)), ("interpreter of escapes", ["/c"], content(f"#!/{ESCAPE}\n".encode(), mode=0o755)),
                             ("an fd", ["/proc/self/fd/9"], None), ("dev fd", ["/dev/fd/9"], None), ("up", ["../../../../../../bin/probe"], None), ("100,000 words", ["/bin/probe", *["x"] * 100_000], None), ("long word", ["/bin/probe", "x" * 200_000], None),
                             ("nul", ["/bin/probe\0x"], None), ("bytes", ["/bin/probe", "\udcff"], None), ("not allowed", ["/c"], content(machine.probe, mode=0o644)), ("machine's", [machine.canary], None)):
        layer = tree("c", put) if put else Tar()
        yield Image(f"command {name}", {"Entrypoint": words, "Cmd": []}, fifo(layer, "fifo"))
    # The program that executes the command, executed again with a loader of the image.
    for name, words, put in (("executes its runtime", ["/proc/self/exe"], None), ("interpreted by its runtime", ["/c"], content(b"#!/proc/self/exe\n", mode=0o755)), ("loaded by its runtime", ["/c"], content(elf(machine.elf, b"/proc/self/exe"), mode=0o755)),
                             ("link to its runtime", ["/c"], link("/proc/self/exe")), ("executes process 1", ["/proc/1/exe"], None)):
        layer = tree("c", put) if put else Tar()
        yield Image(f"command {name}", {"Entrypoint": words, "Cmd": []}, layer.dir("lib64").dir("lib").file(machine.loader, machine.interpreter, mode=0o755), nasty=name == "interpreted by its runtime", ends=(139,))


def other_fields():
    yield Image("volumes", {"Volumes": {"/": {}, "/proc": {}, "../../..": {}, "/" + ESCAPE: {}, "/etc/passwd": {}, "": {}}}, works=True)
    yield Image("labels", {"Labels": {"big": "x" * 3_000_000, ESCAPE: ESCAPE, "": "", "org.opencontainers.image.ref.name": "../../etc"}}, works=True)
    yield Image("odd fields", {"StopSignal": "99999", "ExposedPorts": {"-1/x": {}}, "Shell": ESCAPE, "Healthcheck": {"Test": ["CMD", "/proc/self/exe"], "Interval": -1}, "OnBuild": ["RUN x"], "Hostname": "../..", "Domainname": ESCAPE,
                                 "MacAddress": "x", "ArgsEscaped": "?", "NetworkDisabled": False}, works=True)


def files(machine):
    """What lies where Varve writes, binds or reads: everywhere at once, and alone where an earlier refusal would hide a later mistake."""
    kinds = {"fifo": fifo, "disk": machine.disk, "zero": lambda layer, path: layer.entry(path, CHAR, major=1, minor=5), "kernel log": lambda layer, path: layer.entry(path, CHAR, major=1, minor=11),
             "nothing": lambda layer, path: layer.entry(path, CHAR, major=0, minor=0), "machine's file": link(machine.canary), "machine's folder": link(machine.canary_dir), "fd": link("/proc/self/fd/9"), "up": link("../../../../../../.." + machine.canary),
             "process 1": link("/proc/1/root" + machine.canary), "itself": lambda layer, path: layer.symlink(path, path.rpartition("/")[2]), "folder": folder, "4 MB": content(b"include /proc/self/fd/9\n" * 180_000), "garbage": content(bytes(range(256)) * 4096, mode=0o4000),
             "no rights": content(b"x", mode=0, uid=4_000_000_000, gid=4_000_000_000)}
    for name, put in kinds.items():
        yield Image(f"{name} at every file", layer=everywhere(FILES, put))
    yield Image("one file at every name", layer=everywhere(FILES, lambda layer, path: layer.hardlink(path, "bin/probe")))
    for path in LOADER_FILES:
        yield Image(f"fifo at {path}", layer=tree(path, fifo), nasty=path.endswith("devices.conf"))
        if "aux" not in path:
            yield Image(f"disk at {path}", layer=tree(path, machine.disk), nasty=path.endswith(("devices.conf", "cache~")))
            yield Image(f"machine's file at {path}", layer=tree(path, link("../../../../../../.." + machine.canary)), nasty=path.endswith("cache~"))
    for name, text in (("many folders", b"include /*/*/*/*\n/proc/self/fd\n/dev\n" + b"/x" * 5000 + b"\n"), ("include themselves", b"include /etc/ld.so.conf.d/*.conf\n"), ("of escapes", ESCAPE.encode() + b"\ninclude " + ESCAPE.encode() + b"\n"), ("of zeros", bytes(900_000)),
                       ("too large", b"\n" * 3_000_000)):
        yield Image(f"loader files {name}", layer=Tar().dir("etc").file("etc/ld.so.conf", text).dir("etc/ld.so.conf.d").file("etc/ld.so.conf.d/a.conf", text))
    for name, data in (("cut short", elf(machine.elf)[:100]), ("garbage", b"\x7fELF\x02\x01\x01" + b"\xff" * 5000)):
        yield Image(f"libraries {name}", layer=Tar().dir("usr").dir("usr/lib").dir(DRIVER).file(f"{DRIVER}/libx.so.1", data).dir("lib").file("lib/liby.so", data).entry("lib/libz.so", FIFO).file(f"lib/lib{ESCAPE}.so", elf(machine.elf)))


def folders(machine):
    targets = {"foo": "/foo", "root": "/", "machine's": machine.canary_dir, "up": "../../../../../../.." + machine.canary_dir, "process": "/proc/self/root", "fd": "/proc/self/fd/9", "each other": None}
    nasty = {("proc", "foo"), ("proc", "machine's"), ("dev", "machine's"), ("data", "process"), ("etc", "machine's")}
    for name, target in targets.items():
        for path in FOLDERS:
            if name in ("up", "fd") and path in ("etc", "run", "tmp", "dev/shm", "etc/ld.so.conf.d", "run/varve"):
                continue
            to = target or {"proc": "/dev", "dev": "/proc", "sys": "/proc/sys", "etc": "/dev", "run": "/proc"}.get(path)
            if to:
                yield Image(f"{path} -> {name}", layer=tree(path, link(to)).dir("foo", mode=0o777), nasty=(path, name) in nasty)
    for path in ("proc", "dev", "sys", "etc", "run"):
        yield Image(f"{path} is a file", layer=tree(path, content(b"x")))
        yield Image(f"{path} is a fifo", layer=tree(path, fifo))
    chain = Tar()
    for i in range(45):
        chain.symlink(f"l{i}", f"/l{i + 1}")
    yield Image("45 links to proc", layer=chain.symlink("proc", "/l0"))
    yield Image("deep links", layer=Tar().symlink("dev", "a/" * 1500).symlink("proc", "x/../" * 700))
    yield Image("devices' names", layer=Tar().dir("dev").dir("dev/nvidia0").symlink("dev/nvidia-caps", machine.canary_dir).symlink("dev/null", machine.canary).symlink("dev/console", machine.canary).symlink("dev/ptmx", machine.canary).entry("dev/disk", BLOCK_DEVICE, major=machine.major, minor=machine.minor))
    yield Image("closed root", layer=Tar().dir(".", mode=0))
    yield Image("open root of another", layer=Tar().dir(".", mode=0o7777, uid=12345, gid=12345), works=True)
    yield Image("names of escapes", layer=Tar().dir(ESCAPE).file(ESCAPE + "/" + ESCAPE, b"x").dir("usr").dir("usr/lib").dir(DRIVER).symlink(f"{DRIVER}/libcuda.so.1", ESCAPE), works=True)
    yield Image("overlay's own marks", layer=Tar().entry("etc", b"5", mode=0o755, records=[(b"SCHILY.xattr.trusted.overlay.redirect", b"/../../.."), (b"SCHILY.xattr.trusted.overlay.opaque", b"y"), (b"SCHILY.xattr.user.overlay.redirect", b"/bin")])
                .file("etc/passwd", b"root:x:0:0::/:/\n", records=[(b"SCHILY.xattr.trusted.overlay.metacopy", b""), (b"SCHILY.xattr.trusted.overlay.redirect", machine.canary.encode()), (b"SCHILY.xattr.user.overlay.metacopy", b"")]))
    yield Image("capabilities", layer=Tar().file("bin/probe", machine.probe, mode=0o6755, records=[(b"SCHILY.xattr.security.capability", b"\x01\0\0\x02" + b"\xff" * 16)]), nasty=True)


def all_images(machine):
    images = [Image("plain", works=True, nasty=True)]
    for more in (working_dirs(machine), variables(), users(machine), commands(machine), other_fields(), files(machine), folders(machine)):
        images += more
    names = [image.name for image in images]
    assert len(set(names)) == len(names), sorted(name for name in names if names.count(name) > 1)
    return images
