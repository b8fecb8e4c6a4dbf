import copy

import torch
import torch.nn as nn
import torch.nn.functional as F


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(40, 32)
        self.norm = nn.LayerNorm(32)
        self.fc2 = nn.Linear(32, 16)
        self.logits = nn.Linear(16, 4)

    def forward(self, x):
        return self.logits(F.silu(self.fc2(F.silu(self.norm(self.fc1(x))))))


class MeanTeacher(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = Network()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.global_step = 0

    def forward(self, weak, strong):
        return self.student(strong), self.teacher(weak)

    @torch.no_grad()
    def update_teacher(self):
        self.global_step += 1
        decay = min(0.99, (1 + self.global_step) / (10 + self.global_step))
        for t, s in zip(self.teacher.parameters(), self.student.parameters()):
            t.lerp_(s, 1 - decay)


def _views(batch):
    x, y = batch
    if isinstance(x, dict):
        x = x["weak"], x["strong"]
    return x[0], x[1], y


def training_step(model, batch):
    weak, strong, y = _views(batch)
    model.update_teacher()
    student, teacher = model(weak, strong)
    supervised = F.cross_entropy(student, y.view(-1).long(), ignore_index=-1)
    consistency = F.mse_loss(student.softmax(-1), teacher.softmax(-1).detach())
    return supervised + 2.0 * consistency


def build():
    return MeanTeacher()
