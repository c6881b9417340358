# Varve usage recorder 1: the parts that varve_recorder.py needs only when something happens: the first record of a process, user code to
# be read, cells, installs, accelerators, heartbeats, the end. Nothing here is imported by anything else.
import os
import sys
from time import monotonic, time, gmtime

from varve_recorder import (STATIC, TRANSITIVE, DIRECT, hexadecimal, is_inner, is_name, keep_quiet, library_name, module_file)

WRITER = "recorder 1"
BEAT_SECONDS = 60
ROOT = ""                  # before /proc and /dev: for tests
MAX_RECORD_BYTES = 4 << 20 # of a distribution's RECORD
MAX_SCANNED_BYTES = 4 << 20


# ---- the process ----

class Life:
    """What a process has done so far; one per process."""

    def __init__(self, now):
        self.last_beat = now
        self.cells = 0
        self.busy = 0.0
        self.cell_began = None
        self.cell_ended = now
        self.gpu = None            # (present, models, driver, used) as last written
        self.next_gpu_look = now
        self.next_install_look = now
        self.wake = None


LIFE = Life(monotonic())
WATCHED = None                     # an Installs, where this process reports what is installed
KNOWN_MODULES = set()              # names in sys.modules that were looked at
SERVERS = ("jupyter-lab", "jupyter-notebook", "jupyter-server", "jupyter-labhub", "jupyter-nbclassic", "jupyterhub-singleuser", "jupyterlab",
           "notebook", "jupyter_server", "jupyterhub.singleuser")


def begin(recorder):
    global WATCHED
    import atexit
    KNOWN_MODULES.update(sys.modules)
    recorder.main, recorder.base, program = what_runs(command_line())
    recorder.program = program
    atexit.register(finish, recorder)
    if recorder.parent is None or recorder.main == "kernel":
        WATCHED = Installs(site_folders())
        recorder.drain()
        look_at_gpu(recorder, monotonic())


def command_line():
    words = getattr(sys, "orig_argv", None)
    if words is None:
        try:
            with open("/proc/self/cmdline", "rb", 0) as file:
                words = [os.fsdecode(word) for word in file.read(65536).split(b"\0")[:-1]]
        except OSError:
            words = []
    return list(words)


def what_runs(words):
    """(kind of main program, whether what it loads is its own affair until its user says something, its module or program name or None)"""
    i = 1
    while i < len(words) and words[i].startswith("-") and words[i] != "-":
        word = words[i]
        if word.startswith("--"):
            i += 2 if word == "--check-hash-based-pycs" else 1
            continue
        for at, letter in enumerate(word[1:], 2):
            if letter in "cm":
                value = word[at:] or (words[i + 1] if i + 1 < len(words) else "")
                return ("other", False, None) if letter == "c" else what_module_runs(value)
            if letter in "WX":
                i += not word[at:]
                break
        i += 1
    if i >= len(words):
        return ("repl" if os.isatty(0) else "script"), False, None
    name = os.path.basename(words[i])
    if name == "jupyter" and i + 1 < len(words):
        name = "jupyter-" + words[i + 1]
    if name in SERVERS:
        return "other", True, name.replace("-", "_")
    if name in ("ipython", "ipython3"):
        return "repl", True, "IPython"
    if name == "ipykernel_launcher.py":
        return "kernel", True, "ipykernel_launcher"
    return "script", False, None


def what_module_runs(module):
    if module.endswith("kernel_launcher") or module in ("ipykernel", "spyder_kernels.console"):
        return "kernel", True, module
    if module == "IPython":
        return "repl", True, module
    return ("other", True, module) if module in SERVERS else ("module", False, module)


