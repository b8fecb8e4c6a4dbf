"""Models of other people's packages in pairs: mapped automatically, and equal, or different for a reason that is named."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator

import numpy as np
import pytest

from parity.common.external.process.worker import ExternalWorker
from parity.common.spec.external.mapping import Mapping, Pair
from parity_tests.helpers import ROOT
from parity_tests.helpers.processes import lacks
from parity_tests.tables.zoo import LIMIT, ZooTable
from parity_tests.zoo import APPLICATIONS, PACKAGES, TRANSFORMERS, ZOO
from parity_tests.zoo_run import SEED, deviation, run, zoo_workers

SHARE = 0.9  # of the tensors that must get a counterpart
# Small and quick ones, of either kind.
SLOW = ("MobileNetV3Small", "BERT")
Workers = tuple[ExternalWorker, ExternalWorker]


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    if importlib.util.find_spec("transformers") is None or not (ROOT / PACKAGES).is_dir():
        lacks("other people's models are not installed; scripts/setup all,test,published")
    with zoo_workers() as pair:
        yield pair


def lacks_torchvision(name: str) -> bool:
    """timm needs it, and there is none for every Python."""
    return ZOO[name].torch.module == "timm" and not (ROOT / PACKAGES / "torchvision").is_dir()


def blocks(names: tuple[str, ...], form: str) -> set[int]:
    """The numbers of the blocks that tensors are named after; none for T5's sublayers and such."""
    return {int(number) for name in names for number in re.findall(form, name)[:1]}


def misplaced(mapping: Mapping) -> list[str]:
    """Tensors of transformers whose names say that they are of another block than their counterpart's.

    Another witness than the numbers: Keras counts from 0 or from 1, torch from 0.
    """
    shifts: dict[int, list[str]] = {}
    for pair in mapping.tensors:
        ours = blocks(pair.keras, r"(?:layer|block)s?_(\d+)")
        theirs = blocks(pair.torch, r"(?:layers?|h|block)\.(\d+)\.")
        if ours and theirs:
            shifts.setdefault(min(ours) - min(theirs), []).append(pair.label)
    usual = max(shifts, key=lambda shift: len(shifts[shift]), default=0)
    return [label for shift, labels in shifts.items() if shift != usual for label in labels]


def test_the_zoo_is_as_large_as_it_claims() -> None:
    assert len({pair.keras.attribute for pair in APPLICATIONS}) >= 17
    assert len({pair.keras.attribute for pair in TRANSFORMERS}) >= 31
    assert len(ZOO) == len(APPLICATIONS) + len(TRANSFORMERS)


def test_a_tensor_of_another_block_is_seen() -> None:
    """The negative control of that witness: two blocks exchanged."""

    def of(*places: tuple[int, int]) -> Mapping:
        pairs = [
            Pair(keras=(f"block_{a}/ln/gamma",), torch=(f"layers.{b}.ln.weight",), rule="same")
            for a, b in places
        ]
        return Mapping(keras="k:k", torch="t:t", tensors=tuple(pairs))

    assert not misplaced(of((1, 0), (2, 1), (3, 2), (4, 3)))
    assert len(misplaced(of((1, 0), (2, 2), (3, 1), (4, 3)))) == 2


def test_the_page_shows_every_pair() -> None:
    page = (ROOT / "docs/evidence/zoo.md").read_text(encoding="utf-8")
    assert not [name for name in ZOO if f"| {name} | `" not in page]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else pytest.mark.exhaustive) for name in ZOO],
)
def test_pair(workers: Workers, zoo: ZooTable, name: str) -> None:
    if lacks_torchvision(name):
        pytest.skip("timm needs torchvision 0.15.2, which this Python has no wheel of")
    outcome = run(ZOO[name], *workers)
    zoo.add(outcome)
    assert outcome.share >= SHARE, (outcome.doubtful, outcome.lacking)
    assert outcome.proven, outcome
    assert ZOO[name] in APPLICATIONS or not misplaced(outcome.mapping)
    parity = outcome.deviation <= LIMIT
    assert parity != bool(ZOO[name].differs), outcome
    assert parity or outcome.named


@pytest.mark.slow
def test_what_is_not_the_same_is_seen(workers: Workers) -> None:
    """The negative control: one number of one tensor, and two tensors of one shape exchanged."""
    pair = ZOO["MobileNetV3Small"]
    outcome = run(pair, *workers)
    assert outcome.deviation <= LIMIT
    torch = workers[1]
    inputs = pair.inputs.draw(np.random.default_rng(SEED))
    state = torch.read()
    name = next(name for name, value in state.items() if value.ndim == 4)
    off = state[name].copy()
    off.flat[0] += 1e-3
    torch.write({name: off})
    assert deviation(pair, *workers, inputs) > LIMIT
    torch.write({name: state[name]})
    assert deviation(pair, *workers, inputs) == outcome.deviation
    first, second = [name for name, value in state.items() if value.shape == (240, 1, 5, 5)][:2]
    torch.write({first: state[second], second: state[first]})
    assert deviation(pair, *workers, inputs) > LIMIT
