#!/usr/bin/python3
"""lock.py WHEELS_DIR NAME...: prints pinned requirements with hashes for the named distributions, and for all they need,
from a folder that `pip download` filled. Names that another list has already are left out with --without FILE."""
import argparse, email, hashlib, re, zipfile
from pathlib import Path


def normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def read_wheel(path):
    with zipfile.ZipFile(path) as wheel:
        metadata = next(n for n in wheel.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n))
        return email.message_from_bytes(wheel.read(metadata))


def needs_of(requires, extras):
    from pip._vendor.packaging.requirements import Requirement
    for text in requires:
        requirement = Requirement(text)
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in (extras or {""}) | {""}):
            yield normal(requirement.name), frozenset(requirement.extras)


def closure(names, requires):
    """The names, as requirements, with all that they need. requires: {name: [requirement]} of what there is; what is not there is left out."""
    seen, waiting = set(), list(needs_of(names, set()))
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) not in seen and name in requires:
            seen.add((name, extras))
            waiting += needs_of(requires[name], extras)
    return {name for name, _ in seen}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheels", type=Path)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--without", type=Path, action="append", default=[])
    options = parser.parse_args()
    wheels = {}
    for path in sorted(options.wheels.glob("*.whl")):
        metadata = read_wheel(path)
        wheels[normal(metadata["Name"])] = (path, metadata)
    have = {line.split("==")[0] for file in options.without for line in file.read_text().splitlines() if "==" in line}
    names = closure(options.names, {name: metadata.get_all("Requires-Dist", []) for name, (_, metadata) in wheels.items()})
    for name in sorted(names - have):
        path, metadata = wheels[name]
        print(f"{name}=={metadata['Version']} \\\n    --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}")


if __name__ == "__main__":
    main()
