#!/usr/bin/env python3
"""varve-gpu-probe against the fake GPU: every step, and every way in which a GPU, a driver or a library can be broken."""
import os, re, signal, subprocess, tempfile
from concurrent import futures

from fake_gpu import FAKES, PROBE, Gpu, Said, alone, make_folder, program
from tiny_image import expect

STEPS = ("driver", "libraries", "compile", "device", "memory", "kernel", "gemm", "convolution", "fft", "solve", "sparse", "random", "nccl")

# What each step must not do without: the library, a function of it, an error code of it and what that code is called.
NEEDED = {
    "driver": ("libcuda.so.1", "cuDeviceGetName", 999, "CUDA_ERROR_UNKNOWN"),
    "compile": ("libnvrtc.so.12", "nvrtcCompileProgram", 6, "NVRTC_ERROR_COMPILATION"),
    "memory": ("libcuda.so.1", "cuMemcpyDtoD_v2", 700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    "kernel": ("libcuda.so.1", "cuLaunchKernel", 719, "CUDA_ERROR_LAUNCH_FAILED"),
    "gemm": ("libcublas.so.12", "cublasSgemm_v2", 14, "CUBLAS_STATUS_INTERNAL_ERROR"),
    "convolution": ("libcudnn.so.9", "cudnnConvolutionForward", 5000, "CUDNN_STATUS_EXECUTION_FAILED"),
    "fft": ("libcufft.so.11", "cufftExecC2C", 6, "execution failed"),
    "solve": ("libcusolver.so.11", "cusolverDnSgetrf", 6, "execution failed"),
    "sparse": ("libcusparse.so.12", "cusparseSpMV", 6, "CUSPARSE_STATUS_EXECUTION_FAILED"),
    "random": ("libcurand.so.10", "curandGenerateUniform", 201, "launch failure"),
    "nccl": ("libnccl.so.2", "ncclAllReduce", 2, "unhandled system error"),
}

# Whose failure need not fail a step: what is given back at the end, and what only says more.
MAY_FAIL = re.compile(r"cuMemFree|cuModuleUnload|cuStreamDestroy|cuDevicePrimaryCtxRelease|.*Destroy|nvml|.*Version|cudnnSetConvolutionMathType|ncclCommGetAsyncError")


def check_good(gpu):
    """Everything works on one device: results are right, files are named, something is timed."""
    for step in STEPS:
        said = gpu.probe(step)
        expect(said.result == "ok" and said.status == 0 and len(said.results) == 1, f"{step}: {said}")
        expect(said.detail and not said.warnings and not said.throttled, f"{step}: {said}")
        expect(step == "device" or said.metrics, f"{step} times nothing: {said}")
        expect(all(0 < metric["seconds"] < 60 and metric["kind"] in ("first", "steady") for metric in said.metrics.values()), f"{step}: {said}")
        if step in NEEDED and step != "compile":
            expect(any(path.startswith(str(FAKES)) for name, path in said.facts.items() if name.startswith("lib.")), f"{step} says where its library lies: {said.facts}")
    said = gpu.probe("nccl", "devices=3")
    expect(said.result == "ok" and "7 sets" in said.detail, f"every set of three devices: {said}")
    expect(gpu.probe("gemm", "devices=2", "--device", "1").result == "ok", "another device")
    facts = gpu.probe("driver", "product=NVIDIA T4,driver=570.1,devices=2,sm=75").facts
    expect(facts["gpu"] == "NVIDIA T4" and facts["driver"] == "570.1" and facts["devices"] == "2" and "7.5" in facts["device.1"], f"who the devices are: {facts}")


def check_no_gpu(work):
    for gpu, behaviour, words in ((Gpu(driver=None), "", "libcuda.so.1"), (Gpu(), "devices=0", "CUDA_ERROR_NO_DEVICE")):
        for step in ("driver", "memory", "gemm", "nccl"):
            said = gpu.probe(step, behaviour)
            expect(said.result == "skipped" and said.status == 77 and words in said.detail, f"{step} without a GPU: {said}")
    # Zero bytes where a driver was mounted once, as images that ran with a GPU have them.
    left = work / "leftover"
    left.mkdir()
    (left / "libcuda.so.1").touch()
    expect(Gpu(driver=left).probe("driver").status == 77, "a mount point that was left over is no driver")
    said = Gpu().probe("driver", "fail=cuInit:803")
    expect(said.result == "failed" and said.status == 1 and "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in said.detail, f"a driver that does not fit is a failure: {said}")
    # A device of an older generation than the kernels are for, and no such device.
    expect(Gpu().probe("kernel", "sm=52").result == "failed", "kernels that the device cannot run")
    expect(Gpu().probe("gemm", "", "--device", "1").result == "failed", "a device that is not there")


def check_missing(work):
    for step, (library, symbol, _, _) in NEEDED.items():
        part = "driver" if library == "libcuda.so.1" else "toolkit"
        folder = make_folder(work / f"{step}-symbol", part, symbols=[(library, symbol)])
        gpu = Gpu(**{part: folder})
        said = gpu.probe(step)
        expect(said.result == "failed" and said.status == 1 and symbol in said.detail and str(folder / library) in said.detail, f"{step} without {symbol}: {said}")
        if part == "toolkit":
            said = Gpu(toolkit=make_folder(work / f"{step}-library", part, missing=[library])).probe(step)
            expect(said.result == "skipped" and said.status == 77 and library in said.detail, f"{step} without {library}: {said}")
            (folder / library).write_bytes(b"\x7fELF of no kind at all" * 100)
            said = gpu.probe(step)
            expect(said.result == "failed" and library in said.detail, f"{step} with a broken {library}: {said}")
    expect(Gpu(toolkit=None).probe("libraries").status == 77, "an image without CUDA has nothing to open")
    folder = make_folder(work / "broken", "toolkit")
    (folder / "libcufft.so.11").write_bytes(b"not ELF" * 1000)
    said = Gpu(toolkit=folder).probe("libraries")
    expect(said.result == "failed" and str(folder / "libcufft.so.11") in said.detail, f"one library that is none: {said}")
    # The loader itself does not survive a file that is cut off; where it fell is known.
    (folder / "libcufft.so.11").write_bytes((FAKES / "toolkit/libcufft.so.11").read_bytes()[:5000])
    said = Gpu(toolkit=folder).probe("libraries")
    expect(said.result != "ok" and said.status != 0 and "libcufft.so.11" in (said.detail or said.doing[-1]), f"one library that is cut off: {said}")


def check_wheels(work):
    """As torch's wheels have them: in a folder that no loader looks through, where libraries open each other by name in the middle of their work."""
    for step, library in (("compile", "libnvrtc-builtins.so.12.8"), ("convolution", "libcublasLt.so.12"), ("gemm", "")):
        wheels = work / f"wheels-{step}"
        lib = make_folder(wheels / "nvidia/cu12/lib", "toolkit")
        said = Gpu(toolkit=None).probe(step, "", "--library-dir", str(wheels))
        expect(said.result == "ok" and said.status == 0, f"{step} in wheels: {said}")
        if library:
            (lib / library).unlink()
            said = Gpu(toolkit=None).probe(step, "", "--library-dir", str(wheels))
            expect(said.result != "ok" and said.status != 0, f"{step} without {library}, which it needs: {said}")


def check_errors():
    for step, (library, call, code, name) in NEEDED.items():
        said = Gpu().probe(step, f"fail={call}:{code}")
        expect(said.result == "failed" and said.status == 1 and call in said.detail and name in said.detail, f"{step}: {call} returns {code}: {said}")


def check_every_call(work):
    """Whatever a step calls, it looks at the answer."""
    for step in STEPS:
        log = work / f"{step}.calls"
        Gpu().probe(step, f"devices=2,log={log}")
        calls = sorted(set(log.read_text().split())) if log.exists() else []
        expect(calls or step == "libraries", f"{step} calls nothing")
        for call in [call for call in calls if not MAY_FAIL.match(call)]:
            said = Gpu().probe(step, f"devices=2,fail={call}:1")
            # Without a device that works the compiler is tried alone, and that is said.
            noticed = said.result in ("failed", "skipped") and said.status in (1, 77) or step == "compile" and call in said.facts.get("compile.device", "")
            expect(noticed, f"{step} does not notice that {call} failed: {said}")


def check_wrong():
    for step, what in (("memory", "copy"), ("kernel", "kernel"), ("gemm", "gemm"), ("convolution", "convolution"), ("fft", "fft"), ("solve", "solve"),
                       ("solve", "factor"), ("sparse", "sparse"), ("random", "random"), ("nccl", "nccl")):
        for mode in ("", ":nan", ":zero", ":idle", ":late"):
            said = Gpu().probe(step, f"devices=2,wrong={what}{mode}")
            expect(said.result == "failed" and said.status == 1 and said.detail, f"{step} passes with wrong results ({what}{mode}): {said}")
    for mode in ("", ":idle"):
        expect(Gpu().probe("compile", f"wrong=compile{mode}").result == "failed", f"compile{mode}: no machine code is no success")


def ended(step, behaviour, timeout):
    """As Gpu.probe, of a process that is killed when the time is up."""
    try:
        return Gpu().probe(step, behaviour, timeout=timeout)
    except subprocess.TimeoutExpired as late:
        return Said(subprocess.CompletedProcess(late.cmd, -9, late.stdout or b"", late.stderr or b""))


def check_hangs_and_crashes():
    cases = [("driver", "cuInit", "cuInit"), ("gemm", "cublasSgemm_v2", "gemm"), ("gemm", "cublasCreate_v2", "create"), ("nccl", "ncclCommInitAll", "ncclCommInitAll"),
             ("kernel", "cuModuleLoadDataEx", "kernel.load"), ("device", "nvmlInit_v2", "nvmlInit_v2")]
    with futures.ThreadPoolExecutor(len(cases)) as pool:  # they only wait
        hanging = pool.map(lambda case: ended(case[0], f"hang={case[1]}", 4), cases)
    for (step, call, words), said in zip(cases, hanging):
        expect(said.status == -9 and not said.results and said.doing and words in said.doing[-1], f"{step} hangs in {call}, and says where: {said}")
    for step, call, words in cases:
        said = ended(step, f"crash={call}", 60)
        expect(said.status == -11 and not said.results and said.doing and words in said.doing[-1], f"{step} crashes in {call}, and said where: {said}")
    said = ended("gemm", "exit=cublasSgemm_v2:0", 60)
    expect(said.status == 0 and not said.results, f"a library that ends the process: {said}")


def check_condition():
    said = Gpu().probe("gemm", "throttle=0x20")
    expect(said.result == "ok" and said.throttled and any("thermal" in warning for warning in said.warnings), f"heat: {said}")
    expect(not Gpu().probe("gemm", "throttle=0x5").throttled, "idle, and at the limit of power: as it is meant to be")
    said = Gpu().probe("gemm", "xid=79")
    expect(said.result == "failed" and said.detail.startswith("device 0: the driver reported Xid 79") and "for the rest: sgemm" in said.detail, f"an Xid while it computes: {said}")
    said = Gpu().probe("gemm", "xid=79,wrong=gemm")
    expect(said.result == "failed" and said.detail.startswith("cublasSgemm_v2") and said.detail.endswith("Xid 79 during this step"), f"a wrong result and an Xid: {said}")
    said = Gpu().probe("gemm", "xid=45")
    expect(said.result == "ok" and any("Xid 45" in warning for warning in said.warnings), f"an Xid that tells of another process: {said}")
    for behaviour, words in (("ecc=3", "3 uncorrected"), ("remap=failed", "replaced")):
        said = Gpu().probe("device", behaviour)
        expect(said.result == "failed" and said.detail.startswith("device 0: ") and words in said.detail, f"{behaviour}: {said}")
    said = Gpu().probe("device", "remap=pending")
    expect(said.result == "ok" and any("reset" in warning for warning in said.warnings), f"a row that waits: {said}")
    said = Gpu().probe("device", "devices=2,sick=1,ecc=5,throttle=0x40,xid=31")
    expect(said.result == "failed" and said.detail.startswith("device 1: 5 uncorrected") and "device 1: the driver reported Xid 31" in said.detail and "device 0" not in said.detail and
           len(said.warnings) == 1 and said.warnings[0].startswith("device 1: clocks") and said.throttled, f"the second of two devices is ill: {said}")
    said = Gpu().probe("gemm", "devices=2,sick=1,throttle=0x40,xid=31")
    expect(said.result == "ok" and not said.throttled and not said.warnings, f"another device than the one that computes is ill: {said}")
    said = Gpu().probe("gemm", "fail=nvmlInit_v2:9")
    expect(said.result == "ok" and not said.warnings, f"NVML is not needed to compute: {said}")
    slow, quick = Gpu().probe("gemm", "slow=cublasSgemm_v2:0.2"), Gpu().probe("gemm")
    first = Gpu().probe("gemm", "first=cublasSgemm_v2:0.5")
    steady = [name for name, metric in quick.metrics.items() if metric["kind"] == "steady"]
    expect(steady and all(slow.metrics[name]["seconds"] > 0.19 > 2 * first.metrics[name]["seconds"] for name in steady), f"steady calls are timed: {slow.metrics} {first.metrics}")
    firsts = [name for name, metric in quick.metrics.items() if metric["kind"] == "first"]
    expect(any(first.metrics[name]["seconds"] > 0.49 > quick.metrics[name]["seconds"] for name in firsts), f"the first call is timed: {first.metrics} {quick.metrics}")


def check_chatter():
    """What libraries print cannot be mistaken for the probe's words."""
    for kind in ("line", "mark", "garbage", "huge"):
        for behaviour in (f"print=cublasSgemm_v2:{kind}", f"print=cublasSgemm_v2:{kind},fail=cublasSgemm_v2:14"):
            said = Gpu().probe("gemm", behaviour)
            wanted = "failed" if "fail" in behaviour else "ok"
            expect(len(said.results) == 1 and said.result == wanted and len(said.out) < 1 << 20, f"{behaviour}: {said}")
    with tempfile.TemporaryFile() as errors:
        orphaned = Gpu().environment("orphan=cublasSgemm_v2")
        child = subprocess.Popen([PROBE, "gemm", "--size", "32"], stdout=subprocess.PIPE, stderr=errors, env=orphaned, start_new_session=True)
        try:
            expect(child.wait(60) == 0, "an orphan does not keep the probe")
            said = child.stdout.read1(1 << 20)
            expect(b'"result":"ok"' in said, f"what was said is there though an orphan lives: {said}")
        finally:
            os.killpg(child.pid, signal.SIGKILL)


def check_usage():
    for words in ([], ["frobnicate"], ["gemm", "--size", "-1"], ["gemm", "--size", "0"], ["gemm", "--device", "x"]):
        done = subprocess.run([PROBE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        expect(done.returncode == 2 and done.stderr, f"{words}: wrong usage: {done}")
    done = subprocess.run([PROBE, "--help"], stdout=subprocess.PIPE)
    expect(done.returncode == 0 and all(step.encode() in done.stdout for step in STEPS), "--help names the steps")


def main():
    alone()
    with program.work_folder() as work:
        check_usage()
        check_good(Gpu())
        check_no_gpu(work)
        check_missing(work)
        check_wheels(work)
        check_errors()
        check_wrong()
        check_hangs_and_crashes()
        check_condition()
        check_chatter()
        check_every_call(work)
    print("every step works, and notices what is broken")


if __name__ == "__main__":
    main()
