"""What a pair is trained by: several outputs, losses of the user's own, sample weights, names of both frameworks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import ExternalModelError, NotComparableError, ParityError, SpecError
from parity.common.data.files import hash_of
from parity.common.diagnosis.result import Diagnosis
from parity.common.external.lint.lint import lint
from parity.common.external.mapping.models import map_models
from parity.common.external.pairs.bench import Bench
from parity.common.external.pairs.diagnose import diagnose_pair
from parity.common.external.pairs.dropout import Masks
from parity.common.external.pairs.joined import join_samples
from parity.common.external.pairs.objectives import (
    Objective,
    for_losses_alone,
    paired_outputs,
    parsed_loss,
    parsed_losses,
)
from parity.common.external.pairs.pair import both
from parity.common.external.pairs.request import PairRequest, SampleFile, parsed_optimizer
from parity.common.external.pairs.setup import (
    any_losses,
    bench_of,
    check_finite,
    copy_weights,
    doubtful_losses,
    losses_of,
    open_pair,
    settle_targets,
    spec_of,
)
from parity.common.external.process.objective import BatchLoss
from parity.common.external.process.pass_result import PassResult
from parity.common.external.process.worker import ExternalWorker
from parity.common.spec import Placement, TrainSpec
from parity.common.spec.external.target import Target
from parity.common.spec.imported_loss import ImportedLoss, Term
from parity.common.spec.sources import Npz
from parity.common.state.canonical import save_state
from parity_tests.helpers import ROOT
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.matrix import tensorflow, torch
from parity_tests.helpers.pairs import pair_request
from parity_tests.helpers.run_cache import RunCache
from parity_tests.test_imported import agree, trained
from parity_tests.test_pair import some

KERAS, TORCH = (f"parity_tests.external_models.losses_{side}" for side in ("keras", "torch"))
SAMPLES = "samples.npz"


def write_samples(folder: Path) -> None:
    random = np.random.default_rng(0)
    yes = random.integers(0, 2, 40)
    later = yes.astype(float)
    later[8:] *= 1.5  # behind the first batch
    np.savez(
        folder / SAMPLES,
        x=random.normal(size=(40, 6)),
        label=random.integers(0, 3, 40),
        box=random.normal(size=(40, 4)),
        column=random.integers(0, 3, (40, 1)),
        yes=yes,
        later=later,
        weights=random.uniform(0.5, 2.0, 40),
        negative=random.normal(size=40),
    )


@dataclass(frozen=True)
class Case:
    """What is asked of a pair: its models, losses as flags have them, names of arrays."""

    models: tuple[str, str] = ("heads", "Heads")
    ours: tuple[str, ...] = ()
    own: tuple[tuple[str, str], ...] = ()
    targets: tuple[str, ...] = ("label", "box")
    weights: str | None = None

    def flags(self, side: int) -> list[str]:
        module, found = (KERAS, TORCH)[side], []
        for pair in self.own:
            named = pair[side] if "=" in pair[side].split(",")[0] else f"={pair[side]}"
            output, equals, name = named.partition("=")
            found.append(f"{output}{equals}{module}:{name}".removeprefix("="))
        return found

    def asked(self, folder: Path) -> PairRequest:
        return pair_request(
            Target.of(f"{KERAS}:{self.models[0]}"),
            Target.of(f"{TORCH}:{self.models[1]}"),
            SampleFile.of(folder / SAMPLES, ("x",), self.targets, weights=self.weights),
            loss=parsed_losses(self.ours, self.flags(0), self.flags(1)),
            optimizer=parsed_optimizer("SGD,lr=0.1"),
        )


class Pairs:
    """A process of each framework, and pairs of models in them by turns."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        write_samples(folder)
        self.folder = folder
        self._sides: tuple[ExternalWorker, ExternalWorker] = stack.enter_context(both(Case().asked(folder)))
        self._held: dict[tuple[str, str], Bench] = {}
        self._now: tuple[str, str] = Case.models

    def bench(self, case: Case) -> tuple[PairRequest, Bench]:
        asked = case.asked(self.folder)
        if case.models != self._now:
            self._held.clear()
            for side, target in zip(self._sides, (asked.keras, asked.torch), strict=True):
                side.hold(target)
            self._now = case.models
        if case.models not in self._held:
            opened = open_pair(asked, *self._sides)
            mapping = map_models(opened, None)
            self._held[case.models] = bench_of(asked, opened, mapping)
        bench = self._held[case.models]
        copy_weights(asked, bench, bench.mapping)
        return asked, replace(bench, losses=losses_of(asked, bench.outlines, asked.data.rows(0, 8)))

    def diagnosed(self, case: Case) -> Diagnosis:
        _, bench = self.bench(case)
        # What the search has found stays put right on the live models.
        self._now = ("", "")
        return diagnose_pair(bench, lint(*bench.outlines, bench.mapping.layers))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pairs]:
    with pytest.MonkeyPatch.context() as patch, ExitStack() as stack:
        patch.setenv("PYTHONPATH", str(ROOT))
        yield Pairs(tmp_path_factory.mktemp("pairs"), stack)


