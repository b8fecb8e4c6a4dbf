"""What no setting of a layer shows: structural causes are named, confirmed on the live models, and nothing else is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.diagnosis.result import Diagnosis
from parity.common.external.lint.lint import lint
from parity.common.external.mapping.models import map_models
from parity.common.external.pairs.diagnose import diagnose_pair
from parity.common.external.pairs.dropout import give_masks, settle_randomness
from parity.common.external.pairs.pair import both
from parity.common.external.pairs.points import known_layers
from parity.common.external.pairs.request import SampleFile
from parity.common.external.pairs.setup import bench_of, copy_weights, open_pair
from parity.common.external.process.worker import ExternalWorker
from parity.common.spec.external.target import Target
from parity_tests.helpers.pairs import pair_request

MODELS = "parity_tests.external_models"
# What each model is given.
DATA = (
    dict.fromkeys(("images", "drops", "grouped"), "images")
    | dict.fromkeys(("attention", "masked", "attends", "sequence", "heads", "formulas"), "texts")
    | dict.fromkeys(("steps", "dropping_steps", "last_steps", "step_dropout"), "texts")
    | dict.fromkeys(("modulated", "encoded", "states", "lstm_states"), "texts")
    | dict.fromkeys(("tokens", "padded"), "tokens")
    | {"strided": "images", "gained": "both"}
)


class Ports:
    """One process of each framework, which hold one pair after the other."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        random = np.random.default_rng(3)
        labels = random.integers(0, 3, 16)
        texts = random.normal(size=(16, 7, 6))
        texts[np.arange(7) >= random.integers(2, 7, 16)[:, None]] = 0.0
        np.savez(folder / "tokens.npz", x=random.integers(0, 10, (16, 7)), y=labels)
        np.savez(folder / "rows.npz", x=random.normal(size=(16, 6)), y=labels)
        np.savez(folder / "texts.npz", x=texts, y=labels)
        rows = random.normal(size=(16, 6))
        np.savez(folder / "both.npz", x=rows, z=random.normal(size=(16, 5)), y=labels)
        np.savez(folder / "images.npz", x=random.normal(size=(16, 8, 8, 3)), y=labels)
        self._folder, self._stack = folder, stack
        self._workers: tuple[ExternalWorker, ExternalWorker] | None = None

    def diagnosed(self, keras: str, torch: str, wrong: str | None) -> Diagnosis:
        arguments = {} if wrong is None else {"wrong": wrong}
        asked = pair_request(
            Target.of(f"{MODELS}.structure_keras:{keras}"),
            Target.of(f"{MODELS}.structure_torch:{torch}", arguments),
            SampleFile.of(self._folder / f"{DATA.get(keras, 'rows')}.npz", (), None),
            steps=1,
            global_batch=16,
        )
        if self._workers is None:
            self._workers = self._stack.enter_context(both(asked))
        else:
            for worker, target in zip(self._workers, (asked.keras, asked.torch), strict=True):
                worker.hold(target)
        opened = open_pair(asked, *self._workers)
        settle_randomness(asked, opened)
        mapping = map_models(opened, None)
        copy_weights(asked, opened, mapping)
        give_masks(asked, opened)
        bench = bench_of(asked, opened, mapping)
        return diagnose_pair(bench, lint(*opened.outlines, known_layers(*opened.outlines, mapping)))


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with ExitStack() as stack:
        yield Ports(tmp_path_factory.mktemp("structure"), stack)


