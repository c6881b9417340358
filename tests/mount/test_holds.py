"""Trees that are held by a name, of all of an image's layers or of its lowest: whoever dies meanwhile, they stay until they are released."""
import contextlib, json, os, signal, socket, subprocess, sys, time
from pathlib import Path

import layouts
from images import image_with_many_names, Source
from layer_stacks import Stack, tars_of, whiteouts_first
from machine import expect, Machine, wait_for
from program import modes, need_fuse, need_root, need_tools, unpack, work_folder
from scan import differences, scan

SEEDS = (3, 5, 8, 11, 14, 17)  # of stacks with two layers and more


class Refused(Exception):
    pass


def ask(varve, call, **arguments):
    """One call over the daemon's socket, as a plugin makes it; the connection closes with the answer."""
    def once():
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.settimeout(60)
            connection.connect(str(varve.root / "run/daemon.sock"))
            connection.sendall(json.dumps({"version": 1, "call": call, **arguments}).encode() + b"\n")
            return connection.makefile("rb").readline()
    answer = {}
    for _ in range(200):  # between two daemons nobody listens
        try:
            if line := once():
                answer = json.loads(line)
                break
        except (ConnectionError, FileNotFoundError):
            pass
        time.sleep(0.05)
    if "error" in answer:
        raise Refused(f"{answer['error']['kind']}: {answer['error']['message']}")
    return answer["result"]


def refusal(varve, call, **arguments):
    try:
        ask(varve, call, **arguments)
    except Refused as error:
        return str(error)
    raise AssertionError(f"{call} {arguments} was not refused")


def hold(varve, name, image, layers, mode):
    return ask(varve, "hold", name=name, image={"reference": image}, layers=layers, mode=mode)


def look_up(varve, source):
    found = ask(varve, "look_up", image={"reference": source.reference}, limit_ms=30_000)
    expect(json.loads(found["config_json"])["rootfs"]["type"] == "layers" and len(found["layers"]) == 3, f"what an image is: {found}")
    expect(found["reference"].endswith("@" + found["image"]), f"by its digest: {found['reference']}")
    return found


@contextlib.contextmanager
def machine(work):
    """Nothing is held any more when it ends, as by that its daemon ends."""
    with Machine(work) as varve:
        try:
            yield varve
        finally:
            if sys.exc_info()[0]:
                varve.run("daemon", "--stop", "--force", "--time", "1")


def shows(tree, paths):
    expect(sorted(os.listdir(tree)) == paths, f"{tree}: {sorted(os.listdir(tree))}")


def holds_last(work, source, contents, mode):
    """Through the deaths of whoever asked, of the daemon, and of the registry."""
    with machine(work) as varve:
        varve.mount(source.reference, mode)  # a daemon, as any command starts one
        varve.run("unmount", varve.mounts.pop(), check=True)
        found = look_up(varve, source)
        part = hold(varve, "pod 1/ü", found["reference"], 2, mode)
        expect((part["layers"], part["image"], part["mode"]) == (2, found["image"], mode), f"held: {part}")
        shows(part["dir"], ["data", "go", "many"])
        source.denying = True  # from here on nothing is asked of the registry but bytes
        try:
            whole = hold(varve, "pod 2", found["reference"], 0, mode)
            expect(hold(varve, "pod 3", found["reference"], 3, mode)["dir"] == whole["dir"], "all layers are the image")
            expect(hold(varve, "pod 2", found["reference"], 3, mode) == whole, "the same again")
        finally:
            source.denying = False
        shows(whole["dir"], ["data", "go", "many", "upper"])
        expect("release that first" in refusal(varve, "hold", name="pod 2", image={"reference": found["reference"]}, layers=1, mode=mode), "another tree under a name")
        expect(refusal(varve, "hold", name="pod 4", image={"reference": found["reference"]}, layers=4, mode=mode).startswith("usage: "), "more layers than there are")
        for name in ("", "a\nb", "x" * 256):
            expect("is no name" in refusal(varve, "hold", name=name, image={"reference": found["reference"]}, layers=0, mode=mode), f"{name!r} is refused")
        expect(not (Path(part["dir"]) / "upper").exists(), "the part shows no upper layer")

        killed = varve.kill_daemon()
        varve.next_daemon(killed)
        expect({tree["name"]: tree["dir"] for tree in ask(varve, "held")} == {"pod 1/ü": part["dir"], "pod 2": whole["dir"], "pod 3": whole["dir"]}, "after a kill")
        varve.run("daemon", "--replace", check=True)
        for tree in (part, whole):
            expect((Path(tree["dir"]) / "data/large").read_bytes() == contents["data/large"], f"{tree['dir']}: the bytes")
            expect((Path(tree["dir"]) / "many/f0007").read_text() == "f0007", "a small file")
        expect(hold(varve, "pod 1/ü", found["reference"], 2, mode) == part, "the same again, of another daemon")

        for kill in (False, True):  # umount(8), seen by the daemon, and by the one that follows it
            if kill:
                os.kill(pid := varve.daemon_pid(), signal.SIGSTOP)
            subprocess.run(["umount", "-l", part["dir"]], check=True)
            if kill:
                os.kill(pid, signal.SIGKILL)
                varve.next_daemon(pid)
            wait_for("the part to be back", lambda: os.path.ismount(part["dir"]))
            shows(part["dir"], ["data", "go", "many"])
            expect((Path(part["dir"]) / "data/large").read_bytes() == contents["data/large"], "the bytes of what was mounted again")

        status = {mount["dir"]: mount for mount in varve.json("status")["mounts"]}
        expect((status[part["dir"]]["held_by"], status[part["dir"]]["tree_layers"]) == (["pod 1/ü"], 2), f"status: {status}")
        expect((status[whole["dir"]]["held_by"], status[whole["dir"]]["tree_layers"]) == (["pod 2", "pod 3"], 0), f"status: {status}")
        said = varve.run("status").stdout.decode()
        expect("held by pod 2, pod 3" in said and "(first 2 layers)" in said, said)
        stopped = varve.run("daemon", "--stop")
        expect(stopped.returncode == 1 and "held by pod 1/ü" in stopped.stderr.decode(), f"the end is refused: {stopped.stderr.decode()}")
        removed = varve.run("images", "rm", source.reference)
        expect(removed.returncode == 1 and "pod 2" in removed.stderr.decode(), f"the removal is refused: {removed.stderr.decode()}")
        for name in ("pod 1/ü", "pod 2", "pod 3", "pod 3", "nobody"):
            ask(varve, "release", name=name)
        expect(ask(varve, "held") == [], "all are released")
        wait_for("the mounts to go", lambda: not os.path.ismount(part["dir"]) and not os.path.ismount(whole["dir"]))


