"""What docs/howto/what-changed-between-releases.md takes for given: two releases and a notebook. Nothing of the images is run, so their Python is a name only."""
import json, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import layouts, python_image, tars  # noqa: E402
from python_image import expect, notebook  # noqa: E402

SITE = "usr/local/lib/python{}/site-packages"
# name -> (version, module, text, requirements)
OCTOBER = {"numpy": ("1.26.4", "numpy", "pi = 3.14\n", []), "pandas": ("2.2.3", "pandas", "import numpy\n", ["numpy"]), "pylab-tools": ("0.3", "pylab", "", []), "six": ("1.16.0", "six", "", [])}
NOVEMBER = {"numpy": ("2.1.0", "numpy", "pi = 3.14159\n", []), "pandas": ("2.2.3", "pandas", "import numpy\n", ["numpy"]), "polars": ("1.9", "polars", "", []), "six": ("1.16.0", "six", "", [])}


def release(folder, tag, python, libraries, cuda):
    base = tars.Tar().dir("etc").file("etc/os-release", b"ID=debian\n").file("usr/share/large", b"of both releases\n" * 10_000).bytes()
    upper = tars.Tar().file(f"usr/local/bin/python{python}", b"\x7fELF", mode=0o755).symlink("usr/local/bin/python3", f"python{python}").file(f"usr/local/lib/python{python}/os.py", b"")
    for name, (version, module, text, requires) in libraries.items():
        for path, content in python_image.library_files(name, module, text, requires, version).items():
            upper.file(f"{SITE.format(python)}/{path}", content)
    upper = upper.file(f"usr/local/cuda/lib64/libcudart.so.{cuda}", cuda.encode()).bytes()
    layers = [(layouts.zlib_gzip(level=1)(tar, None), tar, layouts.GZIP, None) for tar in (base, upper)]
    return layouts.write_image(folder, layers, tag=tag, config={"Cmd": ["python3"], "Env": ["PATH=/usr/local/bin:/bin", f"CUDA_VERSION={cuda}"]})


def prepare(folder, varve):
    release(folder / "october", "v1", "3.11", OCTOBER, "12.4")
    release(folder / "november", "v2", "3.12", NOVEMBER, "12.6")
    (folder / "sales.ipynb").write_text(notebook("import pandas as pd", "import pylab\nimport imp\nimport six"))


def check(folder, output):
    diff = json.loads((folder / "diff.json").read_text())
    expect("packages", [(one["name"], one["change"]) for one in diff["packages"]], [("numpy", "changed"), ("polars", "added"), ("pylab-tools", "removed")])
    expect("the base is shared", diff["layers"]["reused"], 1)
    said = " ".join(output.split())
    for words in ("1 of B's 2 are A's", "3.11 -> 3.12", "CUDA_VERSION: 12.4 -> 12.6", "libcudart: 12.4 -> 12.6", "these imports break: pylab (cell 2, line 1): belonged to pylab-tools 0.3, which is gone",
                  "imp (cell 2, line 2): belonged to Python 3.11; Python 3.12 has it no longer", "1 of 3 packages that it imports changed, and 1 of 1 that those need"):
        expect(f"the output says {words!r}", words in said, True)
