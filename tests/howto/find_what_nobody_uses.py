"""What docs/howto-find-what-nobody-uses.md takes for given: an image and notebooks."""
import csv, json, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report"))
import page_rules, python_image  # noqa: E402
import program  # noqa: E402  python_image says where it lies


def notebook(*cells):
    return json.dumps({"cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell} for cell in cells],
                       "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5})


def prepare(folder, varve):
    program.need_root()  # the sessions are run as root of their image
    python_image.make(folder / "image", "v1")
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    (notebooks / "sales.ipynb").write_text(notebook("import pandas as pd", "pd"))
    (notebooks / "plots.ipynb").write_text(notebook("import pandas as pd\nimport seaborn"))
    (notebooks / "broken.ipynb").write_text("{ not JSON")


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, wanted {wanted!r}")


def check(folder, output):
    with open(folder / "usage.csv", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    expect("two sessions were heard", rows["pandas"]["exposed_sessions"], "2")
    expect("one used pandas itself", (rows["pandas"]["sessions"], rows["pandas"]["direct"]), ("1", "1"))
    expect("numpy came through pandas", (rows["numpy"]["sessions"], rows["numpy"]["transitive"]), ("1", "1"))
    expect("soupsieve came through bs4", rows["soupsieve"]["sessions"], "1")
    unused = sorted(name for name, row in rows.items() if row["unused"] == "yes")
    expect("nobody used these", unused, ["geoviews", "google-cloud-storage", "seaborn"])
    expect("a notebook names seaborn", "1 notebook imports it, no session did" in rows["seaborn"]["remarks"], True)
    expect("the page is one", page_rules.faults_of((folder / "report.html").read_text()), [])
    for words in ("We have heard of 100 % of sessions: 2 of 2 launched", "it failed, and that is recorded too", "beautifulsoup4", "Used in none of the 2 sessions heard"):
        expect(f"the output says {words!r}", words in " ".join(output.split()), True)
