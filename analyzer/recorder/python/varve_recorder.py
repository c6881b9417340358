# Varve usage recorder 1: notes which libraries a process imports. What is written, and what never is: docs/format-usage-spool.md and
# docs/recorder.md of Varve. Everything that is not needed for the first import lies in varve_recorder_late.py.
#
# It stands in sys.meta_path directly before Python's own PathFinder and answers with PathFinder's answer, so it is asked once per import
# that finds nothing in sys.modules and costs nothing at any other time. An audit hook would be called for every id(), open() and
# compile() as well: copy.deepcopy() took 1.4 to 1.7 times as long under an empty one.
import os
import sys
from _thread import allocate_lock
from time import monotonic, time

MAX_BYTES = 8 << 20       # of one process
MAX_LINE = 4096
MAX_WAITING = 1000        # lines kept while the disk is full
MAX_FILES = 4096          # in a spool; further processes stay silent
DIRECT, TRANSITIVE, STATIC, FAILED = 1, 2, 4, 8
HOW = {DIRECT: "direct", TRANSITIVE: "transitive", STATIC: "static"}

# What the code of a stack frame is, by its file name; a library is a str, its dotted name.
USER, LIBRARY_LOADER, STANDARD, GENERATED, STARTUP = range(5)

# Standard modules that import what somebody else names: a failure below them is that somebody's.
CARRIERS = ("/importlib/", "/runpy.py", "/pkgutil.py", "/pydoc.py", "/unittest/", "/doctest.py", "/multiprocessing/", "/concurrent/",
            "/pickle.py", "/code.py", "/codeop.py", "/threading.py")
# The parts of IPython that import what a magic of a cell names.
MAGICS = ("extensions", "pylabtools", "interactiveshell", "magic", "magics.")


def library_name(path):
    """The dotted name of the module that a file in a site folder holds, and where its path below the site folder starts; None outside."""
    at = path.find("-packages/")
    if at < 5 or path[at - 5:at] not in ("/site", "/dist"):
        return None, 0
    at += 10
    egg = path.find(".egg/", at)
    if egg > 0:
        at = egg + 5
    rest = path[at:]
    if rest.endswith("/__init__.py"):
        rest = rest[:-12]
    else:
        slash = rest.rfind("/")
        dot = rest.find(".", slash + 1)
        if dot > 0:
            rest = rest[:dot]
        if rest.endswith("/__init__"):
            rest = rest[:-9]
    return rest.replace("/", "."), at


def is_name(name):
    return len(name) <= 200 and name.replace(".", "a").isidentifier() and not name.startswith(".")


def hexadecimal(text, length):
    return text is not None and len(text) == length and not text.strip("0123456789abcdef")


