# Varve: says which files a Python program opens on its way, so that it is known what it needs. Lies as sitecustomize.py in a folder of its own that
# comes first on PYTHONPATH, for the time of one program; the image's own sitecustomize runs as ever. Handed out by start_programs.py.
import os
import sys


def spy(folder, out):
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    seen = set()
    stdlib = os.path.dirname(os.__file__) + os.sep

    def tell(path):
        if path in seen or len(seen) >= 20000 or (path.startswith(stdlib) and "-packages/" not in path):
            return
        seen.add(path)
        try:
            line = (os.path.abspath(path) + "\n").encode("utf-8")
            os.write(out, line if line.count(b"\n") == 1 else b"")
        except (OSError, UnicodeError):
            pass

    for module in list(sys.modules.values()):    # what .pth files have imported
        path = getattr(module, "__file__", None)
        if isinstance(path, str):
            tell(path)

    def hear(event, words):
        if event == "open" and isinstance(words[0], str):
            tell(words[0])
        elif event == "import" and isinstance(words[1], str):    # an extension module
            tell(words[1])

    if hasattr(sys, "addaudithook"):    # 3.8
        sys.addaudithook(hear)


try:
    spy(os.path.dirname(os.path.abspath(__file__)), os.open(os.environ["VARVE_SPY"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
except Exception:
    pass
me = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError as error:
    if getattr(error, "name", None) != "sitecustomize":
        raise
finally:
    sys.modules.setdefault("sitecustomize", me)    # who imports this one looks for it there
