"""The same input gives the same index, at any --jobs; layers indexed before are not read again."""
import shutil, sys

import layouts
import test_trees
from program import Varve, need_root, need_tools, work_folder
from tars import Tar


def digests(varve, image, *options):
    report = varve.index(image, *options)
    return report["index"], [layer["spans"] for layer in report["layers"]]


def same_bytes_at_any_jobs(work, tars):
    image, found = layouts.gzip_image(work / "image", tars), {}
    for jobs in ("1", "2", "5"):
        copy = work / f"jobs-{jobs}"
        shutil.copytree(work / "image", copy)
        with Varve(work / f"v{jobs}") as varve:
            found[jobs] = digests(varve, f"oci:{copy}:t", "--jobs", jobs)
    if len({str(value) for value in found.values()}) != 1:
        return [f"--jobs changes the index: {found}"]
    with Varve(work / "again") as varve:
        if digests(varve, image) != found["1"]:
            return ["another folder changes the index"]
        forced = digests(varve, image, "--force")
        if forced != found["1"]:
            return [f"--force changes the index: {forced}"]
    return []


def one_more_layer(work, tars):
    lines = []
    layouts.gzip_image(work / "v1", tars)
    longer = [*tars, Tar().dir("new").file("new/file", b"version 2\n" * 5000).bytes()]
    layouts.gzip_image(work / "v2", longer)
    with Varve(work / "reuse") as varve:
        first = varve.index(f"oci:{work}/v1:t")
        if any(layer["reused"] for layer in first["layers"]):
            lines.append("a first index says that it reused layers")
        second = varve.index(f"oci:{work}/v2:t")
        reused = [layer["reused"] for layer in second["layers"]]
        if reused != [True] * len(tars) + [False]:
            lines.append(f"version 2 adds one layer, yet reused is {reused}")
        again = varve.index(f"oci:{work}/v2:t")
        if again["index"] != second["index"] or not all(layer["reused"] for layer in again["layers"]):
            lines.append("indexing an indexed image reads its layers again, or changes its index")
        if again["image"] != layouts.manifest_of(f"oci:{work}/v2:t")[0]["digest"]:
            lines.append("the index changed the image's manifest")
    with Varve(work / "fresh") as varve:
        shutil.copytree(work / "v2", work / "v2-copy")
        if varve.index(f"oci:{work}/v2-copy:t", "--force")["index"] != second["index"]:
            lines.append("an index made with reused layers differs from one made in one go")
    return lines


def main():
    need_root()
    need_tools("umoci")
    with work_folder(in_memory=True) as work:
        tars = test_trees.realistic_layers()
        lines = same_bytes_at_any_jobs(work, tars) + one_more_layer(work, tars)
    print("\n".join(lines))
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
