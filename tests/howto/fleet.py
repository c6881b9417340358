"""What docs/howto/fleet.md takes for given: a PostgreSQL server, an image, the spools of five nodes, a mail program and a place to put files."""
import contextlib, http.server, json, os, subprocess, sys, tempfile, threading, time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report"))
import page_rules, python_image  # noqa: E402
import program  # noqa: E402  python_image says where it lies
from python_image import expect  # noqa: E402

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
put = {}


class Store(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        put[self.path] = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.end_headers()

    def log_message(self, *words):
        pass


@contextlib.contextmanager
def postgres():
    """A server of our own on a socket, as somebody else: it refuses to run as root."""
    with tempfile.TemporaryDirectory(prefix="varve-pg-", dir="/tmp") as folder:
        who = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
        if who:
            subprocess.run(["chown", "postgres", folder], check=True)
        subprocess.run([PROGRAMS / "initdb", "-D", folder + "/data", "-U", "postgres", "-A", "trust", "-N", "--no-instructions"], check=True, stdout=subprocess.DEVNULL, cwd="/", **who)
        server = subprocess.Popen([PROGRAMS / "postgres", "-D", folder + "/data", "-k", folder, "-c", "listen_addresses=", "-c", "fsync=off"], stderr=subprocess.DEVNULL, cwd="/", **who)
        try:
            for _ in range(200):
                if subprocess.run([PROGRAMS / "pg_isready", "-q", "-h", folder], check=False).returncode == 0:
                    break
                time.sleep(0.05)
            yield folder
        finally:
            server.terminate()
            server.wait()


def write_spools(folder, image):
    """Two sessions of each node; all import pandas, that of the first node alone bs4."""
    day = time.strftime("%Y-%m-%d", time.gmtime())
    for node in range(1, 6):
        spool = folder / f"spool-node{node}"
        spool.mkdir()
        for number in (1, 2):
            session, process = "%032x" % (node * 10 + number), "%016x" % 1
            records = [{"t": "start", "v": 1, "session": session, "process": process, "day": day, "image": image, "writer": "recorder 1", "main": "kernel", "user": "%032x" % (node << 70)},
                       {"t": "import", "m": "pandas", "how": "direct", "site": "image"}]
            records += [{"t": "import", "m": "bs4", "how": "direct", "site": "image"}] if node == 1 else []
            records += [{"t": "end", "exit": "ok"}]
            (spool / f"{session}-{process}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


@contextlib.contextmanager
def prepare(folder, varve):
    if not (PROGRAMS / "initdb").exists():
        program.skip("PostgreSQL 15 is not installed")
    program.need_tools("psql", "curl")
    python_image.make(folder / "images", "v1")
    index = json.loads((folder / "images/index.json").read_text())
    write_spools(folder, index["manifests"][0]["digest"])
    tools = folder.parent / "tools"
    tools.mkdir()
    (tools / "sendmail").write_text('#!/bin/sh\ntest "$1" = -t && cat > mail\n')
    (tools / "sendmail").chmod(0o755)
    store = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Store)
    threading.Thread(target=store.serve_forever, daemon=True).start()
    with postgres() as socket:
        varve.environment.update(PGHOST=socket, STORE=f"http://127.0.0.1:{store.server_port}", PATH=f"{tools}:{varve.environment['PATH']}")
        try:
            yield
        finally:
            store.shutdown()
            store.server_close()


def check(folder, output):
    page = (folder / "week.html").read_text()
    expect("the page is one", page_rules.faults_of(page), [])
    expect("it has heard all ten sessions", "100 % of sessions: 10 of 10" in page, True)
    head, _, body = (folder / "mail").read_text().partition("\n\n")
    expect("the mail is the page", (body == page, "text/html" in head), (True, True))
    expect("the store has it", [content.decode() == page for content in put.values()], [True])
    expect("its name is that of the week", [name[:7] for name in put], ["/usage-"])
    expect("nothing is left to send", [len(list((folder / f"spool-node{node}").iterdir())) for node in range(1, 6)], [0] * 5)
    for part in ("2 new sessions and 8 records", "2 new sessions and 6 records", "10 new sessions and 32 records"):
        expect(f"the output says {part!r}", part in " ".join(output.split()), True)
