"""Which tensors of a Keras model are which of a torch model, and how their layouts relate: mapping.yaml.

Keras's names and layouts are the canonical ones.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator
from typing_extensions import Self

from parity.common.base.errors import ExternalModelError, SpecError, check_printable
from parity.common.base.files import replacing
from parity.common.base.words import listed
from parity.common.base.yaml import dump_plain, parse_yaml
from parity.common.spec.base import Spec
from parity.common.spec.external.outline import Outline
from parity.common.spec.external.patterns import Array, Rearranged, Rule
from parity.common.spec.external.rules import parse_rule
from parity.common.spec.io import read_text

Source = Literal["name", "order", "shape", "probed", "hand"]
State = dict[str, Array]

_SIZE_LIMIT = 4 * 1024 * 1024
_NAMES_SHOWN = 3

_HEADER = """\
# Which Keras tensors are which torch tensors. Edit it freely: what stands here wins over what would be proposed.
#
# tensors:  keras and torch name the tensors (a list where several become one), rule says how layouts relate:
#           same, transpose (dense), conv (HWIO to OIHW), depthwise, flatten(height,width,channels), heads(12), ...,
#           or a pattern of axes, Keras's first, such as 'n d h k -> (n h k) d; h=12'.
#           source says how it was found: by name, order, shape, probed (by experiment) or hand (by you).
# doubtful: as tensors; nothing has confirmed these. Take away 'doubt', or move the line, once you are sure.
# ignored:  tensors that need no counterpart, and why. tied: other names of a tensor that is listed.
# unmapped: tensors without a counterpart: give each a line in tensors, or in ignored.
# layers:   layers whose outputs are compared.
"""


# How a doubt begins that is one of the layout.
ALSO_FITS = "its shape also fits"


class Pair(Spec):
    """Tensors that hold the same numbers.

    keras, torch: names; one of them is empty for a tensor that only one side has (rule constant).
    rule: see `rules`. source: how it was found. doubt: why it may be wrong, None where it is not doubted.
    note: what training by it cannot keep equal.
    """

    keras: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()
    rule: str
    source: Source = "hand"
    doubt: str | None = None
    note: str | None = None

    @field_validator("keras", "torch", mode="before")
    @classmethod
    def _listed(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _readable(self) -> Self:
        try:
            parse_rule(self.rule)
        except ExternalModelError as error:
            raise ValueError(str(error)) from None
        if not self.keras and not self.torch:
            raise ValueError("a line of tensors names at least one")
        return self

    @property
    def parsed(self) -> Rule:
        """The rule, ready for use."""
        return parse_rule(self.rule)

    @property
    def moves_units(self) -> bool:
        """Whether torch's layer has its units in another order, as before a reshape to another layout."""
        rule = self.parsed
        if not isinstance(rule, Rearranged) or not rule.keras:
            return False
        units = rule.keras[-1]
        return len(units) > 1 and any(axis != units and set(axis) == set(units) for axis in rule.torch)

    @property
    def is_ambiguous(self) -> bool:
        """Whether only its order, or nothing, tells it from others that would fit, and no experiment has."""
        return self.doubt is not None and (self.source == "order" or ALSO_FITS in self.doubt)

    @property
    def label(self) -> str:
        """For messages: 'a/kernel <-> a.weight'."""
        return " <-> ".join(", ".join(names) or "(none)" for names in (self.keras, self.torch))


class LayerPair(Spec):
    """Layers whose outputs are the same numbers, but for the layout: their paths in the two outlines."""

    keras: str
    torch: str


class Reasons(Spec):
    """Of either side, names and a text for each."""

    keras: dict[str, str] = {}
    torch: dict[str, str] = {}


class Names(Spec):
    """Of either side, names."""

    keras: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()


