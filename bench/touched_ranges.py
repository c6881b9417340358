#!/usr/bin/python3
"""Which byte ranges of an unpacked image a program needs, as bench/span_curve reads them.

  touched_ranges.py ROOTFS OUT.json -- python3 -c 'import torch'        (as root: the program runs in a chroot)

The files are put out of the page cache first, read-ahead is off while the program runs, and mincore() says what came in.
"""
import json, os, shutil, subprocess, sys

import touched


def files_of(tree):
    for folder, _, names in os.walk(tree):
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path) and os.path.isfile(path) and os.path.getsize(path):
                yield path


def evict(paths):
    os.sync()
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def ranges(path):
    pages, size, found = touched.pages_of(path), os.path.getsize(path), []
    for number, page in enumerate(pages):
        if not page & 1:
            continue
        begin, end = number * touched.PAGE, min((number + 1) * touched.PAGE, size)
        if found and found[-1][1] == begin:
            found[-1][1] = end
        else:
            found.append([begin, end])
    return found


def main():
    if len(sys.argv) < 5 or sys.argv[3] != "--":
        sys.exit(__doc__)
    tree, out, command = os.path.realpath(sys.argv[1]), sys.argv[2], sys.argv[4:]
    paths = list(files_of(tree))
    evict(paths)
    evict(paths)  # what the first round dirtied or held is free now
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "PYTHONDONTWRITEBYTECODE": "1"}
    with touched.without_read_ahead(tree):
        subprocess.run([shutil.which("chroot", path="/usr/sbin:/usr/bin:/sbin:/bin"), tree, *command], env=environment, check=True, stdout=subprocess.DEVNULL)
    found = {os.path.relpath(path, tree): runs for path in paths if (runs := ranges(path))}
    with open(out, "w") as file:
        json.dump(found, file)
    total = sum(end - begin for runs in found.values() for begin, end in runs)
    print(f"{len(found)} files, {total / 1e6:.1f} MB of pages")


if __name__ == "__main__":
    main()
