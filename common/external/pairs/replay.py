"""Two records of one imported model, diagnosed: the models of their spec opened once more, side by side."""

from __future__ import annotations

from pathlib import Path

from parity.common.base.errors import SpecError
from parity.common.base.terminal import Terminal
from parity.common.data.files import located
from parity.common.diagnosis.isolate.first_step import first_outside
from parity.common.diagnosis.result import Diagnosis
from parity.common.external.mapping.propose import propose
from parity.common.external.pairs.bench import LoadedPair
from parity.common.external.pairs.constants import settle_built_constants
from parity.common.external.pairs.diagnose import diagnose_pair
from parity.common.external.pairs.dropout import settle_randomness, use_masks
from parity.common.external.pairs.norms import settle_norms
from parity.common.external.pairs.objectives import Objective
from parity.common.external.pairs.pair import both
from parity.common.external.pairs.request import PairRequest, SampleFile
from parity.common.external.pairs.setup import bench_of, open_pair, settle_targets
from parity.common.external.pairs.suspects import suspects_of
from parity.common.parity.budget import proof_budget
from parity.common.parity.comparable import check_comparable
from parity.common.record import RunRecord
from parity.common.spec import TrainSpec
from parity.common.spec.external.mapping import Mapping, Pair, Reasons
from parity.common.spec.external.target import Target
from parity.common.spec.imported_loss import ImportedLoss, Term
from parity.common.spec.layers import Imported
from parity.common.spec.losses import LossBase
from parity.common.spec.sources import Npz
from parity.common.state.canonical import load_state

_ELSEWHERE = "no part of the state of the run"


def diagnose_records(reference: RunRecord, candidate: RunRecord, console: Terminal) -> Diagnosis:
    """Return where and why two runs of an imported model diverge.

    Args:
        reference, candidate: finished records of one spec.
        console: where progress is reported.

    Raises:
        NotComparableError: the records must not be compared.
        ExternalModelError: a model cannot be built or called any more.
        SpecError: the samples are not in an .npz file.
    """
    check_comparable(reference, candidate)
    spec = reference.spec
    layer = spec.model.imported
    assert layer is not None
    budget = proof_budget(reference) if spec.precision == "float64" else None
    when = first_outside(reference, candidate, budget)
    asked = asked_of(spec, layer)
    console.tell(f"building {asked.keras} and {asked.torch}", "dim")
    with both(asked) as (keras, torch):
        opened = open_pair(asked, keras, torch)
        settle_randomness(asked, opened)
        mapping = mapping_of(layer, opened)
        weights = dict(load_state(located(layer.weights)))
        keras.write(weights)
        torch.write(mapping.to_torch(weights))
        opened, _ = settle_built_constants(asked, opened, mapping, weights)
        opened = settle_norms(asked, opened, mapping) if layer.running_variance == "biased" else opened
        if layer.stochastic == "keyed":
            use_masks(opened, layer, spec.seed)
        asked, bench, _ = settle_targets(asked, bench_of(asked, opened, mapping))
        suspects = suspects_of(opened.outlines, mapping)
        return diagnose_pair(bench, suspects, None, when, console)


def asked_of(spec: TrainSpec, layer: Imported) -> PairRequest:
    """What was asked, as far as a diagnosis needs it; raises SpecError where the samples are in no .npz file."""
    source, loss = spec.data.source, spec.loss
    if not isinstance(source, Npz):
        raise SpecError(
            f"the samples are of source {source.kind}; two imported models are diagnosed with those of an .npz file"
        )
    path: Path = located(source.path)
    objectives: LossBase | tuple[Objective, ...] = loss
    if isinstance(loss, ImportedLoss):
        names: dict[str, list[str]] = {"input": [], "target": [], "weights": []}
        for array, name in zip(loss.arrays, source.inputs, strict=True):
            names[array.role].append(name)
        weights = next(iter(names["weights"]), None)
        data = SampleFile.of(path, names["input"], names["target"], weights=weights)
        objectives = tuple(map(_objective, loss.keras, loss.torch))
    else:
        assert isinstance(source.inputs, str)
        data = SampleFile.of(path, (source.inputs,), (source.targets or source.inputs,), source.divide_by)
        if layer.keras_output:
            objectives = (Objective(layer.keras_output, loss),)
    return PairRequest(
        keras=Target.of(layer.keras, dict(layer.keras_arguments)),
        torch=Target.of(layer.torch, dict(layer.torch_arguments)),
        data=data,
        loss=objectives,
        optimizer=spec.optimizer,
        optimizers=None,
        steps=spec.steps,
        global_batch=spec.global_batch_size,
        precision="float64",
        weights="keras",
        without_dropout=layer.stochastic == "off",
        seed=spec.seed,
    )


def _objective(keras: Term, torch: Term) -> Objective:
    own = None if keras.own is None or torch.own is None else (keras.own, torch.own)
    loss = keras.loss if own is None else own
    assert loss is not None
    return Objective(keras.output, loss, (keras.weight, torch.weight), step=keras.form == "step")


def mapping_of(layer: Imported, opened: LoadedPair) -> Mapping:
    """The mapping of a spec, with the layers that correspond."""
    pairs = tuple(Pair(keras=pair.keras, torch=pair.torch, rule=pair.rule) for pair in layer.mapping)
    rest = []
    for number, side in enumerate(("keras", "torch")):
        named = {name for pair in pairs for name in getattr(pair, side)}
        tensors = opened.outlines[number].tensors
        rest.append(
            {info.name: _ELSEWHERE for info in tensors if info.tied_to is None and info.name not in named}
        )
    given = Mapping(
        keras=opened.outlines[0].target,
        torch=opened.outlines[1].target,
        tensors=pairs,
        ignored=Reasons(keras=rest[0], torch=rest[1]),
    )
    return propose(*opened.outlines, given)
