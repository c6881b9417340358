"""Images with this machine's Python and distributions made up for the purpose, changed and packed in any way: what gates are tried on."""
import json, sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "oracle"), str(HERE.parent / "howto")]
import layouts, program, tars  # noqa: E402
import python_image  # noqa: E402

SITE = "usr/lib/python3/dist-packages"


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def distribution(name, version, files, requires=()):
    """path below the site folder -> content, with what pip leaves beside it."""
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(f"Requires-Dist: {line}\n" if ":" not in line else f"{line}\n" for line in requires)
    files = {**{path: text.encode() for path, text in files.items()}, f"{info}/METADATA": metadata.encode(), f"{info}/INSTALLER": b"pip\n"}
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"]).encode()
    return files


# lab uses plots always, and soup where it is there; soup can also be asked for as an extra.
DISTRIBUTIONS = {
    "lab": distribution("lab", "2.0", {"lab/__init__.py": "import plots\ntry:\n    import soup\nexcept ImportError:\n    soup = None\n", "lab/deep.py": "import probes\n"},
                        ["plots>=1.0", "Provides-Extra: web", "soup; extra == 'web'"]),
    "plots": distribution("plots", "1.2", {"plots/__init__.py": "colour = 'blue'\n"}),
    "soup": distribution("soup", "4.12.3", {"soup/__init__.py": "class Soup: pass\n", "soup/element.py": "from soup import Soup\n"}, ["taste"]),
    "taste": distribution("taste", "0.3", {"taste.py": "bitter = 1\n"}),
    "probes": distribution("probes", "1.0", {"probes/__init__.py": "import importlib.util\nHAS_TASTE = importlib.util.find_spec('taste') is not None\n"}),
    "web-app": distribution("web-app", "1.0", {"web_app/__init__.py": "import lab\n"}, ["lab[web]"]),
    "broken": distribution("broken", "1.0", {"broken/__init__.py": "raise RuntimeError('as ever: ' + str(id(object())))\n"}),
    "caller": distribution("caller", "1.0", {"caller/__init__.py": "import socket\nsocket.create_connection(('192.0.2.1', 9), timeout=5)\n"}),
    "crash": distribution("crash", "1.0", {"crash/__init__.py": "ok = 1\n"}),
    "slow": distribution("slow", "1.0", {"slow/__init__.py": "ok = 1\n"}),
    "nvidia-cuda-runtime-cu12": distribution("nvidia-cuda-runtime-cu12", "12.4.127", {"nvidia/cuda_runtime/lib/libcudart.so.12": "of CUDA by its name\n"}),
    "part-one": distribution("part-one", "1.0", {"parts/one/__init__.py": "x = 1\n"}),
    "part-two": distribution("part-two", "1.0", {"parts/two/__init__.py": "x = 2\n"}),
}


def tree(names=None, changes=None):
    """path -> content of the upper part of an image. `changes`: path -> content, None takes it away."""
    files = {path: content for name in names or DISTRIBUTIONS for path, content in DISTRIBUTIONS[name].items()}
    for path, content in (changes or {}).items():
        if content is None:
            del files[path]
        else:
            files[path] = content.encode()
    return files


class Images:
    """One layout folder with a base that all images share."""

    def __init__(self, folder):
        self.folder = folder
        if not Path(python_image.PYTHON).exists():
            program.skip(f"this machine has no {python_image.PYTHON}")
        base = tars.Tar().dir("bin").dir("tmp", mode=0o1777).dir("etc").file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n").file("etc/group", b"root:x:0:\n")
        for path, (content, mode) in sorted(python_image.python_files().items()):
            base.file(path, content, mode=mode)
        base = base.bytes()
        self.base = (layouts.zlib_gzip(level=1)(base, None), base, layouts.GZIP, None)

    def write(self, tag, files, layers=1, mode=0o644, env=(), gone=()):
        """`files`: below the site folder, or from the root with a slash. `layers`: how many the upper part is cut into. `gone`: paths of the base that are deleted."""
        paths = sorted(files)
        parts = [paths[i * len(paths) // layers:(i + 1) * len(paths) // layers] for i in range(layers)]
        uppers = []
        for part in parts:
            tar = tars.Tar()
            for path in gone:
                tar.whiteout(path)
            for path in part:
                tar.file(path[1:] if path.startswith("/") else f"{SITE}/{path}", files[path], mode=mode)
            tar = tar.bytes()
            uppers.append((layouts.zlib_gzip(level=6)(tar, None), tar, layouts.GZIP, None))
        index = self.folder / "index.json"
        kept = json.loads(index.read_text())["manifests"] if index.exists() else []
        image = layouts.write_image(self.folder, [self.base, *uppers], tag=tag,
                                    config={"Cmd": ["python3"], "Entrypoint": ["/bin/false"], "Env": ["PATH=/usr/bin:/bin", *env]})
        written = json.loads(index.read_text())  # with this image alone
        written["manifests"] += [one for one in kept if one.get("annotations", {}).get("org.opencontainers.image.ref.name") != tag]
        index.write_text(json.dumps(written))
        return image


def digest_of(reference):
    folder, _, tag = reference.removeprefix("oci:").rpartition(":")
    index = json.loads(Path(folder, "index.json").read_text())
    found = [one["digest"] for one in index["manifests"] if one.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag]
    return found[0] if found else None


def write_plan(path, image, verdicts, waivers=(), digest=None, distributions=None):
    """A plan with these verdicts; all other distributions are hot."""
    rows = []
    for name, files in sorted((distributions or DISTRIBUTIONS).items()):
        version = next(part for part in files if part.endswith("/METADATA")).rpartition("-")[2].partition(".dist-info")[0]
        rows.append({"name": name, "version": version, "source": "pip", "verdict": verdicts.get(name, "hot"), "reasons": [{"kind": "used", "by": "", "text": "for the test"}],
                     "bytes": 1, "compressed_bytes": 1, "unique_compressed_bytes": 1, "sessions": 0, "users": 0, "users_at_most": 0, "bound": 0.5, "unused_since": None, "imports": []})
    plan = {"format": "varve-plan", "version": 1, "image": digest or digest_of(image), "reference": image, "window": {"first": "2026-08-01", "last": "2026-11-01"},
            "made_on": "2026-11-02", "parameters": {}, "sessions": 100, "cold_bytes": 1, "saved_bytes": 1, "affected_users": 0,
            "forecast": {"basis": "", "sessions": 0, "touching": 0, "expected_rate": 0.0, "at_most": 0.0, "held_out_expected": 0.0, "held_out_seen": 0.0, "judged": 0},
            "unsure": [], "waivers": [{"gate": gate, "reason": "for the test", "owner": "tests"} for gate in waivers], "verdicts": rows, "affected": []}
    path.write_text(json.dumps(plan))
    return path


def gates_of(varve, *arguments):
    """(exit status, name -> gate)."""
    done = varve.run("prune", "check", "--json", *arguments)
    expect(done.returncode in (0, 3), f"prune check {arguments}: exit {done.returncode}: {done.stderr.decode(errors='replace')}")
    answer = json.loads(done.stdout)
    expect(answer["ok"] == (done.returncode == 0), answer)
    return done.returncode, {gate["name"]: gate for gate in answer["gates"]}


def failed(gates):
    return sorted(name for name, gate in gates.items() if not gate["ok"])


def finding(gate, *words):
    """True if one finding has all these words."""
    return any(all(word in text for word in words) for text in gate["findings"])
