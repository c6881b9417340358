"""Walks at random through all commands that write, move or remove images: ours, and those of other tools. What is pinned stays whole, or
whoever broke it is told: a command of ours never breaks a pin that was whole; damage that others did is reported by the next `pin check`.
The same seed walks the same way. Called with numbers of steps: --steps in all, --walk in one world, from --seed on.
What a step did not change is not asked again: whether it did is seen by the stamps of all files, whoever wrote them."""
import argparse, contextlib, copy, hashlib, http.client, json, os, random, shutil, subprocess, sys
from pathlib import Path

import layouts
from program import Varve, need_tools, work_folder
from test_export import registry_on_loopback
from test_pins import image_tars

NAME, INDEX_TYPE, BUNDLE_TYPE = "org.opencontainers.image.ref.name", "application/vnd.varve.index.v1", "application/vnd.dev.sigstore.bundle.v0.3+json"
MANIFESTS = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json"
TAGS = [f"v{i}" for i in range(4)] + ["old", "new"]
NAMES, PEOPLE = ["", "release", "paper"], ["ann", "bob"]


class Broken(Exception):
    """The promise of this test does not hold."""


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def stamp(path):
    """Another one after every write; None if there is no such file."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def stamps(folder):
    """Of all that is below it, and of itself; nothing of it was written to while they are the same. Folders have none: only what is in them counts."""
    found, ahead = {}, [str(folder)]
    for path in ahead:
        with contextlib.suppress(FileNotFoundError), os.scandir(path) as entries:
            found[path] = None
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    ahead.append(entry.path)
                else:
                    found[entry.path] = stamp(entry.path)
    return found


class Snapshot:
    """Folders as they are now, kept in memory: what did not change since the last snapshot is not read again, nor written when they are brought back."""

    def __init__(self, folders, last=None):
        self.folders, self.files = folders, {}
        for path, now in self.look().items():
            same = last is not None and last.files.get(path, (None, None))[0] == now
            self.files[path] = last.files[path] if same and now is not None else (now, Path(path).read_bytes() if now else None)

    def look(self):
        return {path: now for folder in self.folders for path, now in stamps(folder).items()}

    def bring_back(self):
        here = self.look()
        for path in sorted(here.keys() - self.files.keys(), reverse=True):  # what is in a folder before the folder
            os.rmdir(path) if here[path] is None else os.unlink(path)
        for path, (was, content) in sorted(self.files.items()):
            if was is None:
                os.makedirs(path, exist_ok=True)
            elif here.get(path) != was:
                Path(path).unlink(missing_ok=True)
                Path(path).write_bytes(content)
                self.files[path] = (stamp(path), content)


class Place:
    """What is asked again and again, between two steps that change little: a file that was whole and was not written to since is whole."""

    def __init__(self, path):
        self.path = path
        self.whole = {}  # digest -> stamp of the file that was read
        self.answers, self.answered_at = None, None

    @contextlib.contextmanager
    def at_rest(self):
        """Nothing changes meanwhile: what was asked is known, as long as no file has changed."""
        now = stamps(self.path)
        self.answers = self.answered_at[1] if self.answered_at and self.answered_at[0] == now else {}
        self.answered_at = (now, self.answers)
        try:
            yield
        finally:
            self.answers = None

    def has(self, name):
        now = stamp(self.data(name))
        if now is None or self.whole.get(name) != now:
            self.whole[name] = now if self.blob(name) is not None else None
        return self.whole[name] is not None and self.gives(name)


class Folder(Place):
    """A layout folder, looked at without any of the programs under test."""

    def __init__(self, path):
        super().__init__(path)
        self.place = f"oci:{path}"

    def reference(self, tag):
        return f"{self.place}:{tag}"

    def skopeo(self, tag):
        return self.reference(tag)

    def entries(self):
        return json.loads((self.path / "index.json").read_text())["manifests"] or [] if (self.path / "index.json").exists() else []  # umoci writes null

    def write_entries(self, entries):
        (self.path / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}))

    def tag(self, tag):
        return next((m["digest"] for m in self.entries() if m.get("annotations", {}).get(NAME) == tag), None)

    def tags(self):
        return sorted(m["annotations"][NAME] for m in self.entries() if NAME in m.get("annotations", {}))

    def document(self, name):
        return self.blob(name)

    def blob(self, name):
        file = self.path / "blobs" / name.replace(":", "/")
        content = file.read_bytes() if file.exists() else None
        return content if content is not None and digest(content) == name else None

    def gives(self, name):
        return True

    def referrers(self, subject, kind):
        found = []
        for entry in self.entries():
            content = self.blob(entry["digest"])
            manifest = json.loads(content) if content else {}
            if manifest.get("artifactType") == kind and manifest.get("subject", {}).get("digest") == subject:
                found.append(entry["digest"])
        return found

    def can_list(self, subject):
        return True

    def roots(self):
        return [m["digest"] for m in self.entries()]

    def data(self, name):
        return self.path / "blobs" / name.replace(":", "/")


class Registry(Place):
    """The same of a repository; `host` is Debian's registry, its files lie in `path`."""

    def __init__(self, host, path):
        super().__init__(path)
        self.connection = http.client.HTTPConnection(host, timeout=30)
        self.name, self.place = "team/app", f"{host}/team/app"

    def reference(self, tag):
        return f"{self.place}:{tag}"

    def skopeo(self, tag):
        return f"docker://{self.reference(tag)}"

    def ask(self, method, path):
        if self.answers is None or method == "DELETE":
            return self.ask_anew(method, path)
        if (method, path) not in self.answers:
            self.answers[method, path] = self.ask_anew(method, path)
        return self.answers[method, path]

    def ask_anew(self, method, path):
        self.connection.request(method, f"/v2/{self.name}/{path}", headers={"Accept": MANIFESTS})
        answer = self.connection.getresponse()
        return answer.status, answer.read()

    def tag(self, tag):
        status, content = self.ask("GET", f"manifests/{tag}")
        return digest(content) if status == 200 else None

    def tags(self):
        status, content = self.ask("GET", "tags/list")
        return sorted(json.loads(content)["tags"] or []) if status == 200 else []

    def document(self, name):
        status, content = self.ask("GET", f"manifests/{name}")
        return content if status == 200 and digest(content) == name else None

    def blob(self, name):
        status, content = self.ask("GET", f"blobs/{name}")
        return content if status == 200 and digest(content) == name else None

    def gives(self, name):
        """The file may be there and the repository know it no more."""
        return self.ask("HEAD", f"blobs/{name}")[0] == 200

    def referrers(self, subject, kind):
        listed = self.tag(subject.replace(":", "-"))
        content = self.document(listed) if listed else None
        manifests = json.loads(content)["manifests"] if content else []
        return [m["digest"] for m in manifests if m.get("artifactType") == kind and self.document(m["digest"])]

    def can_list(self, subject):
        """False if there is a list of what belongs to it, and it is damaged: nobody knows what stood in it."""
        listed = self.tag(subject.replace(":", "-"))
        return listed is None or self.document(listed) is not None

    def roots(self):
        return [name for name in map(self.tag, self.tags()) if name]

    def data(self, name):
        hexes = name.removeprefix("sha256:")
        return self.path / "docker/registry/v2/blobs/sha256" / hexes[:2] / hexes / "data"


