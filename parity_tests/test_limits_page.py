"""docs/reference/limits.md has the numbers that the code decides by."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.common.assertions.arguments import TOLERANCES
from parity.common.diagnosis import limits
from parity.common.diagnosis.isolate.comparison import INJECTED_TOLERANCES
from parity.common.external.mapping.trial import AGREES
from parity.common.parity.budget import CURVES, STATES
from parity.common.parity.compare import count_rounding, rate_rounding
from parity.common.parity.rounding import ELEMENTWISE_GROSS_ULPS, FLOAT64, Rounding
from parity.common.record.fits import ELEMENTWISE_ULPS
from parity.common.spec import ScriptInfo
from parity.common.state.zero_gradient import CLAIMED_ULPS
from parity_tests.helpers import ROOT

PAGE = ROOT / "docs" / "reference" / "limits.md"
EPS, EPS32 = float(np.finfo(np.float64).eps), float(np.finfo(np.float32).eps)
PROOF = Rounding(EPS, True, layers=4, terms=100)


def rates(framework: str) -> float:
    """What the learning rates of two scripts may be apart, one of this framework."""
    names = {"kind": "script", "name": "a", "precision": "float64", "naming": "keras"}
    records: list[Any] = [
        SimpleNamespace(run_info=ScriptInfo.parse({**names, "framework": each}))
        for each in (framework, "torch")
    ]
    return float(rate_rounding(records, [np.array([0.1])] * 2)[0])


def counts() -> float:
    """What the counts of a loss with class weights may be apart."""
    weighted = SimpleNamespace(loss=SimpleNamespace(class_weights=[1.0, 2.0]))
    record: Any = SimpleNamespace(train_spec=weighted, run_info=SimpleNamespace(master_dtype="float64"))
    return count_rounding(record)


# How a row begins, in the order of the page, and the limit that the code has.
ROWS: list[tuple[str, float]] = [
    ("sample ids, counts", 0.0),
    ("counts, where samples or classes have weights", counts()),
    ("loss, each step", FLOAT64["loss_sum"]),
    ("gradient norm", FLOAT64["gradient_norm"]),
    ("parameter norm", FLOAT64["parameter_norm"]),
    ("update norm", FLOAT64["update_norm"]),
    ("gradients of the first step", FLOAT64["first_gradients"]),
    ("final state", FLOAT64["final"]),
    ("evaluation loss", FLOAT64["evaluation"]),
    ("evaluation: number", 0.0),
    ("replicas", 0.0),
    ("[zero-gradient direction]", CLAIMED_ULPS * EPS),
    ("learning rates, both scripts in torch", rates("torch")),
    ("learning rates, one script in Keras", rates("tensorflow")),
    ("loss", float(PROOF.loss(np.ones(1), np.ones(1), np.ones(1))[1][0])),
    ("gradients and buffers", PROOF.smooth),
    ("update and optimizer slots", ELEMENTWISE_ULPS * EPS),
    ("update and slots, one script in Keras", ELEMENTWISE_GROSS_ULPS * EPS32),
    ("weights and buffers before", limits.INJECTED_FLOAT64),
    ("output of each layer", limits.LIVE_FLOAT64),
    ("loss, its penalties", limits.LIVE_FLOAT64),
    ("gradient of each weight", limits.LIVE_FLOAT64),
    ("buffers after", limits.LIVE_FLOAT64),
    ("update of each weight", limits.LIVE_FLOAT64),
    ("learning rates of a schedule", limits.SCHEDULED_RATE),
    ("a mapping that is tried", AGREES),
    ("`assert_same_forward`, `exact`", TOLERANCES["exact"].limit),
    ("`assert_same_forward`, `keras_constants`", TOLERANCES["keras_constants"].limit),
    ("one stage or layer by itself", INJECTED_TOLERANCES.every),
    ("the same as trained", INJECTED_TOLERANCES.as_trained.every),
    ("the first step at which", FLOAT64["final"]),
    ("a sum that nearly cancels", limits.ULPS_OF_TERMS * EPS),
]


def rows(page: str) -> list[tuple[str, str]]:
    """(quantity, limit) of the tables of a page, as written."""
    found = re.findall(r"^\| (.*?) \| (\S+) \| .* \|$", page, re.MULTILINE)
    return [(name, limit) for name, limit in found if limit not in ("limit", "---")]


def wrong(page: str, expected: list[tuple[str, float]]) -> list[str]:
    """The rows that say another number than the code has."""
    shown = rows(page)
    assert len(shown) == len(expected), f"{len(shown)} rows on the page, {len(expected)} here"
    return [
        f"{name}: {limit} on the page, {value:.3g} in the code"
        for (name, limit), (begins, value) in zip(shown, expected, strict=True)
        if not name.startswith(begins) or limit != f"{value:.3g}"
    ]


def test_the_page_of_limits_has_the_numbers_of_the_code() -> None:
    assert wrong(PAGE.read_text(encoding="utf-8"), ROWS) == []
    # All that have a limit are on the page, and gross deviations of a proof are the smooth ones.
    assert {*CURVES, *STATES, "evaluation"} == set(FLOAT64)
    assert PROOF.smooth == PROOF.gross == PROOF.gross_gradient


@pytest.mark.parametrize("place", range(len(ROWS)))
def test_another_number_in_the_code_is_seen(place: int) -> None:
    name, value = ROWS[place]
    changed = [*ROWS[:place], (name, value * 1.5 + 1e-15), *ROWS[place + 1 :]]
    assert len(wrong(PAGE.read_text(encoding="utf-8"), changed)) == 1
