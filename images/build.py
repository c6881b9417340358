#!/usr/bin/python3
"""build.py RECIPE_DIR DEST: makes the images that RECIPE_DIR/recipe.toml describes, as an OCI layout folder.

A recipe is data (images/README.md lists its fields). An image that was made from the same recipe by the same builder is
left as it is; a run that was stopped goes on behind the layers that are finished. Needs mmdebstrap, pip, umoci; root is not required.
"""
import argparse, hashlib, json, os, re, shutil, sys, tarfile, tempfile, tomllib
from datetime import datetime, timezone
from pathlib import Path

# By name: other programs use the builder's parts through this module.
from layers import COMPRESSORS, KINDS, SITE, DigestingFile, add_path, add_tree, compress_with_go, pinned, requirements, say  # noqa: F401

HERE = Path(__file__).resolve().parent
MEDIA = "application/vnd.oci.image."
UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def as_others_are(path):
    """The mode of a file that a program makes: umoci keeps what it writes to its user, and who serves the layout may be another one."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)


class Layout:
    """An OCI layout folder being written. What is known of finished layers is kept in a file until all is there."""

    def __init__(self, folder):
        self.folder, self.blobs, self.tags = folder, folder / "blobs" / "sha256", {}
        self.blobs.mkdir(parents=True, exist_ok=True)
        self.finished_file = folder / ".layers.json"
        self.finished = json.loads(self.finished_file.read_text()) if self.finished_file.exists() else {}

    def remember(self, key, layer):
        self.finished[key] = layer
        write_whole(self.finished_file, json.dumps(self.finished))

    def blob(self, digest):
        return self.folder / "blobs" / digest.replace(":", "/")

    def take(self, path, media_type):
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        size = path.stat().st_size
        as_others_are(path)
        os.replace(path, self.blobs / digest)
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": size}

    def add_json(self, document, media_type):
        path = self.folder / "document"
        path.write_text(json.dumps(document, sort_keys=True, separators=(",", ":")))
        return self.take(path, media_type)

    def finish(self):
        entries = [{**manifest, "annotations": {"org.opencontainers.image.ref.name": tag}} for tag, manifest in self.tags.items()]
        (self.folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": entries}, sort_keys=True))
        (self.folder / "oci-layout").write_text('{"imageLayoutVersion":"1.0.0"}')
        self.finished_file.unlink(missing_ok=True)


class LayerCache:
    """Layers by what they were made from, in a folder that any number of recipes share. A layer is in it when its description is; its blob was there before."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find(self, key, layout):
        """The layer, its blob put into the layout; None if it is not here, or not whole."""
        description, blob = self.folder / f"{key}.json", self.folder / key
        if not description.exists() or not blob.exists():
            return None
        layer = json.loads(description.read_text())
        if blob.stat().st_size != layer["descriptor"]["size"]:
            return None
        share_file(blob, layout.blob(layer["descriptor"]["digest"]))
        as_others_are(layout.blob(layer["descriptor"]["digest"]))
        return layer

    def put(self, key, layer, layout):
        share_file(layout.blob(layer["descriptor"]["digest"]), self.folder / key)
        write_whole(self.folder / f"{key}.json", json.dumps(layer))


def share_file(source, target):
    """A second name for the file where that can be, else a copy; blobs are never written to again."""
    part = target.with_name(target.name + ".part")
    part.unlink(missing_ok=True)
    try:
        os.link(source, part)
    except OSError:
        shutil.copyfile(source, part)
    os.replace(part, target)
    part.unlink(missing_ok=True)  # two names of one file: a rename does nothing then


def write_whole(path, text):
    part = path.with_name(path.name + ".new")
    part.write_text(text)
    os.replace(part, path)


# ---------------------------------------------------------------- recipes


def read_recipe(folder, wheels):
    recipe = tomllib.loads((folder / "recipe.toml").read_text())
    recipe |= {"folder": folder, "wheels": wheels, "epoch": int(recipe["created"].timestamp())}
    for layer in recipe["layer"]:
        if layer["kind"] not in KINDS or layer["compress"] not in COMPRESSORS:
            sys.exit(f"{folder}/recipe.toml: unknown kind or compressor in {layer}")
        if layer.get("only", next(iter(recipe.get("variants", {})), None)) not in recipe.get("variants", {None: None}):
            sys.exit(f"{folder}/recipe.toml: no variant '{layer['only']}' as a layer says")
    return recipe


