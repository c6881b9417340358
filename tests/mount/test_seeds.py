"""An index says what of a new version an earlier one has: who has that reads it there, from the first read on, and asks for entries of neither; where nobody vouches for the index, it is not believed."""
import json, time
from pathlib import Path

import layouts
from images import Source
from program import Varve, modes, need_fuse, need_root, work_folder
from test_versions import expect, library, make_versions, of_mount, read_all, tar_of, wait_for_contents


class Node(Varve):
    """A machine that believes a key, or none."""

    def __init__(self, work, key=None):
        super().__init__(work)
        self.work.mkdir()
        (self.work / "varve.toml").write_text("[daemon]\nkeep-mounted = 0\n" + (f'[trust]\nindex = "signed"\nkeys = ["{key}"]\n' if key else ""))
        self.told = 0
        self.environment["VARVE_CONFIG"] = str(self.work / "varve.toml")

    def wait_for_seeds(self):
        """Of an image that was opened since this was called last."""
        for _ in range(600):
            told = (self.root / "daemon.log").read_text().count(SEEDED)
            if told > self.told:
                self.told = told
                return
            time.sleep(0.05)
        raise AssertionError("the daemon uses no seeds")


def add_third(folder, contents):
    """Built again, with some changed: one compiled file's code, another's source, which is longer, and the second of four MiB of a library."""
    files = {path: data[:8] + (1_700_000_120).to_bytes(4, "little") + data[12:] if path.endswith(".pyc") else data for path, data in contents.items()}
    code, source, compiled = "lib/__pycache__/m7.cpython-311.pyc", "lib/m8.py", "lib/__pycache__/m8.cpython-311.pyc"
    files[code] = files[code][:-1] + bytes([files[code][-1] ^ 1])
    files[source] += b"#"
    files[compiled] = files[compiled][:12] + len(files[source]).to_bytes(4, "little") + files[compiled][16:]
    library = bytearray(files["lib/core.so"])
    library[1_500_000] ^= 1
    files["lib/core.so"] = bytes(library)
    add_tag(folder, [tar_of(dict(sorted(files.items())), 1_700_000_120)], "third")
    return files, sum(map(len, files.values())) - len(files[code]) - len(files[source]) - len(files[compiled]) - (1 << 20)


def add_tag(folder, tars, tag):
    others = json.loads((folder / "index.json").read_text())["manifests"]
    layouts.gzip_image(folder, tars, tag)
    document = json.loads((folder / "index.json").read_text())
    document["manifests"] += [m for m in others if m["digest"] not in {n["digest"] for n in document["manifests"]}]
    (folder / "index.json").write_text(json.dumps(document))


SEEDED = "of its earlier version hold here is not fetched again"


def a_node_reads_the_old_version(work, mode, folder, contents):
    with Source(folder) as source, Node(work / mode, work / "ci.pub") as node:
        first, second = (source.reference.rpartition(":")[0] + ":" + tag for tag in ("first", "second"))
        with node.mounted(first, mode) as old:
            read_all(old, library(1_700_000_000))
        with node.mounted(second, mode) as new:
            node.wait_for_seeds()
            served = source.blobs_served
            expect(Path(new, "lib/new").read_bytes() == contents["lib/new"], "the new file differs")
            expect(source.blobs_served > served, "the new file came from somewhere else")
            source.failing = True
            read_all(new, contents)
            stats = of_mount(node, new)
            read = sum(map(len, contents.values()))
            expect(0.9 * read < stats["copied_bytes"] <= read, f"{stats}")
            expect(stats["bytes_from"]["local"] == stats["copied_bytes"], f"{stats['bytes_from']}")
            expect(stats["fetched_bytes"] < 400_000 and stats["errors"] == 0, f"{stats}")
            expect(not list((node.root / "store").glob("*/units")), "entries were fetched")
            # A daemon that takes over does not forget it. Damage in the old version is no word of this one: what is found is dropped.
            source.failing = False
            node.run("daemon", "--replace", check=True)
            node.wait_for_seeds()
            source.failing = True
            read_all(new, contents)
            source.failing = False
        result = node.json("verify", "--store")
        expect(result["bad"] == [], f"{result}")
        damaged_bytes_do_not_stay(node, mode, first, second, contents)
        # Nothing was recorded: the layers of the new version have of it only what was fetched, so that no other image that has them believes it.
        images = {name: image for image in node.json("images")["images"] for name in image["references"]}
        old = next(image["image"] for name, image in images.items() if name.endswith(":first"))
        for _ in range(200):  # what it has in common with the other may just be being looked at
            if node.run("images", "rm", old).returncode != 75:
                break
            time.sleep(0.05)
        expect(not any(":first" in name for image in node.json("images")["images"] for name in image["references"]), "it is still here")
        with node.mounted(second, mode) as new:
            read_all(new, contents)
            stats = of_mount(node, new)
            expect(stats["copied_bytes"] == 0 and stats["fetched_bytes"] > 1_000_000, f"{stats}")
        # A pull needs entries, as what it leaves is complete.
        node.run("pull", "--wait", first, check=True)
        pulled = node.json("pull", "--wait", second)
        expect(pulled["present_bytes"] > 0, f"{pulled}")
        source.failing = True
        with node.mounted(second, mode) as new:
            read_all(new, contents)
        source.failing = False


