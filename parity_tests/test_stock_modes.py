"""Stock modes: each framework trains as its own classes do, and no proof is given of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common import recipes
from parity.common.base.errors import NotComparableError, SpecError
from parity.common.data.plan import BatchPlan
from parity.common.execution.checks import check_run
from parity.common.parity.result import judge
from parity.common.record import RunRecord
from parity.common.reference.schedules import LossScaler
from parity.common.spec import Placement, RunConfig, RunOptions, TrainSpec, override
from parity.common.study.question import Arm
from parity_tests import test_conventions as stock
from parity_tests.helpers import matrix
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import DDP, TORCH, Run, one_line, tiny_spec
from parity_tests.helpers.run_cache import RunCache
from parity_tests.peers import Arrays, Peer

SGD = {"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9}
STEPS = 3
# float32 rounding over a few steps; a rounding to bfloat16 elsewhere shows as 1e-3 and more.
LIMIT = 5e-6
# A sum of float32 that lies between two numbers of bfloat16 becomes the one or the other by the order in which a CPU's kernels
# add it up: seen was one of the 72 elements of a kernel's gradient, by one unit, which moves the weights by 3e-5.
FLIPPED, FLIP = 0.02, 1e-4


def spec_of(model: str, convention: str, *more: str) -> TrainSpec:
    """One of the models of `peers/*_stock.py`, by default in each framework's own bfloat16."""
    made = stock.spec_of(model, SGD, convention)
    return override(
        made, ["precision=float32", f"steps={STEPS}", *(more or ("stock=[mixed_bfloat16]",))]
    ).resolved()


def peer_of(peers: dict[str, Peer], framework: str, low: str, **facts: Any) -> dict[str, Any]:
    """The plain trainings in a low type, float32 otherwise."""

    def train(name: str, given: dict[str, Any], arrays: Arrays) -> Arrays:
        single = {n: a.astype(np.float32) if a.dtype == np.float64 else a for n, a in arrays.items()}
        return peers[framework](name, {**given, **facts, "low": low}, single)

    return {framework: train}


def apart(ours: np.ndarray, theirs: np.ndarray) -> float:
    """How far two tensors are apart, but for the few elements that may have been rounded to a neighbour."""
    each = np.sort(np.abs(ours - theirs).ravel()) / np.abs(theirs).max()
    few = int(FLIPPED * len(each)) if each[-1] <= FLIP else 0
    return float(each[len(each) - 1 - few])


def keras_deviation(peers: dict[str, Peer], record: RunRecord, model: str) -> float:
    case = model, SGD, "SGD", {}, {}
    own = peer_of(peers, "tensorflow", "mixed_bfloat16")
    return stock.keras_deviation(own, record, {"momentum": 0.9}, case, apart)


def torch_deviation(peers: dict[str, Peer], record: RunRecord, model: str) -> float:
    own = peer_of(peers, "torch", "bfloat16", channels_last=True)
    return stock.torch_deviation(own, record, {"momentum": 0.9}, (model, SGD, "SGD", {}, {}), apart)


@pytest.mark.parametrize("model", ["mlp", pytest.param("cnn", marks=pytest.mark.slow)])
def test_tensorflow_computes_as_keras_under_its_policy(
    run_cache: RunCache, peers: dict[str, Peer], model: str
) -> None:
    record = run_cache.record(spec_of(model, "keras"), matrix.tensorflow(1))
    assert keras_deviation(peers, record, model) <= LIMIT


@pytest.mark.parametrize("model", ["mlp", pytest.param("cnn", marks=pytest.mark.slow)])
def test_torch_computes_as_autocast(run_cache: RunCache, peers: dict[str, Peer], model: str) -> None:
    record = run_cache.record(spec_of(model, "torch"), matrix.torch("single", 1))
    assert torch_deviation(peers, record, model) <= LIMIT