def named_by(manifest):
    return [manifest["config"]["digest"], *(layer["digest"] for layer in manifest["layers"])]


def reached(place):
    """(documents, other blobs) in an order that does not depend on digests: times are in lists and signatures, and the same seed shall do the same."""
    documents, blobs, ahead = {}, {}, place.roots()
    while ahead:
        name = ahead.pop(0)
        content = None if name in documents else place.document(name)
        if content is None:
            continue
        documents[name] = True
        manifest = json.loads(content)
        ahead += [m["digest"] for m in manifest.get("manifests", [])]
        blobs |= {blob: True for blob in (named_by(manifest) if "layers" in manifest else [])}
    return list(documents), list(blobs)


def missing_of_image(place, image):
    content = place.document(image)
    return [image] if content is None else [name for name in named_by(json.loads(content)) if not place.has(name)]


def signatures_beside(place, name):
    listed = place.tag(name.replace(":", "-") + ".sig")
    content = place.document(listed) if listed else None
    simple = [layer["digest"] for layer in json.loads(content)["layers"]] if content else []
    return simple + [layer["digest"] for bundle in place.referrers(name, BUNDLE_TYPE) for layer in json.loads(place.document(bundle))["layers"]]


def missing(place, pin):
    """What a promise lacks, by digest."""
    lacks = missing_of_image(place, pin["image"])
    if pin["index"]:
        lacks += missing_of_image(place, pin["index"])
        if pin["index"] not in place.referrers(pin["image"], INDEX_TYPE):
            lacks.append(f"index {pin['index']} at its image")
    beside = signatures_beside(place, pin["image"]) + (signatures_beside(place, pin["index"]) if pin["index"] else [])
    return lacks + [name for name in pin["signatures"] if name not in beside or not place.has(name)]


