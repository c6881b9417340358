"""`varve image diff` against `pip list` of both images as umoci unpacks them, and against a comparison of these trees in Python. Real wheels from PyPI; nothing is mounted."""
import json, os, re, subprocess, sys
from pathlib import Path

import layouts
from program import Varve, need_root, need_tools, skip, unpack, work_folder
from scan import scan
from tars import Tar

SITE = "usr/lib/python3/dist-packages"
RELEASES = {"a": ["requests==2.31.0", "urllib3==2.0.7", "certifi==2023.7.22", "idna==3.4", "charset-normalizer==3.3.2", "six==1.16.0", "toml==0.10.2", "attrs==23.1.0"],
            "b": ["requests==2.32.3", "urllib3==2.2.2", "certifi==2023.7.22", "idna==3.7", "charset-normalizer==3.3.2", "six==1.16.0", "packaging==24.0", "attrs==23.1.0"]}
EPOCH = 1_700_000_000


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}:\n found  {found!r}\n wanted {wanted!r}")


def site_tar(work, release):
    """What pip installs, as a layer; times of files fixed, as a build that can be repeated has them."""
    site = work / f"site-{release}"
    done = subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "15", "--no-deps", "--no-compile", "--only-binary", ":all:",
                           "--target", site, *RELEASES[release]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        skip(f"pip cannot install from PyPI here: {done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.returncode}")
    if release == "b":
        with open(site / "six.py", "a") as six:  # the same version, patched in place
            six.write("PATCHED = True\n")
    tar = Tar()
    for path in sorted(site.rglob("*")):
        name = f"{SITE}/{path.relative_to(site)}"
        if path.is_dir():
            tar.dir(name, mtime=EPOCH)
        elif "__pycache__" not in name:
            tar.file(name, path.read_bytes(), mode=path.stat().st_mode & 0o777, mtime=EPOCH)
    return tar.bytes()


def images(work):
    base = Tar().dir("usr").dir("usr/bin").file("usr/bin/python3.11", b"\x7fELF", mode=0o755).symlink("usr/bin/python3", "python3.11").dir("usr/lib").dir("usr/lib/python3.11")
    base.file("usr/lib/python3.11/os.py", b"").dir("usr/lib/python3").dir(SITE).dir("etc").file("etc/gone", b"gone").file("etc/mode", b"m").file("etc/time", b"t")
    base.file("etc/content", b"one").symlink("etc/link", "content").file("etc/type", b"type").file("etc/same", b"same").file("etc/owner", b"o").hardlink("etc/hard", "etc/same")
    base.file("etc/apart", b"apart").hardlink("etc/apart2", "etc/apart").file("etc/moved", b"moved to another name").file("usr/lib/libcudnn.so.8", b"8")
    over = Tar().dir("etc").whiteout("etc/gone").file("etc/mode", b"m", mode=0o600).file("etc/time", b"t", mtime=EPOCH).file("etc/content", b"two").symlink("etc/link", "same")
    over.dir("etc/type").file("etc/type/inside", b"in a folder now").file("etc/owner", b"o", uid=7, gid=8).file("etc/apart2", b"apart").whiteout("etc/moved")
    over.file("etc/elsewhere", b"moved to another name").file("etc/xattr", b"new", records=[(b"SCHILY.xattr.user.color", b"red")]).whiteout("usr/lib/libcudnn.so.8").file("usr/lib/libcudnn.so.9", b"9")
    base, over = base.bytes(), over.bytes()
    config = {"a": {"Env": ["PATH=/usr/bin", "CUDA_VERSION=12.4", "OLD=1"], "Cmd": ["sh"]}, "b": {"Env": ["PATH=/usr/bin", "CUDA_VERSION=12.6"], "Cmd": ["sh"], "Labels": {"who": "me"}}}
    made = {}
    for release, more in (("a", []), ("b", [over])):
        tars = [base, site_tar(work, release), *more]
        layers = [(layouts.zlib_gzip(level=6)(tar, None), tar, layouts.GZIP, None) for tar in tars]
        made[release] = layouts.write_image(work / f"image-{release}", layers, config=config[release])
    return made


