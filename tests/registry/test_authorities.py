#!/usr/bin/env python3
"""Which authorities TLS trusts, in a mount namespace where /etc/ssl/certs and /etc/hosts are ours: certificates that only the folder's links have, only the file, neither;
files that are broken or missing; and a daemon that runs on while authorities come and go."""
import os, shutil, subprocess, sys, tempfile
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "oracle"), str(Path(__file__).resolve().parents[2] / "bench")]
import layouts, program, tars  # noqa: E402
from test_index_places import Machine, expect  # noqa: E402

HERE = Path(__file__).resolve().parent
HOST = "registry.example"
INSIDE = "VARVE_TEST_OWN_AUTHORITIES"


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, **options).stdout


def make_authority(work, name):
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", work / f"{name}.key", "-out", work / f"{name}.crt")
    return work / f"{name}.crt"


def make_server(work, authority):
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={HOST}", "-keyout", work / "server.key", "-out", work / "server.csr")
    (work / "names").write_text(f"subjectAltName=DNS:{HOST}\n")
    run("openssl", "x509", "-req", "-days", "2", "-in", work / "server.csr", "-CA", authority, "-CAkey", authority.with_suffix(".key"), "-CAcreateserial",
        "-extfile", work / "names", "-out", work / "server.crt")
    (work / "server.pem").write_text((work / "server.crt").read_text() + (work / "server.key").read_text())
    return work / "server.pem"


class Authorities:
    """What lies in /etc/ssl/certs here."""

    def __init__(self, work, others):
        self.folder, self.others = Path("/etc/ssl/certs"), others
        run("mount", "-t", "tmpfs", "tmpfs", self.folder)

    def set(self, linked=(), listed=(), text=None):
        """`linked`: those that the folder has by their digests; `listed`: in the file, which has `text` instead, or is not there for "". None of both is empty."""
        for path in self.folder.iterdir():
            path.unlink()
        for certificate in linked:
            shutil.copy(certificate, self.folder / (run("openssl", "x509", "-in", certificate, "-noout", "-subject_hash").strip() + ".0"))
        text = "".join(Path(certificate).read_text() for certificate in [*listed, self.others]) if text is None else text
        if text:
            (self.folder / "ca-certificates.crt").write_text(text)


def check_places(work, image, machine, authority, other):
    unknown = "its authority is not known here"
    with Machine(work, "reader") as reader:
        def says(status, *words, **places):
            machine.set(**places)
            return expect(reader.run("inspect", image), status, *words)
        says(0, linked=[authority])
        says(0, linked=[authority], text="broken")  # nobody needs the file
        says(0, linked=[authority], text="")
        says(0, linked=[other], listed=[authority])  # the folder is asked first, and does not know it
        says(0, listed=[authority])
        says(1, unknown, linked=[other])
        says(1, unknown)
        says(1, "/etc/ssl/certs/ca-certificates.crt", "cannot be read", text="broken")
        says(1, "/etc/ssl/certs/ca-certificates.crt", "cannot be read", linked=[other], text="broken")
        says(1, unknown, text="")
        machine.set(linked=[other])
        expect(reader.run("inspect", "--ca-file", authority, image), 0)
        # One that the system knows, which vouches for somebody else's name.
        machine.set(linked=[authority])
        expect(reader.run("inspect", image.replace(HOST, "other.example")), 1, "other.example")


def check_running_daemon(work, server, machine, authority, other):
    with Machine(work, "node") as node:
        def mounts(name, status, *words):
            place = Path(tempfile.mkdtemp(prefix="m-", dir=work))
            done = node.run("mount", f"docker://{server}/{name}:t", place)
            expect(done, status, *words)
            if status == 0:
                node.mounts.append(place)
        machine.set(linked=[authority])
        mounts("a", 0)
        machine.set(linked=[other])
        mounts("b", 1, "its authority is not known here")
        machine.set(linked=[other], listed=[authority])
        mounts("b", 0)
        machine.set(linked=[other])
        mounts("c", 1, "its authority is not known here")
        machine.set(linked=[authority, other])
        mounts("c", 0)


def main():
    program.need_tools("openssl", "unshare", "mount")
    if not os.environ.get(INSIDE):
        own = ["unshare", "-m", *(["-r"] if os.getuid() else [])]
        if subprocess.run([*own, "true"], capture_output=True).returncode:
            program.skip("no namespaces here")
        os.environ[INSIDE] = "1"
        os.execvp("unshare", [*own, sys.executable, "-B", *sys.argv])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        hosts = work / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {HOST} other.example\n")
        run("mount", "--bind", hosts, "/etc/hosts")
        authority, other = make_authority(work, "ours"), make_authority(work, "others")
        with Machine(work, "builder") as builder:
            for name in "abc":
                builder.index(layouts.gzip_image(work / name, [tars.Tar().dir("etc").file("etc/name", name.encode()).bytes()]))
        server = subprocess.Popen([sys.executable, "-B", HERE.parents[1] / "bench/layout_registry.py", "--tls", make_server(work, authority), *(work / name for name in "abc")], stdout=subprocess.PIPE, text=True)
        try:
            address = f"{HOST}:{int(server.stdout.readline())}"
            machine = Authorities(work, other)
            check_places(work, f"docker://{address}/a:t", machine, authority, other)
            if os.path.exists("/dev/fuse"):
                check_running_daemon(work, address, machine, authority, other)
        finally:
            server.kill()
            server.wait()


if __name__ == "__main__":
    main()
