"""Tensors that ranks hold in parts: only PyTorch's strategies shard."""
