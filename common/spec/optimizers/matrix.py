"""Rules that look at a whole tensor: Adafactor, Muon, LAMB."""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from typing import ClassVar, Literal

from pydantic import Field

from parity.common.spec.base import Number, PositiveInt
from parity.common.spec.optimizers.adam import AdamW, Moments
from parity.common.spec.optimizers.base import COMMON, OptimizerBase

_WHOLE = {**COMMON, "weight_decay_mode": ("decoupled", "decoupled")}


class Adafactor(OptimizerBase):
    """A second moment kept as the means along two axes (Shazeer and Stern 2018).

    With rho = min(lr, 1/sqrt(t)) and b = 1 - t^beta_2_decay, for tensors of two or more axes
    r and c are b-averages of g^2 meant along one of the `factored_axes` and the other, and
    v = r * c / mean(r); below, v is an average of g^2. u = g / sqrt(v), and
    w -= rho * max(epsilon_2, rms(w)) * u / max(1, rms(u) / clip_threshold).

    epsilon_form: `add` adds epsilon_1 to g^2 (Keras); `clamp` keeps mean(r) above epsilon_1 and v
    above epsilon_1^2 (PyTorch). Where epsilon_1 is left out under `torch` it is the machine epsilon.
    factored_axes: the last two of our layout, as in Keras, or the first two, which are the last two
    of PyTorch's layout: a convolution's window. The two are the same for a matrix.
    rms(w) is taken after the decay in Keras and before it in PyTorch (`scaled_by`).
    """

    conventions = {
        **_WHOLE,
        "learning_rate": (1e-3, 1e-2),
        "epsilon_1": (1e-30, None),
        "epsilon_form": ("add", "clamp"),
        "factored_axes": ("last", "first"),
        "scaled_by": ("decayed", "before_decay"),
    }
    elementwise: ClassVar[bool] = False
    kind: Literal["adafactor"] = "adafactor"
    beta_2_decay: Number = Field(
        default=-0.8, le=0, description="exponent of the second moment's decay, 1 - t^beta_2_decay"
    )
    epsilon_1: Number | None = Field(
        default=None, gt=0, description="keeps the second moment above zero; null: the machine epsilon"
    )
    epsilon_2: Number = Field(default=1e-3, ge=0, description="smallest factor of the learning rate")
    epsilon_form: Literal["add", "clamp"] | None = Field(
        default=None, description="add: epsilon_1 is added to g^2; clamp: the means are kept above it"
    )
    clip_threshold: Number = Field(default=1.0, gt=0, description="largest root mean square of an update")
    factored_axes: Literal["last", "first"] | None = Field(
        default=None, description="axes that are averaged: the last two, or the first two"
    )
    scaled_by: Literal["decayed", "before_decay"] | None = Field(
        default=None,
        description="the weights whose root mean square scales the step: after the decay, or before it",
    )

    def axes(self, shape: tuple[int, ...]) -> tuple[int, int] | None:
        """The (row, column) axes of a factored tensor; None for scalars and vectors."""
        if len(shape) < 2:
            return None
        return (0, 1) if self.factored_axes == "first" else (len(shape) - 2, len(shape) - 1)


