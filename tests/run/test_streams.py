#!/usr/bin/python3
"""Standard streams that are devices: a session has them as its own, whoever carries it out. A device of the machine that it could own, it could close to everybody: /dev/null, where there is no
other standard input."""
import os, subprocess

from tiny_image import expect, make_image
import program  # noqa: E402  tiny_image says where it lies


def run(varve, device, *words):
    """Status and errors of a command all of whose input and output is the device."""
    with open(device, "r+b", buffering=0) as stream:
        done = subprocess.run([varve.binary, *words], stdin=stream, stdout=stream, stderr=subprocess.PIPE, env=varve.environment, timeout=120)
    return done.returncode, done.stderr.decode(errors="replace")


def expect_as_it_was(device, what):
    found = os.stat(device)
    expect((found.st_uid, found.st_gid, found.st_mode) == (0, 0, 0o20666), f"{what}: the device is the session's: {found}")


def main():
    program.need_root(), program.need_fuse()
    with program.work_folder() as work, program.Varve(work / "machine") as varve:
        varve.work.mkdir()
        image = make_image(work / "image")
        varve.index(image)
        device = work / "null"  # as /dev/null is, which the others on this machine need
        try:
            os.mknod(device, 0o20666, os.makedev(1, 3))
            os.chmod(device, 0o666)
            open(device, "rb").close()
        except OSError as error:
            program.skip(f"no device can be made here: {error}")
        # It reads the end of its input, writes, and tries to close the device to everybody.
        command = ("sh", "-c", "read line && exit 1; echo said || exit 2; chmod 600 /proc/self/fd/0; exit 3")
        for runtime in ("runc", "crun", "none"):
            for options in ((), ("--userns", "auto")):
                what = f"{runtime} {' '.join(options)}"
                status, said = run(varve, device, "run", "--rm", "--runtime", runtime, *options, image, "--", *command)
                if status == 125:
                    print(f"skipped: {what}: {said.strip().splitlines()[-1][:200]}", flush=True)
                    continue
                expect(status == 3, f"{what}: exit {status}: {said}")
                expect_as_it_was(device, what)
                varve.run("run", "-d", "--name", "lab", "--runtime", runtime, *options, image, "--", "sleep", "1000", check=True)
                status, said = run(varve, device, "session", "exec", "lab", "--", *command)
                if status == 125 and "in a chroot" in said:
                    print(f"skipped: {what}, exec: runtimes enter no session in a chroot", flush=True)
                else:
                    expect(status == 3, f"{what}, exec: exit {status}: {said}")
                expect_as_it_was(device, f"{what}, exec")
                varve.run("session", "stop", "--time", "1", "lab", check=True)
                varve.run("session", "rm", "lab", check=True)


if __name__ == "__main__":
    main()
