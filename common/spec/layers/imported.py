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
    """A weight or a buffer of a user's model, by its own name and in its own layout."""

    name: str = Field(min_length=1, description="the model's own name of the tensor")
    shape: tuple[NonNegativeInt, ...] = Field(description="its shape in the model's own layout")
    trainable: bool = Field(default=True, description="whether training updates it")
    buffer: bool = Field(default=False, description="whether it is a buffer")
    null_direction: str | None = Field(
        default=None,
        description="why its gradient is zero up to rounding, whatever the data; null: it is not",
    )

    @model_validator(mode="after")
    def _buffers_are_not_trained(self) -> ExternalTensor:
        if self.buffer and self.trainable:
            raise ValueError(f"tensor {self.name!r} is a buffer, and buffers are not trainable")
        return self


class Pair(Spec):
    """Tensors that are the same numbers in both models. `rule`: how; see `common/spec/external/rules.py`.

    Of a line of mapping.yaml what decides the curve: not where it was found.
    """

    keras: tuple[str, ...] = Field(default=(), description="names of Keras's tensors")
    torch: tuple[str, ...] = Field(default=(), description="names of torch's tensors")
    rule: str = Field(description="how the numbers of one side become those of the other")


class KeyedDropout(Spec):
    """How the mask of one call that drops is drawn; calls are counted in the order of a pass, those that are off too."""

    key: str = Field(
        min_length=1, description="of its random words; two calls that stand for each other have the same"
    )
    shape: tuple[PositiveInt, ...] = Field(description="of one sample's mask, in Keras's layout")
    order: tuple[NonNegativeInt, ...] = Field(
        default=(),
        description="axes of (batch, *shape) in the order in which torch has them; empty: as they are",
    )


class Imported(LayerSpec):
    """A model that the user wrote for both frameworks.

    Each side trains its own; what a record and a checkpoint hold is canonical. Tensors that no pair names are
    no part of the state: their model keeps them as it made them.
    """

    kind: Literal["imported"] = "imported"
    name: str | None = Field(default="model", pattern=r"^[a-z][a-z0-9_]*$", description="name of the layer")
    keras: str = Field(pattern=_TARGET, description="package.module:attribute of what gives the Keras model")
    torch: str = Field(pattern=_TARGET, description="package.module:attribute of what gives the torch model")
    keras_arguments: dict[str, Any] = Field(
        default={}, description="keyword arguments that the Keras attribute is called with"
    )
    torch_arguments: dict[str, Any] = Field(
        default={}, description="keyword arguments that the torch attribute is called with"
    )
    keras_tensors: tuple[ExternalTensor, ...] = Field(description="tensors of the Keras model, in its order")
    torch_tensors: tuple[ExternalTensor, ...] = Field(description="tensors of the torch model, in its order")
    mapping: tuple[Pair, ...] = Field(min_length=1, description="which tensors are the same numbers in both")
    output: tuple[PositiveInt, ...] = Field(
        description="shape of one sample's output, as the Keras model gives it"
    )
    keras_output: str = Field(
        default="", description="output that is trained, of a Keras model that gives several"
    )
    torch_output: str = Field(
        default="", description="output that is trained, of a torch model that gives several"
    )
    torch_layout: TorchLayout = Field(
        default="as_is", description="channels_first: torch's inputs have the channels before the other axes"
    )
    torch_output_layout: TorchLayout | None = Field(default=None, description="None: as torch_layout")
    weights: str = Field(
        min_length=1,
        description="safetensors file with the values of all mapped Keras tensors before the first step",
    )
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of that file")
    statistics: Literal["per_replica", "none"] = Field(
        default="none",
        description="per_replica: layers keep statistics of the samples that their replica has seen",
    )
    stochastic: Literal["none", "off", "keyed"] = Field(
        default="none",
        description="off: rates of dropout are set to 0; keyed: each call gets a mask of ours; none: there is no dropout",
    )
    keras_dropout: tuple[KeyedDropout, ...] = Field(
        default=(), description="how the mask of each Keras call is drawn"
    )
    torch_dropout: tuple[KeyedDropout, ...] = Field(
        default=(), description="how the mask of each torch call is drawn"
    )
    constants: Literal["exact", "exact_from_build", "stock"] = Field(
        default="stock",
        description="exact: float64 constants of Keras's layers stay float64; stock: some go through float32; exact_from_build: exact, and the code of both models is imported with float64 where it says float32",
    )

    running_variance: Literal["stock", "biased"] = Field(
        default="stock",
        description="biased: stock batch norms of torch keep the variance over N values, as Keras's do; only with constants that are not stock",
    )

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
        layouts = {
            "torch_layout": (self.torch_layout, "inputs", input_shape),
            "torch_output_layout": (self.torch_output_layout, "outputs", self.output),
        }
        for field, (layout, what, shape) in layouts.items():
            if layout == "channels_first" and len(shape) < 2:
                raise SpecError(
                    f"layer {self.name}: {field} channels_first needs {what} with channels and other axes, received shape {shape}"
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
