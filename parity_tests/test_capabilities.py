"""The table of capabilities: every cell of it is tried, checks and page follow from it, and it agrees with what runs."""

from __future__ import annotations

import importlib.util
import itertools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from parity.common.base.errors import ParityError, SpecError
from parity.common.execution.checks import check_run
from parity.common.spec import Placement, RunConfig, TrainSpec, override
from parity.common.spec.capabilities import (
    ENGINES,
    LAUNCHERS,
    REFUSALS,
    STRATEGIES,
    asked_by,
    packages_of,
    refusal,
    unlisted,
)
from parity_tests import imported_specs
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small
from parity_tests.helpers.records import one_line
from parity_tests.helpers.run_cache import RunCache
from parity_tests.tables.capabilities import TITLE, combinations, section
from parity_tests.tables.strategies import ROWS

# How each name of the table is asked for: fields of the run, and assignments to the spec.
RUN: dict[str, dict[str, Any]] = {
    "mp_spawn": {"launcher": "mp_spawn"},
    "replicas": {"replicas": 2},
    "accumulation": {"accumulation": 2},
    "changing_accumulation": {"accumulation": {0: 1, 1: 2}},
    "compile": {"compile": True},
    "steps_per_call": {"steps_per_call": 2},
    "checkpoint": {"options": {"checkpoint": True}},
    "taps": {"taps": True},
    "replay": {"replay": {"stop": 1}},
    "phase_repeats": {"phase_repeats": 1},
    "digests": {"digests": True},
    "save": {"save": {"every_steps": 1}},
    "sharded": {"save": {"every_steps": 1, "sharded": True}},
    "resume": {"resume": "run"},
}
NCCL = {"mirrored": "cross_device", "multi_worker": "communication"}
_REGULARIZED = "[{kind: flatten}, {kind: dense, units: 10}, {kind: activity_penalty, l2: 0.1}]"
_RECURRENT = "[{kind: reshape, shape: [8, 8]}, {kind: lstm, units: 4}, {kind: dense, units: 10}]"
SPEC: dict[str, list[str]] = {
    "low_precision": ["precision=bfloat16_mixed"],
    "loss_scale": ["precision=float16_mixed"],
    "float8_mixed": ["precision=float8_mixed"],
    "float64": ["precision=float64"],
    "reduce_on_plateau": ["schedule={kind: reduce_on_plateau}"],
    "whole_tensors": ["optimizer={kind: adafactor}"],
    "clip_norm": ["optimizer.clip_norm=1.0"],
    "uneven_batch": ["global_batch_size=33"],
    "few_eval_samples": ["data.eval_samples=1"],
    "split": ["data.split=strided"],
    "activity_penalty": [f"model.layers={_REGULARIZED}"],
    "recurrent": [f"model.layers={_RECURRENT}"],
    "stock": ["stock=[shuffling]"],
    "stock_precision": ["stock=[mixed_bfloat16]"],
    "stock_dropout": ["stock=[dropout]"],
    "global_statistics": [],
    "imported": [],
}
# Only two replicas can share unevenly.
OF_TWO = ("uneven_batch", "few_eval_samples")
IMPLIED = {
    "sharded": ("save",),
    "loss_scale": ("low_precision",),
    "float8_mixed": ("low_precision",),
}
LACKS = ("no_gpu", "no_compiler", "old_fsdp2")
NAMES = {*RUN, *SPEC, *LACKS, "nccl"}


class Cell(NamedTuple):
    """A row of the table with one of the alternatives of each name, on a placement that has them."""

    asked: str
    others: str
    chosen: tuple[str, ...]

    @property
    def id(self) -> str:
        return f"{self.asked} with {' '.join(self.chosen)}"

    @property
    def why(self) -> str:
        """The reason, as a pattern."""
        return ".*".join(map(re.escape, re.split(r"\{[^}]*\}", REFUSALS[self.asked][self.others])))


def cells() -> list[Cell]:
    return [
        Cell(asked, others, chosen)
        for asked, rows in REFUSALS.items()
        for others in rows
        for chosen in itertools.product(*(each.split("|") for each in others.split()))
    ]


def runs_of(cell: Cell) -> Iterator[dict[str, Any]]:
    """The fields of runs that ask for all of a cell, on every placement that is listed for it."""
    features = {cell.asked, *cell.chosen} & NAMES
    placed = {*cell.chosen} - NAMES
    for framework, strategy, engine in dict.fromkeys(each[:3] for each in combinations()):
        if not placed <= {framework, strategy, engine}:
            continue
        fields = {"framework": framework, "strategy": strategy, "engine": engine}
        for name in RUN.keys() & features:
            fields |= RUN[name]
        if "nccl" in features:
            fields["options"] = {NCCL.get(strategy): "nccl"}
        if features & {*OF_TWO}:
            fields["replicas"] = 2
        yield fields


def spec_of(features: Iterable[str], folder: Path) -> TrainSpec:
    """A spec that asks for some names of the table."""
    features = set(features)
    if "imported" in features:
        precision = "bfloat16_mixed" if "low_precision" in features else "float32"
        stock = [each for name in features if name.startswith("stock") for each in SPEC[name]]
        return override(imported_specs.mlp(folder, precision=precision), stock).resolved()
    recipe = "digits_cnn" if "global_statistics" in features else "digits_transformer"
    return small(
        recipe, "precision=float32", *itertools.chain(*(SPEC[n] for n in SPEC if n in features))
    ).resolved()


def lines_of(cell: Cell, folder: Path) -> list[str]:
    """The lines that refuse what a cell asks for, of each run that does."""
    spec, lines = spec_of({cell.asked, *cell.chosen}, folder), []
    for fields in runs_of(cell):
        try:
            config = RunConfig.parse(fields)
            check_run(spec, *config.parts)
        except SpecError as error:
            lines.append(one_line(error))
        else:
            lines.append(refusal(config.placement, {cell.asked: cell.asked in LACKS}) or "")
    return lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("imported")


