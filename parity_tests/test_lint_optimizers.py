"""`parity lint` names each setting of an optimizer that differs, with its row of DIFFERENCES, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from parity.common.external.lint.lint import audit
from parity.common.external.lint.optimizer_settings import OPTIMIZERS
from parity.common.spec.external.outline import Outline
from parity_tests.lint_cases import Ask, Found, dense, outlines
from parity_tests.peers import Peer

# class and arguments of either side, what must be named. The first eight are stock against stock.
OPTIMIZER_CASES: list[tuple[str, Ask, str, Ask, Found]] = [
    ("SGD", {}, "SGD", {"lr": 0.01}, set()),
    ("Adam", {}, "Adam", {}, {("epsilon", 11), ("epsilon_place", 11)}),
    ("AdamW", {}, "AdamW", {}, {("epsilon", 11), ("epsilon_place", 11), ("weight_decay", 13)}),
    (
        "RMSprop",
        {},
        "RMSprop",
        {},
        {("learning_rate", 14), ("rho", 14), ("epsilon", 14), ("epsilon_place", 14)},
    ),
    (
        "Adagrad",
        {},
        "Adagrad",
        {},
        {("learning_rate", 15), ("initial_accumulator", 15), ("epsilon", 15), ("epsilon_place", 15)},
    ),
    ("Adadelta", {}, "Adadelta", {}, {("learning_rate", 16), ("rho", 16), ("epsilon", 16)}),
    ("Adamax", {}, "Adamax", {}, {("learning_rate", None), ("epsilon", None), ("epsilon_place", None)}),
    ("Nadam", {}, "NAdam", {}, {("learning_rate", None), ("epsilon", None), ("momentum_decay", None)}),
    ("SGD", {"learning_rate": 0.1}, "SGD", {"lr": 0.1}, set()),
    ("SGD", {"learning_rate": 0.1}, "SGD", {"lr": 0.01}, {("learning_rate", None)}),
    ("SGD", {"momentum": 0.9}, "SGD", {"lr": 0.01, "momentum": 0.9}, {("momentum_form", 7)}),
    ("SGD", {"momentum": 0.9}, "SGD", {"lr": 0.01}, {("momentum", 7)}),
    (
        "SGD",
        {"momentum": 0.9, "nesterov": True},
        "SGD",
        {"lr": 0.01, "momentum": 0.9},
        {("momentum_form", 7), ("nesterov", 8)},
    ),
    (
        "SGD",
        {"momentum": 0.9},
        "SGD",
        {"lr": 0.01, "momentum": 0.9, "dampening": 0.1},
        {("momentum_form", 7), ("dampening", 7)},
    ),
    ("SGD", {"weight_decay": 0.1}, "SGD", {"lr": 0.01, "weight_decay": 0.1}, {("weight_decay_mode", 9)}),
    ("SGD", {"weight_decay": 0.1}, "SGD", {"lr": 0.01}, {("weight_decay", 9)}),
    ("SGD", {"clipnorm": 1.0}, "SGD", {"lr": 0.01}, {("clip_norm", 18)}),
    ("SGD", {"global_clipnorm": 1.0}, "SGD", {"lr": 0.01}, {("clip_global_norm", 17)}),
    ("SGD", {"clipvalue": 1.0}, "SGD", {"lr": 0.01}, {("clip_value", None)}),
    ("SGD", {"use_ema": True}, "SGD", {"lr": 0.01}, {("ema", None)}),
    ("SGD", {"gradient_accumulation_steps": 4}, "SGD", {"lr": 0.01}, {("accumulation", 20)}),
    ("SGD", {}, "SGD", {"lr": 0.01, "maximize": True}, {("maximize", None)}),
    (
        "Adam",
        {"weight_decay": 0.1, "epsilon": 1e-8},
        "Adam",
        {"weight_decay": 0.1},
        {("weight_decay_mode", 12), ("epsilon_place", 11)},
    ),
    # torch's AdamW is its Adam with the decay that Keras's Adam has.
    ("Adam", {"weight_decay": 0.1, "epsilon": 1e-8}, "AdamW", {"weight_decay": 0.1}, {("epsilon_place", 11)}),
    (
        "Adam",
        {"amsgrad": True, "beta_1": 0.8, "beta_2": 0.99, "epsilon": 1e-8},
        "Adam",
        {},
        {("amsgrad", None), ("beta_1", None), ("beta_2", None), ("epsilon_place", 11)},
    ),
    (
        "RMSprop",
        {"centered": True, "rho": 0.99, "epsilon": 1e-8, "momentum": 0.9},
        "RMSprop",
        {"lr": 0.001, "momentum": 0.9},
        {("centered", 14), ("epsilon_place", 14), ("momentum_form", 14)},
    ),
    (
        "Adagrad",
        {"learning_rate": 0.01, "initial_accumulator_value": 0.0, "epsilon": 1e-10},
        "Adagrad",
        {"lr_decay": 0.1},
        {("rate_decay", 15), ("epsilon_place", 15)},
    ),
    ("SGD", {"learning_rate": 0.001}, "Adam", {}, {("kind", None)}),
    ("Lion", {}, "Adam", {}, {("kind", None), ("beta_2", None)}),
]


@pytest.fixture(scope="module")
def optimizer_cases(peers: dict[str, Peer]) -> list[tuple[Outline, Outline]]:
    """Outlines of one small layer with each case's optimizers."""
    left, right, shape = dense({}, {})
    asked = [
        (
            {"model": "chain", "arguments": {"parts": [left], "shape": shape}, "optimizer": [keras, ours]},
            {"model": "chain", "arguments": {"parts": [right]}, "optimizer": [torch, theirs]},
        )
        for keras, ours, torch, theirs, _ in OPTIMIZER_CASES
    ]
    return outlines(peers, asked, {})


