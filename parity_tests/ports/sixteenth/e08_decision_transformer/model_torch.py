import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.norm_attention = nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=dropout, batch_first=True)
        self.feed_forward = nn.Sequential(
            nn.LayerNorm(width),
            nn.Linear(width, 4 * width),
            nn.SiLU(),
            nn.Linear(4 * width, width),
            nn.Dropout(dropout),
        )
        self.heads = heads

    def forward(self, x, blocked):
        h = self.norm_attention(x)
        x = (
            x
            + self.attention(h, h, h, attn_mask=blocked.repeat_interleave(self.heads, 0), need_weights=False)[
                0
            ]
        )
        return x + self.feed_forward(x)


class DecisionTransformer(nn.Module):
    def __init__(self, state=5, action=2, width=32, heads=2, depth=2, max_timestep=32, dropout=0.1):
        super().__init__()
        self.time = nn.Embedding(max_timestep, width)
        self.ret, self.state, self.action = (
            nn.Linear(1, width),
            nn.Linear(state, width),
            nn.Linear(action, width),
        )
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads, dropout) for _ in range(depth))
        self.policy = nn.Sequential(nn.Linear(width, action), nn.Tanh())

    def forward(self, returns, states, actions, timesteps, mask):
        b, k = timesteps.shape
        x = torch.stack([self.ret(returns), self.state(states), self.action(actions)], dim=2)
        x = self.norm((x + self.time(timesteps).unsqueeze(2)).flatten(1, 2))
        future = torch.ones(3 * k, 3 * k, dtype=torch.bool, device=x.device).triu(1)
        padding = (mask == 0).repeat_interleave(3, dim=1).unsqueeze(1)
        # a padded token sees itself, so that its softmax is not of nothing
        blocked = (future | padding) & ~torch.eye(3 * k, dtype=torch.bool, device=x.device)
        for layer in self.layers:
            x = layer(x, blocked)
        return self.policy(x[:, 1::3])


def action_loss(output, target):
    actions, real = target.split([output.shape[-1], 1], dim=-1)
    chosen = real.squeeze(-1) > 0
    return F.mse_loss(output[chosen], actions[chosen])
