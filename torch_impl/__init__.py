"""PyTorch half of the parity toolkit. Never imports tensorflow; twin of tf_impl."""