def pip_list(tree):
    done = subprocess.run([sys.executable, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check", "--path", Path(tree) / SITE], stdout=subprocess.PIPE, check=True)
    return {re.sub(r"[-_.]+", "-", one["name"]).lower(): one["version"] for one in json.loads(done.stdout)}


def packages_as_pip_says(trees):
    before, after = pip_list(trees["a"]), pip_list(trees["b"])
    return {name: ([before[name]] if name in before else [], [after[name]] if name in after else []) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def files_as_python_sees(before, after):
    """{path: change} of everything but folders that only have another time."""
    found = {}
    for path in before.keys() | after.keys():
        old, new = before.get(path), after.get(path)
        if old is None or new is None:
            if (old or new).type != "dir":
                found[path] = "added" if old is None else "removed"
            continue
        group = lambda entry: min(entry.links) if entry.type != "dir" else b""  # noqa: E731
        if (old.type, old.sha256, old.size, old.target) != (new.type, new.sha256, new.size, new.target):
            found[path] = "content"
        elif (old.mode, old.uid, old.gid, old.rdev, old.xattrs, group(old)) != (new.mode, new.uid, new.gid, new.rdev, new.xattrs, group(new)):
            found[path] = "attributes"
        elif old.mtime_ns != new.mtime_ns and old.type != "dir":
            found[path] = "time"
    return {os.fsdecode(path): change for path, change in found.items() if path != b"."}


def content_as_python_sees(before, after):
    known = {entry.sha256 for entry in before.values() if entry.type == "file" and entry.size}
    whole = shared = 0
    for path, entry in after.items():
        if entry.type == "file" and path == min(entry.links):
            whole += entry.size
            shared += entry.size if entry.sha256 in known else 0
    return {"bytes": whole, "shared_bytes": shared}


def main():
    need_root(), need_tools("umoci")
    with work_folder() as work, Varve(work) as varve:
        made = images(work)
        trees = {release: unpack(image, work / f"bundle-{release}") for release, image in made.items()}
        before, after = scan(trees["a"]), scan(trees["b"])
        varve.index(made["a"])
        diff = varve.json("image", "diff", made["a"], made["b"], "--files", "100000")  # B has no index: it is read

        changed = {one["name"]: (one["before"], one["after"]) for one in diff["packages"] if one["change"] != "rebuilt" and one["source"] == "pip"}
        expect("packages against pip list", changed, packages_as_pip_says(trees))
        expect("patched in place", [(one["name"], one["changed_files"]) for one in diff["packages"] if one["change"] == "rebuilt"], [("six", 1)])
        expect("unchanged", diff["packages_unchanged"], {"pip": 3})

        files = {one["path"]: one["change"] for one in diff["files"]["list"]}
        wanted = files_as_python_sees(before, after)
        expect("files against umoci and Python", sorted(files.items()), sorted(wanted.items()))
        for change in ("added", "removed", "content", "attributes", "time"):
            expect(f"number of {change}", diff["files"][change]["files"], sum(one == change for one in wanted.values()))
            if change not in ("content", "added", "removed"):
                expect(f"the test has files with {change}", change in wanted.values(), True)
        expect("content", diff["content"], {**content_as_python_sees(before, after), "bytecode_bytes": 0})  # there is no bytecode in them
        expect("nothing left out", diff["files"]["left_out"], 0)
        expect("bounded list", len(varve.json("image", "diff", made["a"], made["b"], "--files", "3")["files"]["list"]), 3)

        layers = {release: layouts.manifest_of(image)[1]["layers"] for release, image in made.items()}
        sizes = {release: {layer["digest"]: layer["size"] for layer in found} for release, found in layers.items()}
        expect("shared bytes", diff["shared_bytes"], sum(size for digest, size in sizes["b"].items() if digest in sizes["a"]))
        expect("new bytes", diff["new_bytes"], sum(size for digest, size in sizes["b"].items() if digest not in sizes["a"]))
        expect("layers", diff["layers"], {"before": 2, "after": 3, "reused": 1, "recompressed": 0})
        expect("config", [(one["field"], one["before"], one["after"]) for one in diff["config"]], [("Env CUDA_VERSION", "12.4", "12.6"), ("Env OLD", "1", ""), ("Labels who", "", "me")])
        expect("cuda", [(one["name"], one["before"], one["after"]) for one in diff["cuda"]["libraries"]], [("libcudnn", ["8"], ["9"])])

        notebook = work / "work.py"
        notebook.write_text("import requests, toml, attr, six\nimport numpy\nfrom urllib3.packages import six as s\nimport urllib3.contrib.securetransport\nimport os\n")
        seen = varve.json("image", "diff", made["a"], made["b"], "--notebook", notebook)["notebook"]
        expect("a file that A has and B has not", [(trees[one] / SITE / "urllib3/contrib/securetransport.py").exists() for one in "ab"], [True, False])
        expect("imports that break", [one["name"] for one in seen["lost"]], ["toml", "urllib3.contrib.securetransport"])
        expect("in neither", [one["name"] for one in seen["never"]], ["numpy"])
        expect("imported", sorted(one["name"] for one in seen["direct"]), ["requests", "six", "toml", "urllib3"])
        expect("needed by those", [one["name"] for one in seen["transitive"]], ["idna"])
        expect("unchanged", (seen["unchanged_direct"], seen["unchanged_transitive"]), (1, 2))

        folder = work / "nbs"
        folder.mkdir()
        (folder / "latin1.py").write_bytes("# -*- coding: latin-1 -*-\nname = 'é'\nimport toml\n".encode("latin-1"))
        (folder / "other.py").write_text("import nowhere\n")
        text = varve.run("image", "diff", made["a"], made["b"], "--notebook", folder, check=True).stdout.decode()
        expect("a folder's notebooks are named", [f"toml  ({folder}/latin1.py, line 3)" in text, f"nowhere  ({folder}/other.py, line 1)" in text, "read" in text.split("\nfor ")[1].split("these imports")[0]], [True, True, False])

        expect("exit status", varve.run("image", "diff", made["a"], made["b"]).returncode, 0)
        expect("--exit-code", varve.run("image", "diff", "--exit-code", made["a"], made["b"]).returncode, 3)
        expect("--exit-code of one and the same", varve.run("image", "diff", "--exit-code", made["a"], made["a"]).returncode, 0)
        text = varve.run("image", "diff", made["a"], made["b"], check=True).stdout.decode()
        expect("one screen", len(text.splitlines()) <= 40, True)
        broken = varve.run("image", "diff", made["a"], "oci:" + str(work / "not-there"))
        expect("what is not there", (broken.returncode, b"not-there" in broken.stderr), (1, True))
        missing = varve.run("image", "diff", made["a"], made["b"], "--notebook", work / "no.ipynb")
        expect("a notebook that is not there", (missing.returncode, b"no such notebook" in missing.stderr), (1, True))
    print(f"{len(wanted)} changed files and {len(changed) + 1} packages as pip, umoci and Python see them")


if __name__ == "__main__":
    main()