class Muon(OptimizerBase):
    """Momentum made orthogonal by Newton-Schulz iterations (Jordan et al. 2024), for matrices.

    x = m / norm(m), then `newton_schulz_steps` times x = a*x + (b*X + c*X^2) x with X = x x^T, and
    w -= lr * scale * x. All other tensors, and those whose names match `exclude`, take AdamW with the
    `fallback` fields, as Keras does and PyTorch's documentation recommends.

    momentum_form: `sum` m = mu*m + g (Keras), `mean` m = mu*m + (1-mu)*g (PyTorch).
    norm_form: norm + epsilon (Keras), or max(norm, epsilon) (PyTorch).
    scaling: `rms` is rms_rate * sqrt(max(rows, columns)) (Keras), `aspect` is
    sqrt(max(1, columns / rows)) of an (in, out) kernel (PyTorch).
    The iterations run in the type of the run. torch.optim.Muon rounds them to bfloat16, which no
    other framework could follow to the last bit.
    The fallback's decay is fallback_weight_decay * learning rate, whatever fallback_rate_ratio is.
    """

    conventions = {
        **_WHOLE,
        "learning_rate": (1e-3, 1e-3),
        "weight_decay": (0.004, 0.1),
        "momentum_form": ("sum", "mean"),
        "norm_form": ("add", "clamp"),
        "scaling": ("rms", "aspect"),
        "exclude": (("*embedding*",), ()),
        "fallback_epsilon": (1e-7, 1e-8),
        "fallback_epsilon_place": ("outside", "inside"),
        "fallback_weight_decay": (0.004, 0.01),
    }
    elementwise: ClassVar[bool] = False
    kind: Literal["muon"] = "muon"
    weight_decay_mode: Literal["decoupled"] | None = Field(
        default=None, description="decoupled: w -= lr*wd*w before the update"
    )
    momentum: Number = Field(default=0.95, ge=0, lt=1, description="decay of the momentum")
    nesterov: bool = Field(default=True, description="take the gradient's step after the momentum's")
    momentum_form: Literal["sum", "mean"] | None = Field(
        default=None, description="sum: m = mu*m + g; mean: m = mu*m + (1-mu)*g"
    )
    newton_schulz_steps: PositiveInt = Field(default=5, description="how often the iteration is repeated")
    newton_schulz: tuple[Number, Number, Number] = Field(
        default=(3.4445, -4.775, 2.0315), description="coefficients a, b, c of the iteration"
    )
    norm_epsilon: Number = Field(default=1e-7, gt=0, description="keeps the norm above zero")
    norm_form: Literal["add", "clamp"] | None = Field(
        default=None, description="add: norm + epsilon; clamp: max(norm, epsilon)"
    )
    scaling: Literal["rms", "aspect", "none"] | None = Field(
        default=None, description="what the orthogonal update is multiplied by"
    )
    rms_rate: Number = Field(default=0.2, gt=0, description="factor of scaling 'rms'")
    exclude: tuple[str, ...] | None = Field(
        default=None, description="patterns of names that take the fallback"
    )
    fallback_rate_ratio: Number = Field(default=1.0, gt=0, description="of the learning rate")
    fallback_beta_1: Number = Field(
        default=0.9, ge=0, lt=1, description="AdamW's beta_1 for all other tensors"
    )
    fallback_beta_2: Number = Field(
        default=0.999, ge=0, lt=1, description="AdamW's beta_2 for all other tensors"
    )
    fallback_epsilon: Number | None = Field(
        default=None, gt=0, description="AdamW's epsilon for all other tensors"
    )
    fallback_epsilon_place: Literal["outside", "inside"] | None = Field(
        default=None, description="AdamW's epsilon_place for all other tensors"
    )
    fallback_weight_decay: Number | None = Field(
        default=None, ge=0, description="AdamW's weight_decay for all other tensors"
    )

    @property
    def fallback(self) -> AdamW:
        """AdamW as it is applied to what is not a matrix. The spec must be resolved."""
        fields = ("beta_1", "beta_2", "epsilon", "epsilon_place", "weight_decay")
        return AdamW(
            learning_rate=(self.learning_rate or 0.0) * self.fallback_rate_ratio,
            weight_decay_mode="decoupled",
            clip_epsilon=self.clip_epsilon,
            **{name: getattr(self, f"fallback_{name}") for name in fields},
        )

    def rule_of(self, name: str, shape: tuple[int, ...]) -> OptimizerBase:
        """This optimizer for matrices that are not excluded, else the fallback."""
        excluded = any(fnmatchcase(name, pattern) for pattern in self.exclude or ())
        return self.fallback if excluded or len(shape) != 2 else self

    def scale(self, shape: tuple[int, ...]) -> float:
        """What the orthogonal update of an (in, out) kernel is multiplied by."""
        rows, columns = shape
        if self.scaling == "rms":
            return self.rms_rate * math.sqrt(max(rows, columns))
        return math.sqrt(max(1.0, columns / rows)) if self.scaling == "aspect" else 1.0


class Lamb(Moments):
    """Adam whose update has the norm of the weights (You et al. 2020); only Keras ships it.

    u = (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps) and w -= lr * |w| / |u| * u, with a ratio of 1
    where either norm is 0. Decoupled decay comes before the norms, as in Keras; `update` is the
    paper's: u += wd * w before the norms.
    """

    conventions = {**_WHOLE, "learning_rate": (1e-3, 1e-3), "epsilon": (1e-7, 1e-7)}
    elementwise: ClassVar[bool] = False
    kind: Literal["lamb"] = "lamb"
    weight_decay_mode: Literal["decoupled", "coupled", "update"] | None = Field(
        default=None,
        description="decoupled or coupled, as above; update: added to the update before the norms are taken",
    )  # type: ignore[assignment]
