"""PyTorch loops in the style of public examples, in float32, that follow each other. `... followed_torch OUT first|second`.

`first` writes the references and what follows them, `second` what follows Keras's, `inner` steps of several updates.
"""

from __future__ import annotations

import math
import sys
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from parity.common.record import followed
from parity.torch_impl.recorder import Recorder
from parity_tests.recorded.followed import (
    BATCH,
    CLASSES,
    CLIPPED,
    CROSS,
    DECAY,
    FAULTS,
    LATER,
    PIXELS,
    SAMPLES,
    STEPS,
    TOKENS,
    TWO,
    WORDS,
    batches,
    data,
    diff_pieces,
    weights,
)


class Convnet(nn.Module):
    """As the MNIST example has it; norm: with a batch norm, whose bias before it has a zero gradient."""

    def __init__(self, norm: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.norm = nn.BatchNorm2d(4) if norm else nn.Identity()
        self.head = nn.Linear(4 * (PIXELS // 2 - 1) ** 2, CLASSES)
        self.stops = False

    def forward(self, x: Tensor) -> Tensor:
        """(samples, height, width) to (samples, classes)."""
        x = functional.max_pool2d(functional.relu(self.norm(self.conv(x[:, None]))), 2)
        x = x.permute(0, 2, 3, 1).flatten(1)
        return self.head(x.detach() if self.stops else x)


class Recurrent(nn.Module):
    """An LSTM over the rows of an image; its second bias is frozen, as Keras has one."""

    def __init__(self, both: bool) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(PIXELS, 4, batch_first=True), nn.Linear(4, CLASSES)
        nn.init.zeros_(self.lstm.bias_hh_l0).requires_grad_(both)

    def forward(self, x: Tensor) -> Tensor:
        """(samples, height, width) to (samples, classes)."""
        return self.head(self.lstm(x)[0][:, -1])


class Gpt(nn.Module):
    """A causal transformer with a tied head."""

    def __init__(self, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, 16), nn.Embedding(TOKENS, 16)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.norm, self.wide, self.narrow = nn.LayerNorm(16, epsilon), nn.Linear(16, 32), nn.Linear(32, 16)
        self.head = nn.Linear(16, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        """(samples, tokens) to (samples, tokens, words)."""
        h = self.words(x) + self.places(torch.arange(TOKENS))
        q, k, v = self.qkv(self.norm(h)).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / math.sqrt(16)
        mask = torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1)
        h = h + self.out(scores.masked_fill(mask, -math.inf).softmax(-1) @ v)
        return self.head(h + self.narrow(functional.gelu(self.wide(self.norm(h)))))


def train(
    out: Path,
    model: nn.Module,
    optimizer: Any,
    fault: str,
    shuffled: bool,
    evaluates: bool = False,
    **options: Any,
) -> None:
    """The loop of both; `CLIPPED` models clip. evaluates: after each third of the steps; and looks at what it has learned in a step."""
    images, classes, texts = map(torch.from_numpy, data())
    gpt = isinstance(model, Gpt)
    optimizers = optimizer if isinstance(optimizer, list) else [optimizer]
    with Recorder(out, model, optimizer, **options) as recorder:
        for step, ids in enumerate(batches(shuffled)):
            if evaluates and step and step % (LATER // 2) == 0:
                model.eval()
                with torch.no_grad():
                    model(images)
            model.train(fault != "still in inference" or step < LATER)
            if fault == "still between turns":
                model.head.requires_grad_(step % 2 == 0)
            if fault.startswith("rate drops") and step == LATER:
                for group in optimizer.param_groups:
                    group["lr"] /= 10
                # As Keras's velocity, which has the rate in it.
                for state in optimizer.state.values() if "velocity" in fault else ():
                    state["momentum_buffer"].mul_(10)
            if fault != "not zeroed" and (fault, step) != ("gradients of an evaluation", LATER):
                for each in optimizers:
                    each.zero_grad()
            if gpt:
                loss = functional.cross_entropy(
                    model(texts[ids, :-1]).flatten(0, 1), texts[ids, 1:].flatten()
                )
            else:
                weighed = torch.arange(1.0, CLASSES + 1) if fault == "other classes' weights" else None
                loss = functional.cross_entropy(model(images[ids]), classes[ids], weighed)
            loss = loss * (4 if fault == "loss scale" else 1)
            if fault == "penalty":
                loss = loss + DECAY / 2 * sum(weight.square().sum() for weight in model.parameters())
            loss.backward()
            for weight in model.parameters() if fault == "by hand" else ():
                weight.grad.add_(weight.detach(), alpha=DECAY)
            if evaluates:
                with torch.no_grad():
                    model(images[ids])
            if gpt:
                recorder.gradients()
                if fault != "not clipped":
                    nn.utils.clip_grad_norm_(model.parameters(), CLIPPED)
            for number, each in enumerate(optimizers):
                # The second one has its turn at each second step.
                if not number or step % 2 == (fault == "other turns"):
                    each.step()
            recorder.step(loss, count=BATCH, ids=ids)
        if isinstance(model, Convnet) and isinstance(model.norm, nn.BatchNorm2d):
            model.train(fault == "evaluated in training mode")
            with torch.no_grad():
                found = model(images)
            total = functional.cross_entropy(found, classes, reduction="sum")
            recorder.finish((total.item(), SAMPLES, int((found.argmax(1) == classes).sum())))


def convnet(out: Path, fault: str = "", shuffled: bool = False, norm: bool = False, **options: Any) -> None:
    """SGD with momentum."""
    torch.manual_seed(3 + 5 * shuffled)  # a followed run begins with weights of its own
    model = Convnet(norm)
    if fault == "momentum of averages":
        model.norm.momentum = 0.01
    if not norm:
        kernel, bias, head, head_bias = map(torch.from_numpy, weights())
        state = {"conv.weight": kernel.permute(3, 2, 0, 1), "conv.bias": bias}
        model.load_state_dict({**state, "head.weight": head.T, "head.bias": head_bias})
    rate, momentum = 0.1 if fault == "learning rate" else 0.05, 0.8 if fault == "momentum" else 0.9
    decay = DECAY if fault == "weight decay" else 0.0
    slow = {"params": list(model.head.parameters()), "lr": rate / 5 if fault == "rate of a group" else rate}
    groups = [{"params": [*model.conv.parameters(), *model.norm.parameters()]}, slow]
    optimizer = torch.optim.SGD(groups, rate, momentum, weight_decay=decay)
    model.conv.weight.requires_grad_(fault != "frozen")
    model.stops = fault == "stopped"
    train(out, model, optimizer, fault, shuffled, **options)


def two(out: Path, fault: str, **options: Any) -> None:
    """An optimizer for the filters, and another kind for the head."""
    model = Convnet(False)
    momentum, rate = 0.8 if fault == "momentum" else 0.9, 4e-3 if fault == "second rate" else 3e-3
    sgd = torch.optim.SGD(model.conv.parameters(), 0.05, momentum)
    adagrad = torch.optim.Adagrad(model.head.parameters(), rate, initial_accumulator_value=0.1)
    train(out, model, [sgd, adagrad], fault, True, **options)


def inner(out: Path, kind: str, momentum: float = 0.0, **options: Any) -> None:
    """Several updates between two recorded steps: "same", "own": an evaluation fine-tunes and puts the weights back, by the same optimizer or by one of its
    own; "epochs": a step is three updates.
    """
    images, classes, _ = map(torch.from_numpy, data())
    torch.manual_seed(3)
    model = Convnet(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum)
    tuner = optimizer if kind == "same" else torch.optim.SGD(model.parameters(), 0.05)

    def update(ids: Any, by: torch.optim.Optimizer, clips: bool = False) -> Tensor:
        by.zero_grad()
        loss = functional.cross_entropy(model(images[ids]), classes[ids])
        loss.backward()
        if clips:
            recorder.gradients()
            nn.utils.clip_grad_norm_(model.parameters(), 2 * CLIPPED)
        by.step()
        return loss

    with Recorder(out, model, optimizer, **options) as recorder:
        for step, ids in enumerate(batches("follow" in options)):
            if step % 4 == 0 and kind != "epochs":
                before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
                for some in (np.sort(ids)[:3], np.sort(ids)[3:9]):
                    update(some, tuner)
                model.load_state_dict(before)
            for _ in range(3 if kind == "epochs" else 1):
                loss = update(ids, optimizer, kind != "epochs")
            recorder.step(loss, count=BATCH, ids=ids)


def ended(out: Path, end: str, **options: Any) -> None:
    """A few steps, and behind the last one: "estimated" statistics, weights that are "put" back to what they were, or nothing."""
    images, classes, _ = map(torch.from_numpy, data())
    torch.manual_seed(3)
    model = Convnet(True)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.9)
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    with Recorder(out, model, optimizer, **options) as recorder:
        for ids in islice(batches("follow" in options), 4):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[ids]), classes[ids])
            loss.backward()
            optimizer.step()
            recorder.step(loss, count=BATCH, ids=ids)
        if end == "estimated":
            torch.optim.swa_utils.update_bn(images.split(BATCH), model)
        if end == "put":
            model.load_state_dict(before, strict=False)


def mixed(out: Path, share: float, **options: Any) -> None:
    """Each fourth step is followed by a mix of its weights and those of four steps before."""
    images, classes, _ = map(torch.from_numpy, data())
    torch.manual_seed(3)
    model = Convnet(False)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, 0.9)
    before = [weight.detach().clone() for weight in model.parameters()]
    with Recorder(out, model, optimizer, **options) as recorder:
        for step, ids in enumerate(batches("follow" in options)):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(images[ids]), classes[ids])
            loss.backward()
            optimizer.step()
            recorder.step(loss, count=BATCH, ids=ids)
            if step % 4 == 3:
                with torch.no_grad():
                    for weight, was in zip(model.parameters(), before, strict=True):
                        was.copy_(weight.lerp_(was, share))


