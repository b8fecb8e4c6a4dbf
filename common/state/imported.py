"""A user's own model in training: its tensors in either form, and what a run of it may ask for.

Native names are the torch model's, `parameters/conv1.weight`; canonical ones the Keras model's, below the layer's
path: `parameters/model/conv1/kernel`. Values go by a pair's rule, and so does a weight's average; a gradient, and
every other slot, since it is made of gradients, by the rule's way with gradients.
"""

from __future__ import annotations

import glob
import inspect
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from parity.common.base.errors import CheckpointError, ExternalModelError, SpecError
from parity.common.reference import AVERAGE
from parity.common.reference.optimizers import initial_slots
from parity.common.spec import ParameterSpec, TrainSpec
from parity.common.spec.external.patterns import Array, Rule
from parity.common.spec.external.rules import parse_rule
from parity.common.spec.external.target import Target
from parity.common.spec.layers import ExternalTensor, Imported, Pair
from parity.common.spec.optimizers import Adafactor, Lamb, Muon, OptimizerBase
from parity.common.state.canonical import State, slot_name

Arrays = dict[str, Array]
# So many samples a model is called with when it is built.
PROBED = 2


class ImportedStateAdapter:
    """Between the canonical state of an imported model and that of its torch module.

    specs: the torch module's tensors that are part of the state, by native name.
    """

    def __init__(self, spec: TrainSpec, layer: Imported) -> None:
        """Raises SpecError where a pair does not fit its tensors."""
        self.layer, self._spec = layer, spec
        self._path = f"{layer.name or layer.kind}/"
        self._keras = {tensor.name: tensor for tensor in layer.keras_tensors}
        self._torch = {tensor.name: tensor for tensor in layer.torch_tensors}
        self._pairs = [_Pair(pair, self._keras, self._torch) for pair in layer.mapping]
        paired = {name for pair in layer.mapping for name in pair.torch}
        self.specs = {
            _named(tensor, ""): ParameterSpec(tensor.name, tensor.shape, "zeros", trainable=tensor.trainable)
            for tensor in layer.torch_tensors
            if tensor.name in paired
        }

    def to_native(self, state: Mapping[str, np.ndarray]) -> State:
        """The torch module's state, from a canonical one or from a part of one.

        Pairs of which the part has nothing are left out.

        Raises:
            CheckpointError: a pair is cut by it.
        """
        found: State = {}
        for slot, arrays in _by_slot(state, self._path).items():
            for pair in self._pairs:
                lacking = [tensor.name for tensor in pair.keras if tensor.name not in arrays]
                if slot:
                    moved = pair.slots_to_torch(arrays, slot == AVERAGE) | self._beginning(
                        pair, "torch", slot
                    )
                elif 0 < len(lacking) < len(pair.keras):
                    raise CheckpointError(
                        f"replicas with buffers of their own cannot go on in the torch model: rule {pair.text!r} also"
                        f" needs {_listed(lacking)}; go on with one replica, or in TensorFlow"
                    )
                else:
                    moved = pair.moved(pair.keras, pair.torch, arrays)
                found |= {_named(self._torch[name], "", slot): array for name, array in moved.items()}
        return self._typed(found) | _step_of(state)

    def to_canonical(self, state: Mapping[str, np.ndarray]) -> State:
        """The canonical state, from the torch module's or from a part of it, as `to_native`."""
        found: State = {}
        for slot, arrays in _by_slot(state, "").items():
            for pair in self._pairs:
                if slot:
                    moved = pair.slots_to_keras(arrays, slot == AVERAGE) | self._beginning(
                        pair, "keras", slot
                    )
                else:
                    moved = pair.moved(pair.torch, pair.keras, arrays)
                found |= {_named(self._keras[name], self._path, slot): array for name, array in moved.items()}
        return self._typed(found) | _step_of(state)

    def gradients(self, gradients: Mapping[str, np.ndarray]) -> State:
        """Gradients by canonical name, from those by native name."""
        given = {name.removeprefix("parameters/"): array for name, array in gradients.items()}
        found: Arrays = {}
        for pair in self._pairs:
            found |= pair.slots_to_keras(given) | pair.without_counterpart("keras")
        order = [tensor for tensor in self.layer.keras_tensors if tensor.name in found]
        return self._typed({_named(tensor, self._path): found[tensor.name] for tensor in order})

    def own_rules(self, optimizer: OptimizerBase) -> OptimizerBase:
        """The optimizer for native names: what decays is decided by canonical names and shapes.

        Raises SpecError where only a part of a torch tensor would decay.
        """
        if not optimizer.weight_decay or optimizer.decay_mask == "all":
            return optimizer
        spared = []
        for pair in self._pairs:
            decays = {
                tensor.name: optimizer.decays(self._path + tensor.name, tensor.shape)
                for tensor in pair.keras
                if tensor.trainable
            }
            if len(set(decays.values())) > 1:
                raise SpecError(
                    f"optimizer.decay_mask: {_listed(decays)} are one tensor of the torch model, and only some of"
                    " them would decay; name all or none"
                )
            if False in decays.values():
                spared += [glob.escape(tensor.name) for tensor in pair.torch if tensor.trainable]
        return optimizer.model_copy(update={"decay_mask": tuple(spared)})

    def check_pairs_keep(self, what: str, layouts: bool) -> None:
        """Raise SpecError where whole tensors would be others on the two sides.

        Args:
            what: needs them to be the same; ends the message.
            layouts: whether their layouts must be the same too.
        """
        for pair in self._pairs:
            alone = len(pair.keras) == len(pair.torch) == 1
            if pair.trained and not (alone and (not layouts or pair.text == "same")):
                raise SpecError(
                    f"{what} looks at whole tensors, and {_listed(t.name for t in pair.keras)} of the Keras model"
                    f" have another form in the torch model (rule {pair.text!r}); take another"
                )

    def check_ranks(self, what: str) -> None:
        """Raise SpecError where a tensor is a matrix on one side only."""
        for pair in self._pairs:
            ranks = {len(tensor.shape) >= 2 for tensor in (*pair.keras, *pair.torch) if tensor.trainable}
            if len(ranks) > 1:
                raise SpecError(
                    f"{what} is for tensors of two or more axes, and {_listed(t.name for t in pair.keras)} of the"
                    f" Keras model have another number of them in the torch model (rule {pair.text!r})"
                )

    def _beginning(self, pair: _Pair, side: str, slot: str) -> Arrays:
        """The slot of this side's tensors that nothing of the other side corresponds to: as it begins."""
        found: Arrays = {}
        for name, zeros in pair.without_counterpart(side).items():
            initial = initial_slots(self._spec.optimizer, self._path + name, zeros.shape)
            if slot in initial:
                found[name] = np.full(initial[slot].shape, initial[slot].value)
        return found

    def _typed(self, arrays: Arrays) -> State:
        return {name: array.astype(self._spec.master_dtype, copy=False) for name, array in arrays.items()}