def start_record(recorder):
    fields = [("v", 1), ("session", recorder.session), ("process", recorder.process)]
    if recorder.parent is not None:
        fields.append(("parent", recorder.parent))
    now = gmtime(time())
    fields.append(("day", "%04d-%02d-%02d" % (now.tm_year, now.tm_mon, now.tm_mday)))
    image = os.environ.get("VARVE_IMAGE", "")
    if image.startswith("sha256:") and hexadecimal(image[7:], 64):
        fields.append(("image", image))
    fields.append(("writer", WRITER))
    try:
        user = user_hash(recorder, "%04d-%02d" % (now.tm_year, now.tm_mon))
        if user:
            fields.append(("user", user))
    except Exception as error:
        keep_quiet(error)
    system = os.uname()
    fields.append(("python", "%d.%d.%d" % sys.version_info[:3]))
    fields.append(("platform", "%s-%s" % (system.sysname.lower(), system.machine)))
    fields.append(("main", recorder.main))
    return '{"t":"start",' + ",".join('"%s":%s' % (key, value if value.__class__ is int else '"%s"' % value) for key, value in fields) + "}\n"


def user_hash(recorder, month):
    given = os.environ.get("VARVE_USAGE_USER_HASH")
    if given is not None:
        return given if hexadecimal(given, 32) else None
    for variable in ("VARVE_USAGE_USER", "JUPYTERHUB_USER", "NB_USER", "USER"):
        name = os.environ.get(variable)
        if name:
            break
    else:
        name = str(os.getuid())
    salt = os.environ.get("VARVE_USAGE_SALT")
    salt = salt.encode("utf-8", "surrogateescape") if salt else salt_of(recorder, month)
    return hmac_sha256(salt, name.encode("utf-8", "surrogateescape"))[:32] if salt else None


def salt_of(recorder, month):
    """The salt of the month, made by whoever is first. It appears under its name whole: a reader never sees half of it."""
    path = "%s/salt-%s" % (recorder.spool, month)
    salt = read_small(path)
    if salt is None:
        mine = "%s/.salt-%s" % (recorder.spool, recorder.process)
        fd = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, os.urandom(32))
            os.link(mine, path)
        except FileExistsError:
            pass
        finally:
            os.close(fd)
            os.unlink(mine)
        salt = read_small(path)
    return salt if salt is not None and len(salt) == 32 else None


def hmac_sha256(key, message):
    try:
        from _sha2 import sha256
    except ImportError:
        try:
            from _sha256 import sha256
        except ImportError:
            from hashlib import sha256
    if len(key) > 64:
        key = sha256(key).digest()
    key = key.ljust(64, b"\0")
    inner = sha256(bytes(byte ^ 0x36 for byte in key) + message).digest()
    return sha256(bytes(byte ^ 0x5C for byte in key) + inner).hexdigest()


