"""What a module's bytecode says that it imports, against CPython's own `ast` of its source: of a quarter of this machine's standard library and installed packages (ALL_MODULES=1: of all), and of hard cases, with every Python that is here and Debian 13's."""
import ast, json, os, platform, re, subprocess, sys, tempfile, textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import debian13  # noqa: E402

PROBE = os.environ.get("PROBE") or str(Path(__file__).resolve().parents[2] / "build/release/tests/oracle/bytecode_probe")
READ = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
HARD = """
    from __future__ import annotations
    import a0, a1.b as c, a2
    from . import r0
    from ..x.y import r1 as z, r2
    from star import *
    if TYPE_CHECKING:
        import n0
    if not TYPE_CHECKING:
        import n1
    if p or q:
        import n2
    elif r and s or t:
        import n3
    else:
        import n4
    import a3
    try:
        import a4
    except ImportError:
        import n5
    except (ValueError, TypeError) as e:
        import n6
    else:
        import a5
    finally:
        import a6
    with thing as other:
        import a7
    for i in thing:
        import m0
    while thing:
        import n7
    def f():
        import n8
    class C:
        import n9
    value = (x if y else z) or w
    assert value, "no"
    chained = 1 < value < 3
    import a8
    if value is None:
        import n10
    if value is not None:
        import n11
    match value:
        case 1:
            import n12
    import a9
"""


def imports(statements, must, may, certain=True):
    """Of statements that run (`certain`) or may: {(level, name, members)}."""
    for one in statements:
        found = set()
        if isinstance(one, ast.Import):
            found = {(0, alias.name, ()) for alias in one.names}
        elif isinstance(one, ast.ImportFrom):
            found = {(one.level, one.module or "", tuple(alias.name for alias in one.names))}
        may |= found
        if certain:
            must |= found
        if isinstance(one, (ast.Try, getattr(ast, "TryStar", ast.Try))):
            for body in (one.body, one.orelse, one.finalbody):
                imports(body, must, may, certain)
            for handler in one.handlers:
                if handler.type is None:  # nothing is asked
                    imports(handler.body, must, may, False)
        elif isinstance(one, (ast.With, ast.AsyncWith)):
            imports(one.body, must, may, certain)
        elif isinstance(one, (ast.For, ast.AsyncFor)):
            imports(one.body, must, may, False)
            imports(one.orelse, must, may, certain)
        elif isinstance(one, ast.While):
            imports(one.orelse, must, may, False)
            if isinstance(one.test, ast.Constant) and one.test.value:
                imports(one.body, must, may, False)
        elif isinstance(one, ast.If) and (isinstance(one.test, ast.Constant) or ast.unparse(one.test).lstrip("not (").startswith("__debug__")):
            imports(one.body + one.orelse, must, may, False)  # no condition is left of it


def imported(statement):
    if isinstance(statement, ast.ImportFrom):
        return [statement.module or ""]
    return [alias.name for alias in statement.names] if isinstance(statement, ast.Import) else []


def expected(source):
    must, may = set(), set()
    imports(ast.parse(source).body, must, may)
    return must, may


def of_debian13():
    """How its Python is called; Missing where it cannot be had."""
    root = debian13.cached("python3.13-minimal", "libpython3.13-minimal", "libpython3.13-stdlib", "libc6", "libexpat1", "zlib1g")
    libraries = root / f"usr/lib/{platform.machine()}-linux-gnu"
    loader = next(libraries.glob("ld-linux-*.so.?"))
    return ["env", f"PYTHONHOME={root}/usr", str(loader), "--library-path", str(libraries), str(root / "usr/bin/python3.13")]


