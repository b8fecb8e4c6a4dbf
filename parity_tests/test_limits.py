"""Small files that ask for endless work are refused in one line at once, and large honest specs stay usable."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from parity.common.base.errors import ParityError
from parity.common.planning.adviser import recommend
from parity.common.record import read_record
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.model import MOST_LAYERS, walk
from parity_tests.corruption import bounded
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import TINY, TORCH, Run, edit_json, one_line, tiny_spec
from parity_tests.helpers.work import lines_run


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


DENSE = {"kind": "dense", "units": 4}
# Of processor time: what is refused is so before any work.
AT_ONCE, USABLE = 2.0, 12.0


def spec(layers: list[Any], **more: Any) -> dict[str, Any]:
    return {**TINY, "model": {"input_shape": [4], "layers": layers}, **more}


def repeated(times: int, depth: int) -> dict[str, Any]:
    layer: dict[str, Any] = DENSE
    for _ in range(depth):
        layer = {"kind": "repeat", "times": times, "layers": [layer]}
    return layer


def nested(depth: int) -> dict[str, Any]:
    layer: dict[str, Any] = DENSE
    for _ in range(depth):
        layer = {"kind": "sequential", "layers": [layer]}
    return layer


ENDLESS = {
    "repeated": (spec([repeated(10**9, 1)]), "1000000001 layers with those that are repeated"),
    "repeated in each other": (spec([repeated(1000, 9)]), "a model has at most 20000"),
    "many": (spec([DENSE] * (MOST_LAYERS + 1)), "20001 layers"),
}


@pytest.mark.parametrize("case", ENDLESS)
def test_a_spec_of_endless_layers_is_refused_at_once(case: str) -> None:
    data, said = ENDLESS[case]
    with bounded(AT_ONCE), pytest.raises(ParityError) as caught:
        TrainSpec.parse(data)
    assert said in one_line(caught.value)


@pytest.mark.parametrize("depth", [300, 900])
def test_deep_nesting_is_refused_at_once(depth: int, tmp_path: Path) -> None:
    record = Run.of(tiny_spec(), TORCH).write(tmp_path / "record").folder
    text = json.dumps({**json.loads((record / "header.json").read_text()), "spec": "DEEP"})
    deep = '{"kind": "sequential", "layers": [' * depth + json.dumps(DENSE) + "]}" * depth
    data = json.dumps(spec(["DEEP"])).replace('"DEEP"', deep)
    (record / "header.json").write_text(text.replace('"DEEP"', data))
    with bounded(AT_ONCE), pytest.raises(ParityError) as caught:
        read_record(record)
    one_line(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("torch:ddp:100000", "replicas: Input should be less than or equal to 65536"),
        ("torch:ddp:2,loader_workers=1000000", "loader_workers: Input should be less than or equal to 4096"),
        ("torch:ddp:2,threads_per_replica=1000000", "threads_per_replica: Input should be less than"),
        ("torch:ddp:2,accumulation=1000000000", "accumulation: must be at most 65536 micro-batches"),
        ("torch:ddp:2,timeout_seconds=1000000000000", "timeout_seconds: Input should be less than"),
        ("tf:mirrored:2,steps_per_call=1000000000", "steps_per_call: Input should be less than"),
    ],
)
def test_a_placement_of_endless_parts_is_refused(text: str, said: str) -> None:
    with pytest.raises(ParityError) as caught:
        Placement.from_text(text)
    assert said in one_line(caught.value)


def test_a_record_that_claims_endless_replicas_is_refused_at_once(tmp_path: Path) -> None:
    record = Run.of(tiny_spec(), TORCH).write(tmp_path / "record").folder
    placement = json.loads((record / "header.json").read_text())["placement"]
    edit_json(record / "header.json", placement={**placement, "strategy": "ddp", "replicas": 10**9})
    with bounded(AT_ONCE), pytest.raises(ParityError, match="less than or equal to 65536"):
        read_record(record)


def test_a_plan_for_endless_replicas_is_refused(parity: Cli) -> None:
    assert "65536" in parity.refused("plan", "--recipe", "digits_mlp", "--replicas", 10**9)
    assert "at most 500000 are printed" in parity.refused("plan", "--recipe", "digits_mlp", "--steps", 10**18)


def test_ten_thousand_layers_are_usable(tmp_path: Path) -> None:
    with bounded(USABLE):
        found = TrainSpec.parse(spec([DENSE] * 10_000)).resolved()
        assert sum(1 for _ in walk(found.model.tree())) == 10_001
        assert found.content_hash() == TrainSpec.parse(found.to_dict()).content_hash()


def test_advice_on_many_layers_takes_no_work_by_its_square() -> None:
    def advise(layers: int) -> None:
        found = TrainSpec.parse(spec([DENSE] * layers)).resolved()
        recommend.advise(recommend.Question(found, "tensorflow", 2, 80 * 10**9, 1, 0.1))

    few, some, many = (lines_run(partial(advise, layers)) for layers in (100, 200, 400))
    # Twice the layers more are twice the work more; what looks at all live tensors for each layer comes to 2.6 times.
    assert many - some < 2.1 * (some - few), (few, some, many)
