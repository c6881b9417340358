#!/usr/bin/env python3
"""Mirrors with the whole program and Debian's docker-registry on loopback: containerd's hosts.toml, [[mirror]] of varve.toml, a mirror that dies while an
image is mounted, one that gives wrong bytes to readers, to `index`, `pin check` and `image export`, what `status` and `config` say, files that are broken."""
import contextlib, http.client, http.server, os, sys, tarfile, threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import layouts, program, tars  # noqa: E402
from test_export import registry_on_loopback  # noqa: E402
from test_index_places import Machine, expect  # noqa: E402

NOISE = os.urandom(12_000_000)  # more than the client keeps to look at before it hands on


class Mirror:
    """Hands requests on to the registry. `wrong`: turns a bit of each large answer."""

    def __init__(self, registry):
        mirror = self
        self.requests, self.names, self.wrong, self.dead = 0, set(), False, False

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                if mirror.dead:
                    self.close_connection = True
                    return
                path, _, query = self.path.partition("?")
                mirror.requests += 1
                mirror.names.add(query)
                upstream = http.client.HTTPConnection(registry)
                upstream.request("GET", path, headers={name: self.headers[name] for name in ("Range", "Accept") if name in self.headers})
                answer = upstream.getresponse()
                body = bytearray(answer.read())
                if mirror.wrong and len(body) > 1000:
                    body[len(body) // 2] ^= 1
                self.send_response(answer.status)
                for name in ("Content-Type", "Content-Range", "Docker-Content-Digest"):
                    if name in answer.headers:
                        self.send_header(name, answer.headers[name])
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):
                    self.wfile.write(body)
                upstream.close()

            def log_message(self, *ignored):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.dead = True  # for connections that are there
        self.server.shutdown()
        self.server.server_close()


def hosts_toml(work, registry, text):
    folder = work / "certs.d" / (registry.replace(":", "_") + "_")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hosts.toml").write_text(text)
    return f'hosts-dir = ["{work}/certs.d"]\n'


def hosts_text(mirror):
    return f'[host."http://{mirror.host}"]\ncapabilities = ["pull"]\n'


class PassedOver(Exception):
    """A machine under load kept a living mirror from its first answer for 200 ms, and the next source was asked: rightly, but not what is looked at."""


def until_asked(attempt):
    """attempt(number) of 0, 1, ... until the mirror was not passed over."""
    for number in range(10):
        try:
            return attempt(number)
        except PassedOver as passed:
            print(f"once more: {passed}", flush=True)
    raise AssertionError("the mirror is passed over each time")


def asking(machine, *words):
    """What a command says that did not pass over its mirror. Each is a process of its own, which knows no host yet."""
    def attempt(_):
        done = machine.run(*words, check=True)
        if b"nor ever before" in done.stderr:
            raise PassedOver(done.stderr.decode(errors="replace"))
        return done
    return until_asked(attempt)


def mounts_asking(node):
    mounts = node.json("status")["mounts"]
    for one in (source for mount in mounts for source in mount["sources"]):
        if one["mirror"] and (one["state"], one["failures"]) != ("good", 0):
            raise PassedOver(f"{one}")
    return mounts


def check_commands(work, registry, image):
    mirror = Mirror(registry)
    settings = hosts_toml(work, registry, hosts_text(mirror))
    with Machine(work, "reader", settings) as reader:
        assert asking(reader, "cat", image, "/data/x").stdout == NOISE
        assert mirror.requests > 0 and mirror.names == {f"ns={registry.replace(':', '%3A')}"}, mirror.names
        mirror.wrong = True
        done = asking(reader, "cat", image, "/data/x")
        assert done.stdout == NOISE
        assert f"{mirror.host}/team/app gives wrong bytes".encode() in done.stderr, done.stderr
        asked = mirror.requests
        assert reader.run("--no-mirrors", "cat", image, "/data/x", check=True).stdout == NOISE
        assert mirror.requests == asked
    with Machine(work, "indexer", settings) as indexer:
        asking(indexer, "index", "--force", "--to", f"oci:{work}/indexes", image)
        assert mirror.requests > asked
    hosts_toml(work, registry, '[host."http://x"]\ncapabilities = ["fly"]\n')
    with Machine(work, "broken", settings) as broken:
        expect(broken.run("ls", image), 2, "hosts.toml:2", "'fly'", "--no-mirrors")
        expect(broken.run("--no-mirrors", "ls", image), 0)
    mirror.stop()


