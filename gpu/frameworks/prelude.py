# Varve GPU check, the part that all framework steps share; a step's own file follows it, and both are handed to the image's Python with -c. What is printed is
# described in gpu/probe_output.h. For Python 3.6 and later.
import sys

sys.dont_write_bytecode = True
sys.path[:] = [folder for folder in sys.path if folder]   # -c looks into the working directory first

import importlib
import importlib.util
import json
import math
import os
import time

_answers = os.dup(1)   # what libraries print must not mix with answers
os.dup2(2, 1)
_metrics, _facts, _warnings = [], {}, []

SAMPLES, FEATURES, HIDDEN, OUTPUTS, RATE = 1024, 512, 1024, 16, 0.5
TOLERANCE = 1e-4       # of single precision against double, relative to the largest value
GROUPS, STEPS = 5, 10  # the steady time is the median of the groups


def _say(answer):
    text = "varve-gpu-probe: " + json.dumps(answer) + "\n"
    os.write(_answers, text.encode("ascii"))


def _end(result, detail, status):
    _say({"result": result, "detail": " ".join(str(detail).split())[:1000], "metrics": _metrics, "facts": _facts, "warnings": _warnings})
    sys.stderr.flush()
    sys.exit(status)


def ok(detail):
    _end("ok", detail, 0)


def failed(detail):
    _end("failed", detail, 1)


def skipped(detail):
    _end("skipped", detail, 77)


def doing(what):
    _say({"doing": what})


def metric(name, kind, seconds):
    _metrics.append({"name": name, "kind": kind, "seconds": seconds})


def fact(name, value):
    _facts[name] = str(value)


def imported(name):
    """The module, its import timed. One that is not installed ends the step as skipped; one that is there and cannot be imported is a failure."""
    try:
        there = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        there = False
    if not there:
        skipped("%s is not installed" % name)
    doing("import " + name)
    start = time.perf_counter()
    module = importlib.import_module(name)
    metric("import." + name, "first", time.perf_counter() - start)
    fact(name, getattr(module, "__version__", "unknown"))
    return module


def problem(numpy):
    """Samples, wanted outputs and the weights of two layers: the same numbers everywhere."""
    draw = numpy.random.RandomState(7)
    return [draw.standard_normal(shape).astype("float32") * scale for shape, scale in
            (((SAMPLES, FEATURES), 1.0), ((SAMPLES, OUTPUTS), 1.0), ((FEATURES, HIDDEN), FEATURES ** -0.5), ((HIDDEN, OUTPUTS), HIDDEN ** -0.5))]


def training_step(numpy, x, y, first, second):
    """One step of gradient descent on the mean square error of two layers, by hand: loss and new weights. `numpy` may be anything with its functions."""
    hidden = numpy.maximum(x @ first, 0)
    difference = hidden @ second - y
    slope = difference * (2.0 / difference.size)
    back = (slope @ second.T) * (hidden > 0)
    return (difference * difference).mean(), first - RATE * (x.T @ back), second - RATE * (hidden.T @ slope)


def reference(numpy, values):
    return training_step(numpy, *[value.astype("float64") for value in values])


def distance(numpy, got, wanted):
    """The largest difference, relative to the largest value. NaN if anything is."""
    worst = 0.0
    for one, other in zip(got, wanted):
        one, other = numpy.asarray(one, dtype="float64"), numpy.asarray(other, dtype="float64")
        if one.shape != other.shape:
            failed("a result has the shape %s instead of %s" % (one.shape, other.shape))
        off = float(numpy.abs(one - other).max() / numpy.abs(other).max())
        if math.isnan(off):
            return off
        worst = max(worst, off)
    return worst


def judge(name, off):
    if not off <= TOLERANCE:   # NaN too
        failed("%s is wrong: off by %.3g relative to the CPU's result, more than %.3g" % (name, off, TOLERANCE))


def timed(name, step):
    """Runs step(), which ends when the device is done, once and then often. Returns what the first and the last call gave."""
    doing("the first " + name)
    start = time.perf_counter()
    first = step()
    metric(name + ".first", "first", time.perf_counter() - start)
    doing("more of " + name)
    times = []
    for _ in range(GROUPS):
        start = time.perf_counter()
        for _ in range(STEPS):
            last = step()
        times.append((time.perf_counter() - start) / STEPS)
    metric(name + ".steady", "steady", sorted(times)[GROUPS // 2])
    return first, last


def run(step):
    """The step's own function. Whatever it throws is a failure that says so."""
    try:
        step()
    except Exception as error:
        failed("%s: %s" % (type(error).__name__, error))
