"""`varve podman` with the podman of this machine and that of Debian 13: what it runs, makes and refuses, against the same image pulled plainly; and what plain users do without it."""
import json, os, shutil, subprocess, time
from pathlib import Path

from podman import Podman, notebook, of_debian_13, tool  # it says where the following lie
import debian13  # noqa: E402
from images import Source  # noqa: E402
from machine import Machine, expect, wait_for  # noqa: E402
from program import modes, need_fuse, need_own_root, need_root, need_tools, processes_of, skip, work_folder  # noqa: E402

RUNS = ((), ("env",), ("cat /etc/link mine /etc/passwd; ls -ln /etc/passwd /etc/version /etc/link mine /bin/*",), ("sha256sum /data/noise; cat /data/noise > /tmp/x && sha256sum /tmp/x",),
        ("test ! -e /etc/removed && exit 7",))


def run_of(podman, image, *command):
    done = podman.try_run("run", "--rm", "--hostname", "same", image, *command)
    return done.returncode, done.stdout, done.stderr


def storage_conf_is_told_and_written(varve, podman, image):
    before = podman.conf.read_text()
    said = varve.run("podman", "add", image, check=True).stderr.decode()
    expect("additionalimagestores" in said and str(podman.conf) in said and podman.conf.read_text() == before, said)
    expect(image not in podman.names(), "podman does not look there")
    said = varve.run("podman", "add", "--write-conf", image, check=True).stderr.decode()
    expect("additionalimagestores" not in said, said)
    after = podman.conf.read_text()
    expect(after.startswith(before) and Path(f"{podman.conf}.before-varve").read_text() == before, after)
    varve.run("podman", "add", "--write-conf", image, check=True)
    expect(podman.conf.read_text() == after, "written once")


def runs_as_the_plain_image_does(varve, podman, plain, image, layout):
    reference = "localhost/plain:latest"
    plain("tag", plain("pull", "--quiet", layout).strip(), reference)
    for command in RUNS:
        one, other = run_of(podman, image, *command), run_of(plain, reference, *command)
        expect(one == other, f"{command}: {one} and plainly {other}")
    expect(run_of(podman, image, *RUNS[-1])[0] == 7, "the whiteout holds, and the status comes through")
    ids = podman.names(), plain.names()
    expect(ids[0][image] == ids[1][reference], f"the same ID: {ids}")
    told = [json.loads(one("image", "inspect", name))[0] for one, name in ((podman, image), (plain, reference))]
    expect(told[0]["Config"] == told[1]["Config"] and told[0]["History"] == told[1]["History"] and told[0]["RootFS"]["Layers"] and told[0]["Digest"] == told[1]["Digest"], told)


def is_lazy(varve):
    mount = next(mount for mount in varve.json("status")["mounts"] if "/podman/overlay/" in mount["dir"])
    expect(mount["present_bytes"] < mount["image_stream_bytes"] / 2, f"what was run, committed and built has read little: {mount}")


def what_is_made_of_it(podman, image):
    expect(run_of(podman, image)[0] == 0, "it runs")
    podman("run", "--name", "writer", image, "echo written > /tmp/new; echo changed > mine")
    podman("commit", "writer", "localhost/child:1")
    expect(podman("run", "--rm", "localhost/child:1", "cat /tmp/new mine") == "written\nchanged\n", "the committed image runs")
    expect(podman("run", "--rm", image, "cat mine") == "mine\n", "and the image is as it was")
    podman("build", "--tag", "localhost/built:1", "-", text=f"FROM {image}\nUSER root\nRUN echo built > /etc/built\nENV MORE=1\nRUN cat /etc/version >> /etc/built\n")
    expect(podman("run", "--rm", "localhost/built:1", "cat /etc/built; echo $MORE") == "built\nfirst\n1\n", "an image built on it in several steps runs")


def what_it_cannot_do_is_said(podman, image, work):
    for words in (("rmi", image), ("push", image, f"dir:{work}/pushed"), ("save", "-o", work / "saved.tar", image), ("push", "localhost/child:1", f"dir:{work}/pushed")):
        done = podman.try_run(*words)
        expect(done.returncode != 0 and done.stderr, f"{words} is refused: {done}")
        shutil.rmtree(work / "pushed", ignore_errors=True)


def rm_is_refused_while_used(varve, podman, image):
    podman("run", "--detach", "--name", "lab", image, "sleep 100")
    used = varve.json("podman", "ls")["images"][0]["used_by"]
    expect({"container lab", "container writer", "image localhost/child:1", "image localhost/built:1"} <= set(used), used)
    for options in ((), ("--force",)):
        refused = varve.run("podman", "rm", *options, image)
        expect(refused.returncode == 1 and b"in use" in refused.stderr and b"lab" in refused.stderr, refused)
    stopped = varve.run("daemon", "--stop")
    podman("cp", "lab:/etc/version", varve.work / "version")
    expect(stopped.returncode == 1 and b"/podman/overlay/" in stopped.stderr and (varve.work / "version").read_text() == "first\n", "nor is the daemon stopped beneath it")
    podman("rm", "--force", "--time", "0", "lab")
    refused = varve.run("podman", "rm", image)
    expect(refused.returncode == 1 and b"writer" in refused.stderr and b"--force" in refused.stderr, refused)
    podman("rm", "writer")
    podman("rmi", "--force", "localhost/child:1", "localhost/built:1")
    podman("image", "prune", "--force")
    expect(podman("run", "--rm", image, "cat /etc/version") == "first\n", "it runs as before")


