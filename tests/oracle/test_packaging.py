#!/usr/bin/env python3
"""Versions, specifiers, markers and requirements against the library `packaging`, install records against importlib.metadata: made at random from a fixed seed,
written by hand, and everything that is installed beside this Python."""
import base64, csv, importlib.metadata as metadata, inspect, io, itertools, json, os, random, re, shutil, subprocess, sys
from pathlib import Path


def skip(reason):
    print(f"skipped: {reason}", flush=True)
    sys.exit(77)


try:
    import packaging
    from packaging.markers import InvalidMarker, Marker, UndefinedComparison
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.specifiers import InvalidSpecifier, SpecifierSet
    from packaging.utils import canonicalize_name
    from packaging.version import InvalidVersion, Version
except ImportError:
    skip("the Python library packaging is not installed")

RELEASE = tuple(int(part) for part in packaging.__version__.split(".")[:2])
if RELEASE < (23, 0):
    skip(f"packaging {packaging.__version__} reads requirements in ways of its own; 23.0 is needed")

PROBE = os.environ.get("PROBE") or str(Path(__file__).resolve().parents[2] / "build/release/tests/oracle/packaging_probe")
chance = random.Random(20240229)
failures = []


def ask(questions):
    done = subprocess.run([PROBE], input=json.dumps(questions), stdout=subprocess.PIPE, text=True, timeout=200, check=True)
    return json.loads(done.stdout)


def expect(what, ours, theirs):
    if ours != theirs:
        failures.append(f"{what}: ours {ours!r}, theirs {theirs!r}")


def attempt(make, *errors):
    try:
        return make()
    except errors:
        return None


# ---- versions

VERSIONS = """1.0 1.0.0 1 0 0.0 01.02 1.10 1.9 v1.0 V1.0 1!1.0 0!1.0 2!0 1.0a1 1.0.a.1 1.0-alpha 1.0_ALPHA_2 1.0alpha.3 1.0b 1.0beta2 1.0c1 1.0rc1 1.0pre3
1.0preview4 1.0-preview.5 1.0rc 1.0rc- 1.0.rc.dev 1.0.post1 1.0post 1.0-post 1.0-1 1.0-01 1.0rev3 1.0-r4 1.0.r.5 1.0r 1.0a1.post2 1.0a-1 1.0a--1 1.0.dev1 1.0dev
1.0-dev 1.0_dev_3 1.0.dev- 1.0a1.dev2 1.0.post1.dev2 1.0a1.post2.dev3 1.0+abc 1.0+ABC.1 1.0+1.abc 1.0+ubuntu-1 1.0+ubuntu_1 1.0+a.b.c 1.0+001 1.0+1 1.0+10
1.0+9 1.0+a10 1.0.post1+local 1.0rc1+local 1.0.dev1+g1234567 2.1.0+cu118 2.1.0+cpu 20240101 2024.1.1 1.2.3.4.5.6.7.8.9 99999999999999999999999999
1.99999999999999999999999998 1.0.dev20240101123456789012345678 0.0.1.dev0 1!0.dev0 0!0.0.0 3.0.0b10 3.0.0b9 1.0.post10 1.0.post9 1.1.dev0""".split()
NO_VERSIONS = ["", "x", "1.", ".1", "1..2", "1.0-", "1.0+", "1.0+a..b", "1.0+a.", "1.0+é", "1.0.a.b", "1.0abeta", "1.0prev1", "1.0-1-2", "1!", "!1", "1!2!3", "1.0 2", "1.0,2",
               "french toast", "1.0.dev1.post1", "1.0.post1a1", "1.0+abc+def", "v", "vv1", "1.0rc1rc2", "1.0--post1", "1.0__dev1", "1.*", "==1.0", "1.0;", "1.0\x00", "²", "1.²", "1.0alphaa"]


