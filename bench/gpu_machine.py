#!/usr/bin/python3
"""What a machine with an NVIDIA GPU says: `varve gpu-check` on it and in sessions on a lazily mounted image, and CUDA imports in both.

The image is this machine's own system with its `python3` and what is installed there (of CUDA: the wheels), so both sides run the same
files on the same driver. Needs root, the driver, a python3 with some of torch, jax, cupy and transformers, pigz, and room for the
image. Without `--cdi-spec-dir` the driver's files are described as the loader of this machine finds them. See bench/README.md.
"""
import argparse, concurrent.futures, json, os, re, shutil, statistics, subprocess, sys, time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "images"))
import build  # noqa: E402
import layers  # noqa: E402
from run import empty_machine, link_layout, served, spread, timed  # noqa: E402
from touched import drop_caches  # noqa: E402

NO_PART_OF_THE_IMAGE = ["proc", "sys", "dev", "run", "tmp", "mnt", "media", "boot", "var/cache", "var/tmp", "var/log", "var/lib/apt", "var/lib/varve", "usr/share/doc", "usr/local/nvidia", "opt/nvidia",
                        "usr/src"]
LAYER_OF_ITS_OWN = 64 << 20  # bytes of a package
STARTS = {
    "torch, a product": "import torch; x = torch.randn(4096, 4096, device='cuda'); print(float((x @ x).abs().mean()))",
    "torch, a step of training": "import torch; m = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.Flatten(), torch.nn.Linear(64 * 30 * 30, 10)).cuda()\n"
                                 "loss = m(torch.randn(64, 3, 32, 32, device='cuda')).square().mean(); loss.backward(); torch.optim.SGD(m.parameters()).step(); print(float(loss))",
    "transformers, a BERT layer": "import torch; from transformers import BertConfig, BertModel; m = BertModel(BertConfig(num_hidden_layers=1)).cuda()\n"
                                  "print(m(torch.ones(1, 16, dtype=torch.long, device='cuda')).last_hidden_state.shape)",
    "jax, a product": "import jax, jax.numpy as n; x = n.ones((4096, 4096)); assert jax.devices()[0].platform == 'gpu', jax.devices(); print(float((x @ x).mean()))",
    "cupy, a product": "import cupy; x = cupy.random.rand(4096, 4096); print(float((x @ x).mean()))",
}
DRIVER_LIBRARIES = r"lib(cuda|cudadebugger|nvcuvid|nvidia-[a-z0-9-]+|nvoptix)\.so"


def say(text):
    print(text, flush=True)


