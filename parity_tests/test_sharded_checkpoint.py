"""States that ranks write in parts: each element once, put together bit for bit, and no part goes missing unseen."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from parity.common.base.errors import CheckpointError
from parity.common.checkpoint.shards import (
    SHAPES,
    Box,
    Piece,
    Shard,
    ShardedState,
    boxes_of_run,
    gather,
    shard_file,
    share_out,
    write_shard,
    write_tensors,
)
from parity.common.record.files import read_json
from parity.common.spec import Placement
from parity.common.state.canonical import load_state
from parity_tests.helpers.matrix import small
from parity_tests.helpers.run_cache import RunCache

RUNS = st.lists(st.integers(1, 5), max_size=4).flatmap(
    lambda shape: st.tuples(st.just(tuple(shape)), st.integers(0, math.prod(shape))).flatmap(
        lambda of: st.tuples(st.just(of[0]), st.just(of[1]), st.integers(0, math.prod(of[0]) - of[1]))
    )
)


@given(RUNS)
def test_a_run_of_elements_is_its_boxes_in_order(run):
    shape, first, count = run
    numbers = np.arange(math.prod(shape)).reshape(shape)
    boxes = boxes_of_run(shape, first, count)
    found = [number for box in boxes for number in numbers[box.place].reshape(-1).tolist()]
    assert found == list(range(first, first + count)) and all(box.size for box in boxes)
    assert len(boxes) <= max(1, 2 * len(shape) - 1)


@given(st.permutations(range(3)), st.tuples(*[st.integers(0, 2)] * 3), st.tuples(*[st.integers(1, 3)] * 3))
def test_box_of_a_transposed_tensor(axes, start, shape):
    tensor, box = np.arange(125).reshape(5, 5, 5), Box(start, shape)
    moved = tensor.transpose(axes)[box.transposed(axes).place]
    assert np.array_equal(moved, tensor[box.place].transpose(axes))


def test_each_block_is_written_once_by_one_that_holds_it():
    halves = [Box((0, 0), (2, 3)), Box((2, 0), (2, 3))]
    common = [("buffers/a", Box((0,), (9,))), *((f"parameters/{n}", Box((0,), (6,))) for n in range(6))]
    held = [[("parameters/w", half), *common] for half in halves]
    shares = share_out(held, ["buffers/a"])
    assert not shares[0] & shares[1] and shares[0] | shares[1] == {block for of in held for block in of}
    assert all(share <= set(of) for share, of in zip(shares, held, strict=True))
    # The first one's buffers count, and the rest evens that out: of 57 elements either has about half.
    assert ("buffers/a", Box((0,), (9,))) in shares[0]
    assert [sum(box.size for _, box in share) for share in shares] == [27, 30]


def test_tensors_are_written_as_anyone_reads_them(tmp_path):
    numbers = np.random.default_rng(0)
    tensors = {
        "transposed": numbers.random((3, 5)).astype(np.float32).T,
        "step": np.array(3, np.int64),
        "mask": np.array([True, False, True]),
        "half": numbers.random(7).astype(np.float16),
    }
    size, digest = write_tensors(tmp_path / "file", tensors, {"about": "é"})
    data = (tmp_path / "file").read_bytes()
    assert (size, digest) == (len(data), hashlib.sha256(data).hexdigest())
    for read in (load_file(tmp_path / "file"), load_state(tmp_path / "file", mapped=True)):
        assert read.keys() == tensors.keys()
        for name, value in tensors.items():
            assert read[name].dtype == value.dtype and np.array_equal(read[name], value), name


# A state of two tensors over three ranks, the second cut along both axes.
WHOLE = {
    "parameters/a": np.arange(7, dtype=np.float32),
    "parameters/b": np.arange(12, dtype=np.float64).reshape(3, 4),
}
CUT = [
    [("parameters/a", Box((0,), (3,))), ("parameters/b", Box((0, 0), (2, 2)))],
    [("parameters/a", Box((3,), (4,))), ("parameters/b", Box((0, 2), (2, 2)))],
    [("parameters/b", Box((2, 0), (1, 4)))],
]


def write(folder: Path, cut: list[list[tuple[str, Box]]] = CUT) -> list[str]:
    for rank, held in enumerate(cut):
        pieces = [Piece(name, WHOLE[name].shape, box.start, WHOLE[name][box.place]) for name, box in held]
        write_shard(folder, Shard(rank, len(cut), pieces))
    return list(gather(folder, map(shard_file, range(len(cut))), 0.0))


def test_state_is_put_together_from_its_shards(tmp_path):
    names = write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == names == [shard_file(n) for n in range(3)]
    state = ShardedState(tmp_path, names)
    assert state.keys() == WHOLE.keys() and len(state) == 2
    for name, value in WHOLE.items():
        assert state[name].tobytes() == value.tobytes() and state[name].dtype == value.dtype
        outline = state.outlines()[name]
        assert outline.shape == value.shape and outline.dtype == value.dtype and not any(outline.strides)


def test_gathering_says_what_each_file_is(tmp_path):
    write_shard(tmp_path, Shard(0, 1, [Piece("step", (), (), np.array(4, np.int64))]))
    data = (tmp_path / shard_file(0)).read_bytes()
    assert gather(tmp_path, [shard_file(0)], 0.0) == {
        shard_file(0): (len(data), hashlib.sha256(data).hexdigest())
    }


def test_rank_that_does_not_write_is_named(tmp_path):
    write_shard(tmp_path, Shard(1, 3, []))
    with pytest.raises(
        CheckpointError, match=r"^waited 0.02 s for shard_00000.safetensors and 1 more of 3"
    ) as e:
        gather(tmp_path, map(shard_file, range(3)), 0.02)
    assert "\n" not in str(e.value)


def hidden(path: Path) -> None:
    """A shard that says it is of another state: its tensors by another name."""
    save_file({"parameters/c@0": np.zeros(2)}, path, {SHAPES: json.dumps({"parameters/a": [2]})})


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: folder.joinpath(shard_file(1)).unlink(), r"shard_00001.*missing"),
        (
            lambda folder: folder.joinpath(shard_file(1)).write_bytes(b"\x08" + bytes(11)),
            r"shard_00001.*not a whole safetensors file",
        ),
        (lambda folder: hidden(folder / shard_file(1)), r"'parameters/c@0' is no block of a tensor"),
        (
            lambda folder: save_file({"parameters/a@0": np.zeros(2)}, folder / shard_file(1)),
            r"shard_00001.*gives no shapes",
        ),
        (
            lambda folder: save_file({}, folder / shard_file(1), {SHAPES: '{"parameters/a": [-7]}'}),
            r"'parameters/a' a shape that is none",
        ),
        (
            lambda folder: save_file(
                {"parameters/a@4": np.zeros(4, np.float32)},
                folder / shard_file(1),
                {SHAPES: '{"parameters/a": [7]}'},
            ),
            r"'parameters/a@4' of shape \(4,\) goes beyond \(7,\)",
        ),
        (
            lambda folder: save_file(
                {"parameters/a@3": np.zeros(4)}, folder / shard_file(1), {SHAPES: '{"parameters/a": [7]}'}
            ),
            r"'parameters/a' is of another shape or type",
        ),
    ],
    ids=["missing", "cut", "foreign name", "no shapes", "no shape", "beyond", "other type"],
)
def test_shard_that_does_not_fit_is_named(tmp_path, spoil: Callable[[Path], object], said):
    names = write(tmp_path)
    ShardedState(tmp_path, names)
    spoil(tmp_path)
    with pytest.raises(CheckpointError, match=said) as error:
        ShardedState(tmp_path, names)
    assert "\n" not in str(error.value)


def test_elements_that_no_shard_or_two_hold_are_seen(tmp_path):
    names = write(tmp_path)
    with pytest.raises(CheckpointError, match=r"'parameters/b': its shards hold 8 of 12 elements; one is"):
        ShardedState(tmp_path, names[:2])
    twice = [[*CUT[0]], [*CUT[1], ("parameters/b", Box((1, 0), (1, 4)))], []]
    names = write(tmp_path / "twice", twice)
    with pytest.raises(CheckpointError, match=r"'parameters/b': two of its shards hold the same elements"):
        ShardedState(tmp_path / "twice", names)


ADAMW = "{kind: adamw, learning_rate: 0.003, ema: {decay: 0.9}}"
# Rows, rows within each of two copies, runs of elements that cut rows, columns, slots of fewer axes, whole copies.
WAYS = [
    ("torch:fsdp2:4", "digits_cnn", ADAMW),
    (
        "torch:fsdp2:4,shard_group=2,wrap=blocks",
        "digits_transformer",
        "{kind: adafactor, learning_rate: 0.003}",
    ),
    ("torch:fsdp1:3", "digits_cnn", ADAMW),
    ("torch:tensor_parallel:2,ranks=2", "digits_transformer", ADAMW),
    ("torch:deepspeed:2,stage=3", "digits_mlp", "{kind: adamw, learning_rate: 0.003}"),
    ("torch:ddp:2", "digits_mlp", ADAMW),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "recipe", "optimizer"), WAYS, ids=[text for text, *_ in WAYS])
def test_what_ranks_write_is_what_is_gathered(run_cache: RunCache, text: str, recipe: str, optimizer: str):
    placement = Placement.from_text(text)
    if placement.strategy == "deepspeed":
        pytest.importorskip("deepspeed")
    precision = "float32" if placement.strategy == "deepspeed" else "float64"
    spec = small(recipe, "steps=3", f"optimizer={optimizer}", f"precision={precision}")
    run = run_cache.begin(spec, placement, "parity_tests.bodies.sharded:writing_shards").result()
    gathered, files = load_state(run / "final.safetensors"), read_json(run / "shards" / "files.json")
    assert len(files) == placement.processes
    held = ShardedState(run / "shards", files)
    assert held.keys() == gathered.keys()
    for name, value in gathered.items():
        assert held[name].dtype == value.dtype and held[name].shape == value.shape, name
        assert held[name].tobytes() == value.tobytes(), name
    # Nothing twice, and all ranks about as much: at least half of an even share.
    sizes = [size for size, _ in files.values()]
    assert min(sizes) > sum(value.nbytes for value in gathered.values()) / len(sizes) / 2
