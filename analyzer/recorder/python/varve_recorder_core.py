# Varve usage recorder 1: what is noted of an import, and how it is written. Loaded with the first library of a process.
import os
import sys
from _thread import allocate_lock, get_ident
from time import monotonic, time

from varve_recorder import keep_quiet

MAX_BYTES = 8 << 20       # of one process
MAX_LINE = 4096
MAX_WAITING = 1000        # lines kept while the disk is full
MAX_FILES = 4096          # in a spool; further processes stay silent
BATCH_LINES = 64
BATCH_SECONDS = 0.1
DIRECT, TRANSITIVE, STATIC, FAILED = 1, 2, 4, 8
HOW = {DIRECT: "direct", TRANSITIVE: "transitive", STATIC: "static"}

# What the code of a stack frame is, by its file name; a library is a str, its dotted name.
USER, CARRIER, STANDARD, GENERATED, STARTUP = range(5)

# Standard modules that import what somebody else names: a failure below them is that somebody's.
CARRIERS = ("/importlib/", "/runpy.py", "/pkgutil.py", "/pydoc.py", "/unittest/", "/doctest.py", "/multiprocessing/", "/concurrent/",
            "/pickle.py", "/code.py", "/codeop.py", "/threading.py")
# The parts of IPython that import what a magic of a cell names.
MAGICS = ("extensions", "pylabtools", "interactiveshell", "magic", "magics.")
# Packages shared by many distributions although some of them bring an __init__.py.
SHARED = {"azure", "backports", "google", "jaraco", "mpl_toolkits", "nvidia", "ruamel", "sphinxcontrib", "zope"}


def library_name(path):
    """The dotted name of the module that a file in a site folder holds, and where its path below the site folder starts; None outside."""
    at = path.find("-packages/")
    if at < 5 or path[at - 5:at] not in ("/site", "/dist"):
        return None, 0
    at += 10
    egg = path.find(".egg/", at)
    if egg > 0:
        at = egg + 5
    if path.endswith("/__init__.py"):
        return path[at:-12].replace("/", "."), at
    if path.endswith(".py"):
        return path[at:-3].replace("/", "."), at
    dot = path.find(".", path.rfind("/"))
    rest = path[at:dot] if dot > 0 else path[at:]
    return (rest[:-9] if rest.endswith("/__init__") else rest).replace("/", "."), at


def is_name(name):
    return len(name) <= 200 and name.replace(".", "a").isidentifier() and name[0] != "."


def hexadecimal(text, length):
    return text is not None and len(text) == length and not text.strip("0123456789abcdef")


def module_file(name):
    """Where a loaded module lies. Its attributes are not asked for: that would load a lazy one."""
    try:
        path = object.__getattribute__(sys.modules.get(name), "__dict__").get("__file__")
    except Exception as error:
        keep_quiet(error)
        return None
    return path if path.__class__ is str else None


def is_magic(dotted):
    return dotted.startswith("IPython.core.") and dotted[13:].startswith(MAGICS)