@pytest.mark.parametrize("cell", cells(), ids=lambda cell: cell.id)
def test_what_is_listed_as_impossible_is_refused_with_its_reason(
    cell: Cell, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = lines_of(cell, folder)
    assert any(re.search(cell.why, line) for line in lines), lines
    # The control: without its row it is not refused for this reason.
    why, rows = cell.why, dict(REFUSALS[cell.asked])
    del rows[cell.others]
    monkeypatch.setitem(REFUSALS, cell.asked, rows)
    assert not any(re.search(why, line) for line in lines_of(cell, folder))


def test_names_of_the_table_are_known() -> None:
    known = {*STRATEGIES, *LAUNCHERS, *NAMES}
    known |= {name for table in (STRATEGIES, ENGINES) for rows in table.values() for name in rows}
    used = {name for cell in cells() for name in (cell.asked, *cell.chosen)}
    assert used <= known
    # What is never refused and refuses nothing would be asked for in vain.
    assert used >= NAMES


EVERY = [
    (framework, strategy, engine, launcher)
    for framework in STRATEGIES
    for strategy in {name: 0 for rows in STRATEGIES.values() for name in rows}
    for engine in {name: 0 for rows in ENGINES.values() for name in rows}
    for launcher in LAUNCHERS
]


def test_listed_combinations_construct_and_no_others() -> None:
    listed = set(combinations())
    spawned = ("lightning", "mp_spawn")
    for framework, strategy, engine, launcher in EVERY:
        fields = {"framework": framework, "strategy": strategy, "engine": engine, "launcher": launcher}
        if (engine, launcher) == spawned and strategy != "ddp":
            continue  # cells of their own
        if (framework, strategy, engine, launcher) in listed:
            placement = Placement.parse(fields)
            assert type(placement.options) is STRATEGIES[framework][strategy].options
        else:
            with pytest.raises(SpecError) as error:
                Placement.parse(fields)
            assert str(unlisted(framework, strategy, engine, launcher)) in one_line(error.value)
    assert len(listed) == 3 * 4 + 2 * 4 + 9 * 6 + 4 * 6 + 3 * 6 + 2 * 6


@pytest.mark.parametrize(
    "name", sorted(NAMES - {*LACKS, "mp_spawn", "nccl", "imported", "global_statistics"})
)
def test_what_is_not_listed_as_impossible_is_allowed(name: str, folder: Path) -> None:
    """Each name on each strategy and engine: refused where a row says so, and only there."""
    spec, allowed = spec_of({name}, folder), 0
    asked = dict.fromkeys((name, *IMPLIED.get(name, ())), 1) | {"precision": spec.precision}
    asked |= {"replicas": 2} if name in OF_TWO else {}
    for framework, strategy, engine, _ in dict.fromkeys((*each[:3], "") for each in combinations()):
        fields = {"framework": framework, "strategy": strategy, "engine": engine} | RUN.get(name, {})
        if name in OF_TWO:
            fields["replicas"] = 2
        placed = RunConfig.parse({"framework": framework, "strategy": strategy, "engine": engine}).placement
        if name == "checkpoint" and name not in type(placed.options).model_fields:
            continue
        refused = ""
        try:
            config = RunConfig.parse(fields)
            placed = config.placement
            check_run(spec, *config.parts)
        except SpecError as error:
            refused = one_line(error)
        allowed += not refused
        impossible = refusal(placed, asked_by(placed) | asked)
        assert bool(refused) == bool(impossible) or "nothing to divide" in refused, (refused, impossible)
    assert allowed > 0


def test_the_page_shows_the_table() -> None:
    page = (ROOT / "docs" / "evidence" / "strategies.md").read_text(encoding="utf-8")
    assert page[page.index(TITLE) :] == section(), (
        "run: python -m parity_tests.tables.capabilities docs/evidence/strategies.md"
    )


def test_the_page_changes_with_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    before = section()
    monkeypatch.setitem(REFUSALS, "clip_norm", {})
    assert section() != before


def test_rows_of_the_page_are_listed() -> None:
    """What is measured over 50 steps is in the table, and all strategies and engines of the table are measured."""
    placements = [row.placement(row.replicas[-1]) for row in ROWS]
    measured = {(p.framework, p.strategy, p.engine, p.launcher) for p in placements}
    assert measured <= set(combinations())
    assert {each[:2] for each in measured} == {each[:2] for each in combinations()}
    assert {(each[0], each[2]) for each in measured} == {(each[0], each[2]) for each in combinations()}


STARTED = [
    pytest.param(framework, strategy, engine, id=f"{framework} {strategy} {engine}")
    for framework, strategy, engine, launcher in combinations()
    if launcher == "local"
]


@pytest.mark.slow
@pytest.mark.parametrize(("framework", "strategy", "engine"), STARTED)
def test_what_is_listed_trains(run_cache: RunCache, framework: str, strategy: str, engine: str) -> None:
    """Two steps on CPU, over two replicas where there can be; what a CPU cannot do is refused for that reason."""
    fields = {"framework": framework, "strategy": strategy, "engine": engine, "device": "cpu"}
    placement = Placement.parse({**fields, "replicas": 1 if strategy == "single" else 2})
    for package in packages_of(placement).values():
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    spec = small("digits_transformer", "steps=2", "precision=float32")
    lacking = refusal(placement, {"no_gpu": True})
    if lacking is None:
        assert run_cache.record(spec, placement).steps.tolist() == [0, 1]
    else:
        with pytest.raises(ParityError) as error:
            run_cache.record(spec, placement)
        assert lacking in str(error.value)
