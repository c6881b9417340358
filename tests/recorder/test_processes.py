#!/usr/bin/python3
"""The recorder in processes as they come: killed, forked, threaded, spawned, replaced, and at their end."""
import os
import signal
import sys

from world import Failure, every_version, expect, main, wait_until


def many(world, count=40):
    for number in range(count):
        world.distribution("many%d" % number, "1.0", {"many%d/__init__.py" % number: "import many%d.part\n" % number, "many%d/part.py" % number: ""})


def read_line(process, wanted):
    line = process.stdout.readline()
    if line.decode().strip() != wanted:
        process.kill()
        raise Failure("the program said %r %s" % (line, process.communicate()[1][-1000:]))


@every_version
def killed_right_after_an_import_nothing_is_lost(world):
    many(world, 3)
    world.write("killed.py", "import many0, many1\nprint('ready', flush=True)\ninput()\n")
    world.clean()
    process = world.start(["killed.py"])
    read_line(process, "ready")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    records = world.spooled()[0]
    expect({r["m"] for r in records if r["t"] == "import"}, {"many0", "many0.part", "many1", "many1.part"}, "imports of a killed process")
    expect([r for r in records if r["t"] == "end"], [], "its end")


@every_version
def killed_inside_an_import_its_packages_are_known(world):
    many(world, 2)
    world.distribution("slow", "1.0", {"slow/__init__.py": "import many0, slow.inner, many1\nprint('ready', flush=True)\ninput()\n", "slow/inner.py": ""})
    world.clean()
    process = world.start(["-c", "import slow"])
    read_line(process, "ready")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    written = {r["m"] for r in world.spooled()[0] if r["t"] == "import"}
    expect({"slow", "many0", "many1"} - written, set(), "packages of a process killed inside an import")


@every_version
def forked_children_write_files_of_their_own(world):
    many(world, 3)
    result = world.run("""
import os, many0
for name in ("many1", "many2"):
    child = os.fork()
    if child == 0:
        __import__(name)
        os._exit(0)
    os.waitpid(child, 0)
silent = os.fork()
if silent == 0:
    os._exit(0)
os.waitpid(silent, 0)
""", options=["-W", "error"])
    expect(len(result.files), 3, "files: a child that used nothing has none")
    parent = [records for records in result.files if "parent" not in records[0]][0]
    for records in result.files:
        if records is not parent:
            expect(records[0]["parent"], parent[0]["process"], "parent")
            expect(records[0]["session"], parent[0]["session"], "session")
    expect(sorted(r["m"] for records in result.files if records is not parent for r in records if r["t"] == "import"),
           ["many1", "many1.part", "many2", "many2.part"], "what the children imported")


@every_version
def multiprocessing_in_all_three_ways(world):
    many(world, 3)
    for method in ("fork", "spawn", "forkserver"):
        world.write("worker.py", "def work(name):\n    __import__(name)\n    return name\n")
        result = world.run("""
import multiprocessing, worker
if __name__ == "__main__":
    import many0
    with multiprocessing.get_context(%r).Pool(2) as pool:
        print(sorted(pool.map(worker.work, ["many1", "many2"], chunksize=1)))
        pool.close()
        pool.join()
""" % method)
        expect(result.out, "['many1', 'many2']\n", method)
        expect({"many0", "many1", "many2"} - result.modules("direct"), set(), "direct, " + method)
        expect(len({records[0]["session"] for records in result.files}), 1, "sessions, " + method)


@every_version
def threads_lose_nothing_and_mix_nothing(world):
    many(world)
    result = world.run("""
import threading
def load(start):
    for number in range(start, 40, 8):
        __import__("many%d" % number)
threads = [threading.Thread(target=load, args=(start,)) for start in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""")
    expect(result.modules("direct"), {"many%d" % number for number in range(40)}, "direct")
    expect(result.modules("transitive"), {"many%d.part" % number for number in range(40)}, "transitive")


@every_version
def a_subprocess_is_of_the_same_session(world):
    many(world, 2)
    result = world.run("import many0, subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import many1'], check=True)\n"
                       "subprocess.run([sys.executable, '-c', 'pass'], check=True)\n")
    expect(len(result.files), 2, "files")
    by_main = {records[0]["main"]: records for records in result.files}
    expect(by_main["other"][0]["parent"], by_main["script"][0]["process"], "parent")
    expect(by_main["other"][0]["session"], by_main["script"][0]["session"], "session")
    expect(result.modules("direct"), {"many0", "many1"}, "direct")