def random_version():
    out = chance.choice(["", "", "", "", "v", "1!", "0!", "12!"])
    out += ".".join(str(chance.choice([0, 0, 1, 2, 3, 10, 11, 100, "00", "01", 2024])) for _ in range(chance.randint(1, 5)))
    gap = lambda: chance.choice(["", "", "", ".", "-", "_"])
    number = lambda: chance.choice(["", "0", "1", "2", "10", "01"])
    if chance.random() < 0.4:
        out += gap() + chance.choice(["a", "alpha", "b", "beta", "c", "rc", "pre", "preview", "RC", "Alpha"]) + gap() + number()
    if chance.random() < 0.3:
        out += chance.choice([gap() + chance.choice(["post", "rev", "r", "POST"]) + gap() + number(), "-" + str(chance.randint(0, 12))])
    if chance.random() < 0.3:
        out += gap() + chance.choice(["dev", "DEV"]) + gap() + number()
    if chance.random() < 0.25:
        out += "+" + chance.choice(["cu118", "1", "2", "abc", "a.1", "1.a", "ubuntu-20.04", "G123", "0a", "00", "local_x"])
    return out


def broken_version():
    text = list(random_version())
    for _ in range(chance.randint(1, 2)):
        if chance.random() < 0.5:
            del text[chance.randrange(len(text))]
        text.insert(chance.randint(0, len(text)), chance.choice("..--__+!ab 0 1 *xé"))
    return "".join(text)


def check_versions():
    texts = VERSIONS + NO_VERSIONS + [random_version() for _ in range(400)] + [broken_version() for _ in range(2000)]
    good = []
    for text, ours in zip(texts, ask([["version", text] for text in texts])):
        parsed = attempt(lambda: Version(text), InvalidVersion)
        expect(f"version {text!r}", ours, parsed and [str(parsed), parsed.is_prerelease, parsed.is_postrelease])
        if parsed and not any(c > "\x7f" for c in text):
            good.append((text, parsed))
    good = good[:len(VERSIONS)] + chance.sample(good[len(VERSIONS):], 420)
    rows = ask([["compare", [text for text, _ in good]]])[0]
    for (left_text, left), row in zip(good, rows):
        for (right_text, right), ours in zip(good, row):
            expect(f"{left_text} against {right_text}", ours, "<" if left < right else ">" if left > right else "=")
    return len(texts), len(good) ** 2


# ---- specifiers

SPECIFIERS = """==1.0 ==1.0.* !=1.0 !=1.0.* >=1.0 <=1.0 >1.0 <1.0 ~=1.0 ~=1.0.0 ~=1.0a1 ~=1.0.post1 ~=1!1.0 ===1.0 ===1.0+ABC ===foo ==1.0+abc !=1.0+abc ==1!1.0 ==1!1.* ==1.*
!=1.* >=1.0a1 >1.0a1 <1.0a1 <=1.0a1 ==1.0a1 !=1.0a1 >1.0.post1 <1.0.post1 >1.0.dev1 <1.0.dev1 >=1.0.dev1 ==1.0.0.0 ==1 ==v1.0 >=1.0,<2 >=1,!=1.5.*,<2 ~=1.0,!=1.0.1
>=0 >0 <0 ==0.* ==0.0.0.* >=1.0,<1.0 ~=2.2.post3 ~=1.4.5a4 ==1.0.dev1 >1.0rc1 <1.0rc1 ==1.0rc1.* ~=1 >=1.* <2.* ===* ==* ~=1.* >=1.0+abc <1.0+abc ~=1.0+abc
==1.0.*+abc ==1.0+abc.* =1.0 1.0 ><1.0 >=,<2 => ==1.0..* >=2,<3,""".split() + ["", ",", " >= 1.0 , < 2 ", "== 1.0", ">=1.0 <2", "===  1.0rc1", "===1.0 x", ">=1.0;", "==1.0 .*", "==1. *", ">= 1 . 0"]


