"""Locks, events, programs that run from the tree."""
import fcntl, os, select, struct, subprocess

from asking import as_nobody, checked, in_child, libc, opened, whole


def locks(ask):
    def lock(path, kind, call=fcntl.lockf, flags=os.O_RDONLY):
        return opened(path, flags, use=lambda fd: call(fd, kind | fcntl.LOCK_NB))
    ask("fcntl F_RDLCK", lambda: lock("f", fcntl.LOCK_SH), None)
    ask("fcntl F_WRLCK of a descriptor for reading", lambda: lock("f", fcntl.LOCK_EX), "EBADF")
    ask("flock LOCK_SH", lambda: lock("f", fcntl.LOCK_SH, fcntl.flock), None)
    ask("flock LOCK_EX", lambda: lock("f", fcntl.LOCK_EX, fcntl.flock), None)
    ask("flock of a directory", lambda: lock("d", fcntl.LOCK_EX, fcntl.flock), None)

    def held(first, second, path="f"):
        def while_held(fd):
            fcntl.flock(fd, first)
            return in_child(lambda: lock(path, second, fcntl.flock))
        return opened("f", use=while_held)
    ask("flock LOCK_EX against LOCK_EX of another", lambda: held(fcntl.LOCK_EX, fcntl.LOCK_EX), "EAGAIN")
    ask("flock LOCK_SH against LOCK_EX of another", lambda: held(fcntl.LOCK_EX, fcntl.LOCK_SH), "EAGAIN")
    ask("flock LOCK_SH beside LOCK_SH", lambda: held(fcntl.LOCK_SH, fcntl.LOCK_SH), None)
    ask("flock of another name of the file",
        lambda: opened("hard/one", use=lambda fd: (fcntl.flock(fd, fcntl.LOCK_EX),
                                                   in_child(lambda: lock("hard/two", fcntl.LOCK_EX, fcntl.flock)))[1]),
        "EAGAIN")
    ask("flock of another file", lambda: held(fcntl.LOCK_EX, fcntl.LOCK_EX, "page"), None)

    def lock_of_another(fd):
        fcntl.lockf(fd, fcntl.LOCK_SH, 10, 5)
        query = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        found = in_child(lambda: opened("f", use=lambda other: fcntl.fcntl(other, fcntl.F_GETLK, query).hex()))
        return list(struct.unpack("hhqqi4x", bytes.fromhex(found))[:4])
    ask("F_GETLK sees the read lock of another", lambda: opened("f", use=lock_of_another), [fcntl.F_RDLCK, 0, 5, 10])
    ask("F_SETLEASE F_RDLCK", lambda: opened("f", use=lambda fd: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)))


def notices(ask):
    def poll(path, flags=os.O_RDONLY):
        def on(fd):
            poller = select.poll()
            poller.register(fd, select.POLLIN | select.POLLOUT)
            return [event for _, event in poller.poll(0)]
        return opened(path, flags, use=on)
    ask("poll of a file is ready at once", lambda: poll("f"), [select.POLLIN | select.POLLOUT])
    ask("poll of a directory", lambda: poll("d"), [select.POLLIN | select.POLLOUT])
    ask("select of a file",
        lambda: opened("f", use=lambda fd: [len(ready) for ready in select.select([fd], [fd], [fd], 0)]))

    def epoll():
        with select.epoll() as poller, open("f", "rb") as file:
            poller.register(file.fileno(), select.EPOLLIN)
            return "registered"
    ask("epoll of a file", epoll, None)

    def inotify(path, mask, act):
        fd = checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        try:
            checked(libc.inotify_add_watch(fd, os.fsencode(path), mask))
            act()
            raw, at, seen = os.read(fd, 4096), 0, []
            while at < len(raw):
                _, event, _, length = struct.unpack_from("iIII", raw, at)
                seen.append([hex(event), raw[at + 16:at + 16 + length].rstrip(b"\0")])
                at += 16 + length
            return seen
        finally:
            os.close(fd)
    ask("inotify of a file that is read", lambda: inotify("f", 0x20 | 0x1 | 0x10, lambda: whole("f")))
    ask("inotify of a folder whose file is read", lambda: inotify("d", 0x20 | 0x10, lambda: whole("d/file")))
    ask("inotify of a symlink itself", lambda: inotify("to-file", 0x20 | 0x2000000, lambda: whole("to-file")), "EAGAIN")
    ask("FIONREAD", lambda: opened("f", use=lambda fd: struct.unpack("i", fcntl.ioctl(fd, 0x541B, b"\0" * 4))[0]),
        os.stat("f").st_size)
    ask("TCGETS: no terminal", lambda: os.isatty(os.open("f", os.O_RDONLY)), False)


def execve(ask):
    def run(path, *arguments, executable=None):
        done = subprocess.run([path, *arguments], executable=executable, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        return done.returncode, done.stdout
    everybody = (("root", lambda call: call()), ("plain user", as_nobody))
    for who, as_user in everybody:
        ask(f"a program, {who}",
            lambda: as_user(lambda: run("./exec/program", "-r") == run("uname", "-r", executable="/bin/uname")), True)
        ask(f"a script, {who}", lambda: as_user(lambda: run("./exec/script", "a b")), (0, b"a script says a b\n"))
        ask(f"through a symlink, {who}", lambda: as_user(lambda: run("./to-script", "c")), (0, b"a script says c\n"))
        ask(f"a program that is not there for all, {who}", lambda: as_user(lambda: run("./exec/for-root")))
        ask(f"a setuid program of a nosuid mount, {who}",
            lambda: as_user(lambda: run("./suid", "-u") == (0, b"%d\n" % os.getuid())), True)
    ask("by descriptor", lambda: in_child(lambda: opened("exec/program", use=lambda fd: run_descriptor(fd))),
        (0, b"Linux\n"))
    for path, must in (("./f", "EACCES"), ("./d", "EACCES"), ("./absent", "ENOENT"), ("./f/x", "ENOTDIR"),
                       ("./exec/no-format", "ENOEXEC"), ("./exec/no-interpreter", "ENOENT"),
                       ("./exec/interpreter-in-tree", None), ("./dev/null", "EACCES"), ("./loop", "ELOOP")):
        ask(f"{path}", lambda: run(path), must)
    ask("a capability of a nosuid mount", lambda: as_nobody(lambda: capability_of("./capable")))


def run_descriptor(fd):
    os.set_inheritable(fd, True)
    done = subprocess.run(["program", "-s"], executable=f"/proc/self/fd/{fd}", pass_fds=[fd], stdout=subprocess.PIPE)
    return done.returncode, done.stdout


def capability_of(program):
    done = subprocess.run([program, "CapEff", "/proc/self/status"], stdout=subprocess.PIPE)
    return done.stdout
