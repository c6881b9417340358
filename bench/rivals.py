#!/usr/bin/python3
"""rivals.py: cold starts of eStargz and SOCI, by containerd and `ctr run`, beside `varve run`, in turn, on the same image behind the same link.

Each of them takes part if its programs are found, in the folders of --programs or on $PATH, beside containerd, ctr and runc: ctr-remote
and containerd-stargz-grpc; soci and soci-snapshotter-grpc. A line says which are not. `--programs debian13` is what Debian 13 has:
containerd 1.7, ctr-remote, SOCI. Images are converted once and kept in --work. From an empty machine, the pull included, to the command's
end. Needs root and openssl. See bench/README.md.
"""
import argparse, contextlib, ctypes, functools, hashlib, json, os, shutil, signal, statistics, subprocess, sys, time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / name) for name in ("tests/oracle", "tests/runtimes", "images")]
import build  # noqa: E402
import debian13  # noqa: E402
from containerd import BASE, Containerd, wait_for  # noqa: E402
from program import end_all_in, need_root, work_folder  # noqa: E402
from run import PACKED_STARTS, empty_machine, layout_of, link_layout, ratio, read_all, served, spread, timed  # noqa: E402
from touched import drop_caches  # noqa: E402

DEBIAN_13 = ("stargz-snapshotter", "soci-snapshotter", "containerd", "libc6", "libgcc-s1", "zlib1g")
PROGRAMS = {"estargz": ("containerd-stargz-grpc", "ctr-remote"), "soci": ("soci-snapshotter-grpc", "soci")}
COMMON = ("containerd", "ctr", "containerd-shim-runc-v2", "runc", "openssl")
SOCI_STORE = Path("/var/lib/soci-snapshotter-grpc")  # it knows no other; in a mount namespace of this program alone
CLONE_NEWNS = 0x20000
CONFIG = 'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n' + BASE + """
[proxy_plugins.NAME]
  type = "snapshot"
  address = "{snapshotter}"
"""


def end(process):
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    process.kill()
    process.wait()


class Rival(contextlib.ExitStack):
    """One of them on an empty machine: its snapshotter, and a containerd that has it."""

    def __init__(self, name, path, work, certificate=None):
        super().__init__()
        self.name, self.work = name, Path(work)
        self.environment = {**os.environ, "PATH": path, **({"SSL_CERT_FILE": str(certificate)} if certificate else {})}
        self.binaries = Path(shutil.which("containerd", path=path)).parent

    def __enter__(self):
        self.work.mkdir(parents=True)
        self.callback(shutil.rmtree, self.work)
        self.callback(end_all_in, self.work)
        (self.work / "snapshotter").mkdir()
        if self.name == "soci":
            subprocess.run(["mount", "--bind", self.work / "snapshotter", SOCI_STORE], check=True)
            self.callback(subprocess.run, ["umount", "-l", SOCI_STORE])
        try:
            self.begin()
        except BaseException:
            self.close()
            raise
        return self

    def begin(self):
        self.log, address, config = self.work / "snapshotter.log", self.work / "snapshotter.sock", self.work / "snapshotter.toml"
        config.write_text("")
        with self.log.open("ab") as log:
            process = subprocess.Popen([PROGRAMS[self.name][0], "--address", address, "--config", config, "--root", self.work / "snapshotter"],
                                       stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)
        self.callback(end, process)
        wait_for(f"{PROGRAMS[self.name][0]} listens", address.exists)
        self.node = self.enter_context(Containerd(self.work / "containerd", address, self.work, binaries=self.binaries, config=CONFIG.replace("NAME", self.name)))

    def call(self, program, *words, stdin=subprocess.DEVNULL, timeout=3600):
        """What `program` says, which is told of this containerd."""
        command = [shutil.which(program, path=self.environment["PATH"]), "--address", self.node.socket, "--namespace", "default", *words]
        done = subprocess.run([str(word) for word in command], stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.environment, timeout=timeout, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stdout[-1500:]}\n{self.log.read_text()[-1500:]}")
        return done.stdout

    def load(self, layout, tag):
        """The name of a layout's image, which is in containerd's content store then, and not unpacked."""
        with subprocess.Popen(["tar", "-C", layout, "-cf", "-", "."], stdout=subprocess.PIPE) as tar:
            self.call("ctr", "image", "import", "--no-unpack", "--base-name", "example.org/source", "-", stdin=tar.stdout)
        return f"example.org/source:{tag}"

    def blob(self, digest):
        return self.node.work / "root/io.containerd.content.v1.content/blobs" / digest.replace(":", "/")

    def start(self, reference, command):
        """Seconds from the pull's first word to the command's end."""
        puller = {"estargz": ("ctr-remote", "image", "rpull", "--plain-http"), "soci": ("soci", "image", "rpull")}[self.name]
        began = time.monotonic()
        self.call(*puller, "--snapshotter", self.name, reference)
        self.call("ctr", "run", "--rm", "--snapshotter", self.name, reference, "start", *command)
        return time.monotonic() - began


