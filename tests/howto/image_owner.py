"""What docs/howto/image-owner.md takes for given: an image and notebooks."""
import csv, json, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report"))
import page_rules, python_image  # noqa: E402
import program  # noqa: E402  python_image says where it lies
from python_image import expect, notebook  # noqa: E402


def prepare(folder, varve):
    program.need_root()  # the sessions are run as root of their image
    python_image.make(folder / "images", "v1")
    notebooks = folder / "notebooks"
    notebooks.mkdir()
    for number in range(400):  # nobody in 400 is at most 0.75 %
        (notebooks / f"sales-{number:03}.ipynb").write_text(notebook("import pandas as pd", f"pd.pi = {number}"))
    (notebooks / "page.ipynb").write_text(notebook("import bs4"))
    (notebooks / "plots.ipynb").write_text(notebook("import pandas as pd\nimport seaborn"))
    (notebooks / "broken.ipynb").write_text("{ not JSON")


def check_report(folder, output):
    with open(folder / "usage.csv", newline="") as file:
        rows = {row["name"]: row for row in csv.DictReader(file)}
    expect("two sessions were heard", rows["pandas"]["exposed_sessions"], "2")
    expect("one used pandas itself", (rows["pandas"]["sessions"], rows["pandas"]["direct"]), ("1", "1"))
    expect("numpy came through pandas", (rows["numpy"]["sessions"], rows["numpy"]["transitive"]), ("1", "1"))
    expect("soupsieve came through bs4", rows["soupsieve"]["sessions"], "1")
    expect("nobody used these", sorted(name for name, row in rows.items() if row["unused"] == "yes"), ["geoviews", "google-cloud-storage", "seaborn"])
    expect("a notebook names seaborn", "1 notebook imports it, no session did" in rows["seaborn"]["remarks"], True)
    expect("the page is one", page_rules.faults_of((folder / "report.html").read_text()), [])


def check(folder, output):
    check_report(folder, output)
    plan = json.loads((folder / "plan.json").read_text())
    verdicts = {one["name"]: one["verdict"] for one in plan["verdicts"]}
    expect("verdicts", verdicts, {"numpy": "hot", "pandas": "hot", "beautifulsoup4": "hot", "soupsieve": "hot", "seaborn": "hot", "geoviews": "cold", "google-cloud-storage": "hot"})
    index = json.loads((folder / "better/index.json").read_text())
    named = {entry["annotations"]["org.opencontainers.image.ref.name"] for entry in index["manifests"] if "org.opencontainers.image.ref.name" in entry.get("annotations", {})}
    expect("names", named, {"v1", "v1-pruned"})
    words = " ".join(output.split())
    for part in ("We have heard of 100 % of sessions: 2 of 2 launched", "it failed, and that is recorded too", "Used in none of the 2 sessions heard", "pandas: needs numpy [requires]", "nothing that is kept needs it",
                 "the course in March uploads with it", "0 removed with 0 folders, 0 added, 0 differ", "2 of 3 layers written again with 1 jobs: the same digest", "cold, and there", "1 pin checked, every byte, 0 not whole"):
        expect(f"the output says {part!r}", part in words, True)