class Recorder:
    def __init__(self, spool, environment):
        self.spool = spool
        self.session = environment.get("VARVE_USAGE_SESSION")
        if not hexadecimal(self.session, 32):
            self.session = os.urandom(16).hex()
        self.parent = environment.get("VARVE_USAGE_PARENT")
        if not hexadecimal(self.parent, 16):
            self.parent = None
        try:
            self.session_started = float(environment.get("VARVE_SESSION_STARTED", ""))
        except ValueError:
            self.session_started = time()
        self.standard = os.path.dirname(os.__file__) + "/"
        self.kinds = {"<string>": GENERATED}     # file name of code -> what it is
        self.written = {}                        # module -> ways it was written as
        self.declared = set()                    # named by user code, not loaded yet
        self.scanned = set()                     # code objects that were read
        self.user_modules = {}                   # name -> file, to be read later
        self.doubtful = {}                       # names that a later finder may find -> how
        self.copies = {}                         # folder -> "image" or "session"
        self.base = False                        # what is loaded now belongs to the kernel or server, not to its user
        self.main = "other"
        self.late = None
        self.next_look = 0.0
        self.new_process()

    def new_process(self):
        self.pid = os.getpid()
        self.process = os.urandom(8).hex()
        self.began = monotonic()
        self.fd = -1
        self.identity = None
        self.size = 0
        self.full = False
        self.thread = None                       # the one that beats, if the process has threads anyway
        self.waiting = []                        # lines that could not be written yet
        self.draining = allocate_lock()
        self.next_open = 0.0

    def after_fork(self):
        """In a forked child. It writes nothing, and makes no file, before it has something to say."""
        try:
            self.close()
            if self.identity is not None:
                self.parent = self.process
            self.new_process()
            if self.late is not None:
                self.late.after_fork(self)
        except Exception as error:
            keep_quiet(error)

    # ---- what is seen ----

    def found(self, name, spec, frame):
        """`name` is about to be loaded; `frame` belongs to the import system's search."""
        search = frame.f_back
        if search is None:
            return
        if search.f_code.co_name != "_find_and_load_unlocked" and not self.really_loads(name, search):
            return
        origin = spec.origin
        dotted, _ = library_name(origin)
        how, by = self.importer(search.f_back)
        if dotted is None:
            dotted = self.late_part().adopted_library(self, origin)   # a folder that pip was told to install into
            if dotted is None:
                if len(self.user_modules) < 500:
                    self.user_modules[name] = origin
                return
        if origin not in self.kinds:
            self.kinds[origin] = LIBRARY_LOADER if is_magic_loader(dotted) else dotted
        self.note(dotted, how, by, origin)
        if dotted == "IPython.core.interactiveshell":
            self.late_part().watch_shell(self, spec)

    def really_loads(self, name, frame):
        """Whether a search that did not come from an import statement ends in one: python -m, or a finder that asks the others first."""
        depth = 0
        while frame is not None and depth < 30:
            code = frame.f_code
            if code.co_name == "_find_and_load_unlocked":
                return frame.f_locals.get("name") == name
            if code.co_name == "_run_module_as_main":
                return True
            frame = frame.f_back
            depth += 1
        return False

    def importer(self, frame):
        """Who asked: (DIRECT, None), (TRANSITIVE, dotted name) or (0, name) for the interpreter's own start."""
        kinds = self.kinds
        while frame is not None:
            code = frame.f_code
            kind = kinds.get(code.co_filename)
            if kind is None:
                kind = self.kind_of(code.co_filename)
            if kind.__class__ is str:
                return TRANSITIVE, kind
            if kind == GENERATED:
                kind = self.kind_of_generated(frame)
                if kind.__class__ is str:
                    return TRANSITIVE, kind
            if kind == USER:
                if frame.f_globals.get("__name__") in ("sitecustomize", "usercustomize"):
                    return 0, "site"
                self.read_user_frames(frame)
                return DIRECT, None
            if kind == STARTUP:
                return 0, "site"
            frame = frame.f_back
        return DIRECT, None

    def kind_of(self, path):
        if path.startswith("<frozen "):
            kind = STARTUP if path == "<frozen site>" else LIBRARY_LOADER if "importlib" in path or "runpy" in path else STANDARD
        elif path.startswith("<"):
            kind = USER if path.startswith(("<stdin", "<ipython-input", "<python-input", "<timed ")) else GENERATED
        else:
            kind = library_name(path)[0]
            if kind is not None:
                if is_magic_loader(kind):
                    kind = LIBRARY_LOADER
            elif path.startswith(self.standard):
                kind = STARTUP if path == self.standard + "site.py" else STANDARD
                for carrier in CARRIERS:
                    if carrier in path:
                        kind = LIBRARY_LOADER
            else:
                kind = USER
        if len(self.kinds) < 100000:
            self.kinds[path] = kind
        return kind

    def kind_of_generated(self, frame):
        """Code without a file: by the module whose names it uses."""
        name = frame.f_globals.get("__name__")
        if name == "__main__":
            return USER
        path = module_file(name)
        if path is None or path.startswith("<"):
            return LIBRARY_LOADER
        kind = self.kinds.get(path)
        return self.kind_of(path) if kind is None else kind

    def read_user_frames(self, frame):
        depth = 0
        while frame is not None and depth < 16:
            code = frame.f_code
            kind = self.kinds.get(code.co_filename)
            if kind == USER or kind == GENERATED:
                key = (code.co_filename, code.co_firstlineno, code.co_name)
                if key not in self.scanned and len(self.scanned) < 10000:
                    self.scanned.add(key)
                    self.late_part().read_code(self, code)
            frame = frame.f_back
            depth += 1

    def failed(self, name, path, frame):
        search = frame.f_back
        if search is None or search.f_code.co_name != "_find_and_load_unlocked" or not is_name(name):
            return
        if path is not None:
            for entry in path:
                if "-packages/" in entry:
                    break
            else:
                return                    # a part of the user's own package
        frame = search.f_back
        while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            if frame.f_code.co_name == "_handle_fromlist":
                return                    # "from a import b": b need not be a module
            frame = frame.f_back
        if frame is not None:
            name_of_file = frame.f_code.co_filename
            kind = self.kinds.get(name_of_file)
            if (self.kind_of(name_of_file) if kind is None else kind) == STANDARD:
                return                    # the standard library tries what the system may lack
        how, _ = self.importer(frame)
        if how == 0 or self.base or self.written.get(name, 0) & FAILED:
            return
        if sys.meta_path[-1] is not PATH_FINDER:
            if len(self.doubtful) < 1000:
                self.doubtful.setdefault(name, how)
            return
        self.note_failed(name, how)

    def note_failed(self, name, how):
        self.written[name] = self.written.get(name, 0) | FAILED
        self.write('{"t":"failed","m":"%s","how":"%s","at":%d}\n' % (name, HOW[how], self.at()))

    def note(self, dotted, how, by, origin):
        base = self.base or how == 0
        if base:
            how = TRANSITIVE
        ways = self.written.get(dotted, 0)
        if ways & how or how == TRANSITIVE and ways & (DIRECT | STATIC):
            return
        self.written[dotted] = ways | how
        if how == TRANSITIVE and is_inner(dotted, by, base, self.written) or not is_name(dotted):
            return
        self.write_import(dotted, how, by, origin, base)
        if dotted in self.declared:
            self.declared.discard(dotted)
            if how == TRANSITIVE and not base:
                self.written[dotted] |= STATIC
                self.write_import(dotted, STATIC, None, origin, False)

    def write_import(self, dotted, how, by, origin, base):
        copy, more = self.copy_of(origin)
        if by is not None and how == TRANSITIVE and is_name(by):
            more = ',"by":"%s"%s' % (by, more)
        if base:
            more += ',"base":true'
        self.write('{"t":"import","m":"%s","how":"%s","site":"%s"%s,"at":%d}\n' % (dotted, HOW[how], copy, more, self.at()))

    def copy_of(self, origin):
        folder = origin[:origin.rfind("/")]
        known = self.copies.get(folder)
        if known is None:
            known = self.copies[folder] = self.look_at_copy(origin)
        return known

    def look_at_copy(self, origin):
        """Files that changed after the session began, or that lie on another device than Python itself, are the session's own."""
        try:
            status = os.stat(origin)
        except OSError:
            return "unknown", ""
        if status.st_ctime <= self.session_started:
            try:
                if os.stat(origin[:origin.rfind("/")]).st_dev in self.late_part().image_devices(self):
                    return "image", ""
            except OSError:
                return "unknown", ""
        return "session", self.late_part().session_distribution(self, origin)

    def at(self):
        now = monotonic()
        if now > self.next_look:
            self.next_look = now + 0.02
            if self.thread is None:
                self.late_part().look_around(self, now)
        return self.rounded(now)

    def rounded(self, now):
        return int(now - self.began) // 10 * 10

    def late_part(self):
        late = self.late
        if late is None:
            import varve_recorder_late
            late = self.late = varve_recorder_late
        return late

    # ---- what is written ----

    def write(self, text):
        line = text.encode()
        if len(line) > MAX_LINE or self.full:
            return
        if self.size + len(line) > MAX_BYTES - MAX_LINE:
            self.full = True
            line = ('{"t":"full","dropped":1,"at":%d}\n' % self.rounded(monotonic())).encode()
        self.size += len(line)
        if self.pid != os.getpid():
            self.after_fork()             # by something that calls no fork handlers
        if self.waiting or self.identity is None or not self.is_ours():
            if len(self.waiting) < MAX_WAITING:
                self.waiting.append(line)
            return self.drain()
        try:
            count = os.write(self.fd, line)   # one call for a line: threads do not mix theirs
        except OSError:
            count = 0
        if count < len(line):
            self.waiting.insert(0, line[count:])

    def drain(self):
        """Writes the lines that wait. Of several threads, or of a signal handler within, one does it and finds what the others left."""
        waiting, draining = self.waiting, self.draining
        if not draining.acquire(False):
            return
        try:
            if (self.identity is None or not self.is_ours()) and not self.reopen():
                return
            while waiting:
                count = os.write(self.fd, waiting[0])
                if count < len(waiting[0]):
                    waiting[0] = waiting[0][count:]
                    break
                del waiting[0]
        except OSError:
            pass
        finally:
            draining.release()

    def is_ours(self):
        """Descriptors are closed by programs that do not know whose they are, and their numbers given to other files."""
        try:
            status = os.fstat(self.fd)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.identity

    def reopen(self):
        now = monotonic()
        if now < self.next_open:
            return False
        self.next_open = now + 1
        first = self.identity is None
        path = "%s/%s-%s.jsonl" % (self.spool, self.session, self.process)
        try:
            if first and self.parent is not None and len(os.listdir(self.spool)) >= MAX_FILES:
                self.next_open = now + 1e9
                return False
            self.fd = self.late_part().high_descriptor(
                os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if first else 0), 0o600))
            status = os.fstat(self.fd)
            if not first and (status.st_dev, status.st_ino) != self.identity:
                self.close()
                return False
        except OSError:
            return False
        if first:
            self.identity = (status.st_dev, status.st_ino)
            os.environ["VARVE_USAGE_PARENT"] = self.process
            self.waiting.insert(0, self.late_part().start_record(self).encode())
        self.next_open = 0.0
        return True

    def close(self):
        if self.fd >= 0 and self.is_ours():
            os.close(self.fd)
        self.fd = -1


