"""Notebooks that can run in a session: what they import is in the image, and nothing in them asks for the network or for data."""
import ast, hashlib, json, re, sys
from pathlib import Path

# A cell that says one of these is left out: it would wait for somebody, for the network, or for a machine of another kind.
NOT_HERE = re.compile(r"https?://|ftp://|urlopen|urlretrieve|\bfetch_|load_dataset|read_(csv|excel|table|html|parquet|sql|json|feather|hdf|pickle)\b|genfromtxt|loadtxt|"
                      r"load_(img|image)|imread|open\(|input\(|getpass|\bwget\b|\bcurl\b|google\.colab|kaggle|subprocess|^\s*[!%]|^\s*\?|\?\s*$|n_jobs|GridSearch|"
                      r"RandomizedSearch|cross_val|while True|sleep\(|animation|interact|ipywidgets|multiprocessing|importlib|os\.(system|remove|chdir|mkdir|makedirs)|shutil", re.M)


def cells_of(raw):
    """The code cells of a notebook, as text; none if it is no Python notebook that can be read."""
    try:
        notebook = json.loads(raw)
        language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
        sources = [cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
    return [text if isinstance(text, str) else "".join(text) for text in sources] if language == "python" else []


def imports_of(tree):
    """(module, part of it that may be a module too) of every import statement, wherever it stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((node.module, alias.name) for alias in node.names)


def runnable_cells(raw, modules):
    """The cells that may run where only `modules` (top level names) and the standard library are; [] if no cell of those imports one of them."""
    kept, uses = [], False
    for text in cells_of(raw):
        if NOT_HERE.search(text) or not text.strip():
            continue
        try:
            names = {name.split(".")[0] for name, _ in imports_of(ast.parse(text))}
        except (SyntaxError, ValueError):
            continue
        if not names <= modules | set(sys.stdlib_module_names):
            continue
        uses = uses or bool(names & modules)
        kept.append(text)
    return kept if uses else []


def in_folder(folder):
    """(name, bytes) of every notebook in it."""
    for path in sorted(Path(folder).rglob("*.ipynb")):
        if path.stat().st_size < 4_000_000:
            yield str(path.relative_to(folder)), path.read_bytes()


def choose(notebooks, modules, count):
    """[(name, cells)] of (name, bytes): always the same ones, in an order that has nothing to do with their names, varied in what they import."""
    found, seen = [], set()
    for name, raw in notebooks:
        cells = runnable_cells(raw, modules)
        key = hashlib.sha256("\0".join(cells).encode()).hexdigest()
        if cells and key not in seen:
            seen.add(key)
            found.append((key, name, cells))
    found.sort()
    # One of each combination of imports first.
    first, rest, combinations = [], [], set()
    for key, name, cells in found:
        used = frozenset(module for cell in cells for module, _ in imports_of(ast.parse(cell)))
        (rest if used in combinations else first).append((name, cells))
        combinations.add(used)
    return (first + rest)[:count]
