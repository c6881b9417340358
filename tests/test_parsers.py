"""fuzz/parsers.txt names every function that reads bytes of others, and the fuzz target that reaches it: test_parsers.py TREE."""
import re, sys
from pathlib import Path

TREE = Path(sys.argv[1])
ROOMS = ("core", "indexer", "fuse", "analyzer", "gpu", "webhook", "cli")
# A declaration: a type stands before the name.
DECLARED = re.compile(r"^\s*(?:static |inline |constexpr |\[\[\w+\]\] )*[\w:<>, *&]+[\w>*&] ((?:parse|decode|unpack)(?:_\w+)?)\(", re.M)


def main():
    sources = {file.name[: -len("_fuzz.cpp")]: file for file in (TREE / "fuzz").rglob("*_fuzz.cpp")}
    declared = {(str(header.relative_to(TREE)), name) for room in ROOMS for header in (TREE / room).rglob("*.h") for name in DECLARED.findall(header.read_text())}
    wrong, listed, used = [], set(), set()
    for line in (TREE / "fuzz/parsers.txt").read_text().splitlines():
        if not line or line.startswith("#"):
            continue
        header, name, target, *rest = line.split()
        listed.add((header, name))
        if target == "-":
            wrong += [] if rest else [f"{line}: why is there no target?"]
            continue
        used.add(target)
        source = sources.get(target)
        word = rest[1] if rest[:1] == ["through"] else name
        if source is None or word not in source.read_text():
            wrong.append(f"{header}: {name}: {target}_fuzz.cpp has no {word}")
        if not any((TREE / f"fuzz/corpus/{target}_fuzz").glob("*")):
            wrong.append(f"{target}: no corpus")
        if not re.search(rf"\b{name}\b", (TREE / header).read_text() if (TREE / header).exists() else ""):
            wrong.append(f"{header} has no {name}")
    wrong += [f"{header}: {name} is not in fuzz/parsers.txt" for header, name in sorted(declared - listed)]
    wrong += [f"{target}: a target that no line of fuzz/parsers.txt names" for target in sorted(sources.keys() - used)]
    print("\n".join(wrong) or f"{len(listed)} parsers, {len(used)} fuzz targets")
    sys.exit(bool(wrong) or not declared)


main()
