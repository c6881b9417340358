#!/usr/bin/env python3
"""Pushes to and pulls from Debian's docker-registry on loopback: plain, with TLS and a password, with TLS and tokens.
skopeo checks what we pushed and pushes what we pull. Usage: registry_test.py OCI_COPY
Exit status: 0 all is well, 1 something differs, 77 skipped because a tool is missing."""
import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import random
import shutil
import socket
import ssl
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.parse

USER, PASSWORD = "tester", "pass:word with spaces"
SERVICE, ISSUER = "varve-test-registry", "varve-test-issuer"


def run(*command, check=True, **options):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    if check and done.returncode != 0:
        raise AssertionError("%s: exit %d\n%s" % (" ".join(map(str, command)), done.returncode, done.stderr))
    return done


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def digest_of(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def make_certificates(folder):
    """A private authority, and a certificate for 127.0.0.1 signed by it."""
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=varve test authority",
        "-keyout", folder + "/ca.key", "-out", folder + "/ca.crt")
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1", "-keyout", folder + "/server.key", "-out", folder + "/server.csr")
    with open(folder + "/san", "w") as file:
        file.write("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    run("openssl", "x509", "-req", "-days", "2", "-in", folder + "/server.csr", "-CA", folder + "/ca.crt", "-CAkey", folder + "/ca.key",
        "-CAcreateserial", "-extfile", folder + "/san", "-out", folder + "/server.crt")


def make_image(folder):
    """An OCI layout with a small layer and one of 12 MB that does not compress."""
    blobs = os.path.join(folder, "blobs", "sha256")
    os.makedirs(blobs)

    def put(content, media_type):
        with open(os.path.join(blobs, digest_of(content)[7:]), "wb") as file:
            file.write(content)
        return {"mediaType": media_type, "digest": digest_of(content), "size": len(content)}

    layers, diff_ids = [], []
    for name, content in (("hello", b"hello\n"), ("noise", random.Random(1).randbytes(12_000_000))):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
        diff_ids.append(digest_of(archive.getvalue()))
        layers.append(put(gzip.compress(archive.getvalue(), 1, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip"))
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
    config = {"os": "linux", "architecture": machine, "config": {}, "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": put(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"), "layers": layers}
    entry = put(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    entry["annotations"] = {"org.opencontainers.image.ref.name": "v1"}
    with open(folder + "/index.json", "w") as file:
        json.dump({"schemaVersion": 2, "manifests": [entry]}, file)
    with open(folder + "/oci-layout", "w") as file:
        file.write('{"imageLayoutVersion":"1.0.0"}')
    return entry["digest"]


class TokenServer:
    """Signs tokens for whoever knows the password; counts them."""

    def __init__(self, folder):
        self.folder, self.tokens = folder, 0
        with open(folder + "/server.crt") as file:
            self.certificate = "".join(line.strip() for line in file if "-----" not in line)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                wanted = "Basic " + base64.b64encode((USER + ":" + PASSWORD).encode()).decode()
                allowed = self.headers.get("Authorization") == wanted
                query = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)
                body = outer.answer(query) if allowed else b'{"errors":[{"code":"UNAUTHORIZED"}]}'
                self.send_response(200 if allowed else 401)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *ignored):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder + "/server.crt", folder + "/server.key")
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.realm = "https://127.0.0.1:%d/token" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, query):
        access = []
        for scope in query.get("scope", []):
            kind, name, actions = scope.split(":")
            access.append({"type": kind, "name": name, "actions": actions.split(",")})
        now = int(time.time())
        self.tokens += 1
        claims = {"iss": ISSUER, "sub": USER, "aud": query["service"][0], "exp": now + 300, "nbf": now - 10, "iat": now,
                  "jti": str(self.tokens), "access": access}
        header = {"typ": "JWT", "alg": "RS256", "x5c": [self.certificate]}
        signed = b".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims))
        signature = subprocess.run(["openssl", "dgst", "-sha256", "-sign", self.folder + "/server.key"], input=signed,
                                   stdout=subprocess.PIPE, check=True).stdout
        token = signed + b"." + base64.urlsafe_b64encode(signature).rstrip(b"=")
        return json.dumps({"token": token.decode(), "expires_in": 300}).encode()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Registry:
    """One docker-registry process, stopped when the block ends."""

    def __init__(self, folder, name, tls, auth, client_authority=None):
        self.folder, self.port = os.path.join(folder, name), free_port()
        os.makedirs(self.folder + "/data")
        self.host = "127.0.0.1:%d" % self.port
        http_section = {"addr": self.host}
        if tls:
            http_section["tls"] = {"certificate": folder + "/server.crt", "key": folder + "/server.key"}
        if client_authority:
            http_section["tls"]["clientcas"] = [client_authority]
        config = {"version": 0.1, "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": self.folder + "/data"}}, "http": http_section}
        if auth:
            config["auth"] = auth
        with open(self.folder + "/config.yml", "w") as file:
            json.dump(config, file)  # JSON is YAML

    def __enter__(self):
        self.log = open(self.folder + "/log", "w")
        self.process = subprocess.Popen(["docker-registry", "serve", self.folder + "/config.yml"], stdout=self.log, stderr=self.log)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                time.sleep(0.05)
        self.__exit__()
        with open(self.folder + "/log") as file:
            raise AssertionError("docker-registry did not start: " + file.read())

    def __exit__(self, *ignored):
        self.process.kill()
        self.process.wait()
        self.log.close()


