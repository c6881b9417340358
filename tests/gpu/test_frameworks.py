#!/usr/bin/env python3
"""The scripts of the framework steps on stand-ins for torch, tensorflow, jax, cupy and pycuda: what is good passes, and each way to be broken is named."""
import importlib.util, re, subprocess, sys

from fake_gpu import PYTHON, ROOT, Gpu, Said, program
from tiny_image import expect

ON_CPU = "torch", "tensorflow", "jax"  # those that can compute there without a word
SIZES = "SAMPLES, FEATURES, HIDDEN, OUTPUTS, RATE = 48, 24, 32, 16, 0.5"


def script(step):
    """As the check hands it to Python, with smaller matrices: what is tested here is the judgement."""
    text = (ROOT / "gpu/frameworks/prelude.py").read_text() + (ROOT / f"gpu/frameworks/{step}.py").read_text()
    smaller, changed = re.subn(r"^SAMPLES, FEATURES, HIDDEN, OUTPUTS, RATE = .*$", SIZES, text, flags=re.MULTILINE)
    expect(changed == 1, "the prelude's sizes are where they were")
    return smaller


def run(step, behaviour="", modules=True, timeout=60):
    environment = {**Gpu().environment(behaviour), "PYTHONPATH": str(PYTHON) if modules else ""}
    command = ["/usr/bin/python3", "-c", script(step)]
    return Said(subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, timeout=timeout))


def check(step):
    said = run(step)
    expect(said.result == "ok" and said.status == 0 and not said.warnings and "1 GPU" in said.detail, f"{step}: {said}")
    kinds = {(name, metric["kind"]) for name, metric in said.metrics.items()}
    expect((f"import.{step}", "first") in kinds and any(kind == "steady" for _, kind in kinds), f"{step} is timed: {said}")
    expect("2 GPUs" in run(step, "devices=2").detail, f"{step} says how many there are")

    for behaviour, words in (("python=no_gpu", "lists no GPU"), ("python=import_error", "libcudart.so.12"), ("python=wrong", "the first"),
                             ("python=late", "the last"), ("python=nan", "nan")):
        said = run(step, behaviour)
        expect(said.result == "failed" and said.status == 1 and words in said.detail, f"{step} {behaviour}: {said}")
    if step != "pycuda":  # it has no loss
        said = run(step, "python=nan_loss")
        expect(said.result == "failed" and said.status == 1, f"{step} passes though its loss is no number: {said}")
    if step in ON_CPU:
        said = run(step, "python=cpu")
        expect(said.result == "failed" and "GPU" in said.detail, f"{step} passes on the CPU: {said}")
    if step in ("torch", "tensorflow"):
        said = run(step, "python=no_cuda,devices=0")
        expect(said.result == "failed" and "without CUDA" in said.detail, f"{step} built for CPUs: {said}")

    said = run(step, "python=crash")
    expect(said.status == -6 and not said.results and said.doing[-1] == f"import {step}", f"{step} crashes: {said}")
    said = run(step, "python=forge,python=import_error")
    expect(len(said.results) == 1 and said.result == "failed", f"{step}: what a module prints is no answer: {said}")
    said = run(step, modules=False)
    expect(said.result == "skipped" and said.status == 77 and step in said.detail, f"{step} is not installed: {said}")


def main():
    if not importlib.util.find_spec("numpy"):
        program.skip("python3-numpy is not installed")
    for step in ("torch", "tensorflow", "jax", "cupy", "pycuda"):
        installed = importlib.util.find_spec(step)
        if installed:
            print(f"skipped: this machine has a {step} of its own ({installed.origin})", flush=True)
            continue
        check(step)
        print(f"{step}: judged right", flush=True)


if __name__ == "__main__":
    sys.exit(main())
