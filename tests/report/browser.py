"""A headless Chromium driven over its DevTools pipe: no port, no package beyond Python's own."""
import json, os, select, shutil, subprocess, tempfile, time
from pathlib import Path

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def find():
    return next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Browser:
    """Use as a context manager: the browser and its profile are gone afterwards, whatever happened."""

    def __init__(self, program, limit_s=60):
        self.deadline = time.monotonic() + limit_s
        self.profile = tempfile.mkdtemp(prefix="varve-page-")
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        # Chromium reads commands from descriptor 3 and writes to 4. The ends are first moved out of the way of each other.
        high_in, high_out = (os.dup(os.dup(os.dup(fd))) for fd in (theirs_in, theirs_out))

        def settle():
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
                   "--disable-background-networking", "--hide-scrollbars", f"--user-data-dir={self.profile}", "--remote-debugging-pipe", "about:blank"]
        self.process = subprocess.Popen(command, preexec_fn=settle, pass_fds=(3, 4, high_in, high_out), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL, start_new_session=True, env={**os.environ, "TMPDIR": self.profile})
        for fd in (theirs_in, theirs_out, high_in, high_out):
            os.close(fd)
        self.to, self.source, self.rest = ours_out, ours_in, b""
        self.count, self.session, self.events = 0, None, []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.to)
        os.close(self.source)
        shutil.rmtree(self.profile, ignore_errors=True)

    def _message(self):
        while b"\0" not in self.rest:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.source], [], [], left)[0]:
                raise TimeoutError("the browser does not answer")
            piece = os.read(self.source, 1 << 20)
            if not piece:
                raise ConnectionError("the browser has gone")
            self.rest += piece
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.count += 1
        command = {"id": self.count, "method": method, "params": params}
        if self.session:
            command["sessionId"] = self.session
        data = json.dumps(command).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data):]
        while True:
            message = self._message()
            if message.get("id") == command["id"]:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def wait_for(self, method):
        while True:
            for i, event in enumerate(self.events):
                if event.get("method") == method:
                    del self.events[i]
                    return event
            self.events.append(self._message())

    def open(self, path, width=1280, height=900, dark=False, script=True, media="screen"):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.call("Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                                                                       {"name": "prefers-reduced-motion", "value": "reduce"}])
        self.events.clear()
        self.call("Page.navigate", url=Path(path).resolve().as_uri())
        self.wait_for("Page.loadEventFired")

    def run(self, expression):
        """The value of a JavaScript expression; promises are awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", str(answer["exceptionDetails"])))
        return answer["result"].get("value")

    def complaints(self):
        """What the page did wrong since it was opened: exceptions, console errors, refusals of its policy, requests to anywhere."""
        self.run("0")  # whatever happened before has been told by now
        found = []
        for event in self.events:
            method, params = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(params["exceptionDetails"].get("exception", {}).get("description") or params["exceptionDetails"]["text"])
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(params["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(str(params["args"]))
            elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:")):
                found.append("request to " + params["request"]["url"])
        return found

    def picture(self, path, whole=True, clip=None):
        import base64
        params = {"format": "png", "captureBeyondViewport": whole}
        if clip:
            params["clip"] = dict(zip(("x", "y", "width", "height"), clip), scale=1)
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **params)["data"]))
