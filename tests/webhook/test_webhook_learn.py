#!/usr/bin/env python3
"""varve webhook with `learn = true`, Debian's docker-registry and a small image with a real Python: its packs are learnt, signed and pushed beside it, once; the
pushed index is not taken for an image; and another machine starts by a pack."""
import os, sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("oracle", "howto")]
import program, python_image, tars  # noqa: E402
from test_export import free_port  # noqa: E402
from webhook_service import Webhook, registry, wait_until  # noqa: E402

# Packs are 3 % of an image at most, and a Python alone takes more of one that has nothing else.
BALLAST = 80 << 20


def check_learnt(varve, image):
    told = varve.json("inspect", image)
    assert told["believed"] and told["packs"] > 1 and told["pack_bytes"] > 0, told
    groups = {group["name"]: group for group in varve.json("profile", "show", image)["groups"]}
    assert any(name.startswith("/usr/bin/python3") for name in groups) and "pandas" in groups, groups
    return told["index"]


def check_start(varve, work, image):
    done = varve.run("run", "--rm", "--stats", work / "stats.json", image, "--", "python3", "-c", "import pandas; print(pandas.numpy.pi)")
    assert done.returncode == 0 and done.stdout == b"3.14\n", done.stderr
    return program.json.loads((work / "stats.json").read_text())["bytes_from"]


def main():
    program.need_tools("docker-registry")
    program.need_own_root()
    program.need_fuse()
    with program.work_folder() as work, program.Varve(work) as varve:
        varve.environment.update(COSIGN_PASSWORD="", VARVE_CONFIG=str(work / "varve.toml"))
        (work / "varve.toml").write_text(f'[trust]\nindex = "signed"\nkeys = ["{work}/ci.pub"]\n')
        varve.run("keygen", "-o", work / "ci", check=True)
        built = python_image.make(work / "image", "v1", more=[tars.Tar().file("srv/ballast", os.urandom(BALLAST)).bytes()])
        port, tells = free_port(), free_port()
        host = f"127.0.0.1:{port}"
        rule = f'registry = "{host}"\nsweep-seconds = 0\n[[rule]]\nrepositories = ["team/*"]\nsign = "ci.key"\nlearn = true\n'
        hook = Webhook(varve, work, "hook", rule, tells, powers=True)  # it starts sessions
        try:
            with hook, registry(work, port, tells):
                varve.run("image", "export", built, f"{host}/team/notebook:v1", check=True)
                wait_until(lambda: hook.status()["done"] == 1, lambda: f"it is learnt: {hook.status()}\n{hook.log()}", 200)
                index = check_learnt(varve, f"{host}/team/notebook:v1")
                # What the webhook pushed itself it is told of, and none of it is indexed, or learnt from, in turn.
                wait_until(lambda: hook.metric('varve_webhook_jobs_total{outcome="no_image"}') >= 4, lambda: f"own pushes are looked at: {hook.log()}")
                hook.wait_for(done=1, queued=0, taken=0, failed=0)
                varve.run("image", "export", built, f"{host}/team/notebook:again", check=True)
                wait_until(lambda: hook.metric('varve_webhook_events_total{outcome="known"}') >= 1, "the same image by another tag")
                hook.wait_for(done=1, queued=0, taken=0, failed=0)
                assert hook.metric('varve_webhook_jobs_total{outcome="done"}') == 1
                assert check_learnt(varve, f"{host}/team/notebook:v1") == index, "it was learnt again"
                sources = check_start(varve, work, f"{host}/team/notebook:v1")
                assert sources["pack"] > 1_000_000, sources
        finally:
            varve.run("--root", work / "hook", "daemon", "--stop", "--force")
    print(f"webhook: packs learnt and pushed, a start with {sources['pack']} bytes of a pack")


if __name__ == "__main__":
    main()
