"""A PostgreSQL server for one test: in a folder of its own, on a socket only, gone when the block ends."""
import contextlib, os, pwd, shutil, subprocess, tempfile, time
from pathlib import Path

import program

PROGRAMS = Path("/usr/lib/postgresql/15/bin")


@contextlib.contextmanager
def server():
    """Gives the URL of an empty database."""
    if not (PROGRAMS / "postgres").exists():
        program.skip("PostgreSQL 15 is not installed")
    user = pwd.getpwnam("postgres") if os.getuid() == 0 else pwd.getpwuid(os.getuid())  # it refuses to run as root
    folder = tempfile.mkdtemp(prefix="vpg-", dir="/tmp")  # the path of a socket has little room
    os.chown(folder, user.pw_uid, user.pw_gid)
    who = dict(user=user.pw_uid, group=user.pw_gid, extra_groups=[]) if os.getuid() == 0 else {}
    quiet = dict(stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **who)
    process = None
    try:
        subprocess.run([PROGRAMS / "initdb", "-D", folder + "/data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "-N", "--no-instructions"], check=True, **quiet)
        process = subprocess.Popen([PROGRAMS / "postgres", "-D", folder + "/data", "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=32MB"], **quiet)
        for _ in range(600):
            if subprocess.run([PROGRAMS / "pg_isready", "-q", "-h", folder], **quiet).returncode == 0:
                break
            assert process.poll() is None, "the private PostgreSQL server did not start"
            time.sleep(0.05)
        yield f"postgresql://postgres@/postgres?host={folder}"
    finally:
        if process:
            process.send_signal(3)  # SIGQUIT: at once; nobody wants its data
            process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