@every_version
def a_given_session_is_taken_over(world):
    many(world, 1)
    session, image = "0123456789abcdef" * 2, "sha256:" + "ab" * 32
    start = world.run("import many0\n", VARVE_USAGE_SESSION=session, VARVE_IMAGE=image).of("start")[0]
    expect((start["session"], start["image"], start["main"], "parent" in start), (session, image, "script", False), "start")
    start = world.run("import many0\n", VARVE_USAGE_SESSION="../../etc/passwd", VARVE_IMAGE="latest", VARVE_USAGE_PARENT="x").of("start")[0]
    expect((len(start["session"]), "image" in start, "parent" in start), (32, False, False), "start with nonsense around it")


@every_version
def replaced_by_exec(world):
    many(world, 2)
    result = world.run("import many0, os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'import many1'])\n")
    expect(result.modules("direct"), {"many0", "many1"}, "direct")
    expect(len(result.files), 2, "files")


@every_version
def ends_of_all_kinds(world):
    many(world, 2)
    expect(world.run("import many0, os\nos._exit(7)\n", status=7).modules("direct"), {"many0"}, "after os._exit")
    expect(world.run("import many0\n").of("end")[0]["exit"], "ok", "end")
    expect(world.run("import many0\nraise ValueError\n", status=1, quiet=False).of("end")[0]["exit"], "error", "end of a failed script")
    expect(world.run("import many0, sys\nsys.exit(3)\n", status=3).of("end")[0]["exit"], "ok", "end of one that chose its status")
    result = world.run("""
import atexit, many0
class Late:
    def __del__(self):
        try:
            import many1
        except Exception:
            pass
keep = Late()
atexit.register(lambda: __import__("many1"))
""")
    expect(result.modules("direct"), {"many0", "many1"}, "imports at the end")


@every_version
def a_process_that_uses_no_library_is_heard_once_per_session(world):
    expect([r["t"] for r in world.run("import json\n").records], ["start", "gpu", "beat", "end"], "records")


@every_version
def subinterpreters_speak_for_themselves(world):
    many(world, 2)
    result = world.run("""
import many0
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
here = interpreters.create()
interpreters.run_string(here, "import many1")
interpreters.destroy(here)
""")
    expect({"many0", "many1"} - result.modules("direct"), set(), "direct")


@every_version
def one_thread_stays_one_thread(world):
    many(world, 4)
    result = world.run("import os, time, many0, many1\ntime.sleep(0.15)\nimport many2\nprint(len(os.listdir('/proc/self/task')))\n")
    expect(result.out, "1\n", "threads")


@every_version
def heartbeats_where_there_are_threads_anyway(world):
    many(world, 3)
    world.write("beating.py", """
import sys, threading
import varve_recorder
varve_recorder.FINDER.load().life_part().BEAT_SECONDS = 0.05
threading.Thread(target=lambda: sys.stdin.read(), daemon=True).start()
import many0
print("ready", flush=True)
while True:
    threading.Event().wait()
""")
    world.clean()
    process = world.start(["beating.py"])
    read_line(process, "ready")
    try:
        wait_until(lambda: len([r for r in world.spooled()[0] if r["t"] == "beat"]) >= 3, "three heartbeats")
    finally:
        process.kill()
        process.communicate()


@every_version
def waiting_lines_are_written_when_the_import_ends(world):
    many(world, 4)
    result = world.run("""
import os, sys
import many0
recorder = sys.meta_path[-2].recorder
path = "%s/%s-%s.jsonl" % (os.environ["VARVE_USAGE_SPOOL"], recorder.session, recorder.process)
import many1
print(len(recorder.waiting), b"many1.part" in open(path, "rb").read())
""")
    expect(result.out, "0 True\n", "lines waiting, and those of the import that ended")


if __name__ == "__main__":
    sys.exit(main([case for case in list(globals().values()) if getattr(case, "on_every_version", False)], sys.argv[1:]))
