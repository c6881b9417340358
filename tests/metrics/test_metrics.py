#!/usr/bin/env python3
"""Metrics of daemon, snapshotter and webhook: what they say agrees with `varve status`, promtool finds nothing wrong, docs/guide/metrics.md has them all, a real Prometheus
scrapes them and answers every query of the dashboard. Off, and beyond this machine, there are none."""
import contextlib, http.client, json, os, re, signal, socket, subprocess, sys, time, urllib.parse, urllib.request
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "oracle"), str(TESTS / "webhook")]
import layouts, program, tars  # noqa: E402
from test_export import free_port  # noqa: E402
from webhook_service import Webhook, registry, wait_until  # noqa: E402

TREE = TESTS.parent


def text_at(port):
    return urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read().decode()


def shown_at(port):
    with contextlib.suppress(OSError):
        return "varve_build_info" in text_at(port)


def text_of_socket(path):
    class Connection(http.client.HTTPConnection):
        def connect(self):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(str(path))
    connection = Connection("localhost")
    connection.request("GET", "/metrics")
    return connection.getresponse().read().decode()


def value(text, line):
    return sum(float(one.rsplit(" ", 1)[1]) for one in text.splitlines() if one.startswith(line + " "))


def families(text):
    return set(re.findall(r"^# TYPE (\S+ \S+)$", text, re.M))