def a_tag_that_moves(varve, podman, image, layout, index):
    old = podman.names()[image]
    index(notebook(layout, word=b"second"))
    said = varve.run("podman", "add", image, check=True).stderr.decode()
    expect(old[:12] in said, said)
    expect(podman("run", "--rm", image, "cat /etc/version") == "second\n", "the new one has the name")
    expect(podman("run", "--rm", old[:12], "cat /etc/version") == "first\n", "and the old one its ID")
    expect(old[:12] in varve.run("podman", "rm", old[:12], check=True).stdout.decode(), "by its ID")
    expect(set(podman.names()) == {image}, podman.names())


def names_and_hostile_names(varve, podman, image):
    varve.run("podman", "add", image, "--name", "lab/notebook", check=True)
    expect(podman.names()["localhost/lab/notebook:latest"] == podman.names()[image], podman.names())
    varve.run("podman", "rm", "lab/notebook", check=True)
    expect(set(podman.names()) == {image}, "the name alone goes")
    for name in ("../up", "a b", "UPPER/x", "x@sha256:12", "x:y:z", "x\ny", "$(reboot)", "-rf"):
        refused = varve.run("podman", "add", image, f"--name={name}")
        expect(refused.returncode == 2 and refused.stderr.count(b"\n") == 1, (name, refused))
    refused = varve.run("podman", "rm", "nobody/has:this")
    expect(refused.returncode == 1 and b"varve podman ls" in refused.stderr, refused)


def two_images_share_a_base(varve, podman, second):
    varve.run("podman", "add", second, check=True)
    expect(podman("run", "--rm", second) == "tool\n" and podman("run", "--rm", second, "cat", "/etc/top") == "top\n", "the second image")
    here = {image["names"][0]: image for image in varve.json("podman", "ls")["images"]}
    expect(len(here) == 2 and all(image["mounted"] for image in here.values()), here)


def after_a_reboot(varve, podman, images, source):
    """No mount, no process, sockets gone; the registry does not answer yet."""
    keeper = varve.json("status")["daemon"]["keeper_pid"]
    varve.run("daemon", "--stop", check=True)
    wait_for("its end", lambda: not Path(f"/proc/{keeper}").exists())
    shutil.rmtree(varve.root / "run")
    source.server.shutdown()
    source.server.server_close()
    expect(all(not image["mounted"] for image in varve.json("podman", "ls")["images"]), "nothing is mounted")
    varve.run("podman", "restore", check=True)
    for image in images:
        expect(podman("run", "--rm", "--pull", "never", image, *(("cat /etc/version",) if "image" in image else ())) in ("second\n", "tool\n"), f"{image} after a reboot")


def damage_by_others(varve, podman, image):
    store = varve.root / "podman"
    for name in ("overlay-images/images.json", "overlay-layers/layers.json"):
        (store / name).write_text('[{"id": "')
    varve.run("podman", "restore", check=True)
    expect(image in podman.names(), "lists are written anew")
    record = store / "varve" / "0000.json"
    record.write_text("{}")
    expect("0000.json" in varve.run("podman", "ls", check=True).stderr.decode(), "a record that is none is named")
    record.unlink()
    (store / "overlay-layers").rename(store / "layers")
    (store / "overlay-layers").symlink_to("/tmp")
    refused = varve.run("podman", "restore")
    expect(refused.returncode == 2 and b"overlay-layers" in refused.stderr and not os.path.exists("/tmp/layers.json"), refused)
    (store / "overlay-layers").unlink()
    (store / "layers").rename(store / "overlay-layers")


def with_podman(work, mode, program=("podman",), whole=True):
    folders = {name: work / f"{mode}-{name}" for name in ("image", "second")}
    layouts = {"image": notebook(folders["image"]), "second": tool(folders["second"])}
    with Source(folders["image"]) as source, Machine(work) as varve, Podman(varve.work / "podman", program) as podman, Podman(varve.work / "plain", program) as plain:
        source.server.RequestHandlerClass.layouts = dict(folders)
        image, second = source.reference, source.reference.replace("/image:", "/second:")
        varve.environment.update({name: podman.environment[name] for name in ("CONTAINERS_STORAGE_CONF", "CONTAINERS_CONF")})
        with varve.config.open("a") as config:
            config.write(f'[podman.add]\nmode = "{mode}"\n')
        index = lambda layout: varve.run("--root", varve.work / "pipeline", "index", layout, check=True)  # noqa: E731  by others, and signed by nobody
        for layout in layouts.values():
            index(layout)
        probe = layouts["image"]
        plain("pull", "--quiet", probe)
        works = plain.try_run("run", "--rm", plain.names().popitem()[1])
        if works.returncode:
            why = f"podman runs nothing here: {works.stderr.strip().splitlines()[-1:]}"
            return print(f"skipped: podman of Debian 13 ({why})", flush=True) if program != ("podman",) else skip(why)
        storage_conf_is_told_and_written(varve, podman, image)
        if not whole:
            expect(run_of(podman, image)[0] == 0, "it runs")
            is_lazy(varve)
            return runs_as_the_plain_image_does(varve, podman, plain, image, probe)
        what_is_made_of_it(podman, image)
        is_lazy(varve)
        runs_as_the_plain_image_does(varve, podman, plain, image, probe)
        what_it_cannot_do_is_said(podman, image, varve.work)
        rm_is_refused_while_used(varve, podman, image)
        a_tag_that_moves(varve, podman, image, folders["image"], index)
        names_and_hostile_names(varve, podman, image)
        two_images_share_a_base(varve, podman, second)
        after_a_reboot(varve, podman, (image, second), source)
        damage_by_others(varve, podman, image)
        for name in (image, second):
            varve.run("podman", "rm", name, check=True)
        expect(podman.names() == {} and varve.json("status")["mounts"] == [], "nothing is left")