def images_of(recipe, variant, releases):
    """(tag, recipe) of each image: of each release, of each variant, or of the one there is."""
    days = [str(r["day"]) for r in recipe.get("releases", [])][:releases]
    if days:
        return [(day, recipe | {"release": day}) for day in days]
    variants = recipe.get("variants", {recipe.get("tag"): {}})
    if variant and variant not in variants:
        sys.exit(f"{recipe['folder']}/recipe.toml: no variant '{variant}'; there are {', '.join(variants)}")
    images = []
    for tag, more in variants.items():
        if variant in (None, tag):
            config = recipe["config"] | more
            config |= {"Env": recipe["config"].get("Env", []) + more.get("Env", []), "Labels": recipe["config"].get("Labels", {}) | more.get("Labels", {})}
            layers = [layer for layer in recipe["layer"] if layer.get("only", tag) == tag]
            images.append((tag, recipe | {"release": tag, "config": {k: v for k, v in config.items() if v}, "layer": layers}))
    return images


def lists_of(layer, recipe):
    names = [layer[field] for field in ("requirements", "mix") if field in layer] + [link["of"] for link in layer.get("links", [])]
    return [recipe["folder"] / name.replace("{release}", recipe["release"]) for name in names]


def code_of(layers):
    """A digest of the code that decides bytes: it is the same as long as that is."""
    files = ["layers.py", *(["fill.py"] if any(layer["kind"] == "fill" for layer in layers) else [])]
    return hashlib.sha256(b"".join((HERE / name).read_bytes() for name in files)).hexdigest()


def fingerprint(recipe, images):
    total = hashlib.sha256(Path(__file__).read_bytes() + code_of(recipe["layer"]).encode() + (recipe["folder"] / "recipe.toml").read_bytes())
    total.update(json.dumps([[tag for tag, _ in images], recipe.get("fill")]).encode())
    for _, image in images:
        for layer in image["layer"]:
            total.update(layer_key(layer, image).encode())
    return total.hexdigest()


def layer_key(layer, recipe):
    """Equal for layers that come out equal: the code, what the layer says of its content, the lists it names."""
    says = {name: value for name, value in layer.items() if name not in ("comment", "only", "names", "take")}
    total = hashlib.sha256(json.dumps([code_of([layer]), says, recipe["epoch"], recipe.get("fill") if layer["kind"] == "fill" else None], sort_keys=True, default=str).encode())
    for path in lists_of(layer, recipe):
        total.update(hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()


def byte_count(text):
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kMG]i?)?B?", text)
    if not found or (found[2] or "") not in UNITS:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of bytes like 300M, 30G or 4GiB")
    return int(float(found[1]) * UNITS[found[2] or ""])


# ---------------------------------------------------------------- the images


def build_layer(layer, recipe, layout, cache, say_what):
    key = layer_key(layer, recipe)
    if key not in layout.finished and cache:
        if (found := cache.find(key, layout)) is not None:
            layout.remember(key, found)
    if key not in layout.finished:
        with tempfile.TemporaryDirectory(dir=layout.folder.parent, prefix=".build-") as work:
            work = Path(work)
            os.chmod(work, 0o755)
            say(say_what + " ...")
            write = KINDS[layer["kind"]](layer, recipe, work)
            blob = work / "blob"
            tar = COMPRESSORS[layer["compress"]](write, blob, work)
            layout.remember(key, {"descriptor": layout.take(blob, MEDIA + "layer.v1.tar+gzip"), "diff_id": tar.digest(), "bytes": tar.size})
        if cache:
            cache.put(key, layout.finished[key], layout)
        if "releases" not in recipe and layer["kind"] == "wheels":  # nothing is going to be upgraded in place
            shutil.rmtree(recipe["roots"] / layer["requirements"].replace("{release}", "release"))
    done = layout.finished[key]
    say(f"{say_what}: {done['bytes'] / 1e6:.1f} MB of tar, {done['descriptor']['size'] / 1e6:.1f} MB")
    return done