# Keras's model and torch's; what the port does otherwise; of each finding its place and cause.
WRONG = [
    ("towers", "Towers", "difference", [("forward/mixed", "structure:sub exchanged")]),
    ("towers", "Towers", "order", [("forward/mixed", "structure:cat order (1, 0, 2)")]),
    ("towers", "Towers", "softmax", [("forward/output", "structure:softmax absent")]),
    (
        "towers",
        "Towers",
        "difference, order",
        [("forward/mixed", "structure:cat order (1, 0, 2)"), ("forward/mixed", "structure:sub exchanged")],
    ),
    ("attention", "Attention", "inverted", [("forward/head", "structure:masked_fill inverted")]),
    ("attention", "Attention", "axis", [("forward/head", "setting:axis")]),
    ("images", "Images", "corners", [("forward/merged", "structure:interpolate bilinear False")]),
    ("images", "Images", "pad", [("forward/padded", "setting:padding")]),
    ("images", "Images", "crop", [("forward/cropped", "structure:getitem other end")]),
    (
        "images",
        "Images",
        "corners, crop",
        [
            ("forward/merged", "structure:interpolate bilinear False"),
            ("forward/cropped", "structure:getitem other end"),
        ],
    ),
    ("masked", "Masked", "missing", [("forward/head", "structure:gru unmasked")]),
    ("block", "Block", "halves", [("forward/second", "structure:chunk reverse")]),
    ("block", "Block", "residual", [("forward/head", "structure:add operand 1 from 6")]),
    ("rolled", "Rolled", "place", [("forward/head", "structure:relu in place")]),
    # Without the function the sum would agree, and what the second layer is given would not.
    ("rolled", "Rolled", "behind", [("forward/head", "structure:stack operand 2 from 4")]),
    ("rolled", "Rolled", "back", [("forward/head", "structure:roll back")]),
    (
        "rolled",
        "Rolled",
        "place, back",
        [("forward/head", "structure:relu in place"), ("forward/head", "structure:roll back")],
    ),
    ("ordered", "Ordered", "0", [("forward/norm0", "structure:layer_norm moved before tanh")]),
    ("ordered", "Ordered", "1, function", [("forward/norm1", "structure:layer_norm moved before tanh")]),
    ("reordered", "Ordered", "0", [("forward/norm1", "structure:layer_norm moved behind")]),
    ("drops", "Drops", "elements", [("forward/channels", "structure:dropout whole channels")]),
    ("drops", "Drops", "rate", [("forward/elements", "structure:dropout rate 0.2")]),
    ("drops", "Drops", "share", [("forward/head", "setting:rate")]),
    ("drops", "Drops", "missing", [("forward/head", "structure:last absent")]),
    ("drops", "Drops", "more", [("forward/output", "structure:dropout absent")]),
    ("drops", "Drops", "before", [("forward/head", "structure:sigmoid dropout behind")]),
    (
        "drops",
        "Drops",
        "far",
        [("forward/head", "structure:dropout absent"), ("forward/head", "structure:last absent")],
    ),
    ("drops", "Drops", "never", [("forward/head", "structure:dropout by mode")]),
    ("drops", "Drops", "always", [("evaluation/head", "structure:dropout by mode")]),
    ("drops", "Drops", "unknown", [("evaluation/head", "structure:dropout by mode")]),
    ("attends", "Attends", "sum", [("forward/norm", "structure:dropout before add 2")]),
    ("AlwaysDrops", "AlwaysDrops", "training", [("evaluation/head", "structure:dropout always")]),
    ("sequence", "Sequence", "ends", [("forward/mixed", "structure:getitem both ends")]),
    ("sequence", "Sequence", "mean", [("forward/head", "structure:mean axes (1,) kept")]),
    (
        "sequence",
        "Sequence",
        "ends, sine",
        [
            ("forward/mixed", "structure:getitem both ends"),
            ("forward/mixed", "structure:sin absent"),
        ],
    ),
    ("formulas", "Formulas", "divisor", [("forward/right", "structure:std other divisor")]),
    ("formulas", "Formulas", "number", [("forward/right", "structure:add constant operand 2")]),
    ("formulas", "Formulas", "weights", [("forward/head", "structure:linear weights of right")]),
    ("formulas", "Formulas", "equation", [("forward/head", "structure:einsum equation bij,bjd->bid")]),
    ("formulas", "Formulas", "root", [("forward/head", "structure:div root")]),
    ("grouped", "Grouped", "largest", [("forward/head", "structure:amax mean")]),
    ("heads", "Heads", "view", [("forward/joined", "structure:view heads")]),
    ("frozen_norms", "Norms", "frozen", [("forward/norm0", "batch_norm_mode")]),
    ("norms", "Norms", "eval", [("forward/norm0", "batch_norm_mode")]),
    (
        "frozen_norms",
        "Norms",
        "",
        [("forward/norm0", "batch_norm_mode"), ("gradient/norm0/gamma", "frozen")],
    ),
    ("tokens", "Tokens", "padding", [("gradient/embedded/embeddings", "setting:padding_id")]),
    (
        "tokens",
        "Tokens",
        "row",
        [("gradient/embedded/embeddings", "structure:embedding gradient of padding")],
    ),
    ("tokens", "Tokens", "stopped", [("gradient/embedded/embeddings", "structure:detach gradient through")]),
    ("tokens", "Tokens", "half", [("gradient/embedded/embeddings", "structure:detach gradient through")]),
    ("padded", "Tokens", "", [("forward/head", "structure:mean masked 0")]),
    (
        "tokens",
        "Tokens",
        "largest, padding",
        [("forward/head", "structure:amax mean"), ("gradient/embedded/embeddings", "setting:padding_id")],
    ),
    ("steps", "Steps", "last", [("forward/mixed", "structure:getitem other end")]),
    ("steps", "Steps", "state", [("forward/mixed", "structure:gru first step")]),
    ("steps", "Steps", "max", [("forward/head", "structure:max axes (1,) kept")]),
    (
        "dropping_steps",
        "Steps",
        "last",
        [("forward/mixed", "setting:input_dropout"), ("forward/mixed", "setting:recurrent_dropout")],
    ),
    ("step_dropout", "MaskedSteps", "rate", [("forward/mixed", "structure:dropout rate 0.3")]),
    ("last_steps", "LastSteps", "state", [("forward/mixed", "structure:gru last step")]),
    ("last_steps", "LastSteps", "step", [("forward/mixed", "structure:getitem other end of axis 1")]),
    ("tokens", "Tokens", "norm", [("before/parameters/embedded/embeddings", "setting:max_norm")]),
    ("plain", "Plain", "clamped", [("before/parameters/first/kernel", "weights_written")]),
    ("plain", "Plain", "frozen", [("gradient/first/bias", "frozen")]),
    ("still", "Plain", "", [("gradient/first/kernel", "frozen")]),
    ("scaled", "Plain", None, [("forward/first", "missing_layer")]),
    ("penalized", "Plain", None, [("penalty", "penalty")]),
    ("constrained", "Plain", None, [("update/first/kernel", "constraint")]),
    ("modulated", "Modulated", "scale", [("forward/second", "structure:mul 1 + operand 2")]),
    ("modulated", "Modulated", "shortcut", [("forward/third", "structure:add relu behind, of 1")]),
    ("modulated", "Modulated", "root", [("forward/mixed", "structure:add sqrt behind, of 1")]),
    ("modulated", "Modulated", "broadcast", [("forward/narrow", "structure:mul operand 2 along axis 1")]),
    ("modulated", "Modulated", "transpose", [("forward/narrow", "structure:linear transposed")]),
    ("modulated", "Modulated", "repeat", [("forward/wide", "structure:repeat each")]),
    ("modulated", "Modulated", "mean", [("forward/norm", "structure:layer_norm moved before mean")]),
    ("states", "States", "zeros", [("forward/head", "structure:gru operand 2 from 2")]),
    ("states", "States", "unit", [("forward/head", "structure:normalize axis 0")]),
    (
        "lstm_states",
        "LstmStates",
        "zeros",
        [
            ("forward/head", "structure:lstm operand 2 from 3"),
            ("update/first/lstm_cell/bias", "rule:two_biases"),
        ],
    ),
    ("encoded", "Encoded", "blocks", [("forward/second", "structure:cat by turns of 1, 2 to 3")]),
    ("encoded", "Encoded", "inclusive", [("forward/third", "structure:cumsum exclusive")]),
    ("encoded", "Encoded", "pairs", [("forward/fourth", "structure:view parts exchanged")]),
    ("encoded", "Encoded", "late", [("forward/fifth", "structure:getitem one before")]),
    ("encoded", "Encoded", "bins", [("forward/head", "structure:bucketize other side")]),
    ("moving", "Moving", "share", [("after/buffers/norm/moving_mean", "statistics:share")]),
    ("moving", "Moving", "average", [("after/buffers/norm/moving_mean", "statistics:average")]),
    # A gain of one hides that it divides.
    ("gained", "Gained", "quotient", [("forward/norm", "structure:div opposite")]),
    ("gained", "Gained", "bare", [("forward/head", "layer_not_called")]),
    # The activation that Keras's layer holds, and torch's does not, is none of it.
    ("gained", "Gained", "headless", [("forward/output", "layer_not_called")]),
    ("gained", "Gained", "input", [("forward/other", "input_not_read")]),
    (
        "strided",
        "Strided",
        "stride",
        [("forward/strided", "setting:strides"), ("forward/strided", "setting:padding")],
    ),
    ("strided", "Strided", "pad", [("forward/strided", "setting:padding")]),
]


