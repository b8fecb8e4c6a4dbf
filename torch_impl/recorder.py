"""A recorder for a training loop in PyTorch that is not ours.

    with Recorder("runs/mine", model, optimizer) as recorder:
        for inputs, targets, ids in batches:
            optimizer.zero_grad()
            loss = loss_of(model(inputs), targets)
            loss.backward()
            optimizer.step()
            recorder.step(loss, count=len(inputs), ids=ids)

It reads and changes nothing: the training has the same bits with it and without. docs/how_to/recorders.md has the
details, docs/reference/record.md what is written.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader

from parity.common.base.errors import RecordError
from parity.common.record.followed import Follower, Measure, StateKeeper, open_states, worst_of
from parity.common.record.samples import Ids
from parity.common.record.script import (
    NAN,
    ScriptRecorder,
    Sums,
    check_settings,
    mapping_of,
    norm,
    optimizers_of,
    precision_of,
)
from parity.common.record.script_checks import StepObservation, checkable
from parity.common.record.script_taps import is_tapped
from parity.common.spec import ScriptInfo
from parity.common.spec.external.mapping import Mapping as TensorMapping
from parity.common.state.canonical import State
from parity.torch_impl import runtime
from parity.torch_impl.external import names
from parity.torch_impl.external.outline import describe, outline
from parity.torch_impl.private_names import DTensor
from parity.torch_impl.recorder_observer import ModelObserver
from parity.torch_impl.recorder_states import LiveState
from parity.torch_impl.recorder_taps import LayerTaps
from parity.torch_impl.recorders.batches import with_indices
from parity.torch_impl.sharding.tensors import tensor_like, whole

# On a GPU, a step's numbers are read when so many more have been launched, and nothing waits for them.
_LAG = 8
# Seconds in which gloo's threads end what they hold.
_THREADS_END = 0.1


class Recorder(ScriptRecorder):
    """Records a loop. Where several ranks train, each makes one, before the first step; rank 0 writes.

    The gradient's norm is that of the gradients which the optimizer is given. Where the loop clips them before, call
    `gradients()` between backward and clipping: Keras clips in its optimizer, and its records have the norm before.
    """

    def __init__(
        self,
        out: str | Path,
        model: nn.Module,
        optimizer: Any = None,
        *,
        name: str = "script",
        global_batch_size: int | None = None,
        mapping: str | Path | TensorMapping | None = None,
        precision: str | None = None,
        distributed: bool = False,
        every: int | None = None,
        taps: bool | Sequence[str] = False,
        order: int | None = None,
        settings: Mapping[str, Any] | None = None,
        states: bool = False,
        follow: str | Path | None = None,
        frozen: Sequence[str] = (),
        checks: bool = True,
        overwrite: bool = False,
    ) -> None:
        """Begin a record and write the model's initial state.

        Args:
            out: a new folder, or with `overwrite` one of an earlier record.
            model: as it is trained; wrapped (DDP, compiled) or not.
            optimizer: of torch.optim, or a wrapper with one in `.optimizer`; several where each updates some of the tensors, of
                which the first one's learning rate is recorded. Without it that is not recorded, nor is the gradient's norm unless
                `gradients()` is called.
            name: what is trained; records are compared where it is equal.
            global_batch_size: for the reports.
            mapping: mapping.yaml or what it was read into; the states are then written by Keras's names.
            precision: one of a TrainSpec's; None goes by the parameters' type.
            distributed: sum loss and count over all ranks, and gather the ids. Without it they are taken as global.
            every: record norms at multiples of it; None: at as many steps as take no more than half a percent of the time.
            taps: record fingerprints of what the layers give, of all or of those named, at the first 9 steps, then at 16,
                32, 64, ..., or at multiples of `every`.
            order: this is a repetition with permuted batches, to measure rounding: its number.
            settings: anything else worth knowing, shown where it differs.
            states: keep weights, slots and gradients for others to follow: at every step until they take 256 MiB, and at
                the first 9 steps, then at 16, 32, 64, ... (see docs/how_to/recorders.md).
            follow: a record with such states. At these steps this training starts from them, and updates by its
                gradients, so each step is compared by itself. **This changes the training.**
            frozen: names of tensors, or prefixes of names, that must not change; a change is reported.
            checks: check invariants while the script trains (see `parity check`).
            overwrite: replace an earlier record in `out`, and nothing else.

        Raises:
            RecordError: the folder is taken, the model is not built yet, its type is no precision, or there is nothing
                to follow.
            ExternalModelError: the mapping cannot be read, or does not fit the model.
        """
        self._model = _unwrapped(model)
        self._trained = names.trained(self._model)
        self._mapping = mapping_of(mapping)
        self._loop: object = None  # that has given the batch at hand
        self._optimizers = [*map(_torch_optimizer, optimizers_of(optimizer))]
        only = self._optimizers[0] if len(self._optimizers) == 1 else None
        tensors = names.tensors(self._model)
        lazy = next((n for n, tensor in tensors.items() if torch.nn.parameter.is_lazy(tensor)), None)
        if lazy is not None:
            raise RecordError(
                f"{lazy} has no shape yet: call the model on a batch before making its recorder"
            )
        self._sharded = any(isinstance(tensor, DTensor) for tensor in tensors.values())
        several = dist.is_available() and dist.is_initialized()
        rank, world = (dist.get_rank(), dist.get_world_size()) if several else (0, 1)
        self._distributed = distributed and world > 1
        self._device = next((tensor.device for tensor in self._trained.values()), torch.device("cpu"))
        precision = precision or precision_of(str(tensor.dtype) for tensor in self._trained.values())

        def refused() -> str | None:
            if world > 1 and not distributed:
                return f"needs distributed=True where several ranks train, and there are {world}"
            if self._sharded and states:
                return "needs a model that each rank holds whole, and this one is sharded"
            if not self._optimizers:
                return "needs the optimizer, whose slots and gradients it is about"
            return "needs another precision: float16 skips steps" if precision == "float16_mixed" else None

        live = LiveState(self._model, self._optimizers)
        observer = ModelObserver(self._model, only, frozen)
        ranks = world if self._distributed else 1
        invariants = checkable(
            optimizer=only is not None,
            gradients=True,
            modes=observer.has_modes,
            ranks=ranks,
            sharded=self._sharded,
            follows=follow is not None,
        )
        kept = open_states(Path(out), states, follow, "torch", self._mapping, live, refused)
        if rank > 0 and isinstance(kept, StateKeeper):
            kept = None
        script_info = ScriptInfo.parse(
            {
                "kind": "script",
                "name": name,
                "precision": precision,
                "framework": "torch",
                "naming": "torch" if self._mapping is None else "keras",
                "global_batch_size": global_batch_size,
                "world_size": world,
                "follows": kept.identity if isinstance(kept, Follower) else None,
                "invariants": invariants if checks else (),
                "settings": check_settings(settings),
            }
        )
        facts = {
            "versions": runtime.versions(),
            "devices": [str(self._device)] * world,
            "threads": runtime.thread_counts(),
        }
        lag = 0 if self._device.type == "cpu" else _LAG
        initial = self._final_state()
        super().__init__(
            out if rank == 0 else None, script_info, facts, order, every, lag, kept, observer, overwrite
        )
        self._seen: dict[str, Any] = {}  # norms of the step at hand by name
        self._rate, self._cost, self._first = NAN, 0.0, True
        # By an optimizer's place: of how many updates of this step the gradients were seen; and whether of the one to come.
        self._turns: Counter[int] = Counter()
        self._seen_of: set[int] = set()
        # By an optimizer's place, of its last update of the step at hand: the gradients' norm; the gradients, where they are kept or compared, and
        # the ranks' mean; the gradients of the first step.
        self._norms: dict[int, Tensor] = {}
        self._made: dict[int, tuple[State, State]] = {}
        self._first_gradients: dict[int, State] = {}
        self._ranks: tuple[Sequence[float], Sequence[Ids]] = (), ()  # as in `StepObservation`
        self._before: list[Tensor] = []
        self._copied = False  # whether `_before` holds the parameters before this step's update
        if initial:
            self._state("initial", initial)
        self._write_outline(
            lambda: outline(self._model, type(self._model).__qualname__),
            lambda: [describe(each, self._model) for each in self._optimizers],
        )
        self._layers = self._watched(model, taps)
        self._hooks: list[Any] = []
        if not self._optimizers:
            self._keep_parameters()
        for each in self._optimizers:
            self._hooks += [
                each.register_step_pre_hook(self._see_before),
                each.register_step_post_hook(lambda optimizer, *_: self._see_after(optimizer)),
            ]
        self._trained_at = -1
        if isinstance(kept, StateKeeper):
            # Around torch.compile, which would compile the hook.
            self._hooks.append(model.register_forward_pre_hook(lambda module, _: self._see_pass(module)))
        self._begin_step()

    def batches(self, source: DataLoader) -> Iterator[Any]:
        """Go through a loader; where `add` and `step` get no ids, they are the indices that its sampler gave for the batch.

        Raises:
            RecordError: the loader has no batch sampler, or does not ask it when the loop begins; or two loaders give a step its batches.
        """
        loop = object()
        try:
            for ids, batch in with_indices(source):
                if self._batch_ids is not None and self._loop is not loop:
                    raise RecordError(
                        "batches: two loaders give batches of one step; give step() the ids= of both"
                    )
                self._batch_ids, self._loop = ids, loop
                yield batch
        finally:
            self._batch_ids = None

    def before_update(self, optimizer: Any = None) -> None:
        """What an optimizer that is given a closure calls in it, after backward: gradients and parameters as they are.

        Args:
            optimizer: of several, that one.

        Raises:
            RecordError: there are several optimizers, and it is none of them.
        """
        if not self._several:
            self._observer.before_update()
        self.gradients(optimizer)
        self._keep_parameters()

    def gradients(self, optimizer: Any = None) -> None:
        """Take the gradients as they are now: after backward, before they are clipped. Not needed without clipping.

        Args:
            optimizer: of several, the one that is about to be given them.

        Raises:
            RecordError: there are several optimizers, and it is none of them.
        """
        optimizer = _torch_optimizer(optimizer)
        trained = self._trained
        if self._several:
            if not any(each is optimizer for each in self._optimizers):
                raise RecordError(
                    f"step {self.count}: the recorder has {len(self._optimizers)} optimizers; say whose gradients these are, as in"
                    " recorder.gradients(optimizer)"
                )
            held = {id(tensor) for group in optimizer.param_groups for tensor in group["params"]}
            trained = {name: tensor for name, tensor in trained.items() if id(tensor) in held}
        place = self._place(optimizer)
        if place in self._seen_of or not self._looks:
            return
        there = {name: tensor for name, tensor in trained.items() if tensor.grad is not None}
        # A rank may have none, and the others ask it for its share.
        if there or self._distributed:
            self._seen_of.add(place)
            self._turns[place] += 1
            self._see_gradients(place, trained, there)

    def step(self, loss: Any = None, count: float = 0, ids: Any = None, *, loss_sum: Any = None) -> None:
        """A step is over, the parameters are updated.

        Args:
            loss: the mean over `count` samples (or tokens): a tensor or a number.
            count: how many the mean was taken over. 0, without a loss: all of the step was given to `add`.
            ids: of the samples, whole numbers; at every step or at none.
            loss_sum: instead of `loss`, the sum.

        Raises:
            RecordError: what was given does not fit together.
        """
        if loss is not None or loss_sum is not None or count:
            self.add(loss, count, ids, loss_sum=loss_sum)
        if self._several or not self._optimizers:
            self._see_parameters()
        self._end_gradients()
        if self._norms:
            self._seen["gradient"] = functools.reduce(torch.hypot, self._norms.values())
        sums, received = self._added()
        if self._layers is not None and self.taps_now:
            self._end_taps(self._layers.table())
        self._ranks = (), (received,) if self.count == 0 and received is not None else ()
        if self._distributed:
            sums, received = self._gathered(sums, received)
        self._end_step(self._launched(sums), received, self._cost)
        self._seen, self._rate, self._cost, self._batch_ids = {}, NAN, 0.0, None
        self._seen_of.clear()
        self._turns.clear()
        self._norms.clear()
        if not self._optimizers:
            self._keep_parameters()

    def finish(self, evaluation: tuple[float, float, int] | None = None) -> None:
        """Write what is left and the final state, and mark the record complete; see `ScriptRecorder.finish`."""
        super().finish(evaluation)
        if self._distributed:
            # A thread of gloo's frees what the last collective had, for which it needs the interpreter. Writing gives it back too
            # shortly, and PyTorch waits for that thread, and keeps the interpreter, when the process group ends after this.
            time.sleep(_THREADS_END)

    def _unwatch(self) -> None:
        super()._unwatch()
        for hook in self._hooks:
            hook.remove()

    def _watched(self, model: nn.Module, taps: bool | Sequence[str]) -> LayerTaps | None:
        if taps is False:
            return None
        if any(hasattr(module, "_orig_mod") for module in model.modules()):
            raise RecordError(
                "taps: torch.compile merges layers; record the model without it to have them tapped"
            )
        found = LayerTaps(self._model, taps)
        found.open(self.taps_now)
        return found

    @torch.no_grad()
    def _end_taps(self, fingerprints: dict[str, Tensor]) -> None:
        """Write what the layers gave at this step, added up over the ranks."""
        table = torch.stack([d.to(self._device) for d in fingerprints.values()]) if fingerprints else None
        if self._distributed:
            sizes = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=self._device)
            sizes[dist.get_rank()] = len(fingerprints)
            dist.all_reduce(sizes)
            if len(set(sizes.tolist())) > 1:
                return  # they went through other layers
            if table is not None:
                dist.all_reduce(table)
        if table is None:
            return
        found = dict(zip(fingerprints, table.tolist(), strict=True))
        if self._mapping is not None:
            found = {pair.keras: found[pair.torch] for pair in self._mapping.layers if pair.torch in found}
        self._write_taps(found)

    def _see_before(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The optimizer is about to take its step."""
        if optimizer is self._optimizers[0]:
            self._rate = float(optimizer.param_groups[0]["lr"])
        given = [each for each in (*args, *kwargs.values()) if each is not optimizer]
        if not all(each is None or _does_nothing(each) for each in given):
            return  # a closure, by which it will compute gradients of its own
        self.before_update(optimizer)

    def _see_after(self, optimizer: Any) -> None:
        """An optimizer has taken its step; one that follows before the recorder's step ends is the one that is recorded."""
        self._seen_of.discard(self._place(optimizer))
        if not self._several:
            self._observer.after_update()
            self._see_parameters()

    @property
    def _looks(self) -> bool:
        """Whether anything is made of this step's gradients."""
        first = self._first and self.writes and not self._sharded
        return first or self._measures or (self._states is not None and self._states.wants(self.count))

    @property
    def _several(self) -> bool:
        return len(self._optimizers) > 1

    def _place(self, optimizer: Any) -> int:
        """Which of several optimizers one is; 0 of the only one."""
        return next((n for n, each in enumerate(self._optimizers) if each is optimizer), 0)

    def _observed(self) -> StepObservation:
        observed = self._observer.observe()
        observed.norms, observed.ids = self._ranks
        return observed

    @property
    def _measures(self) -> bool:
        return self.writes and not self._sharded and self.pace.wants(self.count)

    @torch.no_grad()
    def _see_gradients(self, place: int, trained: dict[str, Tensor], there: dict[str, Tensor]) -> None:
        """See those of the tensors that the update of the optimizer at a place is of, and that have one."""
        if self._first and not self._sharded and self.writes:
            self._first_gradients[place] = {name: _array(_dense(t.grad)) for name, t in there.items()}
        began = time.perf_counter()
        if self._measures and there:
            self._norms[place] = _norm([_dense(t.grad) for t in there.values()])
            self._cost += time.perf_counter() - began
        if self._states is not None and self._states.wants(self.count):
            self._keep_or_follow(self._exchange, place, trained, there)

    @torch.no_grad()
    def _exchange(self, place: int, trained: dict[str, Tensor], there: dict[str, Tensor]) -> None:
        """Keep the gradients; or measure them, and update by the reference's."""
        assert self._states is not None
        mean = self._distributed and not self._sharded and isinstance(self._states, Follower)
        own = {name: _array(_dense(whole(t.grad))) for name, t in there.items()}
        self._made[place] = own, self._mean_gradients(trained) if mean else {}
        if not self._several:
            self._end_exchange()
        self._states.place_slots(self.count)
        for name, array in (self._states.given(self.count, self._turns[place], place) or {}).items():
            parameter = trained.get(name)
            # One that was not used stays so where its gradient is zero, as Keras gives it.
            if parameter is not None and (parameter.grad is not None or np.any(array)):
                parameter.grad = tensor_like(array, parameter)

    def _end_exchange(self) -> None:
        """The gradients of all optimizers are there."""
        assert self._states is not None
        made, self._made = self._made, {}
        own, mean = (
            {name: array for both in made.values() for name, array in both[i].items()} for i in (0, 1)
        )
        updates = [self._turns[place] for place in range(len(self._optimizers))]
        self._states.saw(self.count, own, mean or None, updates)

    def _end_gradients(self) -> None:
        """The step is over: hand on what is of all its optimizers together."""
        if self._made:
            self._keep_or_follow(self._end_exchange)
        if self._first_gradients:
            found = {name: array for each in self._first_gradients.values() for name, array in each.items()}
            self._first_gradients, self._first = {}, False
            if self._mapping is not None:
                found = self._mapping.gradients_to_keras(found)
            self._state("first_gradients", _named(found))

    def _mean_gradients(self, trained: dict[str, Tensor]) -> State:
        """What the gradients would be, had they been reduced over the ranks; one that a rank has not is zero there."""
        found = {}
        for name, tensor in trained.items():
            mean = torch.zeros_like(tensor) if tensor.grad is None else _dense(tensor.grad).clone()
            dist.all_reduce(mean)
            found[name] = _array(mean / dist.get_world_size())
        return found

    def _of_ranks(self, measures: list[Measure]) -> list[Measure]:
        if not self._distributed:
            return measures
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, measures)
        return worst_of(ranks)

    def _see_pass(self, module: nn.Module) -> None:
        """The model is about to be called. Once a step has trained it, its state is no longer that before the step."""
        if module.training and torch.is_grad_enabled():
            self._trained_at = self.count
        elif self._trained_at != self.count:
            self._evaluates()

    @torch.no_grad()
    def _keep_parameters(self) -> None:
        if self._measures and not self._copied:
            began = time.perf_counter()
            live = list(self._trained.values())
            if not self._before:
                self._before = [torch.empty_like(tensor) for tensor in live]
            torch._foreach_copy_(self._before, live)
            self._copied = True
            self._cost += time.perf_counter() - began

    @torch.no_grad()
    def _see_parameters(self) -> None:
        if not self._measures:
            return
        began = time.perf_counter()
        live = list(self._trained.values())
        self._seen["parameter"] = _norm(live)
        if self._copied:
            torch._foreach_sub_(self._before, live)
            self._seen["update"] = _norm(self._before)
            self._copied = False
        self._cost += time.perf_counter() - began

    def _kept(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return float(value)
        value = value.detach()
        return float(value) if value.device.type == "cpu" else value.clone()

    def _host(self, ids: Any) -> Any:
        return ids.detach().cpu().numpy() if isinstance(ids, Tensor) else ids

    def _launched(self, sums: Sums) -> Any:
        """The step's numbers: read, or on their way from the device."""
        norms = [self._seen.get(kind) for kind in ("gradient", "parameter", "update")]
        if self._device.type == "cpu":
            return [*_total(sums), self._rate, *(NAN if n is None else norm(float(n)) for n in norms)]
        kinds = {"dtype": torch.float64, "device": self._device}
        losses = [torch.as_tensor(loss, **kinds) * weight for loss, weight, _ in sums]
        found = [torch.stack(losses).sum(), *(n.to(torch.float64) for n in norms if n is not None)]
        there = torch.empty(len(found), dtype=torch.float64, pin_memory=True)
        there.copy_(torch.stack(found), non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()
        count = sum(count for *_, count in sums)
        return there, copied, count, self._rate, [n is not None for n in norms]

    def _read(self, handle: Any) -> Sequence[float]:
        if isinstance(handle, list):
            return handle
        there, copied, count, rate, known = handle
        copied.synchronize()
        loss_sum, *norms = there.tolist()
        return [loss_sum, count, rate, *(norm(norms.pop(0)) if taken else NAN for taken in known)]

    def _gathered(self, sums: Sums, ids: Ids | None) -> tuple[Sums, Ids | None]:
        """Loss, count and ids of all ranks. It is a message more a step, and two where there are ids."""
        total, count = _total(sums)
        size = 0 if ids is None else len(ids)
        compares = is_tapped(self.count, None) and not self._sharded
        with torch.no_grad():
            norm = float(_norm(list(self._trained.values()))) if compares else 0.0
        table = torch.zeros(dist.get_world_size(), 4, dtype=torch.float64, device=self._device)
        table[dist.get_rank()] = torch.tensor([total, count, size, norm], dtype=torch.float64)
        dist.all_reduce(table)
        norms, parts = table[:, 3].tolist() if compares else (), list[Any]()
        sizes = table[:, 2].long().tolist()
        if any(sizes):
            own = torch.zeros(max(sizes), dtype=torch.int64, device=self._device)
            own[:size] = torch.as_tensor(np.empty(0, np.int64) if ids is None else ids)
            gathered = [torch.empty_like(own) for _ in sizes]
            dist.all_gather(gathered, own)
            parts = [part[:n].cpu().numpy() for part, n in zip(gathered, sizes, strict=True)]
            ids = np.concatenate(parts)
        self._ranks = norms, parts
        loss_sum, count, *_ = table.sum(0).tolist()
        return [(loss_sum, 1.0, count)], ids

    @torch.no_grad()
    def _final_state(self) -> State:
        if self._sharded:
            return {}
        found = {name: _array(tensor) for name, tensor in names.tensors(self._model).items()}
        return _named(found if self._mapping is None else self._mapping.to_keras(found))


def _named(arrays: State) -> State:
    return {f"tensors/{name}": array for name, array in arrays.items()}


def _norm(tensors: list[Tensor]) -> Tensor:
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(tensors)).double())


