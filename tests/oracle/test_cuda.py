"""CUDA's own files, as PyPI has them: selected and recorded, every fault that a rewrite could make found by name, each library opened with RTLD_NOW in a lazily mounted session, and one kernel
compiled to machine code by NVRTC, with neither GPU nor driver.

`--image REF --rootfs FOLDER` does the last two on an image of yours (FOLDER: what umoci unpacks of it), torch and all of cuDNN for example."""
import json, os, re, shutil, subprocess, sys, tempfile, zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "run"))
from tiny_image import expect, make_image  # noqa: E402
import program  # noqa: E402

PROBE = os.environ.get("PROBE") or str(HERE.parents[1] / "build/release/tests/oracle/elf_probe")
SITE = "usr/lib/python3/dist-packages"
WHEELS = ("nvidia-cuda-runtime-cu12==12.4.127", "nvidia-nvtx-cu12==12.4.127", "nvidia-cuda-nvrtc-cu12==12.4.127")  # 25 MB
CONFIG = {"architecture": "amd64", "os": "linux", "config": {"Env": ["PATH=/usr/bin", "LD_LIBRARY_PATH=/usr/local/nvidia/lib64:", "NVIDIA_VISIBLE_DEVICES=all"]}, "rootfs": {"type": "layers", "diff_ids": []}}


def fetch_wheels(work):
    """What pip would install of the wheels."""
    done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--platform", "manylinux2014_x86_64", "--retries", "1",
                           "--timeout", "15", "-d", work / "wheels", *WHEELS], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        program.skip("no package index: " + " ".join(done.stdout.strip().splitlines()[-1:]))
    for wheel in sorted((work / "wheels").iterdir()):
        zipfile.ZipFile(wheel).extractall(work / "root" / SITE)
    shutil.rmtree(work / "wheels")


