"""Whole models of Keras's own layers: a Keras file holds one; a torch file needs none."""
