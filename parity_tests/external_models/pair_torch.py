"""Ports of the models in pair_keras.py, good ones and faulty ones."""

import torch
from torch import nn
from torch.nn import functional as F


class CNN(nn.Module):
    """A faithful port of `cnn`."""

    epsilon, residual, padding = 1e-5, True, "same"

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding="same")
        self.act1 = self.activation()
        self.conv2 = nn.Conv2d(6, 6, 3, padding="same")
        self.norm = nn.GroupNorm(2, 6, eps=self.epsilon)
        self.pool = nn.MaxPool2d(2)
        self.hidden = nn.Linear(96, 16)
        self.square = nn.Linear(16, 16)
        self.head = nn.Linear(16, 5)

    def activation(self):
        return nn.ReLU()

    def forward(self, image):
        x = self.act1(self.conv1(image))
        y = self.conv2(x)
        if self.residual:
            y = x + y
        y = self.pool(self.norm(y)).flatten(1)
        return self.head(torch.tanh(self.square(torch.tanh(self.hidden(y)))))


class OtherEpsilon(CNN):
    """The epsilon of Keras's own default."""

    epsilon = 1e-3


class OtherActivation(CNN):
    """A leaky ReLU where a ReLU should be."""

    def activation(self):
        return nn.LeakyReLU(0.1)


class NoResidual(CNN):
    """The connection around the second convolution is forgotten."""

    residual = False


class NoFunction(CNN):
    """The function behind a dense layer is forgotten."""

    def forward(self, image):
        x = self.act1(self.conv1(image))
        y = self.pool(self.norm(x + self.conv2(x))).flatten(1)
        return self.head(torch.tanh(self.square(self.hidden(y))))


class TwoFaults(OtherEpsilon, OtherActivation):
    """One fault behind another."""


class Custom(CNN):
    """Scales by a number that nothing tells of."""

    def forward(self, image):
        return 1.01 * super().forward(image)


class Stock(nn.Module):
    """Torch's own defaults of the same net as `stock`."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, stride=2, padding=1)
        self.norm1 = nn.BatchNorm2d(6)
        self.act1 = nn.LeakyReLU()
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.norm2 = nn.BatchNorm2d(8)
        self.act2 = nn.LeakyReLU()
        self.pool = nn.AvgPool2d(3, stride=2, padding=1)
        self.head = nn.Linear(32, 5)

    def forward(self, image):
        x = self.act1(self.norm1(self.conv1(image)))
        x = self.act2(self.norm2(self.conv2(x)))
        return self.head(self.pool(x).flatten(1))


def stock_adam(parameters):
    """Torch's Adam as it comes."""
    return torch.optim.Adam(parameters)


class Fused(nn.Module):
    """A port of `fused`: the layer has two names, and query, key and value are one tensor."""

    def __init__(self):
        super().__init__()
        self.twice, self.tied = nn.Linear(6, 6, bias=False), nn.Linear(6, 6, bias=False)
        self.tied.weight = self.twice.weight
        self.attention, self.head = nn.MultiheadAttention(3, 1, batch_first=True), nn.Linear(6, 3)

    def forward(self, x):
        y = self.tied(self.twice(x)).unflatten(1, (2, 3))
        return self.head(self.attention(y, y, y)[0].flatten(1))


class TwoInputs(nn.Module):
    """A port of `two_inputs`."""

    def __init__(self):
        super().__init__()
        self.of_left, self.of_right = nn.Linear(6, 5), nn.Linear(4, 5)
        self.head = nn.Linear(10, 3)

    def forward(self, left, right):
        return self.head(torch.tanh(torch.cat([self.of_left(left), self.of_right(right)], 1)))


class MLP(nn.Module):
    """A port of `mlp`."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.last(F.gelu(self.first(x)))


class TanhMLP(MLP):
    """A port of `tanh_mlp`."""

    def forward(self, x):
        return self.last(torch.tanh(self.first(x)))


class Unused(TanhMLP):
    """With a layer that nothing calls."""

    def __init__(self):
        super().__init__()
        self.spare = nn.Linear(4, 4)


class Unmapped(TanhMLP):
    """With a trainable scale that Keras's model has not."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(7))

    def forward(self, x):
        return super().forward(x) * self.scale.mean()