def expect(condition, message):
    if not condition:
        raise AssertionError(message)


class Cases:
    def __init__(self, program, folder, image, digest):
        self.program, self.folder, self.image, self.digest = program, folder, image, digest

    def ours(self, *words, authfile=None, tls=False, check=True):
        command = [self.program]
        if authfile:
            command += ["--authfile", authfile]
        if tls:
            command += ["--ca", self.folder + "/ca.crt"]
        return run(*command, *words, check=check)

    def skopeo_options(self, side, authfile, tls):
        options = ["--%s-tls-verify=%s" % (side, "true" if tls else "false")]
        if tls:
            options += ["--%s-cert-dir" % side, self.folder + "/certs"]
        if authfile:
            options += ["--%s-authfile" % side, authfile]
        return options

    def round_trip(self, registry, authfile, tls):
        host, name = registry.host, os.path.basename(registry.folder)
        policy = ["skopeo", "--insecure-policy"]
        ours = lambda *words, **more: self.ours(*words, authfile=authfile, tls=tls, **more).stdout

        pushed = ours("copy", "oci:%s:v1" % self.image, host + "/team/app:v1")
        expect(pushed.startswith(self.digest), "we pushed %s, not %s" % (pushed, self.digest))
        raw = run(*policy, "copy", *self.skopeo_options("src", authfile, tls), "docker://%s/team/app:v1" % host,
                  "oci:%s/%s-skopeo:v1" % (self.folder, name))
        with open("%s/%s-skopeo/index.json" % (self.folder, name)) as file:
            expect(json.load(file)["manifests"][0]["digest"] == self.digest, "skopeo pulled another image than we pushed: " + raw.stdout)

        run(*policy, "copy", *self.skopeo_options("dest", authfile, tls), "oci:%s:v1" % self.image, "docker://%s/team/skopeo:v1" % host)
        pulled = ours("copy", host + "/team/skopeo:v1", "oci:%s/%s-ours:v1" % (self.folder, name))
        expect(pulled.startswith(self.digest), "we pulled another image than skopeo pushed")
        expect(ours("ranges", host + "/team/skopeo:v1") == "ranges agree: 1\n", "ranges")

        chunked = ours("--chunk", "1000000", "copy", "oci:%s:v1" % self.image, host + "/team/chunks:v1")
        expect(chunked.startswith(self.digest), "chunked push")
        expect(ours("ranges", host + "/team/chunks:v1") == "ranges agree: 1\n", "ranges of what was pushed in chunks")
        mounted = ours("--mount-from", "team/app", "copy", "oci:%s:v1" % self.image, host + "/team/mounted:v1")
        expect(mounted == self.digest + " sent 0\n", "mounting sent bytes: " + mounted)

        # This registry has no referrers API: the list lies under a tag.
        first = ours("attach", host + "/team/app:v1", "application/vnd.test", "one")
        second = ours("attach", host + "/team/app:v1", "application/vnd.test", "two")
        ours("attach", host + "/team/app:v1", "application/vnd.other", "three")
        listed = ours("referrers", host + "/team/app:v1", "application/vnd.test")
        expect(sorted(listed.split()) == sorted((first + second).split()), "referrers: " + listed)
        print("ok: %s" % name)

    def refusals(self, registry, authfile):
        wrong = self.folder + "/wrong.json"
        write_authfile(wrong, registry.host, "wrong-password")
        for bad_file, tls, words in ((wrong, True, "denied"), (self.folder + "/empty.json", True, "denied"), (authfile, False, "certificate")):
            done = self.ours("ranges", registry.host + "/team/app:v1", authfile=bad_file, tls=tls, check=False)
            expect(done.returncode == 1 and words in done.stderr, "expected '%s', exit %d: %s" % (words, done.returncode, done.stderr))
            expect("wrong-password" not in done.stderr and PASSWORD not in done.stderr, "a password in a message")
        missing = self.ours("ranges", registry.host + "/team/none:v1", authfile=authfile, tls=True, check=False)
        expect(missing.returncode == 1, "a missing image: " + missing.stderr)
        print("ok: refusals")


    def certificate_folders(self, registry):
        """What certs.d holds for a host is used for it: its authority, and the certificate that it asks a client for."""
        home = os.path.join(self.folder, "home")
        certs = os.path.join(home, ".config/containers/certs.d", registry.host)
        os.makedirs(certs)
        ours = lambda *more: run(self.program, *more, "copy", "oci:%s:v1" % self.image, registry.host + "/team/app:v1", check=False,
                                 env={**os.environ, "HOME": home})

        def refused(words, *more, status=1):
            for _ in range(20):  # the server's alert may lose the race against its end of the connection
                done = ours(*more)
                if done.returncode != 75:
                    break
            for word in words:
                expect(done.returncode == status and word in done.stderr, "expected '%s': exit %d: %s" % (word, done.returncode, done.stderr))

        refused(("--ca-file", "/etc/containers/certs.d/%s/" % registry.host))
        shutil.copy(self.folder + "/ca.crt", certs + "/authority.crt")
        refused(("a client's certificate", "client.cert", registry.host))
        refused(("a client's certificate",), "--ca", self.folder + "/ca.crt")
        shutil.copy(self.folder + "/server.crt", certs + "/client.cert")
        refused(("client.key", "is missing"), status=2)
        shutil.copy(self.folder + "/server.key", certs + "/client.key")
        done = ours()
        expect(done.returncode == 0 and done.stdout.startswith(self.digest), "with a client's certificate: " + done.stderr)
        os.remove(certs + "/authority.crt")
        expect(ours("--ca", self.folder + "/ca.crt").returncode == 0, "--ca and a client's certificate go together")
        shutil.copy(self.folder + "/ca.key", certs + "/authority.crt")
        refused(("authority.crt", "holds no certificate"), status=2)
        print("ok: certificate folders")


