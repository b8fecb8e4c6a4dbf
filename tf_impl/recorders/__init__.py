"""Callbacks of Keras's own loops, over `Recorder`."""
