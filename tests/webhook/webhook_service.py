"""`varve webhook` and Debian's docker-registry that tells it of pushes."""
import contextlib, http.client, json, os, signal, socket, subprocess, sys, time, urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
from program import children_of  # noqa: E402
from test_export import free_port  # noqa: E402

SECRET = "Bearer of-the-test"


def wait_until(true, what, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")


@contextlib.contextmanager
def registry(work, port, tells=None, secret=SECRET):
    """On that port, with its things in `work`; `tells` is the port of a webhook."""
    config = {"version": 0.1, "log": {"level": "error"}, "storage": {"filesystem": {"rootdirectory": f"{work}/registry"}, "delete": {"enabled": True}}, "http": {"addr": f"127.0.0.1:{port}"}}
    if tells:
        config["notifications"] = {"endpoints": [{"name": "varve", "url": f"http://127.0.0.1:{tells}/events", "headers": {"Authorization": [secret]},
                                                  "timeout": "5s", "threshold": 3, "backoff": "200ms"}]}
    (work / "registry.yml").write_text(json.dumps(config))
    server = subprocess.Popen(["docker-registry", "serve", str(work / "registry.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: answers(port), "the registry starts")
        yield f"127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)


def answers(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


class Webhook:
    """One `varve webhook` with a root of its own; its log is WORK/NAME.log. Root has none of root's powers in it, as in its unit."""

    def __init__(self, varve, work, name, config, port=None, powers=False):
        self.varve, self.work, self.name, self.port = varve, work, name, port or free_port()
        self.confined = [] if powers or os.geteuid() != 0 else ["setpriv", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]
        self.config = work / f"{name}.toml"
        self.config.write_text(f'listen = "127.0.0.1:{self.port}"\nsecret-file = "secret"\n' + config)
        (work / "secret").write_text(SECRET + "\n")
        self.process = None

    def start(self):
        with open(self.work / f"{self.name}.log", "a") as log:
            self.process = subprocess.Popen([*self.confined, self.varve.binary, "--root", self.work / self.name, "webhook", "--config", self.config], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.varve.environment)
        wait_until(lambda: self.process.poll() is not None or answers(self.port), "it listens")
        assert self.process.poll() is None, self.log()
        return self

    __enter__ = start

    def __exit__(self, *_):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(30)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0, self.log()

    def log(self):
        return (self.work / f"{self.name}.log").read_text()[-4000:]

    def status(self):
        return self.varve.json("--root", self.work / self.name, "webhook", "status", "--config", self.config)

    def connect(self, source="127.0.0.1"):
        """All of 127.0.0.0/8 is this machine, and each a sender of its own."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20, source_address=(source, 0))

    def send(self, body, secret=SECRET, path="/events", source="127.0.0.1"):
        with contextlib.closing(self.connect(source)) as connection:
            connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), {"Authorization": secret, "Connection": "close"})
            return connection.getresponse().status

    def announce(self, size):
        """The answer to a notification of that size, before it is sent."""
        connection = self.connect()
        connection.putrequest("POST", "/events")
        for name, text in (("Authorization", SECRET), ("Content-Length", str(size))):
            connection.putheader(name, text)
        connection.endheaders()
        return connection.getresponse().status

    def metric(self, line):
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=20).read().decode()
        return sum(float(one.rsplit(" ", 1)[1]) for one in text.splitlines() if one.startswith(line + " "))

    def wait_for(self, **states):
        wait_until(lambda: all(self.metric(f'varve_webhook_images{{state="{state}"}}') == count for state, count in states.items()), lambda: f"{states}: {self.status()}\n{self.log()}")

    def children(self):
        """Commands that it runs: (process, words)."""
        found = []
        for pid in children_of(self.process.pid):
            with contextlib.suppress(OSError):
                found.append((pid, Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")))
        return found


def event(repository, digest, tag="v1"):
    return {"events": [{"action": "push", "target": {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": digest, "repository": repository, "tag": tag}}]}