def random_specifier():
    out = []
    for _ in range(chance.choice([1, 1, 1, 2, 2, 3])):
        op = chance.choice(["==", "!=", ">=", "<=", ">", "<", "~=", "==="])
        text = random_version()
        if chance.random() < 0.8:
            text = text.split("+")[0]
        if op in ("==", "!=") and chance.random() < 0.4:
            text = re.match(r"v?(\d+!)?[\d.]*\d", text).group(0) + ".*"
        out.append(op + chance.choice(["", "", " "]) + text)
    return chance.choice([",", ", ", " ,"]).join(out)


def names_prerelease(specifiers):
    """Without leave for pre-releases, a set takes them if it names one. Older releases of packaging leave "<" and ">" out of this; the library's own
    answer of 26.0 and later to "contains" takes any, since nothing else is on offer."""
    versions = [attempt(lambda: Version(one.version), InvalidVersion) for one in specifiers if one.operator != "!=" and not one.version.endswith(".*")]
    return any(version is not None and version.is_prerelease for version in versions)


def settled_later(one, text):
    """Where 26.0 reads PEP 440 otherwise than releases before it: wildcards with epochs, "~=" of post-releases, and what "<" and ">" leave out around pre- and post-releases."""
    if RELEASE >= (26, 0) or one.operator == "===":
        return False
    if one.operator == "~=" and re.search(r"(^|\D)0\d", one.version):
        return True  # its digits were compared as text
    mine, named = Version(text), Version(one.version.removesuffix(".*"))
    if one.version.endswith(".*") or one.operator == "~=":
        return mine.epoch > 0 or named.epoch > 0 or named.is_postrelease
    return one.operator in "<>" and Version(mine.base_version) == Version(named.base_version) and (named.is_prerelease or named.is_postrelease)


def contained(specifiers, text, prereleases):
    """Whether "===" sees a version as written or in its normal form has changed between releases; either will do."""
    answers = [specifiers.contains(Version(text), prereleases=prereleases)]
    if any(one.operator == "===" for one in specifiers):
        rest = SpecifierSet(",".join(str(one) for one in specifiers if one.operator != "==="))
        spellings = {text.strip().lower(), str(Version(text))}
        literal = all(one.version.lower() in spellings for one in specifiers if one.operator == "===")
        answers = [literal and (prereleases or not Version(text).is_prerelease) and rest.contains(Version(text), prereleases=prereleases)]
    return answers[0]


def check_specifiers():
    versions = VERSIONS + [random_version() for _ in range(150)]
    bases = [re.match(r"v?((\d+!)?[\d.]*\d)", text, re.I).group(1) for text in versions]
    versions += [base + tail for base in sorted(set(bases))[:25] for tail in ("", ".dev1", "rc1", ".post1", "+local", ".0", ".1")]
    texts = SPECIFIERS + [random_specifier() for _ in range(300)]
    for text, ours in zip(texts, ask([["contains", text, versions] for text in texts])):
        specifiers = attempt(lambda: SpecifierSet(text), InvalidSpecifier)
        if specifiers is None or ours is None:
            expect(f"specifier {text!r} is one", ours is not None, specifiers is not None)
            continue
        prereleases = names_prerelease(specifiers)
        for i, version in enumerate(versions):
            if any(settled_later(one, version) for one in specifiers):
                continue
            expect(f"{version} in {text!r}", ours[0][i], "01"[contained(specifiers, version, True)])
            expect(f"{version} in {text!r} without pre-releases", ours[1][i], "01"[contained(specifiers, version, prereleases)])
    return len(texts) * len(versions)


# ---- markers

def environment(python, **changes):
    return {"implementation_name": "cpython", "implementation_version": python, "os_name": "posix", "platform_machine": "x86_64", "platform_release": "5.15.0",
            "platform_system": "Linux", "platform_version": "#1 SMP", "python_full_version": python, "platform_python_implementation": "CPython",
            "python_version": ".".join(python.split(".")[:2]), "sys_platform": "linux", **changes}


