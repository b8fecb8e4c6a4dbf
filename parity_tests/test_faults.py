"""The harness can fail: every seeded fault turns the verdict red, and clean runs stay green."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import Comparison, compare
from parity.common.spec import Placement, TrainSpec
from parity_tests.figures import Figures
from parity_tests.matrix import small, tensorflow, torch
from parity_tests.run_cache import RunCache

CNN, GPT = "digits_cnn", "digits_transformer"
CLIP = "optimizer.clip_global_norm=2.0"
NESTEROV = "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, nesterov: true}"
ADAM = "optimizer={kind: adam, learning_rate: 0.003}"


@dataclass(frozen=True)
class Case:
    """A fault, where it is seeded, and which spec shows it."""

    fault: str
    placement: Placement
    recipe: str
    overrides: tuple[str, ...] = ()

    @property
    def spec(self) -> TrainSpec:
        # More than one epoch, so that an uneven tail and a reshuffle are among the steps.
        return small(self.recipe, "steps=46", *self.overrides)

    @property
    def reference(self) -> Placement:
        return tensorflow(1) if self.placement.framework == "torch" else torch("single", 1)


DDP, FSDP, MIRRORED = torch("ddp", 2), torch("fsdp2", 2), tensorflow(2)
CASES = [
    Case("replicas_never_synchronised", DDP, CNN),
    Case("mean_of_replica_means", torch("ddp", 4), CNN),
    Case("world_size_not_cancelled", DDP, GPT),
    Case("gradients_not_zeroed", DDP, CNN),
    Case("clipped_by_local_norm", FSDP, GPT, (CLIP,)),
    Case("clipping_silently_off", DDP, CNN, (CLIP,)),
    Case("batch_norm_epsilon", DDP, CNN),
    Case("batch_norm_momentum_of_the_other_framework", DDP, CNN),
    Case("batch_norm_statistics_per_replica", FSDP, CNN),
    Case("evaluated_in_training_mode", DDP, CNN),
    Case("never_reshuffled", DDP, CNN),
    Case("sampler_pads_with_repeats", torch("ddp", 4), CNN),
    Case("replicas_see_the_same_samples", DDP, CNN),
    Case("labels_one_batch_late", DDP, CNN),
    Case("schedule_stepped_per_replica", DDP, CNN),
    Case("one_rank_starts_elsewhere", DDP, CNN),
    Case("square_kernel_transposed", DDP, GPT),
    Case("flattened_in_the_other_order", DDP, CNN),
    Case("padding_on_the_other_side", DDP, CNN, ("model.layers.3.strides=2",)),
    Case("gelu_approximated", DDP, GPT),
    Case("float32_constant", DDP, CNN),
    Case("decay_coupled", DDP, GPT),
    Case("momentum_without_nesterov", DDP, CNN, (NESTEROV,)),
    Case("reduced_in_bfloat16", DDP, CNN),
    Case("dropout_keyed_by_place", DDP, "gpt2:tiny"),
    Case("lstm_gates_swapped", DDP, "lstm_classifier:tiny"),
    Case("causal_mask_off_by_one", DDP, "gpt2:tiny"),
    Case("gradients_never_summed", MIRRORED, CNN),
    Case("gradients_averaged_over_replicas", MIRRORED, GPT),
    Case("one_parameter_never_reduced", MIRRORED, CNN),
    Case("reduced_in_float32", MIRRORED, CNN),
    Case("clipped_before_the_reduction", MIRRORED, CNN, (CLIP,)),
    Case("a_replica_keeps_stale_parameters", MIRRORED, CNN),
    Case("batch_norm_statistics_per_replica", MIRRORED, CNN),
    Case("running_variance_unbiased", MIRRORED, CNN),
    Case("gelu_through_float32", MIRRORED, GPT),
    Case("softmax_over_the_wrong_axis", MIRRORED, GPT),
    Case("layer_norm_epsilon", MIRRORED, GPT),
    Case("adam_without_bias_correction", MIRRORED, CNN, (ADAM,)),
    Case("warm_up_off_by_one", MIRRORED, CNN),
    Case("adam_epsilon_in_the_other_place", MIRRORED, CNN, (ADAM,)),
    Case("labels_one_batch_late", MIRRORED, CNN),
    Case("dropout_keyed_by_place", MIRRORED, "gpt2:tiny"),
]


@pytest.fixture(scope="session")
def both_at_work(request: pytest.FixtureRequest, run_cache: RunCache) -> None:
    """Begin every selected case's runs, so that neither framework waits for the other."""
    for item in request.session.items:
        if item.function is test_fault_turns_the_verdict_red:
            case = item.callspec.params["case"]
            run_cache.begin(case.spec, case.reference)
            run_cache.begin(case.spec, case.placement)
            run_cache.begin(case.spec, case.placement, case.fault)


def judged(run_cache: RunCache, case: Case, fault: str | None) -> Comparison:
    reference = run_cache.record(case.spec, case.reference)
    return compare(reference, run_cache.record(case.spec, case.placement, fault), proof_budget(reference))


# One or more of each kind: of the reduction, the samples, the optimizer, the schedule, layers, precision. The others
# are seen, with their causes, by the suite of the diagnosis (test_diagnosis.py).
QUICK = {
    "torch-replicas_never_synchronised",
    "torch-gradients_not_zeroed",
    "torch-clipping_silently_off",
    "torch-labels_one_batch_late",
    "torch-never_reshuffled",
    "torch-schedule_stepped_per_replica",
    "torch-padding_on_the_other_side",
    "torch-gelu_approximated",
    "torch-float32_constant",
    "torch-causal_mask_off_by_one",
    "tensorflow-gradients_never_summed",
    "tensorflow-one_parameter_never_reduced",
    "tensorflow-clipped_before_the_reduction",
    "tensorflow-a_replica_keeps_stale_parameters",
    "tensorflow-warm_up_off_by_one",
    "tensorflow-gelu_through_float32",
    "tensorflow-layer_norm_epsilon",
}


def cases() -> list:
    names = [f"{case.placement.framework}-{case.fault}" for case in CASES]
    assert set(names) >= QUICK
    return [
        pytest.param(case, marks=() if name in QUICK else pytest.mark.exhaustive, id=name)
        for case, name in zip(CASES, names, strict=True)
    ]


@pytest.mark.parametrize("case", cases())
@pytest.mark.usefixtures("both_at_work")
def test_fault_turns_the_verdict_red(run_cache: RunCache, figures: Figures, case: Case) -> None:
    clean = judged(run_cache, case, None)
    assert clean.verdict == "parity", clean.reason
    faulty = judged(run_cache, case, case.fault)
    assert faulty.verdict == "divergent"
    assert faulty.first_failure is not None
    figures.faults[case.placement.framework, case.placement.label, case.fault] = faulty
