"""Runs the cells of a notebook as its kernel would, in a session: argument 1 is a JSON file, argument 2 where to say what happened.

{"cells": [...], "then": [...]}: `then` are further cells, made up, each with a name ("kill", "fork", ...). A cell that fails ends only itself.
Which cells ran to their end is appended to the second file at once, so that a killed session has said what it did.
"""
import json, os, signal, sys


def main():
    with open(sys.argv[1]) as file:
        wanted = json.load(file)
    from IPython.core.interactiveshell import InteractiveShell
    shell = InteractiveShell.instance()
    said = open(sys.argv[2], "a", buffering=1)

    def give_up(*_):
        raise TimeoutError("the cell took too long")

    signal.signal(signal.SIGALRM, give_up)
    ok = True
    for number, text in enumerate(wanted["cells"]):
        signal.alarm(wanted.get("seconds", 20))
        said.write(json.dumps({"begun": number, "process": os.getpid()}) + "\n")
        result = shell.run_cell(text, silent=False, store_history=True)
        signal.alarm(0)
        failed = result.error_before_exec or result.error_in_exec
        ok = ok and not failed
        said.write(json.dumps({"ended": number, "failed": type(failed).__name__ if failed else None}) + "\n")
    sys.exit(0 if ok or not wanted.get("strict") else 3)


main()
