#!/usr/bin/python3
"""Which imports the recorder writes down, and how: cases by hand, and random packages held against what python -v says."""
import random
import re
import sys

from world import Failure, every_version, expect, main

# top -> inner -> base, and a package of three levels.
LIBRARIES = {
    "toplib/__init__.py": "from . import part\nimport middle\n",
    "toplib/part.py": "import middle.inner\nfrom .deep import leaf\n",
    "toplib/deep/__init__.py": "",
    "toplib/deep/leaf.py": "import single\n",
    "middle/__init__.py": "",
    "middle/inner.py": "",
    "middle/later.py": "",
    "single.py": "value = 1\n",
}


def libraries(world):
    world.distribution("toplib", "1.0", LIBRARIES)


@every_version
def direct_and_transitive_with_their_importers(world):
    libraries(world)
    result = world.run("import toplib\nimport json, email.message\n")
    expect(result.imports(), {("toplib", "direct", None), ("toplib.part", "transitive", "toplib"), ("middle", "transitive", "toplib.part"),
                              ("middle.inner", "transitive", "toplib.part"), ("toplib.deep", "transitive", "toplib.part"),
                              ("single", "transitive", "toplib.deep.leaf")}, "imports")
    expect(result.of("end")[0]["exit"], "ok", "end")


@every_version
def what_is_loaded_already_when_user_code_names_it(world):
    libraries(world)
    result = world.run("import toplib\nimport middle\nfrom middle import inner as x\ndef f():\n    import single\n    from toplib import deep, nothing\n")
    expect(result.modules("static"), {"middle", "middle.inner", "single", "toplib.deep"}, "static")
    expect(result.modules("direct"), {"toplib"}, "direct")


@every_version
def an_import_in_a_function_after_another_library_did_it(world):
    libraries(world)
    result = world.run("def f():\n    import middle.inner\n    import single\nimport toplib\nf()\n")
    expect(result.modules("static"), {"middle.inner", "single"}, "static")


@every_version
def a_users_module_names_what_is_loaded(world):
    libraries(world)
    world.write("my_secret_helpers.py", "import single\nfrom middle import later\n")
    result = world.run("import toplib\nimport my_secret_helpers\n")
    expect(result.modules("static"), {"single", "middle"}, "static")
    expect(result.modules("direct"), {"toplib", "middle.later"}, "direct")


@every_version
def import_module_and_dunder_import(world):
    libraries(world)
    result = world.run("import importlib\nimportlib.import_module('middle.later')\n__import__('single')\nimportlib.import_module('.inner', 'middle')\n")
    expect(result.imports(), {("middle", "direct", None), ("middle.later", "direct", None), ("single", "direct", None), ("middle.inner", "direct", None)}, "imports")


@every_version
def a_module_run_with_m(world):
    world.distribution("runme", "1.0", {"runme/__init__.py": "", "runme/__main__.py": "import single\n", "alone.py": "import single\n", "single.py": ""})
    result = world.run(None, words=["-m", "runme"])
    expect(result.of("start")[0]["main"], "module", "main")
    expect(result.imports(), {("runme", "direct", None), ("runme.__main__", "direct", None), ("single", "transitive", "runme.__main__")}, "imports")
    result = world.run(None, words=["-m", "alone"])
    expect(result.imports(), {("alone", "direct", None), ("single", "transitive", "alone")}, "imports")


@every_version
def failed_imports_and_mere_probes(world):
    world.distribution("prober", "1.0", {"prober/__init__.py": """
import importlib.util
importlib.util.find_spec("probed")
try:
    import optional_speedups
except ImportError:
    pass
try:
    from prober import not_a_module
except ImportError:
    pass
"""})
    world.write("mine/__init__.py", "")
    result = world.run("""
import importlib, importlib.util, pkgutil, subprocess, pickle
importlib.util.find_spec("probed_by_me")
for statement in ("import never_heard.of", "import prober.absent.more", "import mine.private", "from mine import private", "import prober, gone_too",
                  "importlib.import_module('by_name')", "import never_heard", "import importlib.nothing"):
    try:
        exec(statement)
    except ImportError:
        pass
""")
    expect(result.failed(), {("never_heard", "direct"), ("prober.absent", "direct"), ("gone_too", "direct"), ("by_name", "direct"),
                             ("optional_speedups", "transitive")}, "failed")


