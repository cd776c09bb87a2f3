"""Generates the test cases of stp_matching.json. Needs NumPy and SciPy: `python stp_matching.py > stp_matching.json`.

Weights and distance follow STP's rule in NumPy. `least` and `least_of_equals` are exact optimal transport distances (by
linear programming) with a weight per conjecture of at most `max_weight`, or at most 1. They are omitted if the number of
targets is not a multiple of the number of conjectures, because the rule's weights may then exceed the bound.
"""

import json

import numpy as np
from scipy.optimize import linprog


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def rule(cosines, most):
    n, m = cosines.shape
    weights, open_, cost = np.zeros(n), np.ones(n), 0.0
    for column in cosines.T:
        best = int(np.argmax(column * open_))
        weights[best] += n / m
        cost += 1 - column[best]
        open_[best] = float(weights[best] < most)
    return weights, cost / m


def least(cosines, most):
    n, m = cosines.shape
    whole = np.kron(np.ones((1, n)), np.eye(m))
    bounded = np.kron(np.eye(n), np.ones((1, m)))
    found = linprog((1 - cosines).ravel(), A_ub=bounded, b_ub=np.full(n, most / n), A_eq=whole, b_eq=np.full(m, 1 / m))
    return found.fun


def case(rng, n, m, width, most):
    middle = rng.normal(size=width)
    conjectures = (rng.normal(size=(n, width)) + 1.5 * middle).round(3)
    targets = (rng.normal(size=(m, width)) + middle).round(3)
    cosines = unit(conjectures) @ unit(targets).T
    weights, distance = rule(cosines, most)
    made = {
        "conjectures": conjectures.tolist(),
        "targets": targets.tolist(),
        "max_weight": most,
        "weights": weights.round(9).tolist(),
        "distance": distance,
    }
    if m % n == 0:
        made |= {"least": least(cosines, most), "least_of_equals": least(cosines, 1.0)}
    return made


rng = np.random.default_rng(7)
shapes = [(5, 40, 6, 4.0), (12, 36, 6, 4.0), (8, 32, 5, 1.25), (4, 24, 5, 1.5), (9, 7, 6, 4.0), (1, 5, 4, 4.0), (6, 1, 4, 4.0)]
print(json.dumps([case(rng, *shape) for shape in shapes]))
