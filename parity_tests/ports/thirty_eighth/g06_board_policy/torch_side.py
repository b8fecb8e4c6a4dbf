import torch
import torch.nn.functional as F
from torch import nn


def conv_bn(cin, cout, k):
    return nn.Sequential(
        nn.Conv2d(cin, cout, k, padding=k // 2, bias=False),
        nn.BatchNorm2d(cout, eps=1e-3, momentum=0.01),
    )


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = conv_bn(width, width, 3)
        self.b = conv_bn(width, width, 3)
        self.squeeze = nn.Linear(width, 4)
        self.excite = nn.Linear(4, 2 * width)

    def forward(self, x):
        r = self.b(self.a(x).relu())
        scale, shift = self.excite(self.squeeze(r.mean((2, 3))).relu())[:, :, None, None].chunk(2, dim=1)
        return torch.addcmul(x + shift, r, scale.sigmoid()).relu_()


class PolicyValueNet(nn.Module):
    def __init__(self, width=16, board=7):
        super().__init__()
        self.trunk = nn.Sequential(conv_bn(4, width, 3), nn.ReLU(), Residual(width), Residual(width))
        self.policy_head = nn.Sequential(
            conv_bn(width, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(2 * board * board, board * board + 1)
        )
        self.value_head = nn.Sequential(
            conv_bn(width, 3, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(3 * board * board, 16),
            nn.ReLU(),
            nn.Linear(16, 1),
            nn.Tanh(),
        )

    def forward(self, x):
        if x.shape[-1] == 4:
            x = x.permute(0, 3, 1, 2)
        h = self.trunk(x)
        return self.policy_head(h), self.value_head(h)


def policy_loss(logits, target):
    return -(target * F.log_softmax(logits, dim=-1)).sum(-1).mean()


value_loss = nn.MSELoss()


def optimizer(parameters):
    opt = torch.optim.Adagrad(parameters, lr=0.03, initial_accumulator_value=0.1, eps=1e-7)
    factors = [1.0] * 20 + [1 / 3] * 15 + [0.1]
    return opt, torch.optim.lr_scheduler.LambdaLR(opt, lambda step: factors[min(step, 35)])


def build():
    torch.manual_seed(0)
    return PolicyValueNet()