class Recorder:
    def __init__(self, is_first):
        environment = os.environ
        self.spool = environment["VARVE_USAGE_SPOOL"]
        self.session = environment["VARVE_USAGE_SESSION"]
        if not hexadecimal(self.session, 32):
            self.session = environment["VARVE_USAGE_SESSION"] = os.urandom(16).hex()
        parent = environment.get("VARVE_USAGE_PARENT")
        self.parent = parent if hexadecimal(parent, 16) else None
        self.is_first = is_first
        try:
            self.session_started = float(environment.get("VARVE_SESSION_STARTED", ""))
        except ValueError:
            self.session_started = time()
        self.standard = os.path.dirname(os.__file__) + "/"
        self.kinds = {"<string>": GENERATED, "<frozen importlib._bootstrap>": CARRIER}   # file name of code -> what it is
        self.written = {}                        # module -> ways it was noted as
        self.declared = set()                    # named by user code, not loaded yet
        self.scanned = set()                     # user code that was read
        self.user_modules = {}                   # name -> file, to be read later
        self.doubtful = {}                       # names that a later finder may find -> how
        self.folders = {}                        # site folder -> whether it lies where the image does
        self.devices = {os.stat(path).st_dev for path in ("/", self.standard)}
        self.known_modules = set(sys.modules)    # names in there that need no look
        self.has_begun = False
        self.copies = {}                         # folder -> fields of its modules' records
        self.base = False                        # what is loaded now belongs to the kernel or server, not to its user
        self.program = None                      # of the kernel or server
        self.main = "other"
        self.locks = sys.modules["_frozen_importlib"].__dict__.get("_module_locks", {})
        self.life = self.text = self.copy_part = None
        self.new_process()
        self.life_part().begin(self)

    def new_process(self):
        self.pid = os.getpid()
        self.process = os.urandom(8).hex()
        self.began = monotonic()
        self.fd = -1
        self.identity = None
        self.size = 0
        self.full = False
        self.waiting = []                        # lines to be written
        self.draining = allocate_lock()
        self.next_open = self.next_drain = self.next_look = 0.0
        self.now = self.began
        self.outer = None                        # a weak reference to the lock of the import that is under way
        self.thread = None                       # the one that beats, if the process has threads anyway

    def after_fork(self):
        """In a forked child. It makes no file before it has something to say."""
        self.close()
        if self.identity is not None:
            self.parent = self.process
        self.is_first = False
        self.new_process()
        self.life_part().after_fork(self)

    # ---- what is seen ----

    def found(self, name, spec, frame):
        """`name` is about to be loaded; `frame` belongs to the import system's search."""
        search = frame.f_back
        if search is not None and search.f_code.co_name != "_find_and_load_unlocked":
            search = real_search(name, search)
        if search is None:
            return
        if name.startswith(("varve_recorder", "varve_archived")):
            return
        origin = spec.origin
        self.known_modules.add(name)
        if name.count(".") > 1:
            if name == "IPython.core.interactiveshell":
                self.life_part().watch_shell(self, spec)
            if self.is_own_affair(name, search.f_back):
                self.kinds[origin] = CARRIER if is_magic(name) else name
                return
        dotted, _ = library_name(origin)
        how, by = self.importer(search.f_back)
        if how == DIRECT:
            self.next_look = 0.0          # a new step of the program: time to look around
        if how and not self.has_begun:
            self.has_begun = True         # what is there now was made by the interpreter's start
            self.known_modules.update(sys.modules)
        if dotted is None:
            dotted = self.copies_part().adopted_library(self, origin)   # a folder that pip was told to install into
            if dotted is None:
                if len(self.user_modules) < 500:
                    self.user_modules[name] = origin
                return
        if not is_name(dotted):
            return
        if origin not in self.kinds:
            self.kinds[origin] = CARRIER if is_magic(dotted) else dotted
        self.note(dotted, how, by, origin, name)

    def is_own_affair(self, name, frame):
        """Most modules are: parts of a package that is known already, imported by another part. See note()."""
        package = name.partition(".")[0]
        if package not in self.written or package in SHARED or name in self.declared:
            return False
        kinds = self.kinds
        while frame is not None:
            kind = kinds.get(frame.f_code.co_filename)
            if kind != CARRIER:
                return kind.__class__ is str and (kind == package or kind.startswith(package + "."))
            frame = frame.f_back
        return False

    def importer(self, frame):
        """Who asked: (DIRECT, None), (TRANSITIVE, dotted name) or (0, name) for the interpreter's own start."""
        kinds = self.kinds
        while frame is not None:
            file_name = frame.f_code.co_filename
            kind = kinds.get(file_name)
            if kind is None:
                kind = self.kind_of(file_name)
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
            kind = STARTUP if path == "<frozen site>" else CARRIER if "importlib" in path or "runpy" in path else STANDARD
        elif path.startswith("<"):
            kind = USER if path.startswith(("<stdin", "<ipython-input", "<python-input", "<timed ")) else GENERATED
        else:
            kind = library_name(path)[0]
            if kind is not None:
                if is_magic(kind) or not is_name(kind):
                    kind = CARRIER
            elif path.startswith(self.standard):
                kind = STARTUP if path == self.standard + "site.py" else STANDARD
                for carrier in CARRIERS:
                    if carrier in path:
                        kind = CARRIER
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
            return CARRIER
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
                    self.text_part().read_code(self, code)
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
        if frame is not None and (self.kinds.get(frame.f_code.co_filename) or self.kind_of(frame.f_code.co_filename)) == STANDARD:
            return                        # the standard library tries what the system may lack
        how, _ = self.importer(frame)
        if how == 0 or self.base or self.written.get(name, 0) & FAILED:
            return
        if getattr(sys.meta_path[-1], "__name__", "") != "PathFinder":
            if len(self.doubtful) < 1000:
                self.doubtful.setdefault(name, how)
            return
        self.note_failed(name, how)

    def note_failed(self, name, how):
        self.written[name] = self.written.get(name, 0) | FAILED
        self.write('{"t":"failed","m":"%s","how":"%s","at":%d}\n' % (name, HOW[how], self.at()))

    def note(self, dotted, how, by, origin, name=None):
        """`name` is that of an import under way: lines about its inner modules may wait for its end."""
        base = self.base or how == 0
        if base:
            how = TRANSITIVE
            by = by or self.program
        written = self.written
        ways = written.get(dotted, 0)
        if ways & how or how == TRANSITIVE and ways & (DIRECT | STATIC):
            return
        package = dotted.partition(".")[0]
        is_inner = package != dotted and package in written
        written[dotted] = ways | how
        is_own_affair = False
        if how == TRANSITIVE and is_inner and (base or by is None or package == by.partition(".")[0]):
            depth = dotted.count(".")
            is_own_affair = base or depth > 2 or depth == 2 and package not in SHARED
        if not is_own_affair:
            self.write_import(dotted, how, by, origin, base, name if is_inner and how == TRANSITIVE else None)
        if dotted in self.declared or name in self.declared:
            self.declared.discard(dotted)
            self.declared.discard(name)
            if how == TRANSITIVE and not base:
                written[dotted] |= STATIC
                self.write_import(dotted, STATIC, None, origin, False)

    def write_import(self, dotted, how, by, origin, base, name=None):
        folder = origin[:origin.rfind("/")]
        if folder.endswith("-packages"):
            folder = origin                # a module of one file shares its folder with other distributions
        copy = self.copies.get(folder)
        if copy is None:
            copy = self.copies[folder] = self.look_at_copy(origin)
        if how == TRANSITIVE:
            if by is not None:
                copy = '%s,"by":"%s"' % (copy, by)
            if base:
                copy += ',"base":true'
        self.write('{"t":"import","m":"%s","how":"%s",%s,"at":%d}\n' % (dotted, HOW[how], copy, self.at()), name)

    def look_at_copy(self, origin):
        """Files that changed after the session began, or that lie on another device than Python itself, are the session's own."""
        try:
            if os.stat(origin).st_ctime <= self.session_started:
                folder = origin[:origin.find("-packages/") + 10] or origin[:origin.rfind("/")]
                is_image = self.folders.get(folder)
                if is_image is None:
                    is_image = self.folders[folder] = os.stat(folder).st_dev in self.devices
                if is_image:
                    return '"site":"image"'
        except OSError:
            return '"site":"unknown"'
        return '"site":"session"' + self.copies_part().session_distribution(origin)

    def at(self):
        now = self.now = monotonic()
        if now > self.next_look:
            self.next_look = now + 0.1
            self.life_part().look_around(self, now)
        return self.rounded(now)

    def rounded(self, now):
        return int(now - self.began) // 10 * 10

    def life_part(self):
        if self.life is None:
            import varve_recorder_life
            self.life = varve_recorder_life
        return self.life

    def text_part(self):
        if self.text is None:
            import varve_recorder_text
            self.text = varve_recorder_text
        return self.text

    def copies_part(self):
        if self.copy_part is None:
            import varve_recorder_copies
            self.copy_part = varve_recorder_copies
        return self.copy_part

    def finish(self):
        self.life_part().finish(self)

    # ---- what is written ----

    def write(self, text, name=None):
        """Writes a line. One that belongs to the import of `name` may wait for others, at the longest until the import has ended."""
        line = text.encode()
        if len(line) > MAX_LINE or self.full:
            return
        if self.size + len(line) > MAX_BYTES - MAX_LINE:
            self.full = True
            line = ('{"t":"full","dropped":1,"at":%d}\n' % self.rounded(monotonic())).encode()
        self.size += len(line)
        if self.pid != os.getpid():
            self.after_fork()             # by something that calls no fork handlers
        waiting = self.waiting
        if len(waiting) < MAX_WAITING:
            waiting.append(line)
        if name is None or len(waiting) >= BATCH_LINES or self.now > self.next_drain or not self.will_be_drained(name):
            self.drain()

    def will_be_drained(self, name):
        """Whether somebody comes back when the import under way ends. Its lock dies then: no other sign of that is public, or cheap."""
        outer = self.outer
        if outer is not None and outer() is not None:
            return self.outer_thread == get_ident()
        lock = self.locks.get(name)
        lock = lock and lock()
        if lock is None:
            return False
        from _weakref import ref
        self.outer_thread = get_ident()
        self.outer = ref(lock, self.import_ended)
        return True

    def import_ended(self, _):
        try:
            self.outer = None
            if self.waiting:
                self.drain()
        except Exception as error:
            keep_quiet(error)

    def drain(self):
        """Writes the lines that wait. Of several threads, or of a signal handler within, one does it and finds what the others left."""
        waiting, draining = self.waiting, self.draining
        if not draining.acquire(False):
            return
        try:
            if (self.identity is None or not self.is_ours()) and not self.reopen():
                return
            while waiting:
                count = len(waiting)
                lines = b"".join(waiting[:count])
                done = os.write(self.fd, lines)
                if done < len(lines):
                    waiting[:count] = [lines[done:]]
                    break
                del waiting[:count]
            self.next_drain = self.now + BATCH_SECONDS
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
        is_new = self.identity is None
        path = "%s/%s-%s.jsonl" % (self.spool, self.session, self.process)
        try:
            if is_new and self.is_crowded():
                self.next_open = now + 1e9
                return False
            flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_CREAT | os.O_EXCL if is_new else 0)
            self.fd = self.life_part().high_descriptor(os.open(path, flags, 0o600))
            status = os.fstat(self.fd)
            if not is_new and (status.st_dev, status.st_ino) != self.identity:
                os.close(self.fd)
                self.fd = -1
                return False
        except OSError:
            return False
        if is_new:
            self.identity = (status.st_dev, status.st_ino)
            self.waiting.insert(0, self.life_part().start_record(self).encode())
            self.size += len(self.waiting[0])
            os.environ["VARVE_USAGE_PARENT"] = self.process
        self.next_open = 0.0
        return True

    def is_crowded(self):
        try:
            return len(os.listdir(self.spool)) >= MAX_FILES
        except OSError:
            return False                  # a spool may be writable and not readable

    def close(self):
        if self.fd >= 0 and self.is_ours():
            os.close(self.fd)
        self.fd = -1


def real_search(name, frame):
    """The frame of an import, for a search that did not come from one: python -m, or a finder that asks the others. None for a mere probe."""
    depth = 0
    while frame is not None and depth < 30:
        code = frame.f_code
        if code.co_name == "_find_and_load_unlocked":
            return frame if frame.f_locals.get("name") == name else None
        if code.co_name == "_run_module_as_main":
            return frame
        frame = frame.f_back
        depth += 1
    return None
