"""A mapping put to the test, with what is wrong in words."""

from __future__ import annotations

from parity.common.external.mapping.trial import AGREES, Bench, Inputs
from parity.common.external.process.worker import ExternalWorker
from parity.common.spec.external.mapping import Mapping


def verify(
    mapping: Mapping,
    keras_side: ExternalWorker,
    torch_side: ExternalWorker,
    inputs: Inputs,
    torch_inputs: Inputs | None = None,
) -> list[str]:
    """What is wrong with a mapping by experiment, in one line for each group of layers; [] where all agrees.

    As `refine`, and nothing is changed. A line names the tensors, and by how much their layers differ.
    """
    with Bench(mapping, keras_side, torch_side, inputs, torch_inputs) as bench:
        pairs = mapping.tensors
        bench.find_functions(pairs)
        trial = bench.try_out(pairs, inject=True)
        labels = ["; ".join(pairs[index].label for index in part.pairs) for part in bench.parts]
        found = [
            f"{labels[place]}: with these tensors the layers {component.keras!r} and"
            f" {component.torch!r} differ by {trial.deviations[place]:.1g} of the largest value"
            for place, component in enumerate(bench.parts)
            if trial.deviations.get(place, 0.0) > AGREES
        ]
        if not found and AGREES < trial.outputs < float("inf"):
            hidden = [place for place in range(len(bench.parts)) if place not in trial.deviations]
            tensors = "".join(labels[place] for place in hidden[:1])
            found = [
                f"{tensors or 'what comes after the last mapped layer'}: every layer that can be watched agrees, and"
                f" the outputs differ by {trial.outputs:.1g} of the largest value"
            ]
        return found
