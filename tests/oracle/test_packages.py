"""`varve packages` against Python itself: importlib.metadata, packages_distributions() and `pip list`, run inside the environments that it reads.

test_packages.py                             builds small environments of real wheels from PyPI
test_packages.py --env DIR                   a virtual environment that is there already, however large
test_packages.py --image IMAGE --mount DIR   an image, and the folder where it is mounted: its own Python is asked inside (chroot: as root)
"""
import argparse, io, json, os, shutil, subprocess, sys, tarfile, tempfile
from pathlib import Path

from program import Varve, skip

WHEELS = ["attrs", "six", "requests", "google-cloud-core", "google-api-core", "google-auth", "googleapis-common-protos", "zope.interface", "zope.event",
          "backports.tarfile", "jaraco.functools", "ruamel.yaml", "PyYAML", "python-dateutil", "importlib_metadata", "zipp", "typing_extensions", "setuptools", "wheel", "lazy-importer"]

# Runs inside the environment. Names as the interpreter's own rules have them, and by those of Python 3.12 where the backport is installed.
ASK = r"""
import json, sys, importlib.metadata as own
def ask(metadata):
    found = []
    for one in metadata.distributions():
        files = one.files
        try: declared = metadata._top_level_declared(one)
        except AttributeError: declared = (one.read_text('top_level.txt') or '').split()
        names = list(declared or metadata._top_level_inferred(one))
        scripts = sorted(e.name for e in one.entry_points if e.group in ('console_scripts', 'gui_scripts'))
        present = [str(f.locate().resolve()) for f in files or [] if f.locate().is_file()]
        found.append(dict(name=one.metadata['Name'], version=one.version, record=str(one._path), site=str(one._path.parent), top_level=sorted(names),
                          requires=one.requires or [], scripts=scripts, has_files=files is not None, present=present,
                          bytes=sum(__import__('os').path.getsize(p) for p in set(present))))
    return dict(path=[p for p in sys.path if p], version=sys.version.split()[0], found=found)
answer = dict(own=ask(own))
try:
    import importlib_metadata
    answer['newer'] = ask(importlib_metadata)
except ImportError: pass
# Whose is each module that is really there: by the file that an import would load.
import importlib.util
print(json.dumps(answer))
"""


def normalized(name):
    import re
    return re.sub(r"[-_.]+", "-", name).lower()


class Comparison:
    """Collects every difference; at the end none may be left that nobody explained."""

    def __init__(self, what, explained=()):
        self.what, self.explained, self.differences, self.compared = what, set(explained), [], 0

    def equal(self, subject, field, ours, theirs):
        self.compared += 1
        if ours != theirs and subject not in self.explained:
            self.differences.append(f"{subject}: {field}: varve {ours!r}, Python {theirs!r}")

    def finish(self):
        for line in self.differences[:40]:
            print(f"  DIFFERENT {line}")
        print(f"{self.what}: {self.compared} comparisons, {len(self.differences)} differences", flush=True)
        return not self.differences


def importable(names):
    """importlib.metadata gives "..", "bin" of "../../bin/x.py" and names with "-" too: nothing to import."""
    return sorted({name for name in names if name.isidentifier()})


def ours_of(document, root):
    return {package["record"]: package for package in document["packages"] if not package["vendored_by"]}


