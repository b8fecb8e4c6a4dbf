"""Right torch loops, and loops with a mistake that shows without a second run; what is due: `checked`.

`python -m parity_tests.recorded.checked_scripts OUT` makes a record of each with what it said, `OUT/NAME.err`; those without
checks as `OUT/unchecked_NAME`, and those on two ranks.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as processes
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from parity.common.base.errors import RecordError
from parity.torch_impl.recorder import Recorder
from parity_tests.recorded.checked import BATCH, EPOCH, LATER, RANKED, SCRIPTS, STEPS, UNCHECKED

FEATURES, CLASSES = 6, 3
# Of all recorders that are made.
OPTIONS: dict[str, Any] = {}


class Net(nn.Module):
    """A layer that may be replaced, batch norm and dropout, and a head."""

    def __init__(self, dropout: float = 0.1) -> None:
        super().__init__()
        self.body = nn.Linear(FEATURES, 8)
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout(dropout)
        self.head = nn.Linear(8, CLASSES)
        self.register_buffer("prior", torch.zeros(CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        """(samples, features) to (samples, classes)."""
        return self.prior + self.head(self.drop(torch.relu(self.norm(self.body(x)))))


def batches(steps: int = STEPS) -> list[tuple[Tensor, Tensor, Tensor]]:
    """Inputs, classes and ids."""
    torch.manual_seed(5)
    x, y = torch.randn(64, FEATURES), torch.randint(CLASSES, (64,))
    rows = [torch.arange(BATCH) + step * BATCH % 64 for step in range(steps)]
    return [(x[ids], y[ids], ids) for ids in rows]


def sgd(model: nn.Module, **named: Any) -> torch.optim.Optimizer:
    """Of parameters that are trained."""
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], **{"lr": 0.1, **named})


def loop(
    out: Path,
    model: nn.Module,
    optimizer: Any,
    before: Callable[[int], None] = lambda step: None,
    zero: Callable[[int], bool] = lambda step: True,
    passes: int = 1,
    steps: int = STEPS,
    loss_of: Callable[[Tensor, Tensor], Tensor] = functional.cross_entropy,
    between: Callable[[], None] = lambda: None,
    **options: Any,
) -> None:
    """The usual one. before: is called at each step; zero: whether gradients are zeroed; between: pass and update."""
    with Recorder(out, model, optimizer, **options, **OPTIONS) as recorder:
        for step, (x, y, ids) in enumerate(batches(steps)):
            before(step)
            if zero(step):
                optimizer.zero_grad()
            for part in range(passes):
                rows = slice(part, None, passes)
                loss = loss_of(model(x[rows]), y[rows])
                (loss / passes).backward()
                recorder.add(loss, len(y[rows]), ids[rows])
            between()
            optimizer.step()
            recorder.step()


# Right ones.


def plain(out: Path) -> None:
    model = Net()
    loop(out, model, sgd(model), global_batch_size=BATCH)


def accumulated(out: Path) -> None:
    model = Net()
    loop(out, model, torch.optim.AdamW(model.parameters()), passes=4)


def head_alone(out: Path) -> None:
    """The body is trainable, and simply not given to the optimizer."""
    model = Net()
    loop(out, model, torch.optim.Adam(model.head.parameters()), frozen=["body"])


def two_models(out: Path) -> None:
    """One optimizer of two models, of which the second is recorded with it."""
    model, other = Net(), nn.Linear(CLASSES, CLASSES)
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], 0.1)
    loop(out, model, optimizer, loss_of=lambda made, y: functional.cross_entropy(other(made), y))


def updated_by_hand(out: Path, rate: float = 0.1) -> None:
    """The optimizer keeps the rate alone."""
    model = Net()
    optimizer = sgd(model)
    with Recorder(out, model, optimizer, **OPTIONS) as recorder:
        for x, y, ids in batches():
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter -= rate * parameter.grad
            recorder.step(loss, len(y), ids)


def optimizer_made_anew(out: Path) -> None:
    """In each epoch, with an empty momentum; the recorder was given the first one."""
    model = Net()
    with Recorder(out, model, optimizer := sgd(model, momentum=0.9), **OPTIONS) as recorder:
        for step, (x, y, ids) in enumerate(batches()):
            if step and step % EPOCH == 0:
                optimizer = sgd(model, momentum=0.9)
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            recorder.step(loss, len(y), ids)


def never_stepped(out: Path) -> None:
    """`optimizer.step()` was forgotten: as if by hand, with no rate."""
    updated_by_hand(out, 0.0)


def adversary(out: Path) -> None:
    """The generator's pass leaves gradients in the discriminator, which are zeroed before its own."""
    model, generator = Net(), nn.Linear(FEATURES, FEATURES)
    optimizer, others = sgd(model), sgd(generator)
    with Recorder(out, model, optimizer) as recorder:
        for x, y, ids in batches():
            optimizer.zero_grad()
            made = generator(x)
            loss = functional.cross_entropy(model(x), y) + functional.cross_entropy(
                model(made.detach()), 0 * y
            )
            loss.backward()
            optimizer.step()
            recorder.step(loss, len(y), ids)
            others.zero_grad()
            functional.cross_entropy(model(made), y).backward()
            others.step()


