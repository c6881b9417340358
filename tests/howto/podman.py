"""What docs/howto/podman.md takes for given: an indexed image in a registry, and a podman that runs containers on this machine."""
import contextlib, sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("oracle", "runtimes", "mount")]
import program  # noqa: E402
from podman import Podman, notebook  # noqa: E402


def prepare(folder, varve):
    program.need_root()
    program.need_fuse()
    program.need_tools("podman", "runc", "conmon")
    return served(folder, varve)


@contextlib.contextmanager
def served(folder, varve):
    from images import Source
    image = folder.parent / "image"
    varve.run("--root", folder.parent / "pipeline", "index", notebook(image, "v1"), check=True)
    with Source(image) as source, Podman(folder.parent / "podman") as podman:
        source.server.RequestHandlerClass.layouts = {"team/notebook": image}
        plain = podman("pull", "--quiet", f"oci:{image}:v1").strip()
        works = podman.try_run("run", "--rm", plain)
        if works.returncode:
            program.skip(f"podman runs nothing on this machine: {works.stderr.strip().splitlines()[-1:]}")
        podman("rmi", plain)
        varve.environment.update({name: podman.environment[name] for name in ("CONTAINERS_STORAGE_CONF", "CONTAINERS_CONF", "BUILDAH_ISOLATION")}, REGISTRY=source.reference.partition("/")[0])
        yield


def check(folder, output):
    said = [line for line in output.splitlines() if line in ("first", "more")]
    if said != ["first", "first", "more"]:
        raise AssertionError(output)
