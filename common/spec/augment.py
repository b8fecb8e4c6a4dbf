"""Augmentation: what happens to a training sample on the host, in the order of the list.

Every number drawn is a function of (seed, place in the list, epoch, sample id), so that batches, replicas
and workers cannot change it. Arithmetic is float64 and rounded once, at the end, to the run's type.
Targets with the height and width of the image (masks, or the input itself) are moved with it.

Evaluation samples are normalised; crops give them their centre, or the whole resized; tokens are masked
as in epoch 0. The rest leaves them as they are.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from parity.common.spec.base import NonNegativeInt, Number, PositiveInt, Spec

Side = tuple[PositiveInt, PositiveInt]
Share = Annotated[Number, Field(ge=0, le=1)]


class Op(Spec):
    """Base of all: what it works on."""

    works_on: ClassVar[Literal["images", "tokens", "numbers"]] = "images"


class Crop(Op):
    """Pads all sides by `padding` and cuts out `size` at a random place (He et al. 2016, section 4.2)."""

    kind: Literal["crop"] = "crop"
    size: Side | None = Field(default=None, description="height and width; None: those of the image")
    padding: NonNegativeInt = Field(default=4, description="pixels added on each side before the cut")
    fill: Number = Field(default=0.0, description="of the image's padding")
    fill_target: int = Field(default=0, strict=True, description="of a mask's padding")


class ResizedCrop(Op):
    """A random part of the image, scaled to `size` (Szegedy et al. 2015).

    The part's share of the area is uniform in `scale`, its ratio of width to height log-uniform in
    `ratio`; a side that exceeds the image's is cut to it. Sampled at half-pixel centres, linear between
    pixels; masks take the nearest pixel.
    """

    kind: Literal["resized_crop"] = "resized_crop"
    size: Side | None = Field(default=None, description="height and width; None: those of the image")
    scale: tuple[Number, Number] = Field(
        default=(0.08, 1.0), description="smallest and largest share of the image's area"
    )
    ratio: tuple[Number, Number] = Field(
        default=(0.75, 4 / 3), description="smallest and largest ratio of width to height"
    )

    @model_validator(mode="after")
    def _ranges(self) -> ResizedCrop:
        if not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ValueError(f"scale must be a range within 0 to 1, received {list(self.scale)}")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ValueError(f"ratio must be a range above 0, received {list(self.ratio)}")
        return self


class Flip(Op):
    """Mirrors the image."""

    kind: Literal["flip"] = "flip"
    axis: Literal["horizontal", "vertical"] = Field(
        default="horizontal", description="horizontal: left and right are exchanged; vertical: top and bottom"
    )
    probability: Share = Field(default=0.5, description="share of samples that are mirrored")


class Normalise(Op):
    """(x - mean) / std along the last axis: one number, or one a channel. An input's copy as target, too."""

    works_on = "numbers"
    kind: Literal["normalise"] = "normalise"
    mean: tuple[Number, ...] = Field(
        min_length=1, description="what is subtracted: one number, or one a channel"
    )
    std: tuple[Annotated[Number, Field(gt=0)], ...] = Field(
        min_length=1, description="what is divided by: one number, or one a channel"
    )


class Cutout(Op):
    """Fills a square around a random pixel, as much as lies inside the image (DeVries and Taylor 2017)."""

    kind: Literal["cutout"] = "cutout"
    size: PositiveInt = Field(description="side of the square, in pixels")
    fill: Number = Field(default=0.0, description="value of the filled pixels")
    probability: Share = Field(default=1.0, description="share of samples that get a square")


class Mixup(Op):
    """l * sample + (1 - l) * another training sample, targets likewise; l from Beta(alpha, alpha).

    The partner is drawn evenly from the other training samples and has gone through the ops before with
    its own numbers (Zhang et al. 2018). Classes become distributions, so the loss must take those.
    """

    works_on = "numbers"
    kind: Literal["mixup"] = "mixup"
    alpha: Number = Field(default=0.2, gt=0, description="both parameters of the Beta distribution")


class ColourJitter(Op):
    """Brightness, then contrast, then saturation, each times a factor uniform in 1 - x to 1 + x.

    Brightness scales the pixels, contrast their distance from the image's mean grey, saturation from
    their own grey (0.299 R + 0.587 G + 0.114 B). After each the pixels are clipped to `clip`.
    """

    kind: Literal["colour_jitter"] = "colour_jitter"
    brightness: Share = Field(default=0.0, description="x in the factor's range 1 - x to 1 + x")
    contrast: Share = Field(default=0.0, description="likewise")
    saturation: Share = Field(default=0.0, description="likewise; needs three channels")
    clip: tuple[Number, Number] | None = Field(
        default=(0.0, 1.0), description="smallest and largest value of a pixel; null: not clipped"
    )


class Noise(Op):
    """Adds normal noise to the input; the target stays."""

    works_on = "numbers"
    kind: Literal["noise"] = "noise"
    std: Number = Field(default=0.1, gt=0, description="standard deviation of the noise")


class MaskTokens(Op):
    """Hides tokens and asks for them: BERT's masking (Devlin et al. 2019, section 3.1).

    Each token is chosen with `probability`. Of the chosen, the share `masked` becomes `mask_id`, the share
    `replaced` a random token below `vocabulary`, the rest stays. The target is the original where chosen
    and `ignore` elsewhere.
    """

    works_on = "tokens"
    kind: Literal["mask_tokens"] = "mask_tokens"
    vocabulary: PositiveInt = Field(description="number of tokens; random ones are below it")
    mask_id: NonNegativeInt = Field(description="the token that hides others")
    probability: Share = Field(default=0.15, description="share of tokens that are chosen")
    masked: Share = Field(default=0.8, description="share of the chosen that become mask_id")
    replaced: Share = Field(default=0.1, description="share of the chosen that become a random token")
    spared: tuple[NonNegativeInt, ...] = Field(default=(), description="never chosen: padding, separators")
    ignore: int = Field(
        default=-100,
        strict=True,
        description="target of the tokens that are not chosen; loss.ignore must be the same",
    )

    @model_validator(mode="after")
    def _shares(self) -> MaskTokens:
        if self.masked + self.replaced > 1:
            raise ValueError(f"masked and replaced exceed 1 together: {self.masked} and {self.replaced}")
        if self.mask_id >= self.vocabulary:
            raise ValueError(f"mask_id {self.mask_id} is not below the vocabulary of {self.vocabulary}")
        return self


AugmentSpec = Annotated[
    Crop | ResizedCrop | Flip | Normalise | Cutout | Mixup | ColourJitter | Noise | MaskTokens,
    Field(discriminator="kind"),
]