def warmed_up(out: Path) -> None:
    model = Net()
    optimizer = sgd(model, lr=0.0)
    loop(
        out,
        model,
        optimizer,
        before=lambda step: optimizer.param_groups[0].update(lr=0.0 if step < 10 else 0.1),
    )


def assigned(out: Path) -> None:
    """Gradients are computed apart and assigned; nothing is to be zeroed."""
    model = Net()
    optimizer, parameters = sgd(model), list(model.parameters())
    with Recorder(out, model, optimizer) as recorder:
        for x, y, ids in batches():
            loss = functional.cross_entropy(model(x), y)
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
                parameter.grad = gradient
            optimizer.step()
            recorder.step(loss, len(y), ids)


class Summing(torch.optim.SGD):
    """Adds up four batches by itself before it moves."""

    calls, kept = 0, None

    def step(self, closure: Any = None) -> Any:
        given = [p.grad.clone() for p in self.param_groups[0]["params"]]
        self.kept = given if self.kept is None else [a + b for a, b in zip(self.kept, given, strict=True)]
        self.calls += 1
        if self.calls % 4 == 0:
            for parameter, gradient in zip(self.param_groups[0]["params"], self.kept, strict=True):
                parameter.grad = gradient / 4
            self.kept = None
            return super().step(closure)
        return None


def summed_by_the_optimizer(out: Path) -> None:
    model = Net()
    loop(out, model, Summing(model.parameters(), 0.1))


def fine_tuned(out: Path) -> None:
    """In eval mode from the start."""
    model = Net()
    loop(out, model, sgd(model), before=lambda step: model.eval() and None)


def evaluated(out: Path) -> None:
    model = Net()

    def evaluate(step: int) -> None:
        if step % 4 == 0:
            model.eval()
            with torch.no_grad():
                model(batches(1)[0][0])
            model.train()

    loop(out, model, sgd(model), before=evaluate)


def closed(out: Path) -> None:
    """An optimizer that computes its gradients itself, again and again."""
    model = Net(0.0)
    optimizer = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=4)
    with Recorder(out, model, optimizer) as recorder:
        for x, y, ids in batches():

            def closure(x: Tensor = x, y: Tensor = y) -> Tensor:
                optimizer.zero_grad()
                loss = functional.cross_entropy(model(x), y)
                loss.backward()
                recorder.before_update()
                return loss

            recorder.step(optimizer.step(closure), len(y), ids)


