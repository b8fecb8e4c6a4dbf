"""Calls of graphs that return before they are done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import tensorflow as tf


@contextmanager
def launching_ahead(steps: int) -> Iterator[None]:
    """Within it calls return before they are done, on CPU as on a GPU, where `steps` are to be launched ahead."""
    if not steps:
        yield
        return
    tf.config.experimental.set_synchronous_execution(False)
    try:
        yield
    except BaseException:
        # It would be raised again by whatever this process does next.
        tf.experimental.async_clear_error()
        raise
    finally:
        tf.config.experimental.set_synchronous_execution(True)
