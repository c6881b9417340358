#!/usr/bin/python3
"""The measurements of Varve, one command, a table as output. Every ratio compares two things measured in turn in the same run.

Needs root, 60 GB of free disk for the big image and its unpacked tree, and time: about 40 minutes. `--rows` picks some of
index, many, warm, between, cold, packs, rivals, local, pull, profile. Made images, trees and a history of what was measured are kept in --work.
"""
import argparse, contextlib, hashlib, json, os, re, shutil, signal, statistics, subprocess, sys, tempfile, time
from pathlib import Path

from touched import drop_caches, touched

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
sys.path.insert(0, str(REPOSITORY / "tests/oracle"))
from program import Varve  # noqa: E402

IMPORTS = {"numpy, pandas, sklearn": "import numpy, pandas, sklearn", "torch": "import torch"}
KERNEL_START = """from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(kernel_name="python3")
reply = client.execute_interactive("print(1)", timeout=300)
manager.shutdown_kernel(now=True)
assert reply["content"]["status"] == "ok", reply"""
PACKED_STARTS = {"print(1)": "print(1)", **IMPORTS, "tensorflow": "import tensorflow", "transformers": "import torch, transformers; from transformers import BertModel",
                 "Jupyter kernel": KERNEL_START}
LINKS = [(1000, 2), (200, 20), (10_000, 0.2)]  # Mbit/s, ms
LINK_BYTES_PER_SECOND = 125e6


def in_turn(ways, turn):
    """Who comes second loses some: what the first one leaves behind ends beside it."""
    return sorted(ways.items(), reverse=bool(turn % 2))


def timed(command, **options):
    """(seconds, peak memory in bytes of the largest process)."""
    started = time.monotonic()
    process = subprocess.Popen([str(c) for c in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, **options)
    error = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(map(str, command))[:300]}: exit {process.returncode}: {error.decode(errors='replace')[-1500:]}")
    return time.monotonic() - started, usage.ru_maxrss * 1024


def spread(values, form="{:.2f}"):
    """min / median / max, so that the machine's noise is seen."""
    return " / ".join(form.format(v) for v in (min(values), statistics.median(values), max(values)))


def ratio(measured, yardstick):
    return statistics.median(measured) / statistics.median(yardstick)


def link_seconds(content_bytes, rate_mbit):
    """How long the link is busy with them, headers of its packets included."""
    return content_bytes / (rate_mbit * 125_000 * 0.952)


def in_tree(tree, code):
    return ["bwrap", "--ro-bind", tree, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--unshare-pid", "--clearenv", "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin",
            "--setenv", "HOME", "/tmp", "--setenv", "LANG", "C.UTF-8", "/usr/bin/python3", "-c", code]


