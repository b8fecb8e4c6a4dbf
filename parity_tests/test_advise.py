"""The adviser's memory model against measured bytes, what it recommends, and `parity advise`."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

import pytest

from parity.common import recipes
from parity.common.base.errors import RecordError, SpecError
from parity.common.base.units import parse_size
from parity.common.commands import advise as command
from parity.common.planning.adviser import layers as rules
from parity.common.planning.adviser import memory
from parity.common.planning.adviser.memory import estimate
from parity.common.planning.adviser.passes import passes
from parity.common.planning.adviser.recommend import Question, advise, command_line, placement_text
from parity.common.spec import Placement, TrainSpec, layers
from parity.common.spec.layers import LayerSpec
from parity.common.spec.layers.imported import Imported
from parity_tests.helpers.matrix import small
from parity_tests.tables.adviser import CASES, RANKS, one_process, several_processes, spec_of

# Their kernels keep and free tensors of each token in an order that is not followed up.
RECURRENT = ("lstm_classifier:tiny", "gru_tagger:tiny")


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command.add(parser.add_subparsers())
    return parser.parse_args(["advise", *arguments])


def gpt2(precision: str = "float32") -> TrainSpec:
    return recipes.get("gpt2").model_copy(update={"precision": precision}).resolved()


def ask(spec: TrainSpec, gpus: int, size: str, nodes: int = 1, framework: str = "torch"):
    return advise(Question(spec, framework, gpus, parse_size(size), nodes))


@pytest.mark.sweep
@pytest.mark.parametrize(("recipe", "more"), CASES)
def test_the_model_foretells_a_step(peers, recipe: str, more: str) -> None:
    seen = one_process(peers["torch"], spec_of(recipe, more))
    for name in ("parameters", "buffers", "slots"):
        assert seen.estimated[name] == seen.measured[name]
    recurrent = recipe in RECURRENT
    assert abs(seen.off("saved")) <= (0.01 if recurrent else 1e-4)
    # Binary cross-entropy holds one tensor of the outputs' size for longer than it is foretold.
    limit = 0.07 if recurrent else 0.04 if recipe == "autoencoder:tiny" else 0.002
    assert abs(seen.off("passes")) <= limit and abs(seen.off("step")) <= limit


@pytest.mark.parametrize("accumulation", [2, 3])
def test_the_model_foretells_accumulation(peers, accumulation: int) -> None:
    seen = one_process(peers["torch"], spec_of("digits_transformer"), accumulation)
    assert abs(seen.off("step")) <= 0.02


@pytest.mark.sweep
@pytest.mark.parametrize("recipe", ["digits_transformer", "gpt2:tiny", "bert_base:tiny", "digits_cnn"])
def test_the_model_foretells_checkpointing(peers, recipe: str) -> None:
    plain, seen = (one_process(peers["torch"], spec_of(recipe), checkpoint=on) for on in (False, True))
    assert seen.measured["saved"] < plain.measured["saved"]
    assert seen.off("saved") == 0 and abs(seen.off("passes")) <= 0.002


def twice(tape, node, spec, x):
    rules._dense_layer(tape, node, spec, tape.copied(x))
    return rules._dense_layer(tape, node, spec, x)


FAULTS = {
    "a dense layer counted twice": (rules._RULES, layers.Dense, twice),
    "layer norm keeps nothing": (rules._RULES, layers.LayerNorm, lambda tape, node, spec, x: tape.copied(x)),
    "attention forgotten": (rules._RULES, layers.SelfAttention, lambda tape, node, spec, x: x),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_model_is_found(peers, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    target, kind, wrong = FAULTS[fault]
    monkeypatch.setitem(target, kind, wrong)
    passes.cache_clear()
    try:
        seen = one_process(peers["torch"], spec_of("digits_transformer"))
    finally:
        passes.cache_clear()
    assert abs(seen.off("saved")) > 0.02 and abs(seen.off("step")) > 0.01


def test_forgotten_slots_are_found(peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "slots_of", lambda optimizer, specs: {name: {} for name in specs})
    seen = one_process(peers["torch"], spec_of("digits_transformer"))
    assert seen.estimated["slots"] != seen.measured["slots"] and seen.off("step") < -0.05


def test_every_layer_has_a_rule() -> None:
    # A user's own model is refused: nothing is known of what is inside.
    kinds = {kind for kind in LayerSpec.known if "kind" in kind.__annotations__} - {Imported}
    assert len(kinds) > 40 and {kind.__name__ for kind in kinds if kind not in rules._RULES} == set()


HELD = [
    "torch:ddp:2",
    "torch:fsdp2:4",
    *(
        pytest.param(text, marks=pytest.mark.exhaustive)
        for text in (
            "tensorflow:mirrored:2",
            "torch:fsdp2:4,wrap=blocks",
            "torch:fsdp2:4,shard_group=2",
            "torch:fsdp1:4,wrap=blocks",
            "torch:zero_redundancy:4",
            "torch:tensor_parallel:1",
            "torch:deepspeed:2,stage=1",
            "torch:deepspeed:2,stage=3",
        )
    ),
]


@pytest.mark.parametrize("text", HELD)
def test_what_a_rank_holds_between_steps_is_what_it_was_said_to(run_cache, text: str) -> None:
    precision = "float32" if "deepspeed" in text else "float64"
    spec = small("digits_transformer", "steps=2", f"precision={precision}").resolved()
    placement = Placement.from_text(text)
    measured = run_cache.record(spec, placement).memory
    found = estimate(spec, placement)
    assert found.parameters == max(rank["parameters"] for rank in measured)
    assert found.slots == max(rank["slots"] for rank in measured)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, marks=pytest.mark.slow if text == "torch:ddp:2" else pytest.mark.exhaustive)
        for text in RANKS
    ],
)
def test_the_model_foretells_a_ranks_peak(text: str, tmp_path: Path) -> None:
    seen = several_processes(spec_of("digits_transformer"), text, tmp_path)
    exact = any(name in text for name in (":ddp", ":manual", ":zero"))
    assert abs(seen.off("step")) <= (0.002 if exact else 0.05)


def test_sharding_and_checkpointing_take_less() -> None:
    spec = gpt2()

    def total(text: str) -> int:
        return estimate(spec, Placement.from_text(text)).total

    assert total("torch:fsdp2:8,wrap=blocks") < total("torch:zero_redundancy:8") < total("torch:ddp:8")
    assert total("torch:ddp:8,checkpoint=true") < total("torch:ddp:8") / 3
    assert total("torch:ddp:8,accumulation=4") < total("torch:ddp:8") / 3
    stages = [estimate(spec, Placement.from_text(f"torch:deepspeed:8,stage={stage}")) for stage in (1, 2, 3)]
    held = [each.parameters + each.gradients + each.slots for each in stages]
    assert held == sorted(held, reverse=True) and len(set(held)) == 3


@pytest.mark.parametrize(
    ("size", "taken", "because"),
    [
        ("1TB", "torch:ddp:8", "simplest"),
        ("50GB", "torch:ddp:8,checkpoint=true", "computes blocks twice"),
        ("24GB", "torch:ddp:8,accumulation=16", "takes the batch in pieces"),
    ],
)
def test_the_simplest_that_fits_is_recommended(size: str, taken: str, because: str) -> None:
    advice = ask(gpt2(), 8, size)
    assert advice.chosen is not None and placement_text(advice.chosen.placement) == taken
    assert because in advice.reason
    before = advice.choices[: advice.choices.index(advice.chosen)]
    assert all(not choice.fits for choice in before)
    for choice in advice.choices:
        assert choice.estimate is None or choice.fits == (choice.estimate.total <= advice.question.usable)


def test_a_model_too_large_for_one_gpu_is_divided() -> None:
    spec = recipes.get("digits_mlp")
    wide = spec.model_copy(
        update={
            "model": spec.model.model_copy(
                update={"layers": (layers.Flatten(), layers.Dense(units=200_000), *spec.model.layers[1:])}
            )
        }
    ).resolved()
    advice = ask(wide, 8, "640MB")
    assert advice.chosen is not None and advice.chosen.placement.strategy in ("deepspeed", "fsdp1", "fsdp2")
    assert "divides" in advice.reason and not advice.choices[0].fits


def test_nothing_fits_a_thimble(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(parsed("--recipe", "gpt2", "--gpus", "2", "--gpu-memory", "1MB")) == 1
    assert "nothing fits" in capsys.readouterr().out


def test_what_would_change_the_mathematics_is_not_offered() -> None:
    advice = ask(recipes.get("digits_cnn").resolved(), 4, "1KB")
    for choice in advice.choices:
        if choice.placement.accumulates:
            assert choice.estimate is None and "batch norm" in choice.refused
    assert advice.chosen is None


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (2, 1), (8, 2)])
def test_every_choice_can_be_typed_in_again(framework: str, gpus: int, nodes: int) -> None:
    advice = ask(gpt2(), gpus, "80GB", nodes, framework)
    assert len(advice.choices) > 5
    for choice in advice.choices:
        usual = {"device": "gpu"}
        assert Placement.from_text(placement_text(choice.placement), **usual) == choice.placement
        words = shlex.split(command_line(choice.placement, ["--recipe", "gpt2"], "runs/x"))
        options = [word.removeprefix("--option=") for word in words if word.startswith("--option=")]
        given = dict(word[2:].split("=", 1) for word in words if word.startswith("--") and "=" in word)
        fields = {"framework": framework, "strategy": given["strategy"], "replicas": int(given["replicas"])}
        text = ",".join([":".join(map(str, fields.values())), *options])
        more = {"nodes": int(given.get("nodes", 1)), "accumulation": int(given.get("accumulation", 1))}
        assert Placement.from_text(text, device=given["device"], **more) == choice.placement
        assert ("torchrun" in words) == (framework == "torch" and nodes > 1)


def test_the_table_and_the_json_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "advice.json"
    flags = ("--recipe", "gpt2:tiny", "--gpus", "2", "--gpu-memory", "80GB", "--set", "precision=float32")
    assert command.run(parsed(*flags, "--json", str(file))) == 0
    out = capsys.readouterr().out
    assert "placement: torch:ddp:2" in out
    assert (
        "python -m parity.torch_impl --recipe gpt2:tiny --set precision=float32 --strategy=ddp --replicas=2"
        in out
    )
    data = json.loads(file.read_text())
    assert data["taken"] == "torch:ddp:2" and data["usable_bytes"] == 72 * 10**9
    assert data["choices"][0]["bytes"]["parameters"] == 65376
    with pytest.raises(RecordError, match=r"nowhere/advice\.json: cannot be written: No such file"):
        command.run(parsed(*flags, "--json", str(tmp_path / "nowhere" / "advice.json")))


def test_a_recipe_is_assumed_to_train_in_bfloat16_and_other_precisions_stand_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(tmp_path / "advice.json")
    given = ("gpt2", "--gpus", "8", "--gpu-memory", "80GB", "--json", file)
    assert command.run(parsed(*given)) == 0
    out, found = capsys.readouterr().out, json.loads(Path(file).read_text())
    assert found["precision"] == "bfloat16_mixed" and "--set precision=bfloat16_mixed" in found["command"]
    assert set(found["other_precisions"]) == {"float64", "float32", "float16_mixed", "float8_mixed"}
    assert "\n  in float64: torch:ddp:8,accumulation=8 needs 50.2 GiB, undivided 375 GiB\n" in out
    for flags in (("--precision", "float64"), ("--set", "precision=float64")):
        assert command.run(parsed(*given, *flags)) == 0
        found = json.loads(Path(file).read_text())
        assert found["precision"] == "float64" and "float64" not in found["other_precisions"]
        assert found["command"].count("precision=") == 1
    capsys.readouterr()


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--gpus", "0", "--gpu-memory", "80GB"), "--gpus"),
        (("--gpus", "8", "--gpu-memory", "80"), "--gpu-memory"),
        (("--gpus", "8", "--gpu-memory", "80GB", "--nodes", "3"), "--nodes"),
        (("--gpus", "8", "--gpu-memory", "80GB", "--headroom", "1"), "--headroom"),
        (("--gpus", "1000", "--gpu-memory", "80GB"), "--gpus 1000"),
    ],
)
def test_what_cannot_be_asked_is_one_line(flags: tuple[str, ...], named: str) -> None:
    with pytest.raises(SpecError, match=named) as caught:
        command.run(parsed("--recipe", "digits_mlp", *flags))
    assert "\n" not in str(caught.value)
