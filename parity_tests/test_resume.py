"""A run that goes on from a checkpoint: bit for bit what it would have been, wherever and however it goes on."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from parity.common.base.files import partial_of
from parity.common.checkpoint import read_checkpoint
from parity.common.checkpoint.files import folder_of, replica_file
from parity.common.record import RunRecord
from parity.common.record.header import STEP_FIELDS
from parity.common.reference import StepScalars
from parity.common.spec import Placement, RunConfig, TrainSpec
from parity.common.spec.layers import Dropout
from parity.common.state.canonical import State, load_state
from parity_tests.helpers.matrix import config, small, tensorflow, torch
from parity_tests.helpers.records import write_checkpoint
from parity_tests.helpers.run_cache import RunCache

# Of the time a step took nothing is asked.
FIELDS = tuple(name for name in STEP_FIELDS if name != "seconds")
STEPS, SAVED_AT = 24, 11
PROOF = 1e-12


def everything(precision: str = "float32") -> TrainSpec:
    """All that a run can carry from one step to the next: five steps are an epoch, two plateaus lie before step 11."""
    scale = ["loss_scale={initial: 65536, growth_interval: 4}"] if precision == "float16_mixed" else []
    spec = small(
        "digits_cnn",
        f"steps={STEPS}",
        f"precision={precision}",
        "data.train_samples=163",
        "data.augment=[{kind: crop, padding: 1}]",
        "model.layers.1.statistics=per_replica",
        "optimizer={kind: adam, learning_rate: 0.003, ema: {decay: 0.9, overwrite_every: 7}}",
        "schedule={kind: reduce_on_plateau, patience: 0, factor: 0.5, threshold: 0.9, threshold_mode: relative}",
        *scale,
    )
    layers = [*spec.model.layers[:-1], Dropout(rate=0.3), spec.model.layers[-1]]
    return spec.model_copy(
        update={"model": spec.model.model_copy(update={"layers": tuple(layers)})}
    ).resolved()


def light(*assignments: str) -> TrainSpec:
    """Nothing that a step must know of the one before, so that the next is launched before it is read."""
    return small("digits_mlp", f"steps={STEPS}", "precision=float32", *assignments).resolved()


def saving(placement: Placement, *, every: int = SAVED_AT, **more: object) -> RunConfig:
    return config(placement, save={"every_steps": every, "keep_last": 99, **more})


def going_on(run: Placement | RunConfig, checkpoint: Path, **more: object) -> RunConfig:
    return config(run, resume=str(checkpoint), **more)


def saved_at(record: RunRecord, step: int = SAVED_AT) -> Path:
    return folder_of(record.folder, step)


def same_bits(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


def same_run(whole: RunRecord, part: RunRecord) -> None:
    """A part of a run is, bit for bit, what the whole run has of the same steps; and so is its end."""
    first = int(part.steps[0])
    assert part.steps.tolist() == whole.steps.tolist()[first:]
    for name in FIELDS:
        assert part.columns[name].tobytes() == whole.columns[name][first:].tobytes(), name
    assert same_bits(part.state("final"), whole.state("final"))
    assert part.summary is not None and whole.summary is not None
    assert part.summary.eval_loss_sum == whole.summary.eval_loss_sum
    assert not part.violations and not whole.violations


def deviation(whole: RunRecord, part: RunRecord) -> float:
    """The largest relative difference between a part's losses and final state and those of the whole run."""
    first = int(part.steps[0])
    losses = np.abs(part.loss / whole.loss[first : first + len(part.steps)] - 1).max()
    return max(float(losses), apart(part.state("final"), whole.state("final")))


def apart(one: State, other: State) -> float:
    """The largest difference between two states' tensors, relative to the largest element."""
    assert one.keys() == other.keys()
    return max(
        float(np.abs(one[name] - other[name]).max() / max(np.abs(other[name]).max(), 1e-3))
        for name in one
        if one[name].size
    )


def check_bits(
    run_cache: RunCache, spec: TrainSpec, placement: Placement
) -> tuple[RunRecord, RunRecord, RunRecord]:
    """Straight, saving and going on: one and the same run."""
    run_cache.begin(spec, placement)
    whole, saved = run_cache.record(spec, placement), run_cache.record(spec, saving(placement))
    same_run(whole, saved)
    part = run_cache.record(spec, going_on(placement, saved_at(saved)))
    assert int(part.steps[0]) == SAVED_AT
    same_run(whole, part)
    return whole, saved, part


