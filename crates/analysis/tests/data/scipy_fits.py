"""Fits the scaling law with SciPy's bounded curve_fit.

Without arguments: reads curves as JSON from stdin and writes their fits to stdout.
With `golden`: makes the curves of scipy_fits.json, fits them and writes that file's content to stdout.

A curve: name, initial (R_0), c (generations after the anchor), rate, bounds (pairs for A, C_mid, B).
A fit: parameters (A, C_mid, B), covariance, squares (sum of squared residuals).
"""

import json
import sys
import warnings

import numpy as np
import scipy
from scipy.optimize import curve_fit

warnings.filterwarnings("ignore")


def law(initial):
    def rate(c, a, mid, b):
        return initial + (a - initial) / (1.0 + (mid / c) ** b)

    return rate


def jacobian(initial):
    def rows(c, a, mid, b):
        s = 1.0 / (1.0 + (mid / c) ** b)
        slope = (a - initial) * s * (1.0 - s)
        return np.stack([s, -slope * b / mid, slope * np.log(c / mid)], axis=1)

    return rows


def fit(curve):
    c, rate = np.array(curve["c"]), np.array(curve["rate"])
    initial, bounds = curve["initial"], np.array(curve["bounds"]).T
    span, top = c.max(), rate.max()
    best = None
    for share in (0.05, 0.3, 1.0, 4.0):
        for steep in (0.5, 1.0, 2.0, 5.0):
            start = np.clip([min(1.0, top + 0.02), share * span, steep], bounds[0] + 1e-9, bounds[1] * (1 - 1e-9))
            try:
                values, covariance = curve_fit(
                    law(initial), c, rate, p0=start, bounds=bounds, jac=jacobian(initial), x_scale=[0.1, span, 1.0],
                    ftol=3e-16, xtol=3e-16, gtol=3e-16, max_nfev=5000,
                )
            except RuntimeError:
                continue
            squares = float(np.sum((law(initial)(c, *values) - rate) ** 2))
            if best is None or squares < best["squares"]:
                best = {"parameters": values.tolist(), "covariance": covariance.tolist(), "squares": squares}
    return best


def golden():
    rng = np.random.default_rng(20240517)
    curves = []

    def add(name, c, rate, initial):
        c, rate = np.round(np.asarray(c, float), 1), np.round(np.asarray(rate, float), 7)
        low, high = 0.01 * c.min(), 100.0 * c.max()
        curves.append({"name": name, "initial": round(initial, 7), "c": c.tolist(), "rate": rate.tolist(),
                       "bounds": [[round(initial, 7), 1.0], [low, high], [0.05, 20.0]]})

    grid = [(a, m, b) for a in (0.45, 0.67, 0.9) for m in (0.08, 0.25, 0.6) for b in (0.7, 1.0, 1.8)]
    for i, (a, m, b) in enumerate(grid):
        n = (12, 24, 60)[i % 3]
        c = np.linspace(1 / n, 1, n) * (4e4, 1e6, 8e6)[i // 9]
        initial = (0.05, 0.2, 0.35)[i % 3]
        clean = law(initial)(c, a, m * c.max(), b)
        add(f"bent {i}: A {a} C_mid {m} B {b}", c, clean + rng.normal(0, (0.001, 0.004)[i % 2], n), initial)
    c = np.linspace(1e4, 1e6, 40)
    for i, slope in enumerate((0.05, 0.1, 0.2)):
        add(f"barely bent {i}", c, 0.2 + slope * (c / 1e6) ** 0.8 + rng.normal(0, 0.0005, 40), 0.2)
    for i, level in enumerate((0.3, 0.5, 0.8)):
        add(f"flat {i}", c, level + 0.01 + rng.normal(0, 0.002, 40), level)
    for i, n in enumerate((4, 5, 6)):
        c = np.linspace(1e3, 1.6e4, n)
        add(f"few points {i}: {n}", c, law(0.1)(c, 0.5, 5e3, 1.2) + rng.normal(0, 0.002, n), 0.1)
    c = np.linspace(1e3, 1e5, 50)
    add("saturated at once", c, law(0.1)(c, 0.6, 1.5e3, 1.0) + rng.normal(0, 0.002, 50), 0.1)
    add("late rise", c, law(0.02)(c, 0.5, 8e4, 4.0) + rng.normal(0, 0.002, 50), 0.02)
    add("rests on A = 1", c, law(0.1)(c, 1.3, 6e4, 1.0) + rng.normal(0, 0.002, 50), 0.1)
    add("without noise", c, law(0.1)(c, 0.55, 2e4, 1.1), 0.1)
    steps = np.floor(law(0.12)(c, 0.62, 2.5e4, 0.9) * 100 + rng.normal(0, 0.3, 50)) / 100
    add("100 targets, whole counts", c, np.maximum.accumulate(steps), 0.12)
    return {"made with": f"SciPy {scipy.__version__}, numpy {np.__version__}",
            "curves": [{**curve, "fit": fit(curve)} for curve in curves]}


if sys.argv[1:] == ["golden"]:
    out = golden()
    print("{\n\"made with\": " + json.dumps(out["made with"]) + ",\n\"curves\": [")
    print(",\n".join(json.dumps(curve) for curve in out["curves"]))
    print("]}")
else:
    json.dump([fit(curve) for curve in json.load(sys.stdin)], sys.stdout)
