#!/usr/bin/env python3
"""The Debian packages: test_packages.py BUILD. Packed twice they have the same bytes, which do not tell where they were built, lintian has nothing to say, and they have what `make install` installs. In a clean Debian: installed,
upgraded under a running session that goes on, not removed under it, removed, purged without leaving a file but what a person made. The same by what the DaemonSet runs on a node."""
import contextlib, filecmp, os, re, shutil, subprocess, sys, time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("oracle", "run", "howto")]
import clean_machine, program, run_howto, tiny_image  # noqa: E402
from tiny_image import expect  # noqa: E402

TREE = TESTS.parent
BUILD = Path(sys.argv[1])
NEXT = "0.2.999"
ALL = ("varve-webhook", "varve-snapshotter", "varve-daemon", "varve")


def command(*words, **options):
    done = subprocess.run([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    expect(done.returncode == 0, f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def pack(out):
    command(TREE / "scripts/make-deb", BUILD, out)
    return sorted(out.glob("*.deb"))


def field(deb, name):
    return command("dpkg-deb", "--field", deb, name).strip()


def packed_twice_the_same(folder):
    first, second = pack(folder / "debs"), pack(folder / "again")
    expect([deb.name for deb in first] == [deb.name for deb in second] and len(first) == len(ALL), f"{first} and {second}")
    for one, other in zip(first, second):
        expect(filecmp.cmp(one, other, shallow=False), f"{one.name} has other bytes when it is packed again")
    times = {tuple(line.split()[3:5]) for deb in first for line in command("dpkg-deb", "--contents", deb).splitlines()}
    expect(len(times) == 1, f"files are of several times: {times}")
    version = re.search(r"project\(varve VERSION (\S+)", (TREE / "CMakeLists.txt").read_text())[1]
    expect({field(deb, "Version") for deb in first} == {version}, f"the packages are not of version {version}")
    # It leaves files behind in its temporary folder.
    command("lintian", "--allow-root", "--fail-on", "error,warning", folder / "debs" / f"varve_{version}_{field(first[-1], 'Architecture')}.changes", env={**os.environ, "TMPDIR": str(folder)})
    return first


def nothing_tells_where_it_was_built(folder, debs):
    """Then two clones give the same packages: no path, and no digest of what was stripped."""
    for deb in debs:
        raw = folder / "built"
        command("dpkg-deb", "--raw-extract", deb, raw)
        for file in (file for file in raw.rglob("*") if file.is_file()):
            content = file.read_bytes()
            for trace in (str(TREE), str(BUILD.resolve()), "ccache"):
                expect(trace.encode() not in content, f"{deb.name}: {file.relative_to(raw)} names {trace}")
            if content.startswith(b"\x7fELF"):
                expect("Build ID" not in command("readelf", "--notes", "--wide", file), f"{deb.name}: {file.relative_to(raw)} has a build id, which differs by folder")
        shutil.rmtree(raw)


def as_packed(path):
    """Where Debian has what is installed there, and what is the same once it is packed."""
    path = re.sub(r"^/usr(/lib/systemd/)", r"\1", path).replace("/zsh/site-functions/", "/zsh/vendor-completions/")
    return re.sub(r"\.gz$", "", path)


def all_that_is_installed_is_packed(folder, debs):
    command("cmake", "--install", BUILD, "--prefix", "/usr", env={**os.environ, "DESTDIR": str(folder / "installed")})
    installed = {as_packed("/" + str(file.relative_to(folder / "installed"))) for file in (folder / "installed").rglob("*") if file.is_file()}
    shutil.rmtree(folder / "installed")
    packed = {as_packed(line.split()[5].lstrip(".")) for deb in debs for line in command("dpkg-deb", "--contents", deb).splitlines() if line.startswith("-")}
    of_debian = {path for path in packed if re.fullmatch(r"/usr/share/doc/[\w-]+/(changelog|copyright)|/usr/share/lintian/overrides/[\w-]+", path)}
    expect(installed == packed - of_debian, f"differ from `make install`: {sorted(installed ^ (packed - of_debian))}")


def of_next_version(deb, folder):
    """The same package as an upgrade of itself."""
    command("dpkg-deb", "--raw-extract", deb, folder / "raw")
    control = folder / "raw/DEBIAN/control"
    version = field(deb, "Version")
    control.write_text(control.read_text().replace(f"Version: {version}\n", f"Version: {NEXT}\n").replace(f"(>= {version})", f"(>= {NEXT})").replace(f"(<< {version}.", f"(<< {NEXT}."))
    command("dpkg-deb", "--build", "-Zgzip", "-z1", folder / "raw", folder / deb.name.replace(version, NEXT))
    shutil.rmtree(folder / "raw")


def dependencies_of(debs):
    ours = {field(deb, "Package") for deb in debs}
    names = {re.split(r"[ (|:]", part.strip())[0] for deb in debs for part in field(deb, "Depends").split(",")}
    return sorted(names - ours | {"apt", "crun", "systemd"})


def wait_until(what, condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < end, f"{what}: not within {seconds} s")
        time.sleep(0.02)


def units_are_sound(machine):
    units = sorted(file.name for file in (machine.root / "lib/systemd/system").glob("varve*"))
    expect({"varve.service", "varve-snapshotter.socket", "varve-gpu-check.timer", "varve-webhook.service"} <= set(units), f"units: {units}")
    drop_in = machine.root / "etc/systemd/system/varve-webhook.service.d/learn.conf"
    for confined in (True, False):
        said = machine.do("systemd-analyze", "verify", "--man=no", *units)
        expect(said == "", f"systemd-analyze verify: {said}")
        if confined:
            drop_in.parent.mkdir()
            shutil.copy(TREE / "packaging/varve-webhook-learn.conf", drop_in)
    shutil.rmtree(drop_in.parent)
    wants = {link.name for link in (machine.root / "etc/systemd/system").glob("*.wants/varve*")}
    expect({"varve.service", "varve-snapshotter.service", "varve-snapshotter.socket", "varve-webhook.service"} <= wants and "varve-gpu-check.timer" not in wants, f"enabled: {wants}")


def daemon_of(machine):
    return int(machine.do("sh", "-c", "varve status --json | sed -n 's/^ *\"pid\": \\([0-9]*\\).*/\\1/p' | head -1"))


def upgraded_under_a_session(machine, image):
    machine.do("varve", "run", "-d", "--name", "lab", image, "--", "sh", "-c", "while :; do cat /etc/shared >> /ticks; sleep 0.05; done")
    session, daemon = machine.do("varve", "session", "ls"), daemon_of(machine)

    def ticks():
        return sum(file.stat().st_size for file in machine.root.glob("var/lib/varve/sessions/*/upper/ticks"))

    wait_until("the session ticks", lambda: ticks() > 0)
    program_before = machine.do("stat", "-L", "-c", "%i", f"/proc/{daemon}/exe")
    said = machine.do("sh", "-c", f"dpkg --install /debs/*_{NEXT}_*.deb")
    expect("in place of" in said, f"the upgrade does not say that the daemon follows: {said}")
    expect(daemon_of(machine) == daemon, "the daemon is another process")
    expect(machine.do("readlink", f"/proc/{daemon}/exe").strip() == "/usr/bin/varve", "the daemon is still the program that was replaced")
    expect(machine.do("stat", "-L", "-c", "%i", f"/proc/{daemon}/exe") != program_before, "the daemon is still the file that was replaced")
    after = machine.do("varve", "session", "ls")
    expect(re.findall(r"lab +running +\d+", after) == re.findall(r"lab +running +\d+", session) != [], f"{session}\n{after}")
    seen = ticks()
    wait_until("the session ticks on", lambda: ticks() > seen)
    # What nobody has read yet comes through the new program.
    expect(machine.do("varve", "session", "exec", "lab", "--", "cat", "/data/unread") == "read after the upgrade\n", "a file of the image")


def not_removed_under_a_session(machine):
    said = machine.run("dpkg", "--remove", *ALL)
    expect(said.returncode != 0 and "session lab" in said.stdout and "not removed" in said.stdout, f"removed under a session: {said.stdout}")
    expect("lab" in machine.do("varve", "session", "ls"), "the session is gone")
    machine.do("varve", "session", "exec", "lab", "--", "cat", "/etc/shared")


def removed_and_purged(machine, before):
    machine.do("varve", "session", "stop", "lab", "--time", "1s")
    machine.do("dpkg", "--remove", *ALL)
    expect(machine.run("pidof", "varve").returncode != 0, "a daemon runs on without its program")
    expect((machine.root / "var/lib/varve/store").is_dir(), "a removal took the state")
    said = machine.do("dpkg", "--purge", *ALL)
    expect("/var/lib/varve/sessions" in said, f"what a session wrote goes or stays without a word: {said}")
    left = machine.files() - before
    expect(left and all(path == "/var/lib/varve" or path.startswith("/var/lib/varve/sessions") for path in left), f"left: {sorted(left)[:20]}")


def purged_with_nothing_kept(machine, before):
    shutil.rmtree(machine.root / "var/lib/varve")
    machine.do("sh", "-c", f"dpkg --install /debs/*_{NEXT}_*.deb")
    machine.do("sh", "-c", "mkdir -p /var/lib/varve/store /var/lib/varve/x && touch /var/lib/varve/store/one && mount -t tmpfs tmpfs /var/lib/varve/x && touch /var/lib/varve/x/other")
    machine.do("dpkg", "--remove", *ALL)
    said = machine.do("dpkg", "--purge", "varve")
    expect("still mounted" in said and (machine.root / "var/lib/varve/store/one").exists(), f"purged below a mount: {said}")
    machine.do("umount", "/var/lib/varve/x")
    machine.do("sh", "-c", f"dpkg --install /debs/*_{NEXT}_*.deb")
    machine.do("dpkg", "--purge", *ALL)
    left = machine.files() ^ before
    expect(not left, f"left, or gone: {sorted(left)[:20]}")
    expect(machine.do("sh", "-c", "dpkg-query -W 'varve*' 2>/dev/null || true") == "", "dpkg still knows a package of ours")


def as_the_page_says(machine, debs, before):
    """docs/howto/install.md; "the same line" is an upgrade."""
    install, purge = (commands for _, commands in run_howto.blocks_of((TREE / "docs/howto/install.md").read_text()))
    (machine.root / "etc/apt/apt.conf.d").mkdir(parents=True, exist_ok=True)
    answer = machine.root / "etc/apt/apt.conf.d/the-person-says"
    answer.write_text('APT::Get::Assume-Yes "true";\n')

    def does(commands):
        return machine.do("sh", "-euc", "cd /\n" + commands)

    for version in (field(debs[0], "Version"), NEXT):
        shutil.rmtree(machine.root / "build", ignore_errors=True)
        (machine.root / "build/deb").mkdir(parents=True)
        for deb in (machine.root / "debs").glob(f"*_{version}_*.deb"):
            shutil.copy(deb, machine.root / "build/deb")
        said = does(install)
        expect(machine.do("dpkg-query", "-W", "-f", "${Package} ${Version}\\n", "varve*") == f"varve {version}\nvarve-daemon {version}\n", f"installed: {said}")
        expect("program      /usr/bin/varve, user 0" in said, f"varve doctor: {said}")
    does(purge)
    answer.unlink()
    shutil.rmtree(machine.root / "build")
    left = machine.files() ^ before
    expect(not left, f"left, or gone: {sorted(left)[:20]}")


NODE = "/var/lib/varve-installer"
CONFIG = "/etc/containerd/config.toml"
OF_THE_NODE = """version = 2
# What somebody wrote.
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.example/pause:3.9"
"""


def bring(machine, debs):
    """As installer.sh does in the pod."""
    node = Path(f"{machine.root}{NODE}")
    for name in ("packages", "dependencies"):
        shutil.rmtree(node / name, ignore_errors=True)
        (node / name).mkdir(parents=True)
    shutil.copy(TREE / "packaging/kubernetes/node.sh", node)
    for deb in debs:
        shutil.copy(deb, node / "packages")


def node(machine, action, containerd="containerd"):
    return machine.run("env", f"CONTAINERD={containerd}", "sh", f"{NODE}/node.sh", action)


def node_does(machine, action, containerd="containerd"):
    done = node(machine, action, containerd)
    expect(done.returncode == 0, f"node.sh {action}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


def containerd_of_a_node(machine, place):
    """Of which the script asks nothing but its version."""
    program_file = Path(f"{machine.root}{place}")
    program_file.parent.mkdir(parents=True, exist_ok=True)
    program_file.write_text("#!/bin/sh\necho 'containerd github.com/containerd/containerd 1.7.24 0'\n")
    program_file.chmod(0o755)


def installed_by_the_daemonset(machine, debs, image):
    containerd_of_a_node(machine, "/usr/bin/containerd")
    config = Path(f"{machine.root}{CONFIG}")
    config.parent.mkdir(exist_ok=True)
    config.write_text(OF_THE_NODE)
    bring(machine, debs)
    before = machine.files()
    said = node_does(machine, "install")
    written = config.read_text()
    expect("/run/varve/snapshotter.sock" in written and "# What somebody wrote." in written and "pause:3.9" in written, f"{said}\n{written}")
    said = node_does(machine, "install")
    expect("is installed" in said and "has all that Varve needs" in said and config.read_text() == written, f"a second time: {said}")
    bring(machine, sorted((machine.root / "debs").glob(f"*_{NEXT}_*.deb")))
    said = node_does(machine, "install")
    expect(machine.do("dpkg-query", "-W", "-f", "${Version}", "varve") == NEXT and config.read_text() == written, f"upgrade: {said}")

    machine.do("varve", "run", "-d", "--name", "pod", image, "--", "sh", "-c", "while :; do sleep 1; done")
    refused = node(machine, "remove")
    expect(refused.returncode != 0 and "session pod" in refused.stdout and "drain" in refused.stdout and config.read_text() == written, f"removed under a session: {refused.stdout}")
    machine.do("varve", "session", "stop", "pod", "--time", "1s")
    machine.do("varve", "session", "rm", "pod")
    config.write_text(written + "# added since\n")
    refused = node(machine, "remove")
    expect(refused.returncode != 0 and "changed since" in refused.stdout and machine.run("varve", "--version").returncode == 0, f"removed though it was changed: {refused.stdout}")
    config.write_text(written)
    node_does(machine, "remove")
    expect(config.read_text() == OF_THE_NODE, f"not as it was: {config.read_text()}")
    left = {path for path in machine.files() ^ before if not path.startswith(NODE)}
    expect(not left, f"left, or gone: {sorted(left)[:20]}")
    expect("is not installed" in node_does(machine, "remove"), "a second removal")


def installed_on_k3s(machine, debs):
    (machine.root / "usr/bin/containerd").unlink()
    containerd_of_a_node(machine, "/var/lib/rancher/k3s/data/current/bin/containerd")
    folder = machine.root / "var/lib/rancher/k3s/agent/etc/containerd"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(OF_THE_NODE)
    bring(machine, debs)
    node_does(machine, "install", "k3s")
    (template,) = folder.glob("*.tmpl")
    expect("/run/varve/snapshotter.sock" in template.read_text() and (folder / "config.toml").read_text() == OF_THE_NODE, template.read_text())
    node_does(machine, "remove")  # which form it was it knows
    expect(sorted(os.listdir(folder)) == ["config.toml"], f"{os.listdir(folder)}")


def life_in_a_clean_debian(folder, debs):
    base = clean_machine.base_of(dependencies_of(debs), BUILD / "clean-debian")
    image = tiny_image.make_image(folder / "image", more=(("data/unread", b"read after the upgrade\n"),))
    subprocess.run([os.environ["VARVE"], "--root", str(folder / "state"), "--quiet", "index", image], check=True, stdout=subprocess.DEVNULL)
    machine = clean_machine.CleanMachine(folder, base)
    shutil.copytree(folder / "image", machine.root / "srv/image")
    (machine.root / "debs").mkdir()
    for deb in debs:
        shutil.copy(deb, machine.root / "debs")
        of_next_version(deb, machine.root / "debs")
    before = machine.files()
    reference = "oci:/srv/image:" + image.rpartition(":")[2]
    with machine, contextlib.ExitStack() as ends:
        machine.do("sh", "-c", f"dpkg --install $(ls /debs/*.deb | grep -v {NEXT})")
        ends.callback(lambda: machine.run("varve", "daemon", "--stop", "--force", "--time", "1"))
        units_are_sound(machine)
        upgraded_under_a_session(machine, reference)
        not_removed_under_a_session(machine)
        removed_and_purged(machine, before)
        purged_with_nothing_kept(machine, before)
        as_the_page_says(machine, debs, before)
        installed_by_the_daemonset(machine, debs, reference)
        installed_on_k3s(machine, debs)


def main():
    program.need_root()
    program.need_own_root()
    program.need_tools("dpkg-buildpackage", "dh", "lintian", "readelf")
    with program.work_folder() as folder:
        debs = packed_twice_the_same(folder)
        all_that_is_installed_is_packed(folder, debs)
        nothing_tells_where_it_was_built(folder, debs)
        program.need_fuse()
        program.need_tools("mmdebstrap", "unshare", "nsenter")
        life_in_a_clean_debian(folder, debs)
    print(f"{', '.join(deb.name for deb in debs)}: packed, installed, upgraded, removed, purged; by the DaemonSet, too")


if __name__ == "__main__":
    main()
