"""Ports of the models in losses_keras.py, and of the losses there, good ones and faulty ones."""

import torch
from torch import nn
from torch.nn import functional as F


class Heads(nn.Module):
    """The outputs stand in another order."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(6, 8)
        self.box = nn.Linear(8, 4)
        self.label = nn.Linear(8, 3)

    def forward(self, x):
        y = torch.tanh(self.trunk(x))
        return {"box": self.box(y), "label": self.label(y)}


class Onward(nn.Module):
    """The box that is given is a copy of the one that the class is made of."""

    def __init__(self):
        super().__init__()
        self.trunk, self.box, self.label = nn.Linear(6, 8), nn.Linear(8, 4), nn.Linear(4, 3)

    def forward(self, x):
        box = self.box(torch.tanh(self.trunk(x)))
        return {"label": self.label(box), "box": torch.cat([box[:, :2], box[:, 2:]], 1)}


class Listed(Heads):
    """A tuple."""

    def forward(self, x):
        outputs = super().forward(x)
        return outputs["label"], outputs["box"]


class Binary(nn.Module):
    """Its output has no axis of one element."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Linear(6, 8)
        self.logit = nn.Linear(8, 1)

    def forward(self, x):
        return self.logit(torch.tanh(self.trunk(x))).squeeze(-1)


class Column(Binary):
    """It keeps the axis, as Keras does."""

    def forward(self, x):
        return super().forward(x)[:, None]


def bce(outputs, targets, weights=None):
    return F.binary_cross_entropy_with_logits(outputs, targets, weights)


def bce_of_all_pairs(outputs, targets):
    """What broadcasting makes of (n, 1) and (n,)."""
    return F.binary_cross_entropy_with_logits(
        outputs[:, None].expand(-1, len(targets)), targets.expand(len(targets), -1)
    )


def bce_unweighted(outputs, targets, weights):
    return F.binary_cross_entropy_with_logits(outputs, targets)


def bce_by_weights(outputs, targets, weights):
    losses = F.binary_cross_entropy_with_logits(outputs, targets, weights, reduction="sum")
    return losses / weights.sum()


def bce_vector(outputs, targets):
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")


def bce_sum(outputs, targets):
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="sum")


def bce_of_small(outputs, targets):
    """It differs for targets that the first batch does not have."""
    return bce(outputs, targets.clamp(max=1))


def squares(outputs, targets):
    return F.mse_loss(outputs, targets)


def cubes(outputs, targets):
    return ((outputs - targets).abs() ** 3).mean()


def root(outputs, targets):
    return F.mse_loss(outputs, targets).sqrt()


def of_column(outputs, targets):
    """For targets as the file has them, (n,)."""
    return F.mse_loss(outputs, targets.unsqueeze(1).to(outputs.dtype))


def logarithm(outputs, targets):
    """Of what may be negative."""
    return outputs.log().mean()


def cross_entropy(outputs, targets):
    return F.cross_entropy(outputs, targets)


def errors(outputs, targets):
    return F.l1_loss(outputs, targets)


def per_sample(outputs, targets):
    """The sum over the elements, where Keras has their mean."""
    return (outputs - targets).square().sum(-1).mean()


def reversed_box(outputs, targets):
    """Each number with the target of another."""
    return F.mse_loss(outputs, targets.flip(-1))


class Detection(nn.Module):
    label, box = 1.0, 0.5

    def forward(self, outputs, targets):
        label = F.cross_entropy(outputs["label"], targets["label"])
        return self.label * label + self.box * F.mse_loss(outputs["box"], targets["box"])


class Exchanged(Detection):
    """The weights are exchanged."""

    label, box = 0.5, 1.0


class Hidden(Detection):
    """The same value, another gradient: no box is learned."""

    def forward(self, outputs, targets):
        return super().forward({**outputs, "box": outputs["box"].detach()}, targets)


def ctc(outputs, targets):
    frames = torch.cat([outputs["label"], outputs["box"][:, 1:]], 1).reshape(-1, 2, 3)
    label = targets["label"].long()
    scores = frames.log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(
        scores, label[:, None], torch.full_like(label, 2), (label > 0).long(), reduction="none"
    ).mean()


def of_list(outputs, targets):
    names = ("label", "box")
    return Detection()(dict(zip(names, outputs, strict=True)), dict(zip(names, targets, strict=True)))


def largest(outputs, targets):
    """Of the batch as a whole."""
    return (outputs - targets).square().max()


def overlap(outputs, targets):
    """One quotient of the sums over the batch."""
    outputs = outputs.square()
    return 1 - (targets.square() * outputs).sum() / (outputs.sum() + 1)