ENVIRONMENTS = [environment("3.11.2"), environment("3.8.18"), environment("3.13.0rc1", platform_machine="aarch64"), environment("2.7.18"),
                environment("3.10.0", sys_platform="win32", os_name="nt", platform_system="Windows"), environment("3.9.1", sys_platform="darwin", platform_system="Darwin")]
EXTRAS = ["", "test", "Dev_Tools"]
MARKERS = """python_version < "3.8"|python_version<'3.8'|python_version >= "3" and python_version < "4"|extra == "test"|extra == 'dev-tools'|extra == "DEV.tools"|extra != "test"|"test" == extra
python_version in "2.7 3.8"|python_version not in "2.7, 3.8"|sys_platform == "win32" or sys_platform == "darwin"|(os_name == "nt")|((python_version>"3"))|os.name == "posix"
platform.machine == "x86_64"|sys.platform == 'linux'|platform.python_implementation == "CPython"|python_implementation == "CPython"|platform.version == "x"
python_version == "3.*"|python_version == "3.8.*"|python_version != "3.8.*"|python_version ~= "3.8"|python_version ~= "3"|python_version === "3.11"|python_full_version < "3.9.2"
python_full_version >= "3.13"|implementation_version > "3.9.0"|implementation_name == "pypy"|"3.8" <= python_version|"linux" in sys_platform|"win" not in sys_platform
platform_release >= "4"|platform_machine != "aarch64" and extra == "test" or os_name == "nt"|extra == "a" and (extra == "b" or python_version > "3")|sys_platform in "linux darwin"
python_version|python_version <|== "3"|python_version = "3"|python_version > 3|"a" == "a" extra|(python_version > "3"|python_version > "3")|python_version > "3" and|or python_version > "3"
pythonversion > "3"|python_version > "3' |python_version not "3"|python_version notin "3"|python_version in"3.8"|python_version>"3"and os_name=="nt"|()|python_version >"3" & os_name == "nt"
os_name == "nt"or os_name == "posix"|python_version in '3.8' or(os_name=='nt')|extras|os-name == "nt"|platform_node == "x"|python_version > "3" xor os_name == "nt"|python_version <= "3.8.0"
(python_version < "3.8" and extra == "test") or (python_version >= "3.8" and (extra == "dev-tools"))|platform_system == "Linux" and platform_machine == "x86_64" """.replace("\n", "|").split("|")


def random_marker(depth=0):
    if depth < 3 and chance.random() < 0.4:
        parts = [random_marker(depth + 1) for _ in range(chance.randint(2, 3))]
        return chance.choice(["{}", "({})"]).format("".join(part + chance.choice([" and ", " or "]) for part in parts[:-1]) + parts[-1])
    kind = chance.random()
    quote = chance.choice("'\"")
    if kind < 0.55:
        variable = chance.choice(["python_version", "python_version", "python_full_version", "implementation_version"])
        value = chance.choice(["2.7", "3", "3.8", "3.9", "3.10", "3.11", "3.12", "3.8.18", "3.11.2", "3.13.0rc1"])
        op = chance.choice(["<", "<=", "==", "!=", ">=", ">"] + (["~="] if "." in value else []))
        if op in ("==", "!=") and chance.random() < 0.3 and "rc" not in value:
            value += ".*"
        sides = [variable, op, quote + value + quote]
        return " ".join(sides) if chance.random() < 0.8 or "*" in value else f"{sides[2]} {op} {variable}"
    if kind < 0.75:
        return f"extra {chance.choice(['==', '!='])} {quote}{chance.choice(['test', 'Test', 'dev-tools', 'dev_tools', 'docs'])}{quote}"
    variable = chance.choice(["sys_platform", "os_name", "platform_system", "platform_machine", "implementation_name"])
    return f"{variable} {chance.choice(['==', '!=', 'in', 'not in'])} {quote}{chance.choice(['linux', 'win32', 'posix', 'nt', 'Linux', 'x86_64', 'aarch64', 'linux darwin', ''])}{quote}"


def marker_holds(marker, surroundings, extra):
    return "01"[marker.evaluate({**surroundings, "extra": extra})]


