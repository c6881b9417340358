"""What a session really imported, by the interpreter's own traces, and which distribution each module's file belongs to by RECORD.

python -X importtime sees what the import statement loads, also what fails while it loads, but not what importlib.import_module() is asked for;
python -v sees every module that was loaded to its end."""
import csv, re
from pathlib import Path

# After what a program wrote to the same line.
TIMED = re.compile(r"import time:\s+\d+ \|\s+\d+ \| *([\w.]+)$", re.M)
LOADED = re.compile(r"import '([\w.]+)' # <.*$", re.M)
SUFFIX = re.compile(r"(\.cpython-[^/]*|\.abi3)?\.(so|py)$")


def module_of(path):
    """The dotted name under which the file of a site folder is imported; None if it is no module."""
    name, count = SUFFIX.subn("", path)
    if not count or ".." in path or "/__pycache__/" in path:
        return None
    name = name.removesuffix("/__init__")
    return name.replace("/", ".") if all(part.isidentifier() for part in name.split("/")) else None


def modules_of(site):
    """module -> distribution, for all that RECORD files name."""
    owners = {}
    for record in Path(site).glob("*.dist-info/RECORD"):
        metadata = (record.parent / "METADATA").read_text(errors="replace")
        distribution = re.search(r"^Name: (.*)$", metadata, re.M).group(1).strip()
        with open(record, newline="") as file:
            for row in csv.reader(file):
                module = module_of(row[0]) if row else None
                if module:
                    owners[module] = normalized(distribution)
    return owners


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def traced(stderr):
    """The modules that the interpreters of a session loaded, by their own words."""
    return {*TIMED.findall(stderr), *LOADED.findall(stderr)}


def files_of(site, prefix):
    """path in the image -> distribution, for all that RECORD files name and the bytecode beside it."""
    owners = {}
    for record in Path(site).glob("*.dist-info/RECORD"):
        metadata = (record.parent / "METADATA").read_text(errors="replace")
        distribution = normalized(re.search(r"^Name: (.*)$", metadata, re.M).group(1).strip())
        with open(record, newline="") as file:
            for row in csv.reader(file):
                if not row:
                    continue
                owners[f"{prefix}/{row[0]}"] = distribution
                folder, _, name = row[0].rpartition("/")
                if name.endswith(".py"):
                    owners[f"{prefix}/{folder + '/' if folder else ''}__pycache__/{name[:-3]}.cpython-311.pyc"] = distribution
    return owners