def check_whole_copies(work, registry, image):
    """Who reads whole blobs believes no mirror either, and asks the next source before anything is called damaged."""
    mirror = Mirror(registry)
    mirror.wrong = True
    settings = hosts_toml(work, registry, hosts_text(mirror))
    repository = f"{registry}/team/app"
    with Machine(work, "keeper", settings) as keeper:
        keeper.run("pin", "add", image, "--name", "v1", check=True)
        done = asking(keeper, "pin", "check", "--deep", repository)
        assert f"{mirror.host}/team/app gives wrong bytes" in expect(done, 0), done.stderr
    for name, place in (("folder", f"oci:{work}/copy:v1"), ("archive", f"docker-archive:{work}/copy.tar")):
        with Machine(work, f"to-{name}", settings) as exporter:
            exporter.run("image", "export", image, place, check=True)
    with Machine(work, "plain") as plain:
        plain.run("index", f"oci:{work}/copy:v1", check=True)
        assert plain.run("cat", f"oci:{work}/copy:v1", "/data/x", check=True).stdout == NOISE
    with tarfile.open(work / "copy.tar") as archive:
        contents = [tarfile.open(fileobj=archive.extractfile(member)) for member in archive if member.name.endswith(".tar")]
        assert [layer.extractfile("data/x").read() for layer in contents if "data/x" in layer.getnames()] == [NOISE]
    # Where all lie it is damage, and nothing half is left.
    (blob,) = (path for path in (work / "registry").rglob("data") if path.stat().st_size > 10_000_000)
    whole = blob.read_bytes()
    try:
        with Machine(work, "keeper", settings) as keeper:
            for at in (10, len(whole) - 100):  # where decoding ends at once, and where only a checksum shows it
                blob.write_bytes(whole[:at] + bytes([whole[at] ^ 7]) + whole[at + 1:])
                expect(keeper.run("pin", "check", "--deep", repository), 3, "does not match the digest")
                for place in (f"oci:{work}/none:v1", f"docker-archive:{work}/none.tar"):
                    expect(keeper.run("image", "export", image, place), 1, "does not match the digest")
                assert not (work / "none.tar").exists() and not [path for path in (work / "none").rglob("*") if path.is_file() and path.stat().st_size > 10_000_000]
    finally:
        blob.write_bytes(whole)
    mirror.stop()


def check_own_settings(work, registry, image):
    mirror = Mirror(registry)
    table = f'[[mirror]]\nprefix = "{registry}"\nlocation = "http://{mirror.host}/"\n'
    with Machine(work, "own", hosts_toml(work, registry, "broken, and not looked at") + table) as own:
        assert asking(own, "cat", image, "/data/x").stdout == NOISE
        assert mirror.requests > 0
        expect(own.run("config"), 0, f"{registry} -> http://{mirror.host}", "own.toml:2")
    for line, words in (('location = "x"\n', "'prefix' is missing"), ('prefix = "x"\nlocation = "ftp://x"\n', "ftp://x"), ('prefix = "x"\nlocations = "y"\n', "locations")):
        with Machine(work, "wrong", "[[mirror]]\n" + line) as wrong:
            expect(wrong.run("ls", image), 2, "wrong.toml:", words)
    (work / "registries.conf").write_text(f'[[registry]]\nprefix = "{registry}"\nblocked = true\n')
    with Machine(work, "blocked", f'registries-conf = "{work}/registries.conf"\n') as blocked:
        expect(blocked.run("ls", image), 2, "registries.conf:1", "blocked")
    mirror.stop()


def check_mounted(work, registry, image, number):
    mirror = Mirror(registry)
    with Machine(work, f"node{number}", hosts_toml(work, registry, hosts_text(mirror))) as node, node.mounted(image, "fuse", "--no-prefetch") as tree:
        assert Path(tree, "etc/motd").read_bytes() == b"hello\n" * 5000
        (mount,) = mounts_asking(node)
        assert mount["bytes_from"]["mirror"] > 0 and mount["bytes_from"]["registry"] == 0, mount["bytes_from"]
        assert [(one["host"], one["mirror"], one["state"]) for one in mount["sources"]] == [(mirror.host, True, "good"), (registry, False, "good")], mount["sources"]
        mirror.stop()
        assert Path(tree, "data/x").read_bytes() == NOISE
        (mount,) = node.json("status")["mounts"]
        assert mount["errors"] == 0 and mount["bytes_from"]["registry"] > 11_000_000, mount
        expect(node.run("status"), 0, f"mirror {mirror.host}: resting", f"registry {registry}: good")


def check_told(work, registry, image, other, number):
    """What one image learns of a host is told to the others."""
    mirror = Mirror(registry)
    settings = hosts_toml(work, registry, hosts_text(mirror))
    with Machine(work, f"told{number}", settings) as node, node.mounted(image, "fuse", "--no-prefetch") as tree, node.mounted(other, "fuse", "--no-prefetch") as place:
        mounts_asking(node)
        mirror.stop()
        assert Path(tree, "data/x").read_bytes() == NOISE
        sources = next(mount["sources"] for mount in node.json("status")["mounts"] if mount["dir"] == place)
        assert [(one["state"], one["failures"]) for one in sources] == [("resting", 0), ("good", 0)], sources
        assert Path(place, "y").read_bytes() == NOISE[:1_000_000]


def main():
    program.need_tools("docker-registry")
    fuse = os.path.exists("/dev/fuse") and os.getuid() == 0
    with program.work_folder() as work:
        layers = [tars.Tar().dir("etc").file("etc/motd", b"hello\n" * 5000).bytes(), tars.Tar().dir("data").file("data/x", NOISE).bytes()]
        layout = layouts.gzip_image(work / "image", layers)
        with registry_on_loopback(work) as registry:
            image, other = f"{registry}/team/app:v1", f"{registry}/team/other:v1"
            with Machine(work, "maker") as maker:
                maker.run("image", "export", layout, image, check=True)
                maker.run("index", image, check=True)
                maker.run("image", "export", layouts.gzip_image(work / "other", [tars.Tar().file("y", NOISE[:1_000_000]).bytes()]), other, check=True)
                maker.run("index", other, check=True)
            check_commands(work, registry, image)
            check_whole_copies(work, registry, image)
            check_own_settings(work, registry, image)
            if fuse:
                until_asked(lambda number: check_mounted(work, registry, image, number))
                until_asked(lambda number: check_told(work, registry, image, other, number))
    print("mirrors: commands" + (" and mounts" if fuse else "; no mounts here"))


if __name__ == "__main__":
    main()