def read_small(path, limit=65536):
    """None if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        data = b""
        while len(data) < limit:
            piece = os.read(fd, limit - len(data))
            if not piece:
                break
            data += piece
        return data
    except OSError:
        return None
    finally:
        os.close(fd)


def high_descriptor(fd):
    """Programs count on small numbers, and close those they believe to be theirs."""
    from fcntl import fcntl, F_DUPFD_CLOEXEC
    for lowest in (500, 50):
        try:
            high = fcntl(fd, F_DUPFD_CLOEXEC, lowest)
        except OSError:
            continue
        os.close(fd)
        return high
    return fd


def after_fork(recorder):
    global LIFE, WATCHED
    LIFE = Life(monotonic())
    WATCHED = None


# ---- user code ----

def read_code(recorder, code):
    """Declares what the import statements of a code object name, those of its functions included. Nothing else of it is looked at."""
    left = [MAX_SCANNED_BYTES]
    if sys.version_info < (3, 15):
        import opcode
        collect(code, opcode.opmap["IMPORT_NAME"], opcode.opmap["EXTENDED_ARG"], opcode.opmap["LOAD_CONST"], recorder, left, 0)
    else:
        collect_slowly(code, recorder, left)


def collect(code, import_name, extended, load_const, recorder, left, depth):
    content = code.co_code
    left[0] -= len(content)
    if left[0] < 0 or depth > 50:
        return

    def operand(at):  # with its prefixes; and where they begin
        value, shift = content[at + 1], 8
        while at >= 2 and content[at - 2] == extended:
            at -= 2
            value |= content[at + 1] << shift
            shift += 8
        return value, at

    at = content.find(import_name)
    while at >= 0:
        if not at & 1:
            name, before = operand(at)
            items, level = None, 0
            if before >= 2 and content[before - 2] == load_const:
                index, before = operand(before - 2)
                items = code.co_consts[index] if index < len(code.co_consts) else None
                if before >= 2:
                    level, _ = operand(before - 2)
                    if content[before - 2] == load_const:
                        level = code.co_consts[level] if level < len(code.co_consts) else 0
            if level == 0 and name < len(code.co_names):
                declare_statement(recorder, code.co_names[name], items)
        at = content.find(import_name, at + 1)
    for constant in code.co_consts:
        if constant.__class__ is code.__class__:
            collect(constant, import_name, extended, load_const, recorder, left, depth + 1)


def collect_slowly(code, recorder, left):
    import dis
    waiting = [code]
    while waiting and left[0] > 0:
        code = waiting.pop()
        left[0] -= len(code.co_code)
        items = None
        for instruction in dis.get_instructions(code):
            if instruction.opname == "IMPORT_NAME":
                declare_statement(recorder, str(instruction.argval), items)
            items = instruction.argval if instruction.opname == "LOAD_CONST" else None
        waiting.extend(constant for constant in code.co_consts if constant.__class__ is code.__class__)


def declare_statement(recorder, name, items):
    declare(recorder, name)
    if items.__class__ is tuple:
        for item in items[:100]:
            if item.__class__ is str and item != "*":
                declare(recorder, name + "." + item)


def declare(recorder, name):
    """User code names a module. Loaded already: that is use as well. Not loaded yet: remembered, in case another library loads it first."""
    if recorder.written.get(name, 0) & (DIRECT | STATIC):
        return
    path = module_file(name)
    if path is None:
        if len(recorder.declared) < 10000:
            recorder.declared.add(name)
        return
    dotted = library_name(path)[0]
    if dotted is None:
        dotted = recorder.kinds.get(path)
    if dotted.__class__ is not str or not is_name(dotted):
        return
    ways = recorder.written.get(dotted, 0)
    if not ways & (DIRECT | STATIC):
        recorder.written[dotted] = ways | STATIC
        recorder.write_import(dotted, STATIC, None, path, False)


LITERALS = STATEMENT = None
PYTHON_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun", "%%memit", "%%mprun", "%%lprun", "%%python", "%%debug")


def read_cell(recorder, text):
    """The import statements of a cell's text: lines, after strings and comments are taken out. Only names of loaded libraries are kept."""
    global LITERALS, STATEMENT
    if text.__class__ is not str or "import" not in text or len(text) > MAX_SCANNED_BYTES:
        return
    if text.lstrip().startswith("%%") and not text.lstrip().startswith(PYTHON_MAGICS):
        return
    if STATEMENT is None:
        import re
        LITERALS = re.compile(r"""\"\"\"(?:[^\\]|\\.)*?(?:\"\"\"|\Z)|'''(?:[^\\]|\\.)*?(?:'''|\Z)|"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|#[^\n]*|\\\n""", re.S)
        STATEMENT = re.compile(r"(?:^|[;:])[ \t]*(?:%%?\w+[ \t]+)?(?:from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n;]*)|import[ \t]+([^\n;]*))", re.M)
    text = LITERALS.sub(lambda literal: " " if literal.group() == "\\\n" else "", text)
    for origin, items, names in STATEMENT.findall(text):
        if origin:
            words = [word.split() for word in items.strip("() \t").replace("\n", " ").split(",")]
            if not origin.startswith("."):
                declare_statement(recorder, origin, tuple(word[0] for word in words if word and is_name(word[0])))
        else:
            for word in names.split(","):
                word = word.split()
                if word and is_name(word[0]):
                    declare(recorder, word[0])


def read_user_modules(recorder):
    """The user's own modules: what their code names. Their names go nowhere."""
    while recorder.user_modules:
        name, path = recorder.user_modules.popitem()
        try:
            spec = object.__getattribute__(sys.modules[name], "__dict__").get("__spec__")
            if type(spec.loader).__name__ == "SourceFileLoader" and spec.origin == path:
                code = spec.loader.get_code(spec.name)
                if code is not None:
                    read_code(recorder, code)
        except Exception as error:
            keep_quiet(error)


