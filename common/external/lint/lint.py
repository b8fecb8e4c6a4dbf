"""Every difference of settings between two built models and their optimizers, before a step is trained."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from parity.common.external.lint.alignment import aligned
from parity.common.external.lint.effective import Item, attention_parts, compared, effective, items_of
from parity.common.external.lint.optimizer_settings import OPTIMIZERS
from parity.common.external.lint.settings import LAYERS, PLUMBING, ROWS, Changes, Meaning, said
from parity.common.spec.base import Spec
from parity.common.spec.external.mapping import LayerPair
from parity.common.spec.external.outline import LayerInfo, OptimizerInfo, Outline, Setting

# Kinds that compute the same where a convolution's window is one cell.
_PRODUCTS = frozenset({"dense", "einsum_dense", "conv1d", "conv2d", "conv3d"})
_SHARED = (
    "use_bias",
    "kernel_initializer",
    "bias_initializer",
    "kernel_regularizer",
    "bias_regularizer",
    "trainable",
)
_KIND = Meaning(None, "forward", "a layer of kind {v}", "a layer of kind {v}")
_OPTIMIZER_KIND = Meaning(None, "update", "an optimizer of kind {v}", "an optimizer of kind {v}")
# Of no consequence once the weights are mapped and copied.
MAPPED_AWAY = {"layout": "of layout", "initial values": "of initial values"}
_PROBABILITIES = ("softmax", "sigmoid", "log_softmax")


class Difference(Spec):
    """One setting that the two sides do not share.

    keras, torch: paths of the layers; None for the optimizer, and for the side that has no such layer. kind: of the
    layer or optimizer. setting: its canonical name; 'counterpart' where only one side has the layer, 'kind' where
    the two are of different kinds. row: of DIFFERENCES, None where it has none. changes: what the two models do
    differently; 'layout' changes nothing once the weights are mapped. fix_keras, fix_torch: how to give that side
    the other's value. keras_padded, torch_padded: of a padding, the part that a layer of zeros before adds.
    """

    keras: str | None
    torch: str | None
    kind: str
    setting: str
    keras_value: Setting
    torch_value: Setting
    row: int | None
    changes: Changes
    fix_keras: str
    fix_torch: str
    keras_padded: tuple[int, ...] = ()
    torch_padded: tuple[int, ...] = ()

    @property
    def fix(self) -> str:
        """What to do in the port, torch's."""
        return f"in torch: {self.fix_torch}"

    @property
    def defect(self) -> str:
        """What differs, wherever it does: setting and both values."""
        return f"{self.setting} {self.keras_value!r} {self.torch_value!r}"

    @property
    def where(self) -> str:
        """The layer, by both names where these differ."""
        if self.keras and self.torch and self.keras != self.torch:
            return f"{self.keras} ({self.torch} in torch)"
        return self.keras or self.torch or ("the optimizer" if self.changes == "update" else "the model")

    @property
    def text(self) -> str:
        """What differs, in one sentence."""
        row = "" if self.row is None else f" (row {self.row}: {ROWS.get(self.row, 'DIFFERENCES')})"
        ours, theirs = self.keras_value, self.torch_value
        if self.setting == "counterpart":
            side, other = ("Keras", "torch") if ours is not None else ("torch", "Keras")
            return f"{side} has {self.where} ({said(ours or theirs)}), and {other} has none{row}"
        return f"{self.setting} of {self.where} is {said(ours)} in Keras and {said(theirs)} in torch{row}"


class Unread(Spec):
    """What was not compared. what: 'layer', 'optimizer', or the setting. why: for people."""

    keras: str | None
    torch: str | None
    what: str
    why: str


class Audit(Spec):
    """differences, in the order of the models. pairs: the layers that were compared."""

    differences: tuple[Difference, ...]
    unread: tuple[Unread, ...]
    pairs: tuple[LayerPair, ...]

    @property
    def differ(self) -> bool:
        """Whether the two would train differently with equal weights: neither layouts nor initial values count."""
        return any(found.changes not in MAPPED_AWAY for found in self.differences)


def said_of(differences: Sequence[Difference]) -> list[str]:
    """Return differences as sentences, one for what differs alike in several layers."""
    groups: dict[str, list[Difference]] = {}
    for each in differences:
        groups.setdefault(each.defect, []).append(each)
    return [
        group[0].text + (f", and so of {len(group) - 1} more" if len(group) > 1 else "")
        for group in groups.values()
    ]


def lint(keras: Outline, torch: Outline, layers: Sequence[LayerPair] | None = None) -> list[Difference]:
    """Every difference of settings; `audit` says also what was not compared."""
    return list(audit(keras, torch, layers).differences)


