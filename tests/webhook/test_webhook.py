#!/usr/bin/env python3
"""varve webhook with Debian's docker-registry that sends its events: pushed images are indexed and signed once, whatever is sent twice, lost or broken, and
whoever is killed meanwhile; what was pushed beside them is left alone; two workers share one queue in PostgreSQL."""
import gzip, hashlib, json, os, signal, sys, urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import layouts, private_postgres, program, tars  # noqa: E402
from test_export import free_port  # noqa: E402
from webhook_service import Webhook, event, registry, wait_until  # noqa: E402


def image(work, name, content, size=50_000):
    tar = tars.Tar().dir("etc").file("etc/motd", content.encode() * 10).file("etc/noise", os.urandom(size)).bytes()
    return layouts.gzip_image(work / name, [tar])


def ask(host, path, method="GET", body=None, **headers):
    return urllib.request.urlopen(urllib.request.Request(f"http://{host}/v2/{path}", data=body, method=method, headers={key.replace("_", "-"): value for key, value in headers.items()}))


def indexes_beside(host, repository, digest):
    """How many indexes of the image its registry lists."""
    listed = json.load(ask(host, f"{repository}/manifests/sha256-{digest.removeprefix('sha256:')}", Accept="application/vnd.oci.image.index.v1+json"))
    return [one["artifactType"] for one in listed["manifests"]].count("application/vnd.varve.index.v1")


def rules(host, more="", key="ci.key"):
    return f'registry = "{host}"\nsweep-seconds = 0\nretry-seconds = 1\n{more}\n[[rule]]\nrepositories = ["team/*"]\nsign = "{key}"\n'


