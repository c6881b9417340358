#!/usr/bin/python3
"""Who uses what, proved from end to end: an image of real distributions, sessions of notebooks (made ones, and real ones where they can be had) under the recorder, and the report, compared with the
interpreter's own traces of each session (python -X importtime and -v), import by import.

test_sessions.py [--sessions 12] [--all] [--corpus FOLDER]: --all takes an image with the large libraries too."""
import argparse, ast, collections, json, os, subprocess, sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "oracle"), str(HERE.parent / "notebooks")]
import environment, make_notebooks, notebooks, program, real_notebooks, sessions, truth  # noqa: E402

SITE = environment.SITE
RUNNER = (HERE / "run_cells.py").read_text()


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


class Session:
    """One run of `varve run --record`, and what is known of it from outside and from its spool."""

    def __init__(self, number, kind, name, cells):
        self.number, self.kind, self.name, self.cells = number, kind, name, cells + sessions.KINDS[kind]

    def run(self, proof):
        (proof.cells / f"{self.number}.json").write_text(json.dumps({"cells": self.cells, "strict": self.kind == "failing"}))
        stats = proof.work / "stats.json"
        stats.unlink(missing_ok=True)
        options = ["--env", "DO_NOT_TRACK=1"] if self.kind == "switched off" else []
        done = proof.varve.run("run", "--rm", "--record", "--usage-spool", proof.spool, "--stats", stats, "--env", "PYTHONPROFILEIMPORTTIME=1", "--env", "PYTHONVERBOSE=1",
                               "--env", "VARVE_USAGE_USER=user%d" % (self.number % 5), *options,
                               "--volume", f"{proof.cells}:/cells:ro", "--volume", f"{proof.out}:/out", "--volume", f"{proof.wheels}:/wheels:ro", proof.image,
                               "--", "python3", "/cells/run_cells.py", f"/cells/{self.number}.json", f"/out/{self.number}")
        self.status, self.stderr, self.stdout = done.returncode, done.stderr.decode(errors="replace"), done.stdout.decode(errors="replace")
        self.stats = json.loads(stats.read_text())
        expected = sessions.STATUS.get(self.kind, 0)
        expect(self.status == expected, f"{self}: exit {self.status}, not {expected}:\n{self.stderr[-1500:]}{self.stdout[-1500:]}")
        self.id = self.stats["recorded"]["session"]
        self.read_spool(proof.spool / self.id)
        said = [json.loads(line) for line in (proof.out / str(self.number)).read_text().splitlines()]
        self.begun = [self.cells[one["begun"]] for one in said if "begun" in one]
        failures = collections.Counter(one["failed"] for one in said if one.get("failed"))
        self.outcome = f"{len(self.begun)} cells, {sum(failures.values())} failed"

    def read_spool(self, folder):
        self.processes = {}
        for path in sorted(folder.glob("*.jsonl")):
            records = [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            expect(path.name == f"{self.id}-{records[0]['process']}.jsonl" and records[0]["session"] == self.id, f"{self}: {path}")
            self.processes[path] = records
        self.records = [record for records in self.processes.values() for record in records]

    def of(self, kind):
        return [record for record in self.records if record["t"] == kind]

    def __str__(self):
        return f"session {self.number} ({self.kind}; {self.name})"


def check_imports(session, proof):
    """The recorder's modules are the trace's, each of them; what a session installed for itself is told apart."""
    # `python -m pip` runs pip.__main__, which is no import to the interpreter.
    recorded = {record["m"] for record in session.of("import") if "d" not in record and not record["m"].endswith(".__main__")}
    traced = {module for module in truth.traced(session.stderr) if module in proof.owners}
    own = {record["m"] for record in session.of("import") if "d" in record}
    # By design not written: what lies deep in a package and is imported by that package itself (docs/design/recorder.md).
    deep = {module for module in traced if module.count(".") >= 2 and module.split(".")[0] in recorded | own}
    missing, invented = traced - recorded - own - deep, recorded - traced
    expect(not missing, f"{session}: loaded and not recorded: {sorted(missing)[:20]}")
    expect(not invented, f"{session}: recorded and not loaded: {sorted(invented)[:20]}")
    session.loaded = traced | own
    session.image_copies = {proof.owners[module] for module in traced - own}
    session.own_copies = {truth.normalized(record["d"]) for record in session.of("import") if "d" in record}
    return len(traced)


def check_directness(session, proof):
    """What the user's own import statements name, and was loaded, is used directly; everything else is not."""
    named = set(sessions.OTHERWISE.get(session.kind, ()))
    for text in [RUNNER, *session.begun]:
        for module, part in notebooks.imports_of(ast.parse(text)):
            # Of `import a.b` the package a is loaded and used, even where b is not to be had.
            parents = {module[:i] for i, c in enumerate(module) if c == "."}
            named |= parents | ({module, f"{module}.{part}"} if part else {module})
    used = {proof.owners[name] for name in named & session.loaded if name in proof.owners} | session.own_copies
    direct = {proof.owners.get(record["m"]) or truth.normalized(record["d"]) for record in session.of("import") if record["how"] in ("direct", "static")}
    expect(direct == used, f"{session}: used directly {sorted(used - direct)} and not recorded so; recorded so and not {sorted(direct - used)}")
    session.direct = used


def check_files(session, proof):
    """What the kernel saw opened holds every distribution that was imported, and the interpreter executed."""
    opened = {record["p"].lstrip("/") for record in session.of("file")}
    executed = {record["p"].lstrip("/") for record in session.of("file") if record["op"] == "exec"}
    expect("usr/bin/python3.11" in executed, f"{session}: the interpreter is not among {sorted(executed)}")
    by_files = {proof.file_owners.get(path) for path in opened}
    lost = session.image_copies - by_files
    expect(not lost, f"{session}: imported, but no file of it was seen: {sorted(lost)}")
    return len(opened)


def check_kind(session):
    if session.kind == "failing":
        expect("surely_not_in_any_image" in {record["m"] for record in session.of("failed")}, f"{session}: the failed import is not recorded")
    if session.kind in sessions.INSTALLED:
        name, before, after, why = sessions.INSTALLED[session.kind]
        found = [(r["d"], r.get("from"), r.get("to"), r["why"]) for r in session.of("install")]
        expect((name, before, after, why) in found, f"{session}: the installation is recorded as {found}")
        # A library that had loaded the image's copy before keeps it: the interpreter looks for a module once.
        loaded_before = any(r["m"] == name and "d" not in r for r in session.of("import"))
        expect(loaded_before or any(r.get("d") == name and r.get("ver") == after and r["site"] == "session" for r in session.of("import")),
               f"{session}: its own copy is not told apart")
    launches = session.of("launch")
    expect(len(launches) == 1, f"{session}: {len(launches)} launches")
    starts = session.of("start")
    expect(all(start["image"] == session.stats["image"] for start in starts), f"{session}: another image in {starts}")
    if session.kind == "switched off":
        expect({record["t"] for record in session.records} <= {"start", "launch", "end"} and "user" not in starts[0], f"{session}: {session.records}")
    else:
        expect(len({start["user"] for start in starts}) == 1, f"{session}: one session, several users: {starts}")


class Proof:
    """The image, and the sessions of it that were run."""

    def __init__(self, work, varve, options):
        self.work, self.varve = work, varve
        self.cells, self.out, self.wheels, self.spool = work / "cells", work / "out", work / "own", work / "spool"
        self.cells.mkdir()
        self.out.mkdir()
        (self.cells / "run_cells.py").write_text(RUNNER)
        environment.own_wheels(self.wheels)
        self.image, distributions = environment.make_image(work / "image", work, HERE / f"requirements-{'all' if options.all else 'small'}.txt")
        expect(len(distributions) >= 30, distributions)
        varve.index(self.image)
        with varve.mounted(self.image, "auto") as folder:
            self.owners = truth.modules_of(Path(folder) / SITE)
            self.file_owners = truth.files_of(Path(folder) / SITE, SITE)
        print(f"an image of {len(distributions)} distributions with {len(self.owners)} modules", flush=True)

    def run(self, options):
        tops = {module.split(".")[0] for module in self.owners}
        chosen = notebooks.choose(notebooks.in_folder(options.corpus), tops - {"pip"}, options.sessions) if options.corpus else self.choose(tops - {"pip"}, options.sessions)
        expect(len(chosen) == options.sessions, f"only {len(chosen)} notebooks can run here")
        kinds = list(sessions.KINDS)
        self.sessions = []
        for number, (name, cells) in enumerate(chosen):
            session = Session(number, kinds[number % len(kinds)], name, cells)
            session.run(self)
            self.sessions.append(session)
            line = f"{session}: {session.outcome}"
            check_kind(session)
            if session.kind != "switched off":
                modules = check_imports(session, self)
                check_directness(session, self)
                line += f"; {modules} modules of {len(session.image_copies)} distributions, {check_files(session, self)} files"
            print(line, flush=True)

    @staticmethod
    def choose(modules, count):
        """A third are real ones."""
        try:
            chosen = notebooks.choose(real_notebooks.real(), modules, count // 3)
        except real_notebooks.Unavailable as reason:
            print(f"skipped: {reason}; made ones are tested", flush=True)
            chosen = []
        return chosen + notebooks.choose(make_notebooks.made(), modules, count - len(chosen))

    def collect(self):
        """Into a database, twice: the second time changes nothing."""
        database = self.work / "usage.db"
        self.varve.run("usage", "collect", "--image", self.image, "--db", database, check=True)
        first = self.varve.json("usage", "collect", self.spool, "--db", database)
        expect((first["sessions"], first["quarantined"], first["unknown"]) == (len(self.sessions), 0, 0), first)
        expect(first["events"] == sum(len(session.records) for session in self.sessions), first)
        again = self.varve.json("usage", "collect", self.spool, "--db", database)
        expect((again["sessions"], again["events"]) == (0, 0), again)
        return database

    def check_report(self, database):
        """The report counts, for each distribution, the sessions that the traces name; and says how many it has heard of."""
        report = self.varve.json("usage", "report", "--db", database, "--image", self.image, "--min-sessions", 1)
        heard = [session for session in self.sessions if session.kind != "switched off"]
        coverage = report["coverage"]
        expect((coverage["launched"], coverage["heard"], coverage["users"]) == (len(self.sessions), len(heard), len({session.number % 5 for session in heard})), coverage)
        packages = {package["name"]: package for package in report["packages"]}
        expect(set(self.owners.values()) <= set(packages), f"not in the report: {sorted(set(self.owners.values()) - set(packages))}")
        differences = []
        for name, package in sorted(packages.items()):
            used = [session for session in heard if name in session.image_copies | session.own_copies]
            direct = sum(name in session.direct for session in used)
            expected = {"sessions": len(used), "transitive": len(used) - direct, "session_copy": sum(name in session.own_copies for session in used)}
            seen = {field: package[field] or 0 for field in expected}
            seen["sessions"] -= package["files_only"] or 0
            # What a cell named when a library had loaded it already is "static" evidence, and counted apart.
            if seen != expected or not (package["direct"] or 0) <= direct <= (package["direct"] or 0) + (package["static_sessions"] or 0):
                differences.append(f"{name}: {seen}, by the traces {expected}")
        expect(not differences, "the report differs from the traces:\n" + "\n".join(differences))
        reinstalls = {(one["name"], one["from"], one["to"], one["why"]): one["sessions"] for one in report["reinstalls"]}
        for kind, (name, before, after, why) in sessions.INSTALLED.items():
            count = sum(session.kind == kind for session in heard)
            if count:
                expect(reinstalls.get((name, before, after, why)) == count, f"{name}: {reinstalls}")
        print(f"the report agrees: {len(packages)} distributions in {len(heard)} of {len(self.sessions)} sessions", flush=True)

    def check_howto(self):
        """docs/howto/record-what-sessions-use.md, every command of it, where its image is."""
        page = (HERE.parents[1] / "docs/howto/record-what-sessions-use.md").read_text()
        commands = [line.removeprefix("    ") for line in page.splitlines() if line.startswith("    ")]
        expect(len(commands) == 8, commands)
        (self.work / "bin").mkdir()
        (self.work / "bin/varve").symlink_to(self.varve.binary)
        place = self.work / "howto"
        place.mkdir()
        (place / "science").symlink_to(self.work / "image")
        variables = {**self.varve.environment, "PATH": f"{self.work}/bin:{os.environ['PATH']}"}
        outputs = {}
        for command in commands:
            done = subprocess.run(["sh", "-c", command], cwd=place, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            expect(done.returncode == 0, f"{command}: exit {done.returncode}: {done.stderr}")
            outputs[command] = done.stdout
        report = json.loads(subprocess.run([self.varve.binary, "usage", "report", "--db", place / "usage.db", "--image", "v1", "--json"], check=True, stdout=subprocess.PIPE).stdout)
        expect((report["coverage"]["heard"], report["coverage"]["launched"]) == (3, 4), report["coverage"])
        used = {package["name"] for package in report["packages"] if package["sessions"]}
        expect({"numpy", "pandas", "tabulate", "six"} <= used and "pyyaml" not in used, used)
        expect("pandas" in outputs[commands[5]] and "pyyaml" in outputs[commands[6]].lower() and "six" in outputs[commands[7]], outputs)
        print("the how-to runs as written", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sessions", type=int, default=12)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--corpus")
    options = parser.parse_args()
    program.need_root(), program.need_fuse(), program.need_tools("ldd", environment.PYTHON)
    with program.work_folder() as work, program.Varve(work) as varve:
        proof = Proof(work, varve, options)
        proof.run(options)
        proof.check_report(proof.collect())
        proof.check_howto()
    left = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(work) in line]
    expect(not left, f"mounts are left: {left}")


if __name__ == "__main__":
    main()
