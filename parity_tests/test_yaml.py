"""One reading of YAML, for files and for flags."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from parity.common.base.errors import SpecError
from parity.common.base.yaml import dump_plain, parse_yaml
from parity.common.spec import RunConfig, TrainSpec, load_spec, override
from parity.common.spec.placement import parse_value
from parity_tests.helpers.records import TINY, one_line

# What a plain word stands for.
WORDS: dict[str, Any] = {
    "1e-3": 0.001,
    "1E+6": 1e6,
    "-2.5e2": -250.0,
    "1.": 1.0,
    ".5": 0.5,
    ".inf": math.inf,
    "-.Inf": -math.inf,
    "12": 12,
    "-3": -3,
    "+4": 4,
    "007": 7,
    "0x1F": 31,
    "0o17": 15,
    "1_000": 1000,
    "true": True,
    "False": False,
    "null": None,
    "~": None,
    "''": "",
    "'1e-3'": "1e-3",
    '"true"': "true",
    "[1e-3, no]": [0.001, "no"],
    "{a: 1e5, b: off}": {"a": 1e5, "b": "off"},
    **{
        word: word
        for word in ("no", "yes", "on", "off", "No", "y", "n", "tRue", "1:30", "2020-01-31", "<<", "=", ".e1")
    },
    **{word: word for word in ("1e", "e5", "0b1", "0xg", "1e-3x", "1__0", "_1", "blocks", "a-b", "/a/b.npz")},
}


@pytest.mark.parametrize("text", WORDS)
def test_files_and_flags_read_the_same(text: str) -> None:
    expected = WORDS[text]
    for value in (parse_yaml(f"key: {text}", "file")["key"], parse_yaml(text, "--set"), parse_value(text)):
        assert value == expected and type(value) is type(expected)


def test_not_a_number_is_one() -> None:
    assert math.isnan(parse_yaml(".nan", "file"))


@pytest.mark.parametrize(
    ("field", "text", "expected"),
    [("optimizer.learning_rate", "1e-3", 1e-3), ("name", "no", "no"), ("data.shuffle", "false", False)],
)
def test_a_spec_is_the_same_from_a_file_and_from_set(
    tmp_path: Path, field: str, text: str, expected: object
) -> None:
    *path, last = field.split(".")
    spec = TrainSpec.parse(TINY)
    data = spec.given()
    inner = data
    for part in path:
        inner = inner[part]
    inner[last] = "HERE"
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(data).replace("HERE", text), encoding="utf-8")
    of_file, of_flag = load_spec(tmp_path / "spec.yaml"), override(spec, [f"{field}={text}"])
    assert of_file == of_flag
    found: Any = of_file
    for part in (*path, last):
        found = getattr(found, part)
    assert found == expected and type(found) is type(expected)


def test_a_placement_reads_words_likewise() -> None:
    config = RunConfig.from_text("torch:ddp:2,resume=no,accumulation={0:8,5:4}")
    assert config.run_options.resume == "no" and config.placement.accumulation == ((0, 8), (5, 4))


@pytest.mark.parametrize("text", ["{a: 1, a: 2}", "a: 1\na: 1", "[{b: {c: 1, c: 2}}]"])
def test_a_key_given_twice_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="given twice") as error:
        parse_yaml(text, "--set 'x'")
    assert one_line(error.value).startswith("--set 'x': ")
    assert parse_yaml("{a: 1, b: {a: 2}}", "file") == {"a": 1, "b": {"a": 2}}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(PLAIN)
@example({"1e5": ["1e5", "no", "0o17", "1:30", "null", 1e-07, "0x1F", "<<", "1_0", "~"]})
def test_what_is_written_is_read_again(data: Any) -> None:
    for style in (None, True):
        assert parse_yaml(dump_plain(data, default_flow_style=style), "file") == data


def test_pyyaml_alone_would_write_text_that_is_read_as_a_number() -> None:
    """The negative control of quoting: a layer that is called 1e5."""
    assert parse_yaml(yaml.safe_dump({"layer": "1e5"}), "file") == {"layer": 1e5}
    assert yaml.safe_load(dump_plain({"layer": "1e5", "word": "no"})) == {"layer": "1e5", "word": "no"}
