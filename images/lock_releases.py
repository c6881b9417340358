#!/usr/bin/python3
"""lock_releases.py RECIPE_DIR: writes the pinned list of each release that RECIPE_DIR/recipe.toml names.

A release is a day; its list is what pip would have chosen on the evening of that day. Between pip and the package index stands a server on
loopback that leaves out files of later days (PEP 700's upload-time). A list that is there already is left as it is."""
import argparse, http.server, json, re, subprocess, sys, threading, time, tomllib, urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

ATTEMPTS = 20
JSON_TYPE = "application/vnd.pypi.simple.v1+json"


def index_url():
    shown = subprocess.run(["/usr/bin/python3", "-m", "pip", "config", "get", "global.index-url"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.strip()
    return (shown or "https://pypi.org/simple").rstrip("/")


class IndexOfADay(http.server.BaseHTTPRequestHandler):
    """The package index as it was at `until`. What it reads is kept: every release asks for the same projects."""
    upstream, until, kept = "", None, {}

    def log_message(self, *_):
        pass

    def read(self, project):
        request = urllib.request.Request(f"{self.upstream}/{project}/", headers={"Accept": JSON_TYPE})
        for _ in range(ATTEMPTS):  # a mirror may answer in the older form now and then
            with urllib.request.urlopen(request) as answer:
                if answer.headers.get_content_type() == JSON_TYPE:
                    return json.load(answer)
            time.sleep(1)
        sys.exit(f"{self.upstream}/{project}/: no answer as JSON, which alone tells when a file came")

    def do_GET(self):
        project = self.path.strip("/").split("/")[-1]
        try:
            if project not in self.kept:
                self.kept[project] = self.read(project)
        except urllib.error.HTTPError as error:
            return self.send_error(error.code)
        page = dict(self.kept[project])
        page["files"] = [f for f in page["files"] if f["filename"].endswith(".whl") and datetime.fromisoformat(f["upload-time"]) < self.until]
        page.pop("versions", None)
        body = json.dumps(page).encode()
        self.send_response(200)
        self.send_header("Content-Type", JSON_TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def resolve(names, port):
    command = ["/usr/bin/python3", "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--only-binary=:all:",
               "--break-system-packages", "--index-url", f"http://127.0.0.1:{port}/", *names]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"pip failed ({done.returncode}):\n{done.stderr[-4000:]}")
    for item in json.loads(done.stdout)["install"]:
        name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        yield name, item["metadata"]["version"], item["download_info"]["archive_info"]["hash"].split("=", 1)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    folder = parser.parse_args().recipe
    recipe = tomllib.loads((folder / "recipe.toml").read_text())
    IndexOfADay.upstream = index_url()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), IndexOfADay)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    before = {}
    for release in recipe["releases"]:
        day = release["day"]
        IndexOfADay.until = datetime(day.year, day.month, day.day, tzinfo=timezone.utc) + timedelta(days=1)
        for layer in recipe["layer"]:
            if layer["kind"] != "wheels" or layer.get("from", 1) > recipe["releases"].index(release) + 1:
                continue
            path = folder / layer["requirements"].format(release=day)
            if not path.exists():
                found = sorted(resolve(layer["names"], server.server_port))
                path.write_text("".join(f"{n}=={v} \\\n    --hash=sha256:{h}\n" for n, v, h in found))
            now = dict(re.findall(r"^(\S+)==(\S+)", path.read_text(), re.M))
            old = before.get(layer["requirements"], {})
            changed = [n for n in now if old.get(n) != now[n]] if old else []
            print(f"{path.name}: {len(now)} distributions, {len(changed)} changed: {', '.join(changed)}", file=sys.stderr)
            before[layer["requirements"]] = now


if __name__ == "__main__":
    main()