def check(python, sources, folder):
    """Compiles them with that Python, asks the probe, compares: (modules with branches among their imports, imports that always run, of these not seen, modules)."""
    script = "import py_compile, sys\nfor i, path in enumerate(sys.stdin.read().split()):\n    try: py_compile.compile(path, f'{sys.argv[1]}/{i}.pyc', doraise=True)\n    except (py_compile.PyCompileError, UnicodeDecodeError): pass\n"
    subprocess.run([*python, "-W", "ignore", "-c", script, str(folder)], input="\n".join(sources), text=True, check=True)
    compiled = {str(folder / f"{i}.pyc"): source for i, source in enumerate(sources) if (folder / f"{i}.pyc").exists()}
    answers = json.loads(subprocess.run([PROBE], input="\n".join(compiled) + "\n", stdout=subprocess.PIPE, text=True, check=True).stdout)
    branches = count = left_out = 0
    for path, source in compiled.items():
        try:
            must, may = expected(Path(source).read_bytes())
        except (SyntaxError, ValueError):
            continue  # this Python does not know that one's syntax
        assert answers[path] is not None, f"{source}: not read"
        ours = {(level, name, tuple(members)) for level, name, members in answers[path]}
        count += len(must)
        left_out += len(must - ours)
        branches += not ours <= may
        everything = {(one.level if isinstance(one, ast.ImportFrom) else 0, name) for one in ast.walk(ast.parse(Path(source).read_bytes())) for name in imported(one)}
        assert {one[:2] for one in ours} <= everything, f"{source}: {sorted(ours)}"
        os.unlink(path)
    return branches, count, left_out, len(compiled)


def main():
    pythons = {}
    for name in [sys.executable] + [str(path) for folder in ("/usr/bin", "/usr/local/bin") for path in Path(folder).glob("python3.*") if re.fullmatch(r"python3\.\d+", path.name)]:
        version = subprocess.run([name, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], stdout=subprocess.PIPE, text=True).stdout.strip()
        pythons.setdefault(version, [name])
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if here not in READ:
        print(f"SKIP: Python {here} writes bytecode that is not read")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        try:
            pythons.setdefault("3.13", of_debian13())
        except (debian13.Missing, StopIteration) as error:
            print(f"SKIP: no Python 3.13: {error}")
        for version, python in sorted(pythons.items()):
            if version not in READ:
                print(f"SKIP: Python {version} writes bytecode that is not read")
                continue
            hard = work / "hard.py"
            text = textwrap.dedent(HARD)
            if tuple(map(int, version.split("."))) < (3, 10):
                text = re.sub(r"match value:\n.*\n.*\n", "", text)
            hard.write_text(text)
            subprocess.run([*python, "-c", "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[1] + 'c', doraise=True)", str(hard)], check=True)
            answer = json.loads(subprocess.run([PROBE], input=f"{hard}c\n", stdout=subprocess.PIPE, text=True, check=True).stdout)[f"{hard}c"]
            ours = {(level, name, tuple(members)) for level, name, members in answer}
            must, may = expected(text)
            assert must <= ours <= may, (version, must - ours, ours - may)
            names = {name for _, name, _ in ours}
            assert {f"a{i}" if i != 1 else "a1.b" for i in range(10)} <= names and not any(name.startswith("n") for name in names), (version, names)
            hard.unlink()
            paths = json.loads(subprocess.run([*python, "-c", "import json, sysconfig; print(json.dumps(sysconfig.get_paths()))"], stdout=subprocess.PIPE, text=True, check=True).stdout)
            folders = {paths["stdlib"], paths["purelib"], "/usr/lib/python3/dist-packages"}
            sources = sorted({str(path) for folder in folders for path in Path(folder).rglob("*.py") if path.is_file() and " " not in str(path)})
            if not os.environ.get("ALL_MODULES"):
                sources = sources[::4]
            branches, count, left_out, modules = check(python, sources, work)
            print(f"Python {version}: {modules} modules, {count} imports that always run, {left_out} of them not seen, {branches} modules with a branch among theirs")
            assert modules > 100 and count > 500, "hardly anything was compared"
            assert left_out <= count // 200, f"{left_out} of {count} imports were not seen"
            assert branches <= modules // 100, f"{branches} of {modules} modules: an import that a condition decides on"


if __name__ == "__main__":
    main()
