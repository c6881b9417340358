#!/usr/bin/env python3
"""Notebooks of our own making, thousands of them, in the shapes that real ones have: always the same ones.

make_notebooks.py OUT.tar[.xz] [COUNT]. Eight groups of people write them ("biology/0017.ipynb"), each with favourites of its own and a long tail of
libraries that hardly anybody else uses. Cells that use what is in RUNS_ON run where these libraries are. What Python's json and IPython can read of them,
varve must read in the same way (tests/oracle/test_scan.py); broken() gives the ones that they cannot."""
import io, json, random, sys, tarfile

COUNT = 2700
GROUPS = ("biology", "finance", "language", "maps", "physics", "sensors", "teaching", "vision")

# Used by everybody, the more the earlier; by import name.
COMMON = """numpy pandas matplotlib sklearn scipy requests seaborn torch tensorflow tqdm PIL cv2 yaml bs4 sympy networkx transformers statsmodels plotly nltk boto3 keras
xgboost datasets google.cloud.storage joblib ipywidgets altair bokeh dask spacy torchvision pyspark lightgbm gensim h5py xarray accelerate sqlalchemy shapely geopandas
tabulate skimage umap sagemaker google.cloud.bigquery wandb mlflow peft evaluate pydantic numba jax flax pymc arviz fastai optuna shap""".split()
# Of one group: a tail of names, most of them in one notebook or two.
TOPICS = """alignment assay atlas balance basin beam bond bridge cargo census chart clause climate cluster coast colour cortex credit crystal current curve decay delta demand
depth diet drift echo enzyme erosion estimate event field flow forest fossil frame gain gene glacier grain graph grid harvest heart hedge horizon image index ion isotope
kernel label lake layer lens lesson lexicon light loan log marker mass membrane mesh metric mineral model moment motif neuron node noise option orbit parcel path peak phase
pixel plasma pollen portfolio price probe protein pulse quiz radar rain ray reef return risk river rock sample scene score sediment sensor shelf signal slope soil sound
spectrum spike stock storm stress survey syntax tax tide token trace track tree tumour vector verse volume wave weather wind yield zone""".split()