def _by_slot(state: Mapping[str, np.ndarray], path: str) -> dict[str, Arrays]:
    """The arrays of a state below a path by slot, '' for the tensors themselves, and by bare name."""
    slots: dict[str, Arrays] = {}
    for name in state:
        head, _, rest = name.partition("/")
        slot, _, rest = rest.partition("/") if head == "slots" else ("", "", rest)
        if rest:
            slots.setdefault(slot, {})[rest[len(path) :]] = state[name]
    return slots


def _named(tensor: ExternalTensor, path: str, slot: str = "") -> str:
    name = f"{'parameters' if tensor.trainable else 'buffers'}/{path}{tensor.name}"
    return slot_name(slot, name) if slot else name


def _step_of(state: Mapping[str, np.ndarray]) -> State:
    return {"step": state["step"]} if "step" in state else {}


class _Pair:
    """A pair with its rule and its tensors."""

    def __init__(
        self, pair: Pair, keras: Mapping[str, ExternalTensor], torch: Mapping[str, ExternalTensor]
    ) -> None:
        self.text = pair.rule
        self.keras, self.torch = [keras[name] for name in pair.keras], [torch[name] for name in pair.torch]
        names = f"{_listed(pair.keras)} and {_listed(pair.torch)}"
        ours, theirs = ([tensor.shape for tensor in side] for side in (self.keras, self.torch))
        try:
            self.rule: Rule = parse_rule(pair.rule)
            made = self.rule.torch_shapes(ours, len(theirs)), self.rule.keras_shapes(theirs, len(ours))
        except ExternalModelError as error:
            raise SpecError(f"mapping of {names}: {error}") from None
        if made != (theirs, ours):
            raise SpecError(
                f"mapping of {names}: rule {pair.rule!r} makes shapes {_listed(map(str, made[0]))} of"
                f" {_listed(map(str, ours))}, and the torch model has {_listed(map(str, theirs))}"
            )
        trained = {tensor.trainable for tensor in (*self.keras, *self.torch)}
        if len(trained) > 1 and not self.rule.note:
            raise SpecError(
                f"mapping of {names}: only some of them are trainable; say the same of all, in keras_tensors and"
                " torch_tensors"
            )
        self.trained = True in trained

    def moved(self, source: list[ExternalTensor], target: list[ExternalTensor], arrays: Arrays) -> Arrays:
        """Values by name, from the tensors of one side to those of the other; none where one is missing."""
        if any(tensor.name not in arrays for tensor in source):
            return {}
        convert = self.rule.to_torch if target is self.torch else self.rule.to_keras
        try:
            made = convert([arrays[tensor.name] for tensor in source], len(target))
        except ExternalModelError as error:
            raise ExternalModelError(
                f"{_listed(t.name for t in (*self.keras, *self.torch))}: {error}"
            ) from None
        return {tensor.name: array for tensor, array in zip(target, made, strict=True)}

    def slots_to_keras(self, arrays: Arrays, values: bool = False) -> Arrays:
        """Of what is made of gradients, or of `values`; a torch tensor that is not trained counts as zero."""
        trained = [tensor for tensor in self.torch if tensor.trainable]
        if not trained or any(tensor.name not in arrays for tensor in trained):
            return {}
        given = [arrays.get(t.name, np.zeros(t.shape)) for t in self.torch]
        whole = len(trained) == len(self.torch)
        convert = self.rule.gradients if whole and not values else self.rule.to_keras
        made = convert(given, len(self.keras))
        return {t.name: a for t, a in zip(self.keras, made, strict=False) if t.trainable}

    def slots_to_torch(self, arrays: Arrays, values: bool = False) -> Arrays:
        """The inverse of `slots_to_keras`, as far as there is one."""
        trained = [tensor for tensor in self.keras if tensor.trainable]
        if not trained or not self.torch or any(tensor.name not in arrays for tensor in trained):
            return {}
        given = [arrays.get(t.name, np.zeros(t.shape)) for t in self.keras]
        if self.rule.note and not values and all(tensor.trainable for tensor in self.torch):
            made = [given[0]] * len(self.torch)  # each has had the gradient that Keras's one has had
        else:
            made = self.rule.to_torch(given, len(self.torch))
        return {t.name: a for t, a in zip(self.torch, made, strict=True) if t.trainable}

    def without_counterpart(self, side: str) -> Arrays:
        """Zeros for the trained tensors of a side, `keras` or `torch`, that no trained one of the other corresponds to."""
        own, others = (self.keras, self.torch) if side == "keras" else (self.torch, self.keras)
        if any(tensor.trainable for tensor in others):
            return {}
        return {tensor.name: np.zeros(tensor.shape) for tensor in own if tensor.trainable}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "nothing"


