"""A machine boots while its registry is away: what it has is mounted, by tag and by digest, and the log says whether the registry was asked."""
import shutil
from pathlib import Path

from images import Source, noise_image
from machine import Machine, expect, wait_for
from program import modes, need_fuse, need_root, work_folder


def reboot(varve):
    """No process, no mount, no socket is left."""
    keeper = varve.json("status")["daemon"]["keeper_pid"]
    varve.run("daemon", "--stop", check=True)
    wait_for("the end of the keeper", lambda: not Path(f"/proc/{keeper}").exists())
    shutil.rmtree(varve.root / "run")
    (varve.root / "daemon.log").unlink()


def mounts_and_reads(varve, reference, mode, contents, name):
    place = varve.mount(reference, mode, name)
    for path in ("data/text", "upper/file"):
        expect((place / path).read_bytes() == contents[path], f"{path} by {reference}")
    varve.run("unmount", place, check=True)
    varve.mounts.remove(str(place))
    return (varve.root / "daemon.log").read_text()


def count_requests(source):
    handler, seen = source.server.RequestHandlerClass, []
    served = handler.answer

    def answer(self, body):
        seen.append(self.path)
        return served(self, body)
    handler.answer = answer
    return seen


def boots_without(work, mode):
    image, contents = noise_image(work / f"image-{mode}", megabytes=2)
    with Source(work / f"image-{mode}") as source, Machine(work) as varve:
        varve.config.write_text(varve.config.read_text() + "deadline = 5\n")
        varve.index(image)
        digest = varve.json("inspect", source.reference)["image"]
        by_digest = source.reference.rpartition(":")[0] + "@" + digest
        varve.run("pull", "--wait", source.reference, check=True)
        reboot(varve)
        seen = count_requests(source)
        said = mounts_and_reads(varve, by_digest, mode, contents, "asked-nobody")
        expect("its registry was not asked" in said and seen == [], f"{said}\n{seen}")
        reboot(varve)
        source.server.shutdown()
        source.server.server_close()
        said = mounts_and_reads(varve, by_digest, mode, contents, "by-digest")
        expect("its registry was not asked" in said, said)
        said = mounts_and_reads(varve, source.reference, mode, contents, "by-tag")
        expect("is taken to be what it was when it was last opened" in said and digest in said, said)
        never = by_digest.replace(digest, "sha256:" + "0" * 64)
        refused = varve.run("mount", "--mkdir", never, varve.work / "never")
        expect(refused.returncode == 75 and not (varve.work / "never").exists(), refused)


def boots_with_what_a_daemon_had_answered_when_it_was_killed(work, mode):
    """It had not waited for the disk. The one after it lists what it goes on with."""
    image, contents = noise_image(work / f"killed-{mode}", megabytes=2)
    with Source(work / f"killed-{mode}") as source, Machine(work) as varve:
        varve.config.write_text(varve.config.read_text() + "deadline = 5\n")
        varve.index(image)
        place = varve.mount(source.reference, mode, "at-once")
        varve.next_daemon(varve.kill_daemon())
        for path in ("data/text", "upper/file"):
            expect((place / path).read_bytes() == contents[path], f"{path} by the next daemon")
        varve.run("unmount", place, check=True)
        varve.mounts.clear()
        reboot(varve)
        source.server.shutdown()
        source.server.server_close()
        said = mounts_and_reads(varve, source.reference, mode, contents, "by-tag")
        expect("is taken to be what it was when it was last opened" in said, said)


def main():
    need_root()
    need_fuse()
    with work_folder() as work:
        for mode in modes():
            boots_without(work, mode)
            boots_with_what_a_daemon_had_answered_when_it_was_killed(work, mode)


if __name__ == "__main__":
    main()