@every_version
def other_finders_keep_their_ways(world):
    libraries(world)
    result = world.run("""
import importlib.util, importlib.abc, importlib.machinery, sys, types

class Late(importlib.abc.MetaPathFinder, importlib.abc.Loader):     # as six has one
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name.startswith("virtual") else None
    def create_module(self, spec):
        return types.ModuleType(spec.name)
    def exec_module(self, module):
        pass

class Watching:                                                     # asks the others first, as post-import hooks do
    active = set()
    def find_spec(self, name, path=None, target=None):
        if name in self.active or name == "probe_only":
            return None
        self.active.add(name)
        try:
            return importlib.util.find_spec(name)
        finally:
            self.active.discard(name)

sys.meta_path.append(Late())
sys.meta_path.insert(0, Watching())
import virtual_one
import toplib
try:
    import not_there
except ImportError:
    pass
""")
    expect(result.modules("direct"), {"toplib"}, "direct")
    expect(("middle.inner", "transitive", "toplib.part") in result.imports(), True, "importer through a finder that asks others")
    expect(result.failed(), {("not_there", "direct")}, "failed")


@every_version
def modules_of_finders_that_come_first_are_found_afterwards(world):
    libraries(world)
    result = world.run("""
import importlib.machinery, sys
class First:                                                        # as pytest rewrites assertions
    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.PathFinder.find_spec(name, path) if name == "single" else None
sys.meta_path.insert(0, First())
import toplib
""")
    expect(("single", "transitive", None) in result.imports(), True, "single, importer unknown: %s" % result.imports())


@every_version
def a_path_finder_taken_away_stays_away(world):
    libraries(world)
    result = world.run("""
import sys
from importlib.machinery import PathFinder
sys.meta_path.remove(PathFinder)
try:
    import single
    print("found")
except ImportError:
    print("blocked")
""")
    expect(result.out, "blocked\n", "output")


@every_version
def namespace_packages_by_their_full_names(world):
    world.distribution("google-cloud-one", "1.0", {"google/cloud/one/__init__.py": "from google.cloud import two\n"})
    world.distribution("google-cloud-two", "1.0", {"google/cloud/two/__init__.py": "import google.api.core\n"})
    world.distribution("google-api", "1.0", {"google/api/__init__.py": "", "google/api/core.py": ""})
    result = world.run("from google.cloud import one\n")
    expect(result.imports(), {("google.cloud.one", "direct", None), ("google.cloud.two", "transitive", "google.cloud.one"),
                              ("google.api", "transitive", "google.cloud.two"), ("google.api.core", "transitive", "google.cloud.two")}, "imports")


@every_version
def inner_modules_of_a_package_are_its_own_affair(world):
    world.distribution("big", "1.0", {"big/__init__.py": "import big.a.b\n", "big/a/__init__.py": "", "big/a/b.py": "import big.a.c\n", "big/a/c.py": "", "big/a/d.py": ""})
    world.distribution("other", "1.0", {"other.py": "import big.a.c, big.a.d\n"})
    expect(world.run("import big\n").imports(), {("big", "direct", None), ("big.a", "transitive", "big")}, "imports")
    result = world.run("import big\nimport other\nimport big.a.b\n")
    expect(result.imports(), {("big", "direct", None), ("big.a", "transitive", "big"), ("other", "direct", None), ("big.a.d", "transitive", "other"),
                              ("big.a.b", "static", None)}, "imports")


@every_version
def generated_code_belongs_to_whose_names_it_uses(world):
    libraries(world)
    world.distribution("maker", "1.0", {"maker.py": "exec('import single')\nexec(compile('import middle', '<made by maker>', 'exec'), {'__name__': 'maker'})\n"})
    result = world.run("import maker\nexec('import toplib.deep')\n")
    expect(("single", "transitive", "maker") in result.imports() and ("middle", "transitive", "maker") in result.imports(), True, "imports: %s" % result.imports())
    expect(result.modules("direct"), {"maker", "toplib"}, "direct")
    expect(result.modules("static"), {"toplib.deep"}, "static")


@every_version
def extension_modules_and_vendored_ones(world):
    import glob
    import shutil
    import subprocess
    place = subprocess.run([world.python, "-c", "import _ctypes; print(getattr(_ctypes, '__file__', ''))"], stdout=subprocess.PIPE, universal_newlines=True).stdout.strip()
    world.distribution("vendor", "1.0", {"vendor/__init__.py": "import sys, os\nsys.path.append(os.path.join(os.path.dirname(__file__), '_vendor'))\nimport packed\n",
                                         "vendor/_vendor/packed/__init__.py": ""})
    result = world.run("import vendor\nimport packed\n")
    expect(result.imports(), {("vendor", "direct", None), ("vendor._vendor.packed", "static", None)}, "a vendored module is its vendor's")
    if place:
        shutil.copy(place, world.site)
        result = world.run("import sys\nsys.path.insert(0, %r)\nimport _ctypes\n" % world.site)
        expect(result.modules("direct"), {"_ctypes"}, "direct")
        for path in glob.glob(world.site + "/_ctypes*"):
            import os
            os.unlink(path)


