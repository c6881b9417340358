#!/usr/bin/python3
"""What Python says of a library that was archived: imports name the way back, probes find nothing, and nothing else is another than without."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "recorder"))
from world import every_version, expect, main  # noqa: E402

SOURCES = HERE.parents[1] / "analyzer/prune/apply/python"
TABLE = """# Varve archived 1
soupy\tsoupy-parser\t4.12.3\tregistry.example/team/lab:v143
shared.gone\tshared-gone\t1.0\tregistry.example/team/lab:v143
lone.deep.leaf\tlone-leaf\t2.0\tregistry.example/team/lab:v143
broken line
"""
SAYS = "soupy is not in this image: soupy-parser 4.12.3 was archived. `pip install soupy-parser==4.12.3` puts it into this session; the last image that has it is registry.example/team/lab:v143."


def install(world, table=TABLE):
    for name in ("varve_archived.py", "varve_archived.pth", "varve_archived.start"):
        shutil.copy(SOURCES / name, world.site)
    Path(world.site, "varve_archived.txt").write_text(table)


def outcome(world, statement, **more):
    """(class, name, message) of the exception."""
    code = "try:\n    %s\nexcept BaseException as error:\n    print(type(error).__name__, getattr(error, 'name', None), str(error), sep='|')\nelse:\n    print('fine||')\n" % statement
    return tuple(world.run(code, **more).out.rstrip("\n").split("|"))


@every_version
def an_import_says_how_to_get_it(world):
    install(world)
    for statement in ("import soupy", "import soupy.element", "from soupy import Soup", "__import__('soupy')", "import importlib; importlib.import_module('soupy.x')"):
        expect(outcome(world, statement), ("ModuleNotFoundError", "soupy", SAYS), statement)


@every_version
def a_probe_finds_nothing(world):
    install(world)
    result = world.run("""
import importlib.util, pkgutil
print(importlib.util.find_spec("soupy"), importlib.util.find_spec("lone"))
try:
    importlib.util.find_spec("soupy.element")
except ModuleNotFoundError as error:
    print(error.name)
print([m.name for m in pkgutil.iter_modules() if "soupy" in m.name])
try:
    from importlib.metadata import version, distributions
except ImportError:
    raise
print([d.metadata["Name"] for d in distributions() if "soupy" in (d.metadata["Name"] or "")])
import sys
sys.modules.pop("soupy", None)
print(any("soupy" in m for m in sys.modules))
""")
    expect(result.out.split("\n"), ["None None", "soupy", "[]", "[]", "False", ""], "probes")


@every_version
def what_is_not_archived_fails_as_ever(world):
    install(world)
    expect(outcome(world, "import soup"), ("ModuleNotFoundError", "soup", "No module named 'soup'"), "another name")
    expect(outcome(world, "import soupy2"), ("ModuleNotFoundError", "soupy2", "No module named 'soupy2'"), "a longer name")
    expect(outcome(world, "import json.soupy"), ("ModuleNotFoundError", "json.soupy", "No module named 'json.soupy'"), "an inner name")
    expect(outcome(world, "import broken"), ("ModuleNotFoundError", "broken", "No module named 'broken'"), "a line that is none")


@every_version
def parts_of_namespaces(world):
    install(world)
    world.distribution("shared-stays", "1.0", {"shared/stays.py": "x = 1\n"})
    expect(outcome(world, "from shared import stays"), ("fine", "", ""), "the part that stays")
    expect(outcome(world, "import shared.gone")[:2], ("ModuleNotFoundError", "shared.gone"), "a part that went")
    # Without our words it is an ImportError that is no ModuleNotFoundError, too.
    kind, name, text = outcome(world, "from shared import gone")
    expect((kind, name, "shared-gone==1.0" in text), ("ImportError", "shared.gone", True), "from")
    for statement in ("import lone", "import lone.deep.leaf", "from lone.deep import leaf"):
        kind, name, text = outcome(world, statement)
        expect((kind, name, "lone-leaf==2.0" in text), ("ModuleNotFoundError", "lone", True), statement)


@every_version
def installing_it_in_the_session_is_enough(world):
    install(world)
    result = world.run("""
import sys, os
try:
    import soupy
except ImportError as error:
    print(error.name)
folder = os.path.join(sys.argv[0] + ".d")
os.mkdir(folder)
open(os.path.join(folder, "soupy.py"), "w").write("x = 7")
sys.path.append(folder)
import soupy
print(soupy.x)
""")
    expect(result.out, "soupy\n7\n", "after an installation")


@every_version
def finders_that_come_later_may_have_it(world):
    install(world)
    result = world.run("""
