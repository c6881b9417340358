# Varve usage recorder 1: what user code names. Loaded when there is some. Only import statements are looked at, and of them only the
# names of libraries are kept.
import sys

from varve_recorder import keep_quiet
from varve_recorder_core import DIRECT, STATIC, TRANSITIVE, is_name, library_name, module_file

MAX_SCANNED_BYTES = 4 << 20


def read_code(recorder, code):
    """Declares what the import statements of a code object name, those of its functions included. Nothing else of it is looked at."""
    left = [MAX_SCANNED_BYTES]
    if sys.version_info < (3, 13):
        collect(code, 108, 144, 100, recorder, left, 0)   # as "import opcode" would say
    elif sys.version_info < (3, 15):
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
    known = recorder.known_modules
    for name in [name for name in list(sys.modules) if name not in known]:
        if name.__class__ is not str:
            continue
        known.add(name)
        if recorder.written.get(name):
            continue
        path = module_file(name)
        if path is None or "-packages/" not in path:
            continue
        dotted = library_name(path)[0]
        if dotted is None or recorder.written.get(dotted) or not is_name(dotted) or dotted.startswith(("varve_recorder", "varve_archived")):
            continue
        recorder.note(dotted, TRANSITIVE, None, path)


def settle_doubtful(recorder):
    while recorder.doubtful:
        name, how = recorder.doubtful.popitem()
        if name not in sys.modules:
            recorder.note_failed(name, how)
