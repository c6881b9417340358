#!/usr/bin/python3
"""Start-up packs as a pipeline makes them: learnt from starts of a real Python, the same each time, held against the unpacked tree by other tools, carried to a
rebuilt image; and images whose starts hang, fail, chatter or lie."""
import hashlib, json, os, py_compile, random, signal, subprocess, sys, tempfile, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "prune"))
from images import Images, distribution, expect, write_plan  # noqa: E402
import layouts, program, tars  # noqa: E402

SITE = "usr/lib/python3/dist-packages"
PACK, LIST = "application/vnd.varve.pack.v1+zstd", "application/vnd.varve.start-packs.v1+zstd"


def source(seed, size=150_000, more=""):
    """A module of noise, all of it code."""
    noise = random.Random(seed)
    return more + "x = [\n" + "".join(f"    '{noise.randbytes(40).hex()}',\n" for _ in range(size // 90)) + "]\n"


def compiled(path, text, when):
    """What Python itself leaves beside a source of that time."""
    with tempfile.TemporaryDirectory() as folder:
        file, made = Path(folder) / "source.py", Path(folder) / "made.pyc"
        file.write_text(text)
        os.utime(file, (when, when))
        py_compile.compile(str(file), str(made), dfile="/" + path, doraise=True, invalidation_mode=py_compile.PycInvalidationMode.TIMESTAMP)
        return made.read_bytes()


LIBRARIES = {
    "base-lib": {"baselib/__init__.py": source(1)},
    "upper-lib": {"upperlib/__init__.py": source(2, more="import baselib\n"), "upperlib/data.bin": ""},
    "tiny": {"tiny.py": "ok = 1\n"},
}
HOSTILE = {
    **LIBRARIES,
    "broken": {"broken.py": "import sys\nprint('\\x1b[31mfirst')\nraise RuntimeError('as \\x1b[31m ever')\n"},
    "hangs": {"hangs.py": "import time\ntime.sleep(3600)\n"},
    "chatter": {"chatter/__init__.py": source(3, more="import sys\nfor _ in range(3000): print('{\"done\": true}\\n' * 300)\nsys.stderr.write('\\0\\xff' * 100000)\n"),
                "chatter/more.py": source(4)},
    "writer": {"writer/__init__.py": source(5, more="import os\nfor place in ('/etc/passwd', __file__):\n    open(place, 'w').write('gone')\n")},
}


def write(images, tag, when, libraries=LIBRARIES, layers=1, first=(), command="pass"):
    """An image built at that time: every file and what was compiled of it is of then."""
    files = dict(first)
    for name, modules in libraries.items():
        files.update(distribution(name, "1.0", modules))
        for path, text in modules.items():
            if path.endswith(".py"):
                folder, _, file = path.rpartition("/")
                version = f"{sys.version_info.major}{sys.version_info.minor}"
                files["/".join(filter(None, (folder, "__pycache__", file.removesuffix("py") + f"cpython-{version}.pyc")))] = compiled(f"{SITE}/{path}", text, when)
    paths, uppers = sorted(files), []
    for i in range(layers):
        tar = tars.Tar()
        for path in paths[i * len(paths) // layers:(i + 1) * len(paths) // layers]:
            tar.file(f"{SITE}/{path}", files[path], mtime=when)
        tar = tar.bytes()
        uppers.append((layouts.zlib_gzip(level=6)(tar, None), tar, layouts.GZIP, None))
    return layouts.write_image(images / tag, [BASE, *uppers], tag=tag, config={"Cmd": ["python3", "-c", command], "Env": ["PATH=/usr/bin:/bin"]})


def learn(varve, image, *options, budget="100%", command=()):
    return varve.json("profile", "learn", image, "--budget", budget, "--jobs", 2, *options, "--json", *(("--", *command) if command else ()))


def named(answer):
    return {group["name"]: group for group in answer["groups"]}


def index_blobs(image):
    """(media type, digest) of the newest index of the image that lies beside it."""
    folder = Path(image.removeprefix("oci:").rpartition(":")[0])
    found = []
    for manifest in json.loads((folder / "index.json").read_text())["manifests"]:
        document = json.loads((folder / "blobs" / manifest["digest"].replace(":", "/")).read_bytes())
        if document.get("artifactType") == "application/vnd.varve.index.v1":
            found.append((int(document.get("annotations", {}).get("dev.varve.generation", 0)), [(layer["mediaType"], layer["digest"]) for layer in document["layers"]]))
    return max(found)[1]


# ---- the list of packs, read by its page (docs/formats/start-packs.md) ----

class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value


def read_list(data):
    reader = Reader(data)
    expect(reader.take(8) == b"VRVPCK1\n", "the list begins with its magic")
    layers = ["sha256:" + reader.take(32).hex() for _ in range(reader.varint())]
    ends = [0] * len(layers)

    def place():
        layer, distance = reader.varint(), reader.varint()
        offset = ends[layer] + (distance >> 1 ^ -(distance & 1))
        length = reader.varint()
        ends[layer] = offset + length
        return layers[layer], offset, length

    groups = {}
    for _ in range(reader.varint()):
        kind, name = reader.varint(), None
        name = reader.take(reader.varint()).decode()
        group = {"kind": kind, "trigger": place(), "blob": reader.take(32).hex(), "stream": reader.take(32).hex()}
        group["frames"] = [(reader.varint(), reader.take(32).hex(), reader.take(32).hex()) for _ in range(reader.varint())]
        group["ranges"] = [place() for _ in range(reader.varint())]
        group["literals"] = [(where := place(), reader.take(where[2])) for _ in range(reader.varint())]
        groups[name] = group
    expect(reader.at == len(data), "nothing is behind the list")
    return groups


def packs_hold_what_the_layers_have(image):
    """By zstd(1) and gzip(1)."""
    folder = Path(image.removeprefix("oci:").rpartition(":")[0])
    blob = lambda digest: folder / "blobs/sha256" / digest.removeprefix("sha256:")  # noqa: E731
    _, manifest = layouts.manifest_of(image)
    streams = {layer["digest"]: subprocess.run(["zstd" if layer["mediaType"].endswith("zstd") else "gzip", "-dqc", blob(layer["digest"])], check=True, stdout=subprocess.PIPE).stdout for layer in manifest["layers"]}
    listed = [digest for kind, digest in index_blobs(image) if kind == LIST]
    groups = read_list(subprocess.run(["zstd", "-dqc", blob(listed[0])], check=True, stdout=subprocess.PIPE).stdout)
    expect({group["blob"] for group in groups.values()} == {digest.removeprefix("sha256:") for kind, digest in index_blobs(image) if kind == PACK}, "the index names the packs of the list")
    for name, group in groups.items():
        packed = blob(group["blob"]).read_bytes()
        stream = subprocess.run(["zstd", "-dqc", blob(group["blob"])], check=True, stdout=subprocess.PIPE).stdout
        expect(hashlib.sha256(packed).hexdigest() == group["blob"] and hashlib.sha256(stream).hexdigest() == group["stream"], f"{name}: digests")
        expect(stream == b"".join(streams[layer][offset:offset + length] for layer, offset, length in group["ranges"]), f"{name}: what the layers have, in order")
        at = 0
        for number, (size, before, after) in enumerate(group["frames"]):
            expect(hashlib.sha256(packed[at:at + size]).hexdigest() == before, f"{name}: frame {number}")
            expect(hashlib.sha256(stream[number << 18:(number + 1) << 18]).hexdigest() == after, f"{name}: frame {number}, decoded")
            at += size
        expect(at == len(packed), f"{name}: nothing is behind the last frame")
        for (layer, offset, length), content in group["literals"]:
            expect(streams[layer][offset:offset + length] == content and length == 8, f"{name}: literals")
    return groups


def learnt_twice_is_the_same(varve, image):
    first = learn(varve, image, "--top", 3, command=("python3", "-c", "import upperlib, tiny"))
    groups = named(first)
    expect({"baselib", "upperlib"} <= set(groups) and "tiny" not in groups, f"what reads enough: {groups.keys()}")
    expect(groups["baselib"]["trigger"].startswith(f"/{SITE}/baselib/__pycache__/__init__"), groups["baselib"])
    expect(groups["upperlib"]["stream_bytes"] < 1.5 * groups["baselib"]["stream_bytes"], f"what baselib's pack brings is not in upperlib's: {groups}")
    programs = [group for group in first["groups"] if group["kind"] == "program"]
    expect(programs and programs[0]["trigger"] == "/usr/bin/python3", programs)
    expect(first["bytes"] == sum(group["bytes"] for group in groups.values()) and not any(group["reused"] for group in groups.values()), first)
    blobs = index_blobs(image)
    again = learn(varve, image, "--top", 3, command=("python3", "-c", "import upperlib, tiny"))
    expect(again["index"] == first["index"] and index_blobs(image) == blobs, "the same image and names are the same bytes")
    shown = varve.json("profile", "show", image)
    expect([{**group, "reused": False} for group in shown["groups"]] == sorted(first["groups"], key=lambda group: (group["kind"] != "program", group["name"])), "show says what learn said")
    expect("baselib" in varve.run("profile", "show", image, check=True).stdout.decode(), "as a table, too")
    varve.index(image, "--force")
    expect(named(varve.json("profile", "show", image)).keys() == groups.keys(), "indexing again keeps them")
    return first


def a_rebuilt_image_reuses_all(varve, images, old, first):
    new = write(images, "rebuilt", 1_700_000_000, layers=3, first={"aaa/first.txt": b"moved" * 1000})
    varve.index(new)
    command = ("python3", "-c", "import upperlib, tiny")
    again = learn(varve, new, "--top", 3, "--from", old, command=command)
    wanted = {group["name"]: group["blob"] for group in first["groups"]}
    expect({group["name"]: group["blob"] for group in again["groups"]} == wanted, f"the same blobs: {again['groups']}")
    expect(all(group["reused"] for group in again["groups"]), f"nothing was learnt: {again['groups']}")
    groups = packs_hold_what_the_layers_have(new)
    expect(any(content[:4] == (1_700_000_000).to_bytes(4, "little") for group in groups.values() for _, content in group["literals"]), "times are of the new image")
    # One library is another: the packs of all others stay.
    changed = {**LIBRARIES, "upper-lib": {"upperlib/__init__.py": source(7, more="import baselib\n")}}
    newer = write(images, "changed", 1_700_000_001, changed)
    varve.index(newer)
    told = named(learn(varve, newer, "--top", 3, "--from", new, command=command))
    expect(not told["upperlib"]["reused"] and told["upperlib"]["blob"] != wanted["upperlib"] and told["baselib"]["reused"], told)
    packs_hold_what_the_layers_have(newer)
    return new


def packs_survive_a_rewrite(varve, work, old, first):
    """What a plan makes of the image starts as before, out of layers written anew."""
    whole = {name: distribution(name, "1.0", modules) for name, modules in LIBRARIES.items()}
    made = f"oci:{work}/pruned:v2"
    done = varve.run("prune", "apply", "--json", write_plan(work / "plan.json", old, {"tiny": "cold"}, ["replay"], distributions=whole), made)
    expect(done.returncode == 0, [gate for gate in json.loads(done.stdout)["gates"] if not gate["ok"]] if done.stdout else done.stderr)
    wanted = {group["name"]: group["blob"] for group in first["groups"]}
    shown = varve.json("profile", "show", made)["groups"]
    expect({group["name"]: group["blob"] for group in shown} == wanted, shown)
    packs_hold_what_the_layers_have(made)
    expect({layer["digest"] for layer in layouts.manifest_of(made)[1]["layers"]}.isdisjoint(layer["digest"] for layer in layouts.manifest_of(old)[1]["layers"][1:]), "the layers are others")


def a_machine_that_nobody_vouches_for_is_not_believed(work, new, old):
    """The previous image's index was made by others: its packs are not taken."""
    with program.Varve(work / "stranger") as stranger:
        stranger.work.mkdir()
        stranger.index(new)
        done = stranger.run("profile", "learn", "--json", "--budget", "100%", "--top", 1, "--from", old, new)
        expect(done.returncode == 0 and b"nobody vouches" in done.stderr, done.stderr)
        expect(not any(group["reused"] for group in json.loads(done.stdout)["groups"]), done.stdout)


def a_budget_leaves_out_what_is_wanted_least(varve, image):
    whole = learn(varve, image, "--top", 3)
    size = sum(layer["size"] for layer in layouts.manifest_of(image)[1]["layers"])
    least = learn(varve, image, "--top", 3, budget=f"{(whole['bytes'] - 1) / size * 100:.6f}")
    expect(least["bytes"] < whole["bytes"] and least["left_out"], least)
    expect(not {one["name"] for one in least["left_out"]} & set(named(least)), least)
    for wrong in ("0%", "x", "101%", "-3", "nan"):
        expect(varve.run("profile", "learn", image, f"--budget={wrong}").returncode == 2, f"--budget {wrong}")


def first_uses_of_a_gpu(varve, images, work):
    """With devices made up of those that every machine has: the library reads more where it finds one."""
    torch = ("import os\nclass Tensor:\n    __matmul__ = lambda self, other: self\n    sum = lambda self: self\n    item = lambda self: 1\n    backward = lambda self: None\n"
             "    cuda = lambda self: ones(1, device='cuda')\n"
             "def ones(*shape, device=None):\n    if device:\n        assert os.path.exists('/dev/nvidia0')\n        import torch.kernels\n    return Tensor()\n"
             "class Conv2d:\n    def __init__(self, *sizes): pass\n    cuda = parameters = lambda self: self\n    def __call__(self, x):\n        import torch.convolutions\n        return x\n"
             "class nn: Conv2d = Conv2d\nclass cuda: synchronize = staticmethod(lambda: None)\n"
             "class optim:\n    class SGD:\n        def __init__(self, parameters): pass\n        def step(self): pass\n")
    libraries = {"torch": {"torch/__init__.py": source(6, more=torch), "torch/kernels.py": source(7), "torch/convolutions.py": source(8)}}
    image = write(images, "gpu", 1_600_000_000, libraries)
    varve.index(image)
    cdi = work / "cdi"
    cdi.mkdir()
    (cdi / "nvidia.json").write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/full"}]}}]}))
    uses = lambda answer: [name for name in named(answer) if "cuda" in name]  # noqa: E731
    without = learn(varve, image)
    expect(uses(without) == [] and "torch" in named(without), without)
    answer = learn(varve, image, "--gpus", "all", "--cdi-spec-dir", cdi)
    groups = [named(answer)[use] for use in uses(answer)]
    bytecode = lambda name: f"/{SITE}/torch/__pycache__/{name}.cpython-{sys.version_info.major}{sys.version_info.minor}.pyc"  # noqa: E731
    expect(sorted((group["kind"], group["trigger"]) for group in groups) == [("program", bytecode("convolutions")), ("program", bytecode("kernels"))], groups)
    expect(answer["failed"] == [] and named(answer)["torch"]["blob"] == named(without)["torch"]["blob"], "the import is the same start")
    done = varve.run("profile", "learn", image, "--gpus", "2", "--cdi-spec-dir", cdi)
    expect(done.returncode == 1 and b"GPU" in done.stderr and b"left out" not in done.stderr, f"one that is not there is said before anything starts: {done}")


def hostile_starts(varve, images):
    image = write(images, "hostile", 1_600_000_000, HOSTILE, command="import time; time.sleep(3600)")
    varve.index(image)
    began = time.monotonic()
    answer = learn(varve, image, "--top", 20, "--seconds", 6)
    expect(time.monotonic() - began < 240, "what hangs is ended")
    failed = {one["name"]: one["why"] for one in answer["failed"]}
    expect(set(failed) == {"broken", "hangs"}, failed)
    expect("RuntimeError" in failed["broken"] and "\x1b" not in failed["broken"] and "--seconds" in failed["hangs"], failed)
    expect({"chatter", "writer", "baselib", "upperlib"} <= set(named(answer)), answer["groups"])
    packs_hold_what_the_layers_have(image)
    again = learn(varve, image, "--top", 20, "--seconds", 6)
    expect(again["index"] == answer["index"], f"what a start wrote is gone: {[group for group in again['groups'] if group not in answer['groups']]}, {again['failed']}")
    done = varve.run("profile", "learn", image, "--top", 0, "--seconds", 6, "--", "/no/such/program")
    expect(done.returncode == 0 and b"/no/such/program: left out" in done.stderr, done.stderr)
    varve.run("profile", "attach", "--remove", image, check=True)
    expect(varve.run("profile", "show", image).returncode == 1, "taken away")
    expect(not [kind for kind, _ in index_blobs(image) if kind in (PACK, LIST)], "no blob of them is named any more")


def nothing_is_left(varve):
    expect(varve.json("session", "ls")["sessions"] == [], "no session")
    left = [path for path in (varve.root / "tmp").glob("*") if path.name != "relayer"]  # what prune apply goes on from
    expect(not left, f"no scratch: {left}")


def an_interrupted_one_ends_clean(varve, images):
    image = write(images, "interrupted", 1_600_000_000, HOSTILE)
    varve.index(image)
    learning = subprocess.Popen([varve.binary, "profile", "learn", image, "--top", "20", "--seconds", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=varve.environment)
    time.sleep(4)
    learning.send_signal(signal.SIGINT)
    _, said = learning.communicate(timeout=60)
    expect(learning.returncode != 0, said)
    end = time.monotonic() + 30
    while varve.json("session", "ls")["sessions"] and time.monotonic() < end:
        time.sleep(0.2)
    expect(varve.run("profile", "show", image).returncode == 1, "nothing was published")


def main():
    program.need_root(), program.need_fuse(), program.need_tools("zstd", "gzip")
    global BASE
    with program.work_folder() as work, program.Varve(work / "machine") as varve:
        varve.work.mkdir()
        BASE = Images(work / "base").base
        images = work / "images"
        images.mkdir()
        old = write(images, "old", 1_600_000_000)
        varve.index(old)
        first = learnt_twice_is_the_same(varve, old)
        packs_hold_what_the_layers_have(old)
        nothing_is_left(varve)
        new = a_rebuilt_image_reuses_all(varve, images, old, first)
        packs_survive_a_rewrite(varve, work, old, first)
        a_machine_that_nobody_vouches_for_is_not_believed(work, new, old)
        a_budget_leaves_out_what_is_wanted_least(varve, old)
        first_uses_of_a_gpu(varve, images, work)
        hostile_starts(varve, images)
        an_interrupted_one_ends_clean(varve, images)
        nothing_is_left(varve)


if __name__ == "__main__":
    main()
