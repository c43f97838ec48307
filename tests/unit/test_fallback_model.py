"""Fitting times: kernels/tuning/fallback_model.py."""

from __future__ import annotations

import numpy as np
import pytest

from tf_tvm_ops.kernels.tuning.fallback_model import Sample, features, fit, nonnegative


def products(count: int, seed: int = 0) -> list[tuple[int, int, int, int]]:
    rng = np.random.default_rng(seed)
    return [tuple(int(512 ** rng.random()) for _ in range(4)) for _ in range(count)]


def test_fit_recovers_what_it_was_made_from() -> None:
    rng = np.random.default_rng(1)
    weights = {name: rng.random(8) * 1e-3 for name in ("kernel", "onednn", "eigen")}
    samples = [
        Sample(*p, *(float(features(*p) @ w) + 1e-9 for w in weights.values()))
        for p in products(60)
    ]
    model = fit(samples, [(1, 3.01), (1000, 13.0)])
    for p in products(40, seed=2):
        for name, true in weights.items():
            assert features(*p) @ model[name] == pytest.approx(
                features(*p) @ true, rel=0.02, abs=0.05
            )
    assert model["pass"] == pytest.approx([3.0, 0.01], rel=1e-3)


def test_weights_are_never_negative() -> None:
    matrix = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0]])
    weights = nonnegative(matrix, np.array([30.0, 20.0, 10.0]))
    assert (weights >= 0).all()
    assert weights[1] == 0


def test_a_disturbed_measurement_does_not_bend_the_model() -> None:
    found = products(40)
    matrix = np.stack([features(*p) for p in found])
    times = matrix @ np.full(8, 1e-3)
    times[::10] *= 20
    weights = nonnegative(matrix, times)
    quiet = np.arange(len(times)) % 10 != 0
    errors = np.abs(matrix @ weights / times - 1)[quiet]
    assert np.median(errors) < 0.05


def test_fit_without_a_pass_that_could_be_measured() -> None:
    samples = [Sample(*p, 1.0, 1.0, 1.0) for p in products(10)]
    assert fit(samples, [])["pass"] == [0.0, 0.0]
