"""A user's own Keras model: built, described, run layer by layer."""
