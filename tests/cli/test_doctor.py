#!/usr/bin/env python3
"""`varve doctor`: one page for a bug report, whatever state the machine is in; no secret that was planted anywhere is on it."""
import base64, json, os, shutil, signal, subprocess, sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TREE / "tests/oracle"), str(TREE / "tests/run")]
import layouts, program, tars  # noqa: E402
from tiny_image import expect  # noqa: E402

NOBODY = 65534
SECRETS = {name: f"zq{number}Xv7-{name}-kW3" for number, name in enumerate(
    ("login", "identity", "passphrase", "proxy", "variable", "database", "session", "url", "header", "query", "named", "bearer", "toml"))}
PARTS = ("generated", "program", "kernel", "can", "disk", "mounts", "settings", "environment", "credentials", "trust", "units", "daemon", "status", "registries", "log", "findings")


def plant(varve, work):
    login = base64.b64encode(f"anna:{SECRETS['login']}".encode()).decode()
    SECRETS["encoded login"] = login
    authfile = work / "auth.json"
    authfile.write_text(json.dumps({"auths": {"registry.example": {"auth": login}, "other.example:5000": {"identitytoken": SECRETS["identity"]}}, "credHelpers": {"third.example": "pass"}}))
    config = work / "varve.toml"
    config.write_text(f'authfile = "{authfile}"\n[run]\nenv = ["MODELS=/models", "ANY={SECRETS["session"]}"]\n[daemon]\nstore-size = "123MB"\nkeep-mounted = 0\n'
                      f'[usage.collect]\ndb = "postgresql://usage:{SECRETS["toml"]}@db.example/usage"\n[usage.report]\ndb = "host=db.example password={SECRETS["database"]} dbname=usage"\n')
    varve.environment |= {"VARVE_CONFIG": str(config), "COSIGN_PASSWORD": SECRETS["passphrase"], "https_proxy": f"http://anna:{SECRETS['proxy']}@proxy.example:3128",
                          "VARVE_SOME_TOKEN": SECRETS["variable"]}
    varve.root.mkdir()
    (varve.root / "daemon.log").write_text("".join(f"2026-11-23T00:00:0{second}.000 error {text}\n" for second, text in enumerate((
        f"get https://anna:{SECRETS['url']}@registry.example/v2/: 401",
        f"sent Authorization: Basic {SECRETS['header']} there", f"redirected to https://store.example/blob?X-Amz-Signature={SECRETS['query']}: 403",
        f"the helper said password={SECRETS['named']} and {SECRETS['login']}", f"as Bearer {SECRETS['bearer']} it is refused"))) + "2026-11-23T00:00:09.000 info nothing\n")


def doctor(varve, *words, status=None, **options):
    """The document; the page and all else that was said are looked through, too. `status`: None if it is by what is found."""
    page = varve.run("doctor", "--patience", "2", *words, timeout=120, **options)
    shown = varve.run("doctor", "--json", "--patience", "2", *words, timeout=120, **options)
    # What is found of this machine may come and go, beside other tests: little room, no runtime, no namespaces.
    machine = status is None and shown.returncode == (3 if json.loads(shown.stdout)["findings"] else 0) and page.returncode in (0, 3)
    expect(machine or (page.returncode, shown.returncode) == (status, status), f"exit {page.returncode}, {shown.returncode}: {page.stderr.decode()} {page.stdout.decode()} {shown.stdout.decode()}")
    for done in (page, shown):
        said = (done.stdout + done.stderr).decode()
        found = [name for name, secret in SECRETS.items() if secret in said or secret.replace("/", "\\/") in said]
        expect(not found, f"{found} can be read: {said}")
    document = json.loads(shown.stdout)
    expect(tuple(sorted(PARTS)) == tuple(sorted(document)), f"parts: {sorted(document)}")
    return document, page.stdout.decode()


def finding(document, text):
    found = [one for one in document["findings"] if text in one["what"]]
    expect(found and found[0]["next"], f"nothing says {text!r}: {document['findings']}")
    return found[0]