def check_markers():
    texts = MARKERS + [random_marker() for _ in range(900)]
    for text, ours in zip(texts, ask([["marker", text, ENVIRONMENTS, EXTRAS] for text in texts])):
        marker = attempt(lambda: Marker(text), InvalidMarker)
        if marker is None or ours is None:
            if RELEASE >= (23, 1):  # before, what followed a marker was not looked at
                expect(f"marker {text!r} is one", ours is not None, marker is not None)
            continue
        for (surroundings, extra), our in zip(itertools.product(ENVIRONMENTS, EXTRAS), ours):
            try:
                theirs = marker_holds(marker, surroundings, extra)
            except (UndefinedComparison, InvalidVersion):
                continue  # the older library gives up where ours says no
            expect(f"{text} for {surroundings['python_full_version']} {surroundings['sys_platform']} [{extra}]", our, theirs)
    return len(texts) * len(ENVIRONMENTS) * len(EXTRAS)


# ---- requirements

REQUIREMENTS = """name|name>=1|name >= 1.0 , < 2|name(>=1,<2)|name (>=1)|name ()|name[a]|name[a,b]|name[ A.b , c_d ]|name[]|name [a] >=1|name[a,]|name[a b]|name[,a]|name[a|name]
name; python_version<"3"|name>=1;extra=="x"|name ; os_name=="nt" and extra == "y"|name;|name>=1;|name @ https://example.org/a.whl|name@https://example.org/a.whl
name @ https://example.org/a.whl ; python_version>"3"|name @ https://example.org/a.whl;python_version>"3"|name[a] @ file:///x/y|name @|name @ |name @ https://e.org/a b
name>=1 <2|name>=1,|name,>=1|name>=1,,<2|name>=1.*|name==1.*|name==1.0+local|name>=1.0+local|name===1.0-odd|name === a,b|na me|_name|name_|name-|-name|name.|n|9name|na--me|na._me
name>=1.0foo|name ~= 1.0|name~=1|name != 1.5.* , >= 1|zope.interface|Foo_Bar.baz>=1|name>=1 ; |name (>=1|name >=1)|name (>=1) ; extra == 'a'|(name)|name==1.0 # comment
name>= |name==|name 1.0|name (1.0)|name<=2,>1,!=1.5,===1.7|name@ git+https://github.com/a/b@main#egg=c|name>=v1.0|é>=1|nameé>=1|name[é]|name>=1.0.0.0.0||  name >= 1  """.replace("\n", "|").split("|")


def random_requirement():
    out = chance.choice(["numpy", "Foo_Bar", "zope.interface", "a", "x-y_z.w"]) + chance.choice(["", "", "[a]", "[a, B_c]", " [x]"])
    out += chance.choice(["", " "]) + (chance.choice(["{}", "({})"]).format(random_specifier().replace("===", "==")) if chance.random() < 0.7 else "")
    return out + (chance.choice([";", " ; "]) + random_marker() if chance.random() < 0.5 else "")


def describe(requirement):
    return {"name": requirement.name, "extras": sorted(map(canonicalize_name, requirement.extras)), "url": requirement.url or "",
            "specifier": sorted(map(str, requirement.specifier)), "marker": requirement.marker is not None}


def describe_ours(answer):
    text = answer["specifier"].strip()
    inner = text[1:-1] if text.startswith("(") else text
    parts = sorted(str(SpecifierSet(part)) for part in inner.split(",") if part.strip())
    return {**answer, "specifier": sorted(set(parts)), "marker": answer["marker"] is not None}


