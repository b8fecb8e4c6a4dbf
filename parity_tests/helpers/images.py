"""Single layers against the frameworks' own, against each other's conventions, and on empty batches."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from parity_tests.helpers.layers import Case, deviations
from parity_tests.peers import Arrays, Peer
from parity_tests.tables.vocabulary import LIMIT, Vocabulary

Array = NDArray[Any]
FEW = settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
draws = st.integers(0, 2**32 - 1)
conventions = st.sampled_from(["keras", "torch"])
# Layouts of torch tensors: native name -> canonical name, axes from canonical to native.
CONV2D = {"weight": ("kernel", (3, 2, 0, 1)), "bias": ("bias", (0,))}
CONV1D = {"weight": ("kernel", (2, 1, 0)), "bias": ("bias", (0,))}
AFFINE = {"weight": ("gamma", (0,)), "bias": ("beta", (0,))}


def short(results: Arrays) -> Arrays:
    """By the names inside the layer: dparameters/conv2d/kernel becomes dkernel."""
    names = {
        name: f"d{name.split('/', 2)[2]}" if name.startswith("d") else name.split("/", 2)[2]
        for name in results
        if "/" in name
    }
    return {names.get(name, name): value for name, value in results.items() if name != "penalty"}


def ours(peers: dict[str, Peer], framework: str, case: Case, arrays: Arrays | None = None) -> Arrays:
    """One pass of our layer in one framework."""
    given = case.arrays() if arrays is None else arrays
    return short(peers[framework]("layers:forward_backward", case.facts, given))


def against(
    vocabulary: Vocabulary, case: Case, mine: Arrays, theirs: Arrays, referee: str, limit: float = LIMIT
) -> None:
    """Assert that our layer did as the framework's own."""
    found = deviations(mine, theirs)
    vocabulary.saw("layer", case.layers[0]["kind"], max(found.values()), referee)
    far = {name: value for name, value in found.items() if not value <= limit}
    assert not far, f"{referee}, {case}: {far}"


def keras_layer(
    peers: dict[str, Peer],
    case: Case,
    layer: str,
    tensors: tuple[str, ...] = (),
    training: bool | None = None,
    trainable: bool = True,
    given: Arrays | None = None,
    **arguments: Any,
) -> Arrays:
    """One pass of keras.layers.<layer> with the numbers of a case, or those given."""
    facts = {
        "layer": layer,
        "arguments": arguments,
        "tensors": tensors,
        "training": training,
        "trainable": trainable,
    }
    return peers["tensorflow"]("image:stock", facts, short(case.arrays()) if given is None else given)


def torch_module(
    peers: dict[str, Peer],
    case: Case,
    layer: str,
    tensors: dict[str, tuple[str, tuple[int, ...]]] | None = None,
    channels_first: bool = True,
    trainable: bool = True,
    given: Arrays | None = None,
    **arguments: Any,
) -> Arrays:
    """One pass of nn.<layer> with the numbers of a case, or those given."""
    facts = {
        "layer": layer,
        "arguments": arguments,
        "tensors": tensors or {},
        "training": case.training,
        "trainable": trainable,
        "channels_first": channels_first,
    }
    return peers["torch"]("image:stock", facts, short(case.arrays()) if given is None else given)


def against_keras(
    peers: dict[str, Peer], vocabulary: Vocabulary, case: Case, layer: str, *tensors: str, **arguments: Any
) -> None:
    """Our PyTorch side under convention keras does as the stock Keras layer."""
    theirs = keras_layer(peers, case, layer, tensors, **arguments)
    against(vocabulary, case, ours(peers, "torch", case), theirs, f"keras.layers.{layer}")


def against_torch(
    peers: dict[str, Peer],
    vocabulary: Vocabulary,
    case: Case,
    layer: str,
    tensors: dict[str, tuple[str, tuple[int, ...]]] | None = None,
    **arguments: Any,
) -> None:
    """Our TensorFlow side under convention torch does as the stock PyTorch module."""
    theirs = torch_module(peers, case, layer, tensors, **arguments)
    against(vocabulary, case, ours(peers, "tensorflow", case), theirs, f"nn.{layer}")


def apart(peers: dict[str, Peer], case: Case, other: Case) -> float:
    """How far TensorFlow on one case is from PyTorch on the same numbers in another."""
    arrays = case.arrays()
    found = deviations(
        ours(peers, "tensorflow", case, arrays), ours(peers, "torch", other, {**other.arrays(), **arrays})
    )
    return max(found.values())


def check_empty(peers: dict[str, Peer], layer: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Assert that no samples give an output of no samples and gradients of exactly zero."""
    for convention in ("keras", "torch"):
        case = Case((layer,), shape, convention, batch=0)
        for precision in ("float64", "float32"):
            arrays = {
                name: value.astype(precision) if value.dtype == np.float64 else value
                for name, value in case.arrays().items()
            }
            for framework in ("tensorflow", "torch"):
                facts = {**case.facts, "precision": precision}
                results = peers[framework]("image:in_a_graph", facts, arrays)
                where = f"{framework}, {precision}, {case}"
                assert results["y"].shape == (0, *case.model.output_shape()), where
                assert results["dx"].shape == (0, *shape), where
                passed = {name: v for name, v in results.items() if name == "y" or name.startswith("d")}
                assert all(value.dtype == precision for value in passed.values()), where
                assert all((value == 0).all() for value in passed.values()), where
