"""What a notebook imports, as Python's own json, IPython's transformer and ast see it: the judge of `varve usage scan`."""
import ast, json, re, warnings

from IPython.core.inputtransformer2 import TransformerManager

# Cell magics whose body is Python that runs here; and those whose body is known to be something else, or Python that runs elsewhere.
PYTHON_BODIES = {"time", "timeit", "capture", "prun", "memit", "mprun", "lprun", "python", "python3", "pypy", "pyspark", "local", "debug", "px", "heat", "snakeviz", "wandb", "writefile_and_run"}
OTHER_BODIES = {
    "bash", "sh", "script", "html", "HTML", "js", "javascript", "latex", "markdown", "svg", "SVG", "R", "perl", "ruby", "sql", "bigquery", "cython", "writefile", "file", "cu", "bq",
    "configure", "send_to_spark", "spark", "system", "sx", "!", "cmd", "julia", "pip", "shell", "writetemplate", "manim", "css"}
LINE_CODE = {"time", "timeit", "prun", "memit", "lprun", "mprun"}
OPTIONS = re.compile(r"(?:-\w+(?:[ =]?\d+)?\s+)*")


class Unparseable(Exception):
    """The reference cannot say anything about this cell."""


def text_of(source, joint=""):
    return source if isinstance(source, str) else joint.join(source)


def code_cells(notebook):
    """Text of the code cells in order, as nbformat joins it."""
    cells = notebook["cells"] if "cells" in notebook else [cell for sheet in notebook["worksheets"] for cell in sheet["cells"]]
    joint = "\n" if notebook.get("nbformat") == 2 else ""  # which splits without line ends
    return [text_of(cell.get("source", cell.get("input", "")), joint) for cell in cells if cell.get("cell_type") == "code"]


def language_of(notebook):
    metadata = notebook.get("metadata", {})
    kernel = metadata.get("kernelspec", {})
    told = (kernel.get("language") or metadata.get("language_info", {}).get("name") or "").lower()
    if not told and kernel.get("name") in ("ir",):
        told = "r"
    return "python" if told in ("", "python", "ipython", "pyspark") else told


class Imports(ast.NodeVisitor):
    def __init__(self, reference, written):
        self.reference, self.written = reference, written

    def add(self, node, how, name):
        self.reference.found.add((how, name, self.written))
        if self.reference.lines is not None:
            self.reference.lines.add((how, name, self.written, node.lineno))

    def visit_Import(self, node):
        for alias in node.names:
            self.add(node, "import", alias.name)

    def visit_ImportFrom(self, node):
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            dot = "" if module.endswith(".") or not module else "."
            self.add(node, "import", module if alias.name == "*" else f"{module}{dot}{alias.name}")

    def visit_Call(self, node):
        self.generic_visit(node)
        constants = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
        name = ast.unparse(node.func)
        if name in ("importlib.import_module", "import_module", "__import__") and constants and isinstance(constants[0], str):
            if re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", constants[0]):
                self.add(node, "dynamic", constants[0])
        elif name == "get_ipython().run_line_magic" and len(constants) == 2 and constants[0] in LINE_CODE:
            self.reference.read_line_code(constants[1], self.written)
        elif name == "get_ipython().run_cell_magic" and len(constants) == 3:
            self.reference.read_cell_magic(*constants, self.written)


class Reference:
    """Finds imports as (how, name, written): how is "import" or "dynamic"; written: in the body of %%writefile."""

    def __init__(self):
        self.transformer = TransformerManager()

    def read(self, text):
        """What is found, and the same with line numbers: None where IPython moved lines."""
        self.found, self.lines = set(), set()
        self.read_code(text, False)
        return self.found, self.lines

    def parse(self, text):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return ast.parse(text)  # what is Python already, IPython leaves as it is
            except (SyntaxError, ValueError):
                pass
            self.lines = None
            try:
                return ast.parse(self.transformer.transform_cell(text))
            except (SyntaxError, ValueError, RecursionError) as error:
                raise Unparseable(str(error)) from error

    def read_code(self, text, written):
        Imports(self, written).visit(self.parse(text))

    def read_line_code(self, line, written):
        try:
            self.read_code(OPTIONS.sub("", line, count=1), written)
        except Unparseable:
            pass

    def read_cell_magic(self, name, line, body, written):
        if name in ("writefile", "file"):
            file = (line.split() or [""])[-1].strip("\"'")
            if file.endswith(".py") or re.search(r"\$\w+$|\{.*\}$", file):  # the ending may be in a variable: Python if it parses as that
                self.read_code(body, True)
        elif name in PYTHON_BODIES:
            if name in LINE_CODE:
                self.read_line_code(line, written)
            self.read_code(body, written)
        elif name not in OTHER_BODIES:
            raise Unparseable(f"unknown cell magic %%{name}")


def read_notebook(data):
    """(language, {cell number: (found, lines), or None where the reference cannot parse}, number of code cells)"""
    notebook = json.loads(data)
    cells = code_cells(notebook)
    reference, found = Reference(), {}
    for number, text in enumerate(cells, 1):
        try:
            found[number] = reference.read(text)
        except Unparseable:
            found[number] = None
    return language_of(notebook), found, len(cells)