class Bench:
    def __init__(self, options):
        self.options, self.work = options, options.work.resolve()
        self.binary = options.varve.resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.layout = (options.layout or self.work / "big").resolve()
        self.tree = (options.tree or self.work / "tree/rootfs").resolve()
        self.rows, self.layers, self.indexed_copy = [], [], None
        self.kept = contextlib.ExitStack()

    def row(self, what, figure, compared="", reach=""):
        self.rows.append((what, figure, compared, reach))
        print(f"{what:58} {figure:32} {compared:44} {reach}", flush=True)

    # ------------------------------------------------------------ what is measured on

    def prepare_image(self):
        if not (self.layout / "index.json").exists():
            subprocess.run(["/usr/bin/python3", REPOSITORY / "images/build.py", REPOSITORY / "images/big", self.layout], check=True)
        index = json.loads((self.layout / "index.json").read_text())
        entry = next(m for m in index["manifests"] if m.get("annotations", {}).get("org.opencontainers.image.ref.name") == "latest")
        manifest = json.loads((self.layout / "blobs" / entry["digest"].replace(":", "/")).read_text())
        self.layers = [self.layout / "blobs" / layer["digest"].replace(":", "/") for layer in manifest["layers"]]
        self.image_bytes = sum(path.stat().st_size for path in self.layers)

    def prepare_tree(self):
        if not self.tree.exists():
            subprocess.run(["umoci", "unpack", "--image", f"{self.layout}:latest", self.tree.parent], check=True, stdout=subprocess.DEVNULL)

    @contextlib.contextmanager
    def copy_of(self, layout, name="big"):
        """A layout with the same blobs, whose index.json is its own."""
        folder = Path(tempfile.mkdtemp(prefix="layout-", dir=self.work)) / name
        link_layout(layout, folder)
        try:
            yield folder
        finally:
            shutil.rmtree(folder.parent)

    @contextlib.contextmanager
    def varve(self):
        folder = tempfile.mkdtemp(prefix="state-", dir=self.work)
        try:
            with Varve(folder) as program:
                program.binary = str(self.binary)
                yield program
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def indexed(self):
        """The big image with its index beside it, made once a run."""
        if self.indexed_copy is None:
            self.indexed_copy = self.kept.enter_context(self.copy_of(self.layout))
            with self.varve() as varve:
                varve.index(f"oci:{self.indexed_copy}:latest", timeout=1800)
        return self.indexed_copy

    # ------------------------------------------------------------ rows

    def measure_index(self):
        cores, peak, index_times, yard_times, report = os.cpu_count(), 0, [], [], {}
        for path in self.layers:
            read_all(path)  # both sides read from the page cache
        for _ in range(self.options.rounds):
            yard_times.append(timed(["xargs", "-a", self.layer_list(), "-P", str(cores), "-I{}", "sh", "-c", "gzip -dc {} | sha256sum"])[0])
            with self.copy_of(self.layout) as copy, self.varve() as varve:
                seconds, memory = timed([varve.binary, "index", "--quiet", f"oci:{copy}:latest"], env=varve.environment)
                index_times.append(seconds)
                peak = max(peak, memory)
                report = varve.index(f"oci:{copy}:latest")
        compared = f"gzip|sha256sum {spread(yard_times, '{:.1f}')} s"
        self.row("index of the big image, s", spread(index_times, "{:.1f}"), compared, f"{ratio(index_times, yard_times):.2f}x (reach 1.0, aim 0.67)")
        self.row("peak memory of index, MiB", f"{peak / 2**20:.0f}", "", "reach 256")
        self.row("index beside the image, MB", f"{report['index_bytes'] / 1e6:.2f}", f"image {self.image_bytes / 1e6:.0f} MB", f"{100 * report['index_bytes'] / self.image_bytes:.3f} % (at most 1 %)")
        self.row("loaded before the first mount, big image, MB", f"{report['first_load_bytes'] / 1e6:.2f}", f"{sum(layer['spans'] for layer in report['layers'])} spans", "")

    def layer_list(self):
        path = self.work / "layers.txt"
        path.write_text("".join(f"{layer}\n" for layer in self.layers))
        return path

    def many_files(self):
        """400,000 files in 4 layers, made once."""
        folder = self.work / "many"
        if (folder / "index.json").exists():
            return folder
        import random
        from layouts import GZIP, piped, write_image
        from tars import Tar
        noise, layers = random.Random(1), []
        words = [noise.randbytes(12).hex().encode() for _ in range(4000)]
        for layer in range(4):
            tar = Tar()
            for number in range(100_000):
                if number % 50 == 0:
                    tar.dir(f"tree/{layer}/{number // 5000:02d}/{number // 50:04d}")
                tar.file(f"tree/{layer}/{number // 5000:02d}/{number // 50:04d}/file-{number:06d}.py", b" ".join(noise.choices(words, k=noise.randrange(1, 80))))
            content = tar.bytes()
            layers.append((piped("pigz", "-n", "-6")(content, None), content, GZIP, None))
        shutil.rmtree(folder, ignore_errors=True)
        write_image(folder, layers, tag="latest")
        return folder

    def measure_many(self):
        with self.copy_of(self.many_files(), "many") as copy, self.varve() as varve:
            report = varve.index(f"oci:{copy}:latest")
            self.row("loaded before the first mount, 400,000 files, MB", f"{report['first_load_bytes'] / 1e6:.2f}", f"tree {report['tree_bytes'] / 1e6:.1f} MB", "reach 10")
            for mode in self.options.modes:
                times = []
                for _ in range(max(5, self.options.rounds)):
                    started = time.monotonic()
                    with varve.mounted(f"oci:{copy}:latest", mode) as tree:
                        times.append(time.monotonic() - started)
                self.row(f"mount of 400,000 files, index local, {mode} mode, s", spread(times, "{:.3f}"), "first one starts the daemon", "reach 0.5")
            for mode in self.options.modes:
                with varve.mounted(f"oci:{copy}:latest", mode) as tree:
                    timed(["sh", "-c", f"find {tree} -type f -print0 | xargs -0 -P4 -n 500 cat > /dev/null"])
                    self.row(f"daemon, 400,000 files all read, {mode} mode, MiB", memory_of(varve.daemon_pid()), "now / peak", "reach 200")
                varve.stop_daemon()

    def measure_warm(self):
        self.prepare_tree()
        code = IMPORTS["numpy, pandas, sklearn"]
        copy = self.indexed()
        with self.varve() as varve:
            with contextlib.ExitStack() as stack:
                trees = {"ext4": str(self.tree)} | {mode: stack.enter_context(varve.mounted(f"oci:{copy}:latest", mode)) for mode in self.options.modes}
                commands = {"import": lambda tree: in_tree(tree, code), "find": lambda tree: ["find", tree, "-size", "+100000k"]}
                for name, command in commands.items():
                    times = {place: [] for place in trees}
                    for number in range(1 + 3 * self.options.rounds):
                        for place, tree in trees.items():
                            seconds = timed(command(tree))[0]
                            times[place] += [seconds] if number else []  # the first fills the caches
                    for mode in self.options.modes:
                        reach = "reach 1.05" if mode == "kernel" else "reach 1.3"
                        self.row(f"warm {name}, {mode} mode, s", spread(times[mode]), f"ext4 {spread(times['ext4'])} s", f"{ratio(times[mode], times['ext4']):.2f}x ({reach})")

    def measure_between(self):
        """What a session pays where the one before it has ended: while its image stays mounted, and where it does not."""
        self.prepare_tree()
        code = f"import time; began = time.monotonic()\n{IMPORTS['numpy, pandas, sklearn']}\nprint(time.monotonic() - began)"
        reference = f"oci:{self.indexed()}:latest"
        with self.varve() as kept, self.varve() as not_kept:
            (not_kept.work / "varve.toml").write_text("[daemon]\nkeep-mounted = 0\n")
            not_kept.environment["VARVE_CONFIG"] = str(not_kept.work / "varve.toml")
            stats = kept.work / "stats.json"
            ready = {"kept": [], "not kept": []}

            def in_session(varve, place):
                done = varve.run("run", "--rm", "--env", "PYTHONDONTWRITEBYTECODE=1", "--stats", stats, reference, "--", "/usr/bin/python3", "-c", code, check=True)
                ready[place].append(json.loads(stats.read_text())["ready_seconds"])
                return float(done.stdout)

            places = {"ext4": lambda: float(subprocess.run(in_tree(self.tree, code), stdout=subprocess.PIPE, check=True).stdout),
                      "kept": lambda: in_session(kept, "kept"), "not kept": lambda: in_session(not_kept, "not kept")}
            times = {place: [] for place in places}
            for number in range(1 + 3 * self.options.rounds):
                for place, take in places.items():
                    seconds = take()
                    times[place] += [seconds] if number else []  # the first fills caches and store
            for place in ready:
                self.row(f"imports of a second session, mount {place}, s", spread(times[place]), f"ext4 {spread(times['ext4'])} s", f"{ratio(times[place], times['ext4']):.2f}x (reach 1.05)")
                self.row(f"  from `run` to its command, mount {place}, s", spread(ready[place][1:], "{:.3f}"), "", "reach 0.04")

    def measure_cold(self):
        self.prepare_tree()
        for label, code in IMPORTS.items():
            native = []
            for _ in range(self.options.rounds):
                drop_caches()
                native.append(timed(in_tree(self.tree, code))[0])
            files, raw, packed = touched(self.tree, lambda code=code: timed(in_tree(self.tree, code)))
            limit = packed / LINK_BYTES_PER_SECOND + statistics.median(native)
            self.row(f"limit, import {label}, s", f"{limit:.2f}", f"native cold {spread(native)} s", f"{files} files, {raw / 1e6:.0f} MB of pages, {packed / 1e6:.1f} MB compressed")
            for path in self.layers:
                read_all(path)  # the registry's side is not what is measured
            for mode in self.options.modes:
                self.cold_runs(self.indexed(), label, code, mode, limit)
        self.row("full pull, by arithmetic, s", f"{self.image_bytes / LINK_BYTES_PER_SECOND:.0f}", f"{self.image_bytes / 1e6:.0f} MB at 1 Gbit/s, before unpacking", "")

    def cold_runs(self, copy, label, code, mode, limit):
        times, mounts, stats, memory, cpu = [], [], {}, "", []
        for _ in range(self.options.rounds):
            with self.link(copy) as address, self.varve() as varve:
                started = time.monotonic()
                with varve.mounted(f"docker://{address}/{copy.name}:latest", mode) as tree:
                    mounts.append(time.monotonic() - started)
                    timed(in_tree(tree, code))
                    times.append(time.monotonic() - started)
                    stats = next(m for m in varve.json("status")["mounts"] if m["dir"] == tree)
                    memory = memory_of(varve.daemon_pid())
                    cpu.append(cpu_seconds(varve.daemon_pid()))
        link = link_seconds(stats["fetched_bytes"], self.options.rate_mbit)
        reach = "reach 2.0" if label != "torch" else "reach 2.5"
        self.row(f"cold import {label}, {mode} mode, s", spread(times), f"{stats['fetched_bytes'] / 1e6:.0f} MB, {stats['requests']} requests, mount {spread(mounts)}", f"{statistics.median(times) / limit:.2f}x the limit ({reach})")
        self.row("  of which", f"link busy {link:.2f} s", f"daemon {statistics.median(cpu):.2f} s of CPU", f"daemon {memory} MiB now / peak (reach 200)")

    def measure_packs(self):
        """Cold starts with and without the start-up packs of the image, in turn, on three links; beside the limit."""
        self.prepare_tree()
        with self.copy_of(self.indexed()) as copy:
            with self.varve() as varve:
                varve.index(f"oci:{copy}:latest", timeout=1800)  # what a machine learns on it has indexed itself
                started = time.monotonic()
                command = ("--", "python3", "-c", PACKED_STARTS[self.options.learn]) if self.options.learn else ()
                learned = json.loads(varve.run("profile", "learn", "--json", f"oci:{copy}:latest", "--budget", self.options.budget, *command, check=True, timeout=3600).stdout)
                self.row("start-up packs", f"{learned['bytes'] / 1e6:.1f} MB in {len(learned['groups'])} groups", f"learnt in {time.monotonic() - started:.0f} s",
                         f"{learned['bytes'] / self.image_bytes:.2%} of the image (reach 3 %)")
            for path in self.layers:
                read_all(path)
            for label in self.options.starts.split(";"):
                native, code = [], PACKED_STARTS[label]
                for _ in range(self.options.rounds):
                    drop_caches()
                    native.append(timed(in_tree(self.tree, code))[0])
                packed = touched(self.tree, lambda code=code: timed(in_tree(self.tree, code)))[2]
                for rate_mbit, rtt_ms in LINKS:
                    limit = packed / (rate_mbit * 125_000) + statistics.median(native)
                    self.packed_runs({"without": self.indexed(), "with": copy}, label, code, rate_mbit, rtt_ms, limit, packed)

    def packed_runs(self, ways, label, code, rate_mbit, rtt_ms, limit, packed):
        times, last, cpu, memory = {way: [] for way in ways}, {}, {way: [] for way in ways}, {}
        for turn in range(self.options.rounds):
            for way, copy in in_turn(ways, turn):
                with self.link(copy, rtt_ms, rate_mbit) as address, self.varve() as varve:
                    started = time.monotonic()
                    with varve.mounted(f"docker://{address}/{copy.name}:latest", "kernel") as tree:
                        timed(in_tree(tree, code))
                        times[way].append(time.monotonic() - started)
                        last[way] = next(m for m in varve.json("status")["mounts"] if m["dir"] == tree)
                        cpu[way].append(cpu_seconds(varve.daemon_pid()))
                        memory[way] = memory_of(varve.daemon_pid())
        for way in ways:
            stats, fetched = last[way], last[way]["fetched_bytes"]
            busy = link_seconds(fetched, rate_mbit) / statistics.median(times[way])
            self.row(f"cold {label}, {rate_mbit} Mbit/s {rtt_ms} ms, {way} packs, s", spread(times[way]),
                     f"{fetched / 1e6:.0f} MB ({fetched / packed:.1f}x touched), {stats['requests']} requests, link busy {busy:.0%}, daemon {statistics.median(cpu[way]):.2f} s of CPU, {memory[way]} MiB",
                     f"{statistics.median(times[way]) / limit:.2f}x the limit")

    def measure_rivals(self):
        """eStargz and SOCI by containerd, where their programs are found, beside `varve run`."""
        import rivals  # which asks this file for the link and the starts
        for row in rivals.rows(argparse.Namespace(**{**vars(self.options), "image": f"oci:{self.layout}:latest", "work": self.work, "varve": self.binary})):
            self.row(*row)

    def measure_local(self):
        """Starts from what is whole in the store, the page cache empty, beside the unpacked tree on the same disk."""
        self.prepare_tree()
        reference = f"oci:{self.indexed()}:latest"
        with self.varve() as varve:
            started = time.monotonic()
            varve.run("pull", "--wait", reference, check=True, timeout=3600)
            self.row("pull from this disk, s", f"{time.monotonic() - started:.1f}", f"{self.image_bytes / 1e6:.0f} MB compressed")
            with contextlib.ExitStack() as stack:
                trees = {"ext4": self.tree} | {mode: stack.enter_context(varve.mounted(reference, mode)) for mode in self.options.modes}
                for label in self.options.starts.split(";"):
                    times, cpu = {place: [] for place in trees}, {place: [] for place in trees}
                    for turn in range(self.options.rounds):
                        for place, tree in in_turn(trees, turn):
                            drop_caches()
                            before = cpu_seconds(varve.daemon_pid())
                            times[place].append(timed(in_tree(tree, PACKED_STARTS[label]))[0])
                            cpu[place].append(cpu_seconds(varve.daemon_pid()) - before)
                    for mode in self.options.modes:
                        self.row(f"local cold {label}, {mode} mode, s", spread(times[mode]), f"ext4 {spread(times['ext4'])} s, daemon {statistics.median(cpu[mode]):.2f} s of CPU",
                                 f"{ratio(times[mode], times['ext4']):.2f}x (reach 1.1)")

    def measure_pull(self):
        """All of the image over two links; beside what the link takes for its bytes."""
        for path in self.layers:
            read_all(path)
        copy = self.indexed()
        for rate_mbit, rtt_ms in (LINKS[0], LINKS[2]):
            times, memory, cpu = [], "", []
            for _ in range(self.options.rounds):
                with self.link(copy, rtt_ms, rate_mbit) as address, self.varve() as varve:
                    started = time.monotonic()
                    varve.run("pull", "--wait", f"docker://{address}/{copy.name}:latest", check=True, timeout=3600)
                    times.append(time.monotonic() - started)
                    memory = memory_of(varve.daemon_pid())
                    cpu.append(cpu_seconds(varve.daemon_pid()))
            seconds = statistics.median(times)
            self.row(f"pull, {rate_mbit} Mbit/s {rtt_ms} ms, s", spread(times, "{:.1f}"), f"{self.image_bytes / 1e6 / seconds:.0f} MB/s compressed, daemon {statistics.median(cpu):.1f} s of CPU, {memory} MiB now / peak",
                     f"{seconds / link_seconds(self.image_bytes, rate_mbit):.2f}x the link (reach 1.03 at 1 Gbit/s; 350 MB/s at 10)")

    def measure_profile(self):
        """The same cold start with and without the image's profile, in turn, over a link with more latency."""
        for label, code in IMPORTS.items():
            with self.copy_of(self.indexed()) as copy:
                with self.varve() as varve:
                    reference, profile = f"oci:{copy}:latest", varve.work / "start.profile"
                    varve.index(reference, timeout=1800)
                    varve.run("profile", "record", reference, "-o", profile, "--", "/usr/bin/python3", "-c", code, check=True, timeout=1800)
                    attached = varve.json("profile", "attach", reference, profile)
                self.row(f"profile of import {label}", f"{attached['bytes'] / 1e6:.0f} MB in {len(attached['spans'])} ranges", f"recorded in {attached['spans'][-1]['seconds']:.1f} s")
                for path in self.layers:
                    read_all(path)
                for mode in self.options.modes:
                    self.profiled_runs(copy, label, code, mode)

    def profiled_runs(self, copy, label, code, mode):
        ways = {"without": ("--no-prefetch",), "with": ()}
        times, last = {way: [] for way in ways}, {}
        for _ in range(self.options.rounds):
            for way, options in ways.items():
                with self.link(copy, self.options.profile_rtt_ms) as address, self.varve() as varve:
                    started = time.monotonic()
                    with varve.mounted(f"docker://{address}/{copy.name}:latest", mode, *options) as tree:
                        timed(in_tree(tree, code))
                        times[way].append(time.monotonic() - started)
                        last[way] = next(m for m in varve.json("status")["mounts"] if m["dir"] == tree)
        for way in ways:
            stats = last[way]
            self.row(f"cold import {label}, {self.options.profile_rtt_ms:.0f} ms, {mode} mode, {way} profile, s", spread(times[way]),
                     f"{stats['fetched_bytes'] / 1e6:.0f} MB, {stats['requests']} requests, {stats['prefetched_bytes'] / 1e6:.0f} MB prefetched",
                     "" if way == "without" else f"{ratio(times['with'], times['without']):.2f}x of without")

    def link(self, layout, rtt_ms=None, rate_mbit=None):
        return served(self.options.varve, [layout], rate_mbit or self.options.rate_mbit, rtt_ms or self.options.rtt_ms)


