"""Normalisations."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from parity.common.spec.base import Number, PositiveInt
from parity.common.spec.layers.base import LayerSpec, ParameterSpec, Shape


def _affine(
    shape: Shape, scale: bool | None, center: bool | None, trainable: bool = True
) -> tuple[ParameterSpec, ...]:
    gamma = ParameterSpec("gamma", shape, "ones", trainable=trainable)
    beta = ParameterSpec("beta", shape, "zeros", trainable=trainable)
    return (*([gamma] if scale else []), *([beta] if center else []))


class BatchNorm(LayerSpec):
    """Batch normalisation over all axes but the last.

    moving = decay * moving + (1 - decay) * batch, so `decay` is Keras's momentum and one minus
    PyTorch's. `statistics: global` normalises with the statistics of the global batch, whatever
    the placement; `per_replica` makes the replica count part of the mathematics.

    `frozen` keeps gamma and beta as they are. What that does to the moving statistics in training is
    `frozen_statistics` (DIFFERENCES row 6): `kept`, and used, as by Keras's trainable=False; or `updated`
    while the batch's own are used, as by PyTorch's requires_grad=False.
    """

    conventions = {
        "decay": (0.99, 0.9),
        "epsilon": (1e-3, 1e-5),
        "running_variance": ("biased", "unbiased"),
        "frozen_statistics": ("kept", "updated"),
    }
    kind: Literal["batch_norm"] = "batch_norm"
    statistics: Literal["global", "per_replica"] = Field(
        default="global",
        description="whose mean and variance normalise: those of the global batch, or of each replica's own part",
    )
    decay: Number | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of the moving statistics that a step keeps: Keras's momentum, one minus PyTorch's",
    )
    epsilon: Number | None = Field(default=None, gt=0, description="added to the variance")
    running_variance: Literal["biased", "unbiased"] | None = Field(
        default=None, description="variance that is kept: biased, over N, or unbiased, over N - 1"
    )
    scale: bool = Field(default=True, description="multiply by gamma")
    center: bool = Field(default=True, description="add beta")
    frozen: bool = Field(default=False, description="do not train gamma and beta")
    frozen_statistics: Literal["kept", "updated"] | None = Field(
        default=None, description="with frozen: kept, and used in training, or updated"
    )

    @property
    def uses_batch(self) -> bool:
        """Whether training normalises with the statistics of the batch."""
        return not (self.frozen and self.frozen_statistics == "kept")

    @property
    def subtracts_bias(self) -> bool:
        return self.uses_batch

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        shape = (input_shape[-1],)
        return (
            *_affine(shape, self.scale, self.center, trainable=not self.frozen),
            ParameterSpec("moving_mean", shape, "zeros", trainable=False),
            ParameterSpec("moving_variance", shape, "ones", trainable=False),
        )


class _RowNorm(LayerSpec):
    """Base of those that normalise each sample over its last axes."""

    axes: PositiveInt = Field(default=1, description="how many of the last axes are normalised together")

    def output_shape(self, input_shape: Shape) -> Shape:
        if self.axes > len(input_shape):
            raise self.error(f"axes {self.axes} is more than an input of shape {input_shape} has")
        return input_shape


class LayerNorm(_RowNorm):
    """Normalisation of each sample over the last `axes` axes with the biased variance (DIFFERENCES row 40)."""

    conventions = {"epsilon": (1e-3, 1e-5)}
    kind: Literal["layer_norm"] = "layer_norm"
    epsilon: Number | None = Field(default=None, gt=0, description="added to the variance")
    scale: bool = Field(default=True, description="multiply by gamma")
    center: bool = Field(default=True, description="add beta")

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        return _affine(input_shape[-self.axes :], self.scale, self.center)


class RMSNorm(_RowNorm):
    """x / sqrt(mean(x^2) + epsilon) over the last `axes` axes, times gamma (Zhang and Sennrich, NeurIPS 2019).

    `epsilon: machine` is the spacing of numbers at 1 in the run's precision, nn.RMSNorm's default.
    """

    conventions = {"epsilon": (1e-6, "machine")}
    kind: Literal["rms_norm"] = "rms_norm"
    epsilon: Literal["machine"] | Annotated[Number, Field(gt=0)] | None = Field(
        default=None, description="added to the mean square; machine: the spacing of numbers at 1"
    )
    scale: bool = Field(default=True, description="multiply by gamma")

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        return _affine(input_shape[-self.axes :], self.scale, False)


class GroupNorm(LayerSpec):
    """Normalisation of each sample over `groups` runs of neighbouring channels (Wu and He, ECCV 2018).

    gamma and beta are one number a channel.
    """

    conventions = {"epsilon": (1e-3, 1e-5)}
    kind: Literal["group_norm"] = "group_norm"
    groups: PositiveInt = Field(description="runs of neighbouring channels")
    epsilon: Number | None = Field(default=None, gt=0, description="added to the variance")
    scale: bool = Field(default=True, description="multiply by gamma")
    center: bool = Field(default=True, description="add beta")

    def output_shape(self, input_shape: Shape) -> Shape:
        if input_shape[-1] % self.groups:
            raise self.error(f"groups {self.groups} does not divide the channels of {input_shape}")
        return input_shape

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        return _affine(input_shape[-1:], self.scale, self.center)


class InstanceNorm(LayerSpec):
    """Normalisation of each channel of each sample by itself (Ulyanov et al. 2016); no moving statistics.

    `affine`: whether there are gamma and beta, one number a channel. Keras has this layer as
    GroupNormalization(groups=-1), with them; PyTorch's has none by default.
    """

    conventions = {"epsilon": (1e-3, 1e-5), "affine": (True, False)}
    kind: Literal["instance_norm"] = "instance_norm"
    epsilon: Number | None = Field(default=None, gt=0, description="added to the variance")
    affine: bool | None = Field(default=None, description="multiply by gamma and add beta")

    @property
    def subtracts_bias(self) -> bool:
        return True

    def output_shape(self, input_shape: Shape) -> Shape:
        if len(input_shape) < 2:
            raise self.error(f"expects axes before the channels, received shape {input_shape}")
        return input_shape

    def parameters(self, input_shape: Shape) -> tuple[ParameterSpec, ...]:
        return _affine(input_shape[-1:], self.affine, self.affine)
