"""A small image with a shell and a few programs of this machine, and what the tests of `varve run` check with."""
import re, shutil, subprocess, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import layouts, tars  # noqa: E402

TOOLS = ("sh", "cat", "id", "sleep", "ls", "touch", "env", "pwd", "od", "chmod")


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def needed_files():
    """Programs of this machine with the libraries they are linked with: path in the image -> content."""
    files = {}
    for tool in TOOLS:
        source = Path(shutil.which(tool)).resolve()
        files[f"bin/{tool}"] = source.read_bytes()
        listed = subprocess.run(["ldd", source], stdout=subprocess.PIPE, text=True).stdout
        for library in re.findall(r"(/\S+)(?= \(0x)", listed):
            files[library.lstrip("/")] = Path(library).resolve().read_bytes()
    return files


def make_image(folder, more=(), odd=None):
    """`more`: (path, content) of further files; `odd` is given the tar to add what else it likes. Returns the reference."""
    base = tars.Tar().dir("bin").dir("etc").dir("tmp", mode=0o1777)
    for path, content in sorted(needed_files().items()):
        base.file(path, content, mode=0o755)
    base.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nuser:x:1234:1235::/home/user:/bin/sh\n").file("etc/group", b"root:x:0:\nuser:x:1235:\n")
    upper = tars.Tar().file("etc/shared", b"of the image\n")
    for path, content in more:
        upper.file(path, content)
    if odd:
        odd(upper)
    base, upper = base.bytes(), upper.bytes()
    layers = [(layouts.zlib_gzip(level=6)(tar, None), tar, layouts.GZIP, None) for tar in (base, upper)]
    return layouts.write_image(folder, layers, config={"Cmd": ["sh", "-c", "echo default command"], "Env": ["PATH=/bin", "OF_IMAGE=yes"], "WorkingDir": "/work"})
