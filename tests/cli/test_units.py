#!/usr/bin/env python3
"""The systemd units: systemd understands all of them, and they name the program where it is."""
import os, shutil, subprocess, sys, tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import program  # noqa: E402

PACKAGING = Path(__file__).resolve().parents[2] / "packaging"


def main():
    program.need_tools("systemd-analyze")
    varve = os.path.abspath(os.environ["VARVE"])
    with tempfile.TemporaryDirectory() as folder:
        units = []
        for unit in sorted(file for file in PACKAGING.iterdir() if file.suffix in (".service", ".socket", ".timer")):
            text = unit.read_text()
            if unit.suffix == ".service" and "ExecStart=/usr/local/bin/varve " not in text:
                raise AssertionError(f"{unit.name}: the installation replaces /usr/local/bin/varve, which it does not start")
            units.append(Path(folder) / unit.name)
            units[-1].write_text(text.replace("/usr/local/bin/varve", varve))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode or done.stdout.strip():
            raise AssertionError(f"systemd-analyze verify: exit {done.returncode}: {done.stdout}")
        print(f"{len(units)} units are right", flush=True)


if __name__ == "__main__":
    main()