# One of each kind of call.
USUAL = (
    "towers",
    "attention",
    "images",
    "masked",
    "block",
    "ordered",
    "drops",
    "sequence",
    "formulas",
    "tokens",
    "plain",
)


def cases(rows: list[tuple[Any, ...]]) -> list[Any]:
    """The first of each usual model by default, the others where tests that take minutes are run."""
    first = {row[0]: row for row in reversed(rows) if row[0] in USUAL}
    return [pytest.param(*row, marks=() if first.get(row[0]) is row else pytest.mark.slow) for row in rows]


@pytest.mark.parametrize(("keras", "torch", "wrong", "expected"), cases(WRONG))
def test_what_is_wired_otherwise_is_named(
    ports: Ports, keras: str, torch: str, wrong: str | None, expected: list[tuple[str, str]]
) -> None:
    found = ports.diagnosed(keras, torch, wrong)
    assert found.verdict == "divergent"
    named = [(f.name, f.explanation and f.explanation.cause) for f in found.findings]
    assert sorted(named) == sorted(expected)
    told = [f.explanation for f in found.findings if f.explanation]
    assert {why.confidence for why in told} == {"confirmed"}
    calls = [why.text for why in told if why.cause.startswith("structure:") and why.defect == "torch"]
    assert all(re.search(r"structure_torch.py:\d+\)", text) for text in calls), calls


