"""What docs/howto-make-a-better-image.md takes for given: an image and notebooks."""
import json

import python_image
from find_what_nobody_uses import expect, notebook
import program  # noqa: E402  python_image says where it lies


def prepare(folder, varve):
    program.need_root()  # the sessions are run as root of their image
    python_image.make(folder / "images", "v1")
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    for number in range(400):  # nobody in 400 is at most 0.75 %
        (notebooks / f"sales-{number:03}.ipynb").write_text(notebook("import pandas as pd", f"pd.pi = {number}"))
    (notebooks / "page.ipynb").write_text(notebook("import bs4"))


def check(folder, output):
    plan = json.loads((folder / "plan.json").read_text())
    verdicts = {one["name"]: one["verdict"] for one in plan["verdicts"]}
    expect("verdicts", verdicts, {"numpy": "hot", "pandas": "hot", "beautifulsoup4": "hot", "soupsieve": "hot", "seaborn": "cold", "geoviews": "cold", "google-cloud-storage": "cold"})
    index = json.loads((folder / "better/index.json").read_text())
    named = {entry["annotations"]["org.opencontainers.image.ref.name"] for entry in index["manifests"] if "org.opencontainers.image.ref.name" in entry.get("annotations", {})}
    expect("names", named, {"v1", "v1-pruned"})
    words = " ".join(output.split())
    for part in ("pandas: needs numpy [requires]", "nothing that is kept needs it", "0 removed with 0 folders, 0 added, 0 differ", "2 of 3 layers written again with 1 jobs: the same digest", "cold, and there",
                 "1 pins checked, every byte, 0 not whole"):
        expect(f"the output says {part!r}", part in words, True)