EXHAUSTIVE = pytest.mark.exhaustive
BOTH = [torch("ddp", 2), pytest.param(tensorflow(2), marks=pytest.mark.slow)]
OTHERS = [
    pytest.param(torch("single", 1), marks=EXHAUSTIVE),
    pytest.param(torch("fsdp2", 2), marks=pytest.mark.slow),
    pytest.param(tensorflow(1), marks=EXHAUSTIVE),
    pytest.param(tensorflow(2, strategy="multi_worker"), marks=EXHAUSTIVE),
]


def label(value: object) -> str:
    return value.label if isinstance(value, Placement) else "->".join(map(str, value))  # type: ignore[call-overload]


@pytest.mark.parametrize("placement", BOTH, ids=label)
def test_a_resumed_run_is_bit_identical(run_cache: RunCache, placement: Placement) -> None:
    spec = everything()
    whole, saved, _ = check_bits(run_cache, spec, placement)
    # All of what it was to carry was there: each replica's statistics, rates that have fallen and will fall again.
    rates = whole.columns["learning_rate"]
    assert rates[0] > rates[SAVED_AT] > rates[-1]
    files = [saved_at(saved) / replica_file(replica) for replica in range(placement.replicas)]
    one, other = map(load_state, files)
    assert any((one[name] != other[name]).any() for name in one)
    kept = read_checkpoint(saved_at(saved)).manifest.rates
    assert kept["plateau_sum"] and SAVED_AT % 5
    assert any(name.startswith("slots/average") for name in read_checkpoint(saved_at(saved)).state())


@pytest.mark.parametrize("placement", OTHERS, ids=label)
def test_a_resumed_run_of_other_strategies_is_bit_identical(
    run_cache: RunCache, placement: Placement
) -> None:
    check_bits(run_cache, everything(), placement)


@pytest.mark.parametrize(
    "placement",
    [
        pytest.param(torch("ddp", 2), marks=pytest.mark.slow),
        pytest.param(tensorflow(2), marks=EXHAUSTIVE),
    ],
    ids=label,
)
def test_a_loss_scale_goes_on(run_cache: RunCache, placement: Placement) -> None:
    whole, _, _ = check_bits(run_cache, everything("float16_mixed"), placement)
    # It has moved, and its count of updates in a row was under way.
    assert (
        len(set(whole.columns["loss_scale"][: SAVED_AT + 1]))
        > 1
        < len(set(whole.columns["loss_scale"][SAVED_AT:]))
    )


@pytest.mark.parametrize(
    "placement",
    [
        pytest.param(torch("ddp", 2), marks=pytest.mark.slow),
        tensorflow(2),
        tensorflow(1, steps_per_call=4),
    ],
    ids=lambda p: f"{p.label} {p.steps_per_call}",
)
def test_saving_changes_no_bit(run_cache: RunCache, placement: Placement) -> None:
    """Also where steps are read late, or several are taken by one call, and whether or not it is written meanwhile."""
    spec = light()
    whole = run_cache.record(spec, placement)
    at = 5 if placement.steps_per_call == 4 else SAVED_AT
    for every in (1, 5):
        saved = run_cache.record(spec, saving(placement, every=every, in_background=every == 1))
        same_run(whole, saved)
    assert len(list((saved.folder / "checkpoints").iterdir())) == 4
    earlier = run_cache.record(spec, saving(placement, every=1))
    same_run(whole, run_cache.record(spec, going_on(placement, saved_at(earlier, at))))


def test_a_run_goes_on_from_any_step(run_cache: RunCache) -> None:
    """The first, the last and an epoch's last; and with nothing left to train it ends as it had."""
    spec, placement = light(), torch("single", 1)
    whole, saved = run_cache.record(spec, placement), run_cache.record(spec, saving(placement, every=1))
    for step in (1, STEPS - 1):
        same_run(whole, run_cache.record(spec, going_on(placement, saved_at(saved, step))))
    nothing = run_cache.record(spec, going_on(placement, saved_at(saved, STEPS)))
    assert len(nothing.steps) == 0
    assert same_bits(nothing.state("final"), whole.state("final"))


