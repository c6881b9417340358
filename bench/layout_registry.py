#!/usr/bin/python3
"""layout_registry.py LAYOUT...: serves OCI layout folders as a read-only registry on loopback, each under its folder's name.
Prints its port. Knows ranges, referrers and tags. Blobs go from the page cache to the socket; --tls takes TLS, too, on the same port; --token asks for one that
anybody gets."""
import argparse, json, os, re, socket, socketserver, ssl, sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path

MANIFEST_LIMIT = 16 << 20


class Registry(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16
    layouts, tls, token = {}, None, None

    def setup(self):
        if self.tls and self.request.recv(1, socket.MSG_PEEK) == b"\x16":  # a handshake (RFC 8446, section 5.1)
            self.request = self.tls.wrap_socket(self.request, server_side=True)
        super().setup()

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.answer(body=False)

    def do_GET(self):
        self.answer(body=True)

    def answer(self, body):
        if self.path.startswith("/token"):
            return self.reply(json.dumps({"token": self.token, "expires_in": 300}).encode(), "application/json", body)
        if self.token and self.headers.get("Authorization") != f"Bearer {self.token}":
            return self.refuse(401, ("WWW-Authenticate", f'Bearer realm="{"https" if self.tls else "http"}://{self.headers["Host"]}/token",service="layouts"'))
        if self.path.rstrip("/") == "/v2":
            return self.reply(b"{}", "application/json", body)
        match = re.fullmatch(r"/v2/(.+)/(manifests|blobs|referrers)/([^/?]+)(\?.*)?", self.path)
        folder = match and self.layouts.get(match[1])
        if not folder:
            return self.refuse(404)
        found = getattr(self, match[2])(folder, match[3])
        if not found:
            return self.refuse(404)
        if isinstance(found, tuple):
            return self.reply(*found, body)
        return self.send_blob(found, body)

    def manifests(self, folder, name):
        entries = json.loads((folder / "index.json").read_text())["manifests"]
        for entry in entries:
            if name in (entry["digest"], entry.get("annotations", {}).get("org.opencontainers.image.ref.name")):
                return (folder / "blobs" / entry["digest"].replace(":", "/")).read_bytes(), entry["mediaType"], entry["digest"]
        path = folder / "blobs" / name.replace(":", "/")
        if re.fullmatch(r"sha256:[0-9a-f]{64}", name) and path.exists() and path.stat().st_size <= MANIFEST_LIMIT:
            content = path.read_bytes()
            try:
                return content, json.loads(content).get("mediaType", "application/vnd.oci.image.manifest.v1+json"), name
            except ValueError:
                return None
        return None

    def referrers(self, folder, digest):
        found = []
        for entry in json.loads((folder / "index.json").read_text())["manifests"]:
            document = json.loads((folder / "blobs" / entry["digest"].replace(":", "/")).read_text())
            if document.get("subject", {}).get("digest") == digest:
                kind = document.get("artifactType") or document["config"]["mediaType"]
                found.append({"mediaType": entry["mediaType"], "digest": entry["digest"], "size": entry["size"], "artifactType": kind, "annotations": document.get("annotations", {})})
        return json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": found}).encode(), "application/vnd.oci.image.index.v1+json"

    def blobs(self, folder, digest):
        path = folder / "blobs" / digest.replace(":", "/")
        return path if re.fullmatch(r"sha256:[0-9a-f]{64}", digest) and path.exists() else None

    def reply(self, content, media_type, *rest):
        digest, body = (rest[0], rest[1]) if len(rest) == 2 else (None, rest[0])
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()
        if body:
            self.wfile.write(content)
        self.wfile.flush()

    def refuse(self, status, *headers):
        self.send_response(status)
        for header in headers:
            self.send_header(*header)
        self.send_header("Content-Length", "0")
        self.end_headers()
        self.wfile.flush()

    def send_blob(self, path, body):
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            start, end = (int(wanted[1]), min(int(wanted[2] or size - 1), size - 1)) if wanted else (0, size - 1)
            if wanted and start > end:
                return self.refuse(416)
            self.send_response(206 if wanted else 200)
            if wanted:
                self.send_header("Content-Range", f"bytes {start}-{end}/{size}")
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(end - start + 1))
            self.end_headers()
            self.wfile.flush()
            if body and start <= end and isinstance(self.connection, ssl.SSLSocket):
                self.connection.sendfile(file, start, end - start + 1)
                return
            while body and start <= end:
                start += os.sendfile(self.connection.fileno(), file.fileno(), start, end - start + 1)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 256

    def get_request(self):
        connection, address = super().get_request()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection, address

    def handle_error(self, request, address):
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError)):
            super().handle_error(request, address)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("layouts", nargs="+", type=Path)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--tls", type=Path, metavar="PEM", help="a certificate and its key")
    parser.add_argument("--token", action="store_const", const="for-anybody")
    options = parser.parse_args()
    Registry.token = options.token
    if options.tls:
        Registry.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        Registry.tls.load_cert_chain(options.tls)
    Registry.layouts = {folder.resolve().name: folder.resolve() for folder in options.layouts}
    with Server(("127.0.0.1", options.port), Registry) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
