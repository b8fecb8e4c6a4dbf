"""Every recipe: complete, describable without a framework, and the same training on both sides."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from parity.common import recipes
from parity.common.base.errors import SpecError
from parity.common.data import sources
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import compare
from parity.common.spec import TrainSpec
from parity_tests.helpers.matrix import tensorflow, torch
from parity_tests.helpers.run_cache import RunCache
from parity_tests.tables.vocabulary import Vocabulary

TINY = [f"{name}:tiny" for name in recipes.RECIPES if recipes.has_tiny(name)]
# Made small, they are vit_base:tiny.
SAME = {"vit_tiny:tiny": "vit_base:tiny", "vit_small:tiny": "vit_base:tiny"}
# Their kinds of layers are in other recipes too.
EXHAUSTIVE = {
    "bert_base:tiny",
    "gpt2:tiny",
    "gru_tagger:tiny",
    "mobilenet_v2:tiny",
    "resnet20:tiny",
    "resnet50:tiny",
    "resnet50_torchvision:tiny",
    "unet:tiny",
    "vit_base:tiny",
}
# The larger ones.
SLOW = {"lstm_classifier:tiny"}
PLACEMENTS = [tensorflow(2), torch("ddp", 2)]

# A test may have to wait for the runs of all tests before it.
pytestmark = pytest.mark.timeout(2400)


def mark(name: str) -> tuple:
    if name in EXHAUSTIVE:
        return (pytest.mark.exhaustive,)
    return (pytest.mark.slow,) if name in SLOW else ()


@pytest.fixture(scope="session")
def both_at_work(request: pytest.FixtureRequest, run_cache: RunCache) -> None:
    """Begin the runs of every selected recipe, so that neither framework waits for the other."""
    for item in request.session.items:
        if item.function is test_a_recipe_trains_the_same_on_both_sides:
            for placement in PLACEMENTS:
                run_cache.begin(recipes.get(item.callspec.params["name"]), placement)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=mark(name)) for name in TINY if name not in SAME],
)
@pytest.mark.usefixtures("both_at_work")
def test_a_recipe_trains_the_same_on_both_sides(
    run_cache: RunCache, vocabulary: Vocabulary, name: str
) -> None:
    """100 steps, dropout and augmentation on: MirroredStrategy on two replicas, DDP on two ranks."""
    spec = recipes.get(name)
    ours, theirs = (run_cache.record(spec, placement) for placement in PLACEMENTS)
    assert len(ours.steps) == 100
    comparison = compare(ours, theirs, proof_budget(ours))
    assert comparison.verdict == "parity", comparison.reason
    deviation = comparison.loss_deviation.max()
    assert deviation <= 1e-12
    for record in (ours, theirs):
        assert record.loss[-10:].mean() < record.loss[:10].mean(), "it does not learn"
    for proved in (name, *(other for other, same in SAME.items() if same == name)):
        vocabulary.saw("recipe", proved.partition(":")[0], deviation, "100 steps x2 made small")


def test_what_is_the_same_made_small_is_the_same() -> None:
    for other, name in SAME.items():
        assert recipes.get(other).model_copy(update={"name": "x"}) == recipes.get(name).model_copy(
            update={"name": "x"}
        )


def test_the_recipes_leave_nothing_random_out() -> None:
    """Dropout, stochastic depth and every kind of augmentation are on in some recipe that is trained above."""
    text = [recipes.get(name).model_dump_json() for name in TINY]
    for word in (
        "dropout",
        "drop_rate",
        "crop",
        "flip",
        "cutout",
        "mixup",
        "colour_jitter",
        "mask_tokens",
        "noise",
    ):
        assert any(f'"{word}' in spec for spec in text), word


@pytest.mark.parametrize("name", recipes.names())
@pytest.mark.parametrize("convention", ["keras", "torch"])
def test_a_recipe_is_a_complete_spec(name: str, convention: str) -> None:
    spec = recipes.get(name)
    resolved = TrainSpec.parse({**spec.given(), "convention": convention}).resolved()
    assert TrainSpec.parse(resolved.to_dict()) == resolved
    assert spec.name == name.replace(":", "_")
    assert ":tiny" not in name or spec.steps == 100


@pytest.mark.parametrize("name", [name for name in recipes.names() if name in TINY or "digits" in name])
def test_its_samples_suit_its_model(name: str) -> None:
    spec = recipes.get(name).resolved()
    for samples in sources.load_for(spec):
        ids = samples.first_id + np.arange(min(5, len(samples)))
        inputs, targets = samples.rows(ids)
        assert inputs.shape[1:] == spec.model.input_shape and inputs.dtype == spec.input_dtype
        assert targets.shape[1:] == spec.target_shape and targets.dtype == spec.target_dtype


def test_the_tiny_one_is_the_same_model_made_small() -> None:
    """The same kinds of layers and the same loss: what is proved of it holds for the whole."""
    for name in TINY:
        tiny, whole = recipes.get(name), recipes.get(name.partition(":")[0])
        assert kinds(tiny) == kinds(whole), name
        assert tiny.loss.kind == whole.loss.kind and tiny.optimizer.kind == whole.optimizer.kind


def kinds(spec: TrainSpec) -> set[str]:
    found: set[str] = set()

    def visit(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("kind"), str):
                found.add(value["kind"])
            for part in value.values():
                visit(part)
        elif isinstance(value, list | tuple):
            for part in value:
                visit(part)

    visit(spec.model.to_dict())
    return found


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet", ["unknown recipe 'resnet'", "resnet50"]),
        ("resnet50:huge", ["unknown recipe", "did you mean 'resnet50'"]),
        ("digits_cnn:tiny", ["digits_cnn", "no tiny variant"]),
    ],
)
def test_an_unknown_recipe_is_refused(name: str, words: list[str]) -> None:
    with pytest.raises(SpecError) as error:
        recipes.get(name)
    assert all(word in str(error.value) for word in words)


def test_every_docstring_is_a_lab_note() -> None:
    for name, recipe in recipes.RECIPES.items():
        note = inspect.getdoc(recipe) or ""
        assert f"parity run --recipe {name}" in note, name