@pytest.mark.parametrize(("dropout", "causal"), [(0.0, False), (0.0, True), (0.2, False)])
def test_attention_is_keras(peers: dict[str, Peer], dropout: float, causal: bool) -> None:
    """Bit for bit, gradients as well; where it has dropout, its softmax is low, too."""
    x = np.random.default_rng(1).standard_normal((16, 8, 12)).astype(np.float32)
    facts = {"low": "mixed_bfloat16", "dropout": dropout, "causal": causal}
    found = peers["tensorflow"]("stock:attended", facts, {"x": x})
    assert np.array_equal(found["ours"], found["theirs"])
    assert np.array_equal(found["ours_gradients"], found["theirs_gradients"])
    without = {**facts, "dropout": 0.2 - dropout}
    assert not np.array_equal(found["ours"], peers["tensorflow"]("stock:attended", without, {"x": x})["ours"])


def test_other_roundings_are_seen(run_cache: RunCache, peers: dict[str, Peer]) -> None:
    """The control: the spec's own bfloat16, which rounds elsewhere, is neither framework's."""
    for framework, convention, deviation in (
        ("torch", "torch", torch_deviation),
        ("tensorflow", "keras", keras_deviation),
    ):
        placement = matrix.torch("single", 1) if framework == "torch" else matrix.tensorflow(1)
        record = run_cache.record(spec_of("mlp", convention, "precision=bfloat16_mixed"), placement)
        assert deviation(peers, record, "mlp") > 100 * LIMIT


@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_dropout_is_the_frameworks(peers: dict[str, Peer], framework: str) -> None:
    x = np.random.default_rng(0).standard_normal((64, 6, 5)).astype(np.float32)
    found = peers[framework]("stock:dropped", {"rate": 0.3, "seed": 7}, {"x": x})
    assert np.array_equal(found["ours"], found["theirs"])
    kept = (found["ours"] != 0).mean()
    assert 0.66 < kept < 0.74 and not np.array_equal(found["ours"], found["again"])


@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_shuffling_is_the_frameworks(run_cache: RunCache, framework: str) -> None:
    placement = matrix.torch("ddp", 2) if framework == "torch" else matrix.tensorflow(2)
    spec = override(
        recipes.get("digits_mlp"), ["precision=float32", "stock=[shuffling]", "steps=46"]
    ).resolved()
    record = run_cache.record(spec, RunConfig(placement=placement, run_options=RunOptions(recording="curve")))
    plan, kept = BatchPlan.of(spec, placement), record.received.kept
    assert sorted(kept) == list(range(46)), "ids that are not the plan's are recorded"
    epochs = [
        np.concatenate([kept[step][replica] for step in steps for replica in (0, 1)])
        for steps in (range(23), range(23, 46))
    ]
    for epoch in epochs:
        assert sorted(epoch.tolist()) == list(range(plan.samples))
    assert not np.array_equal(*epochs)
    assert not np.array_equal(np.concatenate([kept[0][0], kept[0][1]]), plan.global_ids(0))


def test_a_run_of_the_curve_alone_is_small(run_cache: RunCache) -> None:
    spec = override(recipes.get("digits_mlp"), ["precision=float32", "steps=46"]).resolved()
    config = RunConfig(placement=matrix.torch("ddp", 2), run_options=RunOptions(recording="curve"))
    record = run_cache.record(spec, config)
    whole = run_cache.record(spec, matrix.torch("ddp", 2))
    assert (
        np.array_equal(record.loss, whole.loss)
        and record.summary.eval_loss_sum == whole.summary.eval_loss_sum
    )
    assert not list(record.folder.glob("*.safetensors")) and not record.has("final") and whole.has("final")
    size = sum(path.stat().st_size for path in record.folder.rglob("*") if path.is_file())
    assert size < 20_000
    with pytest.raises(NotComparableError, match="recording curve"):
        judge([whole, record])


def test_arms_scale_losses_as_their_frameworks_do() -> None:
    """2^16 and 2^15 of a mean over a local batch of 32 are 2^11 and 2^10 of its sum."""
    spec = override(recipes.get("digits_mlp"), ["precision=float32"])
    torch, keras = (
        Arm.of(text).spec_of(spec, 3)
        for text in ("torch:ddp:2,stock=mixed_float16", "tf:mirrored:2,stock=mixed_float16")
    )
    assert torch.loss_scale is not None and keras.loss_scale is not None
    assert (torch.loss_scale.initial, torch.loss_scale.schedule) == (2.0**11, "advances")
    assert (keras.loss_scale.initial, keras.loss_scale.schedule) == (2.0**10, "waits")
    assert (torch.seed, torch.stock) == (3, ("mixed_float16",))


