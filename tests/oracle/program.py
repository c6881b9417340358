"""The program under test, with a state folder and a daemon of its own."""
import contextlib, ctypes, json, os, shutil, signal, subprocess, sys, tempfile, time
from pathlib import Path


def skip(reason):
    """The way ctest knows: exit 77, and one line that says why."""
    print(f"skipped: {reason}", flush=True)
    sys.exit(77)


def need_root():
    if os.getuid() != 0:
        skip("whole trees with owners and devices can be compared as root only")


def need_tools(*tools):
    missing = [tool for tool in tools if not shutil.which(tool)]
    if missing:
        skip("not installed: " + " ".join(missing))


def need_own_root():
    """In a chroot runtimes enter their containers by the machine's root, and the kernel makes no user namespaces, which tells it."""
    if not has_user_namespaces():
        skip("runtimes and packages cannot be tested in a chroot, nor where the kernel makes no user namespaces")


def let_go_of_others_mounts():
    """In a mount namespace of one's own, which has a copy of each: a test beside this one that unmounts would find its mount in use."""
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for place in reversed([place for place in places if "/vo-" in place]):
        subprocess.run(["umount", "-l", place], stderr=subprocess.DEVNULL)


def take_own_mounts():
    """From here on this process mounts in a namespace of its own. What a test beside it copies into one of its own would stay mounted there, its files open and their pages in memory, and so does what this one copied."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x20000):  # CLONE_NEWNS
        skip("this machine gives no mount namespace")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    let_go_of_others_mounts()


def need_fuse():
    """And, as root, mounts of one's own: tests that mount run beside each other."""
    if not os.path.exists("/dev/fuse"):
        skip("this machine has no /dev/fuse")
    if os.getuid() == 0:
        take_own_mounts()


