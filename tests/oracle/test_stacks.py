"""test_stacks.py [--seeds N] [--first SEED]: layers made at random (layer_stacks.py), merged and mounted by Varve,
by kernel and by FUSE in turn, against what umoci unpacks: every name, attribute, link and byte. What differs is made as small as can be."""
import argparse, shutil, sys, time
from collections import Counter

import layouts
from layer_stacks import Stack, deepest_whiteouts_first, smaller, tars_of, whiteouts_first
from program import Varve, modes, need_fuse, need_root, need_tools, unpack, work_folder
from scan import differences, scan


class Machine:
    def __init__(self, work, varve):
        self.work, self.varve, self.count, self.mode = work, varve, 0, "fuse"

    def compare(self, layers):
        """(what kind of answer, lines of differences)"""
        self.count += 1
        place = self.work / f"image{self.count}"
        image = layouts.gzip_image(place, tars_of(layers))
        try:
            refusal, found = self.mounted(image)
            # umoci obeys a whiteout when it meets it, so it gets them first, as the specification wants it (layer.md,
            # "Whiteouts"). Where this layer also hides or replaces a symlink on the way to one, it depends on the
            # order whose folder is meant, and then each answer is one of umoci's.
            for kind, order in (("compared", whiteouts_first), ("compared, deepest first", deepest_whiteouts_first),
                                ("compared in the layers' own order", list)):
                error, lines = self.against_umoci(place, order(layers), refusal, found)
                if error or not lines:
                    return error or kind, []
            return "different", lines
        finally:
            shutil.rmtree(place)

    def mounted(self, image):
        """(why Varve refuses it, what the mount shows)"""
        indexed = self.varve.run("index", image)
        if indexed.returncode:
            return indexed.stderr.decode(errors="replace").strip(), {}
        with self.varve.mounted(image, self.mode) as tree:
            return "", scan(tree)

    def against_umoci(self, place, layers, refusal, found):
        """(why there is nothing to compare, lines of differences)"""
        started = time.time_ns()
        shutil.rmtree(place / "umoci", ignore_errors=True)
        try:
            expected = scan(unpack(layouts.gzip_image(place / "umoci", tars_of(layers)), place / "umoci/b"))
        except AssertionError as error:
            reason = str(error).strip().rpartition(": ")[2]
            return f"refused by {'both' if refusal else 'umoci: ' + reason}", []
        if refusal:
            return "", ["umoci takes what varve refuses: " + refusal]
        for path, entry in expected.items():
            # umoci does not put every folder's time back; the specification has none for those without an entry.
            if entry.type == "dir" and entry.mtime_ns >= started and path in found:
                entry.mtime_ns = found[path].mtime_ns
        return "", differences(expected, found)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seeds", type=int, default=300)
    options.add_argument("--first", type=int, default=1)
    options.add_argument("--stop-after", type=int, default=5)
    given = options.parse_args()
    need_root(), need_fuse(), need_tools("umoci")
    answers, wrong, turns = Counter(), 0, modes()
    # The kernel mounts no trees that lie in memory.
    with work_folder(in_memory=True) as work, work_folder() as disk, Varve(disk) as varve:
        machine = Machine(work, varve)
        for seed in range(given.first, given.first + given.seeds):
            stack, machine.mode = Stack(seed), turns[seed % len(turns)]
            kind, lines = machine.compare(stack.layers)
            answers[kind] += 1
            if lines:
                wrong += 1
                least = smaller(stack.layers, lambda layers: any(layers) and bool(machine.compare(layers)[1]))
                print(f"seed {seed}:")
                for number, layer in enumerate(least):
                    print("\n".join(f"  layer {number}: {line}" for line, _ in layer))
                print("\n".join("    " + line for line in machine.compare(least)[1][:6]), flush=True)
                if wrong == given.stop_after:
                    break
    for kind, count in answers.most_common(25):
        print(f"{count:6} {kind}")
    if answers["compared"] < 0.6 * answers.total():
        sys.exit("too few stacks could be compared")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
