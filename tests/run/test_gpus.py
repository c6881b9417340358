#!/usr/bin/env python3
"""`varve run --gpus` with a made-up driver: device files, libraries over the image's tree, links, the loader's cache, variables. Each runtime of this machine, as root."""
import json, os, re, shutil, subprocess
from pathlib import Path

from tiny_image import expect, make_image, needed_files
import program, tars  # noqa: E402  tiny_image says where they lie

# As `nvidia-ctk cdi generate` writes it. Of devices every machine has: /dev/full works if writing says that no space is left.
SPEC = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      hostPath: /dev/full
- name: "1"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia-caps/nvidia-cap1
      hostPath: /dev/zero
- name: all
  containerEdits:
    deviceNodes:
    - {{path: /dev/nvidia0, hostPath: /dev/full}}
    - {{path: /dev/nvidia-caps/nvidia-cap1, hostPath: /dev/zero}}
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  - OF_IMAGE=replaced
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, create-symlinks, --link, "libcuda.so.1::/usr/lib/driver/libcuda.so"]
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib/driver]
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, enable-cuda-compat, --host-driver-version=550.54]
  mounts:
  - hostPath: {driver}/libcuda.so.550.54
    containerPath: /usr/lib/driver/libcuda.so.550.54
    options: [ro, nosuid, nodev, bind]
"""


def make_driver(work):
    """A library with the names of the driver's, described as a machine with two GPUs has it."""
    driver = work / "driver"
    driver.mkdir()
    source = work / "cuda.c"
    source.write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", driver / "libcuda.so.550.54", "-Wl,-soname,libcuda.so.1", source], check=True)
    cdi = work / "cdi"
    cdi.mkdir()
    (cdi / "nvidia.yaml").write_text(SPEC.format(driver=driver))
    return cdi


def runtimes():
    return [name for name, tool in (("runc", "runc"), ("crun", "crun"), ("none", "sh")) if shutil.which(tool)]


