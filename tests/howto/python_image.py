"""A small image with this machine's Python and stand-ins of a few lines for well-known libraries, for how-tos that need an image to work with; and what their checks are made of."""
import base64, hashlib, json, re, shutil, subprocess, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import layouts, program, tars  # noqa: E402

PYTHON = "/usr/bin/python3"
LEFT_OUT = {"test", "tests", "idlelib", "lib2to3", "pydoc_data", "ensurepip", "tkinter", "turtledemo", "__pycache__", "distutils"}
# Distribution -> (import name, text of the module, requirements).
LIBRARIES = {
    "numpy": ("numpy", "pi = 3.14\n", []),
    "pandas": ("pandas", "import numpy\n", ["numpy"]),
    "beautifulsoup4": ("bs4", "import soupsieve\n", ["soupsieve"]),
    "soupsieve": ("soupsieve", "", []),
    "seaborn": ("seaborn", "import pandas\n", ["pandas"]),
    "geoviews": ("geoviews", "maps = 1\n" * 4000, []),
    "google-cloud-storage": ("google/cloud/storage", "", []),
}


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, wanted {wanted!r}")


def notebook(*cells):
    return json.dumps({"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell} for cell in cells],
                       "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5})


def linked(path):
    listed = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return {library: Path(library).resolve() for library in re.findall(r"(/\S+)(?= \(0x)", listed)}


def python_files():
    """Path in the image -> (content, mode): the interpreter, its standard library, and what these are linked with."""
    interpreter = Path(PYTHON).resolve()
    library = Path(subprocess.run([PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('stdlib'))"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip())
    files, shared = {"usr/bin/python3": (interpreter.read_bytes(), 0o755)}, linked(interpreter)
    for path in sorted(library.rglob("*")):
        inside = path.relative_to(library)
        if path.is_file() and not LEFT_OUT & set(inside.parts) and not inside.parts[0].startswith("config-") and path.suffix in (".py", ".so"):
            files[str(path).lstrip("/")] = (path.read_bytes(), 0o644)
            if path.suffix == ".so":
                shared |= linked(path)
    for name, path in shared.items():
        files[name.lstrip("/")] = (path.read_bytes(), 0o755)
    return files


def library_files(name, module, text, requires, version="1.0"):
    folder, record = f"{name.replace('-', '_')}-{version}.dist-info", []
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(f"Requires-Dist: {other}\n" for other in requires)
    files = {f"{module}/__init__.py": text.encode(), f"{folder}/METADATA": metadata.encode(), f"{folder}/INSTALLER": b"pip\n"}
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record.append(f"{path},sha256={digest},{len(content)}\n")
    files[f"{folder}/RECORD"] = ("".join(record) + f"{folder}/RECORD,,\n").encode()
    return files


def make(folder, tag, libraries=LIBRARIES, more=()):
    """Writes the image into the layout folder, `more` being further layers' tars. Returns the reference."""
    if not Path(PYTHON).exists():
        program.skip(f"this machine has no {PYTHON}")
    base = tars.Tar().dir("bin").dir("tmp", mode=0o1777).dir("etc").file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n").file("etc/group", b"root:x:0:\n")
    base.file("bin/sh", Path(shutil.which("sh")).resolve().read_bytes(), mode=0o755)
    for path, (content, mode) in sorted(python_files().items()):
        base.file(path, content, mode=mode)
    upper = tars.Tar()
    for name, (module, text, requires) in libraries.items():
        for path, content in library_files(name, module, text, requires).items():
            upper.file(f"usr/lib/python3/dist-packages/{path}", content)
    base, upper = base.bytes(), upper.bytes()
    layers = [(layouts.zlib_gzip(level=1)(tar, None), tar, layouts.GZIP, None) for tar in (base, upper, *more)]
    return layouts.write_image(folder, layers, tag=tag, config={"Cmd": ["python3"], "Env": ["PATH=/usr/bin:/bin"]})
