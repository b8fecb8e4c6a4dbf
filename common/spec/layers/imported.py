"""A user's own model as the one layer of a ModelSpec: where each framework finds it, and how the two correspond.

The canonical tensors are those of the Keras model: its names, its shapes, its layouts.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from parity.common.base.errors import SpecError
from parity.common.spec.base import NonNegativeInt, PositiveInt, Spec
from parity.common.spec.layers.base import LayerSpec, ParameterSpec, Shape

_TARGET = r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$"
TorchLayout = Literal["channels_first", "as_is"]


class ExternalTensor(Spec):
    """A weight or a buffer of a user's model, by its own name and in its own layout.

    trainable: whether training updates it; the module that is trained is told so.
    null_direction: why its gradient is zero up to rounding, whatever the data; None for all others.
    """

    name: str = Field(min_length=1)
    shape: tuple[NonNegativeInt, ...]
    trainable: bool = True
    buffer: bool = False
    null_direction: str | None = None

    @model_validator(mode="after")
    def _buffers_are_not_trained(self) -> ExternalTensor:
        if self.buffer and self.trainable:
            raise ValueError(f"tensor {self.name!r} is a buffer, and buffers are not trainable")
        return self


class Pair(Spec):
    """Tensors that are the same numbers in both models. `rule`: how; see `common/spec/external/rules.py`.

    Of a line of mapping.yaml what decides the curve: not where it was found.
    """

    keras: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()
    rule: str


class KeyedDropout(Spec):
    """How the mask of one call that drops is drawn; calls are counted in the order of a pass, those that are off too.

    key: of its random words: two calls that stand for each other have the same, and so the same mask.
    shape: of one sample, in Keras's layout.
    order: of torch's calls: the axes of (batch, *shape) in the order in which torch has them, whose neighbours it may
        have joined or split; (): as they are.
    """

    key: str = Field(min_length=1)
    shape: tuple[PositiveInt, ...]
    order: tuple[NonNegativeInt, ...] = ()


class Imported(LayerSpec):
    """A model that the user wrote for both frameworks.

    Each side trains its own; what a record and a checkpoint hold is canonical. Tensors that no pair names are
    no part of the state: their model keeps them as it made them.

    keras, torch: 'package.module:attribute', importable in each framework's process.
    keras_arguments, torch_arguments: keyword arguments that the attribute is called with.
    keras_tensors, torch_tensors: in the models' own order.
    output: shape of one sample's output, as the Keras model gives it.
    keras_output, torch_output: which output is trained, of a model that gives several; '' where there is one.
    torch_layout: channels_first: the torch model takes and gives images and sequences with the channels before
        the other axes, and is given and asked for them so. torch_output_layout: of the outputs, where it differs.
    weights: a safetensors file with the values of all Keras tensors that pairs name, by their names, before the
        first step; looked up as sources of data are. sha256: of that file.
    statistics: per_replica: layers keep statistics of the samples that their replica has seen, as batch norm does.
    stochastic: off: all rates of dropout are set to 0; none: there are none; keyed: each call that drops is given a mask
        of ours, drawn as keras_dropout and torch_dropout say.
    constants: exact: in float64, TensorFlow keeps the constants of Keras's layers as they are; stock: it takes some
        through float32, which no torch model does; exact_from_build: exact, and torch's model is built with float64
        where its code asks for float32.
    """

    kind: Literal["imported"] = "imported"
    name: str | None = Field(default="model", pattern=r"^[a-z][a-z0-9_]*$")
    keras: str = Field(pattern=_TARGET)
    torch: str = Field(pattern=_TARGET)
    keras_arguments: dict[str, Any] = {}
    torch_arguments: dict[str, Any] = {}
    keras_tensors: tuple[ExternalTensor, ...]
    torch_tensors: tuple[ExternalTensor, ...]
    mapping: tuple[Pair, ...] = Field(min_length=1)
    output: tuple[PositiveInt, ...]
    keras_output: str = ""
    torch_output: str = ""
    torch_layout: TorchLayout = "as_is"
    torch_output_layout: TorchLayout | None = Field(default=None, description="None: as torch_layout")
    weights: str = Field(min_length=1)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    statistics: Literal["per_replica", "none"] = "none"
    stochastic: Literal["none", "off", "keyed"] = "none"
    keras_dropout: tuple[KeyedDropout, ...] = ()
    torch_dropout: tuple[KeyedDropout, ...] = ()
    constants: Literal["exact", "exact_from_build", "stock"] = "stock"

    def __hash__(self) -> int:
        # Arguments are dicts, which have no hash of their own.
        return hash(self.content_hash())

    @field_validator("mapping", mode="before")
    @classmethod
    def _of_a_mapping(cls, value: Any) -> Any:
        """Lines of mapping.yaml are taken as they are."""
        if not isinstance(value, list | tuple):
            return value
        names = tuple(Pair.model_fields)
        return [
            {name: getattr(item, name) for name in names} if isinstance(item, Spec) else item
            for item in value
        ]

    @model_validator(mode="after")
    def _all_is_mapped_once(self) -> Imported:
        for side, tensors in (("keras", self.keras_tensors), ("torch", self.torch_tensors)):
            names = [tensor.name for tensor in tensors]
            paired = [name for pair in self.mapping for name in getattr(pair, side)]
            for what, given in ((f"{side}_tensors", names), ("mapping", paired)):
                if doubled := sorted({name for name in given if given.count(name) > 1}):
                    raise ValueError(f"{what} names the {side} tensor {doubled[0]!r} twice")
            if unknown := sorted(set(paired) - set(names)):
                raise ValueError(f"mapping names {unknown[0]!r}, which is not among {side}_tensors")
            if left := [tensor.name for tensor in tensors if tensor.trainable and tensor.name not in paired]:
                raise ValueError(
                    f"mapping has no pair for the trainable {side} tensor {left[0]!r}, so one side alone would"
                    " train it; pair it, or say trainable: false"
                )
        if not any(tensor.trainable for tensor in self.keras_tensors):
            raise ValueError("keras_tensors has none that is trainable, so nothing would be trained")
        return self

    @property
    def mapped(self) -> tuple[ExternalTensor, ...]:
        """The Keras tensors that are part of the state."""
        paired = {name for pair in self.mapping for name in pair.keras}
        return tuple(tensor for tensor in self.keras_tensors if tensor.name in paired)

    def output_shape(self, input_shape: Shape) -> Shape:
        if "channels_first" in (self.torch_layout, self.torch_output_layout) and len(input_shape) < 2:
            raise SpecError(
                f"layer {self.name}: torch_layout channels_first needs inputs with channels and other axes,"
                f" received shape {input_shape}"
            )
        return self.output

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        """The canonical tensors. Their values come from `weights`, so that none has an initializer to be drawn by."""
        return tuple(
            ParameterSpec(
                tensor.name,
                tensor.shape,
                "zeros",
                trainable=tensor.trainable,
                null_direction=tensor.null_direction,
            )
            for tensor in self.mapped
        )