def link_layout(layout, folder):
    """A layout with the same blobs, whose index.json is its own."""
    shutil.copytree(layout, folder, copy_function=os.link)
    (folder / "index.json").unlink()
    shutil.copy(layout / "index.json", folder / "index.json")


def layout_of(image):
    """The folder and the tag of "oci:DIR:TAG"."""
    folder, _, tag = image.removeprefix("oci:").rpartition(":")
    return Path(folder).resolve(), tag


@contextlib.contextmanager
def empty_machine(binary, work):
    """With a state folder of its own, which is made."""
    work.mkdir()
    with Varve(work) as varve:
        varve.binary = str(Path(binary).resolve())
        yield varve


@contextlib.contextmanager
def served(binary, layouts, rate_mbit, rtt_ms, carried=None, registry_options=()):
    """HOST:PORT of a registry that serves the layouts, each by its folder's name, behind a link. `carried` is told the bytes that came over it."""
    with contextlib.ExitStack() as stack:
        def start(*command, told=None):
            process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, text=True)

            def end():
                process.send_signal(signal.SIGTERM)
                said = process.stdout.read()
                process.wait()
                if told is not None:
                    told.append(json.loads(said)["down"])
            stack.callback(end)
            # The link is not what is measured: it gets a core when it wants one.
            with contextlib.suppress(PermissionError):
                os.setpriority(os.PRIO_PROCESS, process.pid, -10)
            return int(process.stdout.readline())
        registry = start("/usr/bin/python3", HERE / "layout_registry.py", *registry_options, *layouts)
        yield f"127.0.0.1:{start(Path(binary).resolve().parent / 'bench/link_proxy', '--to', registry, '--rate-mbit', rate_mbit, '--rtt-ms', rtt_ms, told=carried)}"