class Mixed(TanhMLP):
    """With a trainable tensor that Keras's model has not, and that no name tells; it begins as halves."""

    begins = 0.5

    def __init__(self):
        super().__init__()
        self.mixture = nn.Parameter(torch.full((7,), self.begins))

    def forward(self, x):
        return super().forward(x) * self.mixture.mean()


class MixedOnes(Mixed):
    """It begins as ones."""

    begins = 1.0


class OfTwo(nn.Module):
    """A port of `of_two`."""

    def __init__(self):
        super().__init__()
        self.first, self.narrow, self.wide = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(6, 4)
        self.norm, self.last = nn.LayerNorm(2, eps=1e-6), nn.Linear(6, 3)

    def forward(self, x):
        normed = self.norm(self.narrow(torch.tanh(self.first(x))))
        return self.last(torch.cat([self.wide(x), normed], -1))


class Centred(nn.Module):
    """A port of `centred`."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 5), nn.Linear(5, 3)

    def forward(self, x):
        y = self.first(x)
        return self.last(y - y.mean(0))


class Generator(nn.Module):
    """A port of `generator`."""

    def __init__(self):
        super().__init__()
        self.first, self.up = nn.Linear(6, 36), nn.ConvTranspose2d(4, 2, 4, stride=2, padding=1)

    def forward(self, x):
        return self.up(self.first(x).view(-1, 4, 3, 3))


class Single(nn.Module):
    """A port of `single`."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(self.first(x)).squeeze(-1)


class Gated(nn.Module):
    """A port of `gated`."""

    def __init__(self):
        super().__init__()
        self.gate, self.last = nn.Linear(6, 1), nn.Linear(6, 3)

    def sizes(self, x):
        return x.abs()

    def forward(self, x):
        sizes = self.sizes(x) * x.new_tensor([300.0, 300.0, 1.0, 1.0, 1.0, 1.0])
        return self.last(x) + self.gate(sizes).relu()


class Squared(Gated):
    def sizes(self, x):
        return x**2


class Limited(nn.Module):
    """A port of `limited`."""

    def __init__(self):
        super().__init__()
        self.first, self.limit, self.last = nn.Linear(6, 5), nn.ReLU6(), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.limit(self.first(x)))


class Unlimited(Limited):
    def __init__(self):
        super().__init__()
        self.limit = nn.ReLU()


class Dropped(nn.Module):
    """A port of `dropped`; it rounds a constant when it is built."""

    def __init__(self):
        super().__init__()
        self.first, self.act, self.drop, self.last = (
            nn.Linear(6, 8),
            nn.Tanh(),
            nn.Dropout(0.5),
            nn.Linear(8, 3),
        )
        self.wave = torch.sin(torch.arange(6).float() * 0.1 + 1)

    def forward(self, x):
        ones = (self.wave * torch.ones(6, dtype=torch.float32)).diag() * (x == x).float().amin()
        return self.last(self.drop(self.act(self.first(x.to(torch.float) @ ones))))


class AlwaysDropped(Dropped):
    """`training=self.training` was forgotten."""

    def __init__(self):
        super().__init__()
        del self.drop
        self.drop = lambda x: F.dropout(x, 0.5)


class Between(nn.Module):
    """It drops between the layers of an LSTM, which draws in a function of its own."""

    def __init__(self):
        super().__init__()
        self.lstm, self.last = nn.LSTM(6, 4, 2, batch_first=True, dropout=0.5), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(self.lstm(x[:, None])[0][:, 0])


class Noisy(TanhMLP):
    """It draws random numbers where no layer says so."""

    def forward(self, x):
        return super().forward(x) + 1e-3 * torch.randn(3, dtype=x.dtype)


