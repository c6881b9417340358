#!/usr/bin/env python3
"""Images that want out (hostile/images.py), run under every runtime of this machine, as root and as a plain user: the machine's canaries stay as they are, and the
answer is a session that works or a refusal: status 125, 126 or 127 with one line that holds none of the image's control characters. Nothing is left."""
import collections, concurrent.futures, gzip, itertools, json, os, re, shutil, signal, subprocess, sys, threading, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "hostile"))
import images as corpus  # noqa: E402
from machine import LIMIT_SECONDS, SECRET, Machine, User  # noqa: E402
from tiny_image import expect  # noqa: E402
import layouts, program, tars  # noqa: E402  tiny_image says where they lie

AT_ONCE = 4  # half of a session is waiting: for mounts and namespaces to go
SPEC = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: all
  containerEdits:
    deviceNodes:
    - {{path: /dev/nvidia0, hostPath: /dev/full}}
    - {{path: /dev/nvidia-caps/nvidia-cap1, hostPath: /dev/zero}}
containerEdits:
  env: [NVIDIA_VISIBLE_DEVICES=void]
  hooks:
  - {{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, create-symlinks, --link, "libcuda.so.1::/usr/lib/driver/libcuda.so"]}}
  - {{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib/driver]}}
  mounts:
  - {{hostPath: {driver}, containerPath: /usr/lib/driver/libcuda.so.550.54, options: [ro, nosuid, nodev, bind]}}