def chain(run_cache: RunCache, spec: TrainSpec, *placements: Placement) -> list[RunRecord]:
    """A run that is stopped early on each placement but the last, and goes on on the next."""
    records: list[RunRecord] = []
    size = spec.steps // len(placements)
    for number, placement in enumerate(placements, start=1):
        more: dict[str, object] = {}
        if records:
            more["resume"] = str(saved_at(records[-1], (number - 1) * size))
        if number < len(placements):
            more |= {"stop_at_step": number * size, "save": {"every_steps": size}}
        records.append(run_cache.record(spec, config(placement, **more)))
    return records


def check_chain(run_cache: RunCache, spec: TrainSpec, *placements: Placement) -> list[RunRecord]:
    whole = run_cache.record(spec, placements[0])
    records = chain(run_cache, spec, *placements)
    assert [int(step) for record in records for step in record.steps] == list(range(spec.steps))
    losses = np.concatenate([record.loss for record in records])
    assert np.abs(losses / whole.loss - 1).max() < PROOF
    assert deviation(whole, records[-1]) < PROOF
    return records


def proof() -> TrainSpec:
    return small("digits_cnn", f"steps={STEPS}", "optimizer={kind: adam, learning_rate: 0.003}").resolved()


def test_one_curve_over_frameworks_strategies_and_replica_counts(run_cache: RunCache) -> None:
    check_chain(run_cache, proof(), tensorflow(2), torch("fsdp2", 4), torch("ddp", 1))


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(("torch:ddp:2", "tensorflow:multi_worker:2"), marks=pytest.mark.slow),
        pytest.param(
            ("torch:fsdp2:4,shard_group=2", "torch:fsdp1:2", "tensorflow:mirrored:4"), marks=EXHAUSTIVE
        ),
        pytest.param(
            ("torch:zero_redundancy:2", "torch:manual:4", "torch:fsdp2:4,shard_group=2"), marks=EXHAUSTIVE
        ),
        pytest.param(("tensorflow:single:1", "torch:fsdp1:2", "torch:zero_redundancy:2"), marks=EXHAUSTIVE),
    ],
    ids=label,
)
def test_one_curve_over_further_strategies(run_cache: RunCache, texts: tuple[str, ...]) -> None:
    check_chain(run_cache, proof(), *map(Placement.from_text, texts))


def rewritten(checkpoint: Path, folder: Path, factor: float = 1.0, forget_rates: bool = False) -> Path:
    """A whole checkpoint that says something else."""
    stored = read_checkpoint(checkpoint)
    state = stored.state()
    name = next(name for name in state if name.endswith("kernel") and name.startswith("parameters/"))
    state[name] = state[name] * factor
    copy = folder_of(folder, stored.step)
    partial_of(copy).mkdir(parents=True)
    for path in checkpoint.glob("replica_*.safetensors"):
        shutil.copy(path, partial_of(copy))
    rates = StepScalars(stored.spec).kept() if forget_rates else stored.manifest.rates
    write_checkpoint(copy, stored.spec, stored.manifest.placement, state, rates)
    return copy


def test_a_state_that_is_a_little_off_is_seen(run_cache: RunCache, tmp_path: Path) -> None:
    """The control of the curves over placements."""
    spec, placement = proof(), torch("single", 1)
    whole, saved = run_cache.record(spec, placement), run_cache.record(spec, saving(placement))
    exact = run_cache.record(spec, going_on(placement, rewritten(saved_at(saved), tmp_path / "same")))
    assert deviation(whole, exact) == 0
    off = run_cache.record(
        spec, going_on(placement, rewritten(saved_at(saved), tmp_path / "off", factor=1 + 1e-9))
    )
    assert deviation(whole, off) > 10 * PROOF


def test_rates_that_are_not_restored_are_seen(run_cache: RunCache, tmp_path: Path) -> None:
    """The control of the bits: what else a checkpoint holds counts as well."""
    spec, placement = everything(), torch("ddp", 2)
    whole, saved = run_cache.record(spec, placement), run_cache.record(spec, saving(placement))
    forgotten = rewritten(saved_at(saved), tmp_path / "rates", forget_rates=True)
    part = run_cache.record(spec, going_on(placement, forgotten))
    with pytest.raises(AssertionError, match=r"loss_sum|learning_rate"):
        same_run(whole, part)
