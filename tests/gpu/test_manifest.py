#!/usr/bin/env python3
"""The manifest step of `varve gpu-check`: what an image holds of CUDA, compared with a file, without fetching content and without a GPU."""
import json, os, re, shutil, subprocess, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run"))
from tiny_image import expect, make_image, needed_files  # noqa: E402
import program  # noqa: E402

# A device that every machine has: sessions can be made, and the driver step finds no driver in them.
CDI = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "hostPath": "/dev/full"}]}}]}


def needs_of(binary):
    """Libraries of this machine that it is linked with: path in the image -> content."""
    listed = subprocess.run(["ldd", binary], stdout=subprocess.PIPE, text=True, check=True).stdout
    return {path.lstrip("/"): Path(path).resolve().read_bytes() for path in re.findall(r"(/\S+)(?= \(0x)", listed)}


def main():
    program.need_root(), program.need_fuse(), program.need_tools("ldd")
    library = Path(shutil.which("cat")).resolve().read_bytes()  # an ELF file, whatever it is
    with program.work_folder() as work, program.Varve(work) as varve:
        (work / "cdi").mkdir()
        (work / "cdi/gpu.json").write_text(json.dumps(CDI))

        def check(image, *words):
            return varve.run("gpu-check", "--cdi-spec-dir", work / "cdi", image, "--json", *words)

        # The probe needs no more than this; the loader itself is in the image already, and may be executed.
        more = [(path, content) for path, content in sorted(needs_of(os.environ["PROBE"]).items()) if path not in needed_files()]
        image = make_image(work / "image", more=[*more, ("usr/local/cuda/lib64/libcudart.so.12", library)])
        other = make_image(work / "other", more=[*more, ("usr/local/cuda/lib64/libcudart.so.12", library + b"\0")])
        for one in (image, other):
            varve.index(one)
        manifest = work / "cuda.json"
        expect(check(image, "--write-manifest", manifest).returncode == 0, "the manifest is written without a GPU")
        expect("usr/local/cuda/lib64/libcudart.so.12" in [file["path"] for file in json.loads(manifest.read_text())["files"]], manifest.read_text())

        same = check(image, "--manifest", manifest)
        step = json.loads(same.stdout)["checks"][0]
        expect(same.returncode == 77 and step["name"] == "manifest" and step["result"] == "ok", f"the image is what it was: {same}")
        changed = check(other, "--manifest", manifest)
        step = json.loads(changed.stdout)["checks"][0]
        expect(changed.returncode == 3 and step["result"] == "failed" and "libcudart.so.12" in step["detail"], f"another library is a finding, also without a GPU: {changed}")
        broken = work / "broken.json"
        broken.write_text("{}")
        for words, said in ((("--manifest", broken), "broken.json"), (("--manifest", work / "nowhere"), "nowhere")):
            done = check(image, *words)
            expect(done.returncode == 1 and said in done.stderr.decode(), f"{words}: {done}")
        print("the manifest step is right", flush=True)


if __name__ == "__main__":
    main()