class World:
    """Two folders and a repository, what was promised in each, and the steps so far."""

    def __init__(self, work, varve, host):
        self.work, self.varve, self.steps = work, varve, []
        self.folders = [Folder(work / "one"), Folder(work / "two")]
        self.places = [*self.folders, Registry(host, work / "registry")]
        self.promises = {place.place: [] for place in self.places}
        self.sources = [layouts.gzip_image(work / f"source-{i}", image_tars(i), tag="t") for i in range(4)]
        self.key, self.memory = work / "ci.key", varve.root / "pins.json"
        self.known_broken = {}  # by place: what it was asked of, and what came out
        self.checked = {}  # by place: all that `pin check` could see when it was last right
        self.before = None  # the world from before others damaged it
        self.damaged, self.flipped = False, {}  # flipped: (place, digest) -> what was there
        self.begin()
        self.beginning = (Snapshot([work]), copy.deepcopy(self.promises))

    def begin_anew(self, seed):
        folders, promises = self.beginning
        folders.bring_back()
        self.dice, self.steps, self.promises = random.Random(seed), [], copy.deepcopy(promises)
        self.damaged, self.flipped = False, {}
        self.is_broken = None  # what broken() said at the end of the last step; None: ask

    # ------------------------------------------------------------ what is promised, and what of it is there

    def broken(self):
        return set().union(*map(self.broken_at, self.places))

    def broken_at(self, place):
        with place.at_rest():
            seen = (place.answered_at[0], copy.deepcopy(self.promises[place.place]))
            if self.known_broken.get(place.place, (None,))[0] != seen:
                self.known_broken[place.place] = (seen, {(place.place, pin["image"], pin["name"], pin["by"]) for pin in seen[1] if missing(place, pin)})
            return self.known_broken[place.place][1]

    def listed(self, place):
        """The list as it lies there, read as its page has it; None if it is none."""
        name = place.tag("varve-pins")
        if name is None:
            return []
        content = place.document(name)
        document = json.loads(content) if content else {}
        if document.get("artifactType") != "application/vnd.varve.pins.v1":
            return None
        return sorted((m["digest"], m["annotations"].get("dev.varve.pin.name", ""), m["annotations"].get("dev.varve.pin.by", "")) for m in document["manifests"])

    def is_list_whole(self, place):
        """What was taken back may be there again after a backup: more is kept than must be."""
        listed = self.listed(place)
        return listed is not None and set(listed) >= {(p["image"], p["name"], p["by"]) for p in self.promises[place.place]}

    # ------------------------------------------------------------ steps

    def begin(self):
        for place, source in zip(self.places, self.sources):
            for tag, image in (("v0", source), ("v1", self.sources[-1])):
                self.ours("image", "export", image, place.reference(tag))
            self.ours("index", place.reference("v0"))
            self.ours("sign", place.reference("v0"), "--key", self.key, "--image", "--bundle")
            self.add_pin(place, place.reference("v0"), "release", "ann")

    def run(self, *words):
        self.steps.append(" ".join(map(str, words)))
        done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120, env=self.varve.environment)
        self.steps[-1] += f"   -> {done.returncode}"
        return done

    def ours(self, *words):
        done = self.run(self.varve.binary, *words)
        # 75: the registry has an error of its own, as for a manifest with a flipped bit that is no JSON any more.
        if done.returncode not in (0, 1, 2, 3) and not (done.returncode == 75 and b"status 500" in done.stderr):
            raise Broken(f"exit status {done.returncode}: {done.stderr.decode(errors='replace')}")
        if done.returncode in (1, 2) and not done.stderr.strip():
            raise Broken("it failed and says nothing")
        return done

    def place(self):
        return self.dice.choice(self.places)

    def image(self):
        """A reference to something that is there, most of the time."""
        place = self.place()
        tags = [tag for tag in place.tags() if tag in TAGS]
        return place, place.reference(self.dice.choice(tags or TAGS))

    def step(self):
        broken = self.broken() if self.is_broken is None else self.is_broken
        self.is_broken = None
        if self.damaged and self.dice.random() < 0.3:
            return self.heal()
        kind = self.dice.choices(["ours", "other", "damage"], [6, 2, 0 if self.damaged else 2])[0]
        if kind == "ours":
            command = self.dice.choice(OURS)
            command(self)
            now = self.broken()
            if now - broken:
                raise Broken(f"a command of ours broke {sorted(now - broken)}")
            self.is_broken = now
            return
        if not self.damaged:
            self.remember()
        command = self.dice.choice(OTHERS if kind == "other" else DAMAGE)
        command(self)
        for place in self.places:
            self.check(place)
        lists = all(self.is_list_whole(place) for place in self.places)
        self.is_broken = self.broken()
        self.damaged = bool(self.is_broken) or not lists

    def check(self, place):
        """`pin check` says what this test sees. It did if nothing has changed since, of the place, of what was promised and of all that this machine keeps."""
        visible = lambda: (stamps(place.path), stamps(self.varve.root), copy.deepcopy(self.promises[place.place]))
        if self.checked.get(place.place) == visible():
            return
        done = self.ours("pin", "check", "--deep", place.place)
        with place.at_rest():
            lacks = {(pin["image"], pin["name"], pin["by"]): missing(place, pin) for pin in self.promises[place.place]}
            whole = self.is_list_whole(place) and not any(lacks.values())
            doubtful = [image for image, _, _ in lacks if not place.can_list(image) or any(missing_of_image(place, index) for index in place.referrers(image, INDEX_TYPE))]
        if done.returncode == 0 and not whole:
            raise Broken(f"pin check of {place.place} is content: {lacks}, list {self.listed(place)}")
        if done.returncode != 0 and whole and not doubtful and not self.is_absent(place):
            raise Broken(f"pin check of {place.place}, where all is whole: {done.stdout.decode()} {done.stderr.decode(errors='replace')}")
        self.checked[place.place] = visible()

    def is_absent(self, place):
        return isinstance(place, Folder) and not (place.path / "oci-layout").exists()

    def remember(self):
        folders = [place.path for place in self.places]
        self.before = (Snapshot(folders, self.before and self.before[0]), copy.deepcopy(self.promises), self.memory.read_bytes() if self.memory.exists() else None)

    def heal(self):
        """Everything as it was before the damage, what this machine remembers too."""
        self.steps.append("heal")
        folders, promises, memory = self.before
        folders.bring_back()
        self.promises = copy.deepcopy(promises)
        self.memory.unlink(missing_ok=True)
        if memory is not None:
            self.varve.root.mkdir(exist_ok=True)
            self.memory.write_bytes(memory)
        self.damaged = False
        if self.broken():
            raise Broken("the world cannot be brought back")
        for place in self.places:
            self.check(place)

    # ------------------------------------------------------------ commands of ours

    def export(self):
        source = self.dice.choice([*self.sources, self.image()[1]])
        index = ["--with-index"] if self.dice.random() < 0.3 else []
        self.ours("image", "export", source, self.place().reference(self.dice.choice(TAGS)), *index)

    def export_over_lists(self):
        place, tag = self.place(), self.dice.choice(["varve-pins", "varve-pins-replaced", "sha256-" + "0" * 64])
        tag = next((t for t in place.tags() if t.startswith("sha256-")), tag) if self.dice.random() < 0.5 else tag
        if self.ours("image", "export", self.dice.choice(self.sources), place.reference(tag)).returncode != 2:
            raise Broken("a tag that is not for images was written")

    def optimize(self):
        place, image = self.image()
        words = ["--repack"] if self.dice.random() < 0.3 else ["--format", self.dice.choice(["gzip", "zstd:chunked"])]
        to = image if self.dice.random() < 0.3 else self.place().reference(self.dice.choice(TAGS))
        self.ours("image", "optimize", image, to, "--replace", *words)

    def apply(self):
        place, image = self.image()
        name = place.tag(image.rpartition(":")[2])
        plan = {"format": "varve-plan", "version": 1, "image": name, "reference": image, "window": {"first": "2026-08-01", "last": "2026-11-01"}, "made_on": "2026-11-02",
                "parameters": {}, "sessions": 1, "cold_bytes": 0, "saved_bytes": 0, "affected_users": 0, "unsure": [], "verdicts": [], "affected": [],
                "forecast": {"basis": "", "sessions": 0, "touching": 0, "expected_rate": 0.0, "at_most": 0.0, "held_out_expected": 0.0, "held_out_seen": 0.0, "judged": 0},
                "waivers": [{"gate": gate, "reason": "no Python in it", "owner": "tests"} for gate in ("imports", "replay")]}
        (self.work / "plan.json").write_text(json.dumps(plan))
        self.ours("prune", "apply", self.work / "plan.json", *([self.place().reference(self.dice.choice(TAGS)), "--replace"] if self.dice.random() < 0.7 else ["--index-only"]))

    def index(self):
        self.ours("index", self.image()[1], *(["--force"] if self.dice.random() < 0.3 else []))

    def index_elsewhere(self):
        self.ours("index", self.image()[1], "--to", self.place().place)

    def sign(self):
        words = [word for word in ("--image", "--bundle") if self.dice.random() < 0.5]
        self.ours("sign", self.image()[1], "--key", self.key, *words)

    def pin_add(self):
        place, image = self.image()
        self.add_pin(place, image, self.dice.choice(NAMES), self.dice.choice(PEOPLE))

    def add_pin(self, place, image, name, by):
        done = self.ours("pin", "add", "--json", image, "--by", by, "--reason", "a walk", *(["--name", name] if name else []))
        if done.returncode != 0:
            return
        for pin in json.loads(done.stdout)["pins"]:
            same = lambda other: (other["image"], other["name"], other["by"]) == (pin["image"], pin["name"], pin["by"])
            self.promises[place.place] = [p for p in self.promises[place.place] if not same(p)] + [pin]
            lacks = set(missing(place, pin))
            if lacks - {name for at, name in self.flipped if at == place.place}:
                raise Broken(f"promised, though it lacks {lacks}")
            if lacks:  # who pins does not read every byte; who checks does
                self.check(place)
                for name in lacks:
                    place.data(name).write_bytes(self.flipped.pop((place.place, name)))

    def pin_rm(self):
        place, image = self.image()
        promises = self.promises[place.place]
        if promises and self.dice.random() < 0.7:
            image = f"{place.place}@{self.dice.choice(promises)['image']}"
        wanted = place.tag(image.rpartition(":")[2]) if "@" not in image else image.rpartition("@")[2]
        by, every = self.dice.choice(["", *PEOPLE]), self.dice.random() < 0.2
        meant = [(image, name, who) for image, name, who in self.listed(place) or [] if image == wanted and by in ("", who)]
        done = self.ours("pin", "rm", image, *(["--by", by] if by else []), *(["--all"] if every else []))
        if done.returncode == 0 and (not meant or len(meant) > 1 and not every) and not self.damaged:
            raise Broken(f"{len(meant)} promises were meant")
        if self.damaged:  # the list may be gone, and what this machine remembers is taken for it
            meant += [(p["image"], p["name"], p["by"]) for p in promises if p["image"] == wanted and by in ("", p["by"])]
        if done.returncode == 0:
            kept = [p for p in promises if (p["image"], p["name"], p["by"]) not in meant]
            if self.damaged:  # of several that were meant one may have been lost: what is remembered says which
                memory = json.loads(self.memory.read_text())["places"]
                memory = memory.get(place.place) or memory.get(f"docker://{place.place}", {"manifests": []})
                known = {(m["digest"], m["annotations"].get("dev.varve.pin.name", ""), m["annotations"].get("dev.varve.pin.by", "")) for m in memory["manifests"]}
                if not {(p["image"], p["name"], p["by"]) for p in kept} <= known:
                    raise Broken("what was not meant is forgotten")
                kept = [p for p in promises if (p["image"], p["name"], p["by"]) in known]
            self.promises[place.place] = kept

    def pin_repair(self):
        place = self.place()
        done = self.ours("pin", "repair", place.place)
        if done.returncode == 0 and not self.is_list_whole(place):
            raise Broken(f"pin repair is content, and the list is {self.listed(place)}")

    def gc(self):
        place, words = self.dice.choice(self.folders), ["--untagged"] if self.dice.random() < 0.7 else []
        whole, images = self.is_list_whole(place), [p["image"] for p in self.promises[place.place]]
        done = self.ours("gc", place.place, "--grace", "0", *words)
        if done.returncode == 0 and not whole:
            raise Broken("gc went on without the list of pins")
        if done.returncode == 0 and any(place.blob(image) is None for image in images):
            raise Broken("gc went on though a promised manifest is gone")

    # ------------------------------------------------------------ what other tools do, as they should

    def umoci(self):
        folder = self.dice.choice(self.folders)
        if self.is_absent(folder):
            return
        tag, other = self.dice.choice(folder.tags() or TAGS), self.dice.choice(TAGS)
        self.run(*self.dice.choice([("umoci", "tag", "--image", f"{folder.path}:{tag}", other), ("umoci", "rm", "--image", f"{folder.path}:{tag}"),
                                    ("umoci", "gc", "--layout", folder.path), ("umoci", "new", "--image", f"{folder.path}:{other}")]))

    def umoci_repack(self):
        folder = self.dice.choice(self.folders)
        if self.is_absent(folder):
            return
        bundle = self.work / "bundle"
        shutil.rmtree(bundle, ignore_errors=True)
        if self.run("umoci", "unpack", *([] if os.getuid() == 0 else ["--rootless"]), "--image", f"{folder.path}:{self.dice.choice(TAGS)}", bundle).returncode == 0:
            (bundle / "rootfs/made-by-umoci").write_text("x")
            self.run("umoci", "repack", "--image", f"{folder.path}:{self.dice.choice(TAGS)}", bundle)

    def skopeo_copy(self):
        source = self.dice.choice([None, *self.places])
        image = self.dice.choice(self.sources) if source is None else source.skopeo(self.dice.choice(TAGS))
        self.run("skopeo", "copy", "-q", "--insecure-policy", "--src-tls-verify=false", "--dest-tls-verify=false", image, self.place().skopeo(self.dice.choice(TAGS)))

    def skopeo_delete(self):
        place = self.place()
        self.run("skopeo", "delete", "--tls-verify=false", place.skopeo(self.dice.choice(place.tags() or TAGS)))

    # ------------------------------------------------------------ what others damage

    def take_the_lists_place(self):
        self.run("skopeo", "copy", "-q", "--insecure-policy", "--dest-tls-verify=false", self.dice.choice(self.sources), self.place().skopeo("varve-pins"))

    def lose_a_tag(self):
        place = self.place()
        if self.is_absent(place):
            return
        tag = self.dice.choice(place.tags() or TAGS)
        self.steps.append(f"the tag {tag} of {place.place} is gone")
        if isinstance(place, Folder):
            place.write_entries([m for m in place.entries() if m.get("annotations", {}).get(NAME) != tag])
        else:
            shutil.rmtree(place.path / "docker/registry/v2/repositories" / place.name / "_manifests/tags" / tag, ignore_errors=True)

    def lose_an_entry(self):
        folder = self.dice.choice(self.folders)
        entries = folder.entries()
        if entries:
            lost = self.dice.randrange(len(entries))
            self.steps.append(f"the entry {entries[lost]} of {folder.place} is gone")
            folder.write_entries(entries[:lost] + entries[lost + 1:])

    def lose_a_blob(self):
        place = self.place()
        documents, blobs = reached(place)
        names = [name for name in documents + blobs if place.data(name).exists()] if isinstance(place, Folder) else blobs
        if not names:
            return
        name = self.dice.choice(names)
        if isinstance(place, Folder):
            self.steps.append(f"the blob {name} of {place.place} is gone")
            place.data(name).unlink()
        else:
            self.steps.append(f"the blob {name} of {place.place} is deleted: {place.ask('DELETE', f'blobs/{name}')[0]}")

    def lose_a_manifest(self):
        registry = self.places[-1]
        names = reached(registry)[0]
        if names:
            name = self.dice.choice(names)
            self.steps.append(f"the manifest {name} of {registry.place} is deleted: {registry.ask('DELETE', f'manifests/{name}')[0]}")

    def flip_a_bit(self):
        place = self.place()
        names = [name for part in reached(place) for name in part if place.data(name).exists() and place.data(name).stat().st_size]
        if names:
            name = self.dice.choice(names)
            content = bytearray(place.data(name).read_bytes())
            self.flipped.setdefault((place.place, name), bytes(content))
            content[self.dice.randrange(len(content))] ^= 1
            self.steps.append(f"a bit of {name} of {place.place} flips")
            place.data(name).write_bytes(content)

    def put_back_a_backup(self):
        folder = self.dice.choice(self.folders)
        backup = folder.path.with_name(folder.path.name + "-backup")
        self.steps.append(f"{folder.place} as it was at the last backup")
        if backup.exists():
            shutil.rmtree(folder.path, ignore_errors=True)
            shutil.copytree(backup, folder.path)
            shutil.rmtree(backup)
        elif folder.path.exists():
            shutil.copytree(folder.path, backup)

    def lose_a_folder(self):
        folder = self.dice.choice(self.folders)
        self.steps.append(f"{folder.place} is gone")
        shutil.rmtree(folder.path, ignore_errors=True)


