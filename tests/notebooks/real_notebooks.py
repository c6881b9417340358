"""Real notebooks, out of the packages that requirements.txt pins by their hashes: downloaded when a test asks for them, and kept nowhere."""
import subprocess, sys, tempfile, zipfile
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().with_name("requirements.txt")


class Unavailable(Exception):
    """The packages cannot be had here; says why in one line."""


def real():
    """[(name, bytes)] in the order of their names."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "-d", folder, "-r", REQUIREMENTS],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            raise Unavailable(f"real notebooks cannot be had: {(done.stdout.strip().splitlines() or ['pip failed'])[-1][:200]}")
        found = []
        for path in Path(folder).glob("*.whl"):
            with zipfile.ZipFile(path) as wheel:
                found += ((f"{path.name.split('-')[0]}/{name}", wheel.read(name)) for name in wheel.namelist() if name.endswith(".ipynb"))
        return sorted(found)