class Keeping(TanhMLP):
    """It adds a part of what it gave at the call before, as a recurrent layer does whose state is not reset."""

    kept = 0.0

    def forward(self, x):
        result = super().forward(x) + self.kept
        self.kept = 0.1 * result.detach().mean()
        return result


class BiasedNorm(nn.BatchNorm2d):
    """A batch norm that keeps the biased variance, as Keras's does."""

    def forward(self, x):
        if self.training:
            axes = (0, 2, 3)
            with torch.no_grad():
                rate = self.momentum
                self.running_mean.mul_(1 - rate).add_(rate * x.mean(axes))
                self.running_var.mul_(1 - rate).add_(rate * x.var(axes, correction=0))
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        return super().forward(x)


class Pooled(nn.Module):
    """A faithful port of `pooled`."""

    padding, momentum, norm = 1, 0.1, BiasedNorm

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 6, 3, padding=self.padding)
        self.norm1 = self.norm(6, momentum=self.momentum)
        self.act1 = nn.ReLU()
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)

    def forward(self, image):
        x = self.conv2(self.act1(self.norm1(self.conv1(image))))
        return self.head(x.mean((2, 3)))


class OtherPadding(Pooled):
    """No padding where Keras pads."""

    padding = 0


class StockNorm(Pooled):
    """With torch's own statistics."""

    norm = nn.BatchNorm2d


class StockNormWithin(nn.BatchNorm2d):
    """A stock one of a class of the port's own."""

    def forward(self, x):
        return super().forward(x.contiguous())


class OwnStockNorm(Pooled):
    """With torch's own statistics, by a class that derives from torch's."""

    norm = StockNormWithin


class OtherMomentum(Pooled):
    """Keras's number, which means the opposite here."""

    momentum, norm = 0.9, nn.BatchNorm2d


class Recurrent(nn.Module):
    """A port of `recurrent`, with torch's two biases."""

    def __init__(self):
        super().__init__()
        self.memory, self.last = nn.LSTM(6, 7, batch_first=True), nn.Linear(7, 3)

    def forward(self, x):
        return self.last(self.memory(x)[0][:, -1])


class TimeFirst(Recurrent):
    """`batch_first=True` was forgotten."""

    def __init__(self):
        super().__init__()
        self.memory = nn.LSTM(6, 7)


class Pixels(nn.Module):
    """A port of `pixels`, whose outputs have the channels first."""

    def __init__(self):
        super().__init__()
        self.conv1, self.classes = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 4, 1)

    def forward(self, image):
        return self.classes(torch.tanh(self.conv1(image)))