def audit(keras: Outline, torch: Outline, layers: Sequence[LayerPair] | None = None) -> Audit:
    """Compare what can be compared.

    Args:
        keras, torch: with a traced pass, else paddings that depend on sizes, functions and the order of calls are
            not known.
        layers: which layers correspond, as in a mapping; those that it does not name are aligned by their order,
            their kinds and the sizes of what they give.
    """
    unread: list[Unread] = []
    sides = [_known(outline, unread) for outline in (keras, torch)]
    whole = [{item.path: item for item in side if item.kind == "attention"} for side in sides]
    if bool(whole[0]) != bool(whole[1]):
        sides = [[part for item in side for part in attention_parts(item)] for side in sides]
    found = aligned(sides[0], sides[1], [(pair.keras, pair.torch) for pair in layers or ()])
    differences: list[Difference] = []
    for left, right in found.pairs:
        differences += _pair(left, right, unread)
    for left, right in found.displaced:
        why = "they are called in another order than the layers around them: alike only if that is of no consequence"
        unread.append(Unread(keras=left.path, torch=right.path, what="order", why=why))
    ends = [side[-1:] for side in sides]
    named = {(item.framework, item.path) for pair in found.pairs for item in pair}
    for item in found.alone:
        # Of an attention that is several layers elsewhere, one may be within another.
        if item.part and item.kind in ("dense", "activation"):
            path = item.framework, item.path
            if path not in named:
                named.add(path)
                differences.append(_without(whole[item.framework == "torch"][item.path], last=False))
        elif not item.inside_attention:
            differences.append(_without(item, last=any(item in end for end in ends)))
    differences += of_optimizers(keras.optimizer, torch.optimizer, unread)
    return Audit(
        differences=tuple(differences),
        unread=tuple(unread),
        pairs=tuple(LayerPair(keras=left.path, torch=right.path) for left, right in found.pairs),
    )


def _known(outline: Outline, unread: list[Unread]) -> list[Item]:
    """The layers and functions that are compared, in the order of the pass; the others are listed as not read."""
    infos: dict[str, LayerInfo] = {info.path: info for info in (*outline.layers, *outline.operations)}
    order = list(outline.order) or list(_defined(outline))
    for info in outline.layers:
        if info.kind in PLUMBING:
            continue
        if info.kind not in LAYERS:
            kind = f" ({info.kind})" if info.kind else ""
            unread.append(_layer(outline, info.path, f"{info.type}{kind} is none that is known"))
        elif info.path not in order:
            unread.append(_layer(outline, info.path, "the pass did not call it"))
        elif info.overridden:
            why = f"{info.type} computes in a way of its own; only its attributes were compared"
            unread.append(_layer(outline, info.path, why))
    called = [infos[path] for path in order if infos[path].kind in LAYERS or infos[path].kind in PLUMBING]
    items = items_of(called, outline.framework)
    for item in items:
        function = item.info.settings.get("function")
        if item.kind == "activation" and isinstance(function, str) and "." in function:
            unread.append(_layer(outline, item.path, f"the function {function} is none that is known"))
    return [item for item in items if "." not in str(item.info.settings.get("function", ""))]


def _defined(outline: Outline) -> Iterator[str]:
    """Layers in the order of definition, each with its operations after it."""
    for info in outline.layers:
        yield info.path
        yield from (found.path for found in outline.operations if found.owner == info.path)


def _layer(outline: Outline, path: str, why: str) -> Unread:
    keras = outline.framework == "tensorflow"
    return Unread(keras=path if keras else None, torch=None if keras else path, what="layer", why=why)


def _pair(left: Item, right: Item, unread: list[Unread]) -> Iterator[Difference]:
    paths = left.path, right.path
    keras, torch = effective(left, right), effective(right, left)
    meanings = LAYERS[left.kind]
    if left.kind != right.kind:
        if not {left.kind, right.kind} <= _PRODUCTS:
            yield _difference(paths, left.kind, "kind", left.kind, right.kind, _KIND)
            return
        why = f"{left.kind} against {right.kind}: only {', '.join(_SHARED)} were compared"
        unread.append(Unread(keras=left.path, torch=right.path, what="layer", why=why))
        shared = LAYERS["dense"]
        meanings = {name: shared[name] for name in _SHARED}
    for name, meaning in meanings.items():
        if not compared(left.kind, name, keras, torch) or (name not in keras and name not in torch):
            continue
        missing = [side for side, found in (("keras", keras), ("torch", torch)) if name not in found]
        if missing and not meaning.optional:
            value = said(keras.get(name, torch.get(name)))
            other = "torch" if missing[0] == "keras" else "keras"
            why = f"{missing[0]}'s could not be read ({other} has {value})"
            unread.append(Unread(keras=left.path, torch=right.path, what=name, why=why))
        elif not same(keras.get(name), torch.get(name)):
            found = _difference(paths, left.kind, name, keras.get(name), torch.get(name), meaning)
            if name == "padding":
                # Without strides there is nothing to know of the frameworks.
                row = found.row if any(n != 1 for n in _strides(keras) + _strides(torch)) else None
                update = {"keras_padded": left.padded, "torch_padded": right.padded, "row": row}
                found = found.model_copy(update=update)
            yield found


def _strides(settings: Mapping[str, Setting]) -> tuple[int, ...]:
    strides = settings.get("strides")
    return strides if isinstance(strides, tuple) else (1,)