def check(varve, image, cdi, runtime):
    def run(*command, gpus=("--gpus", "all"), rm=("--rm",)):
        return varve.run("-v", "run", *rm, "--runtime", runtime, "--cdi-spec-dir", cdi, *gpus, image, "--", *command)

    def output(*command, **how):
        done = run(*command, **how)
        expect(done.returncode == 0, f"{runtime}: {command}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    text, said = output("sh", "-c", "echo x > /dev/nvidia0 || echo full; env; cat /etc/ld.so.conf.d/*; ls -l /usr/lib/driver; cat /etc/ld.so.cache")
    expect("full\n" in text, f"{runtime}: the first device works: {text} {said}")
    expect("NVIDIA_VISIBLE_DEVICES=void\n" in text and "OF_IMAGE=replaced\n" in text, f"{runtime}: variables: {text}")
    expect("libcuda.so -> libcuda.so.1" in text and "libcuda.so.550.54" in text, f"{runtime}: links and files: {text}")
    expect("/usr/lib/driver/libcuda.so.1" in text and "libcuda.so.1 -> libcuda.so.550.54" in text, f"{runtime}: the loader knows the driver: {text} {said}")
    expect("enable-cuda-compat" in said, f"{runtime}: what is left out is said: {said}")
    bytes_read = output("od", "-An", "-tx1", "-N3", "/dev/nvidia-caps/nvidia-cap1", gpus=("--device", "nvidia.com/gpu=1"))[0]
    expect(bytes_read.split() == ["00"] * 3, f"{runtime}: a device in a folder of its own: {bytes_read}")
    expect(output("sh", "-c", "ls /dev/nvidia0 2>/dev/null || echo none", gpus=("--gpus", "none"))[0] == "none\n", f"{runtime}: none is none")
    for gpus, status, words in ((("--gpus", "3"), 125, "describes 2 GPUs"), (("--gpus", "some"), 125, "write all, none, or how many"), (("--device", "nvidia.com/gpu=7"), 125, "no device nvidia.com/gpu=7")):
        done = run("env", gpus=gpus)
        expect(done.returncode == status and words in done.stderr.decode(), f"{runtime}: {gpus}: {done}")


def check_missing_driver_file(varve, image, work, cdi):
    """Half a driver is none: frameworks would fall back to the CPU without a word."""
    spec = (cdi / "nvidia.yaml").read_text()
    for name, text, words in (("mount", spec + "  - {hostPath: /not/there/libcuda.so, containerPath: /usr/lib/driver/more.so}\n", "/not/there/libcuda.so"),
                              ("link", spec.replace("libcuda.so.1::/usr", "libcuda.so.1::usr"), "a link of the device's driver")):
        folder = work / f"cdi-{name}"
        folder.mkdir()
        (folder / "nvidia.yaml").write_text(text)
        done = varve.run("run", "--rm", "--cdi-spec-dir", folder, "--gpus", "all", image, "--", "sh", "-c", "echo ran")
        expect(done.returncode == 125 and done.stdout == b"" and words in done.stderr.decode(), f"{name}: {done}")
    print("a driver that is not whole ends the run", flush=True)


class Canary:
    """A block device of the machine that nobody may write to: a loop device over zeros."""

    def __init__(self, work):
        self.file = work / "disk"
        self.file.write_bytes(bytes(1 << 20))
        done = subprocess.run(["losetup", "--find", "--show", self.file], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.device = done.stdout.strip()

    def numbers(self):
        number = os.stat(self.device).st_rdev
        return os.major(number), os.minor(number)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.device:
            subprocess.run(["losetup", "--detach", self.device])


def check_odd_loader_files(varve, work, cdi):
    """What an image has in the place of the loader's files is never opened: no device is written to, no FIFO waited for."""
    ours, cache, aux = "etc/ld.so.conf.d/00-varve-devices.conf", "etc/ld.so.cache", "var/cache/ldconfig/aux-cache"
    with Canary(work) as canary:
        kinds = {"fifo": lambda tar, name: tar.entry(name, tars.FIFO), "link": lambda tar, name: tar.symlink(name, "/proc/self/fd/0")}
        if canary.device:
            major, minor = canary.numbers()
            kinds["disk"] = lambda tar, name: tar.entry(name, tars.BLOCK_DEVICE, major=major, minor=minor, mode=0o666)
        for kind, add in kinds.items():
            image = make_image(work / f"odd-{kind}", odd=lambda tar: [add(tar, name) for name in (ours, "etc/ld.so.conf", cache, cache + "~", aux, aux + "~")])
            varve.index(image)
            done = varve.run("run", "--rm", "--cdi-spec-dir", cdi, "--gpus", "all", image, "--", "cat", "/" + ours, "/" + cache, timeout=60)
            expect(done.returncode == 0 and b"/usr/lib/driver\n" in done.stdout and b"libcuda.so.1" in done.stdout, f"{kind}: {done}")
            subprocess.run(["sync"])
            expect(not any(canary.file.read_bytes()), f"{kind}: the disk was written to")
        image = make_image(work / "odd-list", odd=lambda tar: tar.entry("etc/ld.so.conf.d/a.conf", tars.FIFO))
        varve.index(image)
        done = varve.run("run", "--rm", "--cdi-spec-dir", cdi, "--gpus", "all", image, "--", "sh", "-c", "echo ran", timeout=60)
        expect(done.returncode == 125 and b"a.conf of the image is no plain file" in done.stderr, f"a list that is a FIFO: {done}")
        image = make_image(work / "led-away", odd=lambda tar: tar.dir("usr").dir("usr/lib").symlink("usr/lib/driver", "/dev/shm"))
        varve.index(image)
        done = varve.run("run", "--rm", "--cdi-spec-dir", cdi, "--gpus", "all", image, "--", "sh", "-c", "echo ran", timeout=60)
        expect(done.returncode == 125 and b"links lead to /dev/shm/libcuda.so.550.54" in done.stderr, f"a driver that would not be seen: {done}")
    print(f"odd files in the loader's place are not opened: {', '.join(kinds)}", flush=True)


def listed_in(cache):
    """[(name, flags, path)] of a cache, by this machine's ldconfig."""
    listed = subprocess.run(["/sbin/ldconfig", "-p", "-C", cache], stdout=subprocess.PIPE, check=True, text=True).stdout
    return re.findall(r"^\t(\S+) \((.*)\) => (\S+)$", listed, re.MULTILINE)


class TreeOfLibraries:
    """An unpacked image with libraries in three folders: links of two kinds, a linker's script, an older version of one. Its cache is ldconfig's."""

    def __init__(self, folder):
        self.folder = folder
        for path, content in needed_files().items():
            self.put(path, content, 0o755)
        self.put("etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n")
        self.put("etc/ld.so.conf.d/more.conf", b"# more\n/usr/lib/more\n/nowhere\n/usr/local/lib # of Debian\n")
        self.library("usr/lib/libone.so.1.2", "libone.so.1")
        (folder / "usr/lib/libone.so").symlink_to("libone.so.1")
        self.library("usr/lib/libone.so.1.1", "libone.so.1")
        self.library("usr/lib/more/libunnamed.so", None)
        for number in (2, 9, 10, 100):
            self.library(f"usr/lib/more/libmany{number}.so.{number}", f"libmany{number}.so.{number}")
        self.library("usr/local/lib/libz10.so.3.0", "libz10.so.3")
        self.put("usr/lib/libscript.so", b"GROUP ( /usr/lib/libone.so.1 )\n")
        for _ in range(2):  # the second finds the links that the first has made
            subprocess.run(["/sbin/ldconfig", "-r", folder], check=True)

    def put(self, path, content, mode=0o644):
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(mode)

    def library(self, path, soname):
        """With a megabyte that does not get smaller: whoever reads its head fetches it."""
        path = self.folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        source = self.folder.parent / "library.S"
        (self.folder.parent / "noise").write_bytes(os.urandom(1 << 20))
        source.write_text(f'.section .rodata\n.globl noise\nnoise: .incbin "{self.folder.parent}/noise"\n.section .note.GNU-stack,"",%progbits\n')
        subprocess.run(["cc", "-shared", "-nostdlib", "-o", path, *([f"-Wl,-soname,{soname}"] if soname else []), source], check=True)

    def image(self, folder):
        def add(tar):
            for path in sorted(self.folder.rglob("*")):
                name = str(path.relative_to(self.folder))
                if path.is_symlink():
                    tar.symlink(name, os.readlink(path))
                elif path.is_file():
                    tar.file(name, path.read_bytes(), mode=path.stat().st_mode & 0o777)
        return make_image(folder, odd=add)


def check_cache_of_image(varve, work, cdi):
    """The image's cache is taken where it knows all libraries, and none of them is read then; what comes of it is what ldconfig makes of them all."""
    opener = work / "opener.c"
    opener.write_text('#include <dlfcn.h>\n#include <stdio.h>\nint main(int n, char** names) { for (int i = 1; i < n; ++i) if (!dlopen(names[i], RTLD_NOW)) { puts(dlerror()); return 1; } return 0; }\n')
    tree = TreeOfLibraries(work / "tree")
    subprocess.run(["cc", "-o", tree.folder / "bin/opener", opener], check=True)

    def session(image, name, cdi=cdi):
        varve.index(image)
        stats = work / "stats.json"
        with program.work_folder() as other, program.Varve(other) as machine:  # with an empty store
            done = machine.run("-v", "run", "--rm", "--stats", stats, "--cdi-spec-dir", cdi, "--gpus", "all", image, "--", "cat", "/etc/ld.so.cache")
        expect(done.returncode == 0, f"{name}: {done.stderr.decode(errors='replace')}")
        cache = work / "cache"
        cache.write_bytes(done.stdout)
        return listed_in(cache), json.loads(stats.read_text())["fetched_bytes"], done.stderr.decode(errors="replace")

    def wanted(place="usr/lib/driver"):
        """What ldconfig makes of the tree with the driver in it."""
        whole = work / "whole"
        shutil.rmtree(whole, ignore_errors=True)
        shutil.copytree(tree.folder, whole, symlinks=True)
        (whole / place).mkdir(exist_ok=True)
        shutil.copy(work / "driver/libcuda.so.550.54", whole / place)
        (whole / place / "libcuda.so").symlink_to("libcuda.so.1")
        (whole / "etc/ld.so.conf.d/00-varve-devices.conf").write_text(f"/{place}\n")
        subprocess.run(["/sbin/ldconfig", "-r", whole], check=True)  # like the session's, the first to see the driver
        return listed_in(whole / "etc/ld.so.cache")

    image = tree.image(work / "known")
    taken, fetched, said = session(image, "known")
    expect("ldconfig reads" not in said, f"the image's cache does: {said}")
    expect(taken == wanted(), f"the cache is ldconfig's:\n{taken}\n{wanted()}")
    names = [name for name, _, _ in taken]
    done = varve.run("run", "--rm", "--cdi-spec-dir", cdi, "--gpus", "all", image, "--", "opener", *names)
    expect(done.returncode == 0 and "libcuda.so.1" in names and "libmany100.so.100" in names, f"a loader finds every name: {done}")
    # Where distributions have the driver's files: among the image's own.
    among = work / "cdi-among"
    among.mkdir()
    (among / "nvidia.yaml").write_text((cdi / "nvidia.yaml").read_text().replace("/usr/lib/driver", "/usr/lib"))
    taken, _, said = session(image, "among", among)
    expect("ldconfig reads" not in said and taken == wanted("usr/lib"), f"a driver among the image's libraries: {said}\n{taken}\n{wanted('usr/lib')}")
    # A session that starts again, its cache being of the first start.
    for command in (("run", "--name", "again", "--cdi-spec-dir", cdi, "--gpus", "all", image, "--", "cat", "/etc/ld.so.cache"), ("session", "start", "again")):
        done = varve.run("-v", *command)
        expect(done.returncode == 0 and b"ldconfig reads" not in done.stderr, f"{command}: {done.stderr}")
        (work / "cache").write_bytes(done.stdout)
        expect({name for name, _, _ in listed_in(work / "cache")} >= set(names), f"{command}: {done}")
    varve.run("session", "rm", "again", check=True)
    # A list that came after the cache: its folders are looked through, and have nothing new.
    os.utime(tree.folder / "etc/ld.so.conf.d/more.conf", (2_000_000_000, 2_000_000_000))
    # What the cache does not know: ldconfig looks at everything, and finds it.
    for name, change in (("new in a folder of the cache", lambda: tree.library("usr/lib/more/libnew.so.5", "libnew.so.5")),
                         ("new where the cache has nothing", lambda: tree.library("lib/libother.so.5", "libother.so.5")),
                         ("no cache", lambda: (tree.folder / "etc/ld.so.cache").unlink()),
                         ("a broken cache", lambda: tree.put("etc/ld.so.cache", b"glibc-ld.so.cache1.1 and no more"))):
        change()
        found, read, said = session(tree.image(work / name.replace(" ", "-")), name)
        expect("ldconfig reads all libraries" in said, f"{name}: it is said: {said}")
        expect(found == wanted(), f"{name}: as ldconfig finds it: {found}")
        expect(read > fetched + (4 << 20), f"{name}: {read} bytes fetched, {fetched} where the cache is whole")
    print("the loader's cache is made of the image's own where that is whole, and is ldconfig's in any case", flush=True)


class Toolkit:
    """NVIDIA's programs, made up: they lie in a folder that comes first in PATH."""

    def __init__(self, work, varve, spec):
        self.work, self.varve, self.folder, self.spec = work, varve, work / "toolkit", spec
        self.folder.mkdir()
        (work / "no-cdi").mkdir()
        self.path = varve.environment["PATH"]
        varve.environment["PATH"] = f"{self.folder}:{self.path}"

    def put(self, **programs):
        for path in self.folder.iterdir():
            path.unlink()
        for name, text in programs.items():
            path = self.folder / name.replace("_", "-")
            path.write_text("#!/bin/sh\n" + text)
            path.chmod(0o755)

    def run(self, *command, gpus=("--gpus", "all"), runtime="auto"):
        done = self.varve.run("-v", "run", "--rm", "--runtime", runtime, "--cdi-spec-dir", self.work / "no-cdi", *gpus, self.image, "--", *command)
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")


def check_generated(toolkit):
    """Without a specification nvidia-ctk is asked for one, once."""
    calls = toolkit.work / "calls"
    generate = f'echo "$*" >> {calls}\ncat {toolkit.spec}\n'
    toolkit.put(nvidia_ctk=generate)
    for _ in range(2):
        status, text, said = toolkit.run("sh", "-c", "echo x > /dev/nvidia0 || echo full; env")
        expect(status == 0 and "full\n" in text and "OF_IMAGE=replaced\n" in text, f"by nvidia-ctk: {status}: {text} {said}")
    expect(calls.read_text() == "cdi generate\n", calls.read_text())
    toolkit.put(nvidia_ctk=generate + "# another version\n")
    expect(toolkit.run("env", gpus=("--device", "nvidia.com/gpu=1"))[0] == 0, "a device by name")
    expect(calls.read_text() == "cdi generate\n" * 2, "another nvidia-ctk is asked anew")
    for text, words in (("echo bad >&2; echo no driver >&2; exit 3\n", "ended with status 3: no driver"), ("echo 'kind: [\n'", "what "), ("echo 'cdiVersion: 0.5.0\nkind: other.com/thing\ndevices: [{name: x}]'", "describes no nvidia.com/gpu")):
        toolkit.put(nvidia_ctk=text)
        status, _, said = toolkit.run("env")
        expect(status == 125 and words in said, f"{text}: {status}: {said}")
    print("nvidia-ctk: asked once for a driver, and its failures are told", flush=True)


def check_runtime(toolkit):
    """With nothing but nvidia-container-runtime the session is its: it gets the bundle, and the variable that it reads."""
    record = toolkit.work / "config.json"
    wrapper = f'for word; do [ "$last" = --bundle ] && cp "$word/config.json" {record}; last=$word; done\nexec runc "$@"\n'
    toolkit.put(nvidia_container_runtime=wrapper)

    def variables():
        return [one for one in json.loads(record.read_text())["process"]["env"] if one.startswith("NVIDIA_VISIBLE_DEVICES")]
    for gpus, runtime, visible in (("all", "auto", "all"), ("2", "auto", "0,1"), ("1", "nvidia", "0"), ("none", "nvidia", "void")):
        record.unlink(missing_ok=True)
        status, text, said = toolkit.run("env", gpus=("--gpus", gpus), runtime=runtime)
        expect(status == 0 and variables() == [f"NVIDIA_VISIBLE_DEVICES={visible}"] and f"NVIDIA_VISIBLE_DEVICES={visible}\n" in text, f"{gpus}, {runtime}: {status}: {text} {said}")
    record.unlink()
    status, _, said = toolkit.run("env", gpus=("--gpus", "4000000000"))
    expect(status == 125 and "at most" in said, f"a number beyond reason: {said}")
    expect(toolkit.run("env", gpus=("--gpus", "none"))[0] == 0 and not record.exists(), "without GPUs it is not asked")
    status, _, said = toolkit.run("env", gpus=("--gpus", "all"), runtime="runc")
    expect(status == 125 and "nvidia-ctk" in said, f"another runtime that was asked for is not replaced: {said}")
    toolkit.put(nvidia_container_runtime="echo '{\"level\":\"error\",\"msg\":\"no GPU 0\"}' > /dev/null; exit 1\n")
    status, _, said = toolkit.run("env")
    expect(status == 125 and "nvidia" in said, f"a runtime that fails ends the run: {status} {said}")
    toolkit.put(nvidia_ctk="exit 1\n", nvidia_container_runtime=wrapper)
    expect(toolkit.run("env")[0] == 0 and variables() == ["NVIDIA_VISIBLE_DEVICES=all"], "where nvidia-ctk fails the runtime is taken")
    toolkit.put(nvidia_container_cli="exit 1\n")
    status, _, said = toolkit.run("env")
    expect(status == 125 and "nvidia-container-toolkit" in said, f"what to install: {said}")
    print("nvidia-container-runtime: gets the bundle and what it reads; what is missing is said", flush=True)


def main():
    program.need_root()
    program.need_fuse()
    program.need_tools("cc", "umoci")
    if not os.access("/sbin/ldconfig", os.X_OK):
        program.skip("this machine has no ldconfig")
    with program.work_folder() as work, program.Varve(work) as varve:
        image = make_image(work / "image", more=[("etc/ld.so.conf", b"include /etc/ld.so.conf.d/*.conf\n")])
        varve.index(image)
        cdi = make_driver(work)
        for runtime in runtimes():
            check(varve, image, cdi, runtime)
            with varve.mounted(image, program.modes()[-1]) as folder:
                expect(not (Path(folder) / "etc/ld.so.cache").exists() and not (Path(folder) / "usr/lib/driver").exists(), "the image is as it was")
            print(f"{runtime}: devices, driver files, links, cache and variables are right", flush=True)
        check_missing_driver_file(varve, image, work, cdi)
        check_odd_loader_files(varve, work, cdi)
        check_cache_of_image(varve, work, cdi)
        toolkit = Toolkit(work, varve, cdi / "nvidia.yaml")
        toolkit.image = image
        check_generated(toolkit)
        if shutil.which("runc"):
            check_runtime(toolkit)


if __name__ == "__main__":
    main()