class Decayed(nn.Module):
    """Of `decayed`, without its penalty: the optimizer has it."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(6, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(torch.tanh(self.first(x)))


class Cooled(nn.Module):
    """Of `cooled`."""

    within = 8.0  # in so many passes the factor falls to 1/e of what it is above 1

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(6, 4), nn.Linear(4, 3)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x):
        y = torch.tanh(self.first(x)) * (1 + torch.exp(-self.passes / self.within))
        if self.training:
            self.passes += 1
        return self.head(y)


class CooledSooner(Cooled):
    within = 5.0


class ProjectedSGD(torch.optim.SGD):
    """With the first kernel kept from being negative."""

    @torch.no_grad()
    def step(self, closure=None):
        super().step(closure)
        self.param_groups[0]["params"][0].clamp_(min=0)


def projected_sgd(parameters):
    return ProjectedSGD(parameters, 0.1)


def decaying_sgd(parameters):
    """A weight decay of twice the factor of the penalty."""
    return torch.optim.SGD(parameters, 0.1, weight_decay=0.02)


def sgd(parameters):
    return torch.optim.SGD(parameters, 0.1)


def exact_sgd(parameters):
    return torch.optim.SGD(parameters, 0.125)


def later_sgd(parameters):
    """A port of `later_sgd`: Keras still takes the first rate at the boundary."""
    optimizer = exact_sgd(parameters)
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [101], 0.5)


def falling_sgd_of_groups(parameters, of_biases=0.25):
    """A port of the same."""
    parameters = list(parameters)
    biases, others = ([p for p in parameters if (p.ndim == 1) is one] for one in (True, False))
    optimizer = torch.optim.SGD([{"params": biases, "lr": of_biases}, {"params": others}], 0.125)
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [3], 0.5)


def falling_sgd_of_slow_biases(parameters):
    return falling_sgd_of_groups(parameters, 0.125)


def falling_sgd_of_one_group(parameters):
    optimizer, _ = falling_sgd_of_groups(parameters)
    each = [lambda step: 1.0, lambda step: 0.5 ** (step > 2)]
    return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, each)


def falling_sgd(parameters):
    """A port of `falling_sgd`, whose scheduler is stepped once more before the training."""
    optimizer = torch.optim.SGD(parameters, 0.05)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 ** (step / 10))
    optimizer.step()
    scheduler.step()
    return optimizer, scheduler


class FallingSGD(torch.optim.Optimizer):
    """It lets its rate fall by itself, at any step."""

    def __init__(self, params, lr=0.05):
        super().__init__(params, {"lr": lr})
        self.updates = 0

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                if each.grad is not None:
                    each.add_(each.grad, alpha=-group["lr"] * 0.5 ** (self.updates / 10))
        self.updates += 1


def self_falling_sgd(parameters):
    return FallingSGD(parameters)


def halved_sgd(parameters):
    return torch.optim.SGD(parameters, 0.1, weight_decay=0.01)


def decoupled_adam(parameters):
    return torch.optim.AdamW(parameters, 0.01, weight_decay=0.02)


def adamw(parameters):
    return torch.optim.AdamW(parameters, 0.01, weight_decay=0.02, eps=1e-7)


def coupled_adam(parameters):
    return torch.optim.Adam(parameters, 0.01, weight_decay=0.02, eps=1e-7)


def _of_kernels(parameters):
    """A weight decay of kernels alone."""
    both = [[], []]
    for each in parameters:
        both[each.dim() > 1].append(each)
    return [{"params": each, "weight_decay": 0.02 * decays} for decays, each in enumerate(both)]


def adamw_of_kernels(parameters):
    return torch.optim.AdamW(_of_kernels(parameters), 0.01, eps=1e-7)


class OwnAdamW(torch.optim.Optimizer):
    """AdamW with its epsilon outside of the bias correction, as Keras has it; `corrects`: whether it corrects at all."""

    def __init__(self, params, lr=0.01, betas=(0.9, 0.999), eps=1e-7, weight_decay=0.02, corrects=True):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.corrects = corrects

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta_1, beta_2 = group["betas"]
            for each in group["params"]:
                if each.grad is None:
                    continue
                state = self.state[each]
                if not state:
                    state.update(step=0, mean=torch.zeros_like(each), square=torch.zeros_like(each))
                state["step"] += 1
                mean = state["mean"].lerp_(each.grad, 1 - beta_1)
                square = state["square"].lerp_(each.grad.square(), 1 - beta_2)
                rate = group["lr"]
                if self.corrects:
                    rate *= (1 - beta_2 ** state["step"]) ** 0.5 / (1 - beta_1 ** state["step"])
                each.mul_(1 - group["lr"] * group["weight_decay"])
                each.addcdiv_(mean, square.sqrt() + group["eps"], value=-rate)


def own_adamw(parameters):
    return OwnAdamW(parameters)


def uncorrected_adamw(parameters):
    return OwnAdamW(parameters, corrects=False)


def adam_without_epsilon(parameters):
    return torch.optim.Adam(parameters, 0.01, eps=1e-20)


class HeldSGD(torch.optim.SGD):
    """It clips at a limit that none of its attributes tells."""

    def step(self, closure=None):
        torch.nn.utils.clip_grad_norm_(
            [each for group in self.param_groups for each in group["params"]], 0.01
        )
        return super().step(closure)


def held_sgd(parameters):
    return HeldSGD(parameters, 0.1)


class VectorDecay(torch.optim.Optimizer):
    """A rule by hand, in which vectors alone decay."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                decay = 0.02 if each.ndim == 1 else 0.0
                each.sub_(each.grad + decay * each, alpha=group["lr"])


