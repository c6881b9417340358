#!/usr/bin/python3
"""cpu_session.py oci:DIR:notebook-gpu: sessions on the lazily mounted image, each on a machine that has nothing yet: which layers they fetched from, and how much.

A session that uses no CUDA (numpy, pandas, scikit-learn, matplotlib or boosters, and a model trained) must fetch nothing of the layers of CUDA: exit status 1 if it does.
What they are: layers whose comment in the image's history matches --cuda. Beside it: what it fetched of torch's layer (Python's start reads .pth files, and matplotlib the entry
points of all that is installed), TensorFlow, which opens libcudart to see whether there is a GPU, torch, which is linked with CUDA, and an import of each named package.
Needs root or FUSE, as `varve run` does.
"""
import argparse, json, re, statistics, sys, tempfile, time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPOSITORY / "tests/oracle"))
import layouts  # noqa: E402
from program import Varve  # noqa: E402

IMPORTS = ["numpy", "pandas", "scipy", "sklearn", "matplotlib.pyplot", "seaborn", "statsmodels.api", "xgboost", "lightgbm", "nltk", "spacy", "cv2", "PIL.Image", "jupyterlab", "notebook", "ipykernel",
           "ipywidgets", "transformers", "tensorflow", "tf_keras", "torch", "torchvision"]
SKLEARN = """
import numpy, pandas, matplotlib; matplotlib.use('Agg')
import matplotlib.pyplot as plot
from sklearn.ensemble import RandomForestClassifier
chance = numpy.random.default_rng(1)
frame = pandas.DataFrame(chance.normal(size=(2000, 8)), columns=list('abcdefgh'))
frame['kind'] = (frame.a * frame.b > 0).astype(int)
model = RandomForestClassifier(60, random_state=1).fit(frame.iloc[:1500, :8], frame.kind[:1500])
score = model.score(frame.iloc[1500:, :8], frame.kind[1500:])
plot.hist(model.predict_proba(frame.iloc[1500:, :8])[:, 0]); plot.savefig('/tmp/chart.png')
assert score > 0.8, score
print('score', score)
"""
TENSORFLOW = """
import numpy, tensorflow as tf
chance = numpy.random.default_rng(1)
x = chance.normal(size=(512, 4)).astype('float32'); y = x.sum(axis=1, keepdims=True)
model = tf.keras.Sequential([tf.keras.Input((4,)), tf.keras.layers.Dense(8, activation='relu'), tf.keras.layers.Dense(1)])
model.compile('adam', 'mse'); losses = model.fit(x, y, epochs=3, verbose=0).history['loss']
assert losses[-1] < losses[0], losses
print('loss', losses[-1], tf.config.list_physical_devices('GPU'))
"""
BOOST = """
import numpy, xgboost, lightgbm
chance = numpy.random.default_rng(1)
x = chance.normal(size=(500, 4)); y = (x[:, 0] > 0).astype(int)
print('scores', xgboost.XGBClassifier(n_estimators=5).fit(x, y).score(x, y), lightgbm.LGBMClassifier(n_estimators=5, verbose=-1).fit(x, y).score(x, y))
"""
TORCH = """
import torch
model, x = torch.nn.Linear(4, 1), torch.randn(64, 4)
loss = (model(x) ** 2).mean(); loss.backward()
print('loss', loss.item(), torch.cuda.is_available())
"""
SESSIONS = {"numpy, pandas, scikit-learn, matplotlib: a model trained": SKLEARN, "xgboost, lightgbm: models trained": BOOST, "tensorflow: a model trained": TENSORFLOW, "torch: one step": TORCH}
MUST_NOT = list(SESSIONS)[:2]


class Image:
    def __init__(self, reference, cuda, torch):
        self.reference, (_, manifest) = reference, layouts.manifest_of(reference)
        config = json.loads(layouts.blob_path(reference, manifest["config"]["digest"]).read_text())
        comments = [made["created_by"] for made in config["history"]]
        self.layers = [(layer["digest"], comment, "cuda" if re.search(cuda, comment) else "torch" if re.search(torch, comment) else "") for layer, comment in zip(manifest["layers"], comments)]
        if not any(kind == "cuda" for _, _, kind in self.layers):
            sys.exit(f"{reference}: no layer's comment matches '{cuda}'")


def stored(varve, digest):
    return sum(data.stat().st_blocks * 512 for data in (varve.root / "store").glob(digest.split(":")[1] + "-*/data"))


def session(image, code, work):
    """(what it printed, its statistics, [bytes stored of each layer]) on an empty machine."""
    with tempfile.TemporaryDirectory(dir=work) as folder, Varve(folder) as varve:
        stats = Path(folder) / "stats.json"
        varve.index(image.reference, timeout=3600)
        began = time.monotonic()
        done = varve.run("run", "--rm", "--stats", stats, image.reference, "--", "python3", "-c", code, timeout=1200)
        seconds = time.monotonic() - began
        if done.returncode:
            return None, done.stderr.decode(errors="replace").strip().splitlines()[-1:], None
        return done.stdout.decode().strip(), json.loads(stats.read_text()) | {"wall": seconds}, [stored(varve, digest) for digest, _, _ in image.layers]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("image")
    parser.add_argument("--cuda", default="NVIDIA's wheels|^/usr/local/cuda", help="layers whose comment matches this pattern must not be touched")
    parser.add_argument("--torch", default="^torch", help="layers that are shown beside them")
    parser.add_argument("--imports", action="store_true", help="also import each named package, each on an empty machine")
    parser.add_argument("--work", type=Path, help="a folder for the stores; the system's temporary folder if not said")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    image, rows, touched = Image(options.image, options.cuda, options.torch), [], []
    wanted = SESSIONS | ({f"import {name}": f"import {name}; print('ok')" for name in IMPORTS} if options.imports else {})
    print(f"{'':58} {'done, s':>8} {'fetched MB':>11} {'requests':>9} {'in the store of CUDA, MB':>25} {'of torch':>9}")
    for name, code in wanted.items():
        said, stats, layers = session(image, code, options.work)
        if said is None:
            print(f"{name:58} failed: {stats}", flush=True)
            rows.append({"session": name, "failed": stats})
            continue
        cuda, torch = (sum(size for size, (_, _, own) in zip(layers, image.layers) if own == kind) for kind in ("cuda", "torch"))
        rows.append({"session": name, "seconds": stats["wall"], "ready_seconds": stats["ready_seconds"], "fetched_bytes": stats["fetched_bytes"], "requests": stats["requests"],
                     "cuda_bytes": cuda, "torch_bytes": torch, "said": said, "layers": [{"comment": comment, "stored_bytes": size} for size, (_, comment, _) in zip(layers, image.layers)]})
        print(f"{name:58} {stats['wall']:8.2f} {stats['fetched_bytes'] / 1e6:11.1f} {stats['requests']:9d} {cuda / 1e6:25.1f} {torch / 1e6:9.1f}", flush=True)
        if cuda and name in MUST_NOT:
            touched.append(name)
    imported = [row["seconds"] for row in rows if row["session"].startswith("import ") and "seconds" in row]
    if imported:
        print(f"imports: {len(imported)} work, {min(imported):.2f} / {statistics.median(imported):.2f} / {max(imported):.2f} s")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    if touched:
        sys.exit(f"these sessions use no CUDA and fetched some: {touched}")


if __name__ == "__main__":
    main()
