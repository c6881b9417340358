"""probes.py TREE: asks a mounted tree, call by call, what POSIX.1-2024 and Linux say of read-only file systems. Prints
{"section: question": {"answer": ..., "must": ..., "among": ...}} as JSON: `must` is there where standard or kernel
leave one answer, or (`among`) one of several. Runs as root; the tree is the one of image.py."""
import json, os, sys

import attributes, contents, listing, names, using, writing
from asking import Answers

SECTIONS = {"open": names.open_, "open, plain user": names.open_as_a_plain_user, "openat2": names.openat2,
            "access": names.access, "readlink": names.symlinks, "folders": names.folders,
            "read": contents.read, "O_DIRECT": contents.direct_io, "lseek": contents.lseek, "mmap": contents.mmap_,
            "copies": contents.copies_out, "stat": attributes.stat_, "xattr": attributes.xattrs,
            "statvfs": attributes.statvfs, "readdir": listing.readdir, "write": writing.writes, "locks": using.locks,
            "notices": using.notices, "execve": using.execve}


def main():
    os.chdir(sys.argv[1])
    answers = Answers()
    for answers.section, probe in SECTIONS.items():
        probe(answers.ask)
    json.dump(answers.found, sys.stdout)


if __name__ == "__main__":
    main()
