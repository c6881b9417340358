"""The reader of Python source against CPython's ast, import by import and line by line.

Reads the .py files of this machine's Python and of its packages (or of the folders in VARVE_SOURCE_FOLDERS, separated by colons), at
most VARVE_SOURCE_MEGABYTES of them, chosen by the digest of their names. For each file that Python parses: every import statement is
found at its line, nothing else is, and it is called optional exactly where the syntax tree says that it may be passed over or may fail.
"""
import ast
import hashlib
import json
import os
import subprocess
import sys
import warnings

CAUGHT = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


def names_in(node):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}


def always_holds(test):
    constant = isinstance(test, ast.Constant) and (test.value is True or (test.value == 1 and isinstance(test.value, int)))
    return constant or "__name__" in names_in(test)


def catches(handler):
    return handler.type is None or bool(names_in(handler.type) & CAUGHT)


def suppresses(node):
    names = set().union(*(names_in(item.context_expr) for item in node.items))
    return "suppress" in names and bool(names & CAUGHT)


def names_of(node):
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = "." * node.level + (node.module or "")
    dot = "" if module.endswith(".") else "."
    return [module if alias.name == "*" else module + dot + alias.name for alias in node.names]


def branches(node, optional):
    """The children of a statement that hold statements, each with whether what stands in it is optional."""
    if isinstance(node, ast.If):
        yield from ((child, optional or not always_holds(node.test)) for child in node.body)
        yield from ((child, True) for child in node.orelse)
    elif isinstance(node, (ast.Try, getattr(ast, "TryStar", ast.Try))):
        caught = any(catches(handler) for handler in node.handlers)
        yield from ((child, optional or caught) for child in node.body + node.orelse)
        yield from ((child, True) for handler in node.handlers for child in handler.body)
        yield from ((child, optional) for child in node.finalbody)
    elif isinstance(node, (ast.With, ast.AsyncWith)):
        yield from ((child, optional or suppresses(node)) for child in node.body)
    elif isinstance(node, ast.Match):
        yield from ((child, True) for case in node.cases for child in case.body)
    else:
        for name in ("body", "orelse"):
            value = getattr(node, name, [])
            yield from ((child, optional) for child in (value if isinstance(value, list) else []))


def reference(path):
    """Set of (line, name, optional), or None for a file that Python refuses."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = set()
    stack = [(tree, False)]
    while stack:
        node, optional = stack.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found.update((node.lineno, name, optional) for name in names_of(node))
        else:
            stack.extend(branches(node, optional))
    # The same name both ways on one line ("if a: import b" does not do that, exec'ed one-liners may): plain wins nothing here.
    return found


def source_files():
    folders = os.environ.get("VARVE_SOURCE_FOLDERS")
    folders = folders.split(":") if folders else [os.path.dirname(os.__file__), "/usr/lib/python3/dist-packages"]
    for folder in folders:
        for root, _, names in os.walk(folder):
            for name in names:
                path = os.path.join(root, name)
                if name.endswith(".py") and os.path.isfile(path) and not os.path.islink(path) and "\n" not in path:
                    yield path


def sample():
    limit = float(os.environ.get("VARVE_SOURCE_MEGABYTES", "12")) * 1e6
    chosen, size = [], 0
    for path in sorted(set(source_files()), key=lambda p: hashlib.sha256(os.fsencode(p)).digest()):
        chosen.append(path)
        size += os.path.getsize(path)
        if size > limit:
            break
    return chosen


def main():
    warnings.simplefilter("ignore")
    paths = sample()
    if len(paths) < 100:
        print("skipped: this machine has too few .py files")
        return 77
    run = subprocess.run([os.environ["PROBE"]], input="".join(p + "\n" for p in paths), capture_output=True, text=True, check=True)
    parsed = imports = departures = 0
    for path, line in zip(paths, run.stdout.splitlines(), strict=True):
        expected = reference(path)
        if expected is None:
            continue
        parsed += 1
        imports += len(expected)
        result = json.loads(line)
        assert result["path"] == path
        found = [i for i in result["imports"] if i["kind"] in ("import", "optional")]
        actual = {(i["line"], i["name"], i["kind"] == "optional") for i in found}
        rescued = [i for i in found if i["rescued"]]
        local = [i for i in found if i["local"] != i["name"].startswith(".")]
        if actual != expected or rescued or local:
            departures += 1
            print(f"{path}: lost {sorted(expected - actual)[:5]} invented {sorted(actual - expected)[:5]} rescued {rescued[:2]} local {local[:2]}")
    print(f"{parsed} files that parse, {imports} imports, {departures} files that differ")
    return 1 if departures or parsed < 100 or imports < 500 else 0


if __name__ == "__main__":
    sys.exit(main())
