"""The kernels' PTX and their .cu counterparts: one table of cases, one shape, code that every compiler at hand accepts; run as nvcc compiles them where there is a device.
Without ptxas or nvcc, what needs them is left out with a line."""
import os, re, shutil, subprocess, sys, tempfile
from pathlib import Path

KERNELS = Path(__file__).resolve().parents[2] / "gpu/probe/kernels"
NAMES = ("axpy", "sum")


def expect(condition, *what):
    if not condition:
        sys.exit(" ".join(str(one) for one in what))


def scrambled(seed, i):
    word = (i * 2654435761 + seed * 40503 + 1) & 0xffffffff
    for _ in range(2):
        word = ((word ^ (word >> 16)) * 73244475) & 0xffffffff
    return word ^ (word >> 16)


def rows(text, table):
    body = re.search(table + r"\[\] = \{\n(.*?)\n\};", text, re.S).group(1)
    return [[int(number) for number in re.findall(r"-?\d+", row)] for row in re.findall(r"\{(.*?)\}", body)]


def check_table():
    text = (KERNELS / "cases.h").read_text()
    for count, _, seed, a, total in rows(text, "kAxpyCases"):
        value = lambda i: scrambled(seed, i) % 2001 - 1000
        expect(total == sum(a * value(2 * i) + value(2 * i + 1) for i in range(count)), "axpy of", count, "has another total than the table says")
    for count, blocks, threads, seed, total in rows(text, "kSumCases"):
        expect(1 <= threads <= 1024 and blocks >= 1, "no such launch")
        expect(total == sum(scrambled(seed, i) for i in range(count)), "sum of", count, "has another total than the table says")
    print(f"table: {len(rows(text, 'kAxpyCases'))} cases of axpy and {len(rows(text, 'kSumCases'))} of sum have their totals", flush=True)


def shape(ptx):
    """{entry: [type of each parameter]}"""
    text = re.sub(r"//[^\n]*", "", ptx)
    return {entry: re.findall(r"\.param\s+\.(\w+)", parameters) for entry, parameters in re.findall(r"\.visible\s+\.entry\s+(\w+)\s*\((.*?)\)", text, re.S)}


def run(*words):
    return subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def check_ptx(nvcc, ptxas, work):
    known = run(nvcc, "--list-gpu-code").stdout.split()
    expect(known and all(re.fullmatch(r"sm_\w+", one) for one in known), "nvcc --list-gpu-code says", known)
    for name in NAMES:
        for architecture in known:
            done = run(ptxas, "-arch=" + architecture, KERNELS / (name + ".ptx"), "-o", work / "code")
            expect(done.returncode == 0 and done.stdout == "", f"{name}.ptx for {architecture}:", done.stdout)
            expect((work / "code").read_bytes()[:4] == b"\x7fELF", "no cubin")
        broken = work / "broken.ptx"
        broken.write_text((KERNELS / (name + ".ptx")).read_text().replace("mov.u32 %thread, %tid.x;", "mov.u32 %thread, %nowhere;"))
        expect(run(ptxas, "-arch=" + known[0], broken, "-o", work / "code").returncode != 0, "ptxas accepts what is broken")
    print(f"ptxas: accepts the PTX for {' '.join(known)}", flush=True)


def check_counterparts(nvcc, work):
    for name in NAMES:
        done = run(nvcc, "-ptx", "-std=c++17", KERNELS / (name + ".cu"), "-o", work / "compiled.ptx")
        expect(done.returncode == 0, done.stdout)
        ours, compiled = shape((KERNELS / (name + ".ptx")).read_text()), shape((work / "compiled.ptx").read_text())
        expect(list(ours) == [name] and ours == compiled, name, ours, compiled)
    print("counterparts: the .cu compile to the same entries with the same parameters", flush=True)


def run_counterparts(nvcc, work):
    done = run(nvcc, "-std=c++17", "-Wno-deprecated-gpu-targets", KERNELS / "kernel_cases.cu", "-o", work / "cases")
    expect(done.returncode == 0, done.stdout)
    done = run(work / "cases")
    expect(done.returncode in (0, 77), done.stdout)
    print("counterparts:", done.stdout.strip(), flush=True)


def main():
    check_table()
    nvcc = os.environ["NVCC"] if "NVCC" in os.environ else shutil.which("nvcc")
    if not nvcc:
        print("skipped: no nvcc, so neither PTX nor .cu is compiled")
        sys.exit(77)
    ptxas = shutil.which("ptxas", path=str(Path(os.path.realpath(nvcc)).parent) + os.pathsep + os.environ.get("PATH", ""))
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if ptxas:
            check_ptx(nvcc, ptxas, work)
        else:
            print("skipped: no ptxas beside nvcc", flush=True)
        check_counterparts(nvcc, work)
        run_counterparts(nvcc, work)
    print("ok")


if __name__ == "__main__":
    main()
