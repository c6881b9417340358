"""Images for the tests of mounts, and a registry on loopback that can be told to hang or to fail."""
import random, re, sys, threading, traceback
from http.server import ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import layouts  # noqa: E402
from layout_registry import Registry  # noqa: E402
from tars import Tar  # noqa: E402


def noise_image(folder, megabytes=6):
    """(reference, {path: content}): two layers, the upper hides a file of the lower."""
    noise = random.Random(7)
    contents = {"data/large": noise.randbytes(megabytes * 1_000_000 + 123), "data/text": b"".join(b"line %d\n" % i for i in range(200_000))}
    lower, upper = Tar(), Tar()
    lower.dir("data").file("data/large", contents["data/large"]).file("data/text", contents["data/text"]).file("data/gone", b"hidden")
    lower.symlink("data/link", "large").hardlink("data/hard", "data/text")
    for i in range(300):
        path = f"data/small{i}"
        contents[path] = noise.randbytes(noise.randrange(1, 3000))
        lower.file(path, contents[path], uid=i % 3, mode=0o640)
    upper.whiteout("data/gone").dir("upper").file("upper/file", b"above\n")
    contents["upper/file"] = b"above\n"
    return layouts.gzip_image(folder, [lower.bytes(), upper.bytes()], "latest"), contents


def image_with_many_names(work):
    many = Tar().dir("many").dir("go")
    contents = {}
    for i in range(3000):
        many.file(f"many/f{i:04}", f"f{i:04}".encode())
    noise = random.Random(3)
    contents["data/large"] = noise.randbytes(8_000_123)
    contents["upper/file"] = b"above\n"
    lower = Tar().dir("data").file("data/large", contents["data/large"])
    return layouts.gzip_image(work, [lower.bytes(), many.bytes(), Tar().dir("upper").file("upper/file", b"above\n").bytes()], "latest"), contents


class Source:
    """A registry over a layout folder. Blobs wait while `open` is not set; with `failing` they are answered by 503, and all with `denying` by 403."""

    def __init__(self, folder):
        self.open, self.failing, self.denying, self.asked = threading.Event(), False, False, threading.Event()
        self.open.set()
        self.blobs_served = 0
        source = self

        class Gated(Registry):
            layouts = {"image": Path(folder)}

            def answer(self, body):
                return self.refuse(403) if source.denying else super().answer(body)

            def send_blob(self, path, body):
                if path.stat().st_size > 10_000:  # configs and maps pass
                    source.asked.set()
                    source.open.wait()
                    if source.failing:
                        return self.refuse(503)
                    source.blobs_served += 1
                return super().send_blob(path, body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Gated)
        self.server.daemon_threads = True
        self.server.handle_error = lambda request, address: None if isinstance(sys.exc_info()[1], ConnectionError) else traceback.print_exc()  # a client that was killed is none
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.reference = f"127.0.0.1:{self.server.server_address[1]}/image:latest"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.open.set()
        self.server.shutdown()


class Asked:
    """A registry over a layout folder that notes which ranges of its largest blob are asked for."""

    def __init__(self, folder):
        self.ranges, self.lock = [], threading.Lock()
        asked, largest = self, max((folder / "blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)

        class Noting(Registry):
            layouts = {"image": folder}

            def send_blob(self, path, body):
                if path.name == largest.name and body:
                    begin, end = map(int, re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
                    with asked.lock:
                        asked.ranges.append((begin, end + 1))
                return super().send_blob(path, body)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Noting)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *_: None  # who is ended asks no further
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.reference = f"127.0.0.1:{self.server.server_address[1]}/image:latest"

    def has(self, begin, end):
        with self.lock:
            for low, high in sorted(self.ranges):
                if low <= begin < high:
                    begin = high
        return begin >= end

    def bytes(self):
        with self.lock:
            return sum(high - low for low, high in self.ranges)
