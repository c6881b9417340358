# Varve usage recorder 1: distributions in site folders: whose a file of the session's own is, and what is installed while a process runs.
import os
import sys
from time import time

from varve_recorder_core import library_name
from varve_recorder_life import read_small

MAX_RECORD_BYTES = 4 << 20 # of a distribution's RECORD


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


def session_distribution(origin):
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

    def __init__(self):
        self.since = time()
        self.stamps = [(folder, changed_at(folder)) for folder in site_folders()]
        self.known = {folder: self.entries(folder) for folder, _ in self.stamps}  # folder -> {normalised name: (version, entry)}

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