"""


CRUN_COLOUR = re.compile(r"\x1b\[(1;31|0)?m")  # crun paints its own last word, where it gets through


class Layouts:
    """All images in one folder: blobs of the base are there once."""

    def __init__(self, folder, machine):
        self.folder, self.machine = folder, machine
        self.layout = layouts.build.Layout(folder)
        base = tars.Tar().dir("bin").dir("etc").dir("tmp", mode=0o1777).dir("root").file("bin/probe", machine.probe, mode=0o755)
        base.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n").file("etc/group", b"root:x:0:\nuser:x:1000:\n")
        self.base = self.layer(base.bytes())

    def take(self, data, media_type):
        path = self.folder / "blob"
        path.write_bytes(data)
        return self.layout.take(path, media_type)

    def layer(self, tar):
        return self.take(gzip.compress(tar, 6, mtime=0), layouts.GZIP), layouts.digest(tar)

    def add(self, image, tag):
        layers = [self.base] + ([self.layer(image.layer.bytes())] if image.layer else [])
        arch = {"x86_64": "amd64", "aarch64": "arm64"}[self.machine.arch]
        config = {"architecture": arch, "os": "linux", "config": {"Cmd": corpus.PROBE} | image.config, "rootfs": {"type": "layers", "diff_ids": [diff_id for _, diff_id in layers]}}
        # Not ASCII with escapes: text that is no UTF-8 becomes bytes that are none.
        made = self.take(json.dumps(config, ensure_ascii=False).encode("utf-8", "surrogateescape"), layouts.build.MEDIA + "config.v1+json")
        manifest = {"schemaVersion": 2, "mediaType": layouts.build.MEDIA + "manifest.v1+json", "config": made, "layers": [descriptor for descriptor, _ in layers]}
        self.layout.tags[tag] = self.layout.add_json(manifest, manifest["mediaType"])
        return f"oci:{self.folder}:{tag}"


class Trial:
    """One session of one image."""

    def __init__(self, user, image, runtime, *variants):
        self.user, self.image, self.runtime, self.variants = user, image, runtime, variants
        self.label = f"{image.name}: {user.name}, {runtime}{''.join(', ' + variant for variant in variants)}"

    def words(self, machine, number):
        probe = {"PROBE_CANARY": machine.canary, "PROBE_DISK": f"{machine.major}:{machine.minor}" if machine.loop else ""}
        options = ["--rm", "--runtime", self.runtime]
        for variant in self.variants:
            if variant == "gpus":
                options += ["--gpus", "all", "--cdi-spec-dir", machine.work / "cdi"]
            elif variant == "record":
                options += ["--record", "--usage-spool", self.user.home / f"spool-{number}"]
            elif variant == "volume":
                options += ["--volume", f"{machine.volume}:/data"]
            elif variant == "userns":
                options += ["--userns", "auto"]
            elif variant == "nested volume":
                options += ["--volume", f"{machine.volume}:/data", "--volume", f"{machine.volume}:/data/link/new"]
            elif variant == "network":
                options += ["--network", "none"]
                probe |= {"PROBE_SOCKET": machine.socket_name, "PROBE_PORT": machine.tcp.getsockname()[1]}
        return [self.user.varve.binary, "run", *options, *(word for name, value in probe.items() for word in ("--env", f"{name}={value}")), self.image.reference]


class Trials:
    def __init__(self, machine):
        self.machine, self.lines, self.counts, self.number, self.slowest = machine, [], collections.Counter(), itertools.count(), []
        self.now, self.lock = set(), threading.Lock()

    def run(self, trial):
        with self.lock:
            self.now.add(trial.label)
        started = time.monotonic()
        status, out, err, typed = trial.user.run(trial.words(self.machine, next(self.number)), "terminal" in trial.variants)
        self.judge(trial, status, out, err, typed)
        for line in self.machine.damage():
            self.lines.append(f"{' or '.join(sorted(self.now))}: {line}")
        with self.lock:
            self.now.discard(trial.label)
            self.slowest.append((time.monotonic() - started, trial.label))

    def judge(self, trial, status, out, err, typed):
        wrong = [line for line in out.splitlines() if line.startswith("ESCAPED")]
        if SECRET in out + err:
            wrong.append("a secret was printed")
        if typed:
            wrong.append(f"typed into the caller's terminal: {typed[:40]!r}")
        works = status == 0 and "SESSION WORKS" in out
        # crun 1.8 ends without handing on the last words of a short command on a terminal.
        speechless = trial.runtime == "crun" and "terminal" in trial.variants and not out and not err
        self.counts["works" if works else "refused"] += 1
        if "terminal" in trial.variants and not works:
            err += "".join(line + "\n" for line in out.splitlines() if line)  # what the command's own process says goes there
            if trial.runtime == "crun":
                err = CRUN_COLOUR.sub("", err)
        # A runtime that has begun to execute the command tells by itself that it cannot, with a status of its own.
        last_word = status == 1 and trial.runtime != "none" and "exec" in err
        if status is None:
            wrong.append(f"did not end within {LIMIT_SECONDS} s")
        elif status in trial.image.ends or (speechless and status in (0, 1)):
            pass
        elif not works and status not in (125, 126, 127) and not last_word:
            wrong.append(f"exit {status} and no word of a session: {out[-200:]!r} {err[-300:]!r}")
        elif not works and (err.count("\n") != 1 or not err.endswith("\n")):
            wrong.append(f"exit {status}, and what it said is not one line: {err[-600:]!r}")
        if any(ord(c) < 32 and c not in "\n\t" or 127 <= ord(c) < 160 or 0xDC80 <= ord(c) < 0xDD00 for c in err):
            wrong.append(f"control characters of the image are printed: {err[-300:]!r}")
        if trial.image.works and not works and not speechless and status is not None and "nested volume" not in trial.variants:
            wrong.append(f"it must run: exit {status}: {err[-300:]!r}")
        if wrong:
            self.lines.append(f"{trial.label}: {'; '.join(sorted(set(wrong)))}")
        if os.environ.get("HOSTILE_VERBOSE"):
            print(f"{'works' if works else status} {trial.label}: {err.strip()[:160]!r}", flush=True)


def runtimes_of(user, tree):
    """Those with which this machine runs anything at all for this user; `none` must."""
    names = []
    for name in ("runc", "crun", "none"):
        status, _, said, _ = user.run([user.varve.binary, "run", "--rm", "--runtime", name, "--rootfs", tree, "--", "/bin/probe", "nothing"])
        # `none` asks for no more than namespaces; where these are, it must work.
        if status == 0 or (name == "none" and "make no user namespaces" not in said):
            names.append(name)
        else:
            print(f"skipped: hostile images under {name} as {user.name}: {said.strip().splitlines()[-1][:200]}", flush=True)
    return names


def has_user_namespaces(user, tree):
    """Whether root's sessions can have one here: not in a chroot."""
    if user.id != 0 or not program.kernel_mode_works():
        return False
    said = user.run([user.varve.binary, "run", "--rm", "--userns", "auto", "--rootfs", tree, "--", "/bin/probe", "nothing"])[2]
    if "makes no user namespace" in said:
        print(f"skipped: hostile images with --userns auto: {said.strip().splitlines()[-1][:200]}", flush=True)
        return False
    return True


def trials_of(user, images, names, userns):
    """Everything for those that have led out before; for all others one runtime with all that can be asked for, another with nothing."""
    turn = 0 if user.id == 0 else 1
    for number, image in enumerate(images):
        if image.nasty:
            for runtime in names + ["auto"]:
                yield Trial(user, image, runtime)
                yield Trial(user, image, runtime, "gpus", "record", "volume", "network")
                yield Trial(user, image, runtime, "terminal")
                if user.id == 0 and runtime != "auto":
                    yield Trial(user, image, runtime, "gpus")
                    yield Trial(user, image, runtime, "volume", "network")
                    if userns:
                        yield Trial(user, image, runtime, "userns", "gpus", "record", "volume", "network")
        else:
            if user.id == 0 or number % 2:
                yield Trial(user, image, names[(number + turn) % len(names)], "gpus", "record", "volume", "network")
            if user.id == 0 or number % 2 == 0:
                yield Trial(user, image, names[(number + turn + 1) % len(names)])
        if image.name == "plain":
            for runtime in names:
                yield Trial(user, image, runtime, "nested volume")


