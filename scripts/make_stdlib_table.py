#!/usr/bin/env python3
"""Writes analyzer/python/stdlib_table.inc: which top-level modules each Python has of its own.

Sources, joined: the package stdlib-list of PyPI (0.12.0 made the table that is committed; its lists come from the documentation of old Pythons and from
sys.stdlib_module_names of 3.10 and later), and every interpreter named on the command line: sys.stdlib_module_names where it has one, else its built-in
modules and what lies in its library folder. Interpreters add what the documentation is silent about ("_ssl", "_pydecimal").

usage: make_stdlib_table.py [PYTHON ...] > analyzer/python/stdlib_table.inc
"""
import json, subprocess, sys

import stdlib_list

VERSIONS = ["2.7", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14"]  # a bit each, lowest first: stdlib_names.cpp knows this order
LEFT_OUT = {"test", "site-packages", "dist-packages", "this_is_no_module"}  # sys.stdlib_module_names leaves "test" out too
ALWAYS = {"__main__", "__future__"}
# Python 2 documented modules of Mac OS 9, SGI IRIX and SunOS. Their short names ("W", "gl", "cd") would hide modules that people write today.
LONG_GONE = set("""AL Carbon ColorPicker DEVICE EasyDialogs FL FrameWork GL MacOS MiniAEFrame Nav PixMapWrapper SUNAUDIODEV W aepack aetools aetypes al
    applesingle autoGIL buildtools cd cfmfile findertools fl flp fm gensuitemodule gl ic icopen imgfile jpeg macerrors macostools macresource
    sunaudiodev videoreader CDROM DLFCN IN TYPES""".split())

# Runs in any Python from 2.7 on.
PROBE = r"""
import json, os, re, sys
names = set(getattr(sys, "stdlib_module_names", ()))
if not names:
    names.update(sys.builtin_module_names)
    library = os.path.dirname(os.__file__)
    for folder in (library, os.path.join(library, "lib-dynload"), os.path.join(library, "lib-tk")):
        for entry in (os.listdir(folder) if os.path.isdir(folder) else ()):
            whole = os.path.join(folder, entry)
            if os.path.isdir(whole):
                if any(name.endswith(".py") for name in os.listdir(whole)) and entry != "lib-tk":
                    names.add(entry)
            elif re.search(r"\.(py|so)$", entry):
                names.add(entry.split(".")[0])
print(json.dumps(["%d.%d" % sys.version_info[:2], sorted(names)]))
"""


def is_module(name):
    return name.replace("_", "a").isalnum() and not name[0].isdigit() and name not in LEFT_OUT | LONG_GONE and not name.startswith(("_sysconfigdata", "_testmodule"))


def main(interpreters):
    have = {version: {name.split(".")[0] for name in stdlib_list.stdlib_list(version)} | ALWAYS for version in VERSIONS}
    for interpreter in interpreters:
        version, names = json.loads(subprocess.run([interpreter, "-c", PROBE], stdout=subprocess.PIPE, check=True).stdout)
        have[version].update(names)
    print("// Made by scripts/make_stdlib_table.py; bits: " + " ".join(VERSIONS) + ", lowest first.")
    for name in sorted(filter(is_module, set().union(*have.values()))):
        bits = sum(1 << i for i, version in enumerate(VERSIONS) if name in have[version])
        print('{"%s", 0x%03X},' % (name, bits))


main(sys.argv[1:])