@lru_cache(maxsize=4)
def state_adapter_of(spec: TrainSpec) -> ImportedStateAdapter | None:
    """Of a spec whose model is imported; None for all others."""
    layer = spec.model.imported
    return None if layer is None else ImportedStateAdapter(spec, layer)


def refuse_imported(spec: TrainSpec, what: str, instead: str) -> None:
    """Raise SpecError where the model is imported.

    Args:
        what: cannot be had with such a model; begins the message.
        instead: what to do; ends it.
    """
    if (layer := spec.model.imported) is not None:
        raise SpecError(
            f"{what}: the model is imported ({layer.keras} and {layer.torch}), and its layers are not those of a"
            f" spec; {instead}"
        )


# What looks into such models.
PAIR = "'parity pair' compares the two models layer by layer"


def check_imported(spec: TrainSpec) -> None:
    """Raise SpecError where a run of an imported model would not be the spec's."""
    exchange = state_adapter_of(spec)
    if exchange is None:
        return
    optimizer = spec.optimizer
    exchange.own_rules(optimizer)
    kind = f"optimizer.kind '{optimizer.kind}'"
    if isinstance(optimizer, Muon):
        raise SpecError(
            f"{kind} looks at matrices as they lie, and imported models have layouts of their own"
        )
    if isinstance(optimizer, Adafactor):
        exchange.check_pairs_keep(kind, layouts=True)
    if isinstance(optimizer, Lamb):
        exchange.check_pairs_keep(kind, layouts=False)
    if optimizer.clip_norm is not None:
        exchange.check_pairs_keep(f"optimizer.clip_norm {optimizer.clip_norm:g}", layouts=False)
    if (spec.loss.l1 or spec.loss.l2) and spec.loss.penalize != "all":
        exchange.check_ranks(f"loss.penalize '{spec.loss.penalize}'")