def check_lint(name, text):
    done = subprocess.run(["promtool", "check", "metrics"], input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0 and not done.stdout, f"{name}: {done.stdout.decode()}"


def check_page(texts):
    """The page's tables, against what the programs say."""
    page = (TREE / "docs/guide/metrics.md").read_text()
    told = {f"{name} {kind}" for name, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", page, re.M)}
    shown = set().union(*map(families, texts))
    assert told == shown, f"only in docs/guide/metrics.md: {sorted(told - shown)}; not there: {sorted(shown - told)}"


@contextlib.contextmanager
def snapshotter(varve, work):
    """What it shows; it needs no containerd for that."""
    with open(work / "snapshotter.log", "w") as log:
        process = subprocess.Popen([varve.binary, "snapshotter", "--address", work / "snapshotter.sock", "--metrics", f"unix:{work}/snapshotter-metrics.sock"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=varve.environment)
    try:
        wait_until(lambda: (work / "snapshotter-metrics.sock").exists() or process.poll() is not None, "the snapshotter starts")
        assert process.poll() is None, (work / "snapshotter.log").read_text()
        yield text_of_socket(work / "snapshotter-metrics.sock")
    finally:
        process.terminate()
        process.wait(20)


@contextlib.contextmanager
def daemon(varve, address):
    log = open(varve.work / "daemon.log", "a")
    process = subprocess.Popen([varve.binary, "daemon", "--metrics", address], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=varve.environment)
    try:
        wait_until(lambda: varve.daemon_pid() or process.poll() is not None, "the daemon starts")
        yield process
    finally:
        varve.run("daemon", "--stop", "--force", "--time", "1")
        process.wait(20)


def stats_of(varve, folder):
    return next(one for one in varve.json("status")["mounts"] if one["dir"] == folder)


def publish(work, varve, image):
    tar = tars.Tar().dir("etc").file("etc/motd", b"hello\n" * 1000).file("etc/noise", os.urandom(700_000)).bytes()
    varve.run("--root", work / "ci", "image", "export", layouts.gzip_image(work / "image", [tar]), image, check=True)
    varve.run("--root", work / "ci", "index", image, check=True)


def check_socket(work, varve, server_port):
    """On a socket for this user alone; what trust refuses is counted."""
    path, folder = work / "metrics.sock", work / "refused"
    folder.mkdir()
    (work / "varve.toml").write_text('[trust]\nindex = "signed"\n')
    with registry(work, server_port) as host, daemon(varve, f"unix:{path}"):
        publish(work, varve, f"{host}/team/app:v1")
        assert oct(path.stat().st_mode)[-3:] == "600"
        assert varve.run("mount", f"{host}/team/app:v1", folder).returncode == 1
        assert value(text_of_socket(path), "varve_untrusted_total") == 1
    assert not path.exists()
    (work / "varve.toml").write_text("")


def check_daemon(work, varve, port, server_port):
    with registry(work, server_port) as host:
        image = f"{host}/team/app:v1"
        with varve.mounted(image, "fuse", "--no-prefetch") as folder:
            Path(folder, "etc/noise").read_bytes()
            wait_until(lambda: stats_of(varve, folder)["present_bytes"] == stats_of(varve, folder)["image_stream_bytes"], "all is here, what is read ahead too")
            stats = stats_of(varve, folder)
            wait_until(lambda: value(text_at(port), f'varve_fetch_duration_seconds_count{{origin="{host}"}}') == stats["requests"] > 0, lambda: f"{stats}\n{text_at(port)}")
            text = text_at(port)
            for source, count in stats["bytes_from"].items():
                assert value(text, f'varve_received_bytes_total{{source="{source}"}}') == count, (source, stats["bytes_from"], text)
            assert stats["bytes_from"]["registry"] > 700_000
            assert value(text, "varve_read_wait_seconds_count") > 0
            assert value(text, f'varve_mount_ready_seconds_count{{image="docker://{image}",start="cold"}}') == 1, text
            assert value(text, 'varve_mounts{state="used"}') == 1 and value(text, "varve_sessions") == 0
            assert value(text, "varve_store_bytes") >= 700_000
            assert value(text, "varve_read_errors_total") == 0
        received = value(text, 'varve_received_bytes_total{source="registry"}')
        with varve.mounted(image, "fuse"):
            text = text_at(port)
            assert value(text, f'varve_mount_ready_seconds_count{{image="docker://{image}",start="warm"}}') == 1
            assert value(text, 'varve_received_bytes_total{source="registry"}') >= received, "what is closed counts on"
    away = work / "away"  # the registry is
    away.mkdir()
    assert varve.run("mount", f"{host}/team/other:v1", away).returncode == 75
    text = text_at(port)
    assert value(text, f'varve_source_errors_total{{host="{host}",kind="temporary"}}') > 0, text
    return text


def query(port, expression):
    answer = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": expression}), timeout=20))
    assert answer["status"] == "success", (expression, answer)
    return answer["data"]["result"]


def check_dashboard(work, daemon_port, webhook_port):
    """Each query of each panel, asked of a Prometheus that has scraped both."""
    port = free_port()
    (work / "prometheus.yml").write_text(json.dumps({"global": {"scrape_interval": "500ms"}, "scrape_configs": [
        {"job_name": "varve", "static_configs": [{"targets": [f"127.0.0.1:{daemon_port}", f"127.0.0.1:{webhook_port}"]}]}]}))
    server = subprocess.Popen(["prometheus", f"--config.file={work}/prometheus.yml", f"--storage.tsdb.path={work}/tsdb", f"--web.listen-address=127.0.0.1:{port}", "--log.level=error"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        def scraped():
            with contextlib.suppress(OSError):
                return sum(float(one["value"][1]) for one in query(port, "sum_over_time(up[1m])")) >= 8
        wait_until(scraped, "it has scraped both")
        dashboard = json.loads((TREE / "packaging/grafana/varve.json").read_text())
        expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        assert len(expressions) > 15
        for expression in expressions:
            asked = expression.replace("$__rate_interval", "1m").replace("$__range", "1h").replace("$instance", ".*")
            assert "$" not in asked, expression
            result = query(port, asked)
            # Without a limit and with nothing wrong there is nothing to draw.
            assert result or "limit" in expression or "source_errors" in expression or "jobs" in expression, expression
        known = {name for name in json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/label/__name__/values"))["data"]}
        for expression in expressions:
            for name in re.findall(r"\bvarve_\w+", expression):
                assert name in known or name == "varve_webhook_jobs_total", f"{expression}: nobody shows {name}"
    finally:
        server.terminate()
        server.wait(30)


def main():
    program.need_root()
    program.need_fuse()
    program.need_tools("docker-registry", "prometheus", "promtool")
    with program.work_folder() as work, program.Varve(work) as varve:
        (work / "varve.toml").write_text("")
        varve.environment["VARVE_CONFIG"] = str(work / "varve.toml")
        for address in ("0.0.0.0:9471", "192.0.2.1:1", "[::]:9471", "9471", "unix:relative"):
            refused = varve.run("daemon", "--metrics", address, timeout=20)
            assert refused.returncode == 2 and address.encode() in refused.stderr, (address, refused.stderr)
        port, server_port = free_port(), free_port()
        check_socket(work, varve, server_port)
        with daemon(varve, f"127.0.0.1:{port}"):
            varve.run("daemon", "--replace", check=True)
            wait_until(lambda: shown_at(port), "the program that took its place shows them")
            text = check_daemon(work, varve, port, server_port)
            check_lint("daemon", text)
            hook = Webhook(varve, work, "hook", f'registry = "127.0.0.1:{server_port}"\n[[rule]]\nrepositories = ["team/app"]\n')
            with hook:
                hook.send(b"{")
                wait_until(lambda: value(text_at(hook.port), 'varve_webhook_sweeps_total{outcome="failed"}') == 1, "its sweep fails")
                told = text_at(hook.port)
                check_lint("webhook", told)
                with snapshotter(varve, work) as layers:
                    check_lint("snapshotter", layers)
                    check_page([text, told, layers])
                check_dashboard(work, port, hook.port)
    print("metrics: daemon, snapshotter, webhook, promtool, the page, Prometheus and the dashboard agree")


if __name__ == "__main__":
    main()
