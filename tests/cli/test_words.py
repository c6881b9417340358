#!/usr/bin/env python3
"""What a newcomer meets: the page of settings is the program's own, an interrupt is 130, errors speak of what was typed, and images of the
store are listed and removed one by one."""
import random, signal, subprocess, sys
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TREE / "tests/oracle"), str(TREE / "tests/mount")]
import layouts, program, tars  # noqa: E402
from images import Source  # noqa: E402


def check_page_of_settings(varve):
    page = varve.run("config", "--markdown", check=True).stdout.decode()
    kept = TREE / "docs/guide/configuration.md"
    assert page == kept.read_text(), f"{kept} is not what `varve config --markdown` prints: write it anew"


def check_installed_example(varve, work):
    varve.run("man", "--write-to", work / "share", check=True)
    example = work / "share/doc/varve/varve.toml.example"
    assert example.read_bytes() == varve.run("config", "--example", check=True).stdout
    varve.environment["VARVE_CONFIG"] = str(example)
    settings = {one["name"]: one for one in varve.json("config")["settings"]}
    assert settings["daemon.store-size"] == {"name": "daemon.store-size", "value": "0", "from": "default", "place": None}, settings
    varve.environment["VARVE_CONFIG"] = "/dev/null"


def check_relative_config(varve, work):
    """The daemon that a command starts works in another folder, with the same settings."""
    (work / "here.toml").write_text("[daemon]\nstore-size = \"123MB\"\n")
    environment = {**varve.environment, "VARVE_CONFIG": "here.toml"}
    image = layouts.gzip_image(work / "small", [tars.Tar().file("a", b"b").bytes()])
    varve.index(image)
    subprocess.run([varve.binary, "pull", "--wait", image], cwd=work, env=environment, check=True, stdout=subprocess.DEVNULL)
    assert varve.json("status")["store"]["max_bytes"] == 123_000_000, varve.json("status")
    assert varve.json("images", "rm", image)["freed_bytes"] > 0
    varve.stop_daemon()


def check_messages(varve, work):
    (work / "empty").mkdir()
    (work / "file").write_text("x")
    for arguments, status, said in (
        (("run", "--rootfs", work / "none", "--", "true"), 125, f"--rootfs {work}/none: No such file or directory"),
        (("man", "--write-to", work / "file"), 1, f"{work}/file/man/man1: cannot create the folder: Not a directory"),
        (("images", "rm", "oci:nothing"), 1, "no such image was opened here"),
        (("index", f"oci:{work}/empty"), 1, "no OCI layout folder"),
        (("fleet", "--arrivals", "x"), 2, "`varve fleet` has no option '--arrivals'"),
    ):
        done = varve.run(*arguments)
        assert done.returncode == status and said in done.stderr.decode() and done.stderr.count(b"\n") == 1, (arguments, done)
        assert b"filesystem error" not in done.stderr and b".tmp-" not in done.stderr, done
    image = layouts.gzip_image(work / "one-layer", [tars.Tar().file("a", b"b").bytes()])
    done = varve.run("image", "optimize", "--keep-layers", "9", image, f"oci:{work}/better:v1")
    assert done.returncode == 2 and b"--keep-layers 9" in done.stderr and b"has 1 layer\n" in done.stderr, done
    assert not (work / "better").exists(), "nothing was begun"


def interrupted(varve, source, *arguments):
    """While the registry keeps a layer back, and goes on doing so."""
    source.open.clear()
    source.asked.clear()
    process = subprocess.Popen([varve.binary, *map(str, arguments)], env=varve.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert source.asked.wait(30), arguments
    process.send_signal(signal.SIGINT)
    try:
        _, stderr = process.communicate(timeout=30)
    finally:
        process.kill()
        source.open.set()
    return process.returncode, stderr.decode()


def check_interrupt(varve, work):
    image = layouts.gzip_image(work / "slow", [tars.Tar().file("large", random.Random(3).randbytes(1 << 20)).bytes()], "latest")
    with Source(work / "slow") as source:
        for arguments in (("index", source.reference), ("image", "optimize", source.reference, f"oci:{work}/better:v1"),
                          ("image", "export", source.reference, f"docker-archive:{work}/copy.tar")):
            status, stderr = interrupted(varve, source, *arguments)
            assert status == 130 and stderr.count("\n") == 1 and "cancelled" in stderr, (arguments, status, stderr)
    assert not (work / "copy.tar").exists() and not list(work.glob("copy.tar*"))


def images(varve):
    return {name: image for image in varve.json("images")["images"] for name in image["references"]}


def check_images(varve, work):
    rng = random.Random(5)
    base, first, second = (tars.Tar().file(name, rng.randbytes(size)).bytes() for name, size in (("base", 3_000_000), ("first", 2_000_000), ("second", 1_000_000)))
    one, two = layouts.gzip_image(work / "one", [base, first]), layouts.gzip_image(work / "two", [base, second])
    for image in (one, two):
        varve.index(image)
        varve.run("pull", "--wait", image, check=True)
    varve.stop_daemon()
    listed = images(varve)
    assert set(listed) == {one, two}, listed
    assert listed[one]["own_bytes"] > 2_000_000 > listed[two]["own_bytes"] > 1_000_000 and listed[one]["disk_bytes"] > 5_000_000, listed
    assert listed[one]["image_stream_bytes"] == len(base) + len(first) and listed[one]["mounted"] == [], listed
    table = varve.run("images", check=True).stdout.decode()
    assert "\noci:one:" in table and "LAST USED" in table and max(map(len, table.splitlines())) <= 120, table

    with varve.mounted(one, "fuse") as folder:
        assert images(varve)[one]["mounted"] == [folder]
        done = varve.run("images", "rm", two, one)
        assert done.returncode == 1 and folder.encode() in done.stderr and set(images(varve)) == {one, two}, done
    varve.run("pin", "add", "--name", "kept", one, check=True)
    done = varve.run("images", "rm", one)
    assert done.returncode == 1 and b"pinned as kept" in done.stderr and b"--force" in done.stderr, done
    before = images(varve)[one]["own_bytes"]
    freed = varve.json("images", "rm", "--force", one)
    assert freed["freed_bytes"] == before and freed["removed"][0]["busy_layers"] == 0, (freed, before)
    listed = images(varve)
    assert set(listed) == {two} and listed[two]["own_bytes"] == listed[two]["disk_bytes"] > 4_000_000, listed
    again = varve.run("cat", one, "first", check=True).stdout
    assert again in first, "it is fetched again"
    digest = listed[two]["image"]
    assert varve.json("images", "rm", digest)["freed_bytes"] == listed[two]["disk_bytes"]
    assert images(varve) == {} and varve.run("images", check=True).stdout == b"no image is in the store\n"


def main():
    program.need_fuse()
    with program.work_folder() as work, program.Varve(work) as varve:
        varve.environment["VARVE_CONFIG"] = "/dev/null"
        check_page_of_settings(varve)
        check_installed_example(varve, work)
        check_messages(varve, work)
        check_interrupt(varve, work)
        check_relative_config(varve, work)
        check_images(varve, work)
    print("settings, messages, interrupts, images", flush=True)


main()