def convert_to_estargz(rival, layout, tag, folder):
    """At gzip's usual level; what is read first is not told, as it is to no one here."""
    source, target = rival.load(layout, tag), "example.org/estargz:latest"
    rival.call("ctr-remote", "image", "optimize", "--no-optimize", "--oci", "--estargz-compression-level", "6", source, target)
    digest = next(line.split()[2] for line in rival.call("ctr", "image", "ls").splitlines() if line.startswith(target + " "))
    manifest = json.loads(rival.blob(digest).read_text())
    if "manifests" in manifest:
        manifest = json.loads(rival.blob(manifest["manifests"][0]["digest"]).read_text())
    made = build.Layout(folder)
    for part in (manifest["config"], *manifest["layers"]):
        shutil.copy(rival.blob(part["digest"]), made.blob(part["digest"]))
    made.tags = {"latest": made.add_json(manifest, manifest["mediaType"])}
    made.finish()


def index_by_soci(rival, layout, tag, folder):
    """Blobs and manifests that `soci create` makes lie beside the image, as `soci push` would put them into a registry."""
    rival.call("soci", "create", rival.load(layout, tag))
    link_layout(layout, folder)
    listed = json.loads((folder / "index.json").read_text())
    for blob in (rival.work / "snapshotter/content/blobs/sha256").iterdir():
        kept = folder / "blobs/sha256" / blob.name
        if not kept.exists():  # of the image, whose files are others', too
            shutil.copy(blob, kept)
        if blob.read_bytes()[:1] == b"{" and "subject" in (document := json.loads(blob.read_text())):
            listed["manifests"].append({"mediaType": document["mediaType"], "digest": f"sha256:{blob.name}", "size": blob.stat().st_size})
    (folder / "index.json").write_text(json.dumps(listed))


CONVERT = {"estargz": convert_to_estargz, "soci": index_by_soci}


