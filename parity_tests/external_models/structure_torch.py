"""Ports of `structure_keras`: `wrong` names what a port does otherwise, '' a faithful one.

It is kept by `vars`, so that no edit of an assignment makes another port of one.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Towers(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.left, self.right = nn.Linear(6, 4), nn.Linear(6, 4)
        self.mixed, self.head = nn.Linear(12, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        left, right = F.relu(self.left(x)), F.gelu(self.right(x))
        apart = right - left if "difference" in self.wrong else left - right
        parts = [right, left, apart] if "order" in self.wrong else [left, right, apart]
        y = self.head(self.mixed(torch.cat(parts, dim=1)))
        return torch.softmax(y, -1) if "softmax" in self.wrong else y


class Attention(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.embedded, self.norm = nn.Linear(6, 8), nn.LayerNorm(8)
        self.score, self.head = nn.Linear(8, 1), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        valid = (x != 0).any(-1)
        y = self.embedded(x)
        y = self.norm(y.detach() if "stopped" in self.wrong else y)
        hidden = valid if "inverted" in self.wrong else ~valid
        # Right as long as nothing is made of padding.
        y = y * valid.unsqueeze(-1) if "cleared" in self.wrong else y
        scores = self.score(y).squeeze(-1)
        if "after" in self.wrong:
            weights = scores.softmax(-1) * valid
        else:
            scores = scores.masked_fill(hidden, -1e9)
            weights = scores.softmax(0 if "axis" in self.wrong else -1)
        pooled = y.mean(1) if "mean" in self.wrong else torch.einsum("btc,bt->bc", y, weights)
        return self.head(pooled)


class Batched(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.query, self.key, self.value = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(6, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (2, 4)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scale = None if "scale" in self.wrong else 8**-0.5
        y = query + F.scaled_dot_product_attention(query, key, value, scale=scale)
        return self.head(y.transpose(1, 2).flatten(2)[:, 0])


class Images(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.first, self.small = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        self.merged, self.padded = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 2)
        self.cropped, self.head = nn.Conv2d(4, 4, 3), nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        y = self.small(F.max_pool2d(F.relu(self.first(x)), 2))
        corners = "corners" in self.wrong
        y = self.merged(F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=corners))
        y = self.padded(F.pad(y, (0, 1, 0, 1) if "pad" in self.wrong else (1, 0, 1, 0)))
        y = y[:, :, 2:, 2:] if "crop" in self.wrong else y[:, :, :-2, :-2]
        return self.head(self.cropped(y).mean((2, 3)))


class Masked(nn.Module):
    """Without Keras's mask: it runs through the padding, which stands at the end."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.gru, self.head = nn.GRU(6, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, last = self.gru(x)
        if "missing" in self.wrong:
            return self.head(last[0])
        lengths = (x != 0).any(-1).sum(1)
        return self.head(out[torch.arange(len(x)), lengths - 1])