def reconcile(recorder):
    """What is in sys.modules and was not seen coming: other finders, modules made from C."""
    settle_doubtful(recorder)
    if recorder.user_modules:
        read_user_modules(recorder)
    if len(sys.modules) == len(KNOWN_MODULES):
        return
    for name in list(sys.modules):
        if name in KNOWN_MODULES or name.__class__ is not str:
            continue
        KNOWN_MODULES.add(name)
        if recorder.written.get(name):
            continue
        path = module_file(name)
        if path is None:
            continue
        dotted = library_name(path)[0]
        if dotted is None or recorder.written.get(dotted) or not is_name(dotted):
            continue
        if is_inner(dotted, dotted, recorder.base, recorder.written):
            recorder.written[dotted] = TRANSITIVE
        else:
            recorder.note(dotted, TRANSITIVE, None, path)


def settle_doubtful(recorder):
    while recorder.doubtful:
        name, how = recorder.doubtful.popitem()
        if name not in sys.modules:
            recorder.note_failed(name, how)


# ---- which copy ----

DEVICES = None


def image_devices(recorder):
    global DEVICES
    if DEVICES is None:
        DEVICES = {os.stat(path).st_dev for path in ("/", recorder.standard)}
    return DEVICES


def is_distribution(entry):
    return entry.endswith((".dist-info", ".egg-info")) and entry[:1].isalnum()


def name_and_version(entry):
    """Of "Name-1.0.dist-info" or "Name-1.0-py3.11.egg-info"; the version may be unknown."""
    name, _, version = entry[:-10].partition("-")
    if entry.endswith(".egg-info"):
        version = version.partition("-py")[0]
    return name, version


def normalised(name):
    name = name.replace("_", "-").replace(".", "-").lower()
    while "--" in name:
        name = name.replace("--", "-")
    return name


class Owners:
    """Which distribution of a site folder has a file: by the RECORDs, the likeliest first."""

    def __init__(self, folder):
        self.folder = folder
        try:
            self.entries = [entry for entry in os.listdir(folder) if entry.endswith(".dist-info") and entry[:1].isalnum()]
        except OSError:
            self.entries = []
        self.records = {}
        self.left = 64 << 20

    def owner(self, path):
        likely = normalised(path.partition("/")[0].partition(".")[0])
        line = b"\n" + os.fsencode(path) + b","
        quoted = b'\n"' + os.fsencode(path) + b'",'
        for entry in sorted(self.entries, key=lambda entry: (normalised(name_and_version(entry)[0]) != likely, entry not in self.records)):
            record = self.records.get(entry)
            if record is None and self.left > 0:
                record = b"\n" + (read_small("%s/%s/RECORD" % (self.folder, entry), MAX_RECORD_BYTES) or b"")
                self.left -= len(record)
                self.records[entry] = record if len(record) < 1 << 20 else None
            if record is not None and (line in record or quoted in record):
                return entry
        return None


OWNERS = {}
MAX_OWNERS = 100


def owners_of(folder):
    owners = OWNERS.get(folder)
    if owners is None:
        if len(OWNERS) >= MAX_OWNERS:
            OWNERS.clear()
        owners = OWNERS[folder] = Owners(folder)
    return owners


def session_distribution(recorder, origin):
    """Name and version of the distribution that has this file, as fields of a record; "" if none says that it has it."""
    at = library_name(origin)[1]
    folder = origin[:origin.find("-packages/") + 9] if at else folder_on_path(origin)
    if folder is None:
        return ""
    entry = owners_of(folder).owner(origin[len(folder) + 1:])
    if entry is None:
        return ""
    name, version = name_and_version(entry)
    if not is_plain(name) or not is_plain(version):
        return ""
    return ',"d":"%s","ver":"%s"' % (name, version) if version else ',"d":"%s"' % name


def is_plain(text):
    return len(text) <= 200 and not text.translate(PLAIN)