def is_inner(dotted, by, base, written):
    """Says nothing new: deep inside the package that imports it. Of what belongs to the kernel the packages are enough."""
    package = dotted.partition(".")[0]
    if base:
        return package != dotted and package in written
    return by is not None and dotted.count(".") > 2 and package == by.partition(".")[0]


def is_magic_loader(dotted):
    return dotted.startswith("IPython.core.") and dotted[13:].startswith(MAGICS)


def module_file(name):
    """Where a loaded module lies. Its attributes are not asked for: that would load a lazy one."""
    try:
        module = sys.modules.get(name)
        path = object.__getattribute__(module, "__dict__").get("__file__")
    except Exception as error:
        keep_quiet(error)
        return None
    return path if path.__class__ is str else None


def keep_quiet(error):
    """Our own failures end here. What a signal handler of the user raised while we were at work does not: it is raised again."""
    trace = error.__traceback__
    while trace is not None:
        if "varve_recorder" not in trace.tb_frame.f_code.co_filename:
            raise error
        trace = trace.tb_next


PATH_FINDER = None
RECORDER = None


class Finder:
    """Stands before PathFinder and gives its answer."""
    __slots__ = ("find_spec",)

    def __init__(self, recorder, path_finder):
        frame_at = sys._getframe
        standard = recorder.standard

        def find_spec(name, path=None, target=None):
            if path_finder not in sys.meta_path:
                return None               # somebody took it away on purpose
            spec = path_finder.find_spec(name, path, target)
            try:
                if spec is None:
                    recorder.failed(name, path, frame_at(1))
                else:
                    origin = spec.origin
                    if origin is not None and (not origin.startswith(standard) or "-packages/" in origin):
                        recorder.found(name, spec, frame_at(1))
            except Exception as error:
                keep_quiet(error)
            return spec

        self.find_spec = find_spec


