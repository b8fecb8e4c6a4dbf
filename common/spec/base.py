"""What every spec shares: frozen, strict about unknown keys, resolvable, hashed, readable errors."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError, model_validator
from typing_extensions import Self

from parity.common.base.errors import SpecError, did_you_mean

Convention = Literal["keras", "torch"]
# Field -> its value under each convention, in this order.
Conventions = Mapping[str, tuple[Any, Any]]


# Of more kinds than this an error names only the one that looks like what was given.
_KINDS_SHOWN = 12
# Kinds and fields as Keras and PyTorch call them, for messages; what is called alike but for capitals is not listed.
FRAMEWORK_NAMES = {
    "CrossEntropyLoss": "softmax_cross_entropy",
    "SparseCategoricalCrossentropy": "softmax_cross_entropy",
    "CategoricalCrossentropy": "softmax_cross_entropy",
    "NLLLoss": "softmax_cross_entropy",
    "BCEWithLogitsLoss": "binary_cross_entropy",
    "BCELoss": "binary_cross_entropy",
    "BinaryCrossentropy": "binary_cross_entropy",
    "MSE": "mean_squared_error",
    "MSELoss": "mean_squared_error",
    "MAE": "mean_absolute_error",
    "L1Loss": "mean_absolute_error",
    "SmoothL1Loss": "huber",
    "KLDivLoss": "kl_divergence",
    "Linear": "dense",
    "ReLU": "activation",
    "GELU": "activation",
    "Softmax": "activation",
    "swish": "silu",
    "hard_silu": "hard_swish",
    "AvgPool2d": "average_pool2d",
    "MultiHeadAttention": "self_attention",
    "MultiheadAttention": "self_attention",
    "BatchNormalization": "batch_norm",
    "BatchNorm2d": "batch_norm",
    "LayerNormalization": "layer_norm",
    "CosineAnnealingLR": "warmup_cosine",
    "StepLR": "step",
    "double": "float64",
    "fp64": "float64",
    "fp32": "float32",
    "bf16": "bfloat16_mixed",
    "bfloat16": "bfloat16_mixed",
    "fp16": "float16_mixed",
    "float16": "float16_mixed",
    "fp8": "float8_mixed",
    "lr": "learning_rate",
    "eps": "epsilon",
    "betas": "beta_1",
    "pos_weight": "positive_weight",
    "ignore_index": "ignore",
    "ignore_class": "ignore",
    "out_features": "units",
    "batch_size": "global_batch_size",
    "epochs": "steps",
}

# Strict, since pydantic would take true for 1.
Number = Annotated[float, Strict()]
PositiveInt = Annotated[int, Strict(), Field(gt=0)]
NonNegativeInt = Annotated[int, Strict(), Field(ge=0)]


class Spec(BaseModel):
    """Frozen, validated data. A field left None takes the value that the convention names.

    `conventions`: what such a field takes under (keras, torch); `resolve` writes it out.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    conventions: ClassVar[Conventions] = {}

    @model_validator(mode="after")
    def _texts_are_printable(self) -> Self:
        for name, value in self.__dict__.items():
            if isinstance(value, str | tuple | dict):
                _check_text(value, name)
        return self

    @classmethod
    def parse(cls, data: Any) -> Self:
        """Validate plain data; raise SpecError with one line naming field, value and what is allowed."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise SpecError(explain(error, data, cls.__name__, cls)) from None

    def resolve(self, convention: Convention) -> Self:
        """The same spec with every field that follows a convention written out."""
        return type(self).parse(_plain(self, convention))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data with every field."""
        result: dict[str, Any] = self.model_dump(mode="json")
        return result

    def given(self) -> dict[str, Any]:
        """Plain JSON data with only the fields that were given, and each `kind`."""
        result: dict[str, Any] = _given(self)
        return result

    def chosen(self) -> dict[str, Any]:
        """The fields that differ from their defaults."""
        fields = type(self).model_fields
        return {name: getattr(self, name) for name in fields if getattr(self, name) != fields[name].default}

    def content_hash(self) -> str:
        """16 hexadecimal digits of the SHA-256 of the canonical JSON. Stable across machines.

        Where a `sha256` beside them says what files hold, it does not matter where they are.
        """
        return _hash(_without_places(self.to_dict()))

    def earlier_hash(self) -> str:
        """The `content_hash` of version 0.1, which depends on where files are."""
        return _hash(self.to_dict())


def _check_text(value: Any, name: str) -> None:
    """Raise ValueError for text that would write more on a terminal than itself, or break a line of a script or a manifest."""
    if isinstance(value, str):
        if not value.replace("\t", "").isprintable():  # a tab may separate columns
            raise ValueError(f"{name} has control characters: {value[:80]!a}")
    elif isinstance(value, dict):
        _check_text((*value, *value.values()), name)
    elif isinstance(value, tuple):
        for item in value:
            _check_text(item, name)


