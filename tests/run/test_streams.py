#!/usr/bin/python3
"""Standard streams that are devices or files: a session has them as its own, or by a pipe, whoever carries it out. A device of the machine that it could own, it could close to everybody: /dev/null,
where there is no other standard input. A file that it had itself it could open anew, and write to its input."""
import os, shutil, subprocess, time

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


# It reads all, writes much, and tries to get more of the files than it was given.
GRASP = """cat; i=0; while [ $i -lt 4000 ]; do echo 0123456789012345678901234567890123456789; i=$((i+1)); done; echo said >&2
exec 7<&0 8>&1 9>&2; for fd in 7 8 9; do chmod 777 /proc/self/fd/$fd; echo OWNED > /proc/self/fd/$fd; done 2>/dev/null; exit 3"""
LINES = "0123456789" * 4 + "\n"


def with_files(varve, work, *words):
    """What is wrong after a command whose input and outputs are files of the machine."""
    files = {name: work / name for name in ("input", "output", "errors")}
    for name, path in files.items():
        path.unlink(missing_ok=True)
        path.write_text("given\n" if name == "input" else "before\n")
        path.chmod(0o640)
    with open(files["input"], "rb") as given, open(files["output"], "ab") as output, open(files["errors"], "ab") as errors:
        status = subprocess.run([varve.binary, *words], stdin=given, stdout=output, stderr=errors, env=varve.environment, timeout=120).returncode
    if status == 125:
        return files["errors"].read_text().removeprefix("before\n"), []
    found = {name: path.read_text() for name, path in files.items()}
    wanted = {"input": "given\n", "output": "before\ngiven\n" + 4000 * LINES, "errors": "before\nsaid\n"}
    wrong = [f"{name}: {found[name][:100]!r}, {len(found[name])} bytes" for name in files if found[name].replace("OWNED\n", "", name != "input") != wanted[name]]
    wrong += [f"{name}: {now}" for name, path in files.items() if ((now := path.stat()).st_uid, now.st_gid, now.st_mode) != (0, 0, 0o100640)]
    return "", wrong + ([f"exit {status}"] if status != 3 else [])


def files_stay_the_machines(varve, work, image, runtime, options):
    what = f"{runtime} {' '.join(options)}"
    skipped, wrong = with_files(varve, work, "run", "--rm", "--runtime", runtime, *options, image, "--", "sh", "-c", GRASP)
    if skipped:
        expect(runtime != "none" or options, f"files, {what}: {skipped}")
        return print(f"skipped: files, {what}: {skipped.strip().splitlines()[-1][:200]}", flush=True)
    expect(not wrong, f"files, {what}: {wrong}")
    varve.run("run", "-d", "--name", "lab", "--runtime", runtime, *options, image, "--", "sleep", "1000", check=True)
    skipped, wrong = with_files(varve, work, "session", "exec", "lab", "--", "sh", "-c", GRASP)
    expect(not wrong and (not skipped or "in a chroot" in skipped), f"files, {what}, exec: {wrong} {skipped}")
    if runtime != "runc" and not skipped:  # which waits for all that has a stream open
        what_goes_on_is_written_on(varve, work, what)
    varve.run("session", "stop", "--time", "1", "lab", check=True)
    varve.run("session", "rm", "lab", check=True)


def what_goes_on_is_written_on(varve, work, what):
    path = work / "late"
    late = "(while [ ! -e /tmp/go ]; do sleep 0.05; done; echo late) & echo early"
    with open(path, "wb") as output:
        done = subprocess.run([varve.binary, "session", "exec", "lab", "--", "sh", "-c", late], stdin=subprocess.DEVNULL, stdout=output, env=varve.environment, timeout=120)
        expect(done.returncode == 0 and path.read_text() == "early\n", f"{what}: {done} {path.read_text()!r}")
    varve.run("session", "exec", "lab", "--", "touch", "/tmp/go", check=True)
    until = time.monotonic() + 60
    while path.read_text() != "early\nlate\n":
        expect(time.monotonic() < until, f"{what}: {path.read_text()!r}")
        time.sleep(0.05)


def one_file_for_both_keeps_the_order(varve, work, image, runtime):
    command = "i=0; while [ $i -lt 500 ]; do echo $i; echo $i >&2; i=$((i+1)); done"
    with open(work / "both", "wb") as both:
        done = subprocess.run([varve.binary, "run", "--rm", "--runtime", runtime, image, "--", "sh", "-c", command], stdin=subprocess.DEVNULL, stdout=both, stderr=both, env=varve.environment, timeout=120)
    expect(done.returncode == 0 and (work / "both").read_text() == "".join(f"{i}\n{i}\n" for i in range(500)), f"both, {runtime}: {done}")


def a_full_disk_is_told(varve, work, image, runtime):
    small = work / "small"
    small.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
    try:
        with open(small / "output", "wb") as output:
            done = subprocess.run([varve.binary, "run", "--rm", "--runtime", runtime, image, "--", "sh", "-c", GRASP], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, env=varve.environment, timeout=120)
        expect(done.returncode == 125 and b"write standard output: No space left" in done.stderr, f"full, {runtime}: {done}")
    finally:
        subprocess.run(["umount", small], check=True)


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
        for runtime in ("runc", "crun", "none"):
            for options in ((), ("--user", "user"), ("--userns", "auto")):
                files_stay_the_machines(varve, work, image, runtime, options)
        for runtime in ("crun", "none"):
            if runtime == "none" or shutil.which(runtime):
                one_file_for_both_keeps_the_order(varve, work, image, runtime)
                a_full_disk_is_told(varve, work, image, runtime)
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