def write_authfile(path, host, password):
    with open(path, "w") as file:
        json.dump({"auths": {host: {"auth": base64.b64encode((USER + ":" + password).encode()).decode()}}} if host else {}, file)


def main():
    for tool in ("docker-registry", "skopeo", "openssl", "htpasswd"):
        if not shutil.which(tool):
            print("skipped: %s is not installed" % tool)
            return 77
    with tempfile.TemporaryDirectory(prefix="varve-registry-") as folder:
        make_certificates(folder)
        os.mkdir(folder + "/certs")
        shutil.copy(folder + "/ca.crt", folder + "/certs/ca.crt")
        write_authfile(folder + "/empty.json", None, None)
        with open(folder + "/htpasswd", "w") as file:
            file.write(run("htpasswd", "-Bbn", USER, PASSWORD).stdout)
        os.mkdir(folder + "/image")
        cases = Cases(sys.argv[1], folder, folder + "/image", make_image(folder + "/image"))

        with Registry(folder, "plain", False, None) as registry:
            cases.round_trip(registry, folder + "/empty.json", False)
        with Registry(folder, "basic", True, {"htpasswd": {"realm": "test", "path": folder + "/htpasswd"}}) as registry:
            write_authfile(folder + "/basic.json", registry.host, PASSWORD)
            cases.round_trip(registry, folder + "/basic.json", True)
            cases.refusals(registry, folder + "/basic.json")
        tokens = TokenServer(folder)
        settings = {"realm": tokens.realm, "service": SERVICE, "issuer": ISSUER, "rootcertbundle": folder + "/server.crt"}
        with Registry(folder, "token", True, {"token": settings}) as registry:
            write_authfile(folder + "/token.json", registry.host, PASSWORD)
            cases.round_trip(registry, folder + "/token.json", True)
            cases.refusals(registry, folder + "/token.json")
        expect(tokens.tokens > 0, "no token was asked for")
        tokens.close()
        with Registry(folder, "mutual", True, None, folder + "/ca.crt") as registry:
            cases.certificate_folders(registry)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AssertionError as failure:
        print("FAILED: %s" % failure, file=sys.stderr)
        sys.exit(1)