PLAIN = {ord(letter): None for letter in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+!-"}


def folder_on_path(path):
    best = None
    for entry in sys.path:
        if entry.__class__ is str and path.startswith(entry.rstrip("/") + "/") and entry and len(entry) > len(best or ""):
            best = entry
    return best.rstrip("/") if best else None


def adopted_library(recorder, origin):
    """The dotted name of a file outside the site folders that pip installed there (pip install --target); None for all others."""
    folder = folder_on_path(origin)
    if folder is None or not owners_of(folder).entries:
        return None
    path = origin[len(folder) + 1:]
    if owners_of(folder).owner(path) is None:
        return None
    return library_name("/site-packages/" + path)[0]


# ---- installs ----

def site_folders():
    """The site folders of this Python in the order of sys.path; one that pip --user may yet make is among them."""
    folders = [entry.rstrip("/") for entry in sys.path if entry.__class__ is str and entry.rstrip("/").endswith(("/site-packages", "/dist-packages"))]
    site = sys.modules.get("site")
    user = getattr(site, "USER_SITE", None)
    if user and getattr(site, "ENABLE_USER_SITE", False) and user not in folders:
        folders.insert(0, user)
    for folder in getattr(site, "getsitepackages", list)():
        if folder not in folders:
            folders.append(folder)
    return folders


def changed_at(folder):
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None


class Installs:
    """Notices that distributions come, go and change in the site folders while the process lives."""

    def __init__(self, folders):
        self.stamps = [(folder, changed_at(folder)) for folder in folders]
        self.known = None                  # folder -> {normalised name: (version, entry)}
        self.since = time()

    def remember(self):
        """Called early, but not at the start: reading a large folder takes a millisecond."""
        if self.known is None:
            known = {folder: self.entries(folder) for folder, _ in self.stamps}
            if [stamp for _, stamp in self.stamps] == [changed_at(folder) for folder, _ in self.stamps]:
                self.known = known
            else:
                self.stamps = []           # too late to know what was there

    @staticmethod
    def entries(folder):
        try:
            names = os.listdir(folder)
        except OSError:
            names = []
        found = {}
        for entry in names:
            if is_distribution(entry):
                name, version = name_and_version(entry)
                found[normalised(name)] = (version, entry)
        return found

    def effective(self, known):
        result = {}
        for folder, _ in reversed(self.stamps):
            for name, (version, entry) in known.get(folder, {}).items():
                result[name] = (version, folder, entry)
        return result

    def look(self, recorder, is_final):
        if self.known is None:
            return self.remember()
        stamps = [(folder, changed_at(folder)) for folder, _ in self.stamps]
        if stamps == self.stamps:
            return
        newest = max(stamp or 0 for _, stamp in stamps)
        if not is_final and newest > (time() - 5) * 1e9:
            return                         # an installation may be under way
        before = self.effective(self.known)
        checked = time()
        self.stamps = stamps
        self.known = {folder: self.entries(folder) for folder, _ in stamps}
        after = self.effective(self.known)
        for name in sorted(set(before) | set(after)):
            self.compare(recorder, name, before.get(name), after.get(name))
        self.since = checked
        OWNERS.clear()
        recorder.copies.clear()

    def compare(self, recorder, name, before, after):
        if before is not None and after is not None and before[:2] == after[:2] and not self.is_new(after):
            return
        old, new = before[0] if before else "", after[0] if after else ""
        if not is_plain(name) or not is_plain(old) or not is_plain(new):
            return
        fields = ""
        if before is not None and old:
            fields += ',"from":"%s"' % old
        if after is not None and new:
            fields += ',"to":"%s"' % new
        why = "removed" if after is None else "new" if before is None else compare_versions(old, new)
        recorder.write('{"t":"install","d":"%s"%s,"why":"%s","tool":"%s","at":%d}\n' % (name, fields, why, self.tool(after), recorder.at()))

    def is_new(self, after):
        try:
            return os.stat("%s/%s" % after[1:]).st_ctime > self.since
        except OSError:
            return False

    @staticmethod
    def tool(after):
        text = read_small("%s/%s/INSTALLER" % after[1:], 100) if after else None
        text = (text or b"").strip().decode("ascii", "replace")
        return text if text in ("pip", "uv", "conda") else "other"


def compare_versions(old, new):
    if old == new:
        return "same"
    try:
        a, b = version_key(old), version_key(new)
    except ValueError:
        return "upgrade"
    return "same" if a == b else "upgrade" if a < b else "downgrade"


def version_key(text):
    """Orders versions as PEP 440 does. Raises ValueError on others."""
    import re
    match = re.match(r"v?(?:(\d+)!)?(\d+(?:\.\d+)*)(?:[-_.]?(alpha|a|beta|b|preview|pre|c|rc)[-_.]?(\d*))?((?:[-_.]?(?:post|rev|r)[-_.]?\d*)|-\d+)?"
                     r"([-_.]?dev[-_.]?\d*)?(?:\+([a-z0-9._-]+))?$", text.strip().lower())
    if match is None:
        raise ValueError("not a version")
    epoch, release, pre, pre_number, post, dev, local = match.groups()
    release = [int(part) for part in release.split(".")]
    while release and release[-1] == 0:
        release.pop()

    def number(piece):
        return int("".join(letter for letter in piece if letter.isdigit()) or "0")

    if pre:
        stage = ({"a": 1, "alpha": 1, "b": 2, "beta": 2}.get(pre, 3), number(pre_number))
    else:
        stage = (0, 0) if dev and not post else (4, 0)     # 1.0.dev1 comes before 1.0a1
    pieces = tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in re.split(r"[._-]", local)) if local else ()
    return (int(epoch or 0), release, stage, number(post) if post else -1, number(dev) if dev else float("inf"), pieces)