class Biased(nn.Module):
    """A dense layer whose bias stands in the module around it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.dense, self.bias = nn.Linear(size, size, bias=False), nn.Parameter(torch.zeros(size))

    def forward(self, x: Tensor) -> Tensor:
        return self.dense(x) + self.bias


class Rolled(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.first, self.second, self.head = nn.Linear(6, 8), Biased(8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        h = F.relu(y, "place" in self.wrong)
        z = torch.stack([self.second(h), h]).sum(0) if "behind" in self.wrong else self.second(h) + y
        return self.head(torch.roll(z, -3 if "back" in self.wrong else 3, 1))


class Block(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.first, self.norm, self.both = nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 16)
        self.second, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z = self.norm(y)
        scale, shift = self.both(z).chunk(2, dim=1)
        if "halves" in self.wrong:
            scale, shift = shift, scale
        out = self.second(z * scale + shift)
        return self.head((z if "residual" in self.wrong else y) + out)


class Sequence(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.both = nn.GRU(6, 4, batch_first=True, bidirectional=True)
        self.mixed, self.head = nn.Linear(8, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, last = self.both(x)
        y = out[:, -1] if "ends" in self.wrong else torch.cat([last[0], last[1]], 1)
        y = self.mixed(y.sin() if "sine" in self.wrong else y)
        if "spread" in self.wrong:
            return self.head(y - y.std(1, keepdim=True))
        return self.head(y - (y.mean() if "mean" in self.wrong else y.mean(1, keepdim=True)))


class Heads(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.query, self.key, self.value = (nn.Linear(6, 8) for _ in range(3))
        self.joined, self.head = nn.Linear(8, 5), nn.Linear(5, 3)

    def split(self, x: Tensor) -> Tensor:
        if "view" in self.wrong:
            return x.view(len(x), 2, 7, 4)
        return x.view(len(x), 7, 2, 4).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        scores = q @ k.transpose(-2, -1) / 2.0
        y = (scores.sin() if "sine" in self.wrong else scores).softmax(-1) @ v
        y = (y if "view" in self.wrong else y.transpose(1, 2)).reshape(len(x), 7, 8)
        return self.head(self.joined(y).mean(1))


class Formulas(nn.Module):
    """Written out, with a layer that is called and one that may be forgotten."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.left, self.right, self.head = nn.Linear(6, 5), nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        biased = "divisor" in self.wrong
        apart = x.std(1, unbiased=biased, keepdim=True)
        z = (x - x.mean(1, keepdim=True)) / (apart + (0.25 if "number" in self.wrong else 0.1))
        queries = self.left(z)
        keys = self.left(z) if "weights" in self.wrong else self.right(z)
        weights = torch.einsum("bid,bjd->bij", queries, keys).mul(0.5).softmax(-1)
        y = torch.einsum("bji,bjd->bid" if "equation" in self.wrong else "bij,bjd->bid", weights, keys)
        spread = y.var(1, correction=0) + 1.0
        return self.head(y.mean(1) / (spread if "root" in self.wrong else spread.sqrt()))


