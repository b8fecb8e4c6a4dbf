"""What a peer does first: set threads and devices, which cannot be changed once the framework has run."""

import torch

torch.set_num_threads(1)
