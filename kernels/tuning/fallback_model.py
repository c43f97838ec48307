"""A small model of time, for products that a pack has no kernel for: generic kernel or stock.

Linear in features that cost time for a reason: the op, each matrix, multiply-adds, vectors along N
or along K (whose last one is part empty), elements read and written, elements of rhs that may be
packed, rows. Weights are not negative, so that a model that was fitted to small products does not
promise negative time for large ones. ``cc/dispatch/measured.cc`` evaluates it and has the same
features.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FEATURES = 8
_LANES = 16
_NEGLIGIBLE_US = 1.0
_LARGE_ERROR = 0.2
_ROUNDS = 4


@dataclass(frozen=True)
class Sample:
    """A product that was measured.

    Attributes
    ----------
    matrices, m, n, k
        Its extents.
    kernel_us, onednn_us, eigen_us
        Microseconds for the op by the generic kernel, and by stock with oneDNN on and off.
    """

    matrices: int
    m: int
    n: int
    k: int
    kernel_us: float
    onednn_us: float
    eigen_us: float


def features(matrices: int, m: int, n: int, k: int) -> npt.NDArray[np.float64]:
    """What time is expected to be proportional to, part by part."""
    each = (
        1,
        m * n * k,
        m * -(-n // _LANES) * k,
        m * n * -(-k // _LANES),
        m * k + k * n + m * n,
        k * n,
        m,
    )
    return np.array([1.0, *(matrices * part for part in each)])


def fit(samples: Sequence[Sample], pass_us: Sequence[tuple[int, float]]) -> dict[str, list[float]]:
    """The model of a manifest.

    Parameters
    ----------
    samples
        Products of one dtype and layout.
    pass_us
        Elements of a tensor, and microseconds for an op of stock's that passes over it.

    Returns
    -------
    dict
        ``kernel``, ``onednn``, ``eigen``: weights; ``pass``: microseconds for an op, and for an
        element.
    """
    matrix = np.stack([features(s.matrices, s.m, s.n, s.k) for s in samples])
    model = {
        name: nonnegative(matrix, np.array([getattr(s, f"{name}_us") for s in samples]))
        for name in ("kernel", "onednn", "eigen")
    }
    model["pass"] = np.zeros(2)
    if pass_us:
        elements = np.array([[1.0, size] for size, _ in pass_us])
        model["pass"] = nonnegative(elements, np.array([us for _, us in pass_us]))
    return {name: [float(f"{w:.6g}") for w in weights] for name, weights in model.items()}


def nonnegative(
    matrix: npt.NDArray[np.float64], times: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Weights >= 0 whose ``matrix @ weights`` is near ``times``, relative to them.

    A few measurements that something else disturbed must not bend the model: errors beyond
    :data:`_LARGE_ERROR` count in proportion, not squared (Huber, "Robust Estimation of a Location
    Parameter", 1964), by least squares that are weighted anew a few times.
    """
    sizes = times + _NEGLIGIBLE_US
    weights = _least_squares(matrix / sizes[:, None], times / sizes)
    for _ in range(_ROUNDS):
        errors = np.abs(matrix @ weights - times) / sizes
        trust = np.sqrt(np.minimum(1.0, _LARGE_ERROR / np.maximum(errors, 1e-9)))
        weights = _least_squares(matrix * (trust / sizes)[:, None], times * trust / sizes)
    return weights


def _least_squares(
    rows: npt.NDArray[np.float64], targets: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Weights >= 0 with the least squares of ``rows @ weights - targets``.

    Every support is tried, since there are few: the best one whose free solution is not negative is
    the solution (the conditions of Karush, Kuhn and Tucker).
    """
    scale = np.maximum(rows.max(axis=0), 1e-30)
    rows = rows / scale
    best, least = np.zeros(rows.shape[1]), np.inf
    for support in itertools.product((False, True), repeat=rows.shape[1]):
        chosen = np.array(support)
        if not chosen.any():
            continue
        solution, *_ = np.linalg.lstsq(rows[:, chosen], targets, rcond=None)
        if (solution < 0).any():
            continue
        error = float(np.sum((rows[:, chosen] @ solution - targets) ** 2))
        if error < least - 1e-12:
            best, least = np.zeros(rows.shape[1]), error
            best[chosen] = solution
    weights: npt.NDArray[np.float64] = best / scale
    return weights
