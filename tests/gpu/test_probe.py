"""The probe as a program: what it needs of an image, its words, what it says where there is no GPU, and, where a CUDA toolkit is found, all libraries of it opened and a kernel compiled.
Steps on a device are tested with the fake libraries of tests/gpu/fake."""
import json, os, re, shutil, struct, subprocess, sys, tempfile
from pathlib import Path

PROBE = os.environ["PROBE"]
MARK = "varve-gpu-probe: "
STEPS = "driver libraries compile device memory kernel gemm convolution fft solve sparse random nccl".split()


def expect(condition, *what):
    if not condition:
        sys.exit(" ".join(str(one) for one in what))


def run(*words, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in ("LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX")}
    return subprocess.run([PROBE, *map(str, words)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300, env={**clean, **environment})


def objects(done):
    """The marked lines; there must be no others on the standard output."""
    lines = [line for line in done.stdout.splitlines() if line]
    expect(all(line.startswith(MARK) for line in lines), "the standard output holds more than the probe's words:", done.stdout)
    return [json.loads(line[len(MARK):]) for line in lines]


def result(done):
    last = objects(done)[-1]
    expect(done.returncode == {"ok": 0, "failed": 1, "skipped": 77}[last["result"]], done.returncode, last)
    return last


def check_needs(sanitized):
    """glibc only, and none newer than Ubuntu 22.04 has; nothing of its own that the libraries of an image could pick up."""
    if sanitized:
        print("left out: what a program with sanitizers needs", flush=True)
        return
    if not shutil.which("readelf"):
        print("left out: no readelf to say what the program needs", flush=True)
        return
    needed = re.findall(r"NEEDED.*\[(.*)\]", subprocess.run(["readelf", "-dW", PROBE], stdout=subprocess.PIPE, text=True, check=True).stdout)
    expect(needed and set(needed) <= {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, "needs", needed)
    versions = re.findall(r"Name: (\S+)", subprocess.run(["readelf", "-VW", PROBE], stdout=subprocess.PIPE, text=True, check=True).stdout)
    glibc = [tuple(map(int, name[6:].split("."))) for name in versions if re.fullmatch(r"GLIBC_[0-9.]+", name)]
    expect(glibc and all(name.startswith("GLIBC_") for name in versions), versions)
    symbols = subprocess.run(["readelf", "--dyn-syms", "-W", PROBE], stdout=subprocess.PIPE, text=True, check=True).stdout
    newest = max(glibc)
    expect(newest <= (2, 34), f"needs GLIBC_{newest[0]}.{newest[1]}:", [line.split()[7] for line in symbols.splitlines() if f"GLIBC_{newest[0]}.{newest[1]}" in line])
    exported = [line.split()[7] for line in symbols.splitlines()[3:] if len(line.split()) > 7 and line.split()[6] != "UND"]
    expect(all("@" in name for name in exported), "exports", exported)  # with @: copies of the C library's own variables
    print(f"needs: {' '.join(needed)}, GLIBC_{newest[0]}.{newest[1]} at most", flush=True)


def check_words():
    done = run("--help")
    expect(done.returncode == 0 and all(re.search(rf"^  {step} ", done.stdout, re.M) for step in STEPS) and "Examples:" in done.stdout, done.stdout)
    for words in ((), ("nonsense",), ("gemm", "--size", "0"), ("gemm", "--device", "-1"), ("gemm", "--wrong"), ("gemm", "fft")):
        done = run(*words)
        expect(done.returncode == 2 and done.stdout == "" and done.stderr, words, done)
    done = run("nonsense")
    expect("there is no step nonsense" in done.stderr, done.stderr)


def check_without_driver():
    if os.path.exists("/dev/nvidiactl"):
        print("left out: what it says without a GPU, as there is one", flush=True)
        return
    for step in STEPS:
        if step in ("libraries", "compile"):
            continue
        done = run(step, "--library-dir", "/nowhere")
        said = objects(done)
        expect(said[0] == {"doing": "opening libcuda.so.1"}, said)
        expect(result(done)["result"] == "skipped" and result(done)["detail"].startswith("no driver: libcuda.so.1"), step, said)
    with tempfile.TemporaryDirectory() as folder:
        # A mount point that a GPU session left in the image; something that is no library; a library that is another.
        driver = Path(folder) / "libcuda.so.1"
        driver.touch()
        last = result(run("driver", LD_LIBRARY_PATH=folder))
        expect(last["result"] == "skipped" and "file too short" in last["detail"], last)
        driver.write_text("no library" * 100)
        last = result(run("driver", LD_LIBRARY_PATH=folder))
        expect(last["result"] == "failed" and "invalid ELF header" in last["detail"], last)
        for candidate in ("/lib/x86_64-linux-gnu/libm.so.6", "/lib/aarch64-linux-gnu/libm.so.6", "/lib64/libm.so.6"):
            if os.path.exists(candidate):
                shutil.copy(os.path.realpath(candidate), driver)
                last = result(run("driver", LD_LIBRARY_PATH=folder))
                expect(last["result"] == "failed" and str(driver) in last["detail"] and "cuInit" in last["detail"], last)
                break
    print("no driver: every step says so", flush=True)


def check_libraries():
    """In a folder where nothing of CUDA is, then with files that have names of CUDA's and are none of it."""
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "nvidia/cublas/lib"
        site.mkdir(parents=True)
        (site / "libcublas.so.12").write_text("torn" * 100)
        (site / "libnvblas.so.12").write_text("torn" * 100)
        (site / "libcufft.so.11").touch()          # as a mount point: not there
        (site / "libcurand.so.10").symlink_to("gone")
        done = run("libraries", "--library-dir", folder)
        last = result(done)
        expect(last["result"] == "failed" and f"{site}/libcublas.so.12: invalid ELF header" in last["detail"], last)
        expect("libcufft" not in last["detail"] and "libcurand" not in last["detail"], last)
        expect(any("libnvblas" in warning for warning in last["warnings"]), last)
        expect({"doing": f"opening {site}/libcublas.so.12"} in objects(done), "it does not say what it opens")


def library(path, code, *options):
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-Wl,-soname," + path.name, *options], input=code, text=True, check=True)


def check_toolkits():
    """Two toolkits in one image: each library gets its own toolkit's others, not those that happen to be open. And libraries that end the process that opens them."""
    if not shutil.which("gcc"):
        print("left out: several toolkits, as there is no gcc to make them", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        sites = []
        for number in (1, 2):
            site = Path(folder) / f"site{number}"
            library(site / "nvidia/cublas/lib/libcublas.so.12", f"int only_in_{number}(void) {{ return {number}; }}")
            library(site / "nvidia/cusolver/lib/libcusolver.so.11", f"int only_in_{number}(void); int solve(void) {{ return only_in_{number}(); }}", "-L" + str(site / "nvidia/cublas/lib"), "-l:libcublas.so.12")
            sites += ["--library-dir", site]
        opened = lambda last: sorted(name[8:].removeprefix(folder) for name in last["facts"] if name.startswith("open_ms." + folder))
        paths = [f"/site{number}/nvidia/{one}" for number in (1, 2) for one in ("cublas/lib/libcublas.so.12", "cusolver/lib/libcusolver.so.11")]
        last = result(run("libraries", *sites))
        expect(last["result"] == "ok" and opened(last) == paths, last)
        library(Path(folder) / "site1/nvidia/cufft/lib/libcufft.so.11", "#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { abort(); }")
        library(Path(folder) / "site1/nvidia/curand/lib/libcurand.so.10", "#include <stdlib.h>\n__attribute__((constructor)) static void end(void) { _Exit(7); }")
        done = run("libraries", *sites)
        last = result(done)
        expect(last["result"] == "failed" and f"{folder}/site1/nvidia/cufft/lib/libcufft.so.11: ended its process with signal 6" in last["detail"], last)
        expect(f"{folder}/site1/nvidia/curand/lib/libcurand.so.10: ended its process with status 7" in last["detail"] and opened(last) == paths, last)
    print("toolkits: two in one image do not mix; libraries that end their process are named", flush=True)


def check_toolkit():
    toolkit = next((folder for folder in ("/usr/local/cuda/lib64", "/usr/local/cuda/lib") if any(Path(folder).glob("libnvrtc.so.*"))), None)
    if not toolkit:
        print("left out: opening libraries and compiling, as there is no CUDA toolkit here", flush=True)
        return
    last = result(run("compile", "--library-dir", "/nowhere", LD_LIBRARY_PATH=toolkit))
    expect(last["result"] == "ok" and "cubin for sm_" in last["detail"], last)
    expect({metric["name"]: metric["kind"] for metric in last["metrics"]} == dict.fromkeys(("compile.open", "compile.ptx", "compile.cubin"), "first"), last)
    expect(any(name.startswith("lib.libnvrtc.so.") and value.startswith(("/usr/local/cuda", toolkit)) for name, value in last["facts"].items()), last)
    print("toolkit:", last["detail"], flush=True)
    last = result(run("libraries", LD_LIBRARY_PATH=toolkit))
    expect(last["result"] == "ok" and [metric["name"] for metric in last["metrics"]] == ["libraries.open"], last)
    opened = [name for name in last["facts"] if name.startswith("open_ms.")]
    expect(last["detail"].startswith(f"{len(opened)} CUDA libraries open"), last)
    there = {os.path.realpath(path) for path in Path(toolkit).iterdir() if re.match(r"lib(cublas|cufft|curand|nvrtc|cudart|cudnn|nccl)\b.*\.so", path.name)}
    expect(there <= {os.path.realpath(name[8:]) for name in opened}, there)
    print("toolkit:", last["detail"], flush=True)


def main():
    check_needs("--sanitized" in sys.argv)
    check_words()
    check_without_driver()
    check_libraries()
    check_toolkits()
    check_toolkit()
    print("ok")


if __name__ == "__main__":
    main()
