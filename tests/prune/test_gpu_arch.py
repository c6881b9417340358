#!/usr/bin/python3
"""`varve prune plan --gpu-arch`: code for GPUs that nobody has goes cold inside a CUDA library that stays byte for byte: pulls leave it out, a read fetches it, the gates hold."""
import hashlib, importlib.util, json, random, struct, time
from pathlib import Path

from images import SITE, Images, distribution, expect, failed, tree
import program  # noqa: E402

spec = importlib.util.spec_from_file_location("mount_images", Path(__file__).resolve().parents[1] / "mount/images.py")
mount_images = importlib.util.module_from_spec(spec)
spec.loader.exec_module(mount_images)

LIBRARY = "nvidia/cublas/lib/libcublas.so.12"
MACHINE, PTX = 2, 1
ENTRIES = [(50, MACHINE, 3_000_000), (70, MACHINE, 3_000_000), (80, MACHINE, 2_000_000), (86, MACHINE, 3_000_000), (90, MACHINE, 2_000_000), (90, PTX, 1_000_000)]


def fatbin(entries, noise):
    """A container as NVIDIA's tools write it: format in analyzer/packages/cuda_architectures.cpp."""
    body = b""
    for number, kind, size in entries:
        body += struct.pack("<HHIQ12xI8xQ16x", kind, 0x0101, 64, size, number, 0x11) + noise.randbytes(size)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(entries=ENTRIES):
    """A shared object with nothing but a section of device code."""
    code = fatbin(entries, random.Random(3))
    names = b"\0.nv_fatbin\0.shstrtab\0"
    at = 64 + len(code) + len(names)
    table = at + -at % 8
    sections = [(0,) * 10, (1, 1, 2, 0, 64, len(code), 0, 0, 8, 0), (12, 3, 0, 0, 64 + len(code), len(names), 0, 0, 1, 0)]
    header = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", 3, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, 3, 2)
    return header + code + names + bytes(-at % 8) + b"".join(struct.pack("<IIQQQQIIQQ", *one) for one in sections)


