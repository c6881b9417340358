#!/usr/bin/env python3
"""Pages lead somewhere and stay small: links and anchors resolve, no page of docs/ is out of reach of README.md, files of the tree that docs/
names exist, the code names pages that exist, docs/ has no more words than a reader has time for, and the README of a room fits a screen."""
import os, re, sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
WORDS = 35_000
GENERATED = TREE / "docs/guide/configuration.md"  # by the program, as manual pages are
ROOM_LINES = 25
ROOMS = ("core", "indexer", "fuse", "snapshotter", "analyzer", "gpu", "webhook", "cli", "testing")
NAMED = re.compile(r"(?:analyzer|bench|cli|core|docs|fuse|fuzz|gpu|images|indexer|packaging|scripts|snapshotter|testing|tests|webhook)/[\w./-]*")
PAGE = re.compile(r"(?<!stargz )\bdocs/[\w/-]+\.(?:md|png)")
CODE = {".h", ".cpp", ".py", ".toml", ".cmake", ".service"}
NOT_OURS = {"build", "out", "corpus"}  # built, or inputs


def files_of_tree():
    for folder, folders, names in os.walk(TREE):
        folders[:] = [name for name in folders if not name.startswith(".") and (name not in NOT_OURS or Path(folder) == TREE / "docs")]
        yield from (Path(folder, name) for name in names)


def without_code(text):
    return re.sub(r"^(?:```|    ).*$", "", re.sub(r"(?ms)^```.*?^```$", "", text), flags=re.M)


def anchors_of(text):
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"(?ms)^```.*?^```$", "", text), re.M)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading).replace(" ", "-") for heading in plain}


def links_of(text):
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", without_code(text))):
        if not re.match(r"[a-z]+:", target):
            yield target


def main():
    files = list(files_of_tree())
    names = {file.name for file in files}
    texts = {file: file.read_text() for file in files if file.suffix == ".md"}
    docs = {file for file in texts if TREE / "docs" in file.parents}
    wrong, leads = [], {}
    for file, text in texts.items():
        here = file.relative_to(TREE)
        leads[file] = set()
        for target in links_of(text):
            path, _, anchor = target.partition("#")
            to = (file.parent / path).resolve() if path else file
            if not to.exists():
                wrong.append(f"{here}: nothing is at {target}")
            elif to in texts:
                leads[file].add(to)
                if anchor and anchor not in anchors_of(texts[to]):
                    wrong.append(f"{here}: {to.relative_to(TREE)} has no heading for #{anchor}")
        for code in re.findall(r"`([^`\n]+)`", without_code(text)):
            code = code.rstrip("/")
            if NAMED.fullmatch(code) and not (TREE / code).exists() and not list(TREE.glob(code + ".*")):
                wrong.append(f"{here}: {code} does not exist")
            elif re.fullmatch(r"[a-z0-9_]+\.(?:h|cpp)", code) and code not in names:
                wrong.append(f"{here}: no {code} anywhere")

    for file in files:
        if file.suffix in CODE or file.name in ("CMakeLists.txt", "Makefile"):
            wrong += [f"{file.relative_to(TREE)}: {page} does not exist" for page in PAGE.findall(file.read_text()) if not (TREE / page).exists()]

    reached, ahead = set(), [TREE / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in reached:
            reached.add(page)
            ahead += leads[page]
    wrong += [f"{page.relative_to(TREE)}: no way leads here from README.md" for page in sorted(docs - reached)]

    words = sum(len(texts[page].split()) for page in docs if page != GENERATED)
    if words > WORDS:
        wrong.append(f"docs has {words} words, more than {WORDS}")
    rooms = {file.parent for file in files if file.name == "CMakeLists.txt" and file.relative_to(TREE).parts[0] in ROOMS}
    for room in sorted(rooms):
        if room / "README.md" not in texts:
            wrong.append(f"{room.relative_to(TREE)}: has no README.md")
    for page, text in texts.items():
        lines = sum(not line.startswith("|") for line in text.splitlines())
        if page.name == "README.md" and page.parent != TREE and page not in docs and lines > ROOM_LINES:
            wrong.append(f"{page.relative_to(TREE)}: {lines} lines beside its tables, more than {ROOM_LINES}")
    if wrong:
        sys.exit("\n".join(wrong))
    print(f"{len(docs)} pages with {words} words, {len(rooms)} rooms, {sum(map(len, leads.values()))} links between pages")


if __name__ == "__main__":
    main()
