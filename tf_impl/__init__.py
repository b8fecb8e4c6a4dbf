"""TensorFlow half of the parity toolkit. Never imports torch; twin of torch_impl."""