def without_a_daemon(varve):
    document, page = doctor(varve)
    expect(document["daemon"]["state"] == "none" and document["status"]["daemon"] is None, f"{document['daemon']}")
    settings = {one["name"]: one for one in document["settings"]}
    expect(settings["daemon.store-size"]["value"] == "123MB" and settings["daemon.store-size"]["place"].endswith("varve.toml:5"), f"{settings}")
    expect(settings["run.env"]["value"] == "MODELS=***, ANY=***", f"{settings['run.env']}")
    expect(settings["usage.collect.db"]["value"] == "postgresql://***@db.example/usage", f"{settings}")
    expect([one["registries"] for one in document["credentials"]] == [["other.example:5000", "registry.example", "third.example"]], f"{document['credentials']}")
    expect(document["credentials"][0]["helpers"] == ["pass"], f"{document['credentials']}")
    expect(document["environment"]["https_proxy"] == "http://***@proxy.example:3128", f"{document['environment']}")
    lines = document["log"][0]["lines"]
    expect(len(lines) == 5 and "registry.example" in lines[0] and "registry.example" in page, f"{lines}\n{page}")
    expect(document["kernel"]["release"] == os.uname().release and os.uname().release in page, page)


def with_a_daemon(varve, work):
    image = layouts.gzip_image(work / "small", [tars.Tar().file("a", b"b").bytes()])
    varve.index(image)
    with varve.mounted(image, "auto") as folder:
        document, page = doctor(varve)
        expect(document["daemon"]["state"] == "runs" and [one["dir"] for one in document["status"]["mounts"]] == [folder], f"{document['status']}")
        expect("small" in page and "MODE" in page, page)
        pid = varve.daemon_pid()
        os.kill(pid, signal.SIGSTOP)
        try:
            document, page = doctor(varve, status=3)
            expect(document["daemon"]["state"] == "silent" and document["daemon"]["process"]["pid"] == pid and "stopped" in document["daemon"]["process"]["state"], f"{document['daemon']}")
            expect(str(pid) in finding(document, "does not answer")["what"] and folder in [one["dir"] for one in document["mounts"]], f"{document}")
        finally:
            os.kill(pid, signal.SIGCONT)
    varve.stop_daemon()


def with_a_full_disk(varve, work):
    full = work / "full"
    full.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", full], check=True)
    try:
        with open(full / "ballast", "wb", buffering=0) as file:
            try:
                while file.write(b"x" * 4096):
                    pass
            except OSError:
                pass
        document, _ = doctor(varve, "--root", str(full / "state"), status=3)
        finding(document, f"{full} has 0 B of")
        expect(os.listdir(full) == ["ballast"], f"it wrote {os.listdir(full)}")
    finally:
        subprocess.run(["umount", "-l", full], check=True)


def with_broken_files(varve, work):
    (work / "auth.json").write_text('{"auths": {"registry.example": ' + SECRETS["login"])
    document, _ = doctor(varve, status=3)
    finding(document, "the credential file")


def as_a_plain_user(varve, work):
    home = work / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "VARVE_CONFIG": "/dev/null", "COSIGN_PASSWORD": SECRETS["passphrase"]}
    binary = shutil.copy(varve.binary, work / "varve")  # where a plain user may read
    done = subprocess.run([binary, "doctor", "--json"], user=NOBODY, group=NOBODY, extra_groups=[], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=120)
    expect(done.returncode in (0, 3), f"exit {done.returncode}: {done.stderr.decode()}")
    document = json.loads(done.stdout)
    expect(document["program"]["uid"] == NOBODY and document["program"]["root"] == str(home / ".local/share/varve"), f"{document['program']}")
    expect(os.listdir(home) == [], f"it wrote {os.listdir(home)}")


def main():
    with program.work_folder() as work, program.Varve(work) as varve:
        plant(varve, work)
        without_a_daemon(varve)
        if os.path.exists("/dev/fuse"):
            with_a_daemon(varve, work)
        if os.getuid() == 0:
            as_a_plain_user(varve, work)
            with_a_full_disk(varve, work)
        with_broken_files(varve, work)
    print("one page, in every state, without a secret")


if __name__ == "__main__":
    main()
