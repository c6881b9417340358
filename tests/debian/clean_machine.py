"""A clean Debian as a machine of its own: made by mmdebstrap, entered by namespaces, gone with all that runs and is mounted in it."""
import ctypes, hashlib, os, shutil, signal, subprocess, sys, tempfile, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import program  # noqa: E402

# Not wanted, and a quarter of what is unpacked.
WITHOUT = ("/usr/share/man/*", "/usr/share/locale/*", "/usr/share/doc/*")
MIRROR = "http://deb.debian.org/debian"


def codename():
    """Of the Debian that the packages are built on, and so for."""
    lines = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    return lines.get("VERSION_CODENAME", "").strip('"') if lines.get("ID") == "debian" else program.skip("packages are made on Debian only")


def base_of(packages, kept):
    """A tar of a Debian with these packages, from the folder `kept` if it is there: it takes half a minute to make."""
    suite = codename()
    kept.mkdir(parents=True, exist_ok=True)
    name = kept / f"{suite}-{hashlib.sha256(' '.join([*packages, *WITHOUT]).encode()).hexdigest()[:16]}.tar"
    if name.exists():
        return name
    with tempfile.TemporaryDirectory(dir=kept) as folder:
        made = Path(folder) / "base.tar"
        done = subprocess.run(["mmdebstrap", "--variant=essential", "--include=" + ",".join(packages), '--aptopt=Acquire::Languages "none"', '--aptopt=Acquire::http::Timeout "20"',
                               *(f"--dpkgopt=path-exclude={pattern}" for pattern in WITHOUT), suite, str(made), MIRROR],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, "TMPDIR": folder})
        if done.returncode:
            program.skip(f"mmdebstrap could not make a Debian {suite}: {(done.stdout.strip().splitlines() or [''])[-1]}")
        made.rename(name)
    return name


# Runs as process 1 of the machine: takes its root, and what ends in it.
INIT = """
import ctypes, os, sys, time
libc, root = ctypes.CDLL(None, use_errno=True), sys.argv[1]
def mount(source, target, kind=None, flags=0):
    if libc.mount(source.encode(), target.encode(), kind and kind.encode(), flags, None) != 0:
        sys.exit(f"mount {target}: {os.strerror(ctypes.get_errno())}")
BIND, REC, PRIVATE, SHARED = 4096, 16384, 1 << 18, 1 << 20
mount("none", "/", None, REC | PRIVATE)
mount(root, root, None, BIND)
for name in ("dev", "sys"):
    mount("/" + name, f"{root}/{name}", None, BIND | REC)
mount("proc", root + "/proc", "proc")
mount("run", root + "/run", "tmpfs")
os.chdir(root)
if libc.syscall(155, b".", b".") != 0 or libc.umount2(b".", 2) != 0:  # pivot_root, and the old root goes
    sys.exit(f"pivot_root: {os.strerror(ctypes.get_errno())}")
os.chdir("/")
mount("none", "/", None, REC | SHARED)
open("/run/ready", "w").close()
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.02)
"""


class CleanMachine:
    """Use as a context manager. `root` is its root folder as it is seen from here."""

    def __init__(self, folder, base):
        self.root = Path(folder) / "machine"
        self.root.mkdir()
        subprocess.run(["tar", "-xf", str(base), "-C", str(self.root)], check=True)

    def __enter__(self):
        # Its process 1 ends with this one, and all of the machine with it.
        self.unshare = subprocess.Popen(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private", "/usr/bin/python3", "-B", "-c", INIT, str(self.root)],
                                        stdin=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while self.unshare.poll() is None and time.monotonic() < end:
            children = program.children_of(self.unshare.pid)
            if children and Path(f"/proc/{children[0]}/root/run/ready").exists():
                self.init = str(children[0])
                return self
            time.sleep(0.01)
        self.__exit__()
        raise AssertionError("the clean machine did not start")

    def __exit__(self, *_):
        self.unshare.kill()
        self.unshare.wait()

    def run(self, *words, timeout=120):
        return subprocess.run(["nsenter", "--target", self.init, "--mount", "--pid", "--root", "--", "/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
                               "DEBIAN_FRONTEND=noninteractive", *map(str, words)],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)

    def do(self, *words, timeout=120):
        """What it said."""
        done = self.run(*words, timeout=timeout)
        if done.returncode:
            raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout[-3000:]}")
        return done.stdout

    def files(self):
        """All that is on its disk, without what dpkg and apt write down about themselves."""
        found = set()
        for folder, folders, names in os.walk(self.root):
            here = Path("/") / Path(folder).relative_to(self.root)
            folders[:] = [name for name in folders if str(here / name) not in ("/var/lib/dpkg", "/var/lib/apt", "/var/cache/apt", "/var/log", "/proc", "/sys", "/dev", "/run")]
            found |= {str(here / name) for name in (*folders, *names)}
        return found
