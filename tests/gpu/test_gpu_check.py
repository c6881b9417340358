#!/usr/bin/env python3
"""`varve gpu-check` from end to end on the fake GPU: on this machine, in sessions on a lazily mounted image and on an unpacked tree. As root."""
import contextlib, json, os, shutil, signal, sqlite3, subprocess, time, uuid
from pathlib import Path
from xml.etree import ElementTree

from fake_gpu import FAKES, PROBE, PYTHON, SIZES, Gpu, alone, libraries, program
from tiny_image import expect, make_image, needed_files

CDI = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits: {{deviceNodes: [{{path: /dev/nvidia0, hostPath: /dev/full}}]}}
containerEdits:
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
    args: [nvidia-cdi-hook, update-ldcache, --folder, /usr/lib/driver]
  mounts:
  - {{hostPath: {driver}/libcuda.so.1, containerPath: /usr/lib/driver/libcuda.so.1, options: [ro, nosuid, nodev, bind]}}
  - {{hostPath: {driver}/libnvidia-ml.so.1, containerPath: /usr/lib/driver/libnvidia-ml.so.1, options: [ro, nosuid, nodev, bind]}}
  - {{hostPath: {shared}, containerPath: /shared, options: [rw, nosuid, nodev, bind]}}
"""


class Check:
    """A run of the command and what came of it."""

    def __init__(self, done, seconds):
        self.status, self.err, self.seconds = done.returncode, done.stderr.decode(errors="replace"), seconds
        self.out = done.stdout.decode(errors="replace")
        self.document = json.loads(self.out) if self.out.startswith("{") else {}
        self.checks = {(check["name"], check["cold"]): check for check in self.document.get("checks", [])}

    def __getitem__(self, step):
        return self.checks[(step, False)]

    def __repr__(self):
        return f"status {self.status}\n{self.out[-5000:]}\n{self.err[-2000:]}"


class Place:
    """Where the steps run: `words` say it, `environment` reaches them."""

    def __init__(self, varve, *words, sessions=False):
        self.varve, self.words, self.sessions = varve, words, sessions

    def command(self, behaviour, steps, words):
        sizes = [word for step in steps if step in SIZES for word in ("--size", f"{step}={SIZES[step]}")]
        only = [word for step in steps for word in ("--only", step)]
        env = ["--env", f"VARVE_FAKE_GPU={behaviour}"] if self.sessions else []
        repetitions = [] if "--repetitions" in words else ["--repetitions", "2"]
        return [self.varve.binary, "gpu-check", *repetitions, *sizes, *only, *env, *map(str, words), *map(str, self.words)]

    def environment(self, behaviour, gpu):
        if self.sessions:
            return self.varve.environment
        path = "/usr/bin:" + os.environ.get("PATH", "")  # Debian's python3, which has its NumPy
        return {**gpu.environment(behaviour), "PATH": path, "PYTHONPATH": str(PYTHON), "VARVE_ROOT": str(self.varve.root)}

    def check(self, steps, behaviour="", *words, gpu=None, timeout=120):
        start = time.monotonic()
        done = subprocess.run(self.command(behaviour, steps, ("--json", *words)), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=self.environment(behaviour, gpu or Gpu()), timeout=timeout)
        return Check(done, time.monotonic() - start)


def with_token(token):
    """Processes that were started with this text in their environment and are still there."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and token.encode() in (folder / "environ").read_bytes() and program.is_running(int(folder.name)):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def expect_gone(token, what):
    for _ in range(200):
        if not with_token(token):
            return
        time.sleep(0.05)
    left = with_token(token)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    raise AssertionError(f"{what}: still running: {left}")


def check_good(place, work, steps):
    done = place.check(steps, "", "--junit", work / "good.xml")
    expect(done.status == 0 and done.document["ok"] and not done.document["alarms"], f"all good: {done}")
    expect(set(done.checks) == {(step, False) for step in steps}, f"the steps that were asked for: {done.checks.keys()}")
    for step in steps:
        expect(done[step]["result"] == "ok" and not done[step]["retried"] and not done[step]["warnings"], f"{step}: {done[step]}")
        expect(step in ("driver", "device") or done[step]["processes"] == 2 and all(len(metric["samples"]) == 2 for metric in done[step]["metrics"]), f"{step}: {done[step]}")
    expect(done.document["gpu"] == "NVIDIA Fake 9000" and done.document["driver"] == "580.95.05", f"on what: {done}")
    suite = ElementTree.parse(work / "good.xml").getroot()
    expect([case.get("name") for case in suite.iter("testcase")] == list(steps) and suite.get("failures") == "0" and not list(suite.iter("failure")), "JUnit of what is good")


