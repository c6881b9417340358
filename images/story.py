#!/usr/bin/python3
"""The whole of Varve on one page (`make story`): releases of a real notebook image are indexed, run, looked at, packed better, pruned, checked and run elsewhere.

Needs root, as whole images are unpacked beside. Works in the folder OUT and leaves there story.md, report.html, plan.json, usage.db and the images; the
releases are built once, everything else is made anew each time. CHAPTERS below is the list of what is run; tests/story runs the same and looks closer,
and checks that docs/figures/story.md, which --doc writes, has these commands."""
import argparse, contextlib, dataclasses, json, os, re, shutil, signal, subprocess, sys, time, typing
from pathlib import Path

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent / "tests"
sys.path[:0] = [str(HERE), str(TESTS / "oracle"), str(TESTS / "usage_e2e"), str(TESTS / "notebooks")]
import build, make_notebooks, notebooks, program  # noqa: E402

WORK = "import numpy, pandas, matplotlib.pyplot, sklearn.linear_model\nprint('pandas', pandas.__version__, 'and sklearn', sklearn.__version__)\n"
# Left in the image, rarely imported by anybody: the first of these that the plan makes cold is touched.
RARE = ("shapely", "openpyxl", "networkx", "xarray", "nltk", "fastapi", "statsmodels", "polars", "spacy")
SESSIONS = 6  # notebooks that are run
TRACKED = 40  # notebooks whose imports the gates try


class Broken(Exception):
    """What the story tells is not so."""


@dataclasses.dataclass(frozen=True)
class Step:
    command: str  # as a reader types it; {first}, {cold} … are words of the story
    shows: str = ""  # of what it prints: the lines in which this pattern is found
    name: str = ""  # under which its result is kept
    note: typing.Callable = None  # (story, result) -> what is told behind it; raises Broken
    missing: typing.Callable = None  # -> why it cannot run on this machine, or ""
    on_page: bool = True  # False: it is run and tested like all, and tells a reader nothing that those beside it do not


@dataclasses.dataclass(frozen=True)
class Result:
    output: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class Chapter:
    name: str
    title: str
    text: str
    steps: typing.Callable  # story -> steps; nothing but the story's words and days decides them