def scaled(out: Path) -> None:
    """The first steps overflow and are skipped."""
    model = Net()
    optimizer, scaler = sgd(model), torch.amp.GradScaler("cpu", init_scale=2.0**16)
    with Recorder(out, model, optimizer, precision="float16_mixed") as recorder:
        for step, (x, y, ids) in enumerate(batches()):
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            scaler.scale(loss * (torch.inf if step < 2 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            recorder.step(loss, len(y), ids)


class Listed(Net):
    """Whose further layers are in a plain list, of which PyTorch knows nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.more = [nn.Linear(CLASSES, CLASSES) for _ in range(2)]

    def forward(self, x: Tensor) -> Tensor:
        """(samples, features) to (samples, classes)."""
        y = super().forward(x)
        for layer in self.more:
            y = y + layer(y)
        return y


def listed_and_given(out: Path) -> None:
    """Layers in a plain list that the optimizer was given."""
    model = Listed()
    given = [*model.parameters(), *(p for layer in model.more for p in layer.parameters())]
    loop(out, model, torch.optim.SGD(given, 0.1))


def shrunk_weights(out: Path) -> None:
    """Between two updates parameters are made smaller: worth a look, and right."""
    model = Net()
    model.spare = nn.Linear(2, 2)

    def shrink(step: int) -> None:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(0.5)

    loop(out, model, sgd(model), before=shrink)


# Wrong ones.


def listed(out: Path) -> None:
    model = Listed()
    loop(out, model, sgd(model))


def frozen_too_late(out: Path) -> None:
    """Its gradients are zeroed and not taken away, so that momentum goes on."""
    model = Net()
    optimizer = sgd(model, momentum=0.9)

    def freeze(step: int) -> None:
        optimizer.zero_grad(set_to_none=False)
        if step == LATER:
            model.body.requires_grad_(False)

    loop(out, model, optimizer, before=freeze, zero=lambda step: False)


def not_zeroed(out: Path) -> None:
    model = Net()
    loop(out, model, sgd(model), zero=lambda step: step < LATER)


def zeroed_too_late(out: Path) -> None:
    """After the backward pass: there is nothing to update by."""
    model = Net()
    optimizer = sgd(model)
    loop(out, model, optimizer, between=optimizer.zero_grad)


def zeroed_in_place(out: Path) -> None:
    model = Net()
    optimizer = sgd(model)
    loop(out, model, optimizer, between=lambda: optimizer.zero_grad(set_to_none=False))


def layer_replaced(out: Path) -> None:
    """After the optimizer was made."""
    model = Net()
    optimizer = sgd(model)
    model.head = nn.Linear(8, CLASSES)
    loop(out, model, optimizer)


def model_copied(out: Path) -> None:
    """What is trained is not what the optimizer has."""
    model = Net()
    loop(out, copy.deepcopy(model), sgd(model))


def trains_what_is_frozen(out: Path) -> None:
    """The optimizer has the head, and the head alone is frozen."""
    model = Net()
    optimizer = sgd(model.head)
    model.head.requires_grad_(False)
    loop(out, model, optimizer, steps=4)


class Misspelled(torch.optim.Optimizer):
    """Its `add` is not in place."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for parameter in self.param_groups[0]["params"]:
            parameter.add(parameter.grad, alpha=-self.param_groups[0]["lr"])


def moves_nothing(out: Path) -> None:
    model = Net()
    loop(out, model, Misspelled(model.parameters(), 0.1))


def left_in_eval(out: Path) -> None:
    model = Net()
    loop(out, model, sgd(model), before=lambda step: step == LATER and model.eval() and None)


def widened(out: Path) -> None:
    """A buffer changes its type while it trains."""
    model = Net()

    def before(step: int) -> None:
        if step == LATER:
            model.prior = model.prior.double()

    loop(out, model, sgd(model), before=before)


def thawed(out: Path) -> None:
    model = Net()
    loop(out, model, sgd(model), frozen=["body.weight"])


def other_batches(out: Path) -> None:
    model = Net()
    loop(out, model, sgd(model), global_batch_size=2 * BATCH)


def not_finite(out: Path) -> None:
    model = Net()
    calls: list[int] = []

    def loss_of(made: Tensor, y: Tensor) -> Tensor:
        calls.append(1)
        return functional.cross_entropy(made, y) / (len(calls) <= LATER)

    loop(out, model, sgd(model), loss_of=loss_of)


def sampled(rank: int, told: bool) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Two epochs of a rank's batches by a sampler that shuffles, and is told of each epoch or not."""
    data = TensorDataset(torch.randn(64, FEATURES), torch.randint(CLASSES, (64,)), torch.arange(64))
    sampler = DistributedSampler(data, 2, rank, shuffle=True)
    for epoch in range(2):
        if told:
            sampler.set_epoch(epoch)
        yield from DataLoader(data, BATCH, sampler=sampler)


def ranked(rank: int, out: str) -> None:
    """One of two ranks, which makes all of RANKED."""
    dist.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=2)
    for name in RANKED:
        torch.manual_seed(rank if name == "other weights" else 3)
        model = Net(0.0)
        by_hand = name in ("other weights", "not reduced")
        whole = model if by_hand else DistributedDataParallel(model)
        optimizer = sgd(model)
        given = sampled(rank, name == "set epoch") if "epoch" in name else batches(4)
        with Recorder(Path(out) / name, whole, optimizer, distributed=True) as recorder:
            for x, y, ids in given:
                whole_batch = name == "same samples" or "epoch" in name
                rows = slice(None) if whole_batch else slice(rank, None, 2)
                optimizer.zero_grad()
                loss = functional.cross_entropy(whole(x[rows]), y[rows])
                loss.backward()
                if name == "other weights":
                    for parameter in model.parameters():
                        dist.all_reduce(parameter.grad)
                optimizer.step()
                recorder.step(loss, len(y[rows]), ids[rows])
    dist.destroy_process_group()
    # As in `rank_script`.
    os._exit(0)


def main(folder: Path) -> None:
    """All of them."""
    for name in SCRIPTS:
        with open(folder / f"{name}.err", "w") as said, redirect_stderr(said):
            globals()[name](folder / name)
    OPTIONS["checks"] = False
    for name in UNCHECKED:
        globals()[name](folder / f"unchecked_{name}")
    try:
        model = Net()
        loop(folder / "refused", model, sgd(model), frozen=["bod.weight"])
    except RecordError as error:
        (folder / "refused.err").write_text(str(error))
    processes.spawn(ranked, (str(folder),), nprocs=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
