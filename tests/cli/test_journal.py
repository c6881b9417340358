#!/usr/bin/env python3
"""Log lines in the journal: fields that people filter by when standard error leads there, lines on standard error as ever when it does not."""
import os, signal, socket, struct, subprocess, sys, time
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TREE / "tests/oracle"), str(TREE / "tests/run")]
import layouts, program, tars  # noqa: E402
from tiny_image import expect  # noqa: E402

SOCKET = "/run/systemd/journal/socket"


def own_run_folder():
    """This machine's own journal is not asked."""
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    os.makedirs(os.path.dirname(SOCKET))


def fields_of(datagram):
    """systemd's native protocol: NAME=value, or NAME, a length and any bytes."""
    fields, rest = [], datagram
    while rest:
        line, _, behind = rest.partition(b"\n")
        if b"=" in line:
            name, _, value = line.partition(b"=")
            rest = behind
        else:
            name, length = line, struct.unpack("<Q", behind[:8])[0]
            value, rest = behind[8:8 + length], behind[8 + length + 1:]
        fields.append((name.decode(), value.decode()))
    return fields


class Journal:
    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(SOCKET)

    def entries(self):
        found = []
        self.socket.settimeout(0.2)
        while True:
            try:
                datagram, _, _, _ = self.socket.recvmsg(1 << 20)
            except TimeoutError:
                return found
            found.append(fields_of(datagram))

    def close(self):
        self.socket.close()
        os.unlink(SOCKET)


def entries_about(entries, text):
    found = [entry for entry in entries if text in dict(entry)["MESSAGE"]]
    expect(found, f"nothing in the journal has {text!r}: {[dict(entry)['MESSAGE'] for entry in entries]}")
    return found


def stream_of(file):
    status = os.fstat(file.fileno())
    return f"{status.st_dev}:{status.st_ino}"


class ForegroundDaemon:
    """As a service has it: standard error is a stream that JOURNAL_STREAM names, or not."""

    def __init__(self, varve, stream_is_named):
        self.varve, self.errors = varve, open(varve.work / f"errors-{stream_is_named}", "w+b")
        environment = {**varve.environment, "JOURNAL_STREAM": stream_of(self.errors) if stream_is_named else "1:2"}
        self.process = subprocess.Popen([varve.binary, "daemon"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=self.errors)

    def __enter__(self):
        end = time.monotonic() + 30
        while self.varve.daemon_pid() is None:
            expect(time.monotonic() < end and self.process.poll() is None, "the daemon does not start")
            time.sleep(0.02)
        return self

    def said(self):
        self.errors.seek(0)
        return self.errors.read().decode()

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=30)
        self.errors.close()


def fails_with_fields(varve, journal, image, digest):
    with ForegroundDaemon(varve, True) as daemon:
        with varve.mounted(image, "auto"):
            pass
        missing = varve.run("mount", f"oci:{varve.work}/none:v1", varve.work / "empty")
        expect(missing.returncode == 1, f"{missing}")
        entries = journal.entries()
        mounted = entries_about(entries, "mounted sha256:")[0]
        images = {value for name, value in mounted if name == "VARVE_IMAGE"}
        expect(images == {image, digest}, f"of which image: {mounted}")
        expect(dict(mounted)["PRIORITY"] == "6" and dict(mounted)["SYSLOG_IDENTIFIER"] == "varve" and dict(mounted)["VARVE_CALL"] == "mount", f"{mounted}")
        failed = dict(entries_about(entries, "a request failed")[0])
        expect(failed["VARVE_IMAGE"] == f"oci:{varve.work}/none:v1" and failed["VARVE_CALL"] == "mount", f"{failed}")
        expect(not any("VARVE_IMAGE" in dict(entry) for entry in entries_about(entries, "serves")), "what is of no image has one")
        expect(daemon.said() == "", f"beside the journal: {daemon.said()}")
        journal.close()  # it is away: nothing is lost
        varve.run("mount", f"oci:{varve.work}/none:v1", varve.work / "empty")
        expect("a request failed" in daemon.said(), f"neither here nor there: {daemon.said()}")


def stays_on_standard_error(varve):
    journal = Journal()
    with ForegroundDaemon(varve, False) as daemon:
        varve.run("mount", f"oci:{varve.work}/none:v1", varve.work / "empty")
        expect("info: a request failed" in daemon.said(), f"standard error: {daemon.said()}")
    expect(journal.entries() == [], "lines of a standard error that is not the journal's")


def damaged_layers_have_their_digest(varve, image):
    journal = Journal()
    with ForegroundDaemon(varve, True):
        varve.run("pull", "--wait", image, check=True)
        for file in (varve.root / "store").rglob("*"):
            if file.is_file() and file.stat().st_size > 100_000:
                with open(file, "r+b") as data:
                    data.seek(2000)
                    data.write(b"damage")
        expect(varve.run("verify", "--store").returncode == 3, "the damage is not found")
        entries = [dict(entry) for entry in entries_about(journal.entries(), "is damaged")]
        expect(any(entry.get("VARVE_LAYER", "").startswith("sha256:") and entry["PRIORITY"] in "34" for entry in entries), f"{entries}")


def main():
    program.need_root()
    program.need_fuse()
    own_run_folder()
    with program.work_folder() as work, program.Varve(work) as varve:
        image = layouts.gzip_image(work / "small", [tars.Tar().file("a", os.urandom(300_000)).bytes()])
        digest = varve.index(image)["image"]
        (work / "empty").mkdir()
        fails_with_fields(varve, Journal(), image, digest)
        stays_on_standard_error(varve)
        os.unlink(SOCKET)
        damaged_layers_have_their_digest(varve, image)
    print("fields in the journal, lines on standard error")


if __name__ == "__main__":
    main()
