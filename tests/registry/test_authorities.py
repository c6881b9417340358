#!/usr/bin/env python3
"""Which authorities TLS trusts, in a mount namespace where /etc/ssl/certs and /etc/hosts are ours: certificates that only the folder's links have, only the file, neither;
files that are broken or missing; and a daemon that runs on while authorities come and go."""
import contextlib, os, select, shutil, socket, socketserver, ssl, subprocess, sys, tempfile, threading, time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "oracle"), str(Path(__file__).resolve().parents[2] / "bench")]
import layouts, program, tars  # noqa: E402
from test_index_places import Machine, expect  # noqa: E402

HERE = Path(__file__).resolve().parent
HOST = "registry.example"
INSIDE = "VARVE_TEST_OWN_AUTHORITIES"
LARGE = {name: os.urandom(300_000) for name in "abcd"}


def run(*command, **options):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, **options).stdout


def make_authority(work, name):
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", work / f"{name}.key", "-out", work / f"{name}.crt")
    return work / f"{name}.crt"


def expired(work, authority):
    """The same authority, by subject and key, whose time is over."""
    settings, certificate = work / "ca.conf", work / f"{authority.stem}-expired.crt"
    settings.write_text(f"[ca]\ndefault_ca = own\n[own]\ndatabase = {work}/ca.list\nnew_certs_dir = {work}\nrand_serial = yes\ndefault_md = sha256\npolicy = any\n"
                        "x509_extensions = authority\n[any]\ncommonName = supplied\n[authority]\nbasicConstraints = critical, CA:TRUE\n")
    (work / "ca.list").touch()
    run("openssl", "req", "-new", "-key", authority.with_suffix(".key"), "-subj", f"/CN={authority.stem}", "-out", work / "ca.csr")
    run("openssl", "ca", "-batch", "-config", settings, "-selfsign", "-keyfile", authority.with_suffix(".key"), "-in", work / "ca.csr", "-notext",
        "-startdate", "20200101000000Z", "-enddate", "20210101000000Z", "-out", certificate)
    return certificate


def signed(work, authority, host):
    """The server's certificate for that host, and its key."""
    name = work / f"{host}-{authority.stem}"
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={host}", "-keyout", f"{name}.key", "-out", f"{name}.csr")
    (work / "names").write_text(f"subjectAltName=DNS:{host}\n")
    run("openssl", "x509", "-req", "-days", "2", "-in", f"{name}.csr", "-CA", authority, "-CAkey", authority.with_suffix(".key"), "-CAcreateserial",
        "-extfile", work / "names", "-out", f"{name}.crt")
    Path(f"{name}.pem").write_text(Path(f"{name}.crt").read_text() + Path(f"{name}.key").read_text())
    return f"{name}.pem"