@pytest.mark.parametrize(
    "number",
    range(len(OPTIMIZER_CASES)),
    ids=[f"{c[0]} {c[1]} {c[2]} {c[3]}" for c in OPTIMIZER_CASES],
)
def test_settings_of_optimizers_are_named(
    optimizer_cases: list[tuple[Outline, Outline]], number: int
) -> None:
    result = audit(*optimizer_cases[number])
    assert {(one.setting, one.row) for one in result.differences} == OPTIMIZER_CASES[number][4]
    assert all(one.keras is None and one.torch is None for one in result.differences)
    assert result.unread == ()


def test_every_setting_of_optimizers_is_in_the_table(
    optimizer_cases: list[tuple[Outline, Outline]],
) -> None:
    for pair in optimizer_cases:
        for outline in pair:
            assert outline.optimizer is not None
            assert set(outline.optimizer.settings) <= set(OPTIMIZERS[outline.optimizer.kind])


def test_an_optimizer_that_is_not_known_is_not_read(peers: dict[str, Peer]) -> None:
    left, right, shape = dense({}, {})
    keras = {"model": "chain", "arguments": {"parts": [left], "shape": shape}}
    torch = {"model": "chain", "arguments": {"parts": [right]}}
    asked = [
        ({**keras, "optimizer": ["Ftrl", {}]}, {**torch, "optimizer": ["Adam", {}]}),
        (keras, {**torch, "optimizer": ["Adam", {}]}),
    ]
    results = [audit(*pair) for pair in outlines(peers, asked, {})]
    assert [result.differences for result in results] == [(), ()]
    assert [[one.what for one in result.unread] for result in results] == [["optimizer"], ["optimizer"]]
    assert "Ftrl" in results[0].unread[0].why
    assert results[1].unread[0].why == "keras has none"


def test_every_setting_of_the_tables_has_a_case_that_changes_it() -> None:
    changed = {setting for case in OPTIMIZER_CASES for setting, _ in case[4]}
    assert {name for table in OPTIMIZERS.values() for name in table} - changed == {
        "decay_mask",
        "loss_scale",
        "schedule",
    }


@pytest.mark.parametrize(
    ("setting", "value", "row"),
    [("schedule", "ExponentialDecay()", 22), ("loss_scale", 32768.0, 49), ("decay_mask", "all but bias", 9)],
)
def test_settings_that_the_stock_classes_do_not_have_alone(
    optimizer_cases: list[tuple[Outline, Outline]], setting: str, value: Any, row: int
) -> None:
    keras, torch = optimizer_cases[0]
    assert keras.optimizer is not None and torch.optimizer is not None
    both = [
        keras.optimizer.settings | {"weight_decay": 0.1},
        torch.optimizer.settings | {"weight_decay": 0.1},
    ]
    both[0]["weight_decay_mode"] = both[1]["weight_decay_mode"]
    plain = [
        side.model_copy(update={"optimizer": side.optimizer.model_copy(update={"settings": settings})})
        for side, settings in zip((keras, torch), both, strict=True)
    ]
    assert audit(*plain).differences == ()
    optimizer = plain[0].optimizer.model_copy(update={"settings": both[0] | {setting: value}})
    (found,) = audit(plain[0].model_copy(update={"optimizer": optimizer}), plain[1]).differences
    assert (found.setting, found.row, found.keras_value) == (setting, row, value)
