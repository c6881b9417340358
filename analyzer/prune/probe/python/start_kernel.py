# Varve: starts one kernel of a notebook image and asks it who it is. Handed to the image's Python by start_programs.py; words: the kernel.json,
# seconds, and NAME=VALUE for the kernel's environment. Says one line of JSON: the outcome.
import json
import os
import subprocess
import sys
import tempfile
import time

ALIVE_SECONDS = 5


def words_of(error):
    return " ".join(str(error).split())[:400]


def by_protocol(path, seconds, environment):
    """What a notebook server does; ends with the kernel's first reply. None: the image has no jupyter_client."""
    try:
        from jupyter_client.kernelspec import KernelSpec
        from jupyter_client.manager import KernelManager
    except ImportError:
        return None
    manager = KernelManager(kernel_name=os.path.basename(os.path.dirname(path)))
    manager._kernel_spec = KernelSpec.from_resource_dir(os.path.dirname(path))
    with tempfile.TemporaryFile() as said:
        try:
            manager.start_kernel(env=environment, stdout=said, stderr=said)
        except Exception as error:
            return "no start", words_of(error)
        client = manager.blocking_client()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=seconds)
            return "ok", ""
        except Exception as error:
            said.seek(0)
            last = said.read().decode("utf-8", "replace").strip().splitlines()[-1:]
            return "no reply", " ".join([words_of(error)] + last)
        finally:
            client.stop_channels()
            manager.shutdown_kernel(now=True)


def by_words(path, seconds, environment):
    """Without jupyter_client: does the program stay?"""
    with open(path, encoding="utf-8") as file:
        spec = json.load(file)
    folder = tempfile.mkdtemp()
    connection = os.path.join(folder, "connection.json")
    ports = {name + "_port": 40000 + number for number, name in enumerate(("shell", "iopub", "stdin", "control", "hb"))}
    with open(connection, "w") as file:
        json.dump(dict(ports, ip="127.0.0.1", transport="tcp", key="varve", signature_scheme="hmac-sha256", kernel_name=""), file)
    words = [word.replace("{connection_file}", connection).replace("{resource_dir}", os.path.dirname(path)) for word in spec["argv"]]
    environment = dict(environment, **{name: str(value) for name, value in spec.get("env", {}).items()})
    with tempfile.TemporaryFile() as said:
        try:
            kernel = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment)
        except OSError as error:
            return "no start", words_of(error)
        try:
            kernel.wait(min(seconds, ALIVE_SECONDS))
        except subprocess.TimeoutExpired:
            return "runs", ""
        said.seek(0)
        last = said.read().decode("utf-8", "replace").strip().splitlines()[-1:]
        return "exit %d" % kernel.returncode if kernel.returncode >= 0 else "signal %d" % -kernel.returncode, " ".join(last)


def main():
    path, seconds = sys.argv[1], float(sys.argv[2])
    environment = dict(os.environ, **dict(word.partition("=")[::2] for word in sys.argv[3:]))
    try:
        outcome, detail = by_protocol(path, seconds, environment) or by_words(path, seconds, environment)
    except Exception as error:
        outcome, detail = "no start", type(error).__name__ + ": " + words_of(error)
    print(json.dumps({"outcome": outcome, "detail": detail[:800]}))


main()