class Bench(contextlib.ExitStack):
    def __init__(self, options, path, work):
        super().__init__()
        self.options, self.path, self.work, self.number = options, path, work, 0
        self.layout, self.tag = layout_of(options.image)
        self.certificate, both = work / "certificate", work / "certificate-and-key"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", work / "key", "-out", self.certificate],
                       stderr=subprocess.DEVNULL, check=True)
        both.write_bytes(self.certificate.read_bytes() + (work / "key").read_bytes())
        self.registry_options = ("--tls", both)  # SOCI fetches its index by TLS alone, its layers from a loopback address never

    def folder(self):
        self.number += 1
        return self.work / f"m{self.number}"

    def converted(self, name):
        """The image as `name` has it, made once."""
        content = hashlib.sha256((self.layout / "index.json").read_bytes()).hexdigest()[:12]
        folder, unfinished = (self.options.work / f"{self.layout.name}-{name}-{content}{part}" for part in ("", ".unfinished"))
        if not folder.exists():
            shutil.rmtree(unfinished, ignore_errors=True)
            began = time.monotonic()
            with Rival(name, self.path, self.folder()) as rival:
                CONVERT[name](rival, self.layout, self.tag, unfinished)
            unfinished.rename(folder)
            print(f"{name}: image made in {time.monotonic() - began:.0f} s", flush=True)
        return folder

    def indexed(self, name, *learn):
        """The image with an index of this program's."""
        folder = self.options.work / f"{self.layout.name}-{name}.made"
        shutil.rmtree(folder, ignore_errors=True)
        link_layout(self.layout, folder)
        self.callback(shutil.rmtree, folder)
        with empty_machine(self.options.varve, self.folder()) as varve:
            varve.index(f"oci:{folder}:{self.tag}", timeout=3600)
            if learn:
                varve.run("profile", "learn", "--quiet", *learn, f"oci:{folder}:{self.tag}", check=True, timeout=3600)
        return folder

    def by_varve(self, layout, host, command):
        with empty_machine(self.options.varve, self.folder()) as varve:
            drop_caches()
            seconds = timed([varve.binary, "run", "--rm", f"docker://{host}/{layout.name}:{self.tag}", "--", *command], env=varve.environment)[0]
        shutil.rmtree(varve.work)
        return seconds

    def by_rival(self, name, layout, host, command):
        with Rival(name, self.path, self.folder(), self.certificate) as rival:
            drop_caches()
            return rival.start(f"{host}/{layout.name}:{'latest' if name == 'estargz' else self.tag}", command)

    def rows(self, names):
        """(what, seconds, megabytes over the link, ratio to varve with nothing learnt)."""
        ways = {"varve": (self.indexed("varve"), self.by_varve), "varve, packs": (self.indexed("packs", "--budget", self.options.budget), self.by_varve)}
        for name in names:
            ways[name] = (self.converted(name), functools.partial(self.by_rival, name))
        for label in self.options.starts.split(";"):
            command = ["/usr/bin/python3", "-c", PACKED_STARTS[label]]
            times, carried = {way: [] for way in ways}, {way: [] for way in ways}
            for _ in range(self.options.rounds):
                for way, (layout, start) in ways.items():
                    for part in (layout / "blobs/sha256").iterdir():
                        read_all(part)
                    with served(self.options.varve, [layout], self.options.rate_mbit, self.options.rtt_ms, carried[way], self.registry_options) as host:
                        times[way].append(start(layout, host, command))
            for way in ways:
                yield f"{label}, {way}, s", spread(times[way]), f"{statistics.median(carried[way]) / 1e6:.0f} MB", f"{ratio(times[way], times['varve']):.2f}x of varve"


@contextlib.contextmanager
def own_mounts():
    """From here on what this program mounts is seen by it and its children alone, and there is a place for SOCI's store."""
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0:
        sys.exit(f"unshare: {os.strerror(ctypes.get_errno())}")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    made = not SOCI_STORE.exists()
    SOCI_STORE.mkdir(exist_ok=True)
    try:
        yield
    finally:
        if made:
            SOCI_STORE.rmdir()


def rows(options):
    """Of all that take part. `options`: those of main()."""
    folders = [str(debian13.cached(*DEBIAN_13) / "usr/bin") if name == "debian13" else os.path.abspath(name) for name in options.programs]
    path = ":".join([*folders, os.environ["PATH"]])
    names = []
    for name, programs in PROGRAMS.items():
        missing = [program for program in (*COMMON, *programs) if not shutil.which(program, path=path)]
        if missing:
            print(f"{name}: skipped, not found: {' '.join(missing)}", flush=True)
        else:
            names.append(name)
    if names:
        with work_folder() as work, own_mounts(), Bench(options, path, Path(work)) as bench:
            yield from bench.rows(names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image", nargs="?", default=f"oci:{REPOSITORY / 'out/bench/big'}:latest")
    parser.add_argument("--varve", type=Path, default=REPOSITORY / "build/release/varve")
    parser.add_argument("--work", type=Path, default=REPOSITORY / "out/bench")
    parser.add_argument("--programs", action="append", default=[], help="a folder, or debian13")
    parser.add_argument("--starts", default="print(1);numpy, pandas, sklearn;torch", help="with ; between")
    parser.add_argument("--budget", default="3%", help="of varve's packs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate-mbit", type=float, default=1000)
    parser.add_argument("--rtt-ms", type=float, default=2)
    options = parser.parse_args()
    need_root()
    options.work.mkdir(parents=True, exist_ok=True)
    for what, seconds, megabytes, compared in rows(options):
        print(f"{what:44} {seconds:24} {megabytes:>8}   {compared}", flush=True)


if __name__ == "__main__":
    main()
