"""The fake GPU of tests/gpu/fake: folders of its libraries with something missing, and the probe run against them."""
import json, os, re, shutil, subprocess, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run"))
import program  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
FAKES = Path(os.environ.get("FAKES") or ROOT / "build/release/tests/gpu/fake")
PROBE = os.environ.get("PROBE") or str(ROOT / "build/release/gpu/probe/varve-gpu-probe")
PYTHON = Path(__file__).resolve().parent / "fake/python"
MARK = "varve-gpu-probe:"
SIZES = {"memory": 4, "kernel": 4096, "gemm": 64, "convolution": 8, "fft": 1024, "solve": 64, "sparse": 500, "random": 65536, "nccl": 4096}


def libraries(part):
    """Names of the libraries of "driver" or "toolkit"."""
    return sorted(path.name for path in (FAKES / part).iterdir() if ".so." in path.name)


def without_symbol(library, symbol):
    """The library's bytes with another name in the place of `symbol`: who asks for it by name does not find it any more."""
    content, name = library.read_bytes(), b"\0" + symbol.encode() + b"\0"
    assert name in content, f"{library} has no {symbol}"
    return content.replace(name, name[:2] + b"?" + name[3:])


def make_folder(folder, part, missing=(), symbols=()):
    """A folder with the libraries of `part`, without the `missing` ones, and without `symbols`: (library, symbol)."""
    folder.mkdir(parents=True)
    for name in libraries(part):
        if name not in missing:
            shutil.copy(FAKES / part / name, folder / name)
    for name, symbol in symbols:
        (folder / name).write_bytes(without_symbol(FAKES / part / name, symbol))
    return folder


class Said:
    """What a process of the probe printed and how it ended."""

    def __init__(self, done):
        self.status, self.out, self.err = done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        objects = [json.loads(line[len(MARK) + 1:]) for line in self.out.split("\n") if line.startswith(MARK + " ")]
        self.results = [one for one in objects if "result" in one]
        self.doing = [one["doing"] for one in objects if "doing" in one]
        last = self.results[-1] if self.results else {}
        self.result, self.detail, self.facts = last.get("result"), last.get("detail", ""), last.get("facts", {})
        self.warnings, self.throttled = last.get("warnings", []), last.get("throttled", False)
        self.metrics = {metric["name"]: metric for metric in last.get("metrics", [])}

    def __repr__(self):
        return f"status {self.status}\n{self.out[-3000:]}\n{self.err[-2000:]}"


class Gpu:
    """A machine's driver and an image's libraries; parts of them can be missing."""

    def __init__(self, driver=FAKES / "driver", toolkit=FAKES / "toolkit"):
        self.folders = [folder for folder in (driver, toolkit) if folder]

    def environment(self, behaviour=""):
        kept = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "VARVE_FAKE_GPU")}
        return {**kept, "LD_LIBRARY_PATH": ":".join(map(str, self.folders)), "VARVE_FAKE_GPU": behaviour}

    def probe(self, step, behaviour="", *words, timeout=60):
        size = ["--size", str(SIZES[step])] if step in SIZES and "--size" not in words else []
        command = [PROBE, step, "--repetitions", "2", "--library-dir", "/nonexistent", *size, *words]
        return Said(subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.environment(behaviour), timeout=timeout))


def alone():
    """Goes on in a mount namespace in which this machine's own CUDA is not to be seen: the loader would find it where the fake one lacks something."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], stdout=subprocess.PIPE, text=True).stdout
    own = re.findall(r"^\s*lib(?:cuda|cudart|cublas\w*|cudnn|cufft|curand|cusolver|cusparse|nccl|nvrtc|nvidia-ml)\.so\.\d+ .* => (\S+)$", listed, re.MULTILINE)
    folders = sorted({os.path.dirname(os.path.realpath(path)) for path in own if os.path.exists(path)})
    if not folders:
        return
    if any(folder.startswith(("/usr/lib", "/lib")) for folder in folders):
        program.skip("CUDA lies among this machine's own libraries, where it cannot be hidden: " + " ".join(folders))
    mounts = "; ".join(f"mount -t tmpfs none '{folder}'" for folder in folders)
    inner = ["unshare", "-m", *(["-r"] if os.getuid() else []), "sh", "-ec", f'{mounts}; exec "$@"', "sh", sys.executable, "-B", *sys.argv]
    if subprocess.run([*inner[:inner.index("sh")], "true"], stderr=subprocess.DEVNULL).returncode:
        program.skip("this machine has CUDA of its own, which cannot be hidden without mounts: " + " ".join(folders))
    sys.exit(subprocess.run(inner).returncode)