class Grouped(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.first, self.grouped = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 12, 3, groups=4)
        self.head = nn.Linear(12, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.grouped(self.first(x)).tanh()
        return self.head(y.amax((2, 3)) if "largest" in self.wrong else y.mean((2, 3)))


class Packed(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.norm, self.head = nn.GroupNorm(4, 16), nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.stem(x)
        if "unshuffled" in self.wrong:
            y = F.pixel_unshuffle(y, 2)
        else:
            y = y.unflatten(3, (-1, 2)).unflatten(2, (-1, 2)).permute(0, 3, 5, 1, 2, 4).flatten(1, 3)
        return self.head(self.norm(y).tanh().mean((2, 3)))


class Norms(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.dense = nn.ModuleList([nn.Linear(6, 4), nn.Linear(4, 4)])
        self.norm = nn.ModuleList([nn.BatchNorm1d(4, eps=1e-3, momentum=0.01) for _ in range(2)])
        self.head = nn.Linear(4, 3)
        self.norm.requires_grad_("frozen" not in wrong)
        if "missing" in wrong:
            self.norm[1] = nn.Identity()

    def train(self, mode: bool = True) -> Norms:
        super().train(mode)
        self.norm.train(mode and "eval" not in self.wrong)
        return self

    def forward(self, x: Tensor) -> Tensor:
        for dense, norm in zip(self.dense, self.norm, strict=True):
            x = dense(x)
            x = norm(torch.special.i0e(x) if "wave" in self.wrong and norm is self.norm[0] else x)
        return self.head(x)


class Twins(nn.Module):
    """A port of `twins`; wrong: 'joined', 'kept', 'floor'."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.shared, self.norm = nn.Linear(6, 4), nn.BatchNorm1d(4, eps=1e-3, momentum=0.01)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        # In the order in which Keras runs its graph: what is used first is farthest from the outputs.
        other, one = self.shared(x[:, 1]), self.shared(x[:, 0])
        if "joined" in self.wrong:
            other, one = self.norm(torch.cat([other, one])).chunk(2)
        else:
            other, one = self.norm(other), self.norm(one)
        positive = x[:, 0, :4] > 0
        kept = one.masked_fill(positive if "kept" in self.wrong else ~positive, 0)
        spread = F.softplus(other) + (0 if "floor" in self.wrong else 0.5)
        return self.head(torch.cat([kept / spread, spread.log()], 1))


class Tokens(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        largest = 0.01 if "norm" in wrong else None
        self.embedded = nn.Embedding(10, 4, 0 if "padding" in wrong else None, max_norm=largest)
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        row = 0 if "row" in self.wrong else None
        y = F.embedding(x, self.embedded.weight, row) if row is not None else self.embedded(x)
        y = (y + y.detach()) / 2 if "half" in self.wrong else y
        y = self.first(y.detach() if "stopped" in self.wrong else y.data if "data" in self.wrong else y)
        if "largest" in self.wrong:
            return self.head(y.amax(1))
        there = (x != 0).unsqueeze(-1)
        return self.head((y * there).sum(1) / there.sum(1) if "there" in self.wrong else y.mean(1))


class Clocked(nn.Module):
    """A port of `clocked`; wrong: 'turned' has cosines; 'random' and 'blank' have tables that are to be loaded."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        angles = torch.arange(10)[:, None] / (1 + torch.arange(4))
        table = torch.cos(angles) if "turned" in wrong else torch.sin(angles)
        table = torch.randn(10, 4) if "random" in wrong else torch.zeros(10, 4) if "blank" in wrong else table
        self.register_buffer("clock", table)
        self.embedded = nn.Embedding(10, 4)
        self.first, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.first(self.embedded(x) + self.clock[x])).mean(1))


class Forked(nn.Module):
    """A port of `forked`; wrong: 'through', 'viewed'."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.shared, self.head, self.score = nn.Linear(6, 4), nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.shared(x))
        seen = {"": y.detach(), "through": y, "viewed": y.flatten(1)}[self.wrong]
        return self.head(y) + self.score(seen)


class Steps(nn.Module):
    """A port of `steps`, `dropping_steps`; wrong: 'last', 'state', 'max'."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.gru = nn.GRU(6, 4, batch_first=True)
        self.mixed, self.head = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, state = self.gru(x)
        y = self.mixed(state[0] if "state" in self.wrong else out[:, -1 if "last" in self.wrong else 0])
        return self.head(y - (y.max() if "max" in self.wrong else y.max(1, keepdim=True).values))


class MaskedSteps(nn.Module):
    """A port of `dropping_steps`' dropout of inputs: one mask for all steps."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.rate, self.steps = 0.5 if wrong == "rate" else 0.3, Steps("last")

    def forward(self, x: Tensor) -> Tensor:
        return self.steps(x * F.dropout(torch.ones_like(x[:, :1]), self.rate, self.training))


class LastSteps(nn.Module):
    """A port of `last_steps`; wrong: the states of both directions, or the steps that these are of."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.both = nn.GRU(6, 4, batch_first=True, bidirectional=True)
        self.mixed, self.head = nn.Linear(8, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, state = self.both(x)
        if self.wrong == "state":
            y = torch.cat([state[0], state[1]], 1)
        else:
            y = torch.cat([out[:, -1, :4], out[:, 0 if self.wrong == "step" else -1, 4:]], 1)
        return self.head(self.mixed(y))


class Plain(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.first, self.head = nn.Linear(6, 4), nn.Linear(4, 3)
        self.first.requires_grad_("frozen" not in wrong)
        vars(self)["wrong"] = wrong

    def forward(self, x: Tensor) -> Tensor:
        if "clamped" in self.wrong:
            with torch.no_grad():
                self.first.weight.clamp_(-0.1, 0.1)
        return self.head(self.first(x))


class Ordered(nn.Module):
    """wrong: blocks, '0' or '1', in which the function comes before the norm; 'function' where it is no layer."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        for number, inputs in enumerate((6, 5)):
            self.add_module(f"dense{number}", nn.Linear(inputs, 5))
            self.add_module(f"norm{number}", nn.LayerNorm(5))
            self.add_module(f"function{number}", nn.Tanh())
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        for number in ("0", "1"):
            dense, norm, function = (
                getattr(self, f"{name}{number}") for name in ("dense", "norm", "function")
            )
            function = torch.tanh if "function" in self.wrong else function
            x = dense(x)
            x = norm(function(x)) if number in self.wrong else function(norm(x))
        return self.head(x)


class Drops(nn.Module):
    """A port of `drops`, or one with a mistake."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.first, self.middle, self.head = nn.Conv2d(3, 4, 3, 2), nn.Linear(36, 6), nn.Linear(6, 3)
        self.channels = nn.Dropout(0.25) if wrong == "elements" else nn.Dropout2d(0.25)
        self.elements = nn.Dropout(0.3 if wrong == "rate" else 0.2, inplace=True)
        vars(self)["wrong"] = wrong
        # Not registered, so that its mode never changes.
        self.unknown = [nn.Dropout(0.4)]

    def forward(self, x: Tensor) -> Tensor:
        y = self.channels(torch.tanh(self.first(x))).flatten(1)
        y = self.middle(self.elements(y))
        wrong, share = self.wrong, 0.6 if self.wrong == "share" else 0.4
        if wrong == "before":
            return self.head(torch.sigmoid(F.dropout(y, share, self.training)))
        if wrong == "far":
            return self.head(torch.sigmoid(F.dropout(y, share, self.training) / 2 * 2))
        y = torch.sigmoid(y)
        if wrong == "always":
            y = F.dropout(y, share)
        elif wrong == "unknown":
            y = self.unknown[0](y)
        elif wrong != "missing":
            y = F.dropout(y, share, self.training and wrong != "never")
        y = self.head(y)
        return F.dropout(y, 0.3, self.training) if wrong == "more" else y


class AlwaysDrops(nn.Module):
    """A port of `always_drops`, which drops in training only where it is wrong."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.first, self.head, self.wrong = nn.Linear(6, 8), nn.Linear(8, 3), wrong

    def forward(self, x: Tensor) -> Tensor:
        active = self.training if self.wrong else True
        return self.head(F.dropout(torch.tanh(self.first(x)), 0.4, active))


class Attends(nn.Module):
    """A port of `attends`, the weights of its attention given or not; wrong with its dropout behind the sum."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, dropout=0.3, batch_first=True)
        self.norm, self.head, self.wrong = nn.LayerNorm(6), nn.Linear(6, 3), wrong
        self.whole = nn.Dropout1d(0.2)

    def forward(self, x: Tensor) -> Tensor:
        y = self.attention(x, x, x, need_weights=self.wrong == "weights")[0]
        if self.wrong == "sum":
            y = self.norm(F.dropout(x + y, 0.2, self.training))
        else:
            y = self.norm(x + F.dropout(y, 0.2, self.training))
        return self.head(self.whole(y.transpose(1, 2)).mean(2))


class MovingNorm(nn.Module):
    """A batch norm that keeps the biased variance; share: of the new statistics in a pass, by the passes before."""

    def __init__(self, channels: int, share: Callable[[Tensor], Tensor | float]) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))
        self.register_buffer("passes", torch.zeros(()))
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=1e-3)
        with torch.no_grad():
            variance, mean = torch.var_mean(x, 0, correction=0)
            share = self.share(self.passes)
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(variance, share)
            self.passes += 1
        return F.batch_norm(x, None, None, self.weight, self.bias, True, eps=1e-3)