class Server:
    """A registry with a certificate that the authority signed. It can begin anew, on the same port, with that of another."""

    def __init__(self, work, layouts):
        self.work, self.layouts, self.port, self.process = work, layouts, 0, None

    def begin(self, authority):
        self.end()
        self.process = subprocess.Popen([sys.executable, "-B", HERE.parents[1] / "bench/layout_registry.py", "--port", str(self.port), "--tls", signed(self.work, authority, HOST),
                                         *self.layouts], stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
        self.process = None

    def __str__(self):
        return f"{HOST}:{self.port}"


class Proxy(socketserver.ThreadingTCPServer):
    """Speaks TLS, too, and hands on what it is told to (CONNECT)."""
    daemon_threads = True

    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            with contextlib.suppress(OSError):
                client = self.server.tls.wrap_socket(self.request, server_side=True)
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += client.recv(1)
                port = int(head.split()[1].rpartition(b":")[2])
                self.server.asked += 1
                with socket.create_connection(("127.0.0.1", port)) as registry:
                    client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                    while True:  # in one thread, as one TLS connection is for one at a time
                        ready = [client] if client.pending() else select.select([client, registry], [], [])[0]
                        data = ready[0].recv(65536)
                        if not data:
                            return
                        (registry if ready[0] is client else client).sendall(data)

    def __init__(self, certificate):
        super().__init__(("127.0.0.1", 0), self.Handler)
        self.asked, self.tls = 0, ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(certificate)
        threading.Thread(target=self.serve_forever, daemon=True).start()


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
        # One that the folder has, and that is over; the file has what takes its place.
        over = expired(work, authority)
        says(0, linked=[over], listed=[authority])
        says(1, "expired", linked=[over])
        # One that the system knows, which vouches for somebody else's name.
        machine.set(linked=[authority])
        expect(reader.run("inspect", image.replace(HOST, "other.example")), 1, "other.example")


def check_proxy(work, image, machine, authority, other):
    with Proxy(signed(work, other, "proxy.example")) as proxy, Machine(work, "behind") as behind:
        behind.environment["https_proxy"] = f"https://proxy.example:{proxy.server_address[1]}"
        for places in ({"linked": [authority, other]}, {"linked": [authority], "listed": [other]}, {"linked": [other], "listed": [authority]}, {"listed": [authority, other]}):
            asked = proxy.asked
            machine.set(**places)
            expect(behind.run("inspect", image), 0)
            assert proxy.asked > asked
        for places in ({"linked": [authority]}, {"listed": [authority]}):
            machine.set(**places)
            expect(behind.run("inspect", image), 1, "its authority is not known here")
        for places in ({"linked": [other]}, {"listed": [other]}):
            machine.set(**places)
            assert behind.run("inspect", image).returncode in (1, 75)  # libcurl does not say why
        proxy.shutdown()


def check_unverified(work, server, machine):
    """Who does not look at a host's certificate needs no authorities."""
    folder = work / "certs.d" / str(server)
    folder.mkdir(parents=True)
    (folder / "hosts.toml").write_text(f'server = "https://{server}"\n[host."https://{server}"]\nskip_verify = true\n')
    machine.set(text="broken")
    with Machine(work, "careless", f'hosts-dir = ["{work}/certs.d"]\n') as careless:
        expect(careless.run("inspect", f"docker://{server}/a:t"), 0)


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


def check_running_mount(work, server, machine, authority, other, new):
    """Connections are made anew while an image is mounted: by what is trusted then."""
    with Machine(work, "runner") as runner:
        machine.set(linked=[authority])
        with runner.mounted(f"docker://{server}/large:t", "fuse") as tree:
            def content_of(name):
                with contextlib.suppress(OSError):
                    return Path(tree, name).read_bytes()
                return b""

            def reads(name, well):
                content, until = content_of(name), time.monotonic() + 60
                while well and content != LARGE[name] and time.monotonic() < until:  # it may have joined a read of before
                    content = content_of(name)
                assert (content == LARGE[name]) == well, f"{name}: {len(content)} bytes"
            reads("a", True)
            for places, of_server, name, well in (({"linked": [other]}, authority, "b", False), ({"linked": [authority]}, None, "b", True),
                                                  # A new one, in the file alone.
                                                  ({"linked": [authority], "listed": [new]}, new, "c", True),
                                                  ({"listed": [authority]}, new, "d", False), ({"listed": [new]}, None, "d", True)):
                machine.set(**places)
                if of_server:
                    server.begin(of_server)
                reads(name, well)


def main():
    program.need_tools("openssl", "unshare", "mount")
    if not os.environ.get(INSIDE):
        own = ["unshare", "-m", *(["-r"] if os.getuid() else [])]
        if subprocess.run([*own, "true"], capture_output=True).returncode:
            program.skip("no namespaces here")
        os.environ[INSIDE] = "1"
        os.execvp("unshare", [*own, sys.executable, "-B", *sys.argv])
    program.let_go_of_others_mounts()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        hosts = work / "hosts"
        hosts.write_text(f"127.0.0.1 localhost {HOST} other.example proxy.example\n")
        run("mount", "--bind", hosts, "/etc/hosts")
        authority, other = make_authority(work, "ours"), make_authority(work, "others")
        with Machine(work, "builder") as builder:
            for name in "abc":
                builder.index(layouts.gzip_image(work / name, [tars.Tar().dir("etc").file("etc/name", name.encode()).bytes()]))
            # Each file in a layer of its own, so that nobody reads ahead into the next.
            builder.index(layouts.gzip_image(work / "large", [tars.Tar().file(name, content).bytes() for name, content in LARGE.items()]))
        server = Server(work, [work / name for name in ("a", "b", "c", "large")])
        try:
            server.begin(authority)
            machine = Authorities(work, other)
            check_places(work, f"docker://{server}/a:t", machine, authority, other)
            check_proxy(work, f"docker://{server}/a:t", machine, authority, make_authority(work, "proxys"))
            check_unverified(work, server, machine)
            if os.access("/dev/fuse", os.R_OK | os.W_OK):
                check_running_daemon(work, server, machine, authority, other)
                check_running_mount(work, server, machine, authority, other, make_authority(work, "new"))
        finally:
            server.end()


if __name__ == "__main__":
    main()