def read_all(path):
    with open(path, "rb") as file:
        while file.read(1 << 22):
            pass


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid):
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return " / ".join(str(int(fields[key].split()[0]) // 1024) for key in ("VmRSS", "VmHWM"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--varve", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=REPOSITORY / "out/bench")
    parser.add_argument("--layout", type=Path, help="the big image, if it was made elsewhere")
    parser.add_argument("--tree", type=Path, help="and its unpacked tree")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", default="index,many,warm,between,cold,packs,rivals,local,pull,profile")
    parser.add_argument("--starts", default=";".join(PACKED_STARTS), help="of the rows packs, rivals and local, with ; between")
    parser.add_argument("--learn", choices=PACKED_STARTS, help="learnt for the row packs, besides what `profile learn` chooses by itself")
    parser.add_argument("--budget", default="3%", help="of its packs")
    parser.add_argument("--programs", action="append", default=[], help="of the row rivals: a folder to look in, or debian13")
    parser.add_argument("--modes", default="kernel,fuse")
    parser.add_argument("--rate-mbit", type=float, default=1000)
    parser.add_argument("--rtt-ms", type=float, default=2)
    parser.add_argument("--profile-rtt-ms", type=float, default=20, help="of the row profile")
    options = parser.parse_args()
    options.modes = options.modes.split(",")
    if os.getuid() != 0:
        print("skipped: make bench needs root (page caches, kernel mode, owners)")
        sys.exit(77)
    bench = Bench(options)
    print(f"{os.uname().sysname} {os.uname().release}, {os.cpu_count()} cores; figures are min / median / max of {options.rounds} rounds", flush=True)
    rows = options.rows.split(",")
    if set(rows) != {"many"}:
        bench.prepare_image()
    with bench.kept:
        for row in rows:
            getattr(bench, "measure_" + row)()
    compare_with_last(bench)


def compare_with_last(bench):
    """Keeps what was measured, and tells what the same image had the last time."""
    history = bench.work / "history.jsonl"
    image = hashlib.sha256((bench.layout / "index.json").read_bytes()).hexdigest()[:12] if bench.layers else ""
    known = [json.loads(line) for line in history.read_text().splitlines()] if history.exists() else []
    version = subprocess.run(["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"], stdout=subprocess.PIPE, text=True).stdout.strip()
    for what, figure, *_ in bench.rows:
        before = next((row[1] for run in reversed(known) if run["image"] == image for row in run["rows"] if row[0] == what), None)
        medians = [float(found[1]) for text in (before, figure) if text and (found := re.search(r"/ ([0-9.]+) /", text))]
        if len(medians) == 2 and medians[0] > 0:
            print(f"{what:58} {medians[1] / medians[0]:.2f}x of the last run's")
    with open(history, "a") as file:
        file.write(json.dumps({"version": version, "image": image, "when": int(time.time()), "load": os.getloadavg()[0], "rows": bench.rows}) + "\n")


if __name__ == "__main__":
    main()