def what_a_disk_has_broken_is_merged_again(work, source, contents, mode):
    with machine(work) as varve:
        varve.mount(source.reference, mode)
        varve.run("unmount", varve.mounts.pop(), check=True)
        found = look_up(varve, source)
        hold(varve, "a", found["reference"], 1, mode)
        ask(varve, "release", name="a")
        for kind in ("erofs", "ranges"):
            trees = [path for path in (varve.root / "trees").iterdir() if path.with_suffix(".ranges").exists() and path.suffix == f".{kind}"]
            expect(len(trees) == 1, f"one tree is kept: {trees}")
            before = trees[0].read_bytes()
            trees[0].write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
            tree = hold(varve, "a", found["reference"], 1, mode)
            shows(tree["dir"], ["data"])
            expect((Path(tree["dir"]) / "data/large").read_bytes() == contents["data/large"], "the bytes")
            expect(trees[0].read_bytes() == before, f"{kind}: the same was made once more")
            ask(varve, "release", name="a")


def looking_up_takes_no_longer_than_it_may(work, source, contents, mode):
    with machine(work) as varve:
        varve.mount(source.reference, mode)
        varve.run("unmount", varve.mounts.pop(), check=True)
        server = socket.create_server(("127.0.0.1", 0))  # takes connections and says nothing
        silent = f"127.0.0.1:{server.getsockname()[1]}/image:latest"
        began = time.monotonic()
        expect(refusal(varve, "look_up", image={"reference": silent}, limit_ms=200).startswith("temporary: "), "a registry that says nothing")
        expect(time.monotonic() - began < 20, "and does not keep one waiting")
        server.close()
        expect(refusal(varve, "look_up", image={"reference": source.reference.replace(":latest", ":none")}, limit_ms=30_000).startswith("not-found: "), "no such image")


def parts_are_what_umoci_unpacks(work, mode):
    with machine(work) as varve:
        compared = 0
        for seed in SEEDS:
            layers = Stack(seed).layers
            image = layouts.gzip_image(varve.work / f"s{seed}", tars_of(layers))
            if len(layers) < 2 or varve.run("index", image).returncode:
                continue
            varve.mount(image, mode)
            for count in range(1, len(layers)):
                started = time.time_ns()
                try:
                    part = varve.work / f"p{seed}-{count}"
                    expected = scan(unpack(layouts.gzip_image(part, tars_of(whiteouts_first(layers[:count]))), part / "b"))
                except AssertionError:
                    continue  # umoci refuses some
                held = hold(varve, "part", image, count, mode)
                found = scan(held["dir"])
                for path, entry in expected.items():  # umoci does not put every folder's time back
                    if entry.type == "dir" and entry.mtime_ns >= started and path in found:
                        entry.mtime_ns = found[path].mtime_ns
                lines = differences(expected, found)
                expect(not lines, f"seed {seed}, the first {count} of {len(layers)} layers:\n" + "\n".join(lines[:10]))
                ask(varve, "release", name="part")
                compared += 1
            varve.run("unmount", varve.mounts.pop(), check=True)
        expect(compared >= 5, f"only {compared} were compared")


def main():
    need_root(), need_fuse(), need_tools("umoci")
    with work_folder() as work:
        image, contents = image_with_many_names(work / "image")
        with Source(work / "image") as source:
            with Machine(work) as indexer:
                indexer.run("index", image, check=True)
            for mode in modes():
                for part in (holds_last, what_a_disk_has_broken_is_merged_again, looking_up_takes_no_longer_than_it_may):
                    began = time.monotonic()
                    part(work, source, contents, mode)
                    print(f"{part.__name__} {mode}: {time.monotonic() - began:.1f} s", flush=True)
        for mode in modes():
            began = time.monotonic()
            parts_are_what_umoci_unpacks(work, mode)
            print(f"parts_are_what_umoci_unpacks {mode}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
