"""Names and layouts that only PyTorch's tensors have; Keras's are the canonical ones."""
