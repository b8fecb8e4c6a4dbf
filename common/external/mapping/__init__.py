"""Which tensors of a Keras model are which of its port: rules, proposals, probing."""
