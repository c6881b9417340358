#!/usr/bin/python3
"""What a start is about to read is in the page cache before it is asked for, as the kernel tells it (mincore(2)); and nothing of that is in the way of an unmount, a daemon's
end, a crash or a second start."""
import os, signal, sys, time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(REPOSITORY / "tests/prune"), str(REPOSITORY / "bench")]
from images import Images, expect  # noqa: E402
from machine import wait_for  # noqa: E402
from touched import pages_of  # noqa: E402
from program import children_of  # noqa: E402
import program, test_learn  # noqa: E402

COMPILED = f"cpython-{sys.version_info.major}{sys.version_info.minor}.pyc"


def cached(path):
    """Whether each page of the file is in the page cache; looking brings none."""
    return [bool(page & 1) for page in pages_of(path)]


class Library:
    def __init__(self, folder, name):
        self.source = Path(folder) / test_learn.SITE / name / "__init__.py"
        self.compiled = self.source.parent / "__pycache__" / f"__init__.{COMPILED}"

    def begin(self):
        """The first bytes of what Python reads of it."""
        with open(self.compiled, "rb", buffering=0) as file:
            expect(len(file.read(1)) == 1, "a byte")


def wait_for_pages(varve, what, path):
    try:
        wait_for(what, lambda: all(cached(path)))
    except AssertionError as late:
        raise AssertionError(f"{late}: of {path} there are {cached(path)}\n{(varve.root / 'daemon.log').read_text()[-3000:]}") from None


def a_start_finds_its_pages(varve, image, mode):
    with varve.mounted(image, mode) as folder:
        upper, base = Library(folder, "upperlib"), Library(folder, "baselib")
        expect(not any(cached(upper.compiled)), "nothing is read because an image is mounted")
        upper.begin()
        wait_for_pages(varve, f"{mode}: a byte of the trigger brings all that the start reads", upper.compiled)
        expect(not any(cached(base.compiled)) and not any(cached(upper.source)), f"{mode}: no other start's, and nothing that a start does not read")
        expect(upper.compiled.read_bytes()[16:] == (varve.work / "upperlib.pyc").read_bytes()[16:], f"{mode}: the bytes are right")
        daemon = varve.daemon_pid()
        wait_for("the process that brought them has ended, but for a keeper", lambda: len(children_of(daemon)) <= 1)
    # All is here now: the next mount's pages come from the disk, as soon.
    with varve.mounted(image, mode) as folder:
        upper = Library(folder, "upperlib")
        if any(cached(upper.compiled)):
            return  # the kernel mode's mount was kept
        upper.begin()
        wait_for_pages(varve, f"{mode}: the same from the store", upper.compiled)


def nobody_who_declines_packs_gets_pages(varve, image, mode):
    with varve.mounted(image, mode, "--no-prefetch") as folder:
        upper = Library(folder, "upperlib")
        upper.begin()
        time.sleep(1)
        expect(not all(cached(upper.compiled)), f"{mode}: --no-prefetch")


def it_is_in_nobodys_way(varve, image, mode):
    """A start has just begun when the mount is to go."""
    for i in range(12):
        with varve.mounted(image, mode) as folder:  # fails if it cannot be unmounted
            Library(folder, "upperlib").begin()
            Library(folder, "baselib").begin()
            time.sleep(0.004 * (i % 4))
        varve.run("daemon", "--stop", check=True)
        if i % 3 == 0:
            varve.run("images", "rm", "--force", image, check=True)


def a_crash_leaves_no_process(varve, image, mode):
    with varve.mounted(image, mode) as folder:
        daemon = varve.daemon_pid()
        Library(folder, "upperlib").begin()
        os.kill(daemon, signal.SIGKILL)
        wait_for("another goes on", lambda: varve.daemon_pid() not in (None, daemon))
        upper, base = Library(folder, "upperlib"), Library(folder, "baselib")
        expect(upper.compiled.read_bytes()[16:] == (varve.work / "upperlib.pyc").read_bytes()[16:], "right bytes after a crash")
        base.begin()
        wait_for_pages(varve, "starts find their pages", base.compiled)


def another_program_finds_no_process(varve, image, mode):
    """A start has just begun when another daemon takes the place of this one: the processes of the first have ended, and somebody has noticed."""
    with varve.mounted(image, mode) as folder:
        daemon = varve.daemon_pid()
        before = len(children_of(daemon))
        for name in ("upperlib", "baselib"):
            Library(folder, name).begin()
            varve.run("daemon", "--replace", check=True)
            expect(varve.daemon_pid() == daemon, "the same process")
            wait_for(f"{mode}: processes that nobody waits for", lambda: len(children_of(daemon)) <= before)


def main():
    program.need_root(), program.need_fuse()
    with program.work_folder() as work, program.Varve(work / "learner") as learner:
        learner.work.mkdir()
        test_learn.BASE = Images(work / "base").base
        images = work / "images"
        images.mkdir()
        image = test_learn.write(images, "v1", 1_600_000_000)
        learner.index(image)
        groups = test_learn.named(test_learn.learn(learner, image, "--top", 3, command=("python3", "-c", "import upperlib")))
        expect(groups["upperlib"]["trigger"].startswith(f"/{test_learn.SITE}/upperlib/__pycache__/__init__"), groups)
        for mode in program.modes():
            with program.Varve(work / mode) as varve:
                varve.work.mkdir()
                (varve.work / "upperlib.pyc").write_bytes(test_learn.compiled(f"{test_learn.SITE}/upperlib/__init__.py", test_learn.LIBRARIES["upper-lib"]["upperlib/__init__.py"], 1_600_000_000))
                for check in (a_start_finds_its_pages, nobody_who_declines_packs_gets_pages, it_is_in_nobodys_way, a_crash_leaves_no_process, another_program_finds_no_process):
                    check(varve, image, mode)
                    varve.run("daemon", "--stop", "--force")
                    varve.run("images", "rm", "--force", image, check=True)


if __name__ == "__main__":
    main()