@pytest.mark.parametrize(
    ("keras", "torch"),
    cases(
        [
            ("towers", "Towers"),
            ("attention", "Attention"),
            ("images", "Images"),
            ("masked", "Masked"),
            ("block", "Block"),
            ("ordered", "Ordered"),
            ("drops", "Drops"),
            ("attends", "Attends"),
            ("AlwaysDrops", "AlwaysDrops"),
            ("rolled", "Rolled"),
            ("sequence", "Sequence"),
            ("heads", "Heads"),
            ("formulas", "Formulas"),
            ("grouped", "Grouped"),
            ("plain", "Plain"),
            ("tokens", "Tokens"),
            ("steps", "Steps"),
            ("step_dropout", "MaskedSteps"),
            ("last_steps", "LastSteps"),
            ("moving", "Moving"),
            ("modulated", "Modulated"),
            ("encoded", "Encoded"),
            ("states", "States"),
            ("lstm_states", "LstmStates"),
            ("gained", "Gained"),
            ("strided", "Strided"),
        ]
    ),
)
def test_a_faithful_port_has_no_finding(ports: Ports, keras: str, torch: str) -> None:
    found = ports.diagnosed(keras, torch, "")
    assert (found.verdict, found.findings) == ("parity", ()), found
    constants = [note for note in found.notes if "through float32" in note]
    assert bool(constants) == (keras in ("towers", "images", "attends")), found.notes


@pytest.mark.parametrize(
    ("keras", "torch", "wrong"),
    cases(
        [
            # The mean of all tokens in place of attention is no call made otherwise: it is another model.
            ("attention", "Attention", "mean"),
            # With what is tried for these there is still another function.
            ("sequence", "Sequence", "spread"),
            ("heads", "Heads", "view, sine"),
            ("frozen_norms", "Norms", "frozen, eval, wave"),
            ("tokens", "Tokens", "padding, half"),
            # The largest of all is no mean of some.
            ("padded", "Tokens", "largest"),
            # At each pass another share, and no average.
            ("moving", "Moving", "fading"),
        ]
    ),
)
def test_what_no_single_cause_explains_is_not_explained(
    ports: Ports, keras: str, torch: str, wrong: str
) -> None:
    (finding,) = ports.diagnosed(keras, torch, wrong).findings
    assert finding.explanation is None
    assert finding.stage != "forward" or all(
        re.match(r"structure_torch.py:\d+$", line) for line in finding.code
    )
    assert bool(finding.code) == (finding.stage == "forward")