# Cells that run where the library is. Each says what it imports.
RUNS_ON = {
    "numpy": ["import numpy as np\nx = np.linspace(0, 1, 50)\nnp.sin(x).sum()", "from numpy.linalg import norm, eig\nimport numpy\nnorm(numpy.eye(3))",
              "import numpy as np\nrng = np.random.default_rng(7)\na = rng.normal(size=(40, 4))\na.mean(axis=0)", "import numpy.fft as fft\nimport numpy as np\nabs(fft.rfft(np.arange(16.0)))[:3]"],
    "pandas": ["import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3], 'b': list('xyz')})\ndf.groupby('b').a.sum()",
               "import pandas as pd\ns = pd.Series(range(10), index=pd.date_range('2024-01-01', periods=10))\ns.rolling(3).mean().dropna()",
               "from pandas import DataFrame, concat\nconcat([DataFrame({'k': [1]}), DataFrame({'k': [2]})])"],
    "sympy": ["from sympy import symbols, diff, sin\nt = symbols('t')\ndiff(sin(t) ** 2, t)", "import sympy\nsympy.factorint(360)", "from sympy.matrices import Matrix\nMatrix([[1, 2], [3, 4]]).det()"],
    "networkx": ["import networkx as nx\ng = nx.path_graph(6)\nnx.shortest_path(g, 0, 5)", "from networkx.algorithms import bipartite\nimport networkx\nbipartite.is_bipartite(networkx.cycle_graph(4))"],
    "yaml": ["import yaml\nyaml.safe_load('a: [1, 2]\\nb: {c: d}')"],
    "bs4": ["from bs4 import BeautifulSoup\nBeautifulSoup('<p>one<b>two</b></p>', 'html.parser').get_text()"],
    "tqdm": ["from tqdm import tqdm\nsum(i for i in tqdm(range(100), disable=True))", "from tqdm.auto import tqdm as progress\nlist(progress(range(3), disable=True))"],
    "tabulate": ["from tabulate import tabulate\nprint(tabulate([[1, 2], [3, 4]], headers=['a', 'b']))"],
    "PIL": ["from PIL import Image\nImage.new('RGB', (8, 8), 'red').resize((4, 4)).size", "from PIL import ImageDraw, Image\nd = ImageDraw.Draw(Image.new('L', (9, 9)))\nd.line((0, 0, 8, 8), fill=128)"],
    "dateutil": ["from dateutil.parser import parse\nparse('2024-02-29').isoformat()"],
    "attr": ["import attr\n@attr.s\nclass Point:\n    x = attr.ib(default=0)\nPoint(3)"],
    "packaging": ["from packaging.version import Version\nsorted(map(Version, ['1.10', '1.9']))"],
    "requests": ["import requests\nrequests.Request('GET', 'local').method"],
    "scipy": ["from scipy import stats, optimize\noptimize.minimize_scalar(lambda v: (v - 2) ** 2).x", "import scipy.sparse as sp\nsp.eye(4).nnz"],
    "matplotlib": ["%matplotlib inline\nimport matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.show()", "import matplotlib as mpl\nmpl.rcParams['figure.dpi'] = 72"],
    "seaborn": ["import seaborn as sns\nsns.set_theme()"],
    "sklearn": ["from sklearn.linear_model import LinearRegression\nLinearRegression().fit([[0], [1]], [0, 1]).coef_", "from sklearn import metrics\nmetrics.accuracy_score([1, 0], [1, 1])"],
}
STDLIB = ["import os, sys", "import json", "from collections import defaultdict, Counter", "import re", "from pathlib import Path", "import datetime as dt", "import math, random", "from functools import (\n    partial,\n    reduce,\n)"]
FORMS = ["import {m}", "import {m} as lib", "from {m} import load", "from {m} import (\n    load as l,\n    save,  # both\n)", "from {m}.core import *", "import {m}.io, os", "try:\n    import {m}\nexcept ImportError:\n    {v} = None",
         "def run_{v}():\n    from {m}.tools import run\n    return run()", "if True:\n    import {m} as {v}_x; {v}_x.start()", "import importlib\n{v} = importlib.import_module('{m}')", "with open('{v}.txt', 'w') as out:\n    import {m}\n    {m}.dump(out)",
         "import {m} ; from {m} import \\\n    parts", "class Work:\n    import {m}\n    def go(self):\n        '''import nothing'''\n        return self.{v}"]
PROSE = ["", "# import nothing", "x = 1", "text = '''\nimport nothing\nfrom nowhere import it\n'''", "print(f\"{x!r:>10} import {x}\")", "y = [i ** 2 for i in range(10)\n     if i % 2]", "größe = 'naïve – 測試 🎈'\nprint(größe)", "assert x, 'import this'",
         "def f(a, /, b, *, c=None):\n    \"\"\"from a import b\"\"\"\n    return lambda *z: (a, b, c, z)", "while False:\n    pass\nelse:\n    done = True", "v = " + "(" * 60 + "1" + ")" * 60, "data = " + "{'deep': " * 25 + "0" + "}" * 25, "async def g():\n    async for i in aiter(x):\n        await i"]
MAGICS = ["%matplotlib inline", "%load_ext autoreload\n%autoreload 2", "!pip install -q {d}", "%pip install --upgrade '{d}>=1.0'", "!apt-get install -y libsndfile1", "files = !ls -la\nprint(files)", "!echo import os > /dev/null", "%%time\nimport {m}\n{m}.run()",
          "%%bash\npip install {d}\nls", "%%writefile helper_{v}.py\nimport {m}\n\ndef go():\n    return {m}", "%timeit -n 10 sum(range(100))", "%config InlineBackend.figure_format = 'retina'", "%%capture out\nimport {m}", "%%html\n<b>import nothing</b>", "%env TOKENIZERS_PARALLELISM=false",
          "!nvidia-smi", "%%latex\n$$x$$", "x?", "{m}.run??", "%cd -q ..", "%%javascript\nimport('nothing')", "%run ./other_{v}.py", "!conda install -c conda-forge {d} --yes", "%time y = [1, 2]", "!git clone --depth 1 ssh://nowhere/x.git && cd x && pip install -e ."]
