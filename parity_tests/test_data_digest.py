"""The data's digest, pins, missing packages, and what a model and a loss make of samples."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from parity.common.base.errors import MissingPackageError, SpecError
from parity.common.data import sources, tables
from parity.common.spec import TrainSpec, json_schema, override
from parity_tests.helpers.records import TINY, one_line, tiny_spec
from parity_tests.helpers.sample_files import (
    IMAGES,
    LABELS,
    RANDOM,
    SHIPPED,
    cifar,
    digest,
    everything,
    mnist,
    opened,
    pictures,
    table,
)

# Digests and pins.


def one_of_each(folder: Path) -> dict[str, tuple[dict[str, Any], Path]]:
    """A source of each kind of file, with one of its files."""
    for name in ("m", "c", "h", "p"):
        (folder / name).mkdir()
    np.save(folder / "x.npy", RANDOM.random((9, 3)))
    np.savez(folder / "x.npz", x=RANDOM.random((9, 3)), y=np.arange(9))
    (folder / "t.bin").write_bytes(np.arange(99, dtype="<u2").tobytes())
    npy, npz = str(folder / "x.npy"), str(folder / "x.npz")
    return {
        "mnist_idx": (mnist(folder / "m")[0], folder / "m" / LABELS),
        "cifar10": (cifar(folder / "c")[0], folder / "c" / "data_batch_3.bin"),
        "cifar100": (cifar(folder / "h", True)[0], folder / "h" / "test.bin"),
        "image_folder": (pictures(folder / "p"), folder / "p" / "cat" / "9.png"),
        "npy": ({"kind": "npy", "path": npy}, folder / "x.npy"),
        "npz": ({"kind": "npz", "path": npz}, folder / "x.npz"),
        "tokens": ({"kind": "tokens", "path": str(folder / "t.bin"), "length": 4}, folder / "t.bin"),
        "csv": (table("csv", folder / "t.csv"), folder / "t.csv"),
        "parquet": (table("parquet", folder / "t.parquet"), folder / "t.parquet"),
    }


def test_every_byte_and_name_counts(tmp_path: Path) -> None:
    digests = {}
    for kind, (source, path) in one_of_each(tmp_path).items():
        before = digest(source)
        assert before is not None and len(before) == 64 and digest(source) == before
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        time.sleep(0.01)
        path.write_bytes(content)
        assert digest(source) != before, kind
        content[-1] ^= 1
        path.write_bytes(content)
        assert digest(source) == before
        digests[kind] = before
    assert len(set(digests.values())) == len(digests)


def test_the_digest_does_not_tell_where_the_files_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, _ = mnist(tmp_path / "here")
    before = digest(source)
    (tmp_path / "here").rename(tmp_path / "there")
    assert digest({**source, "path": str(tmp_path / "there")}) == before
    monkeypatch.setenv("PARITY_DATA", str(tmp_path))
    assert digest({**source, "path": "there"}) == before
    (tmp_path / "there" / IMAGES).rename(tmp_path / "there" / "other-images-idx3-ubyte")
    (tmp_path / "there" / LABELS).rename(tmp_path / "there" / "other-labels-idx1-ubyte")
    assert digest({**source, "path": "there", "train": "other"}) != before


def test_a_file_is_hashed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "x.npy", np.zeros(5))
    source = {"kind": "npy", "path": str(tmp_path / "x.npy")}
    before = digest(source)
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert digest(source) == before


def test_shipped_tables_have_digests_and_synthetic_samples_none() -> None:
    digests = {digest({"kind": kind}) for kind in ("digits", *SHIPPED)}
    assert len(digests) == 5 and None not in digests
    assert digest({"kind": "synthetic", "shape": [3]}) is None


def test_a_pin_holds_the_files(tmp_path: Path) -> None:
    source, _ = mnist(tmp_path / "m")
    pin = digest(source)
    assert digest({**source, "sha256": pin}) == pin
    with pytest.raises(SpecError, match=f"source.sha256 is {'0' * 64}, but the files hash to {pin}") as error:
        digest({**source, "sha256": "0" * 64})
    one_line(error.value)
    np.save(tmp_path / "x.npy", np.zeros(5))
    own = hashlib.sha256((tmp_path / "x.npy").read_bytes()).hexdigest()
    single = {"kind": "npy", "path": str(tmp_path / "x.npy")}
    assert digest({**single, "sha256": own}) == digest(single) != own
    with pytest.raises(SpecError, match="sha256"):
        digest({**single, "sha256": "abc"})


# For a model and a loss.


def fitted(source: dict[str, Any], units: int, loss: str, shape: list[int], **more: Any) -> TrainSpec:
    data = {"source": source, "train_samples": 20, "eval_samples": 5}
    layers = [{"kind": "flatten"}, {"kind": "dense", "units": units}]
    base = tiny_spec().to_dict()
    base |= {"model": {"input_shape": shape, "layers": layers}, "data": data, "loss": {"kind": loss, **more}}
    return TrainSpec.parse(base)


def test_targets_take_the_shape_and_type_that_the_loss_wants() -> None:
    ids = np.arange(20)
    iris = {"kind": "iris"}
    plain = opened(iris, 20, 5)[0].rows(ids)[1]
    inputs, targets = sources.load_for(fitted(iris, 3, "softmax_cross_entropy", [4]))[0].rows(ids)
    assert inputs.shape == (20, 4) and np.array_equal(targets, plain)
    distributions = fitted(iris, 3, "softmax_cross_entropy", [4], targets="distributions")
    assert np.array_equal(sources.load_for(distributions)[0].rows(ids)[1], np.eye(3)[plain])
    tumours = {"kind": "breast_cancer"}
    one = sources.load_for(fitted(tumours, 1, "binary_cross_entropy", [30]))[0].rows(ids)[1]
    assert one.shape == (20, 1) and one.dtype == np.float64
    assert np.array_equal(one[:, 0], opened(tumours, 20, 5)[0].rows(ids)[1])
    number = sources.load_for(fitted({"kind": "diabetes"}, 1, "mean_squared_error", [10]))[0].rows(ids)[1]
    assert number.shape == (20, 1) and number.min() > 1


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            lambda: fitted({"kind": "iris"}, 3, "softmax_cross_entropy", [5]),
            r"shape \(4,\), the model takes \(5,\)",
        ),
        (
            lambda: fitted({"kind": "diabetes"}, 3, "softmax_cross_entropy", [10]),
            r"a target is class \d+, the model ends in 3 classes",
        ),
        (
            lambda: fitted({"kind": "diabetes"}, 2, "mean_squared_error", [10]),
            r"shape \(1,\), .* expect \(2,\)",
        ),
        (
            lambda: fitted(
                {"kind": "digits"}, 3, "softmax_cross_entropy", [8, 8, 1], targets="distributions"
            ),
            "a target is class 3, the model ends in 3 classes",
        ),
    ],
    ids=["inputs", "numbers", "values", "classes"],
)
def test_what_does_not_suit_the_model_is_refused(spec: Callable[[], TrainSpec], words: str) -> None:
    with pytest.raises(SpecError, match=words) as error:
        everything(sources.load_for(spec())[0])
    one_line(error.value)


def test_numbers_are_no_tokens() -> None:
    base = tiny_spec().to_dict()
    layers = [
        {"kind": "embedding", "vocabulary": 9, "features": 2},
        {"kind": "flatten"},
        {"kind": "dense", "units": 3},
    ]
    base["model"] = {"input_shape": [4], "inputs": "tokens", "layers": layers}
    base["data"] = {"source": "iris", "train_samples": 20, "eval_samples": 5}
    with pytest.raises(SpecError, match="the model takes tokens, but the inputs are not whole numbers"):
        sources.load_for(TrainSpec.parse(base))


@pytest.mark.parametrize(
    ("package", "kind"), [("PIL", "folder"), ("pyarrow", "parquet"), ("sklearn", "digits")]
)
def test_a_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, kind: str
) -> None:
    source = {"kind": "iris"}
    if kind == "folder":
        source = pictures(tmp_path)
    elif kind == "parquet":
        source = table("parquet", tmp_path / "table")
    tables.shipped.cache_clear()
    for name in (package, f"{package}.Image", f"{package}.parquet", f"{package}.datasets"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackageError, match=r"pip install 'tf-torch-parity\[data\]'"):
        opened(source, 1)


def test_a_source_may_be_named_where_nothing_else_must_be_said() -> None:
    schema = json.loads(json_schema())
    for source in ("digits", {"kind": "digits"}, {"kind": "synthetic", "shape": [3]}):
        jsonschema.validate({**TINY, "data": {"source": source}}, schema)
    for wrong in ("imagenet", {"kind": "synthetic"}, {"kind": "digits", "depth": 1}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**TINY, "data": {"source": wrong}}, schema)
    spec = override(tiny_spec(), ["data.source=iris"])
    assert spec.data.source.kind == "iris" and TrainSpec.parse(spec.to_dict()) == spec