def chosen(outputs: Mapping[str, Any], name: str, field: str, target: Target) -> Any:
    """Return the output that is trained: the one that is named, else the only one, else 'logits'.

    Raises:
        ExternalModelError: there is no such output, or several and none is named.
    """
    wanted = name or (next(iter(outputs)) if len(outputs) == 1 else "logits")
    if wanted in outputs:
        return outputs[wanted]
    given = f"gives {', '.join(outputs)}" if outputs else "gives no tensor"
    raise ExternalModelError(
        f"{target} {given}; name the output that is trained in the spec's {field}, received {name!r}"
    )


def one_input(function: Callable[..., Any], named: Collection[str], target: Target) -> None:
    """Raise ExternalModelError for a model of several inputs, of which a run gives one.

    Args:
        function: the model's forward function.
        named: its inputs, where it has names for them.
        target: the model.
    """
    given = inspect.signature(function).parameters.values()
    needed = [
        p.name for p in given if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    several = next((names for names in (list(named), needed) if len(names) > 1), None)
    if several is not None:
        raise ExternalModelError(
            f"{target} takes the inputs {', '.join(several)}, and a run gives one batch; name a function that wraps"
            " it in a model of one input"
        )


def probed_shape(shape: tuple[int, ...], spec: TrainSpec, target: Target) -> None:
    """Raise ExternalModelError where `PROBED` samples give outputs of another shape than the spec says."""
    expected = (PROBED, *spec.model.output_shape())
    if shape != expected:
        raise ExternalModelError(
            f"{target} gives outputs of shape {shape} for {PROBED} samples of shape {spec.model.input_shape}, the spec"
            f" says {expected}"
        )


def forget_object(target: Target, kind: type | tuple[type, ...]) -> None:
    """Have the module of a target imported again that names a model as such, and no way to make one.

    Every run of a process needs one of its own, made within its strategy.
    """
    module = sys.modules.get(target.module)
    if isinstance(getattr(module, target.attribute, None), kind):
        del sys.modules[target.module]


def drawing(layer: Imported, target: Target, name: str, attribute: str, rate: Any) -> None:
    """Raise ExternalModelError where a layer drops a part of what it computes, and the spec does not turn that off."""
    if layer.stochastic != "off":
        raise ExternalModelError(
            f"{target}: layer {name!r} has {attribute} {rate}, and the frameworks draw differently; set"
            " stochastic: off, which makes it 0 in both, or build the model without"
        )