def check_broken(place, work):
    """A wrong result, said in all three ways: to people, as JSON, as JUnit. Tried twice, then a finding."""
    done = place.check(["driver", "gemm", "compile"], "wrong=gemm", "--junit", work / "bad.xml")
    expect(done.status == 3 and not done.document["ok"], f"a wrong product is a finding: {done}")
    gemm = done["gemm"]
    expect(gemm["result"] == "failed" and "cublasSgemm_v2" in gemm["detail"] and gemm["retried"] and gemm["processes"] == 2, f"it was tried again: {done}")
    expect(done["compile"]["result"] == "ok", f"the others run nevertheless: {done}")
    suite = ElementTree.parse(work / "bad.xml").getroot()
    failed = [case for case in suite.iter("testcase") if case.find("failure") is not None]
    expect(suite.get("failures") == "1" and [case.get("name") for case in failed] == ["gemm"], "JUnit of what is broken")
    told = failed[0].find("failure")
    expect("cublasSgemm_v2" in told.get("message", "") + (told.text or ""), "JUnit says what is wrong")
    plain = subprocess.run(place.command("wrong=gemm", ["gemm"], ()), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=place.environment("wrong=gemm", Gpu()))
    text = plain.stdout.decode()
    expect(plain.returncode == 3 and "FAILED" in text and "cublasSgemm_v2" in text, f"the table says what is wrong: {text}")


def check_once(place, shared, seen_as):
    """Trouble in one process only is no finding, but told."""
    for trouble, words in (("wrong=gemm", "is off by"), ("fail=cublasSgemm_v2:14", "CUBLAS_STATUS_INTERNAL_ERROR"), ("crash=cublasSgemm_v2", "SEGV"),
                           ("exit=cublasSgemm_v2:0", "no result")):
        mark = shared / "once"
        done = place.check(["gemm"], f"{trouble},once={seen_as}/once")
        expect(mark.exists(), f"{trouble} took place: {done}")
        mark.unlink()
        gemm = done["gemm"]
        expect(done.status == 0 and gemm["result"] == "ok" and gemm["retried"] and any(words in warning for warning in gemm["warnings"]), f"{trouble}, once: {done}")


def check_hang(place):
    token = f"xid=0,product={uuid.uuid4().hex}"
    done = place.check(["gemm", "compile"], f"hang=cublasSgemm_v2,{token}", "--limit", "3")
    expect(done.status == 3 and done["gemm"]["result"] == "failed" and done["compile"]["result"] == "ok", f"a hang is a finding, and the rest goes on: {done}")
    expect("gemm" in done["gemm"]["detail"] and "limit" in done["gemm"]["detail"] and done["gemm"]["processes"] == 2, f"where it hung is said: {done}")
    expect_gone(token, "what hung")
    # A child that keeps the output open for ever neither stops the check nor outlives it.
    token = f"xid=0,product={uuid.uuid4().hex}"
    done = place.check(["gemm"], f"orphan=cublasSgemm_v2,{token}", "--limit", "60")
    expect(done.status == 0 and done.seconds < 50, f"an orphan stops nobody: {done.seconds} s: {done}")
    expect_gone(token, "an orphan")


def check_chatter(place):
    for kind in ("mark", "garbage", "huge"):
        done = place.check(["gemm"], f"print=cublasSgemm_v2:{kind},fail=cublasSgemm_v2:14")
        expect(done.status == 3 and "CUBLAS_STATUS_INTERNAL_ERROR" in done["gemm"]["detail"], f"a library that prints ({kind}): {done}")


def check_condition(place):
    done = place.check(["gemm"], "throttle=0x20")
    expect(not done["gemm"]["metrics"] and any("held back" in warning for warning in done["gemm"]["warnings"]), f"times of a hot device do not count: {done}")
    expect(done.status == 0, f"a hot device is no finding: {done}")
    for behaviour, words in (("ecc=2", "2 uncorrected"), ("xid=79", "Xid 79"), ("remap=failed", "replaced")):
        done = place.check(["device"], behaviour)
        expect(done.status == 3 and done["device"]["result"] == "failed" and words in done["device"]["detail"], f"a device that is ill is a finding ({behaviour}): {done}")


