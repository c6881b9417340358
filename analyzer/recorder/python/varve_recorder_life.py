# Varve usage recorder 1: the life of a process: what it is, who its user is, its cells, accelerators, heartbeats and end.
import os
import sys
from time import monotonic, time, gmtime

from varve_recorder import keep_quiet
from varve_recorder_core import hexadecimal

WRITER = "recorder 1"
BEAT_SECONDS = 60
ROOT = ""                  # before /proc and /dev: for tests


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
WATCHED = None                     # an Installs, where this process reports what is installed; made before anything can be
SERVERS = ("jupyter-lab", "jupyter-notebook", "jupyter-server", "jupyter-labhub", "jupyter-nbclassic", "jupyterhub-singleuser", "jupyterlab",
           "notebook", "jupyter_server", "jupyterhub.singleuser")


def begin(recorder):
    recorder.main, recorder.base, recorder.program = what_runs(command_line())
    if recorder.is_first or recorder.main == "kernel":
        installs(recorder)
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
    """The salt of the month, made by whoever is first; one that somebody else put there is none. It appears under its name whole: a reader never
    sees half of it."""
    path = "%s/salt-%s" % (recorder.spool, month)
    salt = read_small(path, only_own=True)
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
        salt = read_small(path, only_own=True)
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


def read_small(path, limit=65536, only_own=False):
    """None if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_NOFOLLOW if only_own else 0))
    except OSError:
        return None
    try:
        status = os.fstat(fd) if only_own else None
        if status is not None and (status.st_uid != os.geteuid() or status.st_mode & 0o170000 != 0o100000):
            return None
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


# ---- accelerators ----

def look_at_gpu(recorder, now):
    if LIFE.gpu is not None and (LIFE.gpu[3] or not LIFE.gpu[0] or now < LIFE.next_gpu_look):
        return
    LIFE.next_gpu_look = now + 10
    if LIFE.gpu is None:
        present = any(os.path.exists(ROOT + path) for path in ("/proc/driver/nvidia/version", "/dev/nvidiactl", "/dev/kfd"))
        state = (present, gpu_models() if present else [], gpu_driver() if present else "", present and gpu_used())
        is_news = recorder.is_first or recorder.main == "kernel" or state[3]
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
            recorder.text_part().reconcile(recorder)
            recorder.base = False
        LIFE.cells += 1
        LIFE.cell_began = monotonic()
        installs(recorder)
        recorder.text_part().read_cell(recorder, getattr(info, "raw_cell", None))
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
        recorder.text_part().reconcile(recorder)
        look_at_installs(recorder, True)
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
    elif now >= LIFE.next_install_look:
        LIFE.next_install_look = now + 5
        look_at_installs(recorder, False)


def installs(recorder):
    global WATCHED
    if WATCHED is None and (recorder.is_first or recorder.main == "kernel"):
        WATCHED = recorder.copies_part().Installs()
    return WATCHED


def look_at_installs(recorder, is_final):
    if installs(recorder) is not None:
        WATCHED.look(recorder, is_final)


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
    recorder.text_part().reconcile(recorder)
    look_at_installs(recorder, False)
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
        recorder.text_part().reconcile(recorder)
        look_at_installs(recorder, True)
        if recorder.identity is None:
            return                         # a child that used nothing
        now = monotonic()
        LIFE.next_gpu_look = now
        look_at_gpu(recorder, now)
        write_beat(recorder, now)
        failed = recorder.main in ("script", "module") and not LIFE.cells and (hasattr(sys, "last_type") or hasattr(sys, "last_exc"))
        recorder.write('{"t":"end","exit":"%s","at":%d}\n' % ("error" if failed else "ok", recorder.rounded(now)))
    except Exception as error:
        keep_quiet(error)