def put_broken(host):
    """An image whose layer is no gzip."""
    def blob(content):
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        place = ask(host, "team/broken/blobs/uploads/", "POST").headers["Location"]
        urllib.request.urlopen(urllib.request.Request(place + ("&" if "?" in place else "?") + "digest=" + digest, data=content, method="PUT", headers={"Content-Type": "application/octet-stream"}))
        return {"digest": digest, "size": len(content)}
    layer = blob(b"this is no gzip" * 100)
    config = blob(json.dumps({"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}).encode())
    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": {"mediaType": "application/vnd.oci.image.config.v1+json", **config},
                           "layers": [{"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", **layer}]}).encode()
    ask(host, "team/broken/manifests/v1", "PUT", manifest, Content_Type="application/vnd.oci.image.manifest.v1+json")


def check_pushes(work, varve, host, hook):
    """Pushed, indexed, signed: once; own pushes and what no rule has are left alone."""
    built = image(work, "one", "one")
    pushed = varve.json("image", "export", built, f"{host}/team/app:v1")["image"]
    hook.wait_for(done=1, queued=0, taken=0)
    shown = varve.json("--root", work / "node", "trust", "show", f"{host}/team/app:v1")
    assert shown["vouched"] and shown["signers"], shown
    varve.run("image", "export", built, f"{host}/team/app:again", check=True)
    varve.run("image", "export", built, f"{host}/other/app:v1", check=True)
    # Events come in order: when the next image is done, all of these have been seen.
    varve.run("image", "export", image(work, "two", "two"), f"{host}/team/two:v1", check=True)
    hook.wait_for(done=2, queued=0, taken=0, failed=0)
    wait_until(lambda: hook.status()["queued"] + hook.status()["taken"] == 0, "own pushes are looked at")
    assert indexes_beside(host, "team/app", pushed) == 1
    assert hook.metric('varve_webhook_jobs_total{outcome="done"}') == 2
    assert hook.metric('varve_webhook_jobs_total{outcome="no_image"}') >= 2, "indexes and signatures were told of, and left out"
    assert hook.metric('varve_webhook_events_total{outcome="known"}') >= 1, "the same image by another tag"
    assert hook.metric('varve_webhook_jobs_total{outcome="failed"}') == 0


def check_poison(work, varve, host, hook):
    """What cannot be read or indexed keeps nobody waiting."""
    for body in (b"{", b"[]", b"", b"\xff\xfe", event("team/app", "sha256:12"), event("../../etc", "sha256:" + "0" * 64), event("team/app", "sha256:" + "0" * 64)):
        assert hook.send(body) == 200, body
    assert hook.send(event("team/app", "sha256:" + "0" * 64), secret="Bearer wrong") == 401
    assert hook.announce(2 << 20) == 413
    assert hook.send({}, path="/nothing") == 404
    put_broken(host)
    varve.run("image", "export", image(work, "three", "three"), f"{host}/team/three:v1", check=True)
    hook.wait_for(done=3, failed=1, queued=0, taken=0)
    failed = [one for one in hook.status()["images"] if one["state"] == "failed"]
    assert failed[0]["repository"] == "team/broken" and failed[0]["reason"].startswith("index: "), failed
    assert varve.json("--root", work / hook.name, "webhook", "retry", "--config", hook.config, f"{host}/team/broken:v1") == {"retried": 1}
    hook.wait_for(done=3, failed=1, queued=0, taken=0)
    assert hook.metric('varve_webhook_events_total{outcome="bad"}') >= 5


def check_kill(work, varve, host, hook):
    """Killed while an image is being indexed: its program ends with it, and the next start does the rest, once."""
    built = image(work, "large", "large", 20_000_000)
    found = []

    def indexing():
        found[:] = [pid for pid, words in hook.children() if "index" in words and "--child-of" not in words]
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        return bool(found)
    pushed = varve.json("image", "export", built, f"{host}/team/large:v1")["image"]
    wait_until(indexing, "it is being indexed")
    hook.process.kill()
    hook.process.wait(30)
    wait_until(lambda: not any(program.is_running(pid) for pid in found), "the program ends with its webhook")
    assert hook.status()["taken"] == 1
    hook.start()
    hook.wait_for(done=4, queued=0, taken=0)
    assert indexes_beside(host, "team/large", pushed) == 1
    assert varve.json("--root", work / "node", "trust", "show", f"{host}/team/large:v1")["vouched"]


def check_end(work, varve, host, hook):
    """Asked to end, it leaves what is under way in the queue."""
    pushed = varve.json("image", "export", image(work, "late", "late", 20_000_000), f"{host}/team/late:v1")["image"]
    wait_until(lambda: any("index" in words and "--child-of" not in words for _, words in hook.children()), "it is being indexed")
    hook.end()
    status = hook.status()
    assert status["queued"] == 1 and status["taken"] == 0 and status["images"][0]["attempts"] <= 1, status
    return pushed


def check_sweep(work, varve, host, hook, pushed):
    """What was pushed while nobody listened is found; a second webhook on the same queue is refused."""
    missed = varve.json("image", "export", image(work, "missed", "missed"), f"{host}/team/missed:v1")["image"]
    hook.config.write_text(hook.config.read_text().replace("sweep-seconds = 0", "sweep-seconds = 3600"))
    hook.start()
    hook.wait_for(done=6, failed=1, queued=0, taken=0)
    assert indexes_beside(host, "team/missed", missed) == 1 and indexes_beside(host, "team/late", pushed) == 1
    wait_until(lambda: hook.metric('varve_webhook_sweeps_total{outcome="done"}') == 1, "the sweep is through")
    second = varve.run("--root", work / hook.name, "webhook", "--config", hook.config, "--listen", f"127.0.0.1:{free_port()}", timeout=30)
    assert second.returncode == 75 and b"another webhook" in second.stderr, second.stderr
    hook.end()


def check_crowd(work, varve):
    """Whoever connects or orders without end is refused at once, and keeps nobody out."""
    with Webhook(varve, work, "crowd", rules("127.0.0.1:1", "max-queued = 25\naddress-images = 20\naddress-connections = 8\n")) as hook:
        held = []
        while len(held) < 8:
            held.append(hook.connect("127.0.0.2"))
            held[-1].request("GET", "/healthz")
            assert held[-1].getresponse().read() == b"ok\n"
        for _ in range(100):  # more than there may be of all
            one = hook.connect("127.0.0.2")
            one.connect()
            assert one.sock.recv(1) == b"", "a connection too many is left waiting"
        def ordered(source, numbers):
            return [hook.send(event(f"team/{source}", f"sha256:{number:064x}"), source=source) for number in numbers]
        assert ordered("127.0.0.3", range(30)) == [200] * 20 + [429] * 10
        assert ordered("127.0.0.3", range(5)) == [200] * 5, "what is known is no order"
        assert ordered("127.0.0.1", range(5)) == [200] * 5, "others have room"
        held[0].request("GET", "/healthz")
        assert held[0].getresponse().status == 200, "what one has goes on"
        assert "127.0.0.3 has ordered 20 images in a minute" in hook.log()


def check_two(work, varve, host, url):
    """Two on one queue in PostgreSQL: each image once; what one left when it was killed is the other's."""
    digests = [varve.json("image", "export", image(work, f"pg{i}", f"pg{i}"), f"{host}/team/pg{i}:v1")["image"] for i in range(6)]
    config = rules(host, f'queue = "{url}"\nlease-seconds = 2\n')
    # The test's server lies in a folder of its own user.
    with Webhook(varve, work, "left", config, powers=True) as left, Webhook(varve, work, "right", config, powers=True) as right:
        for i, digest in enumerate(digests):
            for hook in (left, right):
                assert hook.send(event(f"team/pg{i}", digest)) == 200
        left.wait_for(done=6, queued=0, taken=0)
        shares = [hook.metric('varve_webhook_jobs_total{outcome="done"}') for hook in (left, right)]
        assert sum(shares) == 6 and min(shares) > 0, shares
        assert all(indexes_beside(host, f"team/pg{i}", digest) == 1 for i, digest in enumerate(digests))
        lost = varve.json("image", "export", image(work, "lost", "lost", 20_000_000), f"{host}/team/lost:v1")["image"]
        owners = []

        def taken():
            owners[:] = [hook for hook in (left, right) for pid, words in hook.children() if "index" in words and "--child-of" not in words and not os.kill(pid, signal.SIGSTOP)]
            return bool(owners)
        assert left.send(event("team/lost", lost)) == 200
        wait_until(taken, "one of them has it")
        owners[0].process.kill()
        owners[0].process.wait(30)
        other = right if owners[0] is left else left
        other.wait_for(done=7, queued=0, taken=0)
        assert indexes_beside(host, "team/lost", lost) == 1


def check_previous(work, varve, host):
    """A version's index says what the one before has, where a rule says so."""
    noise = os.urandom(100_000)
    with Webhook(varve, work, "versions", rules(host) + "previous = true\n") as hook:
        for done, tag in enumerate(("v1", "v2"), start=1):
            tar = tars.Tar().dir("data").file("data/noise", noise).file("data/tag", tag.encode()).bytes()
            pushed = varve.json("image", "export", layouts.gzip_image(work / tag, [tar]), f"{host}/team/versions:{tag}")["image"]
            assert hook.send(event("team/versions", pushed)) == 200
            hook.wait_for(done=done, queued=0, taken=0, failed=0)
    seeds = [varve.json("--root", work / "node", "inspect", f"{host}/team/versions:{tag}")["seeds_bytes"] for tag in ("v1", "v2")]
    assert seeds[0] == 0 and seeds[1] > 0, seeds


def main():
    program.need_tools("docker-registry")
    with program.work_folder() as work, program.Varve(work) as varve:
        varve.environment.update(COSIGN_PASSWORD="", VARVE_CONFIG=str(work / "varve.toml"))
        (work / "varve.toml").write_text(f'[trust]\nindex = "signed"\nkeys = ["{work}/ci.pub"]\n')
        varve.run("keygen", "-o", work / "ci", check=True)
        port, tells = free_port(), free_port()
        host = f"127.0.0.1:{port}"
        hook = Webhook(varve, work, "hook", rules(host), tells)
        with hook, registry(work, port, tells):
            check_pushes(work, varve, host, hook)
            check_poison(work, varve, host, hook)
            check_kill(work, varve, host, hook)
            pushed = check_end(work, varve, host, hook)
        with registry(work, port):  # which has forgotten what it could not tell
            try:
                check_sweep(work, varve, host, hook, pushed)
            finally:
                hook.__exit__()
        check_crowd(work, varve)
        with registry(work, port), private_postgres.server() as url:
            check_previous(work, varve, host)
            check_two(work, varve, host, url)
    print("webhook: pushes, poison, a kill, an end, a sweep, a crowd, versions, two on one queue")


if __name__ == "__main__":
    main()