def check_no_gpu(place, work):
    done = place.check(["driver", "gemm"], "devices=0")
    expect(done.status == 77 and done.err.count("\n") == 1 and "CUDA_ERROR_NO_DEVICE" in done.err, f"no device: {done}")
    done = place.check(["driver"], "devices=0", "--require", "driver")
    expect(done.status == 3 and "required" in done["driver"]["detail"], f"a GPU that somebody needs: {done}")
    done = place.check(["driver", "gemm"], "fail=cuInit:803")
    expect(done.status == 3 and "SYSTEM_DRIVER_MISMATCH" in done["driver"]["detail"] and done["gemm"]["result"] == "skipped", f"a driver that does not start: {done}")


def check_this_machine(varve, work):
    place = Place(varve)
    check_good(place, work, ["driver", "libraries", "compile", "device", "memory", "gemm", "convolution", "fft", "solve", "sparse", "random", "nccl"])
    check_broken(place, work)
    check_once(place, work, work)
    check_hang(place)
    check_chatter(place)
    check_condition(place)
    check_no_gpu(place, work)
    empty = work / "no-libraries"
    empty.mkdir()
    bare = Gpu(toolkit=empty)
    done = place.check(["driver", "gemm"], gpu=bare)
    expect(done.status == 0 and done["gemm"]["result"] == "skipped" and "libcublas" in done["gemm"]["detail"], f"no cuBLAS: {done}")
    done = place.check(["gemm"], "", "--require", "gemm", gpu=bare)
    expect(done.status == 3 and "required" in done["gemm"]["detail"], f"cuBLAS that somebody needs: {done}")
    done = place.check(["driver"], gpu=Gpu(driver=empty))
    expect(done.status == 77, f"no driver: {done}")
    check_two_at_once(place)
    check_frameworks(place)
    check_history(varve, work)


def check_two_at_once(place):
    """The second one gives way: both would measure each other."""
    token = f"xid=0,product={uuid.uuid4().hex}"
    first = subprocess.Popen(place.command(f"hang=cuInit,{token}", ["driver"], ("--limit", "20")), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                             env=place.environment(f"hang=cuInit,{token}", Gpu()))
    try:
        for _ in range(200):
            if len(with_token(token)) > 1:
                break
            time.sleep(0.05)
        expect(place.check(["driver"]).status == 75, "a second check gives way")
        first.send_signal(signal.SIGTERM)
        expect(first.wait(20) != 0, "a check that is told to end does")
    finally:
        first.kill()
        first.wait()
    expect_gone(token, "a check that was ended")


