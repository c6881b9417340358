"""Both mounts against POSIX.1-2024 for read-only file systems: the same questions (posix/) are asked of the image
unpacked by umoci onto this machine's disk, mounted read-only, and of either mount. Where standard or kernel leave one
answer all must give it; else both mounts must answer as the disk does, but for what KNOWN lists with its reason."""
import contextlib, json, os, subprocess, sys
from pathlib import Path

PROBES = Path(__file__).resolve().parent / "posix/probes.py"
sys.path.insert(0, str(PROBES.parent))
import image as probed  # noqa: E402
import layouts  # noqa: E402
from program import Varve, modes, need_fuse, need_root, need_tools, unpack, work_folder  # noqa: E402

# {(mode, question): (answer, why it is not the disk's)}
KNOWN = {
    ("kernel", "stat: block size is sane"): (512, "the tree's blocks are tar's"),
    ("fuse", "notices: epoll of a file"): ("registered", "FUSE has a poll operation for files"),
}
NO_FSYNC = ("EINVAL", "EROFS, as squashfs, has none; the overlay of a session asks no lower layer")
BUFFERED = ("EINVAL", "EROFS reads the files beneath it through the page cache alone")
for question in ("fsync of a file", "fsync of a directory", "fdatasync of a file", "fdatasync of a directory"):
    KNOWN["kernel", f"read: {question}"] = NO_FSYNC
for piece in ("0+4096", "8192+524288", "3145728+4096"):
    KNOWN["kernel", f"O_DIRECT: O_DIRECT {piece}"] = BUFFERED
for mode in ("kernel", "fuse"):
    sparse = "stat: blocks of a file with holes are less than its size"
    KNOWN[mode, sparse] = (False, "EROFS counts the size; so does fuse mode")


@contextlib.contextmanager
def read_only(folder, place):
    """What the disk shows, mounted as Varve mounts: ro, nosuid, nodev."""
    place.mkdir()
    subprocess.run(["mount", "--bind", folder, place], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro,nosuid,nodev", place], check=True)
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def answers_of(tree):
    done = subprocess.run([sys.executable, "-B", PROBES, tree], stdout=subprocess.PIPE, timeout=240)
    if done.returncode != 0:
        raise AssertionError(f"the probes of {tree} ended with {done.returncode}")
    return json.loads(done.stdout)


def differences(mode, answers, disk):
    for question, said in answers.items():
        answer, right = said["answer"], disk[question]["answer"] if said["must"] is None else said["must"]
        if answer == right or (said["among"] and answer in right):
            if (mode, question) in KNOWN:
                print(f"{mode}: {question}: {answer!r}, better than on Linux 6.18", flush=True)
        elif (mode, question) not in KNOWN or answer != KNOWN[mode, question][0]:
            yield f"{question}: {answer!r}, {'on disk' if said['must'] is None else 'must be'} {right!r}"


def main():
    need_root(), need_fuse(), need_tools("umoci")
    failures = []
    with work_folder() as work, Varve(work / "v") as varve:
        varve.work.mkdir()
        image = layouts.gzip_image(work / "image", probed.layers())
        unpacked = unpack(image, work / "b")
        # By the standard of PAX an empty value is none, by its use in layers it is one; and umoci writes out holes.
        os.setxattr(unpacked / "x", "user.empty", b"")
        for name in ("sparse", "only-a-hole"):
            before = os.stat(unpacked / name)
            subprocess.run(["fallocate", "--dig-holes", unpacked / name], check=True)
            os.utime(unpacked / name, ns=(before.st_atime_ns, before.st_mtime_ns))
        with read_only(unpacked, work / "disk") as place:
            disk = answers_of(place)
        failures += [f"disk: {line}" for line in differences("disk", disk, disk)]
        varve.index(image)
        for mode in modes():
            with varve.mounted(image, mode) as place:
                answers = answers_of(place)
            if answers.keys() != disk.keys():
                failures.append(f"{mode}: other questions: {sorted(answers.keys() ^ disk.keys())[:5]}")
            found = list(differences(mode, answers, disk))
            stated = sum(said["must"] is not None for said in answers.values())
            known = sum(m == mode for m, _ in KNOWN)
            print(f"{mode} mode: {len(answers)} questions, {stated} with an answer that is stated, {known} known "
                  f"differences, {len(found)} others", flush=True)
            failures += [f"{mode}: {line}" for line in found]
        asked = {("disk", q) for q in disk} | {(mode, q) for mode in ("kernel", "fuse") for q in disk}
        failures += [f"KNOWN names what nobody asks: {key}" for key in KNOWN.keys() - asked]
    print("\n".join(failures))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
