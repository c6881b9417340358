# Varve usage recorder 1: notes which libraries a process imports. What is written, and what never is: docs/formats/usage-spool.md and
# docs/design/recorder.md of Varve. This file is all that a Python loads which uses no library; varve_recorder_core.py comes with the first one.
#
# It stands in sys.meta_path directly before Python's own PathFinder and answers with PathFinder's answer, so it is asked once per import
# that finds nothing in sys.modules and costs nothing at any other time. An audit hook would be called for every id(), open() and
# compile() as well: copy.deepcopy() took 1.4 to 1.7 times as long under an empty one.
import os
import sys

FINDER = None


class Finder:
    """Stands before PathFinder and gives its answer."""

    def __init__(self, path_finder):
        self.recorder = None
        self.is_loading = False
        # The first of the session: it speaks even if it used nothing, so that the session counts as heard.
        self.is_first = "VARVE_USAGE_PARENT" not in os.environ
        self.find_spec = self.make_find_spec(path_finder, os.path.dirname(os.__file__) + "/")

    def make_find_spec(self, path_finder, standard):
        frame_at = sys._getframe

        def find_spec(name, path=None, target=None):
            finders = sys.meta_path
            if finders[-1] is not path_finder and path_finder not in finders:
                return None               # somebody took it away on purpose
            spec = path_finder.find_spec(name, path, target)
            try:
                if spec is None:
                    frame = frame_at(1)
                    if self.recorder is not None or not is_own_affair(name, frame, standard):
                        self.load().failed(name, path, frame)
                else:
                    origin = spec.origin
                    if origin is not None and (not origin.startswith(standard) or "-packages/" in origin):
                        (self.recorder or self.load()).found(name, spec, frame_at(1))
            except Exception as error:
                keep_quiet(error)
            return spec

        return find_spec

    def load(self):
        if self.recorder is not None:
            return self.recorder
        if self.is_loading:
            return SILENT                 # our own modules on their way, or another thread
        self.is_loading = True
        import varve_recorder_core
        self.recorder = varve_recorder_core.Recorder(self.is_first)
        return self.recorder


class Silent:
    def found(self, name, spec, frame):
        pass

    failed = found


SILENT = Silent()


def is_own_affair(name, frame, standard):
    """The standard library tries what a system may lack; that is no reason to load more of the recorder."""
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is None or frame.f_code.co_filename.startswith((standard, "<frozen")) and "-packages/" not in frame.f_code.co_filename


def keep_quiet(error):
    """Our own failures end here. What a signal handler of the user raised while we were at work does not: it is raised again."""
    trace = error.__traceback__
    while trace is not None:
        if "varve_recorder" not in trace.tb_frame.f_code.co_filename:
            if "importlib" not in trace.tb_frame.f_code.co_filename:
                raise error
        trace = trace.tb_next


def is_wanted(environment):
    if not environment.get("VARVE_USAGE_SPOOL", "").startswith("/") or sys.implementation.name != "cpython" or sys.version_info < (3, 8):
        return False
    if environment.get("DO_NOT_TRACK", "0").lower() not in ("", "0", "false") or environment.get("VARVE_USAGE", "").lower() in ("off", "0", "no"):
        return False
    return not os.path.exists("/etc/varve/usage-off")


def finish():
    """At the end of the process. One that was started by another and used nothing has nothing to say."""
    try:
        if FINDER.recorder is not None or FINDER.is_first:
            FINDER.load().finish()
    except Exception as error:
        keep_quiet(error)


def after_fork():
    try:
        FINDER.is_first = False
        if FINDER.recorder is not None:
            FINDER.recorder.after_fork()
    except Exception as error:
        keep_quiet(error)


def start():
    """Called once per interpreter by varve_recorder.pth or .start. Never raises."""
    global FINDER
    try:
        if FINDER is not None or not is_wanted(os.environ):
            return
        for place, finder in enumerate(sys.meta_path):
            if getattr(finder, "__name__", "") == "PathFinder":
                break
        else:
            return
        import atexit
        from time import time
        FINDER = Finder(finder)
        if len(os.environ.get("VARVE_USAGE_SESSION", "")) != 32:
            os.environ["VARVE_USAGE_SESSION"] = os.urandom(16).hex()
        os.environ.setdefault("VARVE_SESSION_STARTED", "%.3f" % time())
        os.environ.setdefault("VARVE_USAGE_PARENT", "")
        atexit.register(finish)
        os.register_at_fork(after_in_child=after_fork)
        sys.meta_path.insert(place, FINDER)
    except Exception as error:
        keep_quiet(error)
