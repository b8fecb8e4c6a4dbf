import torch
import torch.nn as nn
import torch.nn.functional as F

BITS, N_WORDS = 4, 4
T, ALPHA = 3.0, 0.3


def ste(x, q):
    return x + (q - x).detach()


class FakeQuantConv1d(nn.Conv1d):
    def __init__(self, cin, cout, k, stride=1, limit=0.12):
        super().__init__(cin, cout, k, stride=stride, bias=False)
        self.limit = limit
        self.levels = 2 ** (BITS - 1) - 1

    def quantised(self):
        w = self.weight.clamp(-self.limit, self.limit)
        q = torch.round(w * (self.levels / self.limit)) * (self.limit / self.levels)
        return ste(w, q)

    def forward(self, x):
        pad = max(self.kernel_size[0] - self.stride[0], 0)
        x = F.pad(x, (pad // 2, pad - pad // 2))
        return F.conv1d(x, self.quantised(), stride=self.stride)


class ClippedAct(nn.Module):
    def __init__(self, start=1.5, decay=0.9):
        super().__init__()
        self.decay = decay
        self.register_buffer("top", torch.tensor(start))

    def forward(self, x):
        if self.training:
            self.observe(x.detach())
        top = self.top.clone()
        x = torch.minimum(x.clamp(min=0), top)
        n = 2**BITS - 1
        return ste(x, torch.round(x / top * n) / n * top)

    @torch.no_grad()
    def observe(self, x):
        self.top.lerp_(x.max(), 1 - self.decay)


class WakeWordStudent(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(24, N_WORDS)
        for i, (cin, cout, k, s) in enumerate([(16, 16, 5, 2), (16, 16, 3, 1), (16, 24, 3, 2)], 1):
            self.add_module(f"qconv{i}", FakeQuantConv1d(cin, cout, k, s))
            self.add_module(f"bn{i}", nn.BatchNorm1d(cout, eps=1e-3, momentum=0.05))
            self.add_module(f"qact{i}", ClippedAct())

    def forward(self, mel):
        x = mel.transpose(1, 2)
        x = self.qact1(self.bn1(self.qconv1(x)))
        x = self.qact2(self.bn2(self.qconv2(x)) + x)
        x = self.qact3(self.bn3(self.qconv3(x)))
        return self.fc(x.mean(dim=2))


def train_step(model, batch):
    mel, y = (batch["mel"], batch["y"]) if isinstance(batch, dict) else batch[:2]
    logits = model(mel)
    word, teacher = y[:, 0].long(), y[:, 1:]
    soft = F.kl_div(
        F.log_softmax(logits / T, -1), F.log_softmax(teacher / T, -1), reduction="batchmean", log_target=True
    )
    return ALPHA * F.cross_entropy(logits, word) + (1 - ALPHA) * T * T * soft


def build():
    return WakeWordStudent()
