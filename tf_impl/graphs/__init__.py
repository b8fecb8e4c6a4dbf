"""Steps as TensorFlow graphs: only this side traces."""