@every_version
def reloads_and_lazy_modules(world):
    libraries(world)
    world.distribution("lazy", "1.0", {"lazy.py": ""})
    result = world.run("""
import importlib, importlib.util, sys
spec = importlib.util.find_spec("lazy")
spec.loader = importlib.util.LazyLoader(spec.loader)
module = importlib.util.module_from_spec(spec)
sys.modules["lazy"] = module
spec.loader.exec_module(module)
import toplib
importlib.reload(toplib)
sys.meta_path[-2].load().life_part().beat(sys.meta_path[-2].recorder)
print(type(module).__name__)
""")
    expect(result.out, "_LazyModule\n", "the lazy module was not loaded by the recorder")
    expect(len([r for r in result.of("import") if r["m"] == "toplib"]), 1, "toplib once")


# ---- the truth of python -v; -X importtime does not show what importlib.import_module() loads ----

def forest(chance, packages):
    """Random packages that import one another, and what a script may import."""
    names = ["lib%d" % i for i in range(packages)]
    modules = []
    for name in names:
        modules.append(name)
        for sub in range(chance.randrange(4)):
            modules.append("%s.sub%d" % (name, sub))
            if chance.random() < 0.5:
                modules.append("%s.sub%d.deep" % (name, sub))
    folders = {module.rpartition(".")[0] for module in modules}
    files = {}
    for number, module in enumerate(modules):
        lines = []
        for _ in range(chance.randrange(4)):
            target = chance.choice(modules[:number] or modules[:1])      # of earlier ones: no circles
            shape = chance.randrange(5)
            parent, _, last = target.rpartition(".")
            if shape == 0 and parent:
                lines.append("from %s import %s" % (parent, last))
            elif shape == 1:
                lines.append("import importlib; importlib.import_module('%s')" % target)
            elif shape == 2:
                lines.append("try:\n    import absent_%d\nexcept ImportError:\n    pass" % chance.randrange(5))
            else:
                lines.append("import " + target)
        path = module.replace(".", "/") + ("/__init__.py" if module in folders or "." not in module else ".py")
        files[path] = "\n".join(lines) + "\n"
    return modules, files


@every_version
def random_forests_agree_with_the_interpreter(world):
    for seed in range(3):
        chance = random.Random(seed * 1000 + world.version[1])
        modules, files = forest(chance, 12)
        world.distribution("forest%d" % seed, "1.0", {"f%d_%s" % (seed, path): re.sub(r"\blib(?=\d)", "f%d_lib" % seed, text) for path, text in files.items()})
        modules = ["f%d_%s" % (seed, module) for module in modules]
        asked = [chance.choice(modules) for _ in range(8)]
        result = world.run("".join("import %s\n" % name for name in asked), quiet=False, options=["-v", "-X", "importtime"])
        truth = set(re.findall(r"^import '(f%d_[\w.]+)' # " % seed, result.err, re.M))
        timed = {line.rpartition("|")[2].strip() for line in result.err.splitlines() if line.startswith("import time:")}
        expect({module for module in timed if module.startswith("f%d_" % seed)} - truth, set(), "timed, and not loaded")
        written = {r["m"] for r in result.of("import")}
        expect(written - truth, set(), "written, and never imported (seed %d)" % seed)
        expect({m for m in truth if m.count(".") < 2} - written, set(), "imported, and not written (seed %d)" % seed)
        named = set()
        for name in asked:
            parts = name.split(".")
            named |= {".".join(parts[:n + 1]) for n in range(len(parts))}
        expect(result.modules("direct") - named, set(), "direct, and not named (seed %d)" % seed)
        expect(set(asked) - result.modules("direct") - result.modules("static"), set(), "named, and neither direct nor static (seed %d)" % seed)
        for record in result.of("import"):
            if record["how"] == "transitive" and record.get("by") not in truth:
                raise Failure("an importer that was not loaded: %s" % record)


if __name__ == "__main__":
    sys.exit(main([case for case in list(globals().values()) if callable(case) and getattr(case, "__module__", "") == "__main__"
                   and case.__code__.co_varnames[:1] == ("world",) and case.__code__.co_argcount == 1 and case.__name__ != "libraries"], sys.argv[1:]))
