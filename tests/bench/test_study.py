"""The study behind ``toporo theory``: complete, and the same bytes every time."""

from __future__ import annotations

import json

from tests.theory.cases import tiny_study
from toporo.bench.study import run_study


def test_the_study_is_complete() -> None:
    study = tiny_study()
    assert [(case.loss, case.penalty) for case in study.convergence] == [
        ("squared", 0.0), ("squared", 1.0), ("logistic", 0.0), ("logistic", 1.0)
    ]  # fmt: skip
    for case in study.convergence:
        assert [run.constants.how for run in case.runs] == ["certified", "estimated"]
        assert all(run.holds and run.covered for run in case.runs)
    for curves in study.stationarity:
        assert curves.gradient_norm.shape == curves.dual_suboptimality.shape == (1, 2)
        assert (curves.gradient_norm > 0).all()
    dro, tro = study.bounds
    assert [b.test_group for b in dro.breakdowns] == [b.test_group for b in tro.breakdowns]
    assert dro.breakdowns[0].emd < dro.breakdowns[1].emd  # near and far are near and far
    assert max(dro.gap, tro.gap) <= 1e-4
    assert max(tro.weights.values()) > 0.5  # TRO stays near its sharp prior
    assert not set(dro.weights) & {b.test_group for b in dro.breakdowns}


def test_the_same_settings_give_the_same_bytes_and_every_part_is_counted() -> None:
    seen: list[tuple[int, int]] = []
    again = run_study(tiny_study().settings, progress=lambda *step: seen.append(step))
    assert json.dumps(again.to_dict()) == json.dumps(tiny_study().to_dict())
    assert seen == [(i, 10) for i in range(1, 11)]