@pytest.mark.parametrize("framework", ["tensorflow", "torch"])
def test_loss_scales_move_as_the_frameworks_own(peers: dict[str, Peer], framework: str) -> None:
    finite = [True] * 3 + [False, False] + [True] * 9 + [False] + [True] * 6
    growth = 4
    theirs = peers[framework]("stock:scales", {"finite": finite, "growth_interval": growth}, {})["scales"]
    spec = tiny_spec("precision=float16_mixed", f"loss_scale={{initial: 1024.0, growth_interval: {growth}}}")
    scaler, ours = LossScaler(spec), []
    for updated in finite:
        scaler.observe(updated)
        ours.append(scaler.scale)
    assert ours == theirs.tolist()


def test_specs_without_modes_are_as_they_were() -> None:
    """Hashes of records that were written before there were modes."""
    spec = recipes.get("digits_mlp").resolved()
    assert "stock" not in spec.to_dict()
    assert spec.content_hash() == "5038d5f042a7b68b"
    changed = override(spec, ["precision=float32", "stock=[dropout]"])
    assert changed.to_dict()["stock"] == ["dropout"]
    assert changed.content_hash() != override(spec, ["precision=float32"]).content_hash()
    assert TrainSpec.parse(changed.to_dict()) == changed


@pytest.mark.parametrize(
    ("assignments", "why"),
    [
        (["stock=[dropout,dropout]"], "each mode once"),
        (["precision=float32", "stock=[mixed_bfloat16,mixed_float16]"], "one mixed precision"),
        (["stock=[mixed_bfloat16]"], "must be float32"),
        (["stock=[bfloat16]"], "stock"),
        (["precision=float32", "loss_scale={}", "stock=[mixed_bfloat16]"], "loss_scale belongs to"),
    ],
)
def test_modes_that_do_not_go_together(assignments: list[str], why: str) -> None:
    with pytest.raises(SpecError, match=why) as refused:
        tiny_spec(*assignments)
    one_line(refused.value)


@pytest.mark.parametrize(
    ("placement", "assignments", "options", "why"),
    [
        ("torch:fsdp2:2,checkpoint=true", ["stock=[dropout]"], {}, "leave out checkpoint"),
        ("torch:ddp:2", ["stock=[dropout]"], {"resume": "x"}, "resumed run has other masks"),
        ("torch:tensor_parallel:1", ["precision=float32", "stock=[mixed_bfloat16]"], {}, "was not tried"),
        ("tf:mirrored:2,engine=keras", ["precision=float32", "stock=[mixed_float16]"], {}, "scales no loss"),
    ],
)
def test_what_modes_do_not_go_with(
    placement: str, assignments: list[str], options: dict[str, Any], why: str
) -> None:
    with pytest.raises(SpecError, match=why) as refused:
        check_run(tiny_spec(*assignments), Placement.from_text(placement), RunOptions(**options))
    one_line(refused.value)


def test_recurrent_layers_of_keras_round_in_another_order() -> None:
    layers = "model={input_shape: [4, 3], layers: [{kind: lstm, units: 2}, {kind: dense, units: 3}]}"
    spec = tiny_spec("precision=float32", "stock=[mixed_bfloat16]", layers)
    check_run(spec, TORCH)
    with pytest.raises(SpecError, match="another order"):
        check_run(spec, Placement.from_text("tf:mirrored:1"))


def test_no_proof_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parity = Cli(tmp_path, capsys)
    monkeypatch.chdir(tmp_path)
    spec = tiny_spec("precision=float32", "stock=[dropout,shuffling]")
    folders = [Run.of(spec, each).write(tmp_path / name).folder for each, name in ((TORCH, "a"), (DDP, "b"))]
    for command in (("compare", *folders), ("diagnose", *folders, "--out", "why")):
        said = parity.refused(*command)
        assert "stock dropout, shuffling" in said and "'parity study'" in said
    flags = "--recipe", "digits_mlp", "--set", "stock=[dropout]"
    assert "'parity study'" in parity.refused("run", *flags)
    code, out, _ = parity("show", "digits_mlp", "--set", "stock=[dropout]")
    assert code == 0 and "stock dropout: each framework in its own way" in out
