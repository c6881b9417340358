"""What goes into a layer, and how it is compressed: all that decides a layer's bytes. build.py takes a digest of this file into the name of each layer it keeps."""
import compileall, contextlib, csv, fnmatch, json, os, re, shutil, subprocess, sys, hashlib, tarfile
from io import BytesIO
from pathlib import Path

SITE = "usr/local/lib/python3.11/dist-packages"


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(command, **options):
    """Runs a tool whose chatter nobody wants to see unless it fails."""
    done = subprocess.run([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    if done.returncode:
        sys.exit(f"{command[0]} failed ({done.returncode}):\n{done.stdout[-4000:]}")
    return done.stdout


class DigestingFile:
    """Passes bytes on and digests them on the way."""

    def __init__(self, sink):
        self.sink, self.sha256, self.size = sink, hashlib.sha256(), 0

    def write(self, data):
        self.sha256.update(data)
        self.size += len(data)
        self.sink.write(data)
        return len(data)

    def digest(self):
        return "sha256:" + self.sha256.hexdigest()


# ---------------------------------------------------------------- what goes into a layer: functions that write a tar to a sink


def apt_sources(suite):
    """The machine's own mirrors of this suite, so that a local mirror is used where there is one."""
    if not shutil.which("apt-get"):
        return []
    form = "$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(RELEASE)"
    listed = subprocess.run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"], stdout=subprocess.PIPE, text=True).stdout
    lines = []
    for line in listed.splitlines():
        origin, codename, uri, release = line.split("|")
        if origin == "Debian" and codename.startswith(suite) and release.startswith(suite):
            lines.append(f"deb {uri} {release} main")
    wanted = sorted(set(lines))
    return wanted if f"{suite} main" in " ".join(wanted) else []


def proxy_options():
    shown = subprocess.run(["apt-config", "shell", "P", "Acquire::http::Proxy"], stdout=subprocess.PIPE, text=True).stdout.strip()
    return ["--aptopt=Acquire::http::Proxy " + shown[2:].replace("'", '"')] if shown else []


def debian_layer(layer, recipe, work):
    """A Debian base. mmdebstrap sorts the entries and clamps the times to SOURCE_DATE_EPOCH."""
    modes = ["root", "chrootless"] if os.getuid() == 0 else ["unshare", "fakechroot"]
    target, failures = work / "base.tar", []
    command = ["mmdebstrap", "--variant=minbase", "--include=" + ",".join(layer["packages"]), "--aptopt=Acquire::Retries \"3\"", *proxy_options()]
    # What mmdebstrap takes over from this machine, and what differs from run to run, has no place in an image.
    command += [f"--customize-hook={hook}" for hook in ('rm -rf "$1"/etc/resolv.conf "$1"/etc/hostname "$1"/var/cache/ldconfig/aux-cache "$1"/var/log/*.log "$1"/var/log/apt/*',
                                                        'rm -rf "$1"/usr/share/python3/debpython/__pycache__ "$1"/var/lib/apt/lists/partial "$1"/var/cache/apt/archives/partial',
                                                        f'echo "deb http://deb.debian.org/debian {layer["suite"]} main" > "$1"/etc/apt/sources.list; rm -f "$1"/etc/apt/sources.list.d/*')]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(recipe["epoch"]), "TMPDIR": str(work)}
    for mode in modes:
        done = subprocess.run([*command, "--mode=" + mode, layer["suite"], target, *apt_sources(layer["suite"])],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        if done.returncode == 0:
            break
        failures.append(f"--mode={mode}:\n{done.stdout[-2000:]}")
    else:
        sys.exit("mmdebstrap failed in every mode\n" + "\n".join(failures))

    def write(sink):
        with open(target, "rb") as tar:
            shutil.copyfileobj(tar, sink, 1 << 20)
        target.unlink()
    return write


def pinned(path):
    """{name: its lines} of a list pinned by hash."""
    return {line.split("==")[0]: line for line in path.read_text().replace("\\\n", "\\").splitlines() if "==" in line}


def uninstall(packages, name):
    """What pip would delete: the files of the record, the bytecode beside them, and folders that are empty by it."""
    record = next(r for r in packages.glob("*.dist-info/RECORD") if re.sub(r"[-_.]+", "-", r.parent.name.split("-")[0]).lower() == name)
    folders = set()
    for row in csv.reader(record.read_text().splitlines()):
        path = Path(os.path.normpath(packages / row[0]))
        for file in [path, *path.parent.glob(f"__pycache__/{path.stem}.*.pyc")] if path.suffix == ".py" else [path]:
            file.unlink(missing_ok=True)
            folders.add(file.parent)
    for folder in sorted(folders, key=lambda f: len(f.parts), reverse=True):
        while folder != packages and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


def wheels_layer(layer, recipe, work):
    """Wheels as pip installs them, compiled, every time set to the recipe's. The folder stays for the next release, which replaces what changed."""
    root = recipe["roots"] / layer["requirements"].replace("{release}", "release")
    wanted, there_file = pinned(requirements(layer, recipe)), root.with_suffix(".there")
    there = json.loads(there_file.read_text()) if there_file.exists() else {}
    there_file.unlink(missing_ok=True)
    if not there:
        shutil.rmtree(root, ignore_errors=True)
    for name in there:
        if there[name] != wanted.get(name):
            uninstall(root / SITE, name)
    new = work / "requirements.txt"
    new.write_text("".join(line.replace("\\", "\\\n") + "\n" for name, line in wanted.items() if there.get(name) != line))
    command = ["/usr/bin/python3", "-m", "pip", "install", "--quiet", "--root", root, "--no-deps", "--no-compile", "--ignore-installed",
               "--root-user-action=ignore", "--no-warn-script-location", "--only-binary=:all:", "--require-hashes", "-r", new]
    if recipe["wheels"]:
        command += ["--no-index", "--find-links", recipe["wheels"]]
    if new.stat().st_size:
        run(command, env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"})
    for path in root.rglob("*"):
        os.utime(path, (recipe["epoch"], recipe["epoch"]), follow_symlinks=False)
    # What pip would have compiled at installation; compiled now because the bytecode records the time of its source.
    with open(os.devnull, "w") as devnull, contextlib.redirect_stdout(devnull):
        compileall.compile_dir(root / SITE, stripdir=str(root), quiet=2, workers=os.cpu_count())
    there_file.write_text(json.dumps(wanted))

    def write(sink):
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 20) as tar:
            add_tree(tar, root, recipe["epoch"])
    return write


def add_tree(tar, root, epoch):
    for folder, folders, files in os.walk(root):
        folders.sort()
        for name in sorted(files) + [f for f in folders if os.path.islink(os.path.join(folder, f))]:
            add_path(tar, root, os.path.join(folder, name), epoch)
        for name in folders:
            if not os.path.islink(os.path.join(folder, name)):
                add_path(tar, root, os.path.join(folder, name), epoch)


def add_path(tar, root, path, epoch):
    info = tar.gettarinfo(path, os.path.relpath(path, root))
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = epoch
    info.mode = 0o755 if info.isdir() or info.mode & 0o111 else 0o644
    if info.isreg():
        with open(path, "rb") as file:
            tar.addfile(info, file)
    else:
        tar.addfile(info)


def found_links(layer, recipe):
    """(path, target) of `links`: one name in `into` for each file that the layer of the list `of` has in a folder `from`. The first of two equal names counts."""
    made = {}
    for link in layer.get("links", []):
        base = f"{SITE}/{link['from']}"
        depth = base.count("/") + 1
        for name in recipe["names_in"](link["of"]):
            parts = name.split("/")
            if len(parts) > depth and fnmatch.fnmatchcase("/".join(parts[:depth]), base) and not name.endswith((".py", ".pyc")):
                made.setdefault("/".join([link["into"], *parts[depth:]]), "/" + name)
    return sorted(made.items())


def changes_layer(layer, recipe, work):
    """Deletes, empties and replaces what lower layers brought, in the words of the OCI layer format."""
    def write(sink):
        with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT, bufsize=1 << 20) as tar:
            def add(name, **fields):
                info = tarfile.TarInfo(name)
                info.mtime, info.mode, data = recipe["epoch"], fields.pop("mode", 0o644), fields.pop("data", b"")
                for key, value in fields.items():
                    setattr(info, key, value)
                info.size = len(data)
                tar.addfile(info, BytesIO(data))
            for path in layer.get("remove", []):
                parent, _, name = path.rpartition("/")
                add(f"{parent}/.wh.{name}" if parent else f".wh.{name}")
            for path in layer.get("empty", []):
                add(path, type=tarfile.DIRTYPE, mode=0o755)
                add(f"{path}/.wh..wh..opq")
            for path, content in layer.get("files", {}).items():
                add(path, data=content.encode(), mode=0o755 if content.startswith("#!") else 0o644)
            for path, target in layer.get("symlinks", {}).items():
                add(path, type=tarfile.SYMTYPE, linkname=target, mode=0o777)
            for path, target in layer.get("hardlinks", {}).items():
                add(path, type=tarfile.LNKTYPE, linkname=target)
            for path, target in found_links(layer, recipe):
                add(path, type=tarfile.SYMTYPE, linkname=target, mode=0o777)
    return write


def requirements(layer, recipe):
    return recipe["folder"] / layer["requirements"].replace("{release}", recipe["release"])


def fill_layer(layer, recipe, work):
    """Made-up content; images/fill.py, which is loaded for this kind alone."""
    import fill
    return fill.write_part(layer, recipe)


KINDS = {"debian": debian_layer, "wheels": wheels_layer, "changes": changes_layer, "fill": fill_layer}

# ---------------------------------------------------------------- how a layer is compressed


def compress_with(command):
    """A compressor that reads the tar on stdin and writes the blob on stdout."""
    def compress(write, blob, work):
        with open(blob, "wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out)
            tar = DigestingFile(process.stdin)
            write(tar)
            process.stdin.close()
            if process.wait():
                sys.exit(f"{command[0]} failed ({process.returncode})")
        return tar
    return compress


def compress_with_go(write, blob, work):
    """umoci compresses with Go's gzip, as the tools around docker and containerd do."""
    image, tar_path = work / "umoci", work / "layer.tar"
    with open(tar_path, "wb") as out:
        tar = DigestingFile(out)
        write(tar)
    run(["umoci", "init", "--layout", image])
    run(["umoci", "new", "--image", f"{image}:x"])
    run(["umoci", "raw", "add-layer", "--image", f"{image}:x", tar_path])
    tar_path.unlink()
    manifest_digest = json.loads((image / "index.json").read_text())["manifests"][0]["digest"]
    manifest = json.loads((image / "blobs" / manifest_digest.replace(":", "/")).read_text())
    os.replace(image / "blobs" / manifest["layers"][0]["digest"].replace(":", "/"), blob)
    shutil.rmtree(image)
    return tar


COMPRESSORS = {"go": compress_with_go, "pigz": compress_with(["pigz", "-n", "-6"]), "pigz-1": compress_with(["pigz", "-n", "-1"]), "gzip": compress_with(["gzip", "-n", "-6"]),
               "gzip-1": compress_with(["gzip", "-n", "-1"]), "igzip": compress_with(["igzip", "-c", "-1"])}
