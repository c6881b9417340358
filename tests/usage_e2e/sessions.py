"""What the sessions of the proof do besides their notebook's cells: made-up cells, each for one hard case."""

# After the last cell the kernel is killed as the machine's memory killer would. The recorder may lose what it saw in the last second.
KILLED = "import os, signal, time\ntime.sleep(1.5)\nos.kill(os.getpid(), signal.SIGKILL)"
FAILING = "import surely_not_in_any_image\n"
FAILING_BY_HAND = "raise RuntimeError('as notebooks do')"
FORK = """
import os
child = os.fork()
if child == 0:
    import networkx
    os._exit(0)
os.waitpid(child, 0)
"""
POOL = """
import multiprocessing
with multiprocessing.get_context('fork').Pool(2) as pool:
    pool.map(__import__, ['yaml', 'mpmath'])
"""
SUBPROCESS = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import bs4, requests'], check=True)"
DYNAMIC = "import importlib\nimportlib.import_module('tabulate')\nimportlib.import_module('sympy.core')"
CACHED = "import pandas\nimport numpy\nimport dateutil.parser"
THREAD = "import threading\nworker = threading.Thread(target=lambda: __import__('attr'))\nworker.start()\nworker.join()"
INSTALL = """
import subprocess, sys
subprocess.run([sys.executable, '-m', 'pip', 'install', '--quiet', '--no-index', '--find-links', '/wheels', '--root-user-action=ignore', %s], check=True)
"""
DOWNGRADE = INSTALL % "'tabulate==0.8.10'" + "import tabulate\n"
UPGRADE = INSTALL % "'six==1.17.0'" + "import six\n"
NEW = INSTALL % "'humanize'" + "import humanize\n"

# kind -> cells. Sessions take them in turn.
KINDS = {
    "plain": [],
    "killed": [KILLED],
    "fork": [FORK],
    "failing": [FAILING, FAILING_BY_HAND],
    "subprocess": [SUBPROCESS],
    "downgrade": [DOWNGRADE],
    "dynamic": [DYNAMIC, CACHED],
    "thread": [THREAD],
    "upgrade": [UPGRADE],
    "pool": [POOL],
    "new": [NEW],
    "switched off": [],
}
# What an installation must be recorded as: distribution -> (from, to, why).
INSTALLED = {"downgrade": ("tabulate", "0.9.0", "0.8.10", "downgrade"), "upgrade": ("six", "1.16.0", "1.17.0", "upgrade"), "new": ("humanize", None, "4.12.3", "new")}
STATUS = {"killed": 137, "failing": 3}
# Modules that a session uses by itself and that no import statement of its cells names.
OTHERWISE = {"fork": {"networkx"}, "pool": {"yaml", "mpmath"}, "subprocess": {"bs4", "requests"}, "dynamic": {"tabulate", "sympy.core"}, "thread": {"attr"},
             "downgrade": {"pip"}, "upgrade": {"pip"}, "new": {"pip"}}