def alike(outputs, targets):
    """Nothing is stopped, of four calls of tanh that are one in the code."""
    one, other_two, two, other_one = map(torch.tanh, outputs.unbind(1))
    return (targets[:, 0] * (one * other_two + two * other_one)).mean()


def committed(outputs, targets):
    """The weight is on the term that moves the first two outputs, which has the value of the other one."""
    one, other = outputs[:, :2], outputs[:, 2:]
    drawn = (one - other.detach()).square().mean()
    return ((outputs - targets) ** 2).mean() + (one.detach() - other).square().mean() + 0.25 * drawn


def committed_first(outputs, targets):
    """As `committed`, with the weighted term before the other one."""
    one, other = outputs[:, :2], outputs[:, 2:]
    loss = ((outputs - targets) ** 2).mean() + (one - other.detach()).square().mean() * 0.25
    return loss + (one.detach() - other).square().mean()


class Penalized(Binary):
    """It gives what Keras adds to the loss beside its output."""

    def forward(self, x):
        y = torch.tanh(self.trunk(x))
        penalty = 0.01 * self.trunk.weight.square().sum() + 0.1 * y.square().mean()
        return self.logit(y).squeeze(-1), penalty


def penalized(outputs, targets):
    logit, penalty = outputs
    return bce(logit, targets) + penalty


class Dropped(Binary):
    """It drops another share, and gives something for its loss beside its output."""

    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.25)

    def forward(self, x):
        y = self.drop(torch.tanh(self.trunk(x)))
        return self.logit(y).squeeze(-1), 0.1 * y.square().mean()


def unpenalized(outputs, targets):
    return bce(outputs[0], targets)


def penalized_step(model, batch):
    penalty = 0.01 * model.trunk.weight.square().sum()
    return unpenalized_step(model, batch) + penalty + 0.1 * torch.tanh(model.trunk(batch[0])).square().mean()


def unpenalized_step(model, batch):
    x, yes = batch
    return bce(model(x), yes.reshape(-1))


class Masked(nn.Module):
    """Four numbers a sample."""

    def __init__(self):
        super().__init__()
        self.trunk, self.box = nn.Linear(6, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.box(torch.tanh(self.trunk(x)))[..., None]


class Centred(Masked):
    """Less their means over the batch."""

    def forward(self, x):
        y = super().forward(x).squeeze(-1)
        return y - y.mean(0)


def squares_above_zero(outputs, targets):
    shown = outputs > 0
    return ((outputs - targets).square() * shown).sum() / shown.sum()


class Coded(Binary):
    """It gives what is to be small beside its output."""

    def forward(self, x):
        y = torch.tanh(self.trunk(x))
        return self.logit(y).squeeze(-1), y


def coded(outputs, targets):
    logit, y = outputs
    return bce(logit, targets) + 1e-3 * y.abs().sum(1).mean()


def of_box(outputs, targets):
    return F.mse_loss(outputs["box"], targets)


def three_terms(outputs, targets):
    return F.mse_loss(outputs, targets) + outputs.abs().mean() / 4 + outputs.tanh().square().mean() / 2


def another_factor(outputs, targets):
    return F.mse_loss(outputs, targets) + outputs.abs().mean() / 2 + outputs.tanh().square().mean() / 2


def detection_ignoring(outputs, targets):
    """A mean over what is not ignored, and a box that is scaled."""
    label = F.cross_entropy(outputs["label"], targets["label"].long(), ignore_index=0)
    return label + 0.5 * F.mse_loss(1.5 * outputs["box"], targets["box"])


def four_terms(outputs, targets):
    more = 0.1 * outputs.pow(4).sum() + outputs.abs().mean() / 4
    return F.mse_loss(outputs, targets) + more + outputs.tanh().square().mean() / 2


def two_terms(outputs, targets):
    return outputs.tanh().square().sum() / (2 * len(outputs)) + F.mse_loss(outputs, targets)


def another_term(outputs, targets):
    return F.mse_loss(outputs, targets) + outputs.abs().mean() / 4 + outputs.sigmoid().square().mean() / 2


class Probable(nn.Module):
    """A port of `probable`."""

    def __init__(self):
        super().__init__()
        self.label = nn.Linear(6, 3)

    def forward(self, x):
        return self.label(x).softmax(-1)


def undivided(outputs, targets):
    """Of the same probabilities, whose sum is one: the gradients differ by what the softmax takes away."""
    return -outputs.log().gather(1, targets.long().view(-1, 1)).mean()
