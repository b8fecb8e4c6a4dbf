import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class LoRALinear(nn.Module):
    def __init__(self, base: nn.Linear, r=4, lora_alpha=8):
        super().__init__()
        self.base = base
        for p in self.base.parameters():
            p.requires_grad = False
        self.lora_A = nn.Parameter(torch.empty(r, base.in_features))
        self.lora_B = nn.Parameter(torch.zeros(base.out_features, r))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))
        self.lora_dropout = nn.Dropout(0.1)
        self.scaling = lora_alpha / r

    def forward(self, x):
        return self.base(x) + self.scaling * F.linear(
            F.linear(self.lora_dropout(x), self.lora_A), self.lora_B
        )


class IntentClassifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = nn.Embedding(50, 16)
        self.norm = nn.LayerNorm(16, eps=1e-3)
        for module in (self.embeddings, self.norm):
            module.requires_grad_(False)
        self.fc1 = LoRALinear(nn.Linear(16, 24))
        self.fc2 = LoRALinear(nn.Linear(24, 16))
        self.classifier = nn.Linear(16, 6)

    def forward(self, input_ids):
        x = self.norm(self.embeddings(input_ids.long()))
        x = x + self.fc2(F.gelu(self.fc1(x)))
        return self.classifier(x.amax(dim=1))


def build():
    return IntentClassifier()


def loss(outputs, targets):
    return F.cross_entropy(outputs, targets.long())
