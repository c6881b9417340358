"""What docs/howto/build-pipeline.md takes for given: two built images, and a registry."""
import json, sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "oracle"), str(Path(__file__).resolve().parents[1] / "registry")]
import program, python_image, registry_test  # noqa: E402
from python_image import expect  # noqa: E402


def prepare(folder, varve):
    program.need_root()  # the gates run the images in sessions
    program.need_tools("docker-registry")
    python_image.make(folder / "build-1", "v1")
    libraries = {name: library for name, library in python_image.LIBRARIES.items() if name != "geoviews"}
    python_image.make(folder / "build-2", "v2", {**libraries, "polars": ("polars", "frames = 1\n" * 4000, [])})
    registry = registry_test.Registry(str(folder.parent), "registry", False, None)
    varve.environment["REGISTRY"] = registry.host
    return registry


def check(folder, output):
    expect("gates", [gate["name"] for gate in json.loads((folder / "gates.json").read_text())["gates"] if not gate["ok"] and gate["asked"]], [])
    expect("changes", [(one["name"], one["change"]) for one in json.loads((folder / "changes.json").read_text())["packages"]], [("geoviews", "removed"), ("polars", "added")])
    pins = json.loads((folder / "pins.json").read_text())["pins"]
    expect("pins", sorted((pin["name"], len(pin["problems"])) for pin in pins), [("v1", 0), ("v2", 0)])
    words = " ".join(output.split())
    for part in ("0 removed with 0 folders, 0 added, 0 differ", "2 pins checked, 0 not whole", "varve: error: layer sha256:", "import geoviews: ModuleNotFoundError", "signed by"):
        expect(f"the output says {part!r}", part in words, True)