PYTHON2 = ["import {m}\nprint 'loaded', {m}", "import urllib2, {m}\nexec 'x = 1'", "try:\n    import {m}\nexcept Exception, e:\n    print e", "from {m} import a\nprint >>err, a", "import {m}\nn = 10L + 0777\nraise ValueError, 'old'"]
BROKEN_CODE = ["import {m}\nfor i in range(3)\n    print(i)", "<<<<<<< HEAD\nimport {m}\n=======\nimport other\n>>>>>>> theirs", "import {m}\n  x = 1", "import {m}\nprint('no end", "...\nimport {m}\n(((", "import {m}\nelse:\n    y"]
KERNELS = {"ir": ("R", ["library({v})", "x <- c(1, 2)\nplot(x)", "install.packages('{v}')"]), "julia-1.9": ("julia", ["using {v}", "import Pkg; Pkg.add(\"{v}\")"]),
           "xcpp17": ("C++17", ["#include <{v}>\nint x = 1;"]), "bash": ("bash", ["ls -la\npip install {d}"])}


def pick(chance, names):
    """Early ones often, late ones hardly ever."""
    return names[min(int(len(names) * chance.random() ** 2.6), len(names) - 1)]


class Group:
    def __init__(self, name):
        self.name, self.chance = name, random.Random(f"{name} notebooks")
        self.common = COMMON[:]
        for _ in range(40):  # the order is the group's own, but what is popular is popular with most
            i = self.chance.randrange(len(self.common))
            self.common.insert(max(0, i - self.chance.randrange(30)), self.common.pop(i))
        tail = [f"{name}_{topic}" for topic in self.chance.sample(TOPICS, 70)]
        self.names = self.common + tail

    def module(self):
        if self.chance.random() < 0.025:  # a long tail: most of it is one notebook's alone
            return f"{self.name}_{pick(self.chance, TOPICS)}_{pick(self.chance, TOPICS)}"
        return pick(self.chance, self.names) if self.chance.random() < 0.85 else pick(self.chance, self.names[len(self.common):])

    def filled(self, template):
        module = self.module()
        return template.replace("{m}", module).replace("{v}", module.replace(".", "_")).replace("{d}", module.replace(".", "-").replace("_", "-"))

    def cell(self):
        """Text of a cell of a Python notebook."""
        kind = self.chance.random()
        if kind < 0.30:
            module = pick(self.chance, self.names)
            return self.chance.choice(RUNS_ON[module]) if module in RUNS_ON else self.filled(self.chance.choice(FORMS))
        if kind < 0.62:
            parts = self.chance.sample(STDLIB, self.chance.randrange(3)) + [self.filled(self.chance.choice(FORMS)) for _ in range(self.chance.choice((1, 1, 1, 2, 3)))] + [self.chance.choice(PROSE)]
            return "\n".join(parts)
        if kind < 0.74:
            return self.filled(self.chance.choice(MAGICS))
        if kind < 0.76:
            return self.filled(self.chance.choice(BROKEN_CODE))
        return "\n".join(self.chance.sample(PROSE, self.chance.choice((1, 1, 2, 4))))

    def outputs(self):
        size = self.chance.choice((0, 0, 0, 40, 300, 3000)) if self.chance.random() < 0.998 else 400_000
        if not size:
            return []
        if self.chance.random() < 0.5:
            return [{"output_type": "stream", "name": "stdout", "text": [f"{i} \"import nothing\" \\ {{[ é\n" for i in range(size // 30)]}]
        picture = "".join(self.chance.choices("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", k=200)) * (size // 200 + 1)
        return [{"output_type": "display_data", "metadata": {"a": {"b": [[[{}]]]}}, "data": {"image/png": picture, "text/plain": ["<Figure size 640x480>"], "text/html": "<script>{\"cells\": [1, 2]}</script>"}}]

    def notebook(self):
        chance = self.chance
        kernel = chance.choice(list(KERNELS)) if chance.random() < 0.04 else None
        python2 = kernel is None and chance.random() < 0.05
        cells = []
        for _ in range(chance.choice((2, 3, 5, 8, 13, 21))):
            if kernel:
                text = self.filled(chance.choice(KERNELS[kernel][1]))
            else:
                text = self.filled(chance.choice(PYTHON2)) if python2 and chance.random() < 0.6 else self.cell()
            if chance.random() < 0.25:
                cells.append(("markdown", "# Title\n\nimport nothing of *this*\n![](attachment:a.png)"))
            cells.append(("code" if chance.random() < 0.97 else "raw", text))
        version = chance.choices((4, 3, 2), weights=(92, 6, 2))[0]
        document = self.of_format_4(cells, kernel, python2) if version == 4 else self.of_older_format(cells, version)
        ascii_only, indent = chance.random() < 0.3, chance.choice((None, 1, 1, 1, 2))
        text = json.dumps(document, ensure_ascii=ascii_only, indent=indent, sort_keys=chance.random() < 0.8)
        return text.encode() + b"\n" * chance.randrange(2)

    def source(self, text, keep_ends=True):
        text = text.replace("\n", "\r\n") if self.chance.random() < 0.01 else text
        return text if self.chance.random() < 0.15 else text.splitlines(keepends=keep_ends)

    def of_format_4(self, cells, kernel, python2):
        language = KERNELS[kernel][0] if kernel else "python"
        metadata = {"kernelspec": {"name": kernel or ("python2" if python2 else "python3"), "display_name": "a kernel", "language": language}, "language_info": {"name": language}, "widgets": {"state": {str(i): {"v": [i]} for i in range(self.chance.randrange(5))}}}
        if self.chance.random() < 0.1:
            metadata.pop("kernelspec" if self.chance.random() < 0.5 else "language_info")
        written = []
        for kind, text in cells:
            cell = {"cell_type": kind, "metadata": {"tags": ["x"]} if self.chance.random() < 0.1 else {}, "source": self.source(text)}
            if kind == "code":
                cell |= {"execution_count": None, "outputs": self.outputs()}
            elif self.chance.random() < 0.1:
                cell["attachments"] = {"a.png": {"image/png": "iVBORw0KGgo" * 20}}
            written.append(cell)
        return {"cells": written, "metadata": metadata, "nbformat": 4, "nbformat_minor": self.chance.choice((0, 2, 4, 5))}

    def of_older_format(self, cells, version):
        written = [{"cell_type": kind, "metadata": {}} | ({"input": self.source(text, version == 3), "language": "python", "collapsed": False, "outputs": []} if kind == "code" else {"source": self.source(text)}) for kind, text in cells]
        half = len(written) // 2
        return {"metadata": {"name": ""}, "nbformat": version, "nbformat_minor": 0, "worksheets": [{"cells": written[:half], "metadata": {}}, {"cells": written[half:]}]}


def made(count=COUNT):
    """(name, bytes) of each; the first ones are the same whatever the count."""
    groups = [Group(name) for name in GROUPS]
    for i in range(count):
        group = groups[i % len(groups)]
        yield f"{group.name}/{i // len(groups):04}.ipynb", group.notebook()


def broken(data, chance):
    """What transfers, merges and editors make of a notebook: cut off, a byte lost, or a piece of another one within."""
    at = chance.randrange(1, len(data))
    return chance.choice((data[:at], data[:at], data[:at] + data[at + 1:], data[:at] + b"\n<<<<<<< HEAD\n" + data[at:], data[:at] + b"\xe9" + data[at:], data[:at] + b"\x00\n" + data[at:]))


def write(target, notebooks):
    with tarfile.open(target, "w:xz" if str(target).endswith(".xz") else "w") as archive:
        for name, data in notebooks:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


if __name__ == "__main__":
    write(sys.argv[1], made(*map(int, sys.argv[2:3])))