class Mapping(Spec):
    """Of two models.

    keras, torch: the targets, '' where none is known, as of scripts. ignored: why a tensor needs no counterpart. tied: names of a tensor that has another
    name, and that other name. Every name stands once.
    """

    keras: str = ""
    torch: str = ""
    layers: tuple[LayerPair, ...] = ()
    tensors: tuple[Pair, ...] = ()
    ignored: Reasons = Field(default_factory=Reasons)
    tied: Reasons = Field(default_factory=Reasons)
    unmapped: Names = Field(default_factory=Names)

    @model_validator(mode="after")
    def _once(self) -> Self:
        for side in ("keras", "torch"):
            counts = Counter(self.names(side))
            twice = [name for name, count in counts.items() if count > 1]
            if twice:
                raise ValueError(f"the {side} tensor {twice[0]!r} is named twice")
        return self

    def names(self, side: str) -> Iterator[str]:
        """All names of 'keras' or 'torch', unmapped ones too."""
        for pair in self.tensors:
            yield from getattr(pair, side)
        for rest in (self.ignored, self.tied, self.unmapped):
            yield from getattr(rest, side)

    @property
    def doubtful(self) -> tuple[Pair, ...]:
        """The pairs that nothing has confirmed."""
        return tuple(pair for pair in self.tensors if pair.doubt is not None)

    def to_torch(self, state: State, partial: bool = False) -> State:
        """Torch's tensors, tied names included, from Keras's.

        Args:
            state: by name; ignored, tied and unmapped ones are left out.
            partial: whether pairs of which `state` lacks a tensor are left out, and are no error; tensors that only
                torch has are then left out too.

        Raises:
            ExternalModelError: a tensor is missing, unknown, or of a shape that its rule does not fit.
        """
        return self._moved("keras", "torch", state, partial)

    def to_keras(self, state: State, partial: bool = False) -> State:
        """Keras's tensors from torch's, as `to_torch`."""
        return self._moved("torch", "keras", state, partial)

    def gradients_to_keras(self, gradients: State) -> State:
        """Gradients with respect to Keras's tensors, from those with respect to torch's, as far as there are any.

        For rules that are no bijection see `rules`.
        """
        found: State = {}
        for pair in self.tensors:
            given = [gradients[name] for name in pair.torch if name in gradients]
            # Of two biases that are only ever added, either has the gradient: one may be frozen.
            if pair.keras and given and (len(given) == len(pair.torch) or pair.rule == "two_biases"):
                with _naming(pair):
                    arrays = pair.parsed.gradients(given, len(pair.keras))
                if arrays:
                    found |= dict(zip(pair.keras, arrays, strict=True))
        return found

    def _moved(self, source: str, target: str, state: State, partial: bool) -> State:
        known = set(self.names(source))
        unknown = next((name for name in state if name not in known and not is_counter(name)), None)
        if unknown is not None:
            raise ExternalModelError(
                f"the mapping does not name the {source} tensor {unknown!r}{_near(unknown, known)}; give it a line in tensors or, with the reason,"
                " in ignored"
            )
        # Of what only one side has: as the others are.
        kind = next((array.dtype for array in state.values() if array.dtype.kind == "f"), None)
        found: State = {}
        for pair in self.tensors:
            given, wanted = getattr(pair, source), getattr(pair, target)
            missing = next((name for name in given if name not in state), None)
            if partial and (missing is not None or not given):
                continue
            if missing is not None:
                raise ExternalModelError(
                    f"the {source} tensor {missing!r}, which the mapping names, is missing"
                )
            convert = pair.parsed.to_torch if target == "torch" else pair.parsed.to_keras
            with _naming(pair):
                arrays = convert([state[name] for name in given], len(wanted))
            if not given and kind is not None:
                arrays = [array.astype(kind) for array in arrays]
            found |= dict(zip(wanted, arrays, strict=False))
        tied = getattr(self.tied, target)
        return found | {name: found[other] for name, other in tied.items() if other in found}

    def check_names(self, side: str, names: Collection[str], where: str) -> None:
        """Raise ExternalModelError, in one line, unless all tensors of 'keras' or 'torch' that have a counterpart are among some names."""
        named = (name for pair in self.tensors for name in getattr(pair, side))
        if missing := next((name for name in named if name not in names), None):
            raise ExternalModelError(
                f"{where} has no tensor {missing!r}, which the mapping names{_near(missing, names)}"
            )

    def check(self, keras: Outline, torch: Outline, unmapped: bool = False) -> None:
        """Raise ExternalModelError, in one line that names a tensor, unless all tensors are mapped and fit.

        Args:
            keras, torch: the models.
            unmapped: whether tensors may stand in `unmapped`.
        """
        every = []
        for side, outline in (("keras", keras), ("torch", torch)):
            shapes = {info.name: info.shape for info in outline.tensors}
            every.append(shapes)
            named = set(self.names(side))
            for name in named - shapes.keys():
                raise ExternalModelError(f"{outline.target} has no tensor {name!r}{_near(name, shapes)}")
            for name in shapes:
                if name not in named and not is_counter(name):
                    raise ExternalModelError(
                        f"{outline.target}: the mapping does not name {name!r} {shapes[name]}"
                    )
            left = getattr(self.unmapped, side)
            if left and not unmapped:
                names = listed((f"{name!r} {shapes[name]}" for name in left), _NAMES_SHOWN)
                raise ExternalModelError(
                    f"{outline.target}: no counterpart is known of {names}; give each a line in"
                    " mapping.yaml, in tensors or, with the reason, in ignored"
                )
        for pair in self.tensors:
            ours, theirs = [every[0][name] for name in pair.keras], [every[1][name] for name in pair.torch]
            with _naming(pair):
                there = pair.parsed.torch_shapes(ours, len(theirs))
                back = pair.parsed.keras_shapes(theirs, len(ours))
            if there != theirs or back != ours:
                said = [", ".join(map(str, shape)) for shape in (ours, there, theirs)]
                raise ExternalModelError(
                    f"{pair.label}: rule {pair.rule!r} takes {said[0]} to {said[1]}, and torch's is {said[2]}"
                )


