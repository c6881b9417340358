"""Programs of Debian 13 that Debian 12 has in older versions, without signatures or not at all: fetched by apt, which checks them, into a folder and run from there, with the C library they were linked with where they need it."""
import contextlib, fcntl, hashlib, os, shutil, subprocess
from pathlib import Path

PACKAGES = ("skopeo", "cosign", "libc6", "libgpgme11t64", "libassuan9", "libgpg-error0", "libsubid5", "libsqlite3-0", "libdevmapper1.02.1", "libseccomp2")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
MIRROR = "http://deb.debian.org/debian"


class Missing(Exception):
    pass


def run(*command, folder, environment, timeout=240):
    done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout)
    if done.returncode:
        raise Missing(f"{' '.join(map(str, command[:2]))}: {done.stdout.strip().splitlines()[-1:]}")


def unpack(folder, packages=PACKAGES):
    """Raises Missing where that cannot be: no apt, no network, another architecture. Returns the folder that is their root."""
    folder = Path(folder)
    for part in ("lists/partial", "cache/archives/partial", "etc/preferences.d", "etc/apt.conf.d", "debs", "root"):
        (folder / part).mkdir(parents=True)
    (folder / "status").touch()
    (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {MIRROR} trixie main\n")
    (folder / "apt.conf").write_text(
        f'Dir::State "{folder}"; Dir::State::lists "{folder}/lists"; Dir::State::status "{folder}/status"; Dir::Cache "{folder}/cache"; Dir::Etc "{folder}/etc";'
        f'Dir::Etc::sourcelist "{folder}/sources.list"; Dir::Etc::sourceparts "/dev/null"; Acquire::Languages "none"; Acquire::Retries "1"; Acquire::http::Timeout "20";'
        f'APT::Sandbox::User "{os.environ.get("USER", "root")}";\n')
    environment = {**os.environ, "APT_CONFIG": str(folder / "apt.conf"), "LC_ALL": "C"}
    try:
        run("apt-get", "update", "-q", folder=folder, environment=environment)
        run("apt-get", "download", "-q", *packages, folder=folder / "debs", environment=environment)
        for package in sorted((folder / "debs").glob("*.deb")):
            run("dpkg-deb", "-x", package, folder / "root", folder=folder, environment=environment)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(str(error)) from error
    return folder / "root"


def cached(*packages):
    """The same, found again by later runs: once fetched, no network is needed. One root for each list of packages, under build/debian13 or $VARVE_DEBIAN13_CACHE."""
    cache = Path(os.environ.get("VARVE_DEBIAN13_CACHE") or Path(__file__).resolve().parents[2] / "build/debian13")
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / hashlib.sha256(" ".join(sorted(packages)).encode()).hexdigest()[:16]
    with open(cache / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "whole").exists():
            shutil.rmtree(place, ignore_errors=True)
            with contextlib.ExitStack() as failed:
                failed.callback(shutil.rmtree, place, ignore_errors=True)
                unpack(place, packages)
                for leftover in ("lists", "cache", "debs"):
                    shutil.rmtree(place / leftover)
                (place / "whole").write_text(" ".join(sorted(packages)) + "\n")
                failed.pop_all()
    return place / "root"


class Tools:
    """Programs of an unpacked root. `home` is where they keep their own files."""

    def __init__(self, root, home):
        self.root, self.home = Path(root), Path(home)
        libraries = sorted({str(path.parent) for path in self.root.glob("usr/lib/*-linux-gnu/*.so*")})
        loaders = list(self.root.glob("usr/lib*/ld-linux*.so.*"))
        if not loaders or not libraries:
            raise Missing("no C library in what was unpacked")
        self.start = [str(loaders[0]), "--library-path", ":".join(libraries)]
        self.environment = {"HOME": str(home), "PATH": os.environ["PATH"], "COSIGN_PASSWORD": "", "LC_ALL": "C", "TMPDIR": str(home)}
        for name in ("skopeo", "cosign"):
            done = self.run(name, *{"skopeo": ("--version",), "cosign": ("version",)}[name])
            if done.returncode:
                raise Missing(f"{name} does not run here: {done.stdout[-200:]}")

    def run(self, name, *words, check=False, **environment):
        done = subprocess.run([*self.start, str(self.root / "usr/bin" / name), *map(str, words)], cwd=self.home, env={**self.environment, **environment},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
        if check and done.returncode:
            raise AssertionError(f"{name} {' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout[-2000:]}")
        return done
