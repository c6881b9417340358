# Varve archived 1: what an import says of a library that this image no longer has. docs/guide/prune-apply.md of Varve.
#
# A finder stands last in sys.meta_path: it is asked for what nobody has. It answers imports alone; for a probe (importlib.util.find_spec,
# pkgutil.find_loader) the library is simply not there. varve_archived.pth makes it without loading this file, which comes with the first import that
# fails: every Python of the image pays for what is loaded at its start.
import sys

MODULES = {}


class Finder:
    """As varve_archived.pth has it, for Pythons that read varve_archived.start."""

    def find_spec(self, name, path=None, target=None):
        frame = sys._getframe(1).f_back
        if frame and frame.f_code.co_name in ("_find_and_load_unlocked", "find_spec"):
            return answer(self, name, path, target, frame)


def answer(finder, name, path, target, frame):
    """For the finder: None, or what the import is to say. `frame` is who asked the import system."""
    if frame.f_code.co_name == "find_spec" and not (frame.f_back and frame.f_back.f_code.co_name == "_get_module_details"):
        return None                       # a probe; not `python -m`
    finders = sys.meta_path
    for later in finders[finders.index(finder) + 1 if finder in finders else 0:]:   # one of them may have it
        if type(later).__module__ != __name__ and (not hasattr(later, "find_spec") or later.find_spec(name, path, target) is not None):
            return None
    lines = lines_of(name)
    if not lines:
        return None
    # `from a import b` takes the first of these for "b is no module", and says something else.
    names_part = False
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        names_part = names_part or frame.f_code.co_name == "_handle_fromlist"
        frame = frame.f_back
    raise (ImportError if names_part else ModuleNotFoundError)(" ".join(lines), name=name)


def lines_of(name):
    if not MODULES:
        MODULES[""] = []
        try:
            with open(__file__.rpartition(".")[0] + ".txt", encoding="utf-8", errors="replace") as file:
                for line in file:
                    fields = line.rstrip("\n").split("\t")
                    if len(fields) == 4 and line[0] != "#":
                        MODULES.setdefault(fields[0], []).append(fields[1:])
        except OSError:
            pass
    found = MODULES.get(name)
    if found is None:                     # perhaps the root of a namespace with nothing left in it
        found = [fields for module in sorted(MODULES) if module.startswith(name + ".") for fields in MODULES[module]][:3]
    return ["%s is not in this image: %s %s was archived. `pip install %s==%s` puts it into this session; the last image that has it is %s."
            % (name, project, version, project, version, image) for project, version, image in found]


def start():
    """Called once per interpreter by varve_archived.start."""
    if not any(type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.append(Finder())