def write_specification(folder):
    """What `nvidia-ctk cdi generate` would say of one GPU or more, as far as CUDA goes."""
    cached = subprocess.run(["ldconfig", "-p"], stdout=subprocess.PIPE, text=True).stdout
    candidates = [Path(line.split(" => ")[1]) for line in cached.splitlines() if line.split()[:1] == ["libcuda.so.1"]]
    candidates += [Path(folder) / "libcuda.so.1" for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    folder_of_driver = next((path.parent for path in candidates if path.exists()), None)
    if not folder_of_driver:
        sys.exit("no libcuda.so.1 here: neither ldconfig -p nor LD_LIBRARY_PATH names one")
    files = [path for path in folder_of_driver.iterdir() if re.match(DRIVER_LIBRARIES, path.name)]
    programs = [Path(found) for found in [shutil.which("nvidia-smi")] if found]
    both = [node for node in ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools") if os.path.exists(node)]
    gpus = sorted(Path("/dev").glob("nvidia[0-9]*"))
    mounts = [{"hostPath": os.path.realpath(path), "containerPath": str(path), "options": ["ro", "nosuid", "nodev", "bind"]} for path in sorted(files) + programs]
    hook = {"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "update-ldcache", "--folder", str(folder_of_driver)]}
    nodes = lambda paths: {"deviceNodes": [{"path": str(path)} for path in paths]}  # noqa: E731
    devices = [{"name": re.sub(r"\D", "", gpu.name), "containerEdits": nodes([gpu])} for gpu in gpus] + [{"name": "all", "containerEdits": nodes(gpus)}]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nvidia.json").write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices, "containerEdits": {**nodes(both), "mounts": mounts, "hooks": [hook]}}, indent=1))
    say(f"{len(gpus)} GPU, {len(mounts)} files of the driver, in {folder_of_driver}")


def bytes_in(path):
    return sum(os.lstat(os.path.join(folder, name)).st_size for folder, _, names in os.walk(path) for name in names)


def parts_of_this_machine(left_out):
    """[(name, paths relative to /)]: large packages of Python have a layer of their own, the rest is the first."""
    found = subprocess.run(["python3", "-c", "import sys; print('\\n'.join(f for f in sys.path if f.endswith('-packages')))"], stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    large = [Path(folder) / name for folder in found for name in sorted(os.listdir(folder))]
    large = [path for path in large if path.is_dir() and not path.is_symlink() and bytes_in(path) > LAYER_OF_ITS_OWN]
    nvidia = [path for path in large if path.name == "nvidia"]
    large = [path for path in large if path not in nvidia] + [part for path in nvidia for part in sorted(path.iterdir()) if part.is_dir()]
    return [("base", [Path("/")], {Path("/") / path for path in [*NO_PART_OF_THE_IMAGE, *left_out]} | set(large))] + [(path.name, [path], set()) for path in large]


def add_parts(tar, paths, without):
    for top in paths:
        for folder, folders, names in os.walk(top):
            here = Path(folder)
            for path in sorted(here / name for name in [*folders, *names]):
                if path.is_symlink() or path.is_file() or path.is_dir():
                    layers.add_path(tar, "/", str(path), int(os.lstat(path).st_mtime))  # which its bytecode has, too
            folders[:] = sorted(name for name in folders if here / name not in without)


def pack_part(folder, part):
    """(the blob, digest of the tar) of a part of this machine."""
    name, paths, without = part
    blob, began = folder / f"blob-{name}", time.monotonic()

    def write(sink):
        with layers.tarfile.open(fileobj=sink, mode="w|", format=layers.tarfile.PAX_FORMAT, bufsize=1 << 20) as tar:
            add_parts(tar, paths, without)
    tar = layers.COMPRESSORS["pigz"](write, blob, folder)
    say(f"  layer {name}: {tar.size / 1e6:.0f} MB of tar, {blob.stat().st_size / 1e6:.0f} MB of gzip, {time.monotonic() - began:.0f} s")
    return blob, tar.digest()


def make_image(folder, left_out):
    layout, parts = build.Layout(folder), parts_of_this_machine(left_out)
    with concurrent.futures.ProcessPoolExecutor(os.cpu_count()) as pool:
        packed = list(pool.map(pack_part, [folder] * len(parts), parts))
    described = [layout.take(blob, build.MEDIA + "layer.v1.tar+gzip") for blob, _ in packed]
    env = [f"{name}={os.environ[name]}" for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ]
    config = layout.add_json({"architecture": "amd64", "os": "linux", "config": {"Env": [*env, "HOME=/tmp", "LANG=C.UTF-8"], "Cmd": ["python3"]},
                              "rootfs": {"type": "layers", "diff_ids": [digest for _, digest in packed]}}, build.MEDIA + "config.v1+json")
    manifest = {"schemaVersion": 2, "mediaType": build.MEDIA + "manifest.v1+json", "config": config, "layers": described}
    layout.tags = {"latest": layout.add_json(manifest, manifest["mediaType"])}
    layout.finish()
    return sum(layer["size"] for layer in described)


def checked(varve, results, name, *words):
    """A run of the check; its document is kept, and a line for each step printed."""
    began = time.monotonic()
    done = subprocess.run([varve.binary, "gpu-check", "--json", "--no-history", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=varve.environment)
    (results / f"check-{name}.json").write_text(done.stdout)
    say(f"gpu-check, {name}: status {done.returncode}, {time.monotonic() - began:.0f} s {done.stderr[-1500:]}")
    document = json.loads(done.stdout) if done.stdout.startswith("{") else {"checks": []}
    for check in document["checks"]:
        fetched = f", {check['fetched_bytes'] / 1e6:.0f} MB fetched" if check["fetched_bytes"] else ""
        say(f"  {check['name'] + (' cold' if check['cold'] else ''):18} {check['result']:8} {check['seconds']:6.1f} s{fetched}  {check['detail'][:300]}")
        for warning in check["warnings"]:
            say(f"      warning: {warning[:300]}")
    return {(check["name"], check["cold"], metric["name"]): metric["median"] for check in document["checks"] for metric in check["metrics"]}


def learnt_copy(options, layout, gpus):
    """The image with start-up packs, also of what frameworks read when they first use a GPU."""
    copy = options.work / "learnt"
    link_layout(layout, copy)
    with empty_machine(options.varve, options.work / f"state-{time.monotonic_ns()}") as varve:
        varve.index(f"oci:{copy}:latest", timeout=1800)
        began = time.monotonic()
        learned = varve.json("profile", "learn", *gpus, "--top", 12, f"oci:{copy}:latest", timeout=1800)
        say(f"packs: {learned['bytes'] / 1e6:.1f} MB in {len(learned['groups'])} groups, learnt in {time.monotonic() - began:.0f} s")
    return copy


def measure_starts(options, ways, gpus):
    """Each start natively, in an empty machine's first session and in the session after it, in turn. `ways`: name to layout."""
    for label in options.starts.split(";"):
        command = ["python3", "-c", STARTS[label]]
        places = {"native cold": [], "native warm": []}
        try:
            for _ in range(options.rounds):
                drop_caches()
                places["native cold"] += [timed(command)[0]]
                places["native warm"] += [timed(command)[0]]
                for way, layout in ways.items():
                    with served(options.varve, [layout], options.rate_mbit, options.rtt_ms) as address, empty_machine(options.varve, options.work / f"machine-{time.monotonic_ns()}") as varve:
                        stats, brought = varve.work / "stats", []
                        for number in ("first", "second"):
                            words = [varve.binary, "run", "--rm", *gpus, "--stats", stats, f"docker://{address}/{layout.name}:latest", "--", *command]
                            places.setdefault(f"{way}, {number} session", []).append(timed(words, env=varve.environment)[0])
                            brought.append(json.loads(stats.read_text())["fetched_bytes"])
                    shutil.rmtree(varve.work)
                    say(f"{label}, {way}: {brought[0] / 1e6:.0f} MB fetched by the first session, {brought[1] / 1e6:.1f} by the second")
        except SystemExit as error:  # what timed() says of a command that failed
            say(f"{label}: not here: {error}")
            continue
        for place, times in places.items():
            beside = places["native cold" if "first" in place else "native warm"]
            say(f"  {label + ': ' + place:60} {spread(times)} s   {statistics.median(times) / statistics.median(beside):.2f}x")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--varve", type=Path, required=True, help="with bench/link_proxy beside it")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--results", type=Path, help="a folder for the documents of gpu-check (default: --work)")
    parser.add_argument("--cdi-spec-dir", type=Path)
    parser.add_argument("--leave-out", action="append", default=[], help="a folder that is no part of the image")
    parser.add_argument("--parts", default="machine,sessions,cold,starts,packs", help="of these")
    parser.add_argument("--cold", default="kernel,gemm,convolution,torch,jax,cupy", help="the steps that run with an empty store, too")
    parser.add_argument("--starts", default=";".join(STARTS))
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--repetitions", type=int, default=7, help="of the check's steps")
    parser.add_argument("--rate-mbit", type=float, default=1000)
    parser.add_argument("--rtt-ms", type=float, default=2)
    options = parser.parse_args()
    options.work = options.work.resolve()
    options.work.mkdir(parents=True, exist_ok=True)
    results, parts = options.results or options.work, options.parts.split(",")
    specification = options.cdi_spec_dir or options.work / "cdi"
    if not options.cdi_spec_dir:
        write_specification(specification)
    gpus = ["--gpus", "all", "--cdi-spec-dir", specification]
    layout, found = options.work / "image", {}
    with empty_machine(options.varve, options.work / f"state-{time.monotonic_ns()}") as varve:
        if not (layout / "index.json").exists():
            began = time.monotonic()
            size = make_image(layout, [str(options.work).lstrip("/"), str(REPOSITORY).lstrip("/"), *options.leave_out])
            made = time.monotonic()
            varve.index(f"oci:{layout}:latest", timeout=1800)
            say(f"image: {size / 1e6:.0f} MB, made in {made - began:.0f} s, indexed in {time.monotonic() - made:.0f} s")
        if "machine" in parts:
            found["machine"] = checked(varve, results, "machine", "--repetitions", options.repetitions)
        with served(options.varve, [layout], options.rate_mbit, options.rtt_ms) as address:
            image, words = f"docker://{address}/{layout.name}:latest", ["--repetitions", options.repetitions, *gpus]
            if "sessions" in parts:
                found["sessions"] = checked(varve, results, "sessions", *words, image)
            if "cold" in parts:
                found["cold"] = checked(varve, results, "cold", *words, "--cold", *(word for step in options.cold.split(",") for word in ("--only", step)), image)
    for step, cold, metric in found.get("machine", {}):
        alone = found["machine"][step, cold, metric]
        in_sessions = found.get("sessions", {}).get((step, cold, metric))
        at_first = found.get("cold", {}).get((step, True, metric))
        say(f"{step:12} {metric:22} {alone:12.4g} " + " ".join(f"{other:12.4g} ({other / alone:.2f}x)" if other else f"{'-':>12}" for other in (in_sessions, at_first)))
    if "starts" in parts:
        measure_starts(options, {"nothing learnt": layout, **({"packs": learnt_copy(options, layout, gpus)} if "packs" in parts else {})}, gpus)


if __name__ == "__main__":
    main()