def damaged_bytes_do_not_stay(node, mode, first, second, contents):
    """What the disk has damaged of the old version is found, and right again in both, though it was shown by the new one."""
    old = library(1_700_000_000)
    with node.mounted(second, mode) as new:
        node.wait_for_seeds()
        content = old["lib/core.so"][2_000_000:2_004_096]
        data = next(path for path in (node.root / "store").glob("*/data") if content in path.read_bytes())
        at = data.read_bytes().index(content)
        with open(data, "r+b") as file:
            file.seek(at)
            file.write(bytes(4096))
        expect(Path(new, "lib/core.so").read_bytes() != contents["lib/core.so"], "the damage was not seen: it was read elsewhere")
        found = node.run("verify", "--store", "--json")
        expect(found.returncode == 3 and len(json.loads(found.stdout)["bad"]) == 1, f"{found}")
        read_all(new, contents)
    with node.mounted(first, mode) as again:
        read_all(again, old)


def log_of_entries(node, source, mode, contents):
    """Of the daemon, when the second version was read out of the first by the entries of both."""
    first, second = (source.reference.rpartition(":")[0] + ":" + tag for tag in ("first", "second"))
    with node.mounted(first, mode) as old:
        read_all(old, library(1_700_000_000))
    with node.mounted(second, mode) as new:
        wait_for_contents(node, second)
        read_all(new, contents)
        expect(of_mount(node, new)["copied_bytes"] > 0, "nothing was copied")
    return (node.root / "daemon.log").read_text()


def nobody_vouches(work, mode, folder, contents):
    """Then both versions are compared by their entries, as if the index had no seeds."""
    with Source(folder) as source, Node(work / f"{mode}-unsigned") as node:
        log = log_of_entries(node, source, mode, contents)
        expect(SEEDED not in log, "the seeds of an index that nobody vouches for were used")
        expect("images here hold is not fetched again" in log, log)


def layers_of_another_repository(work, mode, folder, contents):
    """An index cannot lead to them, though its author knows what they are called, and an image of theirs has a layer of this one."""
    with Source(folder) as theirs, Source(folder) as ours, Node(work / f"{mode}-others", work / "ci.pub") as node:
        of = lambda source, tag: source.reference.rpartition(":")[0] + ":" + tag
        with node.mounted(of(theirs, "first"), mode) as one, node.mounted(of(theirs, "second"), mode) as two:
            node.wait_for_seeds()
            read_all(one, library(1_700_000_000)), read_all(two, contents)
        with node.mounted(of(ours, "fourth"), mode) as new:
            wait_for_contents(node, of(ours, "fourth"))  # by entries, which prove what is taken
            read_all(new, contents)
        told = (node.root / "daemon.log").read_text().count(SEEDED)
        expect(told == node.told, "seeds led to another repository's layers")


def damaged_seeds(work, mode, folder, contents):
    """Said, and both versions are compared by their entries."""
    blobs = [json.loads(path.read_text()) for path in folder.glob("blobs/sha256/*") if path.read_bytes()[:1] == b"{"]
    seeds = {layer["digest"] for blob in blobs for layer in blob.get("layers", []) if "seeds" in layer["mediaType"]}
    kept = {path: path.read_bytes() for path in (folder / "blobs" / digest.replace(":", "/") for digest in seeds)}
    expect(len(kept) > 1, "the images have seeds")
    for path, data in kept.items():
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    try:
        with Source(folder) as source, Node(work / f"{mode}-damaged", work / "ci.pub") as node:
            log = log_of_entries(node, source, mode, contents)
            expect("its seeds are not used" in log and SEEDED not in log, log)
    finally:
        for path, data in kept.items():
            path.write_bytes(data)