def check_requirements():
    texts = REQUIREMENTS + [random_requirement() for _ in range(600)]
    for text, ours in zip(texts, ask([["requirement", text] for text in texts])):
        theirs = attempt(lambda: Requirement(text), InvalidRequirement, InvalidSpecifier)
        if theirs is None or ours is None:
            expect(f"requirement {text!r} is one", ours is not None, theirs is not None)
        else:
            expect(f"requirement {text!r}", describe_ours(ours), {**describe(theirs), "specifier": sorted(set(map(str, theirs.specifier)))})
    names = ["Foo", "foo_bar", "foo--bar", "Foo._-Bar", "x.Y_z", "a", "zope.interface"]
    for name, ours in zip(names, ask([["normalize", name] for name in names])):
        expect(f"name {name}", ours, canonicalize_name(name))
    return len(texts)


# ---- what is installed here

def check_installed():
    questions, checks = [], []

    def question(kind, text, check):
        questions.append([kind, text])
        checks.append(check)

    count = 0
    for distribution in metadata.distributions():
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO")
        if not text or not distribution.metadata["Name"]:
            continue
        count += 1
        question("metadata", text, lambda ours, d=distribution: check_metadata(ours, d))
        if points := distribution.read_text("entry_points.txt"):
            question("entry_points", points, lambda ours, d=distribution: check_entry_points(ours, d))
        if record := distribution.read_text("RECORD"):
            question("record", record, lambda ours, r=record, d=distribution: check_record(ours, r, d))
        if requires := distribution.read_text("requires.txt"):
            question("requires_txt", requires, lambda ours, d=distribution: check_requires_txt(ours, d))
    for answer, check in zip(ask(questions), checks):
        check(answer)
    return count


def check_metadata(ours, distribution):
    fields = distribution.metadata
    for key, field in (("name", "Name"), ("version", "Version"), ("requires_python", "Requires-Python"), ("summary", "Summary")):
        theirs = fields[field] or ""
        expect(f"{distribution.metadata['Name']} {field}", ours[key], (theirs.strip().split("\n")[0].strip() if field == "Summary" else theirs.strip()))
    theirs = [attempt(lambda: describe(Requirement(text)), InvalidRequirement) for text in fields.get_all("Requires-Dist", [])]
    expect(f"{fields['Name']} Requires-Dist", [describe_ours(one) for one in ours["requires"]], [one for one in theirs if one])
    expect(f"{fields['Name']} unreadable requirements", len(ours["unreadable"]), theirs.count(None))
    expect(f"{fields['Name']} Provides-Extra", ours["extras"], fields.get_all("Provides-Extra", []))


def check_entry_points(ours, distribution):
    theirs = [[point.group, point.name, point.module, point.attr or "", sorted(point.extras)] for point in distribution.entry_points]
    expect(f"{distribution.metadata['Name']} entry points", sorted(ours), sorted(theirs))


def sha256_of(field):
    if not field.startswith("sha256="):
        return None
    text = field.removeprefix("sha256=")
    if len(text) == 64:  # Debian's packages of flit projects write hex digits where base64 is meant
        return text
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).hex()


def check_record(ours, text, distribution):
    theirs = [row for row in csv.reader(text.splitlines()) if row]
    name = distribution.metadata["Name"]
    expect(f"{name} RECORD paths", [row[0] for row in ours["rows"]], [row[0] for row in theirs])
    expect(f"{name} RECORD sizes", [row[2] for row in ours["rows"]], [int(row[2]) if len(row) > 2 and row[2] else None for row in theirs])
    expect(f"{name} RECORD hashes", [row[1] for row in ours["rows"]], [sha256_of(row[1]) if len(row) > 1 else None for row in theirs])
    expect(f"{name} RECORD unreadable", ours["unreadable"], 0)


def check_requires_txt(ours, distribution):
    theirs = [Requirement(text) for text in (distribution.requires or [])]
    expect(f"{distribution.metadata['Name']} requires.txt", [describe_ours(one) for one in ours], [describe(one) for one in theirs])


# ---- hard records by hand