def _hash(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _without_places(data: Any) -> Any:
    """Plain data without the paths of files whose SHA-256 is given beside them."""
    if isinstance(data, list):
        return [_without_places(item) for item in data]
    if not isinstance(data, dict):
        return data
    pinned = data.get("sha256") is not None
    return {
        name: _without_places(value)
        for name, value in data.items()
        if not (pinned and (name == "weights" or name.endswith("path")))
    }


def with_new_names(data: Any, names: Mapping[str, str]) -> Any:
    """Return plain data with the keys of earlier versions (`names`: old -> new) under their names of today."""
    if not isinstance(data, Mapping) or any(new in data for new in names.values()):
        return data
    return {names.get(key, key): value for key, value in data.items()}


def _plain(value: Any, convention: Convention) -> Any:
    if isinstance(value, Spec):
        place = get_args(Convention).index(getattr(value, "convention", None) or convention)
        return {
            name: value.conventions[name][place]
            if getattr(value, name) is None and name in value.conventions
            else _plain(getattr(value, name), convention)
            for name in type(value).model_fields
        }
    if isinstance(value, tuple):
        return [_plain(item, convention) for item in value]
    return value


def _given(value: Any) -> Any:
    if isinstance(value, Spec):
        return {
            name: _given(getattr(value, name))
            for name in type(value).model_fields
            if name == "kind" or name in value.model_fields_set
        }
    if isinstance(value, tuple):
        return [_given(item) for item in value]
    return value


def explain(error: ValidationError, data: Any, where: str, spec: Any = None) -> str:
    """One line for the first problem of a pydantic error, with a count of the others.

    Args:
        error: what pydantic found.
        data: what was to be read.
        where: what it is called, where the problem is in no field.
        spec: the class or union of classes, whose fields are then suggested for one that it does not have.
    """
    problems = error.errors(include_url=False)
    # A field that is lacking may be the one that is misspelled.
    first = next((each for each in problems if each["type"] == "extra_forbidden"), problems[0])
    # pydantic puts union tags into the location; keep only what the user wrote.
    path: list[str] = []
    here: Any = data
    for part in first["loc"]:
        if isinstance(here, list | tuple):
            here = dict(enumerate(here))
        if isinstance(here, Mapping) and part in here:
            here = here[part]
        elif part != first["loc"][-1]:
            continue
        path.append(str(part))
    field = _printable(".".join(path) or where)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("union_tag_invalid", "union_tag_not_found"):
        line = (f"{field}: " if path else "") + _kinds(first.get("ctx", {}), first["input"])
    elif first["type"] == "missing":
        line = f"{field}: this field is required"
    elif first["type"] == "extra_forbidden":
        near = did_you_mean(first["loc"][-1], _fields_at(spec, first["loc"][:-1]), FRAMEWORK_NAMES)
        lists = "; 'parity show --schema' lists the known ones"
        line = f"{field}: unknown key{near or lists}"
    elif first["type"] == "literal_error":
        allowed = re.findall(r"'([^']*)'|\b(\d+)\b", first["ctx"]["expected"])
        names = [word or number for word, number in allowed]
        near = did_you_mean(first["input"], names, FRAMEWORK_NAMES)
        line = f"{field}: expected one of {', '.join(names)}, received {_short(first['input'])}{near}"
    elif first["type"] == "model_attributes_type":
        line = f"{field}: needs fields, such as {field}.kind=..., received {_short(first['input'])}"
    elif isinstance(first["input"], Mapping | BaseModel) and (not path or _fields_at(spec, first["loc"])):
        # Of all fields together: the message says what was wrong with them.
        line = f"{field}: {message}" if path else message
    else:
        line = f"{field}: {message}, received {_short(first['input'])}"
    # A field that is lacking because it is misspelled is no mistake of its own.
    meant = {f"did you mean {each['loc'][-1]!r}?" for each in problems if each["type"] == "missing"}
    more = len(problems) - 1 - any(line.endswith(words) for words in meant)
    if more:
        line += f" (and {more} more mistake{'s' * (more > 1)})"
    return line


def _kinds(context: Mapping[str, Any], value: Any) -> str:
    """Which kinds there are, or where they are many, the ones that look most like the given one."""
    match = re.findall(r"'([a-z0-9_]+)'", str(context.get("expected_tags", "")))
    given = value.get("kind") if isinstance(value, Mapping) else getattr(value, "kind", None)
    known = match or ["see parity show --schema"]
    text = (
        f"one of {', '.join(known)}"
        if len(known) <= _KINDS_SHOWN
        else f"the documentation's page Vocabulary lists all {len(known)}"
    )
    if given is None:
        received = "" if isinstance(value, Mapping) else f", received {_short(value)}"
        return f"needs a kind: {text}{received}{did_you_mean(value, known, FRAMEWORK_NAMES)}"
    return f"unknown kind {_short(given)}: {text}{did_you_mean(given, known, FRAMEWORK_NAMES)}"


def _fields_at(spec: Any, location: Sequence[int | str]) -> list[str]:
    """The fields of the part of a spec that pydantic means by a location; none where it is not known."""
    for part in location:
        known = spec.model_fields if _is_model(spec) else {}
        spec = _member(known[part].annotation if part in known else spec, part)
    return list(spec.model_fields) if _is_model(spec) else []


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _member(annotation: Any, part: int | str) -> Any:
    """The class within an annotation: of a union, the one of a kind, or the only one."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation
    inner = get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _member(inner[0], part)
    if get_origin(annotation) in (Union, UnionType):
        kinds = [each for each in inner if _is_model(each)]
        chosen = [
            each
            for each in kinds
            if "kind" in each.model_fields and each.model_fields["kind"].default == part
        ]
        return chosen[0] if chosen else kinds[0] if len(kinds) == 1 else annotation
    return _member(inner[0], part) if inner else annotation


def _printable(text: str) -> str:
    """`text` on one line: keys are what a user wrote."""
    return text if text.isprintable() else ascii(text)[1:-1]


def _short(value: Any) -> str:
    text = repr(value)
    if isinstance(value, Mapping):
        # As it was typed: {0: 8, 5: 4}.
        text = _printable(f"{{{', '.join(f'{name}: {each}' for name, each in value.items())}}}")
    elif isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
        text = f"a list of {len(value)}"
    return text if len(text) <= 80 else text[:77] + "..."