def build(recipe, layout, tag, cache=None):
    created = datetime.fromtimestamp(recipe["epoch"], timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    layers = []

    def names_in(list_name):
        """Names of the entries of the layer made from that list; it comes before the layer that asks."""
        number = next((n for n, layer in enumerate(recipe["layer"][:len(layers)]) if layer.get("requirements") == list_name), None)
        if number is None:
            sys.exit(f"{tag}: no layer of {list_name} comes before the layer that links to it")
        with tarfile.open(layout.blob(layers[number]["descriptor"]["digest"]), "r|gz") as tar:
            return [member.name for member in tar if member.isreg()]

    recipe = recipe | {"names_in": names_in}
    for number, layer in enumerate(recipe["layer"]):
        layers.append(build_layer(layer, recipe, layout, cache, f"{tag}, layer {number}: {layer['kind']}, {layer['compress']}"))
    history = [{"created": created, "created_by": layer.get("comment", layer["kind"])} for layer in recipe["layer"]]
    config = layout.add_json({"created": created, "architecture": "amd64", "os": "linux", "config": recipe["config"],
                              "rootfs": {"type": "layers", "diff_ids": [layer["diff_id"] for layer in layers]}, "history": history}, MEDIA + "config.v1+json")
    blobs = [layer["descriptor"] for layer in layers]
    manifest = layout.add_json({"schemaVersion": 2, "mediaType": MEDIA + "manifest.v1+json", "config": config, "layers": blobs}, MEDIA + "manifest.v1+json")
    layout.tags[tag] = manifest
    plain, packed = sum(layer["bytes"] for layer in layers), sum(blob["size"] for blob in blobs)
    say(f"{tag}: image {manifest['digest']}: {plain / 1e6:.0f} MB of tar, {packed / 1e6:.0f} MB compressed, {len(layers)} layers")


def build_all(recipe, images, options, mark):
    unfinished = options.dest.with_name(options.dest.name + ".unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    layout, cache = Layout(unfinished.resolve()), LayerCache(options.cache.resolve()) if options.cache else None
    with tempfile.TemporaryDirectory(dir=unfinished.parent, prefix=".roots-") as roots:
        for tag, image in images:
            build(image | {"roots": Path(roots).resolve()}, layout, tag, cache)
    layout.finish()
    (unfinished / ".recipe").write_text(mark)
    shutil.rmtree(options.dest, ignore_errors=True)
    os.rename(unfinished, options.dest)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--wheels", type=Path, help="a folder of wheels to install from, instead of the package index")
    parser.add_argument("--releases", type=int, help="of a series: only so many, the oldest first")
    parser.add_argument("--variant", help="of a recipe with variants: only this one")
    parser.add_argument("--cache", type=Path, help="a folder of finished layers that recipes share; made if it is not there, never cleaned")
    parser.add_argument("--report", type=Path, metavar="FILE", help="print bytes and files per layer and per distribution, and write them as JSON")
    parser.add_argument("--fill", type=byte_count, metavar="BYTES", help="of a recipe of made-up content: so many bytes of files (30G)")
    parser.add_argument("--files", type=int, metavar="N", help="in so many files")
    parser.add_argument("--seed", type=int, default=1, help="another seed, other content")
    options = parser.parse_args()
    recipe = read_recipe(options.recipe.resolve(), options.wheels and options.wheels.resolve())
    if any(layer["kind"] == "fill" for layer in recipe["layer"]) != bool(options.fill and options.files):
        parser.error("--fill BYTES and --files N belong together, and to a recipe with layers of the kind fill (images/fill)")
    if options.fill:
        recipe["fill"] = {"bytes": options.fill, "files": options.files, "seed": options.seed, "parts": sum(layer["kind"] == "fill" for layer in recipe["layer"])}
    images = images_of(recipe, options.variant, options.releases)
    stamp, mark = options.dest / ".recipe", fingerprint(recipe, images)
    if stamp.exists() and stamp.read_text() == mark:
        say(f"{options.dest}: made before from the same recipe")
    else:
        build_all(recipe, images, options, mark)
    if options.report:
        import report
        report.write(options.dest, options.report)


if __name__ == "__main__":
    main()