def without_root(work):
    """What the how-to tells plain users, by one with ranges of ids: in a mount namespace where the machine knows that user, and where everybody may open /dev/fuse."""
    home, etc, user = work / "home", work / "etc", 40000
    told = (Path(__file__).resolve().parents[2] / "docs/howto/podman.md").read_text().partition("## Without root")[2].split("```")[1].removeprefix("text\n")
    for folder in (home, etc):
        folder.mkdir()
    for name in ("passwd", "group"):
        (etc / name).write_text(Path("/etc", name).read_text() + (f"lab:x:{user}:{user}::{home}:/bin/sh\n" if name == "passwd" else f"lab:x:{user}:\n"))
    for name in ("subuid", "subgid"):
        (etc / name).write_text("lab:500000:65536\n")
    os.mknod(etc / "fuse", 0o20666, os.makedev(10, 229))
    os.chmod(etc / "fuse", 0o666)
    podman = Podman(home / "podman")
    with Source(work / "image") as source:
        source.server.RequestHandlerClass.layouts = {"team/notebook": work / "image"}
        index = Machine(work)
        index.run("index", notebook(work / "image", "v1"), check=True)
        (home / "run").mkdir(0o700)
        for path in (home, home / "run", podman.work):
            os.chown(path, user, user)
        more = """
again() { podman run --rm --rootfs ~/image:O sh -c "$1"; }
again 'id -u; ls -ln etc/version work/mine'
again 'cat work/mine; echo new > /etc/new; echo more >> /etc/version; cat /etc/new /etc/version'
again 'ls /etc/new 2> /tmp/none || cat /etc/version'
varve unmount ~/image
varve daemon --stop
podman system migrate  # ends what keeps its namespace
"""
        environment = {"PATH": f"{home}/bin:/usr/sbin:/usr/bin", "HOME": home, "USER": "lab", "XDG_RUNTIME_DIR": home / "run", "CONTAINERS_CONF": podman.environment["CONTAINERS_CONF"], "VARVE_CONFIG": "/dev/null",
                       "REGISTRY": source.reference.partition("/")[0]}
        inside = f'for name in passwd group subuid subgid; do mount --bind {etc}/$name /etc/$name; done; mount --bind {etc}/fuse /dev/fuse; exec setpriv --reuid {user} --regid {user} --clear-groups --inh-caps=-all sh -euc "$0"'
        (home / "bin").mkdir()
        (home / "bin/varve").symlink_to(Path(index.binary).resolve())
        done = subprocess.run(["unshare", "--mount", "--propagation", "shared", "sh", "-ec", inside, told + more], cwd=home, env={name: str(value) for name, value in environment.items()}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
    said = [line.split()[2:4] if line.startswith("-rw") else line for line in done.stdout.splitlines()[1:]]
    expect(done.returncode == 0 and said == ["first", "0", ["0", "0"], ["1234", "1235"], "mine", "new", "first", "more", "first"], done)
    left = [Path(f"/proc/{process}/cmdline").read_bytes() for process in processes_of(work)]
    expect(not left, left)


def main():
    need_root()
    need_own_root()
    need_fuse()
    need_tools("podman", "runc", "conmon")
    start = time.monotonic()

    def took(what):
        print(f"{what}: {time.monotonic() - start:.1f} s", flush=True)
    for i, mode in enumerate(modes()):
        with work_folder() as work:
            with_podman(work, mode, whole=i == 0)
        took(f"podman of this machine, {mode} mode")
    if shutil.which("newuidmap"):
        with work_folder() as work:
            without_root(work)
        took("podman of a plain user")
    else:
        print("skipped: podman of a plain user (not installed: newuidmap)", flush=True)
    with work_folder() as work:
        try:
            with of_debian_13(work) as program:
                with_podman(work, modes()[0], program)
                took("podman of Debian 13")
        except debian13.Missing as error:
            print(f"skipped: podman of Debian 13 ({error})", flush=True)


if __name__ == "__main__":
    main()