def counts_batches(name: str) -> bool:
    """Return whether a torch buffer says how often statistics were updated: only a momentum of None makes use of it."""
    return name.rpartition(".")[2] == "num_batches_tracked"


def is_counter(name: str) -> bool:
    """Return whether a torch buffer only counts, batches or the models that an AveragedModel has averaged, so that no mapping need name it."""
    return counts_batches(name) or name.rpartition(".")[2] == "n_averaged"


@contextmanager
def _naming(pair: Pair) -> Iterator[None]:
    """Puts the pair that is at work before the text of a ExternalModelError."""
    try:
        yield
    except ExternalModelError as error:
        raise ExternalModelError(f"{pair.label}: {error}") from None


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(known), 3, 0.6)
    return f"; closest are {', '.join(map(repr, near))}" if near else ""


def write_mapping(path: Path, mapping: Mapping) -> None:
    """Write mapping.yaml, for a person to read and to edit: one line a tensor, the doubtful first."""
    with replacing(path) as temporary:
        temporary.write_text("\n".join(_lines(mapping)) + "\n", encoding="utf-8")


def _lines(mapping: Mapping) -> Iterator[str]:
    yield _HEADER
    yield f"keras: {_flow(mapping.keras)}"
    yield f"torch: {_flow(mapping.torch)}"
    doubtful = mapping.doubtful
    if doubtful:
        yield from ("", f"doubtful: # {len(doubtful)} of {len(mapping.tensors)}")
        yield from _pairs(doubtful)
    for title, rest in (("unmapped", mapping.unmapped), ("ignored", mapping.ignored), ("tied", mapping.tied)):
        if rest.keras or rest.torch:
            yield from ("", f"{title}:")
            for side in ("keras", "torch"):
                names = getattr(rest, side)
                if names:
                    yield f"  {side}:"
                    if isinstance(names, dict):
                        yield from (f"    {_flow(name)}: {_flow(why)}" for name, why in names.items())
                    else:
                        yield from (f"    - {_flow(name)}" for name in names)
    yield from ("", "tensors:" if len(doubtful) < len(mapping.tensors) else "tensors: []")
    yield from _pairs(pair for pair in mapping.tensors if pair.doubt is None)
    yield from ("", "layers:" if mapping.layers else "layers: []")
    yield from (f"  - {_flow(layer.to_dict())}" for layer in mapping.layers)


def _pairs(pairs: Iterable[Pair]) -> Iterator[str]:
    """A line each, under a comment where the Keras layer changes."""
    before = None
    for pair in pairs:
        layer = (pair.keras or pair.torch)[0].rpartition("/" if pair.keras else ".")[0]
        if layer and layer != before and layer.isprintable():
            yield f"  # {layer}"
        before = layer
        data = {
            name: value[0] if isinstance(value, list) and len(value) == 1 else value
            for name, value in pair.to_dict().items()
            if value is not None and value != []
        }
        yield f"  - {_flow(data)}"


def _flow(data: Any) -> str:
    text = dump_plain(data, default_flow_style=True, width=10**6)
    return text.removesuffix("\n").removesuffix("\n...")


def read_mapping(path: Path) -> Mapping:
    """Read mapping.yaml. Raises ExternalModelError in one line that says where it is wrong."""
    try:
        data = parse_yaml(read_text(path, _SIZE_LIMIT, "a mapping"), str(path))
        _known(data, [*Mapping.model_fields, "doubtful"], "a mapping")
        for name, line in (("doubtful", Pair), ("tensors", Pair), ("layers", LayerPair)):
            section = data.get(name) or []
            if not isinstance(section, list):
                raise SpecError(f"{name} is a list of lines, received {str(section)[:80]!r}")
            for each in section:
                _known(each, list(line.model_fields), f"a line of {name}")
        for name in ("ignored", "tied", "unmapped"):
            if data.get(name) is not None:
                _known(data[name], ["keras", "torch"], name)
        rest = {name: value for name, value in data.items() if name != "doubtful" and value is not None}
        lines = [*(data.get("doubtful") or []), *(data.get("tensors") or [])]
        mapping = Mapping.parse(rest | {"tensors": lines})
        layers = [path for pair in mapping.layers for path in (pair.keras, pair.torch)]
        check_printable([*mapping.names("keras"), *mapping.names("torch"), *layers], path, SpecError)
        return mapping
    except SpecError as error:
        text = str(error)
        raise ExternalModelError(text if text.startswith(str(path)) else f"{path}: {text}") from None


def _known(data: Any, known: list[str], where: str) -> None:
    """Refuse data that is no mapping of known keys."""
    if not isinstance(data, dict):
        raise SpecError(f"{where} has fields {', '.join(known)}, received {str(data)[:80]!r}")
    for key in data:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, 1, 0.4) or known
            raise SpecError(f"{where} has no field {str(key)[:40]!r}; closest is {near[0]!r}")