def an_old_version_that_is_evicted(work, mode, folder, contents, third):
    """While the new one is read out of it: what goes is fetched."""
    with Source(folder) as source, Node(work / f"{mode}-evicted", work / "ci.pub") as node:
        config = node.work / "varve.toml"
        config.write_text(config.read_text().replace("[daemon]", '[daemon]\nstore-size = "5MB"\nevict-idle = 0'))
        first, second = (source.reference.rpartition(":")[0] + ":" + tag for tag in ("first", "second"))
        with node.mounted(first, mode) as old:
            read_all(old, library(1_700_000_000))
        with node.mounted(second, mode) as new:
            node.wait_for_seeds()
            for path in ("lib/new", *list(contents)[:40]):
                expect(Path(new, path).read_bytes() == contents[path], f"{path} differs")
            before = of_mount(node, new)["fetched_bytes"]
            with node.mounted(source.reference.rpartition(":")[0] + ":third", mode) as other:  # which needs the room
                read_all(other, third)
                time.sleep(6)  # what is chosen goes after 5 s
                read_all(other, third)
            read_all(new, contents)
            stats = of_mount(node, new)
            expect(stats["fetched_bytes"] > before and stats["errors"] == 0, f"nothing went: {stats}")


def the_version_before_has_little(work, mode, folder, third):
    """As it was read out of the one before that: what others have is compared by entries."""
    with Source(folder) as source, Node(work / f"{mode}-third", work / "ci.pub") as node:
        names = [source.reference.rpartition(":")[0] + ":" + tag for tag in ("first", "second", "third")]
        with node.mounted(names[0], mode) as one:
            read_all(one, library(1_700_000_000))
        with node.mounted(names[1], mode):
            node.wait_for_seeds()
        with node.mounted(names[2], mode) as new:
            wait_for_contents(node, names[2])
            read_all(new, third)
            stats = of_mount(node, new)
            expect(stats["copied_bytes"] > 0.5 * sum(map(len, third.values())), f"{stats}")


def the_command_line(work, folder, third_bytes):
    ci = work / "ci"
    with Node(ci) as varve:
        varve.environment["COSIGN_PASSWORD"] = ""
        first, second = f"oci:{folder}:first", f"oci:{folder}:second"
        refused = varve.run("index", second, "--previous", first)
        expect(refused.returncode == 1 and f"varve index {first}" in refused.stderr.decode(), f"{refused}")
        varve.run("keygen", "-o", work / "ci", check=True)
        varve.run("index", first, "--sign", work / "ci.key", "--bundle", check=True)
        made = varve.json("index", second, "--previous", first, "--sign", work / "ci.key", "--bundle")
        library_bytes = sum(map(len, library(0).values()))
        expect(made["seeded_bytes"] == library_bytes, f"{made['seeded_bytes']} of {library_bytes}: all but the new file, bytecode too")
        expect(varve.json("inspect", second)["seeds_bytes"] > 0 and varve.json("inspect", first)["seeds_bytes"] == 0, "seeds are shown")
        expect("seeds  " in varve.run("inspect", second, check=True).stdout.decode(), "seeds are shown")
        again = varve.json("index", second, "--previous", first)
        expect(again["index"] == made["index"], "the same versions make the same index")
        kept = varve.json("index", second)
        expect(kept["index"] == made["index"], "indexing again without --previous keeps what is known")
        third = varve.json("index", f"oci:{folder}:third", "--previous", second, "--sign", work / "ci.key", "--bundle")
        expect(third["seeded_bytes"] == third_bytes, f"{third['seeded_bytes']}, not {third_bytes}: what differs by more than a time is not equal")
        fourth = varve.json("index", f"oci:{folder}:fourth", "--previous", second, "--sign", work / "ci.key", "--bundle")
        expect(fourth["seeded_bytes"] > 1_000_000, f"{fourth}")
        words = varve.run("index", "--force", second, "--previous", first, check=True).stdout.decode()
        expect("are in the previous version" in words, words)
        # Who believes an index only because it lies beside the image cannot rest another on it.
        with Node(work / "other") as other:
            refused = other.run("index", second, "--previous", first)
            expect(refused.returncode == 1 and "no key that counts has signed it" in refused.stderr.decode() and f"varve index {first}" in refused.stderr.decode(), f"{refused.stderr}")


def main():
    need_root(), need_fuse()
    with work_folder() as work:
        folder = work / "image"
        contents = make_versions(folder)
        third, third_bytes = add_third(folder, contents)
        add_tag(folder, [tar_of(library(1_700_000_000), 1_700_000_000), tar_of(contents, 1_700_000_180)], "fourth")
        the_command_line(work, folder, third_bytes)
        for mode in modes():
            a_node_reads_the_old_version(work, mode, folder, contents)
            nobody_vouches(work, mode, folder, contents)
            the_version_before_has_little(work, mode, folder, third)
            layers_of_another_repository(work, mode, folder, contents)
            damaged_seeds(work, mode, folder, contents)
            an_old_version_that_is_evicted(work, mode, folder, contents, third)


if __name__ == "__main__":
    main()
