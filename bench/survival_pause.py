"""How long a reader waits when the daemon is killed: the longest read of each kill, in both modes. Root; VARVE is the program, default build/release/varve."""
import os, random, signal, statistics, subprocess, sys, tempfile, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/oracle"))
import layouts  # noqa: E402
from program import Varve, modes, need_fuse, need_root  # noqa: E402
from tars import Tar  # noqa: E402

KILLS, MEGABYTES, NAMES = 20, 200, 5_000

# Asks for pages that are not in memory, and says how long each took; a line a read, flushed, so that nothing is lost.
READER = """
import os, random, sys, time
fd, size = os.open(sys.argv[1], os.O_RDONLY), os.stat(sys.argv[1]).st_size
while not os.path.exists(sys.argv[2]):
    offset = random.randrange(size // 4096) * 4096
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    begin = time.monotonic()
    os.pread(fd, 4096, offset)
    print(f"{begin} {time.monotonic() - begin}", flush=True)
    time.sleep(0.001)
"""


def measure(varve, image, mode, work):
    stop = work / f"stop-{mode}"
    with varve.mounted(image, mode) as place:
        reader = subprocess.Popen([sys.executable, "-c", READER, f"{place}/data", str(stop)], stdout=open(work / f"times-{mode}", "w"))
        kills = []
        for _ in range(KILLS):
            time.sleep(random.uniform(0.7, 1.2))
            pid = varve.daemon_pid()
            kills.append(time.monotonic())
            os.kill(pid, signal.SIGKILL)
            while varve.daemon_pid() in (None, pid):
                time.sleep(0.02)
        stop.touch()
        assert reader.wait(60) == 0, "a read failed"
    reads = [tuple(map(float, line.split())) for line in (work / f"times-{mode}").read_text().splitlines()]
    pauses = [max(took for begin, took in reads if kill - 0.5 < begin < kill + 0.7) for kill in kills]
    usual = statistics.median(took for _, took in reads)
    return {"mode": mode, "median_ms": round(statistics.median(pauses) * 1e3), "longest_ms": round(max(pauses) * 1e3), "usual_ms": round(usual * 1e3, 2), "reads": len(reads)}


def main():
    need_root(), need_fuse()
    with tempfile.TemporaryDirectory(prefix="vp-") as folder:
        work = Path(folder)
        layer, noise = Tar(), random.Random(1)
        layer.file("data", noise.randbytes(MEGABYTES * 1_000_000)).dir("many")
        for i in range(NAMES):
            layer.file(f"many/{i}", b"x")
        image = layouts.gzip_image(work / "image", [layer.bytes()], "latest")
        with Varve(work) as varve:
            (work / "varve.toml").write_text("[daemon]\nmax-restarts = 1000\n")
            varve.environment["VARVE_CONFIG"] = str(work / "varve.toml")
            varve.index(image)
            for mode in modes():
                print(measure(varve, image, mode, work), flush=True)


main()