def check_frameworks(place):
    if subprocess.run(["/usr/bin/python3", "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode:
        print("skipped: torch, as python3-numpy is not installed", flush=True)
        return
    done = place.check(["torch"], "python=no_gpu", "--repetitions", "1")
    expect(done.status == 3 and "lists no GPU" in done["torch"]["detail"], f"torch without a GPU: {done}")
    done = place.check(["cupy", "jax"], "", "--repetitions", "1")
    expect(done.status == 0 and done["cupy"]["result"] == done["jax"]["result"] == "ok" and done["cupy"]["metrics"], f"frameworks: {done}")


def copy_into_the_past(history, to, hours, slow=()):
    """A history in which its one run was made in each of so many hours before this one; in the hours `slow` (back from now) gemm.steady took twice as long."""
    with contextlib.closing(sqlite3.connect(to)) as db, db:
        with contextlib.closing(sqlite3.connect(history)) as given:
            given.backup(db)
        db.execute("UPDATE gpu_run SET unix_seconds = unix_seconds - 3600")
        db.execute("UPDATE gpu_sample SET hour = hour - 1")
        db.execute("UPDATE gpu_hour SET hour = hour - 1")
        run, hour = db.execute("SELECT id, unix_seconds / 3600 FROM gpu_run").fetchone()
        for back in range(1, hours):
            db.execute("""INSERT INTO gpu_run (id, content_key, unix_seconds, gpu, driver, lineage, machine, image, forgotten)
                          SELECT id + ?, randomblob(32), unix_seconds - 3600 * ?, gpu, driver, lineage, machine, image, forgotten FROM gpu_run WHERE id = ?""", (back, back, run))
            factor = 1.15 + 0.01 * ((back * 5 + 3) % 21 - 10) / 10  # no two alike, and all slower than now: a busy machine must not look slow
            db.execute("""INSERT INTO gpu_sample (series_id, state, hour, run_id, number, seconds)
                          SELECT series_id, state, hour - ?, run_id + ?, number, seconds * ? FROM gpu_sample WHERE run_id = ?""", (back, back, factor, run))
            db.execute("""INSERT INTO gpu_hour (series_id, hour, samples, median, suspicious)
                          SELECT series_id, hour - ?, samples, median * ?, 0 FROM gpu_hour WHERE hour = ?""", (back, factor, hour))
        for back in slow:
            which = "series_id IN (SELECT id FROM gpu_series WHERE metric = 'gemm.steady') AND hour = ?"
            db.execute(f"UPDATE gpu_sample SET seconds = seconds * 2 WHERE {which}", (hour + 1 - back,))
            db.execute(f"UPDATE gpu_hour SET median = median * 2, suspicious = 1 WHERE {which}", (hour + 1 - back,))


def check_history(varve, work):
    """Runs are kept; a kernel that has become slower raises an alarm after two slow hours, and no sooner."""
    place, history, usual, slow = Place(varve), work / "history.db", "slow=cublasSgemm_v2:0.01", "slow=cublasSgemm_v2:0.02"

    def check(to, behaviour, *words):
        done = place.check(["gemm"], behaviour, "--repetitions", "5", "--history", to, *words)
        return done, {metric["name"]: metric for metric in done["gemm"]["metrics"]}.get("gemm.steady")

    done, first = check(history, usual)
    expect(done.status == 0 and first["state"] == "learning" and 0.01 <= first["median"] < 0.02, f"the first of all runs: {done}")
    cases = (("good", 60, (), usual, "good", 0), ("first", 60, (), slow, "suspicious", 0), ("second", 60, (1,), slow, "alarm", 3), ("late", 60, (1, 2), slow, "alarm", 3),
             ("young", 20, (1, 2), slow, "learning", 0), ("over", 60, (2,), usual, "good", 0))
    for name, hours, slow_hours, behaviour, state, status in cases:
        file = work / f"{name}.db"
        copy_into_the_past(history, file, hours, slow_hours)
        done, metric = check(file, behaviour, "--junit", work / f"{name}.xml")
        expect(done.status == status and metric["state"] == state, f"{name}: {metric}: {done}")
        alarms = done.document["alarms"]
        expect(len(alarms) == (status == 3) and all(alarm["metric"] == "gemm.steady" and alarm["evidence"] for alarm in alarms), f"{name}: {alarms}")
        expect(len(list(ElementTree.parse(work / f"{name}.xml").getroot().iter("failure"))) == len(alarms), f"{name}: an alarm is a failure in JUnit too")
        if state == "good":
            expect(metric["clean_hours"] >= 48 and 1.14 < metric["baseline"] / first["median"] < 1.16 and 0.01 <= metric["median"] < 1.05 * metric["baseline"], f"{name}: {metric}, the first: {first}")
        with contextlib.closing(sqlite3.connect(file)) as db:
            expect(db.execute("SELECT COUNT(*) FROM gpu_run").fetchone() == (hours + 1,), f"{name}: the run was added")
    # Somebody says that it stays so: no alarm any more, and who said it is kept.
    accepted = subprocess.run([varve.binary, "gpu-check", "--history", work / "late.db", "--accept", "gemm.steady", "--reason", "a new clock"], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=place.environment("", Gpu()))
    expect(accepted.returncode == 0, f"a change is accepted: {accepted}")
    done, metric = check(work / "late.db", slow)
    expect(done.status == 0 and metric["state"] == "learning", f"after it was accepted: {metric}: {done}")
    # The clocks were held back: such times are kept, and count for nothing.
    copy_into_the_past(history, work / "hot.db", 60, (1, 2))
    done, metric = check(work / "hot.db", f"{slow},throttle=0x20")
    expect(done.status == 0 and not metric, f"a hot device raises no alarm: {done}")
    with contextlib.closing(sqlite3.connect(work / "hot.db")) as db:
        expect(db.execute("SELECT COUNT(*) FROM gpu_sample WHERE state = 1").fetchone()[0] > 0, "its times are kept all the same")
    # Another driver is another history.
    copy_into_the_past(history, work / "driver.db", 60, (1, 2))
    expect(check(work / "driver.db", f"{slow},driver=999.1")[1]["state"] == "learning", "a new driver begins anew")


def needs_of(*programs):
    """Libraries of this machine that these are linked with: path in the image -> content."""
    files = {}
    for one in programs:
        for line in subprocess.run(["ldd", one], stdout=subprocess.PIPE, text=True).stdout.splitlines():
            path = next((word for word in line.split() if word.startswith("/")), None)
            if path:
                files[path.lstrip("/")] = Path(path).resolve().read_bytes()
    return files


def make_gpu_image(work):
    """A tiny image with CUDA libraries where NVIDIA's images have theirs, and a driver that is the machine's."""
    files = needs_of(PROBE, *(FAKES / "toolkit" / name for name in libraries("toolkit")))
    files = {path: files[path] for path in files.keys() - needed_files().keys()}  # the loader is there, and may be run
    files |= {f"usr/local/cuda/lib64/{name}": (FAKES / "toolkit" / name).read_bytes() for name in libraries("toolkit")}
    files["etc/ld.so.conf"] = b"include /etc/ld.so.conf.d/*.conf\n"
    files["etc/ld.so.conf.d/cuda.conf"] = b"/usr/local/cuda/lib64\n"
    (work / "cdi").mkdir()
    (work / "shared").mkdir()
    (work / "cdi/nvidia.yaml").write_text(CDI.format(driver=FAKES / "driver", shared=work / "shared"))
    return make_image(work / "image", more=sorted(files.items()))


def check_image(varve, work):
    image = make_gpu_image(work)
    varve.index(image)
    place = Place(varve, "--cdi-spec-dir", work / "cdi", "--mode", program.modes()[-1], image, sessions=True)
    steps = ["driver", "libraries", "compile", "device", "gemm"]
    check_good(place, work, steps)
    done = place.check(["gemm", "libraries"], "", "--cold")
    cold, warm = done.checks[("libraries", True)], done["libraries"]
    expect(done.status == 0 and cold["fetched_bytes"] > 1_000_000 > warm["fetched_bytes"], f"a cold store fetches the libraries, a warm one has them: {done}")
    expect({metric["kind"] for metric in cold["metrics"]} == {"cold"}, f"its times are kept apart: {cold}")
    where = [path for name, path in done["gemm"]["facts"].items() if name.startswith("lib.libcublas.")]
    expect(where == ["/usr/local/cuda/lib64/libcublas.so.12"], f"the library is the image's: {done}")
    check_once(place, work / "shared", "/shared")
    done = place.check(["gemm"], "wrong=gemm")
    expect(done.status == 3 and "cublasSgemm_v2" in done["gemm"]["detail"], f"a wrong product in a session: {done}")
    token = f"xid=0,product={uuid.uuid4().hex}"
    done = place.check(["gemm"], f"hang=cublasSgemm_v2,{token}", "--limit", "5")
    expect(done.status == 3 and "limit" in done["gemm"]["detail"] and "gemm" in done["gemm"]["detail"], f"a session that hangs: {done}")
    expect_gone(token, "a session that hung")
    expect(place.check(["driver"], "devices=0").status == 77, "no device in a session")
    empty = work / "no-cdi"
    empty.mkdir()
    expect(Place(varve, "--cdi-spec-dir", empty, image, sessions=True).check(["driver"]).status == 77, "nobody describes a device")
    return image, place


def check_rootfs(varve, work, image):
    tree = program.unpack(image, work / "bundle")
    place = Place(varve, "--cdi-spec-dir", work / "cdi", "--rootfs", tree, sessions=True)
    check_good(place, work, ["driver", "libraries", "compile", "gemm"])
    done = place.check(["gemm"], "crash=cublasSgemm_v2")
    expect(done.status == 3 and "SEGV" in done["gemm"]["detail"], f"a crash on an unpacked tree: {done}")
    expect(not (Path(tree) / "run/varve").exists(), "the tree is as it was")
    (Path(tree) / "usr/local/cuda/lib64/libcublas.so.12").unlink()
    done = place.check(["gemm"])
    expect(done.status == 0 and done["gemm"]["result"] == "skipped", f"a tree without cuBLAS: {done}")


def main():
    program.need_root()
    alone()
    with program.work_folder() as work, program.Varve(work) as varve:
        check_this_machine(varve, work)
        print("this machine: right", flush=True)
        program.need_fuse()
        program.need_tools("umoci")
        if not os.access("/sbin/ldconfig", os.X_OK) or not any(shutil.which(tool) for tool in ("runc", "crun")):
            program.skip("this machine has nothing to carry out sessions with")
        image, _ = check_image(varve, work)
        print("sessions on a lazily mounted image: right", flush=True)
        check_rootfs(varve, work, image)
        print("sessions on an unpacked tree: right", flush=True)


if __name__ == "__main__":
    main()