def gpt(out: Path, fault: str = "", shuffled: bool = False, **options: Any) -> None:
    """AdamW with clipping."""
    torch.manual_seed(4)
    model = Gpt(1e-3 if fault == "epsilon" else 1e-5)
    betas = (0.9, 0.95 if fault == "beta" else 0.999)
    decay = 0.0 if fault == "weight decay" else 0.1
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3, betas, weight_decay=decay)
    train(out, model, optimizer, fault, shuffled, **options)


def page(folder: Path) -> None:
    """The two scripts of docs/how_to/recorders.md, with the lines that it adds."""
    images, classes, _ = map(torch.from_numpy, data())
    for piece in diff_pieces():
        torch.manual_seed(3)
        model = Convnet(False)
        names: dict[str, Any] = {
            "Recorder": lambda out, *given, **named: Recorder(
                folder / out, *given, **{k: folder / v if k == "follow" else v for k, v in named.items()}
            ),
            "model": model,
            "optimizer": torch.optim.SGD(model.parameters(), 0.05, 0.9),
            "loss_of": functional.cross_entropy,
            "batches": [(images[ids], classes[ids], ids) for ids in batches(False)],
        }
        exec(compile(piece, "docs/how_to/recorders.md", "exec"), names)


def main(folder: Path, part: str) -> None:
    """All scripts."""
    if part == "inner":
        for kind in ("own", "same", "epochs"):
            inner(folder / kind, kind, 0.9 * (kind == "epochs"), states=True, every=1)
        for kind, momentum in (("same", 0.0), ("own", 0.0), ("epochs", 0.9), ("epochs", 0.8)):
            for reference in ("epochs",) if kind == "epochs" else ("own", "same"):
                inner(folder / f"{reference}_{kind}_{momentum}", kind, momentum, follow=folder / reference)
        mixed(folder / "mixed", 0.5, states=True)
        for share in (0.5, 0.25):
            mixed(folder / f"mixed_{share}", share, follow=folder / "mixed")
        for reference in ("estimated", "put", "nothing"):
            ended(folder / reference, reference, states=True)
            for end in ("estimated", "put", "nothing"):
                ended(folder / f"{reference}_{end}", end, follow=folder / reference)
        return
    if part == "second":
        mapping = folder / "mapping.yaml"
        for fault in CROSS:
            convnet(folder / f"keras_torch_{fault}", fault, True, follow=folder / "keras", mapping=mapping)
        for name, both in (("one bias", False), ("two biases", True)):
            model = Recurrent(both)
            trained = [each for each in model.parameters() if each.requires_grad]
            optimizer = torch.optim.SGD(trained, 0.05, 0.9)
            options = {"follow": folder / "recurrent", "mapping": folder / "recurrent.yaml"}
            train(folder / f"recurrent_{name}", model, optimizer, "", True, **options)
        for fault in TWO:
            two(folder / f"two_{fault}", fault, follow=folder / "two", mapping=mapping)
        for fault in ("rate drops", "rate drops as a velocity does"):
            convnet(folder / f"torch_{fault}", fault, True, follow=folder / "keras_drops", mapping=mapping)
        return
    convnet(folder / "torch", states=True, taps=True)
    convnet(folder / "norm", norm=True, states=True)
    gpt(folder / "gpt", states=True)
    with patch.object(followed, "EVERY_STEP_BYTES", 0):
        convnet(folder / "torch_large", evaluates=True, states=True)
    fault = "gradients of an evaluation"
    convnet(folder / f"torch_large_{fault}", fault, True, evaluates=True, follow=folder / "torch_large")
    convnet(folder / "torch_drops", "rate drops", states=True)
    convnet(folder / "torch_again")
    convnet(folder / "decayed", "weight decay", states=True)
    for fault in ("by hand", "penalty"):
        convnet(folder / f"decayed_{fault}", fault, True, follow=folder / "decayed")
    for fault in FAULTS["torch"]:
        convnet(folder / f"torch_{fault}", fault, True, taps=True, follow=folder / "torch")
    for fault in FAULTS["norm"]:
        convnet(folder / f"norm_{fault}", fault, True, norm=True, follow=folder / "norm")
    for fault in (*FAULTS["gpt"], "epsilon"):
        gpt(folder / f"gpt_{fault}", fault, True, follow=folder / "gpt")
    for fault in ("loss scale", "learning rate", "not zeroed"):
        convnet(folder / f"free_{fault}", fault)
    page(folder)


if __name__ == "__main__":
    assert STEPS > 16
    main(Path(sys.argv[1]), sys.argv[2])
