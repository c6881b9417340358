#!/usr/bin/python3
"""What the usage recorder costs: the start of a Python, and import storms, with and without it.

  bench/recorder_bench.py [--python PATH] [--repeat N] [--storm "import pandas, matplotlib.pyplot"] ...

PATH is a Python with a site folder of its own that may be written to (a virtual environment that has what the storms import). The recorder's
files are put there for the time of the measurement. Runs with and without $VARVE_USAGE_SPOOL alternate; what counts is user + system time
of the process. The least of many runs is compared: everything else that a machine does can only add to it.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

SOURCES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "analyzer", "recorder", "python")
DEFAULT_STORMS = ["pass", "import email.mime.text, http.client, asyncio, unittest, xml.dom.minidom", "import numpy", "import pandas",
                  "import pandas, sklearn.ensemble, matplotlib.pyplot", "import torch"]


def cpu_seconds(command, environment):
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit("%s failed" % command)
    return usage.ru_utime + usage.ru_stime


def measure(python, statement, repeat, spool):
    plain = {name: value for name, value in os.environ.items() if not name.startswith("VARVE_")}
    recorded = dict(plain, VARVE_USAGE_SPOOL=spool)
    command = [python, "-c", statement]
    cpu_seconds(command, recorded)
    cpu_seconds(command, plain)
    without, with_recorder = [], []
    for i in range(repeat):
        for name in os.listdir(spool):
            if name.endswith(".jsonl"):
                os.unlink(os.path.join(spool, name))
        pairs = [(without, plain), (with_recorder, recorded)]
        for times, environment in pairs if i % 2 else pairs[::-1]:
            times.append(cpu_seconds(command, environment))
    records = sum(len(open(os.path.join(spool, name), "rb").read().splitlines()) for name in os.listdir(spool) if name.endswith(".jsonl"))
    return without, with_recorder, records


def can_import(python, statement):
    return subprocess.run([python, "-c", statement], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--storm", action="append")
    arguments = parser.parse_args()
    site = subprocess.run([arguments.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    names = [name for name in os.listdir(SOURCES) if name.startswith("varve_recorder")]
    mine = [name for name in names if not os.path.exists(os.path.join(site, name))]
    spool = tempfile.mkdtemp(prefix="recorder-bench-")
    try:
        for name in names:
            shutil.copy(os.path.join(SOURCES, name), site)
        print("%-78s %10s %10s %9s %9s %8s" % ("", "without", "with", "more", "median", "records"))
        for statement in arguments.storm or DEFAULT_STORMS:
            if not can_import(arguments.python, statement):
                print("%-78s not there" % statement)
                continue
            without, with_recorder, records = measure(arguments.python, statement, arguments.repeat, spool)
            least, least_with = min(without), min(with_recorder)
            more = statistics.median(with_recorder) - statistics.median(without)
            print("%-78s %7.1f ms %7.1f ms %+6.2f ms %+6.2f ms %8d   %+.2f %%"
                  % (statement, least * 1e3, least_with * 1e3, (least_with - least) * 1e3, more * 1e3, records, (least_with / least - 1) * 100))
            sys.stdout.flush()
    finally:
        shutil.rmtree(spool)
        for name in mine:
            os.unlink(os.path.join(site, name))


if __name__ == "__main__":
    main()
