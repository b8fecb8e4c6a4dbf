"""What no setting of a layer shows: structural causes are named, confirmed on the live models, and nothing else is."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.diagnosis import limits
from parity.common.diagnosis.result import Diagnosis
from parity.common.external.mapping.models import map_models
from parity.common.external.pairs import diagnose
from parity.common.external.pairs.computations import arrangements
from parity.common.external.pairs.diagnose import diagnose_pair
from parity.common.external.pairs.dropout import give_masks, settle_randomness
from parity.common.external.pairs.own_tables import own_tables
from parity.common.external.pairs.pair import both
from parity.common.external.pairs.request import SampleFile
from parity.common.external.pairs.setup import bench_of, copy_weights, open_pair
from parity.common.external.pairs.structure import structural_causes
from parity.common.external.pairs.suspects import suspects_of
from parity.common.external.process.worker import ExternalWorker
from parity.common.spec.external.target import Target
from parity_tests.helpers.pairs import pair_request

MODELS = "parity_tests.external_models"
# What each model is given.
DATA = (
    dict.fromkeys(("images", "drops", "grouped", "packed", "resized"), "images")
    | dict.fromkeys(
        ("attention", "batched", "masked", "attends", "hidden", "sequence", "heads", "formulas"), "texts"
    )
    | dict.fromkeys(("steps", "dropping_steps", "last_steps", "step_dropout"), "texts")
    | dict.fromkeys(("modulated", "encoded", "scored", "states", "lstm_states", "pooled", "twins"), "texts")
    | dict.fromkeys(("tokens", "padded", "clocked"), "tokens")
    | {"strided": "images", "windowed": "images", "gained": "both"}
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
        give_masks(asked, opened, mapping)
        bench = bench_of(asked, opened, mapping)
        bench.tables = tuple(own_tables(bench))
        return diagnose_pair(bench, suspects_of(opened.outlines, mapping))


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ports]:
    with ExitStack() as stack:
        yield Ports(tmp_path_factory.mktemp("structure"), stack)


# Keras's model and torch's; what the port does otherwise; of each finding its place, its cause and what its text says.
WRONG = [
    (
        "towers",
        "Towers",
        "difference",
        [("forward/mixed", "operation:order", "right - left where Keras computes left - right")],
    ),
    ("towers", "Towers", "order", [("forward/mixed", "operation:order", "concat(right, left, apart,")]),
    (
        "towers",
        "Towers",
        "softmax",
        [("forward/output", "operation:too_much", "softmax(head, axis=-1) where Keras goes on with head")],
    ),
    (
        "towers",
        "Towers",
        "difference, order",
        # One exchange does what both do.
        [
            (
                "forward/mixed",
                "operation:order",
                "what Keras computes is `(F.gelu(self.right(x)), F.relu(self.left(x)))`",
            )
        ],
    ),
    (
        "attention",
        "Attention",
        "inverted",
        [("forward/head", "operation:left_out", "where Keras computes not(")],
    ),
    # What is cleared at padding decides nothing, as Keras makes nothing of it.
    (
        "attention",
        "Attention",
        "cleared, after",
        [
            ("forward/head", "operation:left_out", "where(not(any(ne(the input x, 0), axis=(-1,))), -1e+09"),
            # Of what is hidden then; only likely.
            ("forward/head", "operation:too_much", "norm * any(ne(the input x, 0)"),
        ],
    ),
    ("attention", "Attention", "axis", [("forward/head", "setting:axis", "is 1 in Keras and 0 in torch")]),
    (
        "batched",
        "Batched",
        "scale",
        [("forward/head", "operation:number", "torch has 0.5 where Keras has 0.353553")],
    ),
    (
        "images",
        "Images",
        "corners",
        [
            (
                "forward/merged",
                "operation:argument",
                "align_corners=False)",
            )
        ],
    ),
    (
        "images",
        "Images",
        "pad",
        [("forward/padded", "setting:padding", "(1, 0, 1, 0) in Keras and (0, 1, 0, 1)")],
    ),
    (
        "images",
        "Images",
        "crop",
        [
            (
                "forward/cropped",
                "operation:part",
                "padded[:, :, 2:, 2:] where Keras computes padded[:, :, :-2, :-2]",
            )
        ],
    ),
    (
        "images",
        "Images",
        "corners, crop",
        [
            ("forward/merged", "operation:argument", "align_corners=True"),
            ("forward/cropped", "operation:part", "padded[:, :, 2:, 2:]"),
        ],
    ),
    (
        "masked",
        "Masked",
        "missing",
        [("forward/head", "operation:left_out", "gru(the input x, any(ne(the input x, 0)")],
    ),
    ("block", "Block", "halves", [("forward/second", "operation:order", "part=1)) + split(")]),
    ("block", "Block", "residual", [("forward/head", "operation:operand", "norm where Keras takes first")]),
    (
        "rolled",
        "Rolled",
        "place",
        [("forward/head", "operation:operand", "function where Keras takes first")],
    ),
    # Without the function the sum would agree, and what the second layer is given would not.
    (
        "rolled",
        "Rolled",
        "behind",
        [
            (
                "forward/head",
                "operation:operand",
                "torch.stack([self.second(h), y]).sum(0)",
            )
        ],
    ),
    ("rolled", "Rolled", "back", [("forward/head", "operation:argument", "by=(-3,)")]),
    (
        "rolled",
        "Rolled",
        "place, back",
        [
            ("forward/head", "operation:operand", "function where Keras takes first"),
            ("forward/head", "operation:argument", "by=(-3,)"),
        ],
    ),
    (
        "ordered",
        "Ordered",
        "0",
        [("forward/norm0", "operation:sequence", "what Keras computes is `function(norm(x))`")],
    ),
    (
        "ordered",
        "Ordered",
        "1, function",
        [("forward/norm1", "operation:sequence", "what Keras computes is `function(norm(x))`")],
    ),
    (
        "reordered",
        "Ordered",
        "0",
        [("forward/norm1", "operation:sequence", "what Keras computes is `norm(function(x))`")],
    ),
    (
        "drops",
        "Drops",
        "elements",
        [("forward/channels", "operation:operand", "where Keras takes a mask of whole channels")],
    ),
    (
        "drops",
        "Drops",
        "rate",
        [
            (
                "forward/elements",
                "operation:operand",
                "a share of 0.3 where Keras takes a mask that drops a share of 0.2",
            )
        ],
    ),
    ("drops", "Drops", "share", [("forward/head", "setting:rate", "0.4 in Keras and 0.6 in torch")]),
    (
        "drops",
        "Drops",
        "missing",
        [("forward/head", "operation:left_out", "where Keras computes bent * a mask")],
    ),
    ("drops", "Drops", "more", [("forward/output", "operation:too_much", "head * a mask")]),
    (
        "drops",
        "Drops",
        "before",
        [("forward/head", "operation:sequence", "`F.dropout(torch.sigmoid(y), share, self.training)`")],
    ),
    (
        "drops",
        "Drops",
        "far",
        [("forward/head", "operation:sequence", "/ 2) * 2) where Keras computes sigmoid(middle) * a mask")],
    ),
    (
        "drops",
        "Drops",
        "never",
        [("forward/head", "operation:left_out", "where Keras computes bent * a mask")],
    ),
    ("drops", "Drops", "always", [("evaluation/head", "operation:too_much", "bent * a mask")]),
    ("drops", "Drops", "unknown", [("evaluation/head", "operation:too_much", "bent * a mask")]),
    (
        "attends",
        "Attends",
        "sum",
        [("forward/norm", "operation:sequence", "`x + F.dropout(y, 0.2, self.training)`")],
    ),
    (
        "AlwaysDrops",
        "AlwaysDrops",
        "training",
        [("evaluation/head", "operation:left_out", "dropout left on in Keras's evaluation")],
    ),
    (
        "sequence",
        "Sequence",
        "ends",
        [
            (
                "forward/mixed",
                "operation:part",
                "gru(the input x)[:, -1] where Keras computes the last states of gru",
            )
        ],
    ),
    (
        "sequence",
        "Sequence",
        "mean",
        [
            (
                "forward/head",
                "operation:argument",
                "mean(mixed) over 80 numbers where Keras computes mean(mixed, axis=(1,)) over 5 numbers",
            )
        ],
    ),
    (
        "sequence",
        "Sequence",
        "ends, sine",
        [("forward/mixed", "operation:other", "sin(gru(the input x)[:, -1])")],
    ),
    (
        "sequence",
        "Sequence",
        "spread",
        [
            (
                "forward/head",
                "operation:operation",
                "std(mixed, axis=(1,), correction=1) where Keras computes mean(",
            )
        ],
    ),
    (
        "formulas",
        "Formulas",
        "divisor",
        [("forward/right", "operation:argument", "std(the input x, axis=(1,), correction=1)")],
    ),
    (
        "formulas",
        "Formulas",
        "number",
        [("forward/right", "operation:number", "0.25 where Keras has 0.1")],
    ),
    ("formulas", "Formulas", "weights", [("forward/head", "weights_not_used", "never calls right")]),
    (
        "formulas",
        "Formulas",
        "equation",
        [("forward/head", "operation:arrangement", "as abc of abc,acd->abd")],
    ),
    ("formulas", "Formulas", "root", [("forward/head", "operation:left_out", "where Keras computes sqrt(")]),
    ("grouped", "Grouped", "largest", [("forward/head", "operation:operation", "max(grouped")]),
    (
        "packed",
        "Packed",
        "unshuffled",
        [("forward/norm", "operation:arrangement", "stem, then pixel_unshuffle to 16x16x4x4 where Keras")],
    ),
    ("heads", "Heads", "view", [("forward/joined", "operation:arrangement", "query, then view to 16x2x7x4")]),
    ("heads", "Heads", "view, sine", [("forward/joined", "operation:other", "sin((query @ key) / 2)")]),
    (
        "frozen_norms",
        "Norms",
        "frozen",
        [("forward/norm0", "batch_norm_mode", "being frozen, keeps its moving statistics")],
    ),
    (
        "frozen_norms",
        "Norms",
        "frozen, eval, wave",
        [("forward/norm0", "operation:too_much", "special_i0e(dense0) where Keras goes on with dense0")],
    ),
    ("norms", "Norms", "eval", [("forward/norm0", "batch_norm_mode", "as in eval()")]),
    *(
        (
            "twins",
            "Twins",
            wrong,
            [
                ("forward/head", cause, text),
                ("after/buffers/norm/moving_variance", "setting:running_variance", "unbiased in torch"),
            ],
        )
        for wrong, cause, text in (
            ("joined", "batch_norm_joined", "once in training with 2 inputs joined"),
            ("kept", "operation:kept", "another condition"),
            ("floor", "operation:left_out", ") + 0.5"),
        )
    ),
    (
        "norms",
        "Norms",
        "missing",
        [
            ("forward/head", "operation:left_out", "torch goes on with dense1 where Keras computes"),
            ("update/norm1/gamma", "rule:constant", "one side alone has this tensor"),
            ("after/buffers/norm0/moving_variance", "setting:running_variance", "unbiased in torch"),
        ],
    ),
    (
        "frozen_norms",
        "Norms",
        "",
        [
            ("forward/norm0", "batch_norm_mode", "being frozen, keeps its moving statistics"),
            ("gradient/norm0/gamma", "frozen", "frozen in Keras and trained in torch"),
        ],
    ),
    (
        "tokens",
        "Tokens",
        "padding",
        [("gradient/embedded/embeddings", "setting:padding_id", "None in Keras and 0 in torch")],
    ),
    (
        "tokens",
        "Tokens",
        "row",
        [("gradient/embedded/embeddings", "gradient:of padding", "leaves out the gradient of row 0")],
    ),
    ("tokens", "Tokens", "stopped", [("gradient/embedded/embeddings", "gradient:through", "torch's detach")]),
    *(
        (
            "forked",
            "Forked",
            wrong,
            [("gradient/shared/bias", "gradient:stopped", "of its input through, and")],
        )
        for wrong in ("through", "viewed")
    ),
    ("tokens", "Tokens", "data", [("gradient/embedded/embeddings", "gradient:through", "torch's .data")]),
    ("tokens", "Tokens", "half", [("gradient/embedded/embeddings", "gradient:through", "torch's detach")]),
    (
        "attention",
        "Attention",
        "mean, stopped",
        [
            ("forward/head", "operation:other", "mean(norm, axis=(1,)) where Keras computes norm @ weights"),
            ("gradient/embedded/bias", "gradient:through", "torch's detach"),
        ],
    ),
    (
        "attention",
        "Attention",
        "mean",
        [("forward/head", "operation:other", "mean(norm, axis=(1,)) where Keras computes norm @ weights")],
    ),
    (
        "padded",
        "Tokens",
        "",
        [
            (
                "forward/head",
                "operation:mask",
                "mean(first, axis=(1,)) where Keras computes sum(first * ne(the input x, 0)",
            )
        ],
    ),
    (
        "padded",
        "Tokens",
        "largest",
        [
            (
                "forward/head",
                "operation:other",
                "max(first, axis=(1,)) where Keras computes sum(first * ne(the input x, 0)",
            )
        ],
    ),
    # Behind an operation that is replaced, a layer's gradients are compared by themselves.
    (
        "tokens",
        "Tokens",
        "largest, padding",
        [
            ("forward/head", "operation:operation", "max(first"),
            ("gradient/embedded/embeddings", "setting:padding_id", "None in Keras and 0 in torch"),
        ],
    ),
    (
        "steps",
        "Steps",
        "last",
        [("forward/mixed", "operation:operand", "gru[:, -1] where Keras takes gru[:, 0]")],
    ),
    (
        "steps",
        "Steps",
        "state",
        [("forward/mixed", "operation:operand", "where Keras takes gru[:, 0]")],
    ),
    (
        "steps",
        "Steps",
        "max",
        [
            (
                "forward/head",
                "operation:argument",
                "max(mixed) over 80 numbers where Keras computes max(mixed, axis=(1,)) over 5 numbers",
            )
        ],
    ),
    (
        "dropping_steps",
        "Steps",
        "last",
        [
            ("forward/mixed", "setting:input_dropout", "0.3 in Keras and 0 in torch"),
            ("forward/mixed", "setting:recurrent_dropout", "0.2 in Keras and 0 in torch"),
        ],
    ),
    (
        "step_dropout",
        "MaskedSteps",
        "rate",
        [
            (
                "forward/mixed",
                "operation:other",
                "a share of 0.5) where Keras computes gru(the input x, a mask that drops a share of 0.3",
            )
        ],
    ),
    (
        "last_steps",
        "LastSteps",
        "state",
        [("forward/mixed", "operation:part", "where Keras computes both[:, -1]")],
    ),
    (
        "last_steps",
        "LastSteps",
        "step",
        [("forward/mixed", "operation:number", "-1, 4:]")],
    ),
    (
        "tokens",
        "Tokens",
        "norm",
        [("before/parameters/embedded/embeddings", "setting:max_norm", "None in Keras and 0.01 in torch")],
    ),
    (
        "plain",
        "Plain",
        "clamped",
        [("before/parameters/first/kernel", "weights_written", "writes into first.weight")],
    ),
    ("plain", "Plain", "frozen", [("gradient/first/bias", "frozen", "frozen in torch and trained in Keras")]),
    ("still", "Plain", "", [("gradient/first/kernel", "frozen", "frozen in Keras and trained in torch")]),
    (
        "scaled",
        "Plain",
        None,
        [
            (
                "forward/first",
                "operation:left_out",
                "the input x where Keras computes (the input x * 0.3) + 0.1",
            )
        ],
    ),
    (
        "resized",
        "Resized",
        "kernel",
        [
            (
                "forward/mixed/before_activation",
                "operation:argument",
                "what Keras computes is `F.interpolate(self.first(x), (12, 12), mode='bicubic', antialias=True)`",
            )
        ],
    ),
    # Of two results of one operation each is put right by itself, and stays so.
    (
        "capped",
        "Capped",
        "whole",
        [("forward/first", "operation:left_out", "minimum(the input x, 0.5), and so for 1 more: second")],
    ),
    ("penalized", "Plain", None, [("penalty", "penalty", "kernel_regularizer of first is l2 0.1")]),
    ("constrained", "Plain", None, [("update/first/kernel", "constraint", "UnitNorm(axis=0)")]),
    (
        "modulated",
        "Modulated",
        "scale",
        [("forward/second", "operation:left_out", "scale where Keras computes 1 + scale")],
    ),
    (
        "modulated",
        "Modulated",
        "shortcut",
        [
            (
                "forward/third",
                "operation:sequence",
                "what Keras computes is `F.relu(y + x)`",
            )
        ],
    ),
    (
        "modulated",
        "Modulated",
        "root",
        [("forward/mixed", "operation:sequence", "what Keras computes is `(square + 0.5).sqrt()`")],
    ),
    (
        "modulated",
        "Modulated",
        "broadcast",
        [("forward/narrow", "operation:arrangement", "of shape 7) where")],
    ),
    (
        "modulated",
        "Modulated",
        "transpose",
        [("forward/narrow", "operation:arrangement", "then transpose to 16x7x7")],
    ),
    (
        "modulated",
        "Modulated",
        "repeat",
        [
            (
                "forward/wide",
                "operation:argument",
                "tile(narrow, times=(1, 1, 2)) where Keras computes tile(narrow, ",
            )
        ],
    ),
    (
        "modulated",
        "Modulated",
        "mean",
        [("forward/norm", "operation:sequence", "what Keras computes is `self.norm(y).mean(1)`")],
    ),
    (
        "states",
        "States",
        "zeros",
        [("forward/head", "operation:left_out", "gru(first:0) where Keras computes gru(first:0, first:1)")],
    ),
    ("states", "States", "unit", [("forward/head", "operation:argument", "`F.normalize(self.unit, dim=0)`")]),
    (
        "lstm_states",
        "LstmStates",
        "zeros",
        [
            ("forward/head", "operation:other", "where Keras computes lstm(first:0, first:1, first:2)"),
            ("update/first/lstm_cell/bias", "rule:two_biases", "their sum moves twice as fast"),
        ],
    ),
    (
        "encoded",
        "Encoded",
        "blocks",
        [("forward/second", "operation:arrangement", "stack(sin(first), cos(first), axis=-1)")],
    ),
    (
        "encoded",
        "Encoded",
        "inclusive",
        [("forward/third", "operation:left_out", "where Keras computes cumsum(second, axis=1) - second")],
    ),
    (
        "encoded",
        "Encoded",
        "pairs",
        [
            (
                "forward/fourth",
                "operation:arrangement",
                "third, then view to 16x7x4x2 where Keras computes third, then reshape to 16x7x2x4",
            )
        ],
    ),
    ("encoded", "Encoded", "late", [("forward/fifth", "operation:other", "- 1, axis=1)")]),
    (
        "encoded",
        "Encoded",
        "bins",
        [("forward/head", "operation:operand", "bins where Keras takes (1 + bins)")],
    ),
    (
        "moving",
        "Moving",
        "share",
        [("after/buffers/norm/moving_mean", "statistics:share", "0.99 of the way")],
    ),
    (
        "moving",
        "Moving",
        "average",
        [("after/buffers/norm/moving_mean", "statistics:average", "the average of all batches")],
    ),
    # A product with ones is what is multiplied, and yet no factor is left out.
    (
        "pooled",
        "Pooled",
        "axis",
        [
            (
                "forward/head",
                "operation:argument",
                "over 1 number where Keras computes softmax(pool/score) over 7",
            )
        ],
    ),
    # A table that the port makes otherwise is hidden by Keras's, which is copied.
    (
        "clocked",
        "Clocked",
        "turned",
        [("before/as built/clock/embeddings", "constant:table", "makes other numbers")],
    ),
    # What a pass assigns to a variable is read as what it is.
    (
        "standardized",
        "Standardized",
        "about",
        [("forward/norm", "operation:operand", "where Keras takes mean(the input x, axis=0)")],
    ),
    # A gain of one hides that it divides.
    (
        "gained",
        "Gained",
        "quotient",
        [("forward/norm", "operation:operation", "what Keras computes is `self.weight * inverse`")],
    ),
    ("gained", "Gained", "gain", [("forward/norm", "weights_not_used", "never uses norm.weight")]),
    # It is called, though with none of its weights.
    (
        "gained",
        "Gained",
        "gain, shift",
        [("forward/norm", "weights_not_used", "never uses norm.weight, norm.bias")],
    ),
    (
        "gained",
        "Gained",
        "bare",
        [("forward/head", "operation:left_out", "sum where Keras computes layer_norm(sum, epsilon=1e-05)")],
    ),
    # The activation that Keras's layer holds, and torch's does not, is none of it.
    ("gained", "Gained", "headless", [("forward/output", "weights_not_used", "never calls head")]),
    ("gained", "Gained", "input", [("forward/other", "operation:too_much", "ones_like(the input z)")]),
    (
        "strided",
        "Strided",
        "stride",
        [
            ("forward/strided", "setting:strides", "(2, 2) in Keras and (1, 1) in torch"),
            ("forward/strided", "setting:padding", "(0, 1, 0, 1) in Keras and (1, 1, 1, 1) in torch"),
        ],
    ),
    (
        "strided",
        "Strided",
        "pad",
        [("forward/strided", "setting:padding", "(0, 1, 0, 1) in Keras and (1, 0, 1, 0) in torch")],
    ),
    # As the picture is as wide as it has channels, its shapes do not tell.
    ("windowed", "Windowed", "turned", [("forward/outer", "operation:order", "what Keras computes is")]),
    (
        "scored",
        "Scored",
        "softmax",
        [("forward/read", "operation:left_out", "where Keras computes softmax(query @ key)")],
    ),
    (
        "scored",
        "Scored",
        "sum",
        [("forward/first", "operation:operation", "read + gate where Keras computes read * gate")],
    ),
    (
        "scored",
        "Scored",
        "whole",
        [("forward/second", "operation:left_out", "exp(first) where Keras computes sum(exp(first)")],
    ),
    (
        "scored",
        "Scored",
        "sign",
        [
            (
                "forward/third",
                "operation:order",
                "what Keras computes is `(y.abs().log1p(), y)`",
            )
        ],
    ),
    # Two in one formula, one by one.
    (
        "experts",
        "Experts",
        "early, bare",
        [
            (
                "forward/slopes/field/before_activation",
                "operation:left_out",
                "where Keras computes before + sum(",
            ),
            (
                "forward/slopes/field/before_activation",
                "operation:other",
                "torch computes softmax(before @ mixture/gate, axis=-1) where Keras computes sum(",
            ),
        ],
    ),
    # A call that is handed what another one was handed.
    (
        "experts",
        "Experts",
        "slope",
        [
            (
                "forward/slopes/field#2/before_activation",
                "operation:operand",
                "slopes/field where Keras takes slopes/field#1",
            )
        ],
    ),
    (
        "hidden",
        "Hidden",
        "inverted",
        [("forward/head", "operation:left_out", "where Keras computes not(any(ne(")],
    ),
    # Shared layers that take turns in another order.
    (
        "turns",
        "Turns",
        "turns",
        [("forward/a#1", "operation:operand", "(b in Keras) gives, and Keras from what a gives")],
    ),
]
# What the experiment explains with these weights, and not with others.
# Of "early, bare" the weights of a formula are told by their order alone.
LIKELY = {("Drops", "rate"), ("Experts", "early, bare")}


# One of each kind of layer; test_pair_differences.py has each kind of difference.
USUAL = ("towers", "images", "masked", "drops", "tokens", "plain")


def cases(rows: list[tuple[Any, ...]]) -> list[Any]:
    """The first of each usual model by default, the others where tests that take minutes are run."""
    first = {row[0]: row for row in reversed(rows) if row[0] in USUAL}
    return [pytest.param(*row, marks=() if first.get(row[0]) is row else pytest.mark.slow) for row in rows]


def test_repeats_of_the_whole_are_not_those_of_each_element() -> None:
    """(7, 4, 2) as (7, 8): each element twice, and only that where axes are joined in turn; the whole twice beside it."""
    numbers = np.arange(56).reshape(7, 4, 2)
    joined = [[array[0].tolist() for array in arrangements(numbers, (7, 8), turn)] for turn in (True, False)]
    assert joined[0] == [list(range(8))] and [0, 2, 4, 6, 1, 3, 5, 7] in joined[1]


@pytest.mark.sweep
@pytest.mark.parametrize(("keras", "torch", "wrong", "expected"), cases(WRONG))
def test_what_is_wired_otherwise_is_named(
    ports: Ports, keras: str, torch: str, wrong: str | None, expected: list[tuple[str, str, str]]
) -> None:
    found = ports.diagnosed(keras, torch, wrong)
    assert found.verdict == "divergent"
    told = [(f.name, f.explanation) for f in found.findings if f.explanation]
    assert len(told) == len(found.findings)
    assert sorted((name, why.cause) for name, why in told) == sorted(
        (name, cause) for name, cause, _ in expected
    )
    for name, cause, text in expected:
        assert any(text in why.text for at, why in told if (at, why.cause) == (name, cause)), (text, told)
    # Of several that one experiment shows together none is confirmed by itself, unless each was tried.
    together = [one for one in told if "each of these tried" not in one[1].evidence]
    at = Counter(name for name, why in together if why.cause.startswith("operation:"))
    for name, why in told:
        unsure = (torch, wrong) in LIKELY or (at[name] > 1 and why.cause.startswith("operation:"))
        assert why.confidence == ("likely" if unsure else "confirmed"), (name, why)
    structural = [why.text for _, why in told if why.cause.startswith("operation:")]
    assert all(
        re.match(
            r"structure_torch.py:\d+(, called in structure_torch.py:\d+)?(, with lines? [\d, to]+)?: ", text
        )
        for text in structural
    ), structural
    if wrong == "ends":
        assert any("torch.cat([h_n[-2], h_n[-1]], -1)" in why.fix for _, why in told), told


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("keras", "torch"),
    cases(
        [
            ("towers", "Towers"),
            ("forked", "Forked"),
            ("attention", "Attention"),
            ("batched", "Batched"),
            ("images", "Images"),
            ("masked", "Masked"),
            ("block", "Block"),
            ("ordered", "Ordered"),
            ("drops", "Drops"),
            ("attends", "Attends"),
            ("AlwaysDrops", "AlwaysDrops"),
            ("rolled", "Rolled"),
            ("standardized", "Standardized"),
            ("clocked", "Clocked"),
            ("pooled", "Pooled"),
            ("sequence", "Sequence"),
            ("heads", "Heads"),
            ("formulas", "Formulas"),
            ("grouped", "Grouped"),
            ("packed", "Packed"),
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
            ("windowed", "Windowed"),
            ("scored", "Scored"),
            ("experts", "Experts"),
            ("hidden", "Hidden"),
            ("resized", "Resized"),
            ("capped", "Capped"),
        ]
    ),
)
def test_a_faithful_port_has_no_finding(ports: Ports, keras: str, torch: str) -> None:
    found = ports.diagnosed(keras, torch, "")
    assert (found.verdict, found.findings) == ("parity", ()), found
    constants = [note for note in found.notes if "through float32" in note]
    assert bool(constants) == (keras in ("towers", "images", "attends", "resized")), found.notes


@pytest.mark.parametrize(
    ("keras", "torch", "wrong"),
    # At each pass another share, and no average.
    cases([("moving", "Moving", "fading")]),
)
def test_what_no_single_cause_explains_is_not_explained(
    ports: Ports, keras: str, torch: str, wrong: str
) -> None:
    (finding,) = ports.diagnosed(keras, torch, wrong).findings
    assert (finding.explanation, finding.code) == (None, ())


@pytest.mark.parametrize(("keras", "torch", "wrong"), cases([("tokens", "Tokens", "padding, half")]))
def test_a_gradient_that_two_defects_make_is_told_by_what_comes_back(
    ports: Ports, keras: str, torch: str, wrong: str
) -> None:
    (finding,) = ports.diagnosed(keras, torch, wrong).findings
    why = finding.explanation
    assert why is not None and (why.cause, why.confidence) == ("gradient:factor", "likely")
    assert "embedded is 0.5 times Keras's" in why.text


@pytest.mark.parametrize("wrong", ["random", "blank"])
def test_a_table_that_is_there_to_be_loaded_is_no_finding(ports: Ports, wrong: str) -> None:
    assert ports.diagnosed("clocked", "Clocked", wrong).verdict == "parity"


@pytest.mark.slow
def test_what_is_not_found_in_time_is_listed_with_its_lines(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LONGEST_SEARCH", 0.0)
    monkeypatch.setattr(limits, "LEAST_TRIED", 0)
    monkeypatch.setattr(limits, "LAST_TRIED", 0)
    (finding,) = ports.diagnosed("sequence", "Sequence", "spread").findings
    assert finding.explanation is None
    files = dict.fromkeys(each.partition(":")[0] for each in finding.code)
    assert list(files) == ["structure_torch.py", "structure_keras.py"], finding.code


@pytest.mark.slow
def test_once_the_time_for_all_places_is_over_one_finding_stands_for_what_is_behind(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LONGEST_IN_ALL", -1.0)
    monkeypatch.setattr(limits, "LONGEST_EDITS", -1.0)
    found = ports.diagnosed("images", "Images", "corners, crop")
    (finding,) = found.findings
    assert (finding.name, finding.explanation) == ("forward/merged", None)
    assert any(note.startswith("the search for causes ended after") for note in found.notes)


@pytest.mark.slow
def test_what_is_wrong_in_all_layers_of_a_kind_is_put_right_at_once(
    ports: Ports, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = list[object]()

    def counted(*given: Any) -> Any:
        tried.append(given)
        return structural_causes(*given)

    monkeypatch.setattr(diagnose, "structural_causes", counted)
    found = ports.diagnosed("gains", "Gains", "mean")
    assert len(tried) == 1
    (finding,) = found.findings
    why = finding.explanation
    assert (
        why is not None and why.confidence == "confirmed" and "and so for 2 more: norm_1, norm_2" in why.text
    )
    assert {f"forward/norm_{number}" for number in range(3)} <= {tensor.name for tensor in finding.tensors}