OURS = [World.export] * 4 + [World.index] * 3 + [World.sign] * 2 + [World.pin_add] * 5 + [World.pin_rm] * 3 + [World.gc] * 4 + \
    [World.pin_repair, World.optimize, World.optimize, World.export_over_lists, World.index_elsewhere, World.apply]
OTHERS = [World.umoci] * 4 + [World.skopeo_copy] * 4 + [World.umoci_repack, World.skopeo_delete]
DAMAGE = [World.take_the_lists_place, World.lose_a_tag, World.lose_an_entry, World.lose_a_blob, World.lose_a_manifest, World.flip_a_bit, World.put_back_a_backup, World.lose_a_folder]


def walk(world, seed, steps):
    world.begin_anew(seed)
    try:
        for _ in range(steps):
            world.step()
    except (Broken, AssertionError, KeyError, TypeError, ValueError, OSError, http.client.HTTPException, subprocess.TimeoutExpired) as error:
        print("\n".join(world.steps))
        print(f"seed {seed}, step {len(world.steps)}: {type(error).__name__}: {error}")
        if os.environ.get("VARVE_KEEP_WORLD"):
            shutil.copytree(world.work, os.environ["VARVE_KEEP_WORLD"], dirs_exist_ok=True)
        return False
    return True


def main():
    need_tools("umoci", "skopeo", "docker-registry")
    options = argparse.ArgumentParser()
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--walk", type=int, default=100, help="steps in one world")
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    seed, left = options.seed, options.steps
    with work_folder(in_memory=True) as work, Varve(work) as varve, registry_on_loopback(work, "delete: {enabled: true}") as host:
        varve.environment |= {"COSIGN_PASSWORD": "", "USER": "somebody"}
        varve.run("keygen", "-o", work / "ci", check=True)
        world = World(work, varve, host)
        while left > 0:
            if not walk(world, seed, min(left, options.walk)):
                sys.exit(1)
            seed, left = seed + 1, left - options.walk
    print(f"{options.steps} steps, seeds {options.seed} to {seed - 1}: every pin kept, every damage reported")


if __name__ == "__main__":
    main()
