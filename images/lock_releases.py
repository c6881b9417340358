#!/usr/bin/python3
"""lock_releases.py RECIPE_DIR: writes the pinned lists that RECIPE_DIR/recipe.toml names, of each release or of its `locked` day.

The lists of a day are what pip would have chosen on its evening, for all layers together: each layer gets what its names need and no layer before it has.
A layer with `take` gets what these patterns match, whoever needs it. RECIPE_DIR/versions.toml holds versions back, with reasons.
Between pip and the package index stands a server on loopback that leaves out files of later days (PEP 700's upload-time). Days whose lists are all there
are left as they are."""
import argparse, fnmatch, http.server, json, re, subprocess, sys, tempfile, threading, time, tomllib, urllib.request
from datetime import datetime, timedelta, timezone
from pathlib import Path

from lock import closure, normal

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


def resolve(names, held, port, pip):
    """{name: (version, sha256, [requirement])} of everything that pip would install for the names."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write("\n".join(held) + "\n")
        constraints.flush()
        command = [*pip, "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-", "--only-binary=:all:", "--break-system-packages",
                   "--index-url", f"http://127.0.0.1:{port}/", "--constraint", constraints.name, *names]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"pip failed ({done.returncode}):\n{done.stderr[-4000:]}")
    found = {}
    for item in json.loads(done.stdout)["install"]:
        metadata = item["metadata"]
        found[normal(metadata["name"])] = (metadata["version"], item["download_info"]["archive_info"]["hash"].split("=", 1)[1], metadata.get("requires_dist", []))
    return found


def share_out(layers, found):
    """The names of each layer's list, in the order of the layers."""
    requires = {name: needs for name, (_, _, needs) in found.items()}
    taken = [{name for name in found if any(fnmatch.fnmatchcase(name, pattern) for pattern in layer.get("take", []))} for layer in layers]
    given = set().union(*taken)
    for layer, own in zip(layers, taken):
        own |= closure(layer["names"], requires) - given
        given |= own
    return taken


def lock_day(folder, layers, day, held, port, pip):
    IndexOfADay.until = datetime(day.year, day.month, day.day, tzinfo=timezone.utc) + timedelta(days=1)
    paths = [folder / layer["requirements"].format(release=day) for layer in layers]
    if not all(path.exists() for path in paths):
        found = resolve([name for layer in layers for name in layer["names"]], held, port, pip)
        for path, names in zip(paths, share_out(layers, found)):
            path.write_text("".join(f"{name}=={found[name][0]} \\\n    --hash=sha256:{found[name][1]}\n" for name in sorted(names)))
    return [dict(re.findall(r"^(\S+)==(\S+)", path.read_text(), re.M)) for path in paths]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--pip", default="/usr/bin/python3 -m pip",
                        help="the pip that resolves, for the Python of the image: `VENV/bin/pip --python /usr/bin/python3` is a newer one, "
                             "which reads metadata alone where Debian's fetches whole wheels")
    options = parser.parse_args()
    folder, before = options.recipe, {}
    recipe = tomllib.loads((folder / "recipe.toml").read_text())
    versions = folder / "versions.toml"
    held = [one["requirement"] for one in tomllib.loads(versions.read_text())["hold"]] if versions.exists() else []
    IndexOfADay.upstream = index_url()
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), IndexOfADay)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    layers = [layer for layer in recipe["layer"] if layer["kind"] == "wheels" and "names" in layer]
    for day in [release["day"] for release in recipe.get("releases", [])] or [recipe["locked"]]:
        for layer, now in zip(layers, lock_day(folder, layers, day, held, server.server_port, options.pip.split())):
            old = before.get(layer["requirements"], {})
            changed = [n for n in now if old.get(n) != now[n]] if old else []
            print(f"{layer['requirements'].format(release=day)}: {len(now)} distributions, {len(changed)} changed: {', '.join(changed)}", file=sys.stderr)
            before[layer["requirements"]] = now


if __name__ == "__main__":
    main()