import sys, types, importlib.machinery
class Later:
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "soupy" else None
    def create_module(self, spec):
        return types.ModuleType(spec.name)
    def exec_module(self, module):
        module.x = 9
sys.meta_path.append(Later())
import soupy
print(soupy.x)
""")
    expect(result.out, "9\n", "a later finder")


@every_version
def module_as_a_program(world):
    install(world)
    process = world.start(["-m", "soupy"])
    err = process.communicate(timeout=60)[1].decode()
    expect((process.returncode, "soupy-parser==4.12.3" in err), (1, True), "python -m: " + err)


@every_version
def a_broken_table_is_no_new_error(world):
    for content in (b"", b"\xff\xfe\x00\n\t\t\t\n", b"soupy\tone\n"):
        install(world)
        Path(world.site, "varve_archived.txt").write_bytes(content)
        expect(outcome(world, "import soupy"), ("ModuleNotFoundError", "soupy", "No module named 'soupy'"), "table %r" % content)
    os.unlink(Path(world.site, "varve_archived.txt"))
    expect(outcome(world, "import soupy"), ("ModuleNotFoundError", "soupy", "No module named 'soupy'"), "no table")
    os.unlink(Path(world.site, "varve_archived.py"))
    expect(world.run("print(1)").out, "1\n", "no code")
    install(world)


@every_version
def the_recorder_still_hears_of_it(world):
    install(world)
    result = world.run("try:\n    import soupy\nexcept ImportError:\n    pass\n")
    expect(result.failed(), {("soupy", "direct")}, "failed imports")
    expect([m for m in result.modules("direct") | result.modules("transitive") if "varve" in m], [], "our own module is nobody's use")


@every_version
def a_start_loads_nothing_more(world):
    """What Python loads at its start with it, and without: our module where the start itself tries what is not there, as Debian's does."""
    def loaded():
        return set(world.run("import sys\nprint(*sorted(sys.modules))", VARVE_USAGE_SPOOL=None).out.split())
    for name in ("varve_archived.py", "varve_archived.pth", "varve_archived.start", "varve_archived.txt"):
        if os.path.exists(os.path.join(world.site, name)):
            os.unlink(os.path.join(world.site, name))
    before = loaded()
    install(world)
    expect(loaded() - before - {"varve_archived"}, set(), "modules loaded at the start")


@every_version
def what_python_3_15_starts(world):
    """The .start file names a function; here it is called as PEP 829 would, by Pythons that do not know it."""
    install(world)
    os.unlink(os.path.join(world.site, "varve_archived.pth"))
    expect(outcome(world, "import soupy")[2], "No module named 'soupy'", "nothing started")
    started = "import varve_archived\n    varve_archived.start()\n    varve_archived.start()\n    "
    expect(outcome(world, started + "import soupy"), ("ModuleNotFoundError", "soupy", SAYS), "import")
    expect(outcome(world, started + "import importlib.util, sys; assert importlib.util.find_spec('soupy') is None and sum(type(f).__name__ == 'Finder' and 'archived' in type(f).__module__ for f in sys.meta_path) == 1"),
           ("fine", "", ""), "probe")




def pip_agrees(world):
    """pip check and pip list of an environment whose distribution went: nothing is left that they would count."""
    from world import World
    own = World(sys.executable, with_pip=True)
    try:
        install(own)
        for words in (["list", "--format=freeze"], ["check"]):
            done = subprocess.run([own.python, "-m", "pip", "--disable-pip-version-check"] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True,
                                  env=own.environment(VARVE_USAGE_SPOOL=None))
            expect((done.returncode, "soupy" in done.stdout + done.stderr, "varve" in done.stdout + done.stderr), (0, False, False), "pip %s: %s" % (words, done.stdout + done.stderr))
    finally:
        own.close()


CASES = [an_import_says_how_to_get_it, a_probe_finds_nothing, what_is_not_archived_fails_as_ever, parts_of_namespaces, installing_it_in_the_session_is_enough,
         finders_that_come_later_may_have_it, module_as_a_program, a_broken_table_is_no_new_error, the_recorder_still_hears_of_it, a_start_loads_nothing_more, what_python_3_15_starts, pip_agrees]

if __name__ == "__main__":
    sys.exit(main(CASES, sys.argv[1:]))