def make_root(work):
    """The wheels, the system's libraries that they need, a toolkit folder with versioned links, and the loader's configuration."""
    root = work / "root"
    fetch_wheels(work)
    toolkit = root / "usr/local/cuda-12.4/lib64"
    toolkit.mkdir(parents=True)
    shutil.copy(root / SITE / "nvidia/cuda_runtime/lib/libcudart.so.12", toolkit / "libcudart.so.12.4.127")
    (toolkit / "libcudart.so.12").symlink_to("libcudart.so.12.4.127")
    (toolkit / "libcudart.so").symlink_to("libcudart.so.12")
    (root / "usr/local/cuda").symlink_to("cuda-12.4")
    (root / "etc/ld.so.conf.d").mkdir(parents=True)
    (root / "etc/ld.so.conf.d/nvidia.conf").write_text("/usr/local/nvidia/lib64\n")
    libraries = root / "lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    for name in ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6"):
        for folder in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu"):
            if os.path.exists(f"{folder}/{name}"):
                shutil.copy(os.path.realpath(f"{folder}/{name}"), libraries / name)
                break
    (root / "lib64").mkdir()
    (root / "lib64/ld-linux-x86-64.so.2").symlink_to("/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    shutil.copy(os.path.realpath("/lib64/ld-linux-x86-64.so.2"), libraries / "ld-linux-x86-64.so.2")
    return root


class Faults:
    def __init__(self, work, root):
        self.work, self.root = work, root
        self.config = work / "config.json"
        self.config.write_text(json.dumps(CONFIG))
        self.before = work / "before.json"
        self.before.write_bytes(self.manifest())

    def manifest(self, config=None):
        return subprocess.run([PROBE, "manifest", self.root, config or self.config], stdout=subprocess.PIPE, check=True).stdout

    def lines(self, config=None):
        after = self.work / "after.json"
        after.write_bytes(self.manifest(config))
        return subprocess.run([PROBE, "compare", self.before, after], stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()

    def changed(self, path, change, *expected):
        """`change` one path, see that what is said of it begins with each of `expected`, put it back."""
        target, kept = self.root / path, self.work / "kept"
        os.link(target, kept, follow_symlinks=False)
        status = os.lstat(target)
        try:
            change(target)
            said = self.lines()
        finally:
            if os.path.lexists(target):
                os.unlink(target)
            os.link(kept, target, follow_symlinks=False)
            os.unlink(kept)
        if not target.is_symlink():
            os.chmod(target, status.st_mode)
        expect(said, f"{path}: the fault was not seen")
        for text in expected:
            expect(any(line.startswith(text) for line in said), f"{path}: nothing begins with {text!r}: {said}")


def rewrite(target, change):
    """As tools do that write a new file under the old name."""
    content = bytearray(target.read_bytes())
    mode = target.stat().st_mode
    change(content)
    target.unlink()
    target.write_bytes(content)
    os.chmod(target, mode)


def strip(target):
    fresh = target.with_name("stripped")
    subprocess.run(["strip", "--strip-unneeded", "-R", ".note.gnu.build-id", "-o", fresh, target], check=True)
    os.chmod(fresh, target.stat().st_mode)
    os.rename(fresh, target)


def other_runpath(content):
    at = content.find(b"\0$ORIGIN")
    expect(at > 0, "the library has a RUNPATH with $ORIGIN")
    content[at + 1:at + 8] = b"/nowher"


def check_faults(work, root):
    faults = Faults(work, root)
    manifest = json.loads(faults.before.read_text())
    files = {file["path"]: file for file in manifest["files"]}
    for path in (f"{SITE}/nvidia/cuda_runtime/lib/libcudart.so.12", f"{SITE}/nvidia/cuda_nvrtc/__init__.py", f"{SITE}/nvidia_cuda_nvrtc_cu12-12.4.127.dist-info/RECORD", "usr/local/cuda",
                 "usr/local/cuda-12.4/lib64/libcudart.so", "etc/ld.so.conf.d/nvidia.conf", "lib/x86_64-linux-gnu/libc.so.6"):
        expect(path in files, f"{path} is not kept")
    expect(manifest["missing"] == [], manifest["missing"])
    expect(all(name.endswith("libcuda.so.1") for name in manifest["unresolved"]), manifest["unresolved"])
    expect(faults.lines() == [], "equal to itself")

    toolkit, nvrtc = "usr/local/cuda-12.4/lib64/", f"{SITE}/nvidia/cuda_nvrtc/lib/"
    faults.changed(toolkit + "libcudart.so.12", os.unlink, toolkit + "libcudart.so.12: not there any more")
    faults.changed(toolkit + "libcudart.so.12.4.127", strip, toolkit + "libcudart.so.12.4.127: ")
    with_runpath = next((path for path, file in files.items() if file["type"] == "file" and ".so" in path and b"\0$ORIGIN" in (root / path).read_bytes()), None)
    if with_runpath:
        faults.changed(with_runpath, lambda target: rewrite(target, other_runpath), with_runpath + ": sha256 ")
    faults.changed(nvrtc + "libnvrtc-builtins.so.12.4", os.unlink, nvrtc + "libnvrtc-builtins.so.12.4: not there any more")
    faults.changed("etc/ld.so.conf.d/nvidia.conf", lambda target: rewrite(target, lambda content: content.extend(b"# \n")), "etc/ld.so.conf.d/nvidia.conf: ")
    faults.changed(nvrtc + "libnvrtc.so.12", lambda target: os.chmod(target, 0o700), nvrtc + "libnvrtc.so.12: mode 0700 instead of ")
    faults.changed("lib/x86_64-linux-gnu/libm.so.6", os.unlink, "lib/x86_64-linux-gnu/libm.so.6: not there any more")

    def set_attribute(target):
        content = target.read_bytes()
        mode = target.stat().st_mode
        target.unlink()
        target.write_bytes(content)
        os.chmod(target, mode)
        os.setxattr(target, "user.varve-test", b"1")
    try:
        os.setxattr(root, "user.varve-test", b"1")
        os.removexattr(root, "user.varve-test")
    except OSError as error:
        print(f"skipped: a changed attribute ({error})", flush=True)
    else:
        faults.changed(nvrtc + "libnvrtc.so.12", set_attribute, nvrtc + "libnvrtc.so.12: extended attributes ")

    edited = json.loads(json.dumps(CONFIG))
    edited["config"]["Env"][1] = edited["config"]["Env"][1].rstrip(":")
    (work / "edited.json").write_text(json.dumps(edited))
    expect(faults.lines(work / "edited.json") == ['Env[1]: "LD_LIBRARY_PATH=/usr/local/nvidia/lib64" instead of "LD_LIBRARY_PATH=/usr/local/nvidia/lib64:"'], faults.lines(work / "edited.json"))
    print(f"faults: each found by name in a manifest of {len(files)} files", flush=True)
    return manifest


def libraries_of(manifest):
    """What must open: shared objects of the manifest, without those that need what no image has, and those built to be linked into programs."""
    unresolved = {line.split(" needs ")[0] for line in manifest["unresolved"]}
    dependents = dict.fromkeys(unresolved)
    grown = True
    needs = [(key.split(" needs ")[0], match.removeprefix("beside:")) for key, matches in manifest["resolved"].items() for match in matches]
    beside = {key.split(" needs ")[0] for key, matches in manifest["resolved"].items() if any(match.startswith("beside:") for match in matches)}
    dependents.update(dict.fromkeys(beside))  # they count on somebody having loaded the others before
    while grown:
        grown = False
        for path, needed in needs:
            if needed in dependents and path not in dependents:
                dependents[path] = None
                grown = True
    return [file["path"] for file in manifest["files"] if file["type"] == "file" and re.search(r"\.so(\.[0-9.]+)?$", file["path"]) and file["size"] and file["path"] not in dependents and
            "/stubs/" not in file["path"]]


def build_check(work):
    check = work / "cuda_check"
    subprocess.run(["gcc", "-O1", "-o", check, HERE / "cuda_check.c", "-ldl"], check=True)
    return check


def judge(output, wanted, of_frameworks=False):
    """`of_frameworks`: some of their libraries count on others that Python loaded before, and say which symbol they miss. That every file was found and opened is asked of them too."""
    lines = output.splitlines()
    failed = [line for line in lines if line.startswith(("failed ", "nvrtc: "))]
    alone = [line for line in failed if of_frameworks and ("undefined symbol" in line or line.endswith("status 256"))]  # 256: its own constructor ended the process
    for line in alone:
        print("not by itself:", line.removeprefix("failed "), flush=True)
    expect(failed == alone, "\n".join(failed))
    opened = {line.removeprefix("opened /") for line in lines if line.startswith("opened ")}
    expect(len(opened) + len(alone) == len(wanted), f"not tried: {set(wanted) - opened}")
    cubin = [int(line.split()[1]) for line in lines if line.startswith("cubin ")]
    expect(cubin and cubin[0] > 500, lines[-3:])
    print(f"session: {len(opened)} of {len(wanted)} libraries open with RTLD_NOW, a kernel became {cubin[0]} bytes of machine code", flush=True)


def check_session(work, root, manifest):
    program.need_fuse()
    check = build_check(work)
    wanted = [path for path in libraries_of(manifest) if path.startswith("usr/")]  # the system's own come from this machine, from where its ldd finds them
    expect(len(wanted) >= 5, wanted)
    more = [("list", "".join(f"/{path}\n" for path in wanted).encode())]
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_file() and not path.is_symlink() and (name.startswith(("usr/lib/python3/", "usr/local/")) or os.path.basename(name) in ("libstdc++.so.6", "libgcc_s.so.1", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")):
            more.append((name, path.read_bytes()))
    with program.Varve(work / "varve") as varve:
        volume = work / "check"
        volume.mkdir()
        shutil.move(check, volume / "cuda_check")
        image = make_image(work / "image", more)
        varve.index(image)
        for mode in program.modes():
            done = varve.run("run", "--mode", mode, "--rm", "--volume", f"{volume}:/check:ro", image, "--", "/check/cuda_check", "/list")
            expect(done.returncode == 0, done.stderr.decode(errors="replace"))
            judge(done.stdout.decode(), wanted)
    check_heads(work, root, image)


HEAD_BYTES = 4 << 20  # of a library, however large: the spans of about 1 MiB with its first bytes, its dynamic section and its names
HEADS_SPEC = """{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": {"env": ["GPU=yes"]}}],
 "containerEdits": {"hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "update-ldcache", %s]}]}}"""


def check_heads(work, root, image):
    """A GPU session's ldconfig looks at every library of the folders it is given: of each it fetches where headers and names are, not the library."""
    folders = sorted({f"/{path.parent.relative_to(root)}" for path in (root / SITE).rglob("lib*.so*")})
    libraries = [path for folder in folders for path in (root / folder[1:]).glob("*.so*") if not path.is_symlink()]
    total = sum(path.stat().st_size for path in libraries)
    (work / "cdi").mkdir()
    (work / "cdi/nvidia.json").write_text(HEADS_SPEC % ", ".join(f'"--folder", "{folder}"' for folder in folders))
    decoded, fetched = {}, {}
    for gpus in ("none", "all"):
        with program.Varve(work / f"store-{gpus}") as varve:
            stats = work / "stats.json"
            done = varve.run("run", "--rm", "--stats", stats, "--gpus", gpus, "--cdi-spec-dir", work / "cdi", image, "--", "cat", "/etc/ld.so.cache" if gpus == "all" else "/etc/shared")
            expect(done.returncode == 0, done.stderr.decode(errors="replace"))
            figures = json.loads(stats.read_text())
            decoded[gpus], fetched[gpus] = figures["stream_bytes"], figures["fetched_bytes"]
    for path in libraries:
        expect(path.name.encode() in done.stdout, f"the loader's cache does not know {path.name}")
    more = decoded["all"] - decoded["none"]
    expect(0 < more <= len(libraries) * HEAD_BYTES, f"{more} bytes for {len(libraries)} libraries of {total}")
    print(f"ldconfig in a session: {len(libraries)} libraries of {total / 1e6:.1f} MB, {more / 1e6:.1f} MB of them decoded ({more / total:.1%}), {(fetched['all'] - fetched['none']) / 1e6:.1f} MB fetched", flush=True)


# What cuda_check.c does, for images with a Python of their own, whose extension modules open only inside it. Torch's and TensorFlow's take seconds each.
IN_PYTHON = """
import ctypes, os, sys
nvrtc = None
for path in open("/check/list").read().split("\\n"):
    if not path:
        continue
    if os.path.basename(path).startswith("libnvrtc.so."):
        nvrtc = path
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        try:
            ctypes.CDLL(path, os.RTLD_NOW)
            print("opened", path)
        except OSError as error:
            print(f"failed {path}: {error}")
        sys.stdout.flush()
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if status:
        print(f"failed {path}: status {status}")
if nvrtc:
    library, program, size = ctypes.CDLL(nvrtc, os.RTLD_NOW), ctypes.c_void_p(), ctypes.c_size_t()
    source = b'extern "C" __global__ void axpy(float a, const float* x, float* y) { int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = a * x[i] + y[i]; }'
    status = library.nvrtcCreateProgram(ctypes.byref(program), source, b"axpy.cu", 0, None, None)
    status = status or library.nvrtcCompileProgram(program, 1, (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_75"))
    status = status or library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    status = status or library.nvrtcGetCUBIN(program, code)
    print(f"cubin {size.value}" if status == 0 and code.raw[:4] == b"\\x7fELF" else f"nvrtc: error {status}")
"""


def check_image(work, image, rootfs):
    (work / "config.json").write_text(json.dumps(CONFIG))
    manifest = json.loads(subprocess.run([PROBE, "manifest", rootfs, work / "config.json"], stdout=subprocess.PIPE, check=True).stdout)
    wanted = libraries_of(manifest)
    volume = work / "check"
    volume.mkdir()
    (volume / "check.py").write_text(IN_PYTHON)
    (volume / "list").write_text("".join(f"/{path}\n" for path in wanted))
    with program.Varve(work / "varve") as varve:
        varve.index(image, timeout=3600)
        done = varve.run("run", "--rm", "--stats", work / "stats.json", "--volume", f"{volume}:/check:ro", image, "--", "python3", "/check/check.py", timeout=3600)
        print({name: value for name, value in json.loads((work / "stats.json").read_text()).items() if name in ("mode", "fetched_bytes", "stream_bytes", "requests", "seconds")}, flush=True)
        judge(done.stdout.decode(), wanted, of_frameworks=True)


def main():
    if os.uname().machine != "x86_64":
        program.skip("the wheels are for x86-64")
    program.need_tools("gcc", "strip")
    with program.work_folder() as work:
        (work / "varve").mkdir()
        if "--image" in sys.argv:
            check_image(work, sys.argv[sys.argv.index("--image") + 1], sys.argv[sys.argv.index("--rootfs") + 1])
            return
        root = make_root(work)
        manifest = check_faults(work, root)
        check_session(work, root, manifest)
    print("ok")


if __name__ == "__main__":
    main()
