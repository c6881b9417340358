"""What docs/howto/gpu-machine.md takes for given: an indexed image in a registry, and devices in place of GPUs. When the page is through the registry goes away, and what it says of that is tried."""
import contextlib, gzip, json, re, shutil, sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("oracle", "registry", "run")]
import layouts, program, python_image, registry_test, test_gpus  # noqa: E402
from python_image import expect  # noqa: E402

IMPORT = ("--", "python3", "-c", "import pandas")


def prepare(folder, varve):
    program.need_root()
    program.need_fuse()
    program.need_tools("docker-registry", "cc")
    test_gpus.make_driver(folder)
    return served(folder, varve)


@contextlib.contextmanager
def served(folder, varve):
    built = python_image.make(folder.parent / "build", "v1")
    with registry_test.Registry(str(folder.parent), "registry", False, None) as registry:
        image = f"{registry.host}/team/notebook:v1"
        varve.environment["COSIGN_PASSWORD"] = ""
        for words in (("keygen", "-o", folder.parent / "ci"), ("image", "export", built, image), ("index", image, "--sign", folder.parent / "ci.key")):
            varve.run("--root", folder.parent / "pipeline", *words, check=True)
        shutil.copy(folder.parent / "ci.pub", folder)
        varve.environment["REGISTRY"] = registry.host
        yield
    without_registry(folder, varve, image)


def without_registry(folder, varve, image):
    varve.environment["VARVE_CONFIG"] = "/dev/null"
    varve.run("daemon", "--stop")
    varve.run("run", "--rm", image, *IMPORT, check=True)
    done = varve.run("run", "--rm", image.replace(":v1", ":v2"), *IMPORT)
    expect("an image that was never opened, without the registry", (done.returncode, image.split("/")[0] in done.stderr.decode()), (125, True))
    varve.run("run", "--rm", f"oci:{folder}/copy:v1", *IMPORT, check=True)


def check(folder, output):
    first, second, copy = (json.loads((folder / f"{name}.json").read_text()) for name in ("first", "second", "copy"))
    expect("the first fetched something", first["fetched_bytes"] > 1_000_000, True)
    for name, stats in (("second", second), ("copy", copy)):  # a mount loads the index anew, some kilobytes
        expect(f"the {name} fetched {stats['fetched_bytes']} bytes", stats["fetched_bytes"] < 100_000, True)
    words = " ".join(output.split())
    for part in ("pandas is here", "and here again", "GPU void", "describes 2 GPUs", "lab", "without the registry", "signed by"):
        expect(f"the output says {part!r}", part in words, True)
    pulled = re.search(r"all (\d+\.\d+) MB are here", words)  # this machine's Python says how much that is
    expect("pull has the whole image", pulled and abs(float(pulled[1]) * 1e6 - stream_bytes(f"oci:{folder}/copy:v1")) < 100_000, True)


def stream_bytes(image):
    """What its layers are unpacked."""
    layers = layouts.manifest_of(image)[1]["layers"]
    return sum(len(gzip.decompress(layouts.blob_path(image, layer["digest"]).read_bytes())) for layer in layers)
