#!/usr/bin/env python3
"""run_howto.py HOWTO.md SETUP.py: runs the ```sh blocks of a how-to, one after the other in one shell, as they stand there.

SETUP.py is a module with prepare(folder, varve), which makes what the how-to takes for given (or skips: program.skip), and check(folder, output), which
looks at what it left. What must run meanwhile, a registry say, prepare() returns as a context manager; variables go into
varve.environment. The folder, the state and the daemon are gone afterwards. Blocks of any other kind are read by people only."""
import contextlib, importlib.util, re, subprocess, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import program  # noqa: E402

LIMIT_S = 300


def blocks_of(text):
    """(line of the first command, commands) of each block; refuses a how-to without any, and a block that never ends."""
    found, start = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if start is None and line == "```sh":
            start = number + 1
        elif start is not None and line == "```":
            found.append((start, "\n".join(text.splitlines()[start - 1:number - 1]) + "\n"))
            start = None
    if start is not None or not found:
        sys.exit("a ```sh block without end" if start else "no ```sh block")
    return found


def load(path):
    spec = importlib.util.spec_from_file_location("howto_setup", path)
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    spec.loader.exec_module(module)
    return module


def run(howto, blocks, folder, varve):
    """All blocks in one shell, so that variables and the working folder stay; a mark before each says how far it came."""
    mark = "== block at line "
    script = "set -eu -o pipefail\n" + "".join(f"printf '\\n%s%s\\n' '{mark}' {line}\n{commands}" for line, commands in blocks)
    binaries = folder / "bin"
    binaries.mkdir()
    (binaries / "varve").symlink_to(Path(varve.binary).resolve())
    environment = {**varve.environment, "PATH": f"{binaries}:{varve.environment['PATH']}", "HOME": str(folder), "VARVE_CONFIG": "/dev/null", "LC_ALL": "C.UTF-8"}
    done = subprocess.run(["bash", "-c", script], cwd=folder / "work", env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_S)
    output = done.stdout.decode(errors="replace")
    if done.returncode:
        lines = re.findall(re.escape(mark) + r"(\d+)", output)
        sys.exit(f"{howto}:{lines[-1] if lines else '?'}: the block ended with {done.returncode}\n{output[-3000:]}")
    return output


def stop_daemons(folder, varve):
    """Those of states that the how-to made for itself, if it did not come as far as its own end."""
    for socket in folder.rglob("run/daemon.sock"):
        varve.run("--root", socket.parent.parent, "daemon", "--stop", "--force")


def main():
    howto, setup = Path(sys.argv[1]), load(sys.argv[2])
    blocks = blocks_of(howto.read_text())
    with program.work_folder() as folder:
        folder = Path(folder)
        (folder / "work").mkdir()
        with program.Varve(folder) as varve:
            try:
                with setup.prepare(folder / "work", varve) or contextlib.nullcontext():
                    output = run(howto.name, blocks, folder, varve)
            finally:
                stop_daemons(folder, varve)
            setup.check(folder / "work", output)
    print(f"{howto.name}: {len(blocks)} blocks ran as written")


if __name__ == "__main__":
    main()