class Layout:
    """A layout folder, looked at without Varve."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def blob(self, digest):
        return self.folder / "blobs" / digest.replace(":", "/")

    def digest(self, tag):
        index = json.loads((self.folder / "index.json").read_text())
        return next(m["digest"] for m in index["manifests"] if m.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag)

    def manifest(self, tag):
        return json.loads(self.blob(self.digest(tag)).read_text())

    def layers(self, tag):
        return {layer["digest"]: layer["size"] for layer in self.manifest(tag)["layers"]}

    def size(self, tag):
        return sum(self.layers(tag).values())

    def stored(self, tags):
        layers = {}
        for tag in tags:
            layers |= self.layers(tag)
        return sum(layers.values())

    def layout_record(self, tag):
        """How Varve packed the image: docs/formats/layout-record.md."""
        image = self.digest(tag)
        for entry in json.loads((self.folder / "index.json").read_text())["manifests"]:
            manifest = json.loads(self.blob(entry["digest"]).read_text())
            if manifest.get("artifactType") == "application/vnd.varve.layout-record.v1" and manifest["subject"]["digest"] == image:
                return json.loads(self.blob(manifest["layers"][0]["digest"]).read_text())
        raise Broken(f"{self.folder}:{tag}: nothing says how it was packed")


def mb(count):
    return f"{count / 1e6:.1f} MB"


def tool_missing(*names):
    def missing():
        absent = [name for name in names if not shutil.which(name)]
        return f"{' and '.join(absent)} not installed" if absent else ""
    return missing


# ---------------------------------------------------------------- what is told behind a command


def told_layers(day, previous):
    def note(story, result):
        layers, before = story.better.layers(day), story.better.layers(previous) if previous else {}
        reused = sum(size for digest, size in layers.items() if digest in before)
        total = sum(layers.values())
        return f"{len(layers)} layers, {mb(total)}; {mb(reused)} of it ({reused / total:.0%}) are layers of {previous}, {mb(total - reused)} are new." if previous else None
    return note


def told_start(key, name, reference=None):
    """Of a session with --stats: a row of the table."""
    def note(story, result):
        stats = json.loads((story.out / f"{key}.json").read_text())
        story.rows[key] = (name, stats["ready_seconds"], stats["seconds"], stats["fetched_bytes"], stats["requests"])
    return note


def told_unpacked(story, result):
    layers = story.releases.layers(story.words["first"])
    unpacked, run = story.results["unpack"].seconds, story.results["whole"].seconds
    story.rows["whole"] = (f"{story.words['first']}, unpacked whole (umoci), runc", unpacked, unpacked + run, sum(layers.values()), len(layers))


def told_plan(story, result):
    plan = json.loads((story.out / "plan.json").read_text())
    verdicts = {}
    for one in plan["verdicts"]:
        if one["source"] == "pip":
            verdicts.setdefault(one["verdict"], []).append(one["name"])
    cold = verdicts.get("cold", [])
    if not cold:
        raise Broken("nothing is cold")
    story.words["cold"] = next((name for name in RARE if name in cold), sorted(cold)[0])
    return f"Of {sum(map(len, verdicts.values()))} distributions {len(cold)} are cold, {story.words['cold']} among them."


def told_pruned(story, result):
    last = story.words["last"]
    days = [*story.days, f"{last}-pruned"]
    without, with_it, as_built = story.better.stored(story.days), story.better.stored(days), story.releases.stored(story.days)
    return f"Stored: {mb(as_built)} as the releases were built, {mb(without)} in better layers, {mb(with_it)} with the pruned one ({with_it / without - 1:+.1%})."


def told_hot(story, result):
    told_start("pruned-cold", f"{story.words['last']}, pruned, cold")(story, result)
    stored = story.stored_by_heat()
    if stored["cold"]:
        raise Broken(f"the session fetched {stored['cold']} bytes of cold layers")
    return f"The store holds {mb(stored['hot'])} of hot layers (unpacked), and not one byte of a cold one."


def told_pull(story, result):
    stored = story.stored_by_heat()
    if stored["cold"]:
        raise Broken(f"pull fetched {stored['cold']} bytes of cold layers")


def told_touched(story, result):
    first, second = (json.loads((story.out / f"touch-{n}.json").read_text()) for n in (1, 2))
    if not first["fetched_bytes"] or second["fetched_bytes"] > first["fetched_bytes"] / 4:  # read-ahead of the first may still be under way
        raise Broken(f"{story.words['cold']}: {first['fetched_bytes']} bytes at first, then {second['fetched_bytes']}")
    if not story.stored_by_heat()["cold"]:
        raise Broken("what was cold is not in the store, though it was read")
    return f"The first import of {story.words['cold']} fetched {mb(first['fetched_bytes'])} and took {first['seconds']:.1f} s; the second {mb(second['fetched_bytes'])} and {second['seconds']:.1f} s."


def told_same_image(story, result):
    tag = f"{story.words['last']}-pruned"
    if Layout(story.out / "export").digest(tag) != story.better.digest(tag):
        raise Broken("the export has another digest")
    return "The copy has the same digest."


def podman_missing():
    """Whether podman runs anything here is asked of a folder, not of our image."""
    if not shutil.which("podman"):
        return "podman is not installed"
    done = subprocess.run(["podman", "run", "--rm", "--network", "none", "--rootfs", "elsewhere/rootfs", "python3", "-c", ""], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE, text=True)
    return f"podman cannot run anything on this machine: {(done.stderr.strip().splitlines() or ['no reason given'])[-1][:160]}" if done.returncode else ""


# ---------------------------------------------------------------- the chapters


def chapter_build(story):
    return [Step("python3 images/build.py {limit}{recipe} releases")]


def chapter_index(story):
    steps = []
    for day in story.days:
        steps += [Step(f"varve index oci:releases:{day}", shows="of index", on_page=day == story.days[0]),
                  Step(f"varve pin add oci:releases:{day} --name {day} --reason 'notebooks run on it'", on_page=day == story.days[0])]
    return steps


def chapter_diff(story):
    return [Step("varve image diff oci:releases:{before} oci:releases:{last}", shows="^content ")] if len(story.days) > 1 else []


def chapter_start(story):
    return [
        Step("cat work.py", shows="."),
        Step("umoci unpack --image releases:{first} whole", name="unpack"),
        Step("sed -i 's/\"terminal\": true/\"terminal\": false/' whole/config.json", on_page=False),
        Step("runc run --bundle whole story-whole < work.py", shows="pandas", name="whole", note=told_unpacked),
        Step("varve run --rm --stats first-cold.json oci:releases:{first} -- python3 - < work.py", note=told_start("first-cold", story.words["first"] + " as built, cold")),
        Step("varve run --rm --stats first-warm.json oci:releases:{first} -- python3 - < work.py", note=told_start("first-warm", story.words["first"] + " as built, warm"), on_page=False),
        Step("mkdir -p mnt && varve mount oci:releases:{first} mnt && ls mnt && varve unmount mnt", on_page=False),
        Step("varve status", on_page=False),
    ]


def chapter_layers(story):
    steps, previous = [], None
    for day in story.days:
        behind = f" --previous oci:better:{previous}" if previous else ""
        steps += [Step(f"varve image optimize --repack oci:releases:{day} oci:better:{day}{behind}", note=told_layers(day, previous), on_page=bool(previous)),
                  Step(f"varve index oci:better:{day}", on_page=False)]
        previous = day
    return steps


def chapter_sessions(story):
    run = "varve run --rm --record --usage-spool spool --volume $PWD/notebooks:/notebooks --workdir /notebooks oci:better:{last} -- "
    return [
        Step("for n in $(seq %d); do %s jupyter-execute --allow-errors notebook-$n.ipynb; done" % (SESSIONS, run.removesuffix(" -- ") + " --")),
        Step(run + "python3 -c 'import pandas, seaborn; import not_in_the_image' || echo 'it failed, and that is recorded too'", on_page=False),
        Step(run + "python3 -c 'import bs4, requests, tqdm'", on_page=False),
    ]


def chapter_report(story):
    return [
        Step("varve usage collect --image oci:better:{last} --label {last} --db usage.db", on_page=False),
        Step("varve usage collect spool --db usage.db", shows="new sessions"),
        Step("varve usage scan notebooks.tar.xz --image oci:better:{last} --db usage.db", shows="notebooks and scripts"),
        Step("varve usage report --db usage.db", shows="heard of", on_page=False),
        Step("varve usage report --db usage.db --html report.html", on_page=False),
        Step("varve usage explain seaborn --db usage.db", on_page=False),
    ]


def chapter_plan(story):
    return [
        Step("varve prune plan oci:better:{last} --usage usage.db --basis notebooks --cold-below-users 10 -o plan.json", shows=r"^(hot|cold) +\d", note=told_plan),
        Step("varve prune plan oci:better:{last} --usage usage.db --basis notebooks --cold-below-users 10 --explain {cold}", shows="is cold", on_page=False),
        Step("varve prune plan oci:better:{last} --usage usage.db --basis notebooks --cold-below-users 10 --explain six", on_page=False),
    ]


def chapter_prune(story):
    return [
        Step("varve usage collect --image oci:better:{last} --label tracked --db tracked.db", on_page=False),
        Step("varve usage scan tracked --image oci:better:{last} --db tracked.db", on_page=False),
        Step("varve prune apply plan.json oci:better:{last}-pruned --usage tracked.db --previous oci:better:{last}", shows="^tree |are cold", note=told_pruned),
        Step("varve prune check oci:better:{last} oci:better:{last}-pruned --usage tracked.db", on_page=False),
    ]


def chapter_pruned(story):
    def run(stats, words):
        return f"varve --root machine run --rm --stats {stats}.json oci:better:{{last}}-pruned -- python3 {words}"
    return [
        Step(run("pruned-cold", "- < work.py"), note=told_hot),
        Step(run("pruned-warm", "- < work.py"), note=told_start("pruned-warm", story.words["last"] + ", pruned, warm"), on_page=False),
        Step("varve --root machine pull --wait oci:better:{last}-pruned", shows="wanted", note=told_pull, on_page=False),
        Step(run("touch-1", "-c 'import {cold}'"), on_page=False),
        Step(run("touch-2", "-c 'import {cold}'"), note=told_touched, on_page=False),
    ]


def chapter_promises(story):
    return [
        Step("varve pin ls oci:releases", on_page=False),
        Step("varve pin check --deep oci:releases", shows="."),
        Step("varve run --rm oci:releases:{first} -- python3 - < work.py", on_page=False),
        Step("varve gc --dry-run oci:releases", shows=".", on_page=False),
    ]


def chapter_elsewhere(story):
    other = tool_missing("skopeo")
    return [
        Step("varve image export oci:better:{last}-pruned oci:export:{last}-pruned", note=told_same_image),
        Step("skopeo --insecure-policy copy --dest-compress-format gzip --dest-compress-level 1 oci:export:{last}-pruned oci:gzip:{last}-pruned", missing=other),
        Step("umoci unpack --image gzip:{last}-pruned elsewhere", missing=other),
        Step("sed -i 's/\"terminal\": true/\"terminal\": false/' elsewhere/config.json", missing=other, on_page=False),
        Step("runc run --bundle elsewhere story-elsewhere < work.py", shows="pandas", missing=other),
        Step("podman run --rm -i --network none oci:export:{last}-pruned python3 - < work.py", missing=podman_missing, on_page=False),
    ]


CHAPTERS = [
    Chapter("build", "Two releases", "From a Debian base and wheels pinned by hash. A registry may stand for `oci:`.", chapter_build),
    Chapter("index", "An index beside each, and a promise", "No byte of the images changes.", chapter_index),
    Chapter("diff", "What changed", "", chapter_diff),
    Chapter("start", "Whole or lazily", "First without Varve: all is unpacked before the first instruction. Then lazily.", chapter_start),
    Chapter("layers", "Better layers", "Packed by what belongs together and changes together, most of a release is the one before.", chapter_layers),
    Chapter("sessions", "People work", f"{SESSIONS} notebooks of {make_notebooks.COUNT:,} made for tests run under the recorder, as Jupyter runs them.",
            chapter_sessions),
    Chapter("report", "Who uses what", f"What the sessions used, and all {make_notebooks.COUNT:,} notebooks, read and not run, go into one database.", chapter_report),
    Chapter("plan", "What may go out of the way", "A handful of sessions proves nothing, so this plan is made from the notebooks.", chapter_plan),
    Chapter("prune", "The pruned release, and the proof", "It gets its name only if every gate passes; one tries the imports of "
            f"{TRACKED} notebooks.", chapter_prune),
    Chapter("pruned", "A machine that has nothing yet", "What is cold stays where it is until somebody touches it.", chapter_pruned),
    Chapter("promises", "Promises kept", "Every byte of every pinned release; and the oldest runs.", chapter_promises),
    Chapter("elsewhere", "Without Varve", "The pruned release is an ordinary image. (This umoci reads gzip only, so skopeo recompresses the layers.)", chapter_elsewhere),
]


# ---------------------------------------------------------------- telling it


class Story:
    def __init__(self, out, recipe, count, work=WORK, varve=None, variant=None):
        self.out, self.recipe, self.varve = Path(out).resolve(), Path(recipe).resolve(), varve
        described = build.read_recipe(self.recipe, None)
        self.days = [tag for tag, _ in build.images_of(described, variant, count)]
        where = Path("images") / self.recipe.relative_to(HERE) if self.recipe.is_relative_to(HERE) else self.recipe
        self.words = {"first": self.days[0], "last": self.days[-1], "before": self.days[max(len(self.days) - 2, 0)], "recipe": str(where),
                      "limit": f"--releases {count} " if "releases" in described else f"--variant {variant} " if variant else ""}
        self.releases, self.better = Layout(self.out / "releases"), Layout(self.out / "better")
        self.work, self.results, self.rows, self.page = work, {}, {}, []

    def commands(self, on_page=False):
        """Of each chapter, with the words that only a run can know left as {word}."""
        class Known(dict):
            def __missing__(self, key):
                return "{" + key + "}"
        return [step.command.format_map(Known(self.words)) for chapter in CHAPTERS for step in chapter.steps(self) if step.on_page or not on_page]

    def tell(self, text, on_page=True):
        print(text, flush=True)
        if on_page:
            self.page.append(text)

    def prepare(self):
        """An empty place but for the releases, and the notebooks."""
        for name in ("better", "export", "gzip", "spool", "notebooks", "tracked", "whole", "elsewhere", "state", "machine", "usage.db", "tracked.db", "plan.json", "images", "notebooks.tar.xz"):
            path = self.out / name
            path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path, ignore_errors=True)
        (self.out / "images").symlink_to(HERE)
        make_notebooks.write(self.out / "notebooks.tar.xz", make_notebooks.made())
        (self.out / "work.py").write_text(self.work)
        binaries = self.out / "bin"
        binaries.mkdir(exist_ok=True)
        (binaries / "varve").unlink(missing_ok=True)
        (binaries / "varve").symlink_to(self.varve.binary)
        self.environment = {**self.varve.environment, "PATH": f"{binaries}:{os.environ['PATH']}", "VARVE_CONFIG": "/dev/null", "LC_ALL": "C.UTF-8"}

    def write_notebooks(self):
        """Those that run, cut to the cells that can, and those whose imports the gates try, as they are."""
        listed = self.varve.json("packages", f"oci:{self.out}/better:{self.words['last']}")["packages"]
        modules = {name.split(".")[0] for one in listed if one["source"] == "pip" for name in one["imports"]}
        made = list(make_notebooks.made())
        chosen = notebooks.choose(made, modules - {"IPython", "ipykernel"}, SESSIONS)  # cells that import these end their own kernel
        if len(chosen) < SESSIONS:
            raise Broken(f"only {len(chosen)} notebooks can run on this image")
        (self.out / "notebooks").mkdir()
        for number, (name, cells) in enumerate(chosen, 1):
            written = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell} for cell in cells]
            document = {"cells": written, "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}, "from": name}, "nbformat": 4, "nbformat_minor": 4}
            (self.out / f"notebooks/notebook-{number}.ipynb").write_text(json.dumps(document))
        print("\n".join(name for name, _ in chosen), flush=True)
        for name, data in made[::len(made) // TRACKED][:TRACKED]:
            path = self.out / "tracked" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def stored_by_heat(self):
        """Bytes that the empty machine's store holds of the pruned release's layers: {"hot": …, "cold": …}."""
        totals = {}
        for layer in self.better.layout_record(f"{self.words['last']}-pruned")["layers"]:
            data = (self.out / "machine/store").glob(layer["digest"].split(":")[1] + "-*/data")
            totals[layer["heat"]] = totals.get(layer["heat"], 0) + sum(file.stat().st_blocks * 512 for file in data)
        if "cold" not in totals:
            raise Broken("no layer of the pruned release is cold")
        if not totals.get("hot"):
            raise Broken("the store of the empty machine has nothing of the hot layers")
        return totals

    def run(self, step):
        command = step.command.format_map(self.words)
        reason = step.missing() if step.missing else ""
        if reason:
            return self.tell(f"    $ {command}\n\n*Skipped here: {reason}.*\n", step.on_page)
        began = time.monotonic()
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", command], cwd=self.out, env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        result = Result(done.stdout.decode(errors="replace"), time.monotonic() - began)
        if step.name:
            self.results[step.name] = result
        if done.returncode:
            raise Broken(f"`{command}` ended with {done.returncode}:\n{result.output[-4000:]}")
        lines = shown(self.neutral(result.output), step.shows)
        if step.shows and not lines:
            raise Broken(f"`{command}` said nothing of '{step.shows}':\n{result.output[-4000:]}")
        self.tell("\n".join(f"    {line}".rstrip() for line in [f"$ {command}", *lines]) + "\n", step.on_page)
        told = step.note(self, result) if step.note else None
        if told:
            self.tell(told + "\n")

    def neutral(self, text):
        """Without the folder it was run in."""
        return text.replace(f"{self.out}/", "")

    def chapter(self, chapter, without=()):
        """`without`: commands that begin so are left out."""
        steps = [step for step in chapter.steps(self) if not step.command.startswith(tuple(without))]
        if not steps:
            return
        self.tell(f"## {chapter.title}\n" + (f"\n{chapter.text}\n" if chapter.text else ""))
        if chapter.name == "sessions":
            self.write_notebooks()
        for step in steps:
            self.run(step)

    def table(self):
        size = self.releases.size(self.words["first"])
        self.tell("## Side by side\n\n| | ready, s | done, s | read | of the image | requests |\n|---|---|---|---|---|---|")
        for name, ready, done, read, requests in self.rows.values():
            self.tell(f"| {name} | {ready:.2f} | {done:.2f} | {mb(read)} | {read / size:.1%} | {requests} |")
        self.tell(f"\nReady: the command can start. Done: work.py is through. Read: compressed bytes taken from a layout folder on the same disk: a registry adds its distance to "
                  "each request.\n")


def shown(text, pattern):
    """Lines that tell something here; of long ones the beginning."""
    lines = [line for line in text.splitlines() if pattern and line and re.search(pattern, line)]
    return [line[:137] + "…" if len(line) > 138 else line for line in lines]


@contextlib.contextmanager
def told(out, recipe, count, work=WORK, variant=None):
    """A story ready to be told; its daemons and mounts are gone afterwards, whatever happened."""
    out = Path(out).resolve()
    out.mkdir(parents=True, exist_ok=True)
    with program.Varve(out) as varve:
        empty_machine = program.Varve(out)
        empty_machine.root = out / "machine"
        empty_machine.environment = {**varve.environment, "VARVE_ROOT": str(empty_machine.root)}
        with empty_machine:
            story = Story(out, recipe, count, work, varve, variant)
            try:
                tidy(out, varve, empty_machine)
                story.prepare()
                yield story
            finally:
                tidy(out, varve, empty_machine)
                for name in ("whole", "elsewhere", "gzip", "machine", "state"):
                    shutil.rmtree(out / name, ignore_errors=True)


def tidy(out, *machines):
    for machine in machines:
        machine.stop_daemon()
    for name in ("story-whole", "story-elsewhere"):
        subprocess.run(["runc", "delete", "--force", name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
        if line.split()[1].startswith(f"{out}/"):
            subprocess.run(["umount", "-l", line.split()[1]], stderr=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE.parent / "out/story")
    parser.add_argument("--recipe", type=Path, default=HERE / "series", help="the images: a folder with a recipe.toml (default: images/series)")
    parser.add_argument("--releases", type=int, default=2, help="of a series: so many, the oldest first (2)")
    parser.add_argument("--variant", help="of a recipe with variants: only this one (notebook-gpu); else each is a release")
    parser.add_argument("--work", type=Path, help="what a session does: a Python script (imports of the usual libraries)")
    parser.add_argument("--doc", type=Path, help="also writes the page there")
    parser.add_argument("--commands", action="store_true", help="prints the commands and runs nothing")
    options = parser.parse_args()
    work = options.work.read_text() if options.work else WORK
    if options.commands:
        print("\n".join(Story(options.out, options.recipe, options.releases, work, variant=options.variant).commands()))
        return
    if os.getuid() != 0:
        sys.exit("story: run it as root: whole images with their owners are unpacked beside (sudo make story)")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    try:
        with told(options.out, options.recipe, options.releases, work, options.variant) as story:
            story.tell(f"# The whole story\n\nWritten by `make story` (images/story.py): these commands, some left out (`images/story.py --commands` prints all), and "
                       f"what they printed, shortened. {os.cpu_count()} cores, Linux "
                       f"{'.'.join(os.uname().release.split('.')[:2])}, root, other work beside: times are worth little, bytes are exact.\n")
            for chapter in CHAPTERS:
                story.chapter(chapter)
            story.table()
            story.tell(f"All of it took {(time.monotonic() - began) / 60:.1f} minutes.")
            for path in [options.out / "story.md", *([options.doc] if options.doc else [])]:
                path.write_text("\n".join(story.page) + "\n")
    except Broken as broken:
        sys.exit(f"story: {broken}")
    print(f"\nwritten: {options.out}/story.md, {options.out}/report.html")


if __name__ == "__main__":
    main()
