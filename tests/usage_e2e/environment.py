"""An image of real distributions: this machine's Debian Python and wheels from PyPI, as pip installs them. No package manager, no root file system fetched."""
import compileall, contextlib, io, os, re, shutil, subprocess, sys, tarfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "oracle"))
import layouts, program  # noqa: E402
from build import SITE, add_path, add_tree  # noqa: E402  the image builder's

PYTHON = "/usr/bin/python3.11"
STDLIB = "/usr/lib/python3.11"
TOOLS = ("sh", "cat", "env", "sleep", "ls", "rm", "cp", "grep")
# Of the system, by the wheels' own rules (manylinux); threads that end ask for the first by name.
WHEELS_NEED = [f"/lib/x86_64-linux-gnu/{name}" for name in ("libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "libm.so.6", "libpthread.so.0",
                                                             "libdl.so.2", "librt.so.1", "libutil.so.1", "libresolv.so.2", "libnss_files.so.2")]
EPOCH = 1_700_000_000
ENVIRONMENT = ["PATH=/usr/local/bin:/usr/bin:/bin", "LANG=C.UTF-8", "MPLBACKEND=Agg", "MPLCONFIGDIR=/tmp/mpl", "OPENBLAS_NUM_THREADS=1", "OMP_NUM_THREADS=1"]
# What the sessions install for themselves, not part of the image: an upgrade, a downgrade, and something new.
OWN_WHEELS = ("tabulate==0.8.10", "six==1.17.0", "humanize==4.12.3")


def linked_libraries(paths):
    listed = subprocess.run(["ldd", *paths], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return sorted(set(re.findall(r"(/\S+)(?= \(0x)", listed)))


def base_layer(target):
    """Python as Debian has it here, without its tests, and a few tools."""
    programs = [str(Path(shutil.which(tool, path="/usr/bin:/bin")).resolve()) for tool in TOOLS]
    modules = [str(path) for path in Path(STDLIB, "lib-dynload").glob("*.so")]
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        def add_link(name, to):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mtime, info.mode = tarfile.SYMTYPE, to, EPOCH, 0o777
            tar.addfile(info)

        def add_folder(name, mode=0o755):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = tarfile.DIRTYPE, mode, EPOCH
            tar.addfile(info)

        def add_text(name, text):
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(text), EPOCH
            tar.addfile(info, io.BytesIO(text))

        for name in ("usr", "usr/bin", "usr/lib", "usr/lib64", "usr/lib/x86_64-linux-gnu", "usr/share", "etc", "root", "home", "home/nb"):
            add_folder(name)
        add_folder("tmp", 0o1777)
        for name, to in (("bin", "usr/bin"), ("lib", "usr/lib"), ("lib64", "usr/lib64"), ("usr/bin/python3", "python3.11"), ("usr/bin/python", "python3.11")):
            add_link(name, to)
        add_text("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nnb:x:1000:1000::/home/nb:/bin/sh\n")
        add_text("etc/group", b"root:x:0:\nnb:x:1000:\n")
        for source in [PYTHON, *programs]:
            tar.add(source, "usr/bin/" + Path(source).name, filter=ours)
        for tool, source in zip(TOOLS, programs):
            if Path(source).name != tool:
                add_link(f"usr/bin/{tool}", Path(source).name)
        for library in sorted({*linked_libraries([PYTHON, *programs, *modules]), *WHEELS_NEED}):
            name = library.lstrip("/")
            tar.add(Path(library).resolve(), name if name.startswith("usr/") else "usr/" + name, filter=ours)
        tar.add(STDLIB, STDLIB.lstrip("/"), filter=lambda info: None if re.search(r"/(test|tests|idlelib|lib2to3|ensurepip|turtledemo|EXTERNALLY-MANAGED)$", info.name) else ours(info))


def ours(info):
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    if Path("/", info.name).parent == Path(STDLIB) and info.issym():  # Debian's sitecustomize leads to /etc
        return None
    return info


def pip(*arguments, **options):
    return subprocess.run([PYTHON, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env={**os.environ, "PIP_NO_INPUT": "1"}, **options)


def wheels_layer(target, work, requirements):
    root = work / "wheels"
    done = pip("install", "--quiet", "--root", root, "--no-deps", "--no-compile", "--ignore-installed", "--root-user-action=ignore", "--no-warn-script-location",
               "--only-binary=:all:", "-r", requirements)
    if done.returncode:
        program.skip(f"wheels cannot be had: {done.stdout.strip().splitlines()[-1][:200]}")
    for path in root.rglob("*"):
        os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)
    with open(os.devnull, "w") as devnull, contextlib.redirect_stdout(devnull):
        compileall.compile_dir(root / SITE, stripdir=str(root), quiet=2, workers=os.cpu_count())
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as tar:
        add_tree(tar, root, EPOCH)
    names = sorted(path.name.rsplit("-", 1)[0] for path in (root / SITE).glob("*.dist-info"))
    shutil.rmtree(root)
    return names


def own_wheels(folder):
    folder.mkdir()
    done = pip("download", "--quiet", "--no-deps", "--only-binary=:all:", "-d", folder, *OWN_WHEELS)
    if done.returncode:
        program.skip(f"wheels cannot be had: {done.stdout.strip().splitlines()[-1][:200]}")


def make_image(folder, work, requirements):
    """(reference, names of the distributions)."""
    base, wheels = work / "base.tar", work / "wheels.tar"
    base_layer(base)
    names = wheels_layer(wheels, work, requirements)
    layers = [(path.read_bytes(), path.read_bytes(), layouts.TAR, None) for path in (base, wheels)]
    base.unlink(), wheels.unlink()
    return layouts.write_image(folder, layers, config={"Cmd": ["python3"], "Env": ENVIRONMENT, "WorkingDir": "/work"}, tag="v1"), names
