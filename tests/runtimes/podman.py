"""podman on storage of its own, and the images that its tests need."""
import contextlib, ctypes, functools, json, os, random, shutil, subprocess, sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("oracle", "run", "mount")]
import debian13, layouts, tars, tiny_image  # noqa: E402

tiny_image.TOOLS = (*tiny_image.TOOLS, "sha256sum")
NOISE = random.Random(5).randbytes(24_000_000)


@functools.cache
def gzipped(tar):
    return layouts.zlib_gzip(level=1)(tar, None)


@functools.cache
def base_layer():
    base = tars.Tar().dir("bin").dir("etc").dir("tmp", mode=0o1777).dir("data")
    for path, content in sorted(tiny_image.needed_files().items()):
        base.file(path, content, mode=0o755)
    base.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nuser:x:1234:1235::/home/user:/bin/sh\n").file("etc/group", b"root:x:0:\nuser:x:1235:\n")
    return base.file("data/noise", NOISE).file("etc/removed", b"of the base\n").bytes()


def write(folder, layers, tag, config):
    """As builders write images: with a history that has an entry for each layer, and one for what made none."""
    layers = [(gzipped(tar), tar, layouts.GZIP, None) for tar in layers]
    layouts.write_image(folder, layers, tag=tag, config=config)
    blobs, index = folder / "blobs/sha256", json.loads((folder / "index.json").read_text())
    entry = next(one for one in index["manifests"] if one["annotations"]["org.opencontainers.image.ref.name"] == tag)
    manifest = json.loads((blobs / entry["digest"][7:]).read_text())
    whole = json.loads((blobs / manifest["config"]["digest"][7:]).read_text())
    whole["created"] = "2026-01-31T10:00:00Z"
    whole["history"] = [{"created": whole["created"], "created_by": f"step {i}"} for i in range(len(layers))]
    whole["history"].insert(1, {"created": whole["created"], "created_by": "ENV", "empty_layer": True})

    def put(document):
        content = json.dumps(document).encode()
        (blobs / layouts.digest(content)[7:]).write_bytes(content)
        return {"digest": layouts.digest(content), "size": len(content)}
    manifest["config"].update(put(whole))
    entry.update(put(manifest))
    (folder / "index.json").write_text(json.dumps(index))
    return f"oci:{folder}:{tag}"


def notebook(folder, tag="latest", word=b"first"):
    upper = tars.Tar().dir("work", uid=1234, gid=1235).file("etc/version", word + b"\n").whiteout("etc/removed").symlink("etc/link", "version")
    upper.file("work/mine", b"mine\n", uid=1234, gid=1235, mode=0o600)
    return write(folder, [base_layer(), upper.bytes()], tag, {"User": "user", "WorkingDir": "/work", "Env": ["PATH=/bin", "OF_IMAGE=yes"], "Entrypoint": ["sh", "-c"], "Cmd": ["id; pwd; cat /etc/version"]})


def tool(folder, tag="latest"):
    """On the same base."""
    return write(folder, [base_layer(), tars.Tar().file("etc/version", b"tool\n").bytes(), tars.Tar().file("etc/top", b"top\n").bytes()], tag, {"Env": ["PATH=/bin"], "Cmd": ["cat", "/etc/version"]})


