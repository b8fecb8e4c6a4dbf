"""Random mutants: what can be changed, and of a few what is said; none is confirmed to be what it is not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from parity_tests.helpers import ROOT
from parity_tests.mutants import Bench, changes, changes_of, mutants, replacements


@pytest.mark.parametrize(
    ("source", "others"),
    [
        ("a + b", ["a - b", "a", "b"]),
        ("a < b", ["a <= b"]),
        ("a and b", ["a or b"]),
        ("a if b else c", ["a if not b else c"]),
        ("-1", ["1"]),
        ("2", ["3"]),
        ("0.5", ["1.0"]),
        ("torch.sum(x, y, dim=1)", ["torch.sum(y, x, dim=1)", "torch.sum(x, y)"]),
        ("other(x, y)", []),
        ("a if b is None else c", []),
    ],
)
def test_what_stands_in_place_of_an_expression(source: str, others: list[str]) -> None:
    node = ast.parse(source, mode="eval").body
    assert [ast.unparse(ast.fix_missing_locations(other)) for other in replacements(node)] == others


def test_each_change_changes_its_function_alone() -> None:
    path = str(ROOT / "torch_impl/optimizers/adam.py")
    own = ast.unparse(changes(path)[0])
    for number, change in enumerate(changes_of(path)):
        tree, every = changes(path)
        every[number].apply()
        lines = zip(own.splitlines(), ast.unparse(tree).splitlines(), strict=False)
        first = next(one for one, other in lines if one != other)
        assert change.line and first.strip()


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("mutants")) as bench:
        yield bench


# Of torch_mlp: the file, the change, and the outcome, or the stage and the cause of the first finding, if one fits.
TRIED = [
    ("optimizers/adam.py", "given.scalars['step_size'] * correction -> correction", "update", ""),
    ("optimizers/adam.py", "spec.epsilon * correction -> correction", "update", ""),
    ("optimizers/adam.py", "False -> True", "slots", "term_scaled"),
    ("losses.py", "F.cross_entropy", "error", ""),
    ("step.py", "-1 -> 1", "ids", "recorded_differently"),
    ("step.py", "self._compares and (not self._own) -> self._compares or", "survivor", ""),
]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("file", "text", "stage", "cause"), TRIED)
def test_what_is_said_of_a_mutant(bench: Bench, file: str, text: str, stage: str, cause: str) -> None:
    path = ROOT / "torch_impl" / file
    number = next(n for n, change in enumerate(changes_of(str(path))) if change.text.startswith(text))
    name = str(path.relative_to(ROOT)).removesuffix(".py").replace("/", "__")
    said = bench.tried("torch_mlp", f"{name}__{number}")
    first = said["findings"][0] if "findings" in said else {"stage": said["outcome"], "cause": ""}
    assert (first["stage"], first.get("cause", "")) == (stage, cause), said


def test_a_page_keeps_what_stands_before_its_part(tmp_path: Path) -> None:
    page, drawn = tmp_path / "page.md", tmp_path / "drawn.jsonl"
    page.write_text("# A page\n")
    drawn.write_text(
        '{"seed": 1, "setup": "s", "where": "w", "text": "a | b", "outcome": "divergent", "place": "right",'
        ' "verdict": "wrong", "findings": [{"stage": "update", "tensor": "t", "cause": "c", "confidence": "likely"}]}\n'
        '{"seed": 1, "setup": "s", "where": "w", "text": "a", "outcome": "error"}\n'
        '{"seed": 1, "setup": "s", "where": "x/y.py:1 f", "text": "a", "outcome": "survivor", "why": "so"}\n'
    )
    for _ in range(2):
        mutants.write(drawn, page)
    text = page.read_text()
    assert text.startswith("# A page\n\n## Random mutants\n")
    assert text.count("| 1 | 3 | 1 | 1 | 1 | 1 | 0 | 0 | 0 | 1 | 0 |") == 1
    assert "| `w`: `a &#124; b` | s | update | `t` | c | likely | right | wrong |" in text
    assert text.endswith("| so | 1 | `y.py:1 f` |\n")
