#!/usr/bin/python3
"""A session that gets hold of the program which executes its command (CVE-2019-5736) writes to none that lies on the machine: not while it runs, and not by a process
outside that was handed the descriptor and waits until nobody executes that program any more."""
import array, os, secrets, shutil, socket, subprocess, sys, types
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "hostile"))
from machine import compiled, LOOPS, User  # noqa: E402
from tiny_image import expect  # noqa: E402
import program  # noqa: E402  tiny_image says where it lies


def make_tree(work):
    """A command that names the program which executes it as its interpreter, and in place of that program's loader the attack."""
    tree = work / "tree"
    loader = tree / LOOPS[os.uname().machine][0]
    for folder in (loader.parent, tree / "bin", tree / "tmp"):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(compiled(work, "attacker"), tree / "bin/probe")
    shutil.copy(compiled(work, "interpreter", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-fno-pie", "-no-pie"), loader)
    (tree / "c").write_text("#!/proc/self/exe\n")
    (tree / "c").chmod(0o755)
    return tree


class Accomplice:
    """Outside the session, where its network reaches."""

    def __init__(self):
        self.name = "varve-accomplice-" + secrets.token_hex(8)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind("\0" + self.name)
        self.socket.listen(64)
        self.socket.setblocking(False)

    def handed(self):
        """Descriptors, after the session."""
        while True:
            try:
                connection, _ = self.socket.accept()
            except BlockingIOError:
                return
            with connection:
                connection.settimeout(10)
                _, ancillary, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(4))
                for _, _, data in ancillary:
                    yield array.array("i", data)[0]


def gets_at(fd, user, programs):
    """What a process of this user can do to the programs by the descriptor, without doing it."""
    path, found = f"/proc/self/fd/{fd}", os.fstat(fd)
    name = next((name for name, status in programs.items() if os.path.samestat(status, found)), None)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setresgid(user, user, user), os.setresuid(user, user, user)
            for what, attempt in (("writes to", lambda: os.open(path, os.O_WRONLY)), ("changes the mode of", lambda: os.chmod(path, found.st_mode & 0o7777))):
                try:
                    attempt()
                    os.write(writing, f"{what} {name}; ".encode())
                except OSError:
                    pass
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading) as said:
        return said.read() if name else ""


def attack(user, runtime, tree):
    """What was reached, how many descriptors came out, and how the session ended."""
    programs = {str(path): os.stat(path) for path in (user.varve.binary, shutil.which("runc"), shutil.which("crun")) if path}
    accomplice = Accomplice()
    options = ["--runtime", runtime, "--rootfs", tree, "--env", f"PROBE_SOCKET={accomplice.name}", "--"]
    status, out, err, _ = user.run([user.varve.binary, "run", "--rm", *options, "/bin/probe", "nothing"])
    if status:
        return None, err.strip().splitlines()[-1][:200]
    status, out, err, _ = user.run([user.varve.binary, "run", "--rm", *options, "/c"])
    # And as one more command of a session, which another process executes.
    user.run([user.varve.binary, "run", "-d", "--name", "lab", *options, "/bin/probe", "pause"])
    more = user.run([user.varve.binary, "session", "exec", "lab", "--", "/c"])
    for words in (["stop", "--time", "0"], ["rm"]):
        user.run([user.varve.binary, "session", *words, "lab"])
    if more[0] == 125 and "in a chroot" in more[2]:
        print(f"skipped: {runtime}, exec: runtimes enter no session in a chroot", flush=True)
    elif user.id != 0 and runtime != "none" and os.environ.get("SANITIZED") == "thread":
        print(f"skipped: {user.name}, {runtime}, exec: ThreadSanitizer's own thread may enter no user namespace", flush=True)
    else:
        expect(more[0] == status and bool(more[1]) == bool(out), f"{runtime}: exec: {more}")
    out += more[1]
    named = {f"CHANGED {status.st_dev} {status.st_ino}": f"the session changes the mode of {name}" for name, status in programs.items()}
    wrong, count = [named.get(line, line) for line in out.splitlines() if line.startswith("ESCAPED") or line in named], 0
    for fd in accomplice.handed():
        count += 1
        wrong.append(gets_at(fd, user.id, programs))
        os.close(fd)
    return [line for line in wrong if line], f"{count} descriptors, exit {status} {err.strip()[-200:]}"


def main():
    program.need_root(), program.need_fuse(), program.need_tools("cc")
    with program.work_folder() as work:
        tree, wrong = make_tree(work), []
        for name in ("root", "nobody"):
            user = User(types.SimpleNamespace(work=work, canary_dir=work, canary=tree / "c"), program.Varve, name)
            with user.varve:
                for runtime in ("none", "runc", "crun"):
                    reached, how = attack(user, runtime, tree)
                    if reached is None:
                        expect(runtime != "none" or "user namespace" in how, f"{name}, none: {how}")
                        print(f"skipped: {name}, {runtime}: {how}", flush=True)
                        continue
                    print(f"{name}, {runtime}: {how}", flush=True)
                    wrong += [f"{name}, {runtime}: {line}" for line in reached]
        expect(not wrong, wrong)


if __name__ == "__main__":
    main()