class Podman:
    """Use as a context manager: containers end with it. `program`: the words that start it."""

    def __init__(self, work, program=("podman",), runtime="runc"):
        self.program, self.work = program, Path(work)
        self.work.mkdir(exist_ok=True)
        self.conf, self.graph = self.work / "storage.conf", self.work / "graph"
        self.conf.write_text(f'# of this test\n[storage]\ndriver = "overlay"\ngraphroot = "{self.graph}"\nrunroot = "{self.work}/run"\n')
        # Limits that need no right to raise them, and nothing that a machine's own settings could change.
        (self.work / "containers.conf").write_text(f'[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\nnetns = "none"\n[engine]\nruntime = "{runtime}"\ncgroup_manager = "cgroupfs"\n'
                                                   f'events_logger = "file"\ntmp_dir = "{self.work}/tmp"\n')
        (self.work / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        self.environment = {**os.environ, "CONTAINERS_STORAGE_CONF": str(self.conf), "CONTAINERS_CONF": str(self.work / "containers.conf"), "BUILDAH_ISOLATION": "chroot"}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.try_run("rm", "--all", "--force", "--time", "0")
        for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
            if str(self.work) in line.split()[4]:
                subprocess.run(["umount", "-l", line.split()[4]])
        shutil.rmtree(self.graph, ignore_errors=True)

    def try_run(self, *words, text=None):
        return subprocess.run([*self.program, *map(str, words)], env=self.environment, input=text, stdin=None if text else subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)

    def __call__(self, *words, text=None):
        done = self.try_run(*words, text=text)
        if done.returncode:
            raise AssertionError(f"podman {' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}")
        return done.stdout

    def names(self):
        return {name: image["Id"] for image in json.loads(self("images", "--format", "json", "--all")) for name in image.get("Names") or [f"<none>/{image['Id'][:12]}"]}


# What podman 5 and its programs are linked with, and what it looks for at its start.
DEBIAN_13 = ("podman conmon runc netavark golang-github-containers-common libc6 libgcc-s1 libatomic1 libgpgme11t64 libassuan9 libgpg-error0 libsubid5 libsemanage2 libsepol2 libbsd0 libmd0 libbz2-1.0 libsqlite3-0 libseccomp2 libsystemd0 "
             "libapparmor1 libselinux1 libpcre2-8-0 libglib2.0-0t64 libcap2 libaudit1 libcap-ng0 libcrypt1 libacl1 libattr1 libpam0g libgcrypt20 liblzma5 libzstd1 liblz4-1 libffi8 zlib1g").split()


libc = ctypes.CDLL(None, use_errno=True)
NEW_NAMESPACE, BIND, RECURSIVE, DETACH, SLAVE, SHARED = 0x20000, 0x1000, 0x4000, 2, 0x80000, 0x100000  # CLONE_NEWNS, MS_BIND, MS_REC, MNT_DETACH, MS_SLAVE, MS_SHARED


def asked_of_kernel(call, *words):
    if getattr(libc, call)(*(os.fsencode(word) if isinstance(word, (str, Path)) else word for word in words)):
        raise OSError(ctypes.get_errno(), f"{call}{words}: {os.strerror(ctypes.get_errno())}")


def enter_root(place, lower, seen):
    """A mount namespace whose root is `lower`, to be written to, with what the machine has in `seen`. A chroot would not do: runtimes enter containers by pivot_root(2), which asks for a root that is a mount."""
    asked_of_kernel("unshare", NEW_NAMESPACE)
    asked_of_kernel("mount", None, "/", None, RECURSIVE | SLAVE, None)  # what is mounted in `seen` later is to be seen here, and nothing of here outside
    root = place / "root"
    asked_of_kernel("mount", "overlay", root, "overlay", 0, f"lowerdir={lower},upperdir={place}/upper,workdir={place}/work")
    for folder in seen:
        (root / folder[1:]).mkdir(parents=True, exist_ok=True)
        asked_of_kernel("mount", folder, root / folder[1:], None, BIND | RECURSIVE, None)
    os.chdir(root)
    asked_of_kernel("pivot_root", ".", ".")
    asked_of_kernel("umount2", ".", DETACH)
    os.chdir("/")
    for name in ("bin", "sbin", "lib", "lib64"):
        if not os.path.lexists(name):
            os.symlink(f"usr/{name}", name)
    for name in ("etc", "root", "run", "tmp", "var/tmp", "var/lib"):
        os.makedirs(name, exist_ok=True)
    Path("etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")


@contextlib.contextmanager
def of_debian_13(work):
    """The words that start podman 5, in a root of its own that sees `work` where it is. Raises debian13.Missing."""
    lower = debian13.cached(*DEBIAN_13)
    place = Path(work) / "debian13"
    for name in ("upper", "work", "root"):
        (place / name).mkdir(parents=True)
    asked_of_kernel("mount", work, work, None, BIND, None)
    asked_of_kernel("mount", None, work, None, RECURSIVE | SHARED, None)
    ready, until = os.pipe(), os.pipe()
    keeper = os.fork()  # the namespace is there as long as it is
    if keeper == 0:
        try:
            os.close(until[1])
            enter_root(place, lower, ("/proc", "/sys", "/dev", str(work)))
            os.write(ready[1], b"1")
            os.read(until[0], 1)
        except OSError as error:
            print(error, file=sys.stderr, flush=True)
        finally:
            os._exit(0)
    for end in (ready[1], until[0]):
        os.close(end)
    try:
        if not os.read(ready[0], 1):
            raise AssertionError("no root for podman 5")
        yield "env", "PATH=/usr/sbin:/usr/bin", "PODMAN_IGNORE_CGROUPSV1_WARNING=1", "nsenter", f"--mount=/proc/{keeper}/ns/mnt", "podman"
    finally:
        for end in (ready[0], until[1]):
            os.close(end)
        os.waitpid(keeper, 0)
        subprocess.run(["umount", "-l", work])