def check_records():
    rows = [["a.py", "sha256=" + "A" * 43, "12"], ['b "x".py', "", ""], ["c,d.py", "md5=abc", "3"], ["e\nf.py", "", "1"], ["", "", ""], ["../../../bin/g", "", "9"], ["é.py", "", ""], ["h", "", "-1"], ["i"], []]
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    ours = ask([["record", buffer.getvalue()]])[0]
    expect("paths of a hard RECORD", [row[0] for row in ours["rows"]], [row[0] for row in rows if row and row[0]])
    requires = "a\nb>=1\n\n[x]\nc\n[:python_version<'3']\nd\n[y:os_name=='nt' or os_name=='posix']\ne>2\nf @ https://example.org/f.whl\n[z]\n"
    theirs = [Requirement(text) for text in metadata.Distribution._deps_from_requires_text(requires)]
    ours = ask([["requires_txt", requires]])[0]
    expect("requires.txt", [describe_ours(one) for one in ours], [describe(one) for one in theirs])
    for our, their in zip(ours, theirs):
        expect(f"marker of {their.name}", our["marker"] is None, their.marker is None)
        if our["marker"] and their.marker:
            answers = ask([["marker", our["marker"], ENVIRONMENTS, ["", "x", "y", "z"]]])[0]
            expect(f"marker of {their.name}", answers, "".join(marker_holds(their.marker, env, extra) for env in ENVIRONMENTS for extra in ["", "x", "y", "z"]))
    files = ["a.py", "a/__init__.py", "a/b.py", "a/_c.cpython-311-x86_64-linux-gnu.so", "a/_d.abi3.so", "a/_e.so", "a/f.pyc", "a/g.pyi", "a/h.txt", "a/__main__.py", "x.y.py"]
    for path, ours in zip(files, ask([["module", path] for path in files])):
        stem = inspect.getmodulename(path.replace("cpython-311", f"cpython-3{sys.version_info[1]}"))
        theirs = stem if stem is None or "." in stem else ".".join(path.split("/")[:-1] + [stem]).removesuffix(".__init__")
        expect(f"module of {path}", ours, None if theirs and path == "x.y.py" else theirs)


# ---- dpkg's database of this machine

def check_dpkg():
    if not (shutil.which("dpkg-query") and os.path.exists("/var/lib/dpkg/status")):
        return 0
    fields = "${Package}\\t${Version}\\t${Architecture}\\t${db:Status-Status}\\t${source:Package}\\t${Installed-Size}\\t${Pre-Depends}\\t${Depends}\\n"
    # Read before and after: somebody may be installing.
    before = Path("/var/lib/dpkg/status").read_text(errors="replace")
    listed = subprocess.run(["dpkg-query", "-W", "-f", fields], stdout=subprocess.PIPE, text=True, check=True).stdout
    if before != Path("/var/lib/dpkg/status").read_text(errors="replace") or any(Path("/var/lib/dpkg/updates").glob("[0-9]*")):
        return 0
    theirs = []
    for line in listed.splitlines():
        name, version, architecture, state, source, size, *relations = line.split("\t")
        depends = [[re.split(r"[ :(]", choice.strip())[0] for choice in one.split("|")] for text in relations if text for one in text.split(",")]
        installed = state in ("installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending")
        theirs.append([name, version, architecture, installed, source, int(size) * 1024 if size else None, depends])
    ours = ask([["dpkg", before]])[0]
    expect("unreadable stanzas of dpkg", ours["unreadable"], 0)
    for our, their in itertools.zip_longest(sorted(ours["packages"]), sorted(theirs)):
        expect(f"dpkg {(their or our)[0]}", our, their)
    return len(theirs)


def main():
    versions, pairs = check_versions()
    memberships, evaluations, requirements = check_specifiers(), check_markers(), check_requirements()
    installed, packages = check_installed(), check_dpkg()
    check_records()
    print(f"packaging {packaging.__version__}: {versions} versions, {pairs} pairs, {memberships} memberships twice, {evaluations} markers evaluated, {requirements} requirements, {installed} installed distributions, {packages} packages of dpkg; {len(failures)} differ")
    for failure in failures[:40]:
        print(failure)
    sys.exit(1 if failures else 0)


main()