def _difference(
    paths: tuple[str, str] | None, kind: str, name: str, keras: Setting, torch: Setting, meaning: Meaning
) -> Difference:
    """The difference of a setting; `paths` of the two layers, None of optimizers."""
    # One of two initialisers is the other but for what is cut off far out, or says so itself.
    only_cut = "truncated" in f"{keras} {torch}" or f"{keras}_uncut" == torch
    row = 44 if name.endswith("_initializer") and only_cut else meaning.row
    return Difference(
        keras=paths and paths[0],
        torch=paths and paths[1],
        kind=kind,
        setting=name,
        keras_value=keras,
        torch_value=torch,
        row=row,
        changes=meaning.changes,
        fix_keras=meaning.fix("keras", torch),
        fix_torch=meaning.fix("torch", keras),
    )


def _without(item: Item, last: bool) -> Difference:
    """Of a layer that the other side has not; `last`: whether the model ends with it."""
    keras = item.framework == "tensorflow"
    value = _described(item)
    changes: Changes = "layout" if item.kind == "flatten" else "forward"
    if item.kind.endswith("dropout"):
        changes = "training mode"
    row = 32 if last and item.info.settings.get("function") in _PROBABILITIES else None
    add, remove = f"add {value}", "remove it"
    if row is not None:
        # Before a loss that takes logits it would be a mistake of its own.
        logits = "no activation in Keras's last layer, and from_logits=True in its loss"
        if keras:
            add += f", if its loss takes probabilities; else let both end in logits: {logits}"
        else:
            remove += ", as nn.CrossEntropyLoss and nn.BCEWithLogitsLoss take logits"
    return Difference(
        keras=item.path if keras else None,
        torch=None if keras else item.path,
        kind=item.kind,
        setting="counterpart",
        keras_value=value if keras else None,
        torch_value=None if keras else value,
        row=row,
        changes=changes,
        fix_keras=remove if keras else add,
        fix_torch=add if keras else remove,
    )


def _described(item: Item) -> str:
    shown = {"activation": ("function", "negative_slope"), "dropout": ("rate",)}.get(item.kind, ())
    values = [said(item.info.settings[name]) for name in shown if name in item.info.settings]
    return f"{item.kind} {', '.join(values)}" if values else item.kind


def same(left: Setting, right: Setting) -> bool:
    """Equal; numbers up to what writing one minus itself rounds."""
    numbers = [v for v in (left, right) if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == 2:
        return math.isclose(numbers[0], numbers[1], rel_tol=1e-9)
    return left == right


def of_optimizers(
    keras: OptimizerInfo | None, torch: OptimizerInfo | None, unread: list[Unread]
) -> Iterator[Difference]:
    """What two optimizers are set to otherwise; one that there is not, or of a kind that is not known, goes to `unread`."""
    if keras is None and torch is None:
        return
    for name, info in (("keras", keras), ("torch", torch)):
        if info is None or info.kind not in OPTIMIZERS:
            why = f"{name} has none" if info is None else f"{info.type} is none that is known"
            unread.append(Unread(keras=None, torch=None, what="optimizer", why=why))
    if keras is None or torch is None or keras.kind not in OPTIMIZERS or torch.kind not in OPTIMIZERS:
        return
    yield from optimizer_differences(keras, torch, unread)


def optimizer_differences(
    keras: OptimizerInfo, torch: OptimizerInfo, unread: list[Unread]
) -> Iterator[Difference]:
    """What two optimizers of known kinds are set to otherwise; masks that cannot be compared go to `unread`."""
    # Adam with decoupled decay is AdamW, whatever its class is called.
    kinds = ["adam" if info.kind == "adamw" else info.kind for info in (keras, torch)]
    meanings = OPTIMIZERS[keras.kind if keras.kind == torch.kind else kinds[0]]
    if kinds[0] != kinds[1]:
        yield _difference(None, keras.kind, "kind", keras.kind, torch.kind, _OPTIMIZER_KIND)
        meanings = {name: meaning for name, meaning in meanings.items() if name in OPTIMIZERS[kinds[1]]}
    left, right = keras.settings, torch.settings
    for name, meaning in meanings.items():
        if not _optimizer_compared(name, left, right):
            continue
        values = (left.get(name), right.get(name))
        if name == "decay_mask" and "all" not in values and values[0] != values[1]:
            why = f"keras has {values[0]}, torch {values[1]}, which need not be different"
            unread.append(Unread(keras=None, torch=None, what=name, why=why))
        elif not same(*values):
            yield _difference(None, keras.kind, name, *values, meaning)


def _optimizer_compared(name: str, keras: dict[str, Any], torch: dict[str, Any]) -> bool:
    if name in ("weight_decay_mode", "decay_mask"):
        return bool(keras.get("weight_decay") and torch.get("weight_decay"))
    if name in ("momentum_form", "nesterov", "dampening"):
        return bool(keras.get("momentum") and torch.get("momentum"))
    return True