BINARY = Case(("binary", "Binary"), targets=("yes",))
LISTED = Case(("listed", "Listed"))
PENALIZED = Case(("penalized", "Penalized"), own=(("bce", "penalized"),), targets=("yes",))
EQUAL = {
    "three terms": replace(BINARY, own=(("three_terms", "three_terms"),)),
    "a loss of each": replace(Case(), ours=("label=CrossEntropyLoss,box=mse,weight=0.5",)),
    "classes in a column": replace(
        Case(), ours=("label=CrossEntropyLoss", "box=mse"), targets=("column", "box")
    ),
    "own of one, ours of another": replace(
        Case(), ours=("label=CrossEntropyLoss",), own=(("box=squares",) * 2,)
    ),
    "weights of samples": replace(Case(), ours=("label=CrossEntropyLoss", "box=mae"), weights="weights"),
    "class weights": replace(Case(), ours=("label=CrossEntropyLoss,class_weights=[1,2,0.5]", "box=mse")),
    "own of all": replace(Case(), own=(("detection", "Detection"),)),
    "an output that goes on": replace(
        Case(("onward", "Onward")), ours=("label=CrossEntropyLoss",), own=(("box=squares",) * 2,)
    ),
    "a list": replace(LISTED, ours=("label=CrossEntropyLoss", "box=mse")),
    "a list by place": replace(LISTED, ours=("1=mse", "0=CrossEntropyLoss"), targets=("column", "box")),
    "a list by layer, in any order": replace(
        LISTED, ours=("box=mse",), own=(("label=classes", "label=cross_entropy"),)
    ),
    "in float32 by Keras": replace(Case(), own=(("ctc", "ctc"),)),
    "own of a list": replace(LISTED, own=(("of_list", "of_list"),)),
    "labels without an axis": replace(BINARY, ours=("binary_crossentropy",)),
    "own, labels without an axis": replace(BINARY, own=(("bce", "bce"),)),
    "own with weights": replace(BINARY, own=(("bce", "bce"),), weights="weights"),
    "terms of the loss that a model gives": PENALIZED,
    "an output for the loss alone": Case(("coded", "Coded"), own=(("bce", "coded"),), targets=("yes",)),
    "one output in parts": Case(("joined", "Heads"), own=(("of_joined", "of_box"),), targets=("box",)),
    "divided by a sum of one": Case(
        ("probable", "Probable"), own=(("divided", "undivided"),), targets=("label",)
    ),
    "hidden by a mask of Keras's": Case(
        ("masked", "Masked"), own=(("squares", "squares_above_zero"),), targets=("box",)
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", EQUAL)
def test_equal_losses_are_parity(pairs: Pairs, name: str) -> None:
    found = pairs.diagnosed(EQUAL[name])
    assert (found.verdict, found.findings) == ("parity", ())


# How the losses of parts of a batch make that of the batch, and where it is trained: local batches of 3, 3 and 2, too.
TORCH_ALONE, TORCH_3, MIRRORED_3 = torch("single", 1), torch("ddp", 3), tensorflow(3)
STRATEGIES: dict[str, tuple[Case, str, list[Placement]]] = {
    "own of all": (EQUAL["own of all"], "samples", [MIRRORED_3, TORCH_3, tensorflow(1)]),
    "own of a list": (EQUAL["own of a list"], "samples", [torch("fsdp2", 2), torch("manual", 3)]),
    "own of one, ours of another": (
        EQUAL["own of one, ours of another"],
        "samples",
        [torch("zero_redundancy", 2), tensorflow(2, strategy="multi_worker")],
    ),
    "weights of samples": (
        EQUAL["weights of samples"],
        "samples",
        [MIRRORED_3, torch("ddp", 2, accumulation=2), torch("fsdp1", 2)],
    ),
    "one loss, weights of samples": (
        replace(BINARY, ours=("binary_crossentropy",), weights="weights"),
        "counted",
        [MIRRORED_3, TORCH_3],
    ),
    "own with weights": (EQUAL["own with weights"], "samples", [MIRRORED_3, TORCH_3]),
    "divided by weights": (
        replace(BINARY, own=(("bce_by_weights", "bce_by_weights"),), weights="weights"),
        "weights",
        [MIRRORED_3, TORCH_3, tensorflow(2, accumulation=2)],
    ),
    "a sum": (replace(BINARY, own=(("bce_sum", "bce_sum"),)), "sum", [MIRRORED_3, TORCH_3]),
    "terms of the loss that a model gives": (PENALIZED, "samples", [MIRRORED_3, TORCH_3, tensorflow(1)]),
}


def spec_of_case(pairs: Pairs, case: Case, folder: Path) -> TrainSpec:
    """What `parity pair` trains."""
    asked, bench, _ = settle_targets(*pairs.bench(case))
    assert asked.optimizer is not None
    weights, samples = folder / "weights.safetensors", folder / SAMPLES
    save_state(weights, copy_weights(asked, bench, bench.mapping))
    loss, names = join_samples(asked, bench, samples)
    joined = loss, Npz(path=str(samples), sha256=hash_of(samples), inputs=names, targets=None)
    return spec_of(asked, bench, weights, asked.optimizer, Masks(), joined)


@pytest.mark.parametrize("name", some(STRATEGIES, ("weights of samples",)))
def test_every_strategy_trains_as_one_replica(
    name: str, pairs: Pairs, run_cache: RunCache, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case, reduction, placements = STRATEGIES[name]
    spec = spec_of_case(pairs, case, tmp_path_factory.mktemp("spec"))
    assert isinstance(spec.loss, ImportedLoss) and spec.loss.reduction == reduction
    agree(run_cache, spec, TORCH_ALONE, *placements)


@pytest.mark.slow
def test_a_reduction_over_replicas_that_is_another_is_seen(
    pairs: Pairs, run_cache: RunCache, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case, _, _ = STRATEGIES["divided by weights"]
    right = spec_of_case(pairs, case, tmp_path_factory.mktemp("spec"))
    wrong = right.model_copy(update={"loss": right.loss.model_copy(update={"reduction": "samples"})})
    for found in trained(run_cache, wrong, TORCH_ALONE, TORCH_3, MIRRORED_3):
        assert found.verdict == "divergent"


@pytest.mark.slow
def test_a_loss_of_the_batch_as_a_whole_is_each_replica_s_own(
    pairs: Pairs, run_cache: RunCache, tmp_path_factory: pytest.TempPathFactory
) -> None:
    spec = spec_of_case(
        pairs, replace(BINARY, own=(("largest", "largest"),)), tmp_path_factory.mktemp("spec")
    )
    assert isinstance(spec.loss, ImportedLoss) and spec.loss.reduction == "batch"
    assert spec.per_replica_statistics
    agree(run_cache, spec, TORCH_3, MIRRORED_3)
    with pytest.raises(NotComparableError, match="different mathematics"):
        trained(run_cache, spec, TORCH_3, TORCH_ALONE)


WRONG: dict[str, tuple[Case, str, str]] = {
    "sum": (replace(BINARY, own=(("bce", "bce_sum"),)), "loss:reduction", "the sum over the samples"),
    "elements": (
        replace(Case(), ours=("label=CrossEntropyLoss",), own=(("box=squares", "box=per_sample"),)),
        "loss:reduction",
        "the sum over the elements of a sample",
    ),
    "exchanged weights": (
        replace(Case(), own=(("detection", "Exchanged"),)),
        "loss:weight",
        "label 0.5 times, box 2 times",
    ),
    "a weight of one side": (
        replace(Case(), ours=("label=CrossEntropyLoss",), own=(("box=squares", "box=squares,weight=3"),)),
        "loss:weight",
        "box 3 times",
    ),
    "another target": (
        replace(Case(), ours=("label=CrossEntropyLoss",), own=(("box=squares", "box=reversed_box"),)),
        "operation:too_much",
        "losses_torch.py:131: something too much: torch computes flip(",
    ),
    "no gradient": (
        replace(Case(), own=(("detection", "Hidden"),)),
        "gradient:through",
        "stops the gradient",
    ),
    "a gradient in two of four calls": (
        replace(Case(), ours=("label=CrossEntropyLoss",), own=(("box=alike", "box=alike"),)),
        "gradient:stopped",
        "lets the gradient of its result through, and Keras stops it, and so in 1 more call",
    ),
    "the weight of the other one of two equal terms": (
        replace(Case(), ours=("label=CrossEntropyLoss",), own=(("box=committed", "box=committed"),)),
        "gradient:weight",
        "weights one of two terms of equal value by 0.25, and Keras the other one",
    ),
    "the same, of the later one": (
        replace(Case(), ours=("label=CrossEntropyLoss",), own=(("box=committed", "box=committed_first"),)),
        "gradient:weight",
        "adds one of two terms of equal value of which the other one, at losses_torch.py",
    ),
    "another number": (
        replace(BINARY, own=(("squares", "cubes"),)),
        "operation:number",
        "what Keras computes is `return ((outputs - targets).abs() ** 2).mean()`",
    ),
    "sums of the batch": (
        replace(Case(), ours=("label=CrossEntropyLoss",), own=(("box=overlap", "box=overlap"),)),
        "loss:batch",
        "sum(pow(output/box, 2)) + 1)) where Keras computes -1 * mean(sum(",
    ),
    "sums of the batch, of a model that looks at it": (
        Case(("centred", "Centred"), own=(("overlap", "overlap"),), targets=("box",)),
        "loss:batch",
        "torch's loss is of the batch as a whole, Keras's is the mean of the losses of its samples",
    ),
    "a root": (
        replace(BINARY, own=(("squares", "root"),)),
        "operation:too_much",
        "torch computes sqrt(mean(pow(output - the target yes, 2))) where Keras goes on with mean(pow(output - the target yes, 2)",
    ),
    "another function": (
        replace(BINARY, own=(("squares", "errors"),)),
        "operation:operation",
        "torch has `F.l1_loss(outputs, targets)`, and what Keras computes is `F.mse_loss(outputs, targets)`",
    ),
    "broadcast": (
        replace(BINARY, own=(("bce", "bce_of_all_pairs"),)),
        "loss:batch",
        "of the batch as a whole",
    ),
    "a term that a model gives left out": (
        replace(PENALIZED, own=(("bce", "unpenalized"),)),
        "operation:left_out",
        "+ (0.01 * sum(pow(trunk/kernel, 2)))",
    ),
    "a factor of one of three terms": (
        replace(BINARY, own=(("three_terms", "another_factor"),)),
        "operation:number",
        "another number: torch has 0.5 * mean(abs(output)) where Keras has 0.25 * mean(abs(output))",
    ),
    "a term too much": (
        replace(BINARY, own=(("three_terms", "four_terms"),)),
        "operation:term_too_much",
        "a term too much: torch adds 0.1 * sum(pow(output, 4)), and Keras does not",
    ),
    "a term left out": (
        replace(BINARY, own=(("three_terms", "two_terms"),)),
        "operation:term_left_out",
        "a term left out: Keras adds 0.25 * mean(abs(output)), and torch does not",
    ),
    "another function in one of three terms": (
        replace(BINARY, own=(("three_terms", "another_term"),)),
        "operation:operation",
        "torch computes sigmoid(output) where Keras computes tanh(output)",
    ),
    "what a mask of Keras's hides": (
        Case(("masked", "Masked"), own=(("squares", "squares"),), targets=("box",)),
        "operation:other",
        "where(gt(",
    ),
    "weights left out": (
        replace(BINARY, own=(("bce", "bce_unweighted"),), weights="weights"),
        "loss:sample_weights",
        "torch's loss leaves the sample weights out",
    ),
    "divided by weights": (
        replace(BINARY, own=(("bce", "bce_by_weights"),), weights="weights"),
        "loss:reduction",
        "divides by the sum of the sample weights",
    ),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_loss_is_named(pairs: Pairs, name: str) -> None:
    case, cause, text = WRONG[name]
    found = pairs.diagnosed(case)
    assert found.verdict == "divergent"
    (finding,) = found.findings
    why = finding.explanation
    assert finding.stage == "loss" and why is not None
    assert (why.cause, text in why.text) == (cause, True), why


def test_of_two_terms_that_differ_each_is_named(pairs: Pairs) -> None:
    found = pairs.diagnosed(replace(Case(), own=(("detection_of_some", "detection_ignoring"),)))
    causes = {f.explanation.cause: f.explanation.text for f in found.findings if f.explanation is not None}
    assert causes.keys() == {"operation:divisor", "operation:number"}, causes
    # One of the 8 labels is 0.
    assert "ignore_index=0, reduction='none').mean()`" in causes["operation:divisor"]
    assert "F.mse_loss(1.0 * outputs['box']" in causes["operation:number"]


COLUMN = Case(("binary", "Column"), targets=("yes",))
SHAPES = {
    "as the output": ("squares", "outputs", ["with (8,) it would give"]),
    "as stored": ("of_column", "stored", ["in the shape (8,)", "with (8, 1) it would give"]),
    "refused otherwise": ("bce", "outputs", []),
    "wrong in any": ("errors", "outputs", ["with (8,) it would give"]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_torch_is_given_labels_in_a_shape_that_its_loss_takes(pairs: Pairs, name: str) -> None:
    loss, form, told = SHAPES[name]
    case = replace(COLUMN, own=(("bce" if loss == "bce" else "squares", loss),))
    asked, bench, lines = settle_targets(*pairs.bench(case))
    assert asked.objectives[0].given == form
    assert len(lines) == bool(told) and all(text in lines[0] for text in told), lines
    found = diagnose_pair(bench, lint(*bench.outlines, bench.mapping.layers))
    assert found.verdict == ("divergent" if name == "wrong in any" else "parity")


@pytest.mark.slow
def test_what_only_later_samples_show_is_seen_in_training(
    pairs: Pairs, run_cache: RunCache, tmp_path_factory: pytest.TempPathFactory
) -> None:
    case = replace(BINARY, own=(("bce", "bce_of_small"),), targets=("later",))
    assert pairs.diagnosed(case).verdict == "parity", "the first batch does not show it"
    spec = spec_of_case(pairs, case, tmp_path_factory.mktemp("spec"))
    (found,) = trained(run_cache, spec, tensorflow(2), torch("ddp", 2))
    assert found.verdict == "divergent"


REFUSED: dict[str, tuple[Case, str]] = {
    "no name": (replace(Case(), ours=("mse",)), "say which of them a loss is of: --loss OUTPUT=KIND"),
    "unknown name": (replace(Case(), ours=("label=CrossEntropyLoss", "boxes=mse")), "no output is called so"),
    "shape": (
        replace(Case(), ours=("label=CrossEntropyLoss", "box=mse"), targets=("label", "label")[:1]),
        "2 losses take an array of targets each",
    ),
    "classes": (
        replace(BINARY, ours=("CrossEntropyLoss",), targets=("box",)),
        "box are no whole numbers; give class numbers, as box.argmax(-1) has them",
    ),
    "a class too many": (
        replace(BINARY, ours=("CrossEntropyLoss",), targets=("later",)),
        "later has class 1, and the model ends in 1 class, 0 to 0",
    ),
    "columns": (replace(BINARY, ours=("mse",), targets=("box",)), "targets 'box' have shape (4,)"),
    "no weights taken": (
        replace(BINARY, own=(("bce", "bce_sum"),), weights="weights"),
        "takes no sample weights; give it a third parameter",
    ),
    "negative weights": (replace(BINARY, ours=("mse",), weights="negative"), "weights below 0"),
    "no mean": (replace(BINARY, own=(("bce", "bce_vector"),)), "it must give one number, the mean"),
    "absent": (replace(BINARY, own=(("absent", "bce"),)), "has no 'absent'"),
    "a model": (replace(BINARY, own=(("binary", "bce"),)), "it must give a loss"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_suit_is_one_line(pairs: Pairs, name: str) -> None:
    case, text = REFUSED[name]
    with pytest.raises(ParityError) as raised:
        pairs.diagnosed(case)
    assert text in str(raised.value) and "\n" not in str(raised.value)


def test_outputs_of_any_number_have_random_losses_and_doubts(pairs: Pairs) -> None:
    _, bench = pairs.bench(Case(ours=("label=CrossEntropyLoss", "box=mse")))
    assert not doubtful_losses(bench)
    _, one = pairs.bench(Case(ours=("label=CrossEntropyLoss",), targets=("label",)))
    assert [line.split(",")[0] for line in doubtful_losses(one)] == ["no loss is of output box"]
    bench.losses = any_losses(bench)
    assert set(bench.reference(True).terms) == {"label", "box"}


@pytest.mark.parametrize(
    ("scale", "kind", "doubted"), [(1, "softmax", True), (2, "softmax", False), (1, "dense", False)]
)
def test_probabilities_given_to_a_loss_of_logits_are_doubted(scale: int, kind: str, doubted: bool) -> None:
    passed = PassResult({"output": scale * np.array([[0.25, 0.75], [0.5, 0.5]])})
    layer = SimpleNamespace(kind=kind, path="last", settings={})
    bench: Any = SimpleNamespace(
        keras=SimpleNamespace(forward=lambda *_, **__: passed),
        inputs=({},),
        outlines=(SimpleNamespace(layers=[layer], operations=[]),),
        losses=(BatchLoss((Term.parse({"name": "loss", "loss": {}}),), {}),),
    )
    assert bool(doubtful_losses(bench)) == doubted


def test_a_loss_that_is_no_number_is_refused(pairs: Pairs) -> None:
    _, bench = pairs.bench(replace(BINARY, own=(("bce", "logarithm"),)))
    with pytest.raises(ExternalModelError, match="its outputs are finite, and its loss is nan"):
        check_finite(bench)


def test_outputs_are_paired_by_name_and_then_in_order() -> None:
    assert paired_outputs(["a", "b"], ["b", "a"]) == [("a", "a"), ("b", "b")]
    assert paired_outputs(["a", "b", "c"], ["0", "b", "1"]) == [("a", "0"), ("b", "b"), ("c", "1")]


OWN = (Objective(None, (Target.of("m:f"), Target.of("m:g"))),)


@pytest.mark.parametrize(
    ("objectives", "keras", "torch", "alone"),
    [
        (OWN, {"output": (8, 3)}, {"0": (8, 3), "1": ()}, (set(), {"1"})),
        (OWN, {"output": (8, 4, 4, 1)}, {"0": (8, 5), "1": (8, 1, 4, 4)}, (set(), {"0"})),
        (OWN, {"output": (8, 7)}, {"a": (8, 3), "b": (8, 4)}, ({"output"}, {"a", "b"})),
        # As many on both sides are compared, numbers too; and without a loss of all, nothing compares what is left out.
        (OWN, {"a": (8, 3), "b": ()}, {"0": (8, 3), "1": ()}, (set(), set())),
        ((), {"output": (8, 3)}, {"0": (8, 3), "1": ()}, (set(), set())),
        ((Objective("a", parsed_loss("mse")),), {"a": (8, 3)}, {"a": (8, 3), "b": ()}, (set(), set())),
    ],
)
def test_what_has_no_counterpart_is_for_losses_of_all_that_is_given(
    objectives: tuple[Objective, ...],
    keras: dict[str, Any],
    torch: dict[str, Any],
    alone: tuple[set[str], set[str]],
) -> None:
    outlines: Any = [SimpleNamespace(outputs=outputs) for outputs in (keras, torch)]
    assert for_losses_alone(objectives, outlines) == alone


SPELLINGS = [
    ("SparseCategoricalCrossentropy", {"kind": "softmax_cross_entropy", "outputs": "logits"}),
    ("sparse_categorical_crossentropy,from_logits=false", {"outputs": "probabilities", "clip": 1e-7}),
    ("categorical_crossentropy", {"targets": "distributions"}),
    ("CrossEntropyLoss,ignore_index=-100", {"kind": "softmax_cross_entropy", "ignore": -100}),
    ("BCEWithLogitsLoss,pos_weight=2", {"outputs": "logits", "positive_weight": 2}),
    ("BCELoss", {"outputs": "probabilities", "clip": 0.0, "log_floor": -100.0}),
    ("sigmoid_cross_entropy_with_logits", {"kind": "binary_cross_entropy", "outputs": "logits"}),
    ("cross_entropy", {"kind": "softmax_cross_entropy", "outputs": "logits"}),
    ("MSELoss", {"kind": "mean_squared_error"}),
    ("L1Loss", {"kind": "mean_absolute_error"}),
    ("SmoothL1Loss", {"kind": "huber", "delta": 1.0}),
]


@pytest.mark.parametrize(("text", "fields"), SPELLINGS)
def test_losses_have_the_names_of_both_frameworks(text: str, fields: dict[str, Any]) -> None:
    loss = parsed_losses([text]).to_dict()
    assert {name: loss[name] for name in fields} == fields


def test_optimizers_have_the_names_of_both_frameworks() -> None:
    adam = parsed_optimizer("AdamW,lr=0.1,betas=[0.8,0.9],eps=1e-3")
    assert (adam.kind, adam.learning_rate, adam.beta_1, adam.beta_2, adam.epsilon) == (
        "adamw",
        0.1,
        0.8,
        0.9,
        1e-3,
    )
    assert parsed_optimizer("RMSprop,lr=0.1,alpha=0.7").rho == 0.7
    with pytest.raises(SpecError, match="alpha"):
        parsed_optimizer("SGD,lr=0.1,alpha=0.7")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ((["a=mse", "mae"],), "give --loss OUTPUT=KIND for each"),
        ((["a=mse", "a=mae"],), "several losses are each of one output"),
        ((["a=mse,weight=0"],), "weight is a number above 0"),
        (([], ["m:f"]), "given together, for the same outputs"),
        (([], ["a=m:f"], ["b=m:f"]), "received a and b"),
        (([], ["m:f", "m:g"], ["m:f"]), "has two losses"),
        (([], ["f"], ["m:f"]), "package.module:attribute"),
    ],
)
def test_flags_that_do_not_go_together_are_refused(flags: tuple[list[str], ...], text: str) -> None:
    with pytest.raises((SpecError, ExternalModelError), match=text):
        parsed_losses(*flags)


@pytest.mark.slow
def test_own_losses_and_sample_weights_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_samples(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    models = [
        "pair",
        "--keras",
        f"{KERAS}:binary",
        "--torch",
        f"{TORCH}:Binary",
        "--data",
        SAMPLES,
        "--inputs",
        "x",
    ]
    more = ["--targets", "yes", "--optimizer", "Adam,lr=1e-2", "--steps", 4, "--sample-weights", "weights"]
    for loss, code, text in (
        ("bce", 0, "✓ torch ddp x2"),
        ("bce_by_weights", 1, "divides by the sum of the sample weights"),
    ):
        losses = ["--keras-loss", f"{KERAS}:bce", "--torch-loss", f"{TORCH}:{loss}"]
        got, out, err = Cli(tmp_path, capsys)(*models, *more, *losses, "--out", loss)
        assert (got, text in out) == (code, True), out + err


STEPS = tuple(f"parity_tests.external_models.steps_{side}" for side in ("keras", "torch"))


def stepped(keras: str, torch: str, step: str, *more: Any) -> list[Any]:
    """The command for a pair with training steps; its samples are the arrays of `write_samples`."""
    names = ["--keras", f"{STEPS[0]}:{keras}", "--torch", f"{STEPS[1]}:{torch}"]
    return ["pair", *names, "--torch-step", f"{STEPS[1]}:{step}", "--data", SAMPLES, "--inputs", "x", *more]


def with_loss(step: str, *loss: str) -> list:
    models = ("--keras", f"{KERAS}:penalized", "--torch", f"{TORCH}:Binary", "--inputs", "x")
    step = f"{TORCH}:{step}"
    return ["pair", *models, "--torch-step", step, *loss, "--data", SAMPLES, "--targets", "yes", "--steps", 4]


# A pair and its step, the code, and what is said.
TRAINING_STEPS: dict[str, tuple[list[Any], int, str]] = {
    "two losses": (stepped("Autoencoder", "Autoencoder", "step", "--steps", 4), 0, "✓ torch ddp x2"),
    "compiled loss, weights, batch norm": (
        stepped(
            "consistent",
            "Consistent",
            "consistent",
            *("--targets", "label", "--sample-weights", "weights", "--steps", 4),
        ),
        0,
        "✓ torch ddp x2",
    ),
    "a target that the step moves": (
        stepped("Followed", "Followed", "followed", "--steps", 4),
        0,
        "✓ torch ddp x2",
    ),
    "a target that the step moves, otherwise": (
        stepped("Followed", "Followed", "hardly_followed"),
        1,
        "one of torch writes other numbers  confirmed",
    ),
    "two mistakes in two passes, and another share": (
        stepped(
            "consistent", "Squashed", "less_consistent", "--targets", "label", "--sample-weights", "weights"
        ),
        1,
        "another number: torch has 0.15 where Keras has 0.3  confirmed",
    ),
    "another share": (stepped("Autoencoder", "Autoencoder", "other_share"), 1, "loss_sum"),
    "another second loss": (stepped("Autoencoder", "Autoencoder", "other_divergence"), 1, "loss_sum"),
    "layers called otherwise": (stepped("Autoencoder", "Autoencoder", "without_activation"), 1, "divergent"),
    "a teacher that trains along": (
        stepped("Taught", "Taught", "taught"),
        1,
        "keep teacher.1 in eval() in torch",
    ),
    "that, and half the loss": (
        stepped("Taught", "Taught", "taught_by_halves"),
        1,
        "keep teacher.1 in eval() in torch",
    ),
    "two passes": (stepped("Balanced", "Balanced", "balanced", "--steps", 4, "--replicas", 1), 0, "✓ torch"),
    "another variance": (
        stepped("Balanced", "Balanced", "unbiased"),
        1,
        "correction=0) over 5 numbers  confirmed",
    ),
    "another axis": (
        stepped("Balanced", "Balanced", "turned"),
        1,
        "flip(the input x, axis=(0,)) where Keras",
    ),
    "a gradient not stopped": (
        stepped("Balanced", "Balanced", "not_stopped"),
        1,
        "lets the gradient of its input 2 through, and Keras stops it  confirmed",
    ),
    "that, and a loss that hardly differs": (
        stepped("Balanced", "Balanced", "hardly_another"),
        1,
        "(gate:1 * 0.1)) + 1e-09 where Keras goes on with",
    ),
    "slopes by torch.func": (stepped("Sloped", "Sloped", "sloped", "--steps", 4), 0, "parity"),
    "slopes, and another share": (
        stepped("Sloped", "Sloped", "sloped_otherwise"),
        1,
        "another number: torch has 0.2 where Keras has 0.1",
    ),
    "numbers that a layer adds": (stepped("counted", "Dense", "counted", "--steps", 4), 0, "✓ parity"),
    "that, and their mean": (stepped("counted", "Dense", "counted_in_the_mean"), 1, "sum"),
    "a batch by names": (
        stepped("Autoencoder", "Autoencoder", "by_name"),
        2,
        "by_name, which is given a tensor as train_step is, raised",
    ),
    "random numbers": (stepped("Sampling", "Autoencoder", "step"), 2, "draws random numbers"),
    "two updates": (stepped("Twice", "Autoencoder", "step"), 2, "takes 2 gradients and makes 2 updates"),
    "clipped": (stepped("Clipped", "Autoencoder", "step"), 2, "other gradients than those of its loss"),
    "no loss": (stepped("Autoencoder", "Autoencoder", "no_scalar"), 2, "a step gives one number"),
    "torch's loss alone": (
        [
            *("pair", "--keras", f"{KERAS}:compiled", "--torch", f"{TORCH}:Penalized", "--inputs", "x"),
            *("--torch-loss", f"{TORCH}:penalized", "--data", SAMPLES, "--targets", "yes", "--steps", 4),
        ],
        0,
        "✓ torch ddp x2",
    ),
    "that, and another dropout in the pass and a term too much in the loss": (
        [
            *("pair", "--keras", f"{KERAS}:dropped", "--torch", f"{TORCH}:Dropped", "--inputs", "x"),
            *("--torch-loss", f"{TORCH}:penalized", "--data", SAMPLES, "--targets", "yes"),
        ],
        1,
        "where     step 0, forward: forward/drop: ",
    ),
    "torch's loss alone, and nothing of Keras's": (
        [
            *("pair", "--keras", f"{KERAS}:penalized", "--torch", f"{TORCH}:Penalized", "--inputs", "x"),
            *("--torch-loss", f"{TORCH}:penalized", "--data", SAMPLES, "--targets", "yes"),
        ],
        2,
        "has no train_step and is not compiled: give --keras-loss, too",
    ),
    "a term of the loss, and a loss by name": (
        [
            *("pair", "--keras", f"{KERAS}:penalized", "--torch", f"{TORCH}:Penalized", "--inputs", "x"),
            *("--loss", "BCEWithLogitsLoss", "--data", SAMPLES, "--targets", "yes"),
        ],
        2,
        "Penalized gives 1, a number, beside its outputs: a term of its loss",
    ),
    "no step asked": (
        [
            *("pair", "--keras", f"{STEPS[0]}:consistent", "--torch", f"{STEPS[1]}:Consistent"),
            *("--data", SAMPLES, "--inputs", "x", "--targets", "label"),
        ],
        2,
        "is trained by a train_step of its own, and no loss is given: give --torch-step",
    ),
    "a loss that the step has already": (
        stepped("Autoencoder", "Autoencoder", "step", "--loss", "mse"),
        2,
        "computes its loss itself, and asks compute_loss for none: leave --loss and --keras-loss out",
    ),
    "two losses asked": (
        stepped("Autoencoder", "Autoencoder", "step", "--torch-loss", f"{TORCH}:penalized"),
        2,
        "leave --torch-loss out",
    ),
    "a loss of Keras's": (with_loss("penalized_step", "--keras-loss", f"{KERAS}:bce"), 0, "✓ torch ddp x2"),
    "a loss by name": (with_loss("penalized_step", "--loss", "BCEWithLogitsLoss"), 0, "✓ torch ddp x2"),
    "that, and a penalty left out": (
        with_loss("unpenalized_step", "--loss", "BCEWithLogitsLoss"),
        1,
        "loss_sum",
    ),
}


@pytest.mark.parametrize(
    "name", some(TRAINING_STEPS, ("two losses", "another share", "no step asked", "a loss by name"))
)
def test_training_steps_of_one_s_own(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, code, text = TRAINING_STEPS[name]
    write_samples(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    got, out, err = Cli(tmp_path, capsys)(*arguments, "--global-batch", 8, "--out", "out")
    assert (got, text in out + err) == (code, True), out + err