def is_wanted(environment):
    if not environment.get("VARVE_USAGE_SPOOL", "").startswith("/") or sys.implementation.name != "cpython" or sys.version_info < (3, 8):
        return False
    if environment.get("DO_NOT_TRACK", "0").lower() not in ("", "0", "false") or environment.get("VARVE_USAGE", "").lower() in ("off", "0", "no"):
        return False
    return not os.path.exists("/etc/varve/usage-off")


def start():
    """Called once per interpreter by varve_recorder.pth or .start. Never raises."""
    global RECORDER, PATH_FINDER
    try:
        if RECORDER is not None or not is_wanted(os.environ):
            return
        for finder in sys.meta_path:
            if getattr(finder, "__name__", "") == "PathFinder":
                PATH_FINDER = finder
        if PATH_FINDER is None:
            return
        RECORDER = recorder = Recorder(os.environ["VARVE_USAGE_SPOOL"], os.environ)
        os.environ["VARVE_USAGE_SESSION"] = recorder.session
        os.environ["VARVE_SESSION_STARTED"] = "%.3f" % recorder.session_started
        os.register_at_fork(after_in_child=recorder.after_fork)
        recorder.late_part().begin(recorder)
        sys.meta_path.insert(sys.meta_path.index(PATH_FINDER), Finder(recorder, PATH_FINDER))
    except Exception as error:
        keep_quiet(error)
