"""Our rules inside optimizers that hold tensors themselves: only PyTorch's wrappers want one."""