def _total(sums: Sums) -> tuple[float, float]:
    """Loss sum and count."""
    return sum(float(loss) * weight for loss, weight, _ in sums), sum(count for *_, count in sums)


def _dense(gradient: Any) -> Tensor:
    found: Tensor = gradient.detach()
    return found.to_dense() if found.layout != torch.strided else found


def _array(tensor: Tensor) -> np.ndarray:
    tensor = tensor.detach()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return tensor.cpu().numpy().copy()


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model itself, without what DDP and torch.compile put around it."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _does_nothing(closure: Any) -> bool:
    """Whether a closure is the one that Lightning gives where a module's optimization is manual."""
    return any(getattr(each, "__name__", "") == "do_nothing_closure" for each in getattr(closure, "args", ()))


def _torch_optimizer(optimizer: Any) -> Any:
    while not isinstance(optimizer, torch.optim.Optimizer) or isinstance(
        getattr(optimizer, "optimizer", None), torch.optim.Optimizer
    ):
        inner = getattr(optimizer, "optimizer", None)
        if inner is None:
            if optimizer is None:
                return None
            raise RecordError(
                f"optimizer: expected one of torch.optim or a wrapper of one, received {type(optimizer).__name__};"
                " leave it out where the script updates its weights itself"
            )
        optimizer = inner
    return optimizer
