"""What must be untouched on the machine: the canaries, and how a session is run among them."""
import array, ctypes, fcntl, filecmp, os, pty, secrets, shutil, socket, stat, subprocess, termios, tempfile, threading
from pathlib import Path

NOBODY = 65534
SECRET = "varve-canary:" + secrets.token_hex(8)
LIMIT_SECONDS = int(os.environ.get("HOSTILE_SECONDS", 60))
LOOPS = {"x86_64": ("lib64/ld-linux-x86-64.so.2", 62), "aarch64": ("lib/ld-linux-aarch64.so.1", 183)}
SETTINGS = ("kernel/core_pattern", "kernel/modprobe", "kernel/hostname", "kernel/sysrq", "vm/overcommit_memory", "net/ipv4/ip_forward")
# The caller's own descriptors, as `exec 9</etc/shadow` leaves them.
WITH_DESCRIPTORS = 'exec 3<"$1" 7<"$1" 9<"$2"; shift 2; exec "$@"'


def compiled(work, name, *options):
    target = work / name
    subprocess.run(["cc", "-O1", "-static", *options, "-o", target, Path(__file__).parent / f"{name}.c"], check=True)
    return target


class Machine:
    """Use as a context manager. The folder of canaries is open to everybody, so that nothing but the session's walls protects it."""

    def __init__(self, work):
        self.work, self.lock, self.loop = work, threading.Lock(), None
        self.probe_file = compiled(work, "attacker")
        self.probe = self.probe_file.read_bytes()
        self.interpreter = compiled(work, "interpreter", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-pie", "-no-pie").read_bytes()
        self.arch = os.uname().machine
        self.loader, self.elf = LOOPS[self.arch]
        self.canary_dir = str(work / "canary")
        self.canary = self.canary_dir + "/secret"
        (work / "canary/folder").mkdir(parents=True)
        self.place_canaries()
        self.volume = work / "volume"
        self.volume.mkdir()
        self.volume.chmod(0o777)
        (self.volume / "link").symlink_to(self.canary_dir)
        self.settings = {name: self.setting(name) for name in SETTINGS}
        self.groups = self.cgroups()

    def place_canaries(self):
        for name in ("secret", "resolv.conf", "hosts", "passwd", "folder/varve_recorder.pth"):
            path = Path(self.canary_dir, name)
            path.write_text(SECRET + "\n")
            path.chmod(0o666)
        for path in (self.canary_dir, self.canary_dir + "/folder"):
            os.chmod(path, 0o777)
        self.files = self.listed()

    def listed(self):
        found = {}
        for folder, _, names in os.walk(self.canary_dir):
            for path in [folder, *(os.path.join(folder, name) for name in names)]:
                status = os.lstat(path)
                found[path] = (oct(status.st_mode), status.st_uid, status.st_gid, status.st_size, status.st_mtime_ns, Path(path).read_text() if stat.S_ISREG(status.st_mode) else "")
        return found

    @staticmethod
    def setting(name):
        try:
            return Path("/proc/sys", name).read_text()
        except OSError:
            return None

    @staticmethod
    def cgroups():
        top = Path("/sys/fs/cgroup")
        return {path for pattern in ("varve-*", "*/varve-*") for path in top.glob(pattern)}

    def __enter__(self):
        backing = self.work / "disk"
        backing.write_bytes(SECRET.encode().ljust(1 << 20, b"\0"))
        made = subprocess.run(["losetup", "-f", "--show", backing], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) if shutil.which("losetup") else None
        if made and made.returncode == 0:
            self.loop = made.stdout.strip()
            device = os.stat(self.loop).st_rdev
            self.major, self.minor = os.major(device), os.minor(device)
        else:
            print("skipped: a disk as a canary (this machine gives no loop device)", flush=True)
            self.major, self.minor = 7, 1048000
        # Beyond the abstract names and ports there is nothing a network namespace of one's own must hide.
        self.socket_name = "varve-canary-" + secrets.token_hex(8)
        self.local = socket.socket(socket.AF_UNIX)
        self.local.bind("\0" + self.socket_name)
        self.local.listen()
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.put_key()
        return self

    def __exit__(self, *_):
        self.local.close(), self.tcp.close()
        if self.loop:
            subprocess.run(["losetup", "-d", self.loop])

    def put_key(self):
        """A session keyring of this test's own, with a key in it."""
        join, add, keyctl = 1, *{"x86_64": (248, 250), "aarch64": (217, 219)}[self.arch]
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(keyctl, join, None, 0, 0, 0) < 0 or libc.syscall(add, b"user", b"varve-canary", SECRET.encode(), len(SECRET), -3) < 0:
            print("skipped: a key as a canary (this machine has no keyrings)", flush=True)

    def disk_node(self, layer, path):
        return layer.entry(path, b"4", major=self.major, minor=self.minor, mode=0o666)

    disk = disk_node  # as images.py calls it

    def damage(self):
        """What a session did to the machine since the last call; mended, so that the next one is judged alone."""
        found = []
        with self.lock:
            files = self.listed()
            if files != self.files:
                found += [f"the machine's {path} was {self.files.get(path, 'not there')}, is {files.get(path, 'gone')}" for path in sorted(files.keys() | self.files.keys()) if files.get(path) != self.files.get(path)]
                for path in sorted(files.keys() - self.files.keys(), reverse=True):
                    shutil.rmtree(path, ignore_errors=True) if os.path.isdir(path) else os.unlink(path)
                self.place_canaries()
            if self.loop:
                with open(self.loop, "r+b", buffering=0) as disk:
                    if not disk.read(512).startswith(SECRET.encode()):
                        found.append("the disk was written to")
                        disk.seek(0)
                        disk.write(SECRET.encode().ljust(512, b"\0"))
            for name, value in self.settings.items():
                if self.setting(name) != value:
                    found.append(f"/proc/sys/{name} was changed from {value!r} to {self.setting(name)!r}")
                    Path("/proc/sys", name).write_text(value)
        return found


class User:
    """root or nobody, with a program, a state folder and a daemon of his own."""

    def __init__(self, machine, varve_class, name):
        self.machine, self.name, self.id = machine, name, 0 if name == "root" else NOBODY
        self.home = machine.work / name
        self.home.mkdir()
        program = shutil.copy(varve_class(machine.work).binary, self.home / "varve")
        for path in (self.home, program):
            os.chown(path, self.id, self.id)
        self.varve = varve_class(self.home)
        self.varve.binary = str(program)
        self.original = varve_class(machine.work).binary
        self.varve.environment |= {"HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home), "VARVE_CONFIG": "/dev/null"}

    def program_is_whole(self):
        return filecmp.cmp(self.original, self.varve.binary, shallow=False)

    def start(self, words, **how):
        who = {} if self.id == 0 else {"user": self.id, "group": self.id, "extra_groups": []}
        return subprocess.Popen([str(word) for word in words], env=self.varve.environment | {"VARVE_TEST_SECRET": SECRET}, cwd=self.home, **who, **how)

    def run(self, words, terminal=False):
        """(status or None, stdout, stderr, what reached the caller's terminal)"""
        words = ["sh", "-c", WITH_DESCRIPTORS, "sh", self.machine.canary_dir, self.machine.canary, *words]
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            if not terminal:
                status = self.wait(self.start(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err))
                return status, self.text(out), self.text(err), ""
            outer, inner = pty.openpty()
            os.fchown(inner, self.id, self.id)
            flags = termios.tcgetattr(inner)
            flags[3] &= ~(termios.ICANON | termios.ECHO)  # else what is typed without a newline could not be counted
            termios.tcsetattr(inner, termios.TCSANOW, flags)
            seen = bytearray()
            reader = threading.Thread(target=self.drain, args=(outer, seen))
            reader.start()
            status = self.wait(self.start(["setsid", "--ctty", "--wait", *words], stdin=inner, stdout=inner, stderr=err))
            termios.tcsetattr(inner, termios.TCSANOW, flags)
            waiting = array.array("i", [0])
            fcntl.ioctl(inner, termios.FIONREAD, waiting)
            typed = os.read(inner, waiting[0]) if waiting[0] else b""
            os.close(inner)
            reader.join()
            os.close(outer)
            return status, bytes(seen).decode(errors="replace"), self.text(err), typed.decode(errors="replace")

    @staticmethod
    def drain(terminal, seen):
        try:
            while data := os.read(terminal, 4096):
                seen += data
        except OSError:
            pass  # EIO: nobody has it open any more

    @staticmethod
    def text(file):
        file.seek(0)
        return file.read(1 << 20).decode(errors="surrogateescape")

    @staticmethod
    def wait(process):
        try:
            return process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return None