def vector_decay(parameters):
    return VectorDecay(parameters)


class AbsoluteSGD(VectorDecay):
    """A rule by hand that loses the signs."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                each.sub_(each.grad.abs(), alpha=group["lr"])


def absolute_sgd(parameters):
    return AbsoluteSGD(parameters)


class KerasRMSprop(torch.optim.Optimizer):
    """Keras's RMSprop by hand."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for each in group["params"]:
                squares = self.state[each].setdefault("squares", torch.zeros_like(each))
                squares.mul_(0.9).addcmul_(each.grad, each.grad, value=1 - 0.9)
                each.sub_(group["lr"] * each.grad / (squares + 1e-7).sqrt())


def keras_rmsprop(parameters):
    return KerasRMSprop(parameters)


class LateSGD(torch.optim.SGD):
    """From its fourth update on it goes half as far."""

    updates = 0

    def step(self, closure=None):
        self.updates += 1
        for parameter in (each for group in self.param_groups for each in group["params"]):
            parameter.grad.mul_(0.5 if self.updates > 3 else 1.0)
        return super().step(closure)


def late_sgd(parameters):
    return LateSGD(parameters, 0.1)


class LateSquares(LateSGD):
    """From its fourth update on it goes by the squares of gradients, with their signs."""

    def step(self, closure=None):
        if self.updates >= 3:
            for group in self.param_groups:
                for each in group["params"]:
                    each.grad = each.grad * each.grad.abs()
        self.updates += 1
        return torch.optim.SGD.step(self, closure)


def late_squares(parameters):
    return LateSquares(parameters, 0.1)


class ClippedSGD(torch.optim.SGD):
    """Gradients are clipped by the norm of all before each step."""

    def __init__(self, params, lr, max_norm):
        super().__init__(params, lr)
        self.max_norm = max_norm

    def step(self, closure=None):
        nn.utils.clip_grad_norm_(
            [each for group in self.param_groups for each in group["params"]], self.max_norm
        )
        return super().step(closure)


def clipped_sgd(parameters):
    return ClippedSGD(parameters, 0.1, 0.01)


def sgd_of_kernels(parameters):
    return torch.optim.SGD(_of_kernels(parameters), 0.1)


class Table(nn.Module):
    """A port of `table`."""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(4, 2), nn.Linear(12, 3)

    def forward(self, x):
        return self.last(self.table(x).flatten(1))


def table_step(model, batch):
    x, y = batch
    return F.cross_entropy(model(x), y)


def rolling_sgd(parameters):
    """With a momentum that has no rate in it."""
    optimizer = torch.optim.SGD(parameters, lr=0.125, momentum=0.5)
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [3], 0.5)


class RollingSGD(torch.optim.SGD):
    """Its momentum has the rate in it, as Keras's has."""

    def step(self, closure=None):
        for group in self.param_groups:
            before, group["before"] = group.get("before", group["lr"]), group["lr"]
            for parameter in group["params"]:
                buffer = self.state[parameter].get("momentum_buffer")
                if buffer is not None:
                    buffer.mul_(before / group["lr"])
        return super().step(closure)


def keras_like_rolling_sgd(parameters):
    optimizer = RollingSGD(parameters, lr=0.125, momentum=0.5)
    return optimizer, torch.optim.lr_scheduler.MultiStepLR(optimizer, [3], 0.5)


class Numbered(nn.Module):
    """A port of `numbered`."""

    def __init__(self):
        super().__init__()
        self.table, self.dense = nn.Embedding(60, 4), nn.Linear(4, 3)

    def forward(self, number):
        return self.dense(self.table(number))


class IdleAtFirst(nn.Module):
    """A port of `idle_at_first`."""

    def __init__(self):
        super().__init__()
        self.inner, self.norm, self.outer = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)

    def forward(self, x):
        return self.outer(x + self.norm(self.inner(x)))
