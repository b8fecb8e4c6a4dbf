"""A user's code is imported with float64 wherever it says float32, and as it is written again."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

from parity.common.external.process.float64_code import CODE, wider

CODE_OF_TABLES = """\
import numpy as np

import float32_helper
STEP = np.float32(0.1)


def table(count: int) -> np.ndarray:
    return (np.arange(count) * STEP).astype("float32") * float32_helper.SCALE
"""


@pytest.mark.parametrize(
    ("code", "due"),
    [
        ("x = np.float32(0.1)", "x = np.float64(0.1)"),
        ("x = y.astype('float32')  # float32", "x = y.astype('float64')  # float32"),
        ('z = np.zeros(3, "complex64")', 'z = np.zeros(3, "complex128")'),
        (
            "a = tf.cast(a, tf.float32); b = a.astype(np.float32)",
            "a = tf.cast(a, tf.float64); b = a.astype(np.float64)",
        ),
        ("y = torch.FloatTensor(3)", "y = torch.DoubleTensor(3)"),
        ("y = x.to(torch.float) + float(z)", "y = x.to(torch.float64) + float(z)"),
        ("text = 'made of float32'", "text = 'made of float32'"),
        ("float32s = 1", "float32s = 1"),
        (
            "x = np.frombuffer(raw, np.float32) * np.float32(2)",
            "x = np.frombuffer(raw, np.float32) * np.float64(2)",
        ),
        ("x = (np.float32", "x = (np.float32"),
    ],
)
def test_code_says_float64(code: str, due: str) -> None:
    assert wider(code) == due


def test_modules_are_imported_so_and_as_they_are_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "float32_tables.py").write_text(CODE_OF_TABLES)
    (tmp_path / "float32_helper.py").write_text("import numpy as np\nSCALE = np.float32(0.3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    CODE.remember("float32_tables")

    def made() -> tuple[str, str]:
        module = importlib.import_module("float32_tables")
        assert module.table(3)[1] == pytest.approx(0.03, abs=1e-15 if CODE.is_wide else 1e-8)
        return module.table(3).dtype.name, inspect.getsource(module.table)

    try:
        assert made() == ("float32", inspect.getsource(sys.modules["float32_tables"].table))
        CODE.switch(True)
        name, source = made()
        assert (name, 'astype("float64")' in source) == ("float64", True)
        CODE.switch(True)
        assert sys.modules["float32_helper"].SCALE.dtype == np.float64, "what it imports from beside it, too"
    finally:
        CODE.switch(False)
    name, source = made()
    assert (name, 'astype("float32")' in source) == ("float32", True), "no bytecode of the other is left"
    for module in ("float32_tables", "float32_helper"):
        del sys.modules[module]


def test_a_file_is_read_in_the_encoding_that_it_declares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "# -*- coding: latin-1 -*-\nTEXT, KIND = 'é', 'float32'\n"
    (tmp_path / "float32_latin.py").write_bytes(code.encode("latin-1"))
    monkeypatch.syspath_prepend(tmp_path)
    try:
        CODE.switch(True)
        module = importlib.import_module("float32_latin")
    finally:
        CODE.switch(False)
        sys.modules.pop("float32_latin", None)
    assert (module.TEXT, module.KIND) == ("é", "float64")
