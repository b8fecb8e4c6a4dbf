"""Placements: what is possible, what is refused in one line, how they are written as text."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from parity.common.base.errors import NotComparableError, SpecError
from parity.common.data.plan import BatchPlan
from parity.common.execution.checks import check_run, effective_batch
from parity.common.parity.comparable import check_comparable
from parity.common.spec import Instrumentation, Placement, Replay, RunConfig, RunOptions
from parity.common.spec.run_options import Saving
from parity.common.spec.strategies import DDP, FSDP2
from parity_tests.helpers.records import Run, one_line, recipe_spec


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"strategy": "mirrored"}, ("torch", "single, ddp, fsdp2")),
        ({"framework": "tensorflow", "strategy": "ddp"}, ("tensorflow", "mirrored")),
        ({"framework": "jax"}, ("framework", "'jax'", "tensorflow, torch")),
        ({"framework": ["torch"]}, ("framework", "['torch']")),
        ({"strategy": "horovod"}, ("strategy", "'horovod'", "ddp")),
        ({"strategy": "horovod", "options": {"wrap": "blocks"}}, ("strategy", "'horovod'", "ddp")),
        ({"strategy": "single", "replicas": 2}, ("single", "ddp", "fsdp2")),
        ({"replicas": 0}, ("replicas", "0")),
        ({"replicas": -1}, ("replicas", "-1")),
        ({"replicas": "two"}, ("replicas", "'two'")),
        ({"device": "tpu"}, ("device", "'tpu'", "auto, cpu, gpu")),
        ({"stop_at_step": 3}, ("stop_at_step", "unknown key")),
        ({"sample_order_seed": -1}, ("sample_order_seed", "-1")),
        ({"gpus": 2}, ("gpus", "unknown key")),
        ({"options": {"wrap": "blocks"}}, ("wrap", "unknown key")),
        ({"options": 3}, ("options of ddp", "3")),
        ({"options": {"bucket_mb": 0}}, ("bucket_mb", "0")),
        ({"strategy": "fsdp2", "options": {"shard_group": 3}}, ("2 replicas", "shard_group 3")),
        ({"replicas": 3, "nodes": 2}, ("3 replicas", "nodes")),
        ({"engine": "keras"}, ("keras", "torch ddp", "own")),
        ({"strategy": "manual", "engine": "lightning"}, ("lightning", "torch manual", "own")),
        ({"strategy": "deepspeed", "engine": "lightning"}, ("lightning", "torch deepspeed", "run by own")),
        ({"accumulation": 0}, ("accumulation", "0")),
        ({"accumulation": {5: 2}}, ("accumulation", "epoch 0")),
        ({"accumulation": {0: 2, 5: 0}}, ("accumulation", "at least 1")),
        ({"accumulation": {0: 8, "torch": 4}}, ("accumulation", "torch")),
        ({"accumulation": {0: 1, float("inf"): 4}}, ("accumulation", "inf")),
        ({"accumulation": {0: 1.5}}, ("accumulation", "1.5")),
        ({"accumulation": "four"}, ("accumulation", "'four'")),
        ({"accumulation": True}, ("accumulation", "True")),
        ({"framework": "tensorflow", "strategy": "mirrored", "launcher": "torchrun"}, ("torchrun", "local")),
        ({"strategy": "data_parallel", "nodes": 2}, ("1 process", "2 nodes")),
        ({"steps_per_call": 2}, ("steps_per_call", "TensorFlow")),
        (
            {"framework": "tensorflow", "strategy": "multi_worker", "options": {"replicas_per_worker": 3}},
            ("2 replicas", "replicas_per_worker"),
        ),
    ],
)
def test_an_impossible_placement_is_refused(changes: dict[str, object], words: tuple[str, ...]) -> None:
    good = {"framework": "torch", "strategy": "ddp", "replicas": 2}
    assert Placement.parse(good).label == "torch ddp x2"
    with pytest.raises(SpecError) as error:
        Placement.parse({**good, **changes})
    text = one_line(error.value)
    assert all(word in text for word in words), text


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("torch:ddp:2", "torch ddp x2"),
        ("tf:mirrored:4", "tensorflow mirrored x4"),
        ("pytorch:ddp:2,static_graph=true", "torch ddp x2 static_graph=true"),
        ("torch:ddp:2,static_graph=false", "torch ddp x2"),
        ("torch:fsdp2:4,wrap=blocks,shard_group=2", "torch fsdp2 x4 shard_group=2 wrap=blocks"),
        ("torch:ddp:2,engine=lightning,launcher=mp_spawn", "torch ddp x2 engine=lightning launcher=mp_spawn"),
        ("torch:ddp:2,accumulation=3", "torch ddp x2 accumulation=3"),
        ("torch:ddp:2,accumulation={0: 8, 5: 4}", "torch ddp x2 accumulation=0to8+5to4"),
        ("torch:ddp:2,accumulation={0:8,5:4}", "torch ddp x2 accumulation=0to8+5to4"),
        ("torch:deepspeed:2,stage=3,config=/a/b c.json", "torch deepspeed x2 stage=3 config=b c.json"),
    ],
)
def test_text_says_what_a_placement_is(text: str, label: str) -> None:
    placement = Placement.from_text(text, device="cpu")
    assert placement.label == label and placement.device == "cpu"
    for same in (
        Placement.parse(json.loads(json.dumps(placement.to_dict()))),
        Placement.parse(placement.model_dump()),
        Placement.parse(placement.given()),
        pickle.loads(pickle.dumps(placement)),
        placement.model_copy(update={"pin": False}),
    ):
        assert same == placement and hash(same) == hash(placement)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("torch:ddp", ("framework:strategy:replicas", "torch:fsdp2:4,wrap=blocks")),
        ("torch:ddp:two", ("framework:strategy:replicas",)),
        ("torch:ddp:2,static_graph", ("framework:strategy:replicas",)),
        ("torch:ddp:2,wrap=blocks", ("wrap", "options of ddp are", "static_graph")),
        ("torch:manual:2,wrap=blocks", ("wrap", "options of manual are: none")),
        ("torch:horovod:2,wrap=blocks", ("strategy of torch", "ddp")),
        ("torch:ddp:2,static_graph=7", ("static_graph", "7")),
        ("torch:ddp:2,accumulation={0: 8", ("framework:strategy:replicas",)),
    ],
)
def test_other_text_is_refused_in_one_line(text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as error:
        Placement.from_text(text)
    line = one_line(error.value)
    assert all(word in line for word in words), line


def test_one_text_gives_a_placement_and_run_options() -> None:
    config = RunConfig.from_text("torch:fsdp2:2,wrap=blocks,taps=true,save={every_steps: 3}", stop_at_step=9)
    assert config.placement == Placement.from_text("torch:fsdp2:2,wrap=blocks")
    assert config.run_options == RunOptions(taps=True, stop_at_step=9, save=Saving(every_steps=3))
    assert config.label == config.placement.label and config.instrumentation == Instrumentation()
    assert RunConfig.parse(json.loads(json.dumps(config.to_dict()))) == config
    assert RunConfig.from_text(config.placement.text() + ",taps=true").text().endswith(",taps=true")
    for text, word in (
        ("stop_at_step=0", "stop_at_step"),
        ("replay={stop: 3}", "replay"),
        ("wrap=all", "wrap"),
    ):
        with pytest.raises(SpecError, match=word) as error:
            RunConfig.from_text(f"torch:fsdp2:2,{text}")
        one_line(error.value)


def test_fields_of_all_three_in_one_mapping_are_divided() -> None:
    """As text forms, flags and files of version 0.1 have them."""
    flat = {"framework": "torch", "strategy": "ddp", "pin": True, "taps": True, "replay": {"stop": 3}}
    config = RunConfig.parse(flat)
    assert (
        config.placement.pin and config.run_options.taps and config.instrumentation.replay == Replay(stop=3)
    )
    assert (
        config.having(taps=False, pin=False).parts
        == RunConfig.parse(flat | {"taps": False, "pin": False}).parts
    )
    with pytest.raises(SpecError, match="unknown key"):
        RunConfig.parse(flat | {"tap": True})


@pytest.mark.parametrize(
    ("text", "processes", "per_process"),
    [
        ("torch:single:1", 1, 1),
        ("torch:ddp:4", 4, 1),
        ("torch:data_parallel:4", 1, 4),
        ("torch:tensor_parallel:1,ranks=2", 2, 1),
        ("torch:tensor_parallel:2,ranks=2", 4, 1),
        ("tensorflow:mirrored:4", 1, 4),
        ("tensorflow:multi_worker:4", 4, 1),
        ("tensorflow:multi_worker:4,replicas_per_worker=2", 2, 2),
    ],
)
def test_processes_and_the_replicas_in_each(text: str, processes: int, per_process: int) -> None:
    placement = Placement.from_text(text)
    assert (placement.processes, placement.replicas_per_process) == (processes, per_process)


def test_options_are_their_strategys_own() -> None:
    ddp, fsdp2 = Placement.from_text("torch:ddp:2"), Placement.from_text("torch:fsdp2:2")
    assert (type(ddp.options), type(fsdp2.options)) == (DDP, FSDP2)
    assert Placement(framework="torch", strategy="ddp", options=DDP(static_graph=True)).options.static_graph


def test_micro_batches_follow_the_epochs() -> None:
    placement = Placement.from_text("torch:ddp:2,accumulation={0: 8, 5: 4, 10: 2}")
    assert [placement.micro_batches(epoch) for epoch in (0, 4, 5, 9, 10, 99)] == [8, 8, 4, 4, 2, 2]
    assert placement.accumulates and not Placement.from_text("torch:ddp:2").accumulates


def test_the_effective_batch_is_spelt_out() -> None:
    spec = recipe_spec("digits_mlp", "global_batch_size=64")
    assert (
        effective_batch(spec, Placement.from_text("torch:ddp:2,accumulation=4"))
        == "effective batch 64 = 8 samples x 4 micro-batches x 2 replicas"
    )
    uneven = effective_batch(spec, Placement.from_text("torch:ddp:1,accumulation={0: 3, 7: 1}"))
    assert uneven == (
        "effective batch 64 = about 21.3 samples x 3 micro-batches x 1 replica;"
        " 64 samples x 1 micro-batch x 1 replica from epoch 7 on"
    )


def test_batch_norm_of_the_whole_batch_is_not_cut() -> None:
    cut, whole = Placement.from_text("torch:ddp:2,accumulation=2"), Placement.from_text("torch:ddp:2")
    spec = recipe_spec("digits_cnn")
    check_run(spec, whole)
    with pytest.raises(SpecError, match=r"batch norm 'batch_norm_1' .* per_replica .* group_norm"):
        check_run(spec, cut)
    local = [f"model.layers.{place}.statistics=per_replica" for place in (1, 4)]
    check_run(recipe_spec("digits_cnn", *local).resolved(), cut)
    check_run(recipe_spec("digits_transformer"), cut)


def test_statistics_per_replica_allow_equal_accumulation_only(tmp_path: Path) -> None:
    spec = recipe_spec("digits_cnn", "steps=2", "model.layers.1.statistics=per_replica").resolved()
    texts = ("torch:ddp:2,accumulation=2", "tensorflow:mirrored:2,accumulation=2", "tensorflow:mirrored:2")
    a, b, c = (
        Run.of(spec, Placement.from_text(text)).write(tmp_path / str(number))
        for number, text in enumerate(texts)
    )
    check_comparable(a, b)
    with pytest.raises(NotComparableError, match=r"accumulation 2 from epoch 0 and 1 from epoch 0"):
        check_comparable(a, c)


def test_a_plan_does_not_know_of_micro_batches() -> None:
    """The local batch is the same, cut or not."""
    spec = recipe_spec("digits_mlp")
    cut, whole = (Placement.from_text(text) for text in ("torch:ddp:2,accumulation=3", "torch:ddp:2"))
    assert BatchPlan.of(spec, cut) == BatchPlan.of(spec, whole)