def make_usage(varve, work, image, models):
    """One session, on GPUs of these models."""
    database, spool = work / "usage.db", work / "spool"
    spool.mkdir()
    known = varve.json("usage", "collect", "--db", database, "--keep-all", "--image", image, spool)["images"][0]["image"]
    lines = [dict(t="start", v=1, session="1" * 32, process="2" * 16, day="2026-11-20", writer="recorder 1", image=known, user="3" * 32),
             dict(t="gpu", at=0, present=True, used=True, models=models, driver="550.54")]
    (spool / f"{'1' * 32}-{'2' * 16}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    expect(varve.json("usage", "collect", "--db", database, "--keep-all", spool)["sessions"] == 1, "one session")
    return database


def planned(varve, image, database, output, *arguments):
    done = varve.run("prune", "plan", image, "--usage", database, "--window", "2026-10-01..2026-11-21", "--today", "2026-11-21", "-o", output, *arguments)
    expect(done.returncode == 0, done)
    return json.loads(output.read_text()), done.stdout.decode()


def what_is_planned(varve, work, images, database, content):
    plan, text = planned(varve, images.old, database, work / "plan.json", "--gpu-arch", "sm_80,sm_90")
    [file] = plan["gpu_cold"]
    expect(file["path"] == f"{SITE}/{LIBRARY}" and file["bytes"] == len(content) and file["content"] == "sha256:" + hashlib.sha256(content).hexdigest(), file)
    expect({code["target"]: code["cold"] for code in file["code"]} == {"sm_50": True, "sm_70": True, "sm_80": False, "sm_86": True, "sm_90": False, "compute_90": False}, file)
    first, second = 64 + 16, 64 + 16 + 8_000_000 + 3 * 64
    expect(file["ranges"] == [first, 6_000_128, second, 3_000_064], file["ranges"])
    expect(5_000_000 < plan["gpu_cold_bytes"] < 9_000_192 and plan["parameters"]["gpu-arch"] == "sm_80, sm_90", plan["gpu_cold_bytes"])
    expect("Code for other GPUs than sm_80, sm_90 goes cold in 1 file: 9.00 MB" in " ".join(text.split()), text)
    again, _ = planned(varve, images.old, database, work / "again.json", "--gpu-arch", "sm_90,sm_80")
    expect(again == plan, "the order of names does not matter")
    without, _ = planned(varve, images.old, database, work / "without.json")
    expect("gpu_cold" not in without and without["verdicts"] != plan["verdicts"], "only if asked")

    explained = varve.run("prune", "plan", images.old, "--usage", database, "--gpu-arch", "sm_80", "--explain", "nvidia-cublas-cu12", "--window", "2026-10-01..2026-11-21", check=True).stdout.decode()
    expect(f"code for sm_50, sm_70, sm_86, sm_90 is cold: 11.0 MB in {SITE}/{LIBRARY}" in " ".join(explained.split()), explained)
    told, _ = planned(varve, images.old, database, work / "told.json", "--gpu-arch", "sessions")
    expect([code["target"] for code in told["gpu_cold"][0]["code"] if code["cold"]] == ["sm_50", "sm_90"] and any("reported NVIDIA A10G" in line for line in told["unsure"]), told["gpu_cold"])
    for wrong, word in (("sm_81", "sm_80, sm_86"), ("", "--gpu-arch"), ("80", "sm_80, sm_86")):
        done = varve.run("prune", "plan", images.old, "--usage", database, "--gpu-arch", wrong)
        expect(done.returncode == 2 and word in done.stderr.decode(), (wrong, done))
    return work / "plan.json", plan


def marked_and_pulled(varve, work, images, path, plan, content):
    """The same image with another index; another machine pulls, mounts and reads it."""
    before = varve.json("inspect", images.old)
    answer = varve.json("prune", "apply", path, "--index-only")
    cold = answer["cold"]
    expect(answer["image"] == before["image"] and cold["files"] == 0 and cold["part_files"] == 1 and cold["part_bytes"] == 9_000_192, answer)
    expect(cold["compressed_bytes"] == plan["gpu_cold_bytes"] and 5_000_000 < cold["stream_bytes"] < 9_000_192, cold)
    after = varve.json("inspect", images.old)
    expect({key for key in before if before[key] != after[key]} == {"index", "cold_bytes", "index_bytes", "first_load_bytes", "generation"}, (before, after))
    program.need_root(), program.need_fuse()
    with mount_images.Source(images.folder) as source:
        reference = source.reference.replace(":latest", ":v1")
        for mode in program.modes():
            with program.Varve(work / f"machine-{mode}") as machine:
                machine.work.mkdir()
                pulled = machine.json("pull", "--wait", reference)
                expect(pulled["cold_bytes"] == cold["stream_bytes"] and pulled["cold_present_bytes"] == 0, pulled)
                expect(pulled["present_bytes"] == pulled["image_stream_bytes"] - pulled["cold_bytes"], pulled)
                with machine.mounted(reference, mode) as place:
                    state = lambda: machine.json("status", place)["mounts"][0]
                    with open(Path(place, SITE, LIBRARY), "rb") as file:
                        file.seek(64 + 16 + 6_000_128)
                        expect(file.read(2_000_064) == content[64 + 16 + 6_000_128:][:2_000_064] and state()["fetched_bytes"] == 0, "code for sm_80 is here")
                        file.seek(2_000_000)
                        expect(file.read(1000) == content[2_000_000:2_001_000] and 0 < state()["fetched_bytes"] < 8_000_000, f"what is touched is fetched: {state()}")
                    expect(Path(place, SITE, LIBRARY).read_bytes() == content, "and all of it is what it was")
                    for _ in range(200):
                        if state()["fetching"] == 0:
                            break
                        time.sleep(0.05)
                    expect(state()["errors"] == 0 and state()["cold_present_bytes"] == cold["stream_bytes"], state())


def written_anew(varve, work, images, plan):
    new = f"oci:{images.folder}:new"
    done = varve.run("prune", "apply", "--json", plan, new, "--usage", work / "usage.db")
    answer = json.loads(done.stdout)
    gates = {gate["name"]: gate for gate in answer["gates"]}
    expect(done.returncode in (0, 3) and set(failed(gates)) <= {"replay"}, {name: gates[name]["findings"] for name in failed(gates)})
    expect({"cuda", "tree", "imports"} <= set(gates) and answer["cold"]["part_bytes"] == 9_000_192 and answer["cold"]["stream_bytes"] > 4_000_000, answer["cold"])


def plans_that_lie(varve, work, images, plan):
    def refused(word, edit):
        lie = json.loads(json.dumps(plan))
        edit(lie["gpu_cold"][0])
        (work / "lie.json").write_text(json.dumps(lie))
        before = varve.json("inspect", images.old)["index"]
        done = varve.run("prune", "apply", work / "lie.json", "--index-only")
        expect(done.returncode == 1 and word in done.stderr.decode(), (word, done))
        expect(varve.json("inspect", images.old)["index"] == before, "nothing is marked")

    refused("ends behind the file", lambda file: file.update(ranges=[0, file["bytes"] + 1]))
    refused("lies before the end", lambda file: file.update(ranges=[0, 100, 50, 100]))
    refused("no such file", lambda file: file.update(path="usr/lib/none.so"))
    refused("no such file", lambda file: file.update(content="sha256:" + "0" * 64))
    refused("no such file", lambda file: file.update(bytes=file["bytes"] + 10, ranges=[file["bytes"], 10]))
    refused("no path", lambda file: file.update(path="/" + file["path"]))


def main():
    with program.work_folder() as work, program.Varve(work / "here") as varve:
        varve.work.mkdir()
        (work / "images").mkdir()
        images = Images(work / "images")
        content = library()
        files = {**tree(["lab", "plots", "soup", "taste", "probes"]), **{path: text for path, text in distribution("nvidia-cublas-cu12", "12.8.4.1", {}).items() if not path.endswith("RECORD")}}
        files[LIBRARY] = content
        files["nvidia_cublas_cu12-12.8.4.1.dist-info/RECORD"] = b"".join(f"{path},,\n".encode() for path in files if path.startswith("nvidia"))
        images.write("v1", files)
        images.old = f"oci:{images.folder}:v1"
        varve.index(images.old)
        database = make_usage(varve, work, images.old, ["NVIDIA A10G", "Tesla T4"])
        path, plan = what_is_planned(varve, work, images, database, content)
        plans_that_lie(varve, work, images, plan)
        written_anew(varve, work, images, path)
        marked_and_pulled(varve, work, images, path, plan, content)


if __name__ == "__main__":
    main()