def index_all(user, images, folder, machine):
    """Images that cannot even be indexed are refused there, with one line."""
    maker = Layouts(folder, machine)
    for number, image in enumerate(images):
        image.reference = maker.add(image, f"t{number}")
    maker.layout.finish()

    def index(image):
        done = user.varve.run("index", image.reference)
        said = done.stderr.decode(errors="replace")
        wrong = done.returncode and (image.works or done.returncode != 1 or said.count("\n") != 1 or any(ord(c) < 32 and c != "\n" for c in said))
        return f"{image.name}: index: exit {done.returncode}: {said[-300:]!r}" if wrong else ""

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        return [line for line in pool.map(index, images) if line]


def make_driver(machine):
    (machine.work / "cdi").mkdir()
    driver = machine.work / "libcuda"
    shutil.copy(machine.probe_file, driver)
    (machine.work / "cdi/nvidia.yaml").write_text(SPEC.format(driver=driver))


def check_attacker(machine):
    """Where nothing holds it, it sees what there is to see."""
    done = subprocess.run(["sh", "-c", 'exec 9<"$2"; exec "$1" look', "sh", machine.probe_file, machine.canary], env={"PROBE_CANARY": machine.canary, "VARVE_TEST_SECRET": SECRET}, cwd=machine.work, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    for words in ("the working directory", "has an open descriptor", "has a variable"):
        expect(f"ESCAPED {words}" in done.stdout, f"the attacker is blind: {words}: {done.stdout}")
    expect(machine.damage() and not machine.damage(), "and the machine notices")


def left_over(machine, users):
    """(process to end or 0, what is left)"""
    work = str(machine.work)
    for user in users:
        sessions = user.home / "state/sessions"
        yield from ((0, f"{user.name}: the session {path.name} is left") for path in sessions.iterdir() if path.name[0] != ".")
        if not user.program_is_whole():
            yield 0, f"{user.name}: his program was written to"
    for path in sorted(machine.cgroups() - machine.groups):
        yield 0, f"the cgroup {path} is left"
    yield from ((0, f"a mount is left: {line}") for line in Path("/proc/self/mountinfo").read_text().splitlines() if f" {work}" in line)
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if f"{work}/" in words:
            yield int(folder.name), f"process {folder.name} is left: {words}"


def open_fuse_to_all(work):
    """In this mount namespace alone."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", work / "dev"], check=True)
    os.mknod(work / "dev/fuse", 0o20666, os.makedev(10, 229))
    os.chmod(work / "dev/fuse", 0o666)
    subprocess.run(["mount", "--bind", work / "dev/fuse", "/dev/fuse"], check=True)


def main():
    program.need_root(), program.need_fuse(), program.need_tools("cc", "setsid", "fusermount3")
    only = os.environ.get("HOSTILE_ONLY")
    with program.work_folder() as work, Machine(work) as machine:
        check_attacker(machine)
        make_driver(machine)
        images = [image for image in corpus.all_images(machine) if not only or only in image.name]
        users = [User(machine, program.Varve, name) for name in ("root", "nobody")]
        (work / "dev").mkdir()
        open_fuse_to_all(work)
        trials = Trials(machine)
        trials.lines += index_all(users[0], images, work / "images", machine)
        tree = work / "tree"
        (tree / "bin").mkdir(parents=True)
        shutil.copy(machine.probe_file, tree / "bin/probe")
        for user in users:
            started, before = time.monotonic(), trials.counts.copy()
            names = runtimes_of(user, tree)
            if not names:
                continue
            with user.varve, concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(trials.run, trials_of(user, images, names, has_user_namespaces(user, tree))))
            done = trials.counts - before
            print(f"as {user.name}: {len(images)} images under {', '.join(names)}: {done['works']} sessions worked, {done['refused']} were refused, in {time.monotonic() - started:.0f} s", flush=True)
        subprocess.run(["umount", "/dev/fuse", work / "dev"], check=True)
        deadline = time.monotonic() + 20
        while list(left_over(machine, users)) and time.monotonic() < deadline:
            time.sleep(0.1)  # of a session that was killed the rest cleans up by itself
        for process, line in left_over(machine, users):
            trials.lines.append(line)
            if process:
                os.kill(process, signal.SIGKILL)
        for seconds, label in sorted(trials.slowest, reverse=True)[:3]:
            print(f"  {seconds:5.1f} s  {label}", flush=True)
        for line in trials.lines:
            print(f"FAILED {line}", flush=True)
        sys.exit(bool(trials.lines))


if __name__ == "__main__":
    main()
