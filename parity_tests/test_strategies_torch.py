"""PyTorch's strategies: their options take effect and change no curve, and what cannot be says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import RunError, SpecError
from parity.common.execution.checks import check_run
from parity.common.execution.ranks import run_ranks
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import Comparison, compare
from parity.common.spec import Placement, RunConfig, TrainSpec
from parity.common.spec.tensor_parallel import division
from parity_tests.helpers.layers import deviation
from parity_tests.helpers.matrix import small, torch
from parity_tests.helpers.run_cache import RunCache
from parity_tests.peers import Peer
from parity_tests.test_optimizers import CASES, MORE, STEPS, drawn, spec_of

OPTIMIZERS = {**{name: case.ours for name, case in CASES.items()}, **MORE}
WHOLE = {n for n, o in OPTIMIZERS.items() if o["kind"] in ("adafactor", "muon", "lamb") or "clip_norm" in o}
PRELOAD = [
    "torch",
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "parity.torch_impl.train",
]
GPT = "digits_transformer"


@pytest.mark.parametrize("flat", [False, True], ids=["whole", "flat"])
@pytest.mark.parametrize("name", sorted(OPTIMIZERS.keys() - WHOLE))
def test_a_rule_is_the_same_as_an_optimizer_of_torch(peers: dict[str, Peer], name: str, flat: bool) -> None:
    """Whatever tensors it is handed: whole ones, or flat pieces with the cut inside a tensor."""
    spec = spec_of(OPTIMIZERS[name], "torch")
    arrays = drawn(spec, STEPS, 11)
    ours = peers["torch"]("optimizers:steps", {"spec": spec.to_dict(), "steps": STEPS}, arrays)
    facts = {"spec": spec.to_dict(), "steps": STEPS, "flat": flat}
    theirs = peers["torch"]("rules:steps", facts, arrays)
    compared = {n for n in ours if n[0].isdigit() or n.startswith("slots/")}
    assert compared == theirs.keys() and len(compared) > 20
    # Bit for bit, except that kernels may treat the last elements of a tensor otherwise; ours are joined for Adam's.
    otherwise = flat or OPTIMIZERS[name]["kind"] in ("adam", "adamw")
    assert max(deviation(ours[n], theirs[n]) for n in compared) <= (1e-15 if otherwise else 0.0)
    moved = max(np.abs(theirs[f"{STEPS - 1}/{n}"] - arrays[n]).max() for n in arrays if n.startswith("param"))
    assert moved > 1e-6


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_rule_that_needs_whole_tensors_is_refused(name: str) -> None:
    """Where the rule is handed to a wrapper, which may have cut or joined tensors."""
    spec = spec_of(OPTIMIZERS[name], "torch").model_copy(update={"precision": "float32"})
    clips = spec.optimizer.clip_norm is not None
    for strategy in ("deepspeed",) if clips else ("deepspeed", "zero_redundancy"):
        with pytest.raises(SpecError, match="looks at whole tensors"):
            check_run(spec, Placement(framework="torch", strategy=strategy, replicas=2))


def observed(spec: TrainSpec, text: str, folder: Path) -> dict[str, Any]:
    """What rank 0 of a placement saw of itself; see `peers/torch_ranks.py`."""
    placement = Placement.from_text(text)
    folder.mkdir(exist_ok=True)
    arguments = (spec.to_dict(), placement.to_dict(), folder)
    run_ranks("parity_tests.peers.torch_ranks:observe", arguments, placement.processes, folder, PRELOAD)
    return json.loads((folder / "rank_0.json").read_text())


@pytest.mark.exhaustive
def test_options_of_ddp_take_effect(tmp_path: Path) -> None:
    # 5.2 MiB of parameters.
    wide = small("digits_mlp", "model.layers.1.units=9000")
    usual = observed(wide, "torch:ddp:2", tmp_path / "usual")
    other = "torch:ddp:2,bucket_mb=1,gradient_as_bucket_view=false,find_unused_parameters=true"
    fine = observed(wide, other, tmp_path / "fine")
    # With the loss sum, the count and the fingerprint, but not where DDP looks for what is not used.
    assert sum(usual["buckets"]) - 3 == sum(fine["buckets"]) == 64 * 9000 + 9000 + 90000 + 10
    assert len(fine["buckets"]) > len(usual["buckets"])
    assert usual["views"] and not fine["views"]
    assert fine["flags"]["find_unused_parameters"] and not usual["flags"]["find_unused_parameters"]
    static = observed(small(GPT), "torch:ddp:2,static_graph=true,checkpoint=true", tmp_path / "static")
    assert static["flags"]["static_graph"] and not usual["flags"]["static_graph"]
    # Two blocks, each computed once more for the backward pass.
    assert static["passes"] == 4


@pytest.mark.exhaustive
def test_options_of_fsdp_take_effect(tmp_path: Path) -> None:
    usual, kept, full, grads = (
        observed(small(GPT), f"torch:{text}", tmp_path / str(place))
        for place, text in enumerate(
            (
                "fsdp2:2,reshard=true",
                "fsdp2:2,wrap=blocks,checkpoint=true,reshard=false,cpu_offload=true",
                "fsdp1:2,wrap=blocks",
                "fsdp1:2,wrap=blocks,sharding=shard_grad_op,checkpoint=true",
            )
        )
    )
    assert usual["units"] == [{"reshard": True, "offload_policy": "OffloadPolicy"}]
    assert kept["units"] == [{"reshard": False, "offload_policy": "CPUOffloadPolicy"}] * 3
    # Two attentions; each is computed once more where the blocks are recomputed.
    assert [facts["passes"] for facts in (usual, kept, full, grads)] == [2, 4, 2, 4]
    # 94% of 145232 bytes of parameters are in blocks: whole between the passes, or not.
    assert usual["whole_before_backward"] == 0 < 145232 == kept["whole_before_backward"]
    assert full["whole_before_backward"] < 0.1 * 145232 < 0.9 * 145232 < grads["whole_before_backward"]
    # The whole parameters of one evaluation are not taken for those of the next.
    for facts in (kept, full, grads):
        assert facts["evaluations"] == pytest.approx(usual["evaluations"], rel=1e-12)
    assert abs(usual["evaluations"][0] / usual["evaluations"][1] - 1) > 0.01


def judged(
    run_cache: RunCache, spec: TrainSpec, placement: Placement, fault: str | None = None
) -> Comparison:
    reference = run_cache.record(spec, torch("single", 1))
    return compare(reference, run_cache.record(spec, placement, fault), proof_budget(reference))


CLIP, CLIP_EACH = "optimizer.clip_global_norm=0.5", "optimizer.clip_norm=0.05"
HYBRID = "torch:fsdp1:4,sharding=hybrid_shard,shard_group=2"
PENALTIES = "loss={kind: softmax_cross_entropy, l2: 0.01, l1: 0.001}"
AVERAGED = "optimizer={kind: adamw, learning_rate: 0.003, ema: {decay: 0.9, overwrite_every: 7}}"
FEW = ("data.train_samples=7", "global_batch_size=3")
# Norms, penalties, averages and empty batches where tensors are cut in every way; the slow ones in full.
FAST = [
    (HYBRID, (CLIP,)),
    ("torch:tensor_parallel:2", (CLIP_EACH, PENALTIES)),
    ("torch:zero_redundancy:2,accumulation=3", (AVERAGED,)),
]
PLACEMENTS = [
    HYBRID,
    "torch:fsdp2:4,shard_group=2,wrap=blocks,checkpoint=true",
    "torch:fsdp1:2,wrap=blocks,accumulation=3",
    "torch:tensor_parallel:2",
    "torch:tensor_parallel:1,ranks=4",
    "torch:zero_redundancy:2",
]
FEATURES = [(CLIP,), (CLIP_EACH,), (PENALTIES, AVERAGED), FEW]
FEATURES += [(f"optimizer={{kind: {kind}, learning_rate: 0.003}}",) for kind in ("muon", "lamb", "adafactor")]


def cases() -> list[Any]:
    slow = [
        pytest.param(text, feature, marks=pytest.mark.exhaustive)
        for text in PLACEMENTS
        for feature in FEATURES
        if not ("zero" in text and "kind: " in feature[0] and feature != FEATURES[2])
    ]
    return [*FAST, *slow]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "feature"), cases())
def test_what_looks_at_whole_tensors_is_exact(
    run_cache: RunCache, text: str, feature: tuple[str, ...]
) -> None:
    comparison = judged(run_cache, small(GPT, "steps=46", *feature), Placement.from_text(text))
    assert comparison.verdict == "parity", comparison.reason


@pytest.mark.slow
def test_ranks_differ_from_the_first_step_where_parameters_are_not_sent(run_cache: RunCache) -> None:
    run = RunConfig.from_text("torch:zero_redundancy:2", digests=True)
    record = run_cache.record(small(GPT, "steps=8"), run, "updated_parameters_not_sent")
    first, second = record.fingerprints
    assert all(one != other for one, other in zip(first, second, strict=True))


@pytest.mark.exhaustive
def test_memory_is_shared_out(run_cache: RunCache) -> None:
    """Parameters and slots of each rank, measured."""
    spec = small(GPT, "steps=3")

    def shares(text: str) -> list[tuple[float, float]]:
        alone = run_cache.record(spec, torch("single", 1)).memory[0]
        held = run_cache.record(spec, Placement.from_text(text)).memory
        return [(m["parameters"] / alone["parameters"], m["slots"] / alone["slots"]) for m in held]

    for text in ("torch:fsdp1:4", "torch:fsdp2:4"):
        assert np.allclose(shares(text), 1 / 4, rtol=0.02)
    assert np.allclose(shares("torch:zero_redundancy:2"), [(1, 1 / 2)] * 2, rtol=0.02)
    # Attention and feed-forward are most of it, not all.
    for parameters, slots in shares("torch:tensor_parallel:1"):
        assert 0.5 < parameters < 0.6 and 0.5 < slots < 0.6
    assert shares("torch:ddp:2") == [(1, 1)] * 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("torch:fsdp1:4,sharding=hybrid_shard", "hybrid_shard needs a shard_group of 2 or more"),
        ("torch:fsdp1:4,sharding=hybrid_shard,shard_group=1", "hybrid_shard needs a shard_group of 2"),
        ("torch:fsdp1:4,shard_group=2", "shard_group belongs to sharding=hybrid_shard"),
        ("torch:fsdp2:4,shard_group=3", "4 replicas cannot be divided by shard_group 3"),
    ],
)
def test_options_that_contradict_each_other(text: str, line: str) -> None:
    with pytest.raises(SpecError, match=line) as error:
        Placement.from_text(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("recipe", "overrides", "text", "line"),
    [
        ("digits_cnn", (), "torch:tensor_parallel:1", "batch norm 'batch_norm_1' takes its statistics"),
        ("autoencoder:tiny", (), "torch:tensor_parallel:1", "the model has nothing to divide"),
        ("gpt2:tiny", (), "torch:tensor_parallel:1", "has 3 heads, which 2 ranks cannot share evenly"),
        (GPT, (), "torch:tensor_parallel:1,ranks=3", "has 4 heads, which 3 ranks cannot share evenly"),
        ("digits_mlp", ("model.layers.1.units=63",), "torch:tensor_parallel:1", "'dense_1' has 63 units"),
        (GPT, ("optimizer={kind: muon}",), "torch:zero_redundancy:2", "'muon' looks at whole tensors"),
        ("digits_cnn", (), "torch:data_parallel:2", "of which each GPU sees a part"),
    ],
)
def test_models_that_a_strategy_cannot_train(
    recipe: str, overrides: tuple[str, ...], text: str, line: str
) -> None:
    spec = small(recipe, *overrides).resolved()
    with pytest.raises(SpecError, match=line) as error:
        check_run(spec, Placement.from_text(text))
    assert "\n" not in str(error.value)


def test_what_tensor_parallelism_divides() -> None:
    def cuts(recipe: str, ranks: int) -> dict[str, str]:
        return dict(division(small(recipe).model.tree(), ranks))

    assert cuts(GPT, 4) == {
        f"block_{number}/{layer}": cut
        for number in (1, 2)
        for layer, cut in (
            ("attend/self_attention", "heads"),
            ("feed_forward/dense_1", "columns"),
            ("feed_forward/dense_2", "rows"),
        )
    }
    # An activation may be between the two, nothing else; the head, after a norm, is whole.
    assert set(cuts("bert_base:tiny", 3).values()) == {"heads", "columns", "rows"}
    assert not any(path.endswith("head") for path in cuts("bert_base:tiny", 3))


def test_data_parallel_says_that_it_would_run_on_one_device(run_cache: RunCache) -> None:
    with pytest.raises(RunError, match="would silently run on one device; take strategy ddp"):
        run_cache.record(small(GPT), torch("data_parallel", 2, device="cpu"))
    one = judged(run_cache, small("gpt2:tiny", "steps=5"), torch("data_parallel", 1))
    assert one.verdict == "parity" and one.loss_deviation.max() == 0
