import torch
from torch import nn


class SlotAttention(nn.Module):
    def __init__(self, num_slots, dim, iters=3, eps=1e-6):
        super().__init__()
        self.num_slots, self.iters, self.eps = num_slots, iters, eps
        self.scale = dim**-0.5
        self.slots = nn.Parameter(torch.randn(1, num_slots, dim))
        self.norm_input = nn.LayerNorm(dim)
        self.norm_slots = nn.LayerNorm(dim, bias=False)
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_kv = nn.Linear(dim, 2 * dim, bias=False)
        self.gru = nn.GRUCell(dim, dim)
        self.mlp = nn.Sequential(
            nn.LayerNorm(dim), nn.Linear(dim, 2 * dim), nn.ReLU(inplace=True), nn.Linear(2 * dim, dim)
        )

    def step(self, slots, k, v):
        b, _, d = slots.shape
        q = self.to_q(self.norm_slots(slots))
        attn = torch.softmax(torch.einsum("bid,bjd->bij", q, k) * self.scale, dim=-1) + self.eps
        attn = attn / attn.sum(dim=-1, keepdim=True)
        updates = attn @ v
        slots = self.gru(updates.reshape(-1, d), slots.reshape(-1, d)).view(b, -1, d)
        return slots + self.mlp(slots)

    def forward(self, inputs):
        k, v = self.to_kv(self.norm_input(inputs)).chunk(2, dim=-1)
        slots = self.slots.expand(inputs.size(0), -1, -1)
        for _ in range(self.iters):
            slots = self.step(slots, k, v)
        return slots


class SoftPositionEmbed(nn.Module):
    def __init__(self, channels, size):
        super().__init__()
        self.proj = nn.Linear(4, channels)
        lin = torch.linspace(0, 1, size, dtype=torch.float64)
        y, x = torch.meshgrid(lin, lin, indexing="ij")
        self.register_buffer(
            "grid", torch.stack((y, x, 1 - y, 1 - x), dim=-1).flatten(0, 1), persistent=False
        )

    def forward(self, x):
        return x + self.proj(self.grid.to(x.dtype))


class Net(nn.Module):
    def __init__(self, size=8, channels=16, num_slots=5, dim=24, num_classes=10):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Conv2d(1, channels, 5, padding=2),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
        )
        self.position = SoftPositionEmbed(channels, size)
        self.mlp = nn.Sequential(nn.Linear(channels, dim), nn.ReLU())
        self.slot_attention = SlotAttention(num_slots, dim)
        self.head = nn.Linear(dim, num_classes)

    def forward(self, x):
        x = self.encoder(x).flatten(2).mT
        x = self.mlp(self.position(x))
        return self.head(self.slot_attention(x).amax(dim=1))