class Varve:
    """Use as a context manager: what it started is gone when it ends, whatever happened."""

    def __init__(self, work):
        self.binary = os.path.abspath(os.environ.get("VARVE") or Path(__file__).resolve().parents[2] / "build/release/varve")
        self.work, self.root, self.mounts = Path(work), Path(work) / "state", []
        self.environment = {**os.environ, "VARVE_ROOT": str(self.root)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for folder in reversed(self.mounts):
            self.run("unmount", folder)
        self.stop_daemon()
        for folder in self.mounts:
            if os.path.ismount(folder):
                subprocess.run(["umount", "-l", folder])

    def run(self, *arguments, check=False, timeout=300):
        done = subprocess.run([self.binary, *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout, env=self.environment)
        if check and done.returncode:
            raise AssertionError(f"varve {' '.join(map(str, arguments))}: exit {done.returncode}\n{done.stderr.decode(errors='replace')}")
        return done

    def json(self, *arguments, **options):
        return json.loads(self.run(*arguments, "--json", check=True, **options).stdout)

    def index(self, image, *options, **limits):
        return self.json("index", image, *options, **limits)

    @contextlib.contextmanager
    def mounted(self, image, mode, *options):
        folder = tempfile.mkdtemp(prefix="m-", dir=self.work)
        done = self.run("mount", "--json", "--mode", mode, *options, image, folder)
        if done.returncode:
            raise AssertionError(f"mount --mode {mode} {image}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
        self.mounts.append(folder)
        try:
            yield folder
        finally:
            gone = self.run("unmount", folder)
            self.mounts.remove(folder)
            if gone.returncode or os.path.ismount(folder):
                subprocess.run(["umount", "-l", folder])
                raise AssertionError(f"unmount {folder}: exit {gone.returncode}: {gone.stderr.decode(errors='replace')}")
            os.rmdir(folder)

    def daemon_pid(self):
        status = self.run("status", "--json")
        if status.returncode:
            return None
        daemon = json.loads(status.stdout).get("daemon")
        return daemon.get("pid") if isinstance(daemon, dict) else None

    def stop_daemon(self):
        pid = self.daemon_pid()
        if not pid:
            return
        os.kill(pid, signal.SIGTERM)
        for _ in range(6000):
            if not is_running(pid):
                return
            time.sleep(0.01)
        self.run("daemon", "--stop", "--force", "--time", "1")
        raise AssertionError(f"the daemon ({pid}) did not end within 60 s of SIGTERM")


def is_running(pid):
    """A process that has ended and waits for its parent to notice has ended, once all its threads have: until then they hold what it had open."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def open_files(pid):
    """Where the descriptors of a process lead; one that is closed meanwhile is left out."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


def children_of(pid):
    """Processes that its threads started; those of a thread that ends meanwhile are left out, and a process that has ended has none."""
    children = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children += map(int, (task / "children").read_text().split())
    return children


def has_user_namespaces(uid=65534):
    """Whether the kernel lets plain users make them: not in a chroot, and not where a setting says so."""
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(uid, uid, uid)
            os._exit(0 if ctypes.CDLL(None).unshare(0x10000000) == 0 else 1)  # CLONE_NEWUSER
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def kernel_mode_works():
    """Linux 6.12 mounts EROFS from files; earlier ones are tested in fuse mode alone."""
    release = tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2])
    listed = Path("/proc/filesystems").read_text()
    return os.getuid() == 0 and release >= (6, 12) and ("erofs" in listed or subprocess.run(["modprobe", "-q", "erofs"]).returncode == 0)


def modes():
    if not kernel_mode_works():
        print("skipped: kernel mode (needs root and Linux 6.12 with EROFS); fuse mode is tested", flush=True)
        return ["fuse"]
    return ["kernel", "fuse"]


def processes_of(folder):
    """Those that were told of it, in a word or by their environment: daemons of failed tests, with their keepers."""
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and int(process.name) != os.getpid() and any(os.fsencode(folder) in (process / file).read_bytes() for file in ("cmdline", "environ")):
                yield int(process.name)


def end_all_in(folder):
    """What runs in it and what is mounted in it, so that it can be removed. Returns what there was."""
    left = []
    for _ in range(10):  # a process may have started another meanwhile
        running = list(processes_of(folder))
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                left.append(f"process {pid}")
                os.kill(pid, signal.SIGKILL)
        if not running:
            break
        time.sleep(0.02)
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        place = line.split()[4]
        if place.startswith(f"{folder}/"):
            left.append(f"mount {place}")
            subprocess.run(["umount", "-l", place])
    return left


def place_in_memory():
    """None if there is none, it is small, as in containers, or it has no attributes of users (before Linux 6.6)."""
    with contextlib.suppress(OSError), tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.setxattr(folder, "user.varve", b"")
        free = os.statvfs(folder)
        return "/dev/shm" if free.f_bavail * free.f_frsize > 1 << 30 else None


@contextlib.contextmanager
def work_folder(in_memory=False):
    """`in_memory`: if it can be, for tests that write much and do not ask what a disk does."""
    place = place_in_memory() if in_memory else None
    made = tempfile.TemporaryDirectory(prefix="vo-", dir=place)
    while "_" in Path(made.name).name:  # podman names an image by the folder that it comes from, and takes no name with '-_' or '_/'
        made.cleanup()
        made = tempfile.TemporaryDirectory(prefix="vo-", dir=place)
    with made as folder:
        os.chmod(folder, 0o755)
        try:
            yield Path(folder)
        except BaseException:
            left = end_all_in(folder)
            if left:
                print(f"ended after the failure: {', '.join(left)}", flush=True)
            raise


def unpack(reference, bundle):
    """The oracle: what umoci makes of the image. Returns the tree's folder."""
    done = subprocess.run(["umoci", "unpack", "--image", reference.removeprefix("oci:"), str(bundle)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        raise AssertionError(f"umoci unpack {reference}: {done.stdout[-3000:]}")
    return Path(bundle) / "rootfs"