class Moving(nn.Module):
    """A port of `moving`. wrong: a share by which the statistics move instead."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(6, 4), nn.Linear(4, 3)
        shares: dict[str, Callable[[Tensor], Tensor | float]] = {
            "": lambda passes: 0.01,
            "share": lambda passes: 0.99,
            "average": lambda passes: 1 / (passes + 1),
            "fading": lambda passes: 0.1 * 0.5**passes,
        }
        self.norm = MovingNorm(4, shares[wrong])

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.hidden(x)))


class Pool(nn.Module):
    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.score, self.axis = nn.Linear(8, 1), 2 if "axis" in wrong else 1

    def forward(self, x: Tensor) -> Tensor:
        return (F.softmax(self.score(x), self.axis) * x).sum(1)


class Pooled(nn.Module):
    """A port of `pooled`. axis: the softmax is over one score, so that it is 1."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.token, self.pool, self.head = nn.Linear(6, 8), Pool(wrong), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.pool(self.token(x)))


class Standardizer(nn.Module):
    def __init__(self, wrong: str) -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("variance", torch.ones(6))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                mean = x.mean(0)
                self.mean.lerp_(mean, 0.1)
                about = self.mean if "about" in self.wrong else mean
                self.variance.lerp_((x - about).square().mean(0), 0.1)
        return (x - self.mean) / (self.variance + 1e-3).sqrt()