def compare(varve, target, python, root, explained=()):
    """`target` is what varve reads, `python` the command that asks inside, `root` where the paths begin that it answers with."""
    asked = json.loads(subprocess.run([*python, "-I", "-c", ASK], stdout=subprocess.PIPE, check=True).stdout)
    pip = json.loads(subprocess.run([*python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"], stdout=subprocess.PIPE, check=True).stdout)
    document = varve.json("packages", target)
    root = os.path.realpath(root)
    prefix = root if root.endswith("/") else root + "/"
    mine = ours_of(document, root)
    comparison = Comparison(str(target), explained)
    below = [one for one in asked["own"]["found"] if os.path.realpath(one["record"]).startswith(prefix)]
    for one in below:
        record = os.path.relpath(os.path.realpath(one["record"]), root)
        package = mine.get(record)
        if package is None:
            comparison.equal(one["name"], "record " + record, None, record)
            continue
        comparison.equal(one["name"], "name", package["name"], one["name"])
        comparison.equal(one["name"], "version", package["version"], one["version"])
        comparison.equal(one["name"], "scripts", sorted(script["name"] for script in package["scripts"]), one["scripts"])
        comparison.equal(one["name"], "number of needs", len([need for need in package["requires"] if need["source"] == "pip"]), len(one["requires"]))
        comparison.equal(one["name"], "top-level names", importable(package["top_level"]), importable(one["top_level"]))
    # pip hides what another folder's copy shadows, and itself lists each name once.
    on_path = {normalized(package["name"]): package["version"] for package in mine.values() if package["source"] != "dpkg" or package["record"].endswith("-info")}
    for one in pip:
        comparison.equal(one["name"], "pip list", on_path.get(normalized(one["name"])), one["version"])
    inspected = subprocess.run([*python, "-m", "pip", "inspect", "--disable-pip-version-check"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for one in json.loads(inspected.stdout)["installed"] if inspected.returncode == 0 else []:
        package = mine.get(os.path.relpath(os.path.realpath(one["metadata_location"]), root))
        if package is None:
            continue  # counted above
        subject = one["metadata"]["name"]
        comparison.equal(subject, "installer", package["installer"], one.get("installer", package["installer"]))
        comparison.equal(subject, "requested", package["requested"], one.get("requested", False))
        comparison.equal(subject, "editable", package["editable"], bool(one.get("direct_url", {}).get("dir_info", {}).get("editable")))
    records = {os.path.relpath(os.path.realpath(one["record"]), root) for one in below}
    for record, package in mine.items():
        if record.endswith((".dist-info", ".egg-info")):
            comparison.equal(package["name"], "seen by Python", record in records, True)
    return comparison, document, asked


def compare_newer_rules(varve, target, asked, root):
    """What 3.12 would say: the same folder seen by an interpreter of that version."""
    work = Path(tempfile.mkdtemp(dir=varve.work))
    site = next(path for path in asked["newer"]["path"] if path.endswith("site-packages"))
    image = work / "image"
    (image / "usr/local/bin").mkdir(parents=True)
    (image / "usr/local/lib/python3.12").mkdir(parents=True)
    (image / "usr/local/bin/python3.12").write_bytes(b"\x7fELF")
    (image / "usr/local/lib/python3.12/os.py").write_text("")
    subprocess.run(["cp", "-a", site, image / "usr/local/lib/python3.12/site-packages"], check=True)
    document = varve.json("packages", image)
    comparison = Comparison("names by the rules of Python 3.12")
    mine = {os.path.basename(package["record"]): package for package in document["packages"] if not package["vendored_by"]}
    for one in asked["newer"]["found"]:
        package = mine.get(os.path.basename(one["record"]))
        if package and package["record"].endswith(".dist-info"):
            # "../../../bin/x" leads out of this copy: it lacks the scripts.
            comparison.equal(one["name"], "top-level names", importable(package["top_level"]), importable(one["top_level"]))
    shutil.rmtree(work)
    return comparison


def compare_owners(document, asked, root, explained=()):
    """Each module file that a RECORD lists: the longest prefix of its dotted name must lead to its distribution."""
    owners = {}
    for package in document["packages"]:
        for name in package["imports"]:
            owners.setdefault(name, set()).add(package["record"])
    comparison = Comparison("whose each module is", explained)
    root = os.path.realpath(root)
    listed = {}
    for one in asked["own"]["found"]:
        site = os.path.realpath(one["site"])
        for path in one["present"]:
            if path.startswith(site + "/") and path.endswith(".py"):
                parts = os.path.relpath(path, site)[:-3].split("/")
                if all(part.isidentifier() for part in parts) and parts != ["__init__"]:
                    listed.setdefault(".".join(parts[:-1] if parts[-1] == "__init__" else parts), set()).add(os.path.relpath(os.path.realpath(one["record"]), root))
    namespaces = {name.rsplit(".", 1)[0] for name in owners if "." in name}
    for name, expected in listed.items():
        longest = name
        while longest and longest not in owners:
            longest = longest.rpartition(".")[0]
        found = owners.get(longest, set())
        if not found and any(space == name or space.startswith(name + ".") for space in namespaces):
            continue  # the __init__ of a namespace, which is nobody's alone
        comparison.equal(name, "distribution", bool(found & expected), True)
    return comparison


def pip_install(python, *arguments):
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "15", *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode == 0, done.stdout.decode(errors="replace")


def build_small(work):
    """A virtual environment of real wheels, one editable install by finder, one by .pth, one egg-info."""
    env = work / "venv"
    subprocess.run([sys.executable, "-m", "venv", env], check=True)
    python = env / "bin/python"
    installed, said = pip_install(python, "--upgrade", "--only-binary", ":all:", "--no-deps", *WHEELS)
    if not installed:
        skip("PyPI is not reachable: " + said.strip().splitlines()[-1][:200])
    for name, layout in (("flatproj", ""), ("srcproj", "src")):
        project = env / name
        package = project / layout / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("x = 1\n")
        where = f"[tool.setuptools.packages.find]\nwhere = ['{layout or '.'}']\n"
        (project / "pyproject.toml").write_text(f"[build-system]\nrequires = ['setuptools']\nbuild-backend = 'setuptools.build_meta'\n[project]\nname = '{name}'\nversion = '0.1'\ndependencies = ['six']\n{where}")
        done, said = pip_install(python, "--no-deps", "--no-build-isolation", "-e", str(project))
        if not done:
            raise AssertionError(said)
    site = next((env / "lib").glob("python3*/site-packages"))
    old = site / "oldstyle-0.3-py3.egg-info"
    old.mkdir()
    (old / "PKG-INFO").write_text("Metadata-Version: 1.1\nName: oldstyle\nVersion: 0.3\n")
    (old / "top_level.txt").write_text("oldstyle\n")
    (old / "requires.txt").write_text("six\n\n[more]\nattrs>=20\n\n[:python_version<'3']\nenum34\n")
    (old / "SOURCES.txt").write_text("setup.py\noldstyle.py\n")
    (site / "oldstyle.py").write_text("y = 2\n")
    (site / "nobodys.py").write_text("# copied here by hand\n")
    return env, python


def make_conda(work, env):
    """A prefix as conda makes it, of the same wheels: conda-meta lists the files of each, one under another name, and one package without Python."""
    prefix = work / "conda"
    site = next((env / "lib").glob("python3*/site-packages"))
    version = site.parent.name
    (prefix / "bin").mkdir(parents=True)
    (prefix / "conda-meta").mkdir()
    shutil.copytree(site, prefix / "lib" / version / "site-packages", symlinks=True)
    (prefix / "lib" / version / "os.py").write_text("")
    (prefix / "bin" / version).write_bytes(b"\x7fELF")
    (prefix / "lib/libz.so.1").write_bytes(b"z" * 1000)
    expected = {}
    for info in sorted((prefix / "lib" / version / "site-packages").glob("*.dist-info")):
        record = (info / "RECORD").read_text().splitlines()
        files = [f"lib/{version}/site-packages/{line.split(',')[0]}" for line in record if not line.startswith((".", '"'))]
        name, number = info.name[: -len(".dist-info")].split("-")[:2]
        package = {"requests": "py-requests"}.get(name, normalized(name))
        (prefix / "conda-meta" / f"{package}-{number}-py_0.json").write_text(json.dumps({
            "name": package, "version": number, "build": "py_0", "build_number": 0, "channel": "conda-forge", "subdir": "noarch", "noarch": "python",
            "depends": ["python >=3.8", "libzlib >=1.2"], "files": files,
            "paths_data": {"paths_version": 1, "paths": [{"_path": path, "path_type": "hardlink", "size_in_bytes": 1} for path in files[:1]]}}))
        metadata = dict(line.split(": ", 1) for line in (info / "METADATA").read_text(errors="replace").split("\n\n")[0].splitlines() if line.startswith(("Name: ", "Version: ")))
        expected[metadata["Name"]] = (metadata["Version"], "conda")
    (prefix / "conda-meta/libzlib-1.3.1-0.json").write_text(json.dumps({"name": "libzlib", "version": "1.3.1", "build": "0", "depends": [], "files": ["lib/libz.so.1"]}))
    (prefix / "conda-meta/history").write_text("==> 2024-01-01 00:00:00 <==\n")
    expected["libzlib"] = ("1.3.1", "conda")
    return prefix, expected


def check_conda(varve, work, env):
    prefix, expected = make_conda(work, env)
    document = varve.json("packages", prefix)
    comparison = Comparison("a conda prefix")
    mine = {}
    for package in document["packages"]:
        if not package["vendored_by"]:
            comparison.equal(package["name"], "listed once", package["name"] in mine, False)
            mine[package["name"]] = package
    for name, (version, source) in expected.items():
        package = mine.get(name, {})
        comparison.equal(name, "version and source", (package.get("version"), package.get("source")), (version, source))
    comparison.equal("requests", "package", mine["requests"]["package"], "py-requests")
    comparison.equal("six", "needs libzlib", [need["satisfied_by"] for need in mine["six"]["requires"] if need["name"] == "libzlib"], ["1.3.1"])
    return comparison


def check_layers(varve, work, env):
    """The same environment in the layers of an image: with and without an index, the answers are those of the folder."""
    import layouts
    site = next((env / "lib").glob("python3*/site-packages"))

    def tar_of(add):
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w", format=tarfile.PAX_FORMAT) as tar:
            add(tar)
        return sink.getvalue()

    def file(tar, name, content=b""):
        entry = tarfile.TarInfo(name)
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))

    base = tar_of(lambda tar: tar.add(env, "opt/venv"))
    at = f"opt/venv/{site.relative_to(env)}"

    def upper(tar):
        six = next(site.glob("six-*.dist-info")).name
        file(tar, f"{at}/.wh.{six}")
        file(tar, f"{at}/.wh.six.py")
        file(tar, f"{at}/attr/__init__.py", (site / "attr/__init__.py").read_bytes())  # the very same
        file(tar, f"{at}/yaml/__init__.py", b"# another\n")
        file(tar, f"{at}/zope/event/.wh..wh..opq")
    layout = work / "oci"
    layers = [(base, layouts.GZIP, layouts.zlib_gzip()), (tar_of(upper), layouts.ZSTD, layouts.zstd_frames(1 << 20))]
    write_layout(layout, layers, work)
    image = f"oci:{layout}:test"
    streamed = varve.json("packages", image)
    varve.index(image)
    indexed = varve.json("packages", image)
    comparison = Comparison("an image with and without its index")
    for document in (streamed, indexed):
        waste = {(row["why"], row["layer"], row["by_layer"]): row for row in document["waste"]}
        comparison.equal("waste", "kinds", sorted(waste), [("deleted", 0, 1), ("duplicated", 0, 1), ("replaced", 0, 1)])
        names = {package["name"] for package in document["packages"]}
        comparison.equal("six", "gone", "six" in names, False)
        comparison.equal("image", "distributions", len(names) > 15, True)
    drop = ("compressed_bytes",)
    plain = lambda document: [{key: value for key, value in package.items() if key not in drop} for package in document["packages"]]
    comparison.equal("image", "packages", plain(streamed), plain(indexed))
    comparison.equal("image", "flags", (streamed["indexed"], indexed["indexed"]), (False, True))
    for ours, theirs in zip(streamed["packages"], indexed["packages"]):
        close = abs(ours["compressed_bytes"] - theirs["compressed_bytes"]) <= 0.25 * max(theirs["compressed_bytes"], 40_000)
        comparison.equal(ours["name"], "compressed bytes nearly", close, True)
    total = sum(layer["compressed_bytes"] for layer in indexed["layers"])
    shares = sum(package["compressed_bytes"] for package in indexed["packages"])
    comparison.equal("image", "shares within the layers", 0.5 * total < shares <= total, True)
    return comparison


def write_layout(layout, layers, work):
    import hashlib
    blobs = layout / "blobs/sha256"
    blobs.mkdir(parents=True)

    def put(data, media_type):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(data)}
    descriptors = [put(compress(tar, work), media) for tar, media, compress in layers]
    config = {"os": "linux", "architecture": "amd64", "config": {"Env": ["PATH=/opt/venv/bin:/usr/bin"]},
              "history": [{"created_by": f"step {i}"} for i in range(len(layers))],
              "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(tar).hexdigest() for tar, _, _ in layers]}}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": descriptors,
                "config": put(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json")}
    entry = put(json.dumps(manifest).encode(), manifest["mediaType"])
    entry["annotations"] = {"org.opencontainers.image.ref.name": "test"}
    (layout / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (layout / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


def check_commands(varve, env):
    comparison = Comparison("what the command says and how it ends")
    check = varve.run("packages", "--check", env)
    pip = subprocess.run([env / "bin/python", "-m", "pip", "check", "--disable-pip-version-check"], stdout=subprocess.PIPE)
    text = check.stdout.decode()
    comparison.equal("--check", "exit status", check.returncode, 3)
    for line in pip.stdout.decode().splitlines():
        if " requires " in line and "not installed" in line:  # "requests 2.1 requires idna, which is not installed."
            name, needed = line.split()[0], line.split(" requires ")[1].split(",")[0]
            said = any(normalized(row.split(" ")[0]) == normalized(name) and " needs " + needed in row.replace("_", "-") for row in text.splitlines())
            comparison.equal(name, f"pip check: {needed}", said, True)
    table = varve.run("packages", env, "--sort", "size", "--unowned").stdout.decode()
    comparison.equal("table", "has", all(word in table for word in ("NAME", "requests", "editable", "UNOWNED")), True)
    why = varve.run("packages", env, "--why", "attr").stdout.decode()
    comparison.equal("--why", "by import name", why.startswith("attrs "), True)
    comparison.equal("--why", "unknown", varve.run("packages", env, "--why", "no-such-thing").returncode, 1)
    comparison.equal("usage", "wrong sort", varve.run("packages", env, "--sort", "age").returncode, 2)
    document = varve.json("packages", env)
    editable = sorted(package["name"] for package in document["packages"] if package["editable"])
    comparison.equal("editable", "found", editable, ["flatproj", "srcproj"])
    owned = {package["name"]: package["imports"] for package in document["packages"]}
    comparison.equal("google-api-core", "imports", owned["google-api-core"], ["google.api_core"])
    comparison.equal("zope.event", "imports", owned["zope.event"], ["zope.event"])
    comparison.equal("attrs", "imports", owned["attrs"], ["attr", "attrs"])
    comparison.equal("nobodys.py", "unowned", any(folder["path"].endswith("site-packages") for folder in document["unowned"]), True)
    return comparison


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--env", help="a virtual environment that is there already, however large")
    parser.add_argument("--image", help="an image; --mount says where its tree is")
    parser.add_argument("--mount", help="where the image is mounted")
    parser.add_argument("--difference", action="append", default=[], help="a distribution whose difference is explained in docs/guide/packages.md")
    arguments = parser.parse_args()
    if sys.version_info < (3, 11):
        skip("importlib.metadata of Python 3.11 is the judge")
    with tempfile.TemporaryDirectory(prefix="varve-packages-") as work, Varve(work) as varve:
        work = Path(work)
        small = not arguments.env and not arguments.image
        if small:
            env, python = build_small(work)
            target, root, python = env, env, [python]
        elif arguments.env:
            target = root = Path(arguments.env).absolute()
            python = [target / "bin/python"]
        else:
            varve.environment.update({name: value for name, value in os.environ.items() if name == "VARVE_ROOT"})
            target, root, python = arguments.image, "/", ["chroot", arguments.mount, "/usr/bin/env", "python3"]
        comparison, document, asked = compare(varve, target, python, root, arguments.difference)
        varve.environment["VARVE_ROOT"] = str(varve.root)  # the daemon that holds the mount is not ours to end
        results = [comparison, compare_owners(document, asked, root, arguments.difference)]
        if small:
            results.append(compare_newer_rules(varve, env, asked, env))
            results += [check_commands(varve, env), check_conda(varve, work, env), check_layers(varve, work, env)]
        kinds = {}
        for package in document["packages"]:
            kinds[package["source"]] = kinds.get(package["source"], 0) + 1
        print(f"{len(document['packages'])} records {kinds} in {document['seconds']:.2f} s")
        good = [one.finish() for one in results]
        sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
