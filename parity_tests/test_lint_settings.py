"""`parity lint` names each setting of a layer that differs, with its row of DIFFERENCES, and no other."""

from __future__ import annotations

import pytest

from parity.common.external.lint.effective import Item, effective, items_of
from parity.common.external.lint.lint import audit
from parity.common.external.lint.settings import LAYERS, READ_WITH_OTHERS
from parity.common.spec.external.outline import LayerInfo, Outline
from parity_tests.lint_cases import CASES, arrays, ask, outlines, said
from parity_tests.peers import Peer


@pytest.fixture(scope="module")
def cases(peers: dict[str, Peer]) -> list[tuple[Outline, Outline] | None]:
    """The two outlines of each case."""
    return outlines(peers, [ask(case) for case in CASES], arrays())


@pytest.mark.parametrize(
    "number", range(len(CASES)), ids=[f"{c[0].__name__.lstrip('_')} {said(c[1])} {said(c[2])}" for c in CASES]
)
def test_a_setting_that_is_changed_on_one_side_is_named(
    cases: list[tuple[Outline, Outline] | None], number: int
) -> None:
    if cases[number] is None:
        pytest.skip("this version of Keras has no such layer or function")
    result = audit(*cases[number])
    assert {(one.setting, one.row) for one in result.differences} == CASES[number][3]
    assert result.unread == ()


def test_each_setting_of_the_tables_is_read_on_both_sides(
    cases: list[tuple[Outline, Outline] | None],
) -> None:
    """A setting that a reader gives and the table has not would be passed over in silence."""
    for pair in cases:
        for outline in pair or ():
            for item in items_of(outline.layers, outline.framework):
                made = {"padding"} if item.kind.endswith("transpose") else set()
                known = {*LAYERS[item.kind], *READ_WITH_OTHERS, *made}
                assert set(item.info.settings) <= known, (item.path, set(item.info.settings) - known)


# Settings of the tables that no pair of layers above can differ in, and why.
NEVER_ALONE = {
    "antialias": "only a function of torch and Keras's Resizing have it",
    "order": "in the net",
    "sides": "Keras's adaptive poolings are new",
    "value": "no Keras layer has it",
    "whole": "Keras has a class of its own for it",
}


def test_every_setting_of_the_tables_has_a_case_that_changes_it() -> None:
    changed = {setting for case in CASES for setting, _ in case[3]}
    assert {name for table in LAYERS.values() for name in table} - changed == set(NEVER_ALONE)


@pytest.mark.parametrize(("side", "padding"), [(7, (0, -1, 0, -1)), (8, None)])
def test_the_padding_of_a_convolution_that_pads_in_its_own_call_is_not_known(
    side: int, padding: tuple[int, ...] | None
) -> None:
    settings = {"kernel_size": (3, 3), "strides": (2, 2), "padding": (0, 0, 0, 0)}
    given, made = (1, 3, 16, 16), (1, 8, side, side)
    info = LayerInfo(
        path="stem",
        kind="conv2d",
        type="own.SameConv",
        settings=settings,
        inputs=(given,),
        outputs=(made,),
        overridden=True,
    )
    item = Item(info, info.kind, "torch")
    assert effective(item, item).get("padding") == padding