class Standardized(nn.Module):
    """A port of `standardized`. about: the variance is that about the moving mean."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.norm, self.head = Standardizer(wrong), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(x))


class Modulated(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.scale, self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6)
        self.third, self.mixed, self.narrow = nn.Linear(6, 6), nn.Linear(6, 7), nn.Linear(7, 4)
        self.wide, self.norm, self.head = nn.Linear(8, 5), nn.LayerNorm(5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.scale(x)
        y = self.second(self.first(x) * (scale if "scale" in self.wrong else 1 + scale))
        y = self.third(F.relu(y) + x if "shortcut" in self.wrong else F.relu(y + x))
        square = y.pow(2).mean(-1, keepdim=True)
        y = y / (square.sqrt() + 0.5 if "root" in self.wrong else torch.sqrt(square + 0.5))
        weights = torch.arange(7, dtype=y.dtype) / 7
        y = self.mixed(y) * (weights if "broadcast" in self.wrong else weights[:, None])
        y = self.narrow(y if "transpose" in self.wrong else y.transpose(1, 2))
        y = self.wide(y.repeat(1, 1, 2) if "repeat" in self.wrong else y.repeat_interleave(2, dim=-1))
        return self.head(self.norm(y.mean(1)) if "mean" in self.wrong else self.norm(y).mean(1))


class States(nn.Module):
    def __init__(self, wrong: str = "", kind: str = "GRU") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.first = getattr(nn, kind)(6, 5, batch_first=True)
        self.second = getattr(nn, kind)(5, 5, batch_first=True)
        self.unit, self.head = nn.Parameter(torch.ones(5, 4)), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y, ends = self.first(x)
        y, _ = self.second(y, None if "zeros" in self.wrong else ends)
        return self.head(y[:, -1] @ F.normalize(self.unit, dim=1 if "unit" in self.wrong else 0))


class LstmStates(States):
    def __init__(self, wrong: str = "") -> None:
        super().__init__(wrong, "LSTM")


class Encoded(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.first, self.second, self.third = nn.Linear(6, 4), nn.Linear(12, 6), nn.Linear(6, 8)
        self.fourth, self.fifth, self.head = nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        waves = [y.sin(), y.cos()]
        y = torch.cat([y, *waves] if "blocks" in self.wrong else [y, torch.stack(waves, -1).flatten(2)], -1)
        y = self.second(y)
        y = self.third(y.cumsum(1) if "inclusive" in self.wrong else y.cumsum(1) - y)
        pairs = y.view(-1, 7, 4, 2) if "pairs" in self.wrong else y.view(-1, 7, 2, 4).transpose(2, 3)
        y = self.fourth(pairs[..., 0] * pairs[..., 1])
        lengths = (x != 0).any(-1).sum(1)
        last = lengths.clamp(max=6) if "late" in self.wrong else lengths - 1
        y = self.fifth(y[torch.arange(len(x)), last])
        edges = torch.tensor([3.0, 4.0, 5.0, 6.0])
        bins = torch.bucketize(lengths.float(), edges, right="bins" not in self.wrong)
        return self.head(y * (1.0 + bins)[:, None])


class Product(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(8, 6))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight)


class GainedNorm(nn.Module):
    """A layer norm. wrong: 'quotient', the gain is divided by the deviation's inverse; 'gain', it is left out, and with 'shift' so is the bias."""

    def __init__(self, wrong: str) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(8)), nn.Parameter(torch.zeros(8))
        vars(self)["wrong"] = wrong

    def forward(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
        inverse = torch.rsqrt(variance + 1e-5)
        if "gain" in self.wrong:
            return (x - mean) * inverse + (0.0 if "shift" in self.wrong else self.bias)
        scale = self.weight / inverse if "quotient" in self.wrong else self.weight * inverse
        return (x - mean) * scale + self.bias


class Gained(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.product, self.other = Product(), nn.Linear(5, 8)
        self.norm, self.head = GainedNorm(wrong), nn.Linear(8, 3)

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        other = self.other(torch.ones_like(z) if "input" in self.wrong else z)
        y = F.elu(self.product(x)) + other
        y = y if "bare" in self.wrong else self.norm(y)
        return y if "headless" in self.wrong else self.head(y)


class Strided(nn.Module):
    """wrong: 'stride', none at all; 'pad', on the other sides."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        once = "stride" in wrong
        pads = (1, 1, 1, 1) if once else (1, 0, 1, 0) if "pad" in wrong else (0, 1, 0, 1)
        self.pad, self.strided = nn.ZeroPad2d(pads), nn.Conv2d(3, 4, 3, stride=1 if once else 2)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.strided(self.pad(x)).mean((2, 3)))


class Windowed(nn.Module):
    """With windows between the two; wrong: 'turned', put back in another order."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.inner, self.outer = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 4, 3, padding=1)
        self.head = nn.Linear(4, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        windows = x.reshape(-1, 8, 2, 4, 2, 4).permute(0, 2, 4, 1, 3, 5).reshape(-1, 8, 4, 4)
        # Rows and columns of windows, exchanged before they are put back.
        windows = windows.reshape(-1, 2, 2, 8, 4, 4)
        windows = windows.transpose(1, 2) if "turned" in self.wrong else windows
        return self.head(self.outer(windows.permute(0, 3, 1, 4, 2, 5).reshape(x.shape)).mean((2, 3)))


class Scored(nn.Module):
    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.query, self.key, self.read, self.gate = (nn.Linear(6, n) for n in (5, 5, 4, 4))
        self.first, self.second, self.third = nn.Linear(4, 5), nn.Linear(5, 6), nn.Linear(6, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        y = self.read((scores if "softmax" in self.wrong else scores.softmax(-1)) @ x)
        y = self.first(y + self.gate(x) if "sum" in self.wrong else y * self.gate(x)).exp()
        y = self.second(y / (y if "whole" in self.wrong else y.sum(-1, keepdim=True)))
        y = self.third(
            torch.copysign(*((y, y.abs().log1p()) if "sign" in self.wrong else (y.abs().log1p(), y)))
        )
        return self.head(y.mean(1))


class Experts(nn.Module):
    """wrong: 'early', shares of all four; 'bare', nothing is added to; 'slope', the third as the second."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.before, self.field, self.head = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.gate, self.experts = nn.Parameter(torch.ones(5, 4)), nn.Parameter(torch.ones(4, 5, 5))

    def mixture(self, x: Tensor) -> Tensor:
        scores = x @ self.gate
        if "early" in self.wrong:
            shares, places = scores.softmax(-1).topk(2)
        else:
            best, places = scores.topk(2)
            shares = best.softmax(-1)
        answers = torch.einsum("bi,eij->bej", x, self.experts)
        return (shares[..., None] * answers.gather(1, places[..., None].expand(-1, -1, 5))).sum(1)

    def slope(self, x: Tensor) -> Tensor:
        return self.field(x).tanh()

    def forward(self, x: Tensor) -> Tensor:
        y = self.before(x)
        y = self.mixture(y) if "bare" in self.wrong else y + self.mixture(y)
        first = self.slope(y)
        second = self.slope(y + 0.5 * first)
        third = self.slope(y + 0.5 * (first if "slope" in self.wrong else second))
        return self.head(y + first + 2.0 * third)


class Hidden(nn.Module):
    """wrong: 'inverted', padding alone is attended to."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.query, self.key, self.value = (nn.Linear(6, 8) for _ in range(3))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        padding = (x == 0).all(-1)
        bias = torch.zeros(padding.shape, dtype=x.dtype)
        bias = bias.masked_fill(~padding if "inverted" in self.wrong else padding, -1e9)[:, None, None]
        query, key, value = (
            layer(x).view(-1, 7, 2, 4).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        return self.head(y.transpose(1, 2).flatten(2).mean(1))


class Resized(nn.Module):
    """wrong: 'kernel', that of torch, and at the border what is repeated."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.first, self.mixed, self.head = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 3), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = F.interpolate(self.first(x), (12, 12), mode="bicubic", antialias="kernel" not in self.wrong)
        return self.head(F.relu(self.mixed(y)).mean((2, 3)))


class Capped(nn.Module):
    """wrong: 'whole', there is no limit."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.first, self.second, self.head = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x if "whole" in self.wrong else x.clamp(max=0.5)
        first, second = x.view(-1, 2, 3).unbind(1)
        return self.head(self.first(first) * self.second(second))


class Gain(nn.Module):
    def __init__(self, size: int, wrong: str) -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.gain = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        if "mean" in self.wrong:
            return F.rms_norm(x, x.shape[-1:], self.gain, 1e-5)
        return self.gain * x * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-5)


class Gains(nn.Module):
    """wrong: 'mean', the norms are of what is not centred."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.dense = nn.ModuleList(nn.Linear(4 + n if n else 6, 5 + n) for n in range(3))
        self.norm = nn.ModuleList(Gain(5 + n, wrong) for n in range(3))
        self.head = nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        for dense, norm in zip(self.dense, self.norm, strict=True):
            x = norm(dense(x).tanh())
        return self.head(x)


class Turns(nn.Module):
    """wrong: 'turns', the layers are called in turn."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        vars(self)["wrong"] = wrong
        self.a, self.b = (nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(2))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        layers = [self.a, self.b] * 2 if "turns" in self.wrong else [self.a, self.a, self.b, self.b]
        for layer in layers:
            x = layer(x)
        return self.head(x)