# ---- accelerators ----

def look_at_gpu(recorder, now):
    if LIFE.gpu is not None and (LIFE.gpu[3] or not LIFE.gpu[0] or now < LIFE.next_gpu_look):
        return
    LIFE.next_gpu_look = now + 10
    if LIFE.gpu is None:
        present = any(os.path.exists(ROOT + path) for path in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/kfd"))
        state = (present, gpu_models() if present else [], gpu_driver() if present else "", present and gpu_used())
        is_news = recorder.parent is None or recorder.main == "kernel" or state[3]
    else:
        state = LIFE.gpu[:3] + (gpu_used(),)
        is_news = state[3]
    LIFE.gpu = state
    if is_news:
        fields = ',"models":[%s]' % ",".join('"%s"' % model for model in state[1])
        if state[2]:
            fields += ',"driver":"%s"' % state[2]
        recorder.write('{"t":"gpu","present":%s%s,"used":%s,"at":%d}\n' % (truth(state[0]), fields, truth(state[3]), recorder.at()))


def truth(value):
    return "true" if value else "false"


def gpu_models():
    """Of the devices that this container has, if it can be told, else of all."""
    models, mine = [], []
    folder = ROOT + "/proc/driver/nvidia/gpus"
    try:
        names = sorted(os.listdir(folder))[:64]
    except OSError:
        names = []
    for name in names:
        fields = {}
        for line in (read_small("%s/%s/information" % (folder, name)) or b"").decode("ascii", "replace").splitlines():
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip()
        model = "".join(letter for letter in fields.get("Model", "") if letter.isalnum() or letter in " -_.()/")[:80]
        if model:
            models.append(model)
            if os.path.exists("%s/dev/nvidia%s" % (ROOT, fields.get("Device Minor", "?"))):
                mine.append(model)
    return (mine or models)[:16]


def gpu_driver():
    for word in (read_small(ROOT + "/proc/driver/nvidia/version") or b"").decode("ascii", "replace").split():
        if "." in word and word.replace(".", "").isdigit() and len(word) < 32:
            return word
    return ""


def gpu_used():
    """The driver's library is mapped, or one of its device nodes. That a framework loaded its own CUDA libraries is not use."""
    maps = read_small(ROOT + "/proc/self/maps", 16 << 20) or b""
    return any(mark in maps for mark in (b"/libcuda.so", b"/dev/nvidia", b"/dev/kfd", b"/libhsa-runtime64.so"))


# ---- cells ----

def watch_shell(recorder, spec):
    """IPython is about to load its shell: each shell made from it tells when a cell begins and ends."""
    loader = spec.loader
    load = loader.exec_module

    def exec_module(module):
        load(module)
        try:
            attach_to_class(recorder, module.InteractiveShell)
        except Exception as error:
            keep_quiet(error)

    loader.exec_module = exec_module


def attach_to_class(recorder, shell_class):
    init_events = shell_class.init_events

    def init_events_and_tell(shell, *arguments, **options):
        init_events(shell, *arguments, **options)
        try:
            shell.events.register("pre_run_cell", lambda info=None: cell_begins(recorder, info))
            shell.events.register("post_run_cell", lambda result=None: cell_ends(recorder))
        except Exception as error:
            keep_quiet(error)

    shell_class.init_events = init_events_and_tell


def cell_begins(recorder, info):
    try:
        if recorder.base and recorder.main != "other":
            reconcile(recorder)
            recorder.base = False
        LIFE.cells += 1
        LIFE.cell_began = monotonic()
        if WATCHED is not None:
            WATCHED.remember()
        read_cell(recorder, getattr(info, "raw_cell", None))
        look_around(recorder, LIFE.cell_began)
    except Exception as error:
        keep_quiet(error)


def cell_ends(recorder):
    try:
        now = monotonic()
        if LIFE.cell_began is not None:
            LIFE.busy += now - LIFE.cell_began
            LIFE.cell_began = None
        LIFE.cell_ended = now
        reconcile(recorder)
        if WATCHED is not None:
            WATCHED.look(recorder, True)
        look_at_gpu(recorder, now)
    except Exception as error:
        keep_quiet(error)


# ---- heartbeats and the end ----

def look_around(recorder, now):
    """Now and then while imports happen, for processes without our thread."""
    if recorder.thread is None and has_threads():
        start_thread(recorder)
    if now - LIFE.last_beat >= BEAT_SECONDS:
        beat(recorder)
    elif WATCHED is not None and now >= LIFE.next_install_look:
        LIFE.next_install_look = now + 5
        WATCHED.look(recorder, False)


def has_threads():
    """A process of one thread stays one: fork() warns in others, and unshare() fails."""
    try:
        return os.stat("/proc/self/task").st_nlink > 3
    except OSError:
        return False


def start_thread(recorder):
    recorder.thread = False
    if not is_main_interpreter():
        return
    from _thread import allocate_lock, start_new_thread
    LIFE.wake = allocate_lock()
    LIFE.wake.acquire()
    try:
        recorder.thread = start_new_thread(beat_until_woken, (recorder, LIFE))
    except RuntimeError:
        pass


def is_main_interpreter():
    try:
        if sys.version_info >= (3, 13):
            import _interpreters as interpreters
        else:
            import _xxsubinterpreters as interpreters
        return interpreters.get_current() == interpreters.get_main()
    except ImportError:
        return True


def beat_until_woken(recorder, life):
    try:
        from _signal import pthread_sigmask, SIG_BLOCK, valid_signals
        pthread_sigmask(SIG_BLOCK, valid_signals())
        while not life.wake.acquire(True, BEAT_SECONDS):
            beat(recorder)
    except Exception:
        pass                               # a thread of ours has nobody to tell


def beat(recorder):
    now = monotonic()
    LIFE.last_beat = now
    reconcile(recorder)
    if WATCHED is not None:
        WATCHED.look(recorder, False)
    look_at_gpu(recorder, now)
    write_beat(recorder, now)


def write_beat(recorder, now):
    busy = LIFE.busy
    idle = 0.0
    if LIFE.cell_began is not None:
        busy += now - LIFE.cell_began
    elif LIFE.cells or recorder.main == "kernel":
        idle = now - LIFE.cell_ended
    recorder.write('{"t":"beat","cells":%d,"busy":%d,"idle":%d,"gpu_used":%s,"at":%d}\n'
                   % (LIFE.cells, busy, idle, truth(LIFE.gpu is not None and LIFE.gpu[3]), recorder.rounded(now)))


def finish(recorder):
    try:
        if LIFE.wake is not None:
            LIFE.wake.release()
        recorder.thread = False
        reconcile(recorder)
        if WATCHED is not None:
            WATCHED.look(recorder, True)
        if recorder.identity is None:
            return                         # a child that used nothing
        now = monotonic()
        LIFE.next_gpu_look = now
        look_at_gpu(recorder, now)
        write_beat(recorder, now)
        failed = recorder.main in ("script", "module") and (hasattr(sys, "last_type") or hasattr(sys, "last_exc"))
        recorder.write('{"t":"end","exit":"%s","at":%d}\n' % ("error" if failed else "ok", recorder.rounded(now)))
    except Exception as error:
        keep_quiet(error)
