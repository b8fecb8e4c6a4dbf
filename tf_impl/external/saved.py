"""A live Keras model as a file, from which another process makes the same one; twin of torch_impl's."""

from __future__ import annotations

from pathlib import Path

import keras

from parity.common.base.errors import ExternalModelError


def save(model: keras.Layer, path: Path) -> None:
    """Write a model; raises ExternalModelError where Keras cannot."""
    if not isinstance(model, keras.Model):
        raise ExternalModelError(
            f"a {type(model).__name__} is no keras.Model, so that Keras writes no file of it; give it by its name,"
            " 'package.module:attribute'"
        )
    try:
        model.save(path)
    except (ValueError, TypeError, NotImplementedError, AttributeError, OSError) as error:
        raise ExternalModelError(
            f"Keras cannot write the model: {' '.join(str(error).split())[:200]}; give it by its name,"
            " 'package.module:attribute'"
        ) from None


def load(path: str) -> keras.Model:
    """Make the model that a file holds; its classes are imported by their names. Raises what Keras does."""
    return keras.saving.load_model(path, compile=False)
