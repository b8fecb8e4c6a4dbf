"""The faults of the TensorFlow side that `parity diagnose` must find, with what it has to say of each.

Tracing a faulty step costs seconds, so each is planted in the smallest net that shows it.
"""

from __future__ import annotations

from parity.common.spec import Placement
from parity_tests.diagnosis_cases import FaultCase, FaultPair
from parity_tests.matrix import tensorflow, torch


def _net(*layers: str) -> str:
    """The override that makes a net of these layers, each 'kind' or 'kind, field: value'."""
    return f"model.layers=[{', '.join(f'{{kind: {layer}}}' for layer in layers)}]"


MLP = "digits_mlp"
_HEAD = "dense, units: 10"
CONV = _net("conv2d, filters: 4, strides: 2", "activation, function: tanh", "flatten", _HEAD)
NORM = _net("flatten", "dense, units: 16, use_bias: false", "batch_norm", "activation, function: tanh", _HEAD)
GELU = _net("flatten", "dense, units: 16", "activation, function: gelu", _HEAD)
LAYER_NORM = _net("flatten", "dense, units: 16", "layer_norm", _HEAD)
LEAKY = _net("flatten", "dense, units: 16", "activation, function: leaky_relu", _HEAD)
DROP = _net("flatten", "dense, units: 16", "dropout, rate: 0.3", "activation, function: tanh", _HEAD)
SEQUENCE = _net("reshape, shape: [8, 8]", "lstm, units: 6", _HEAD)
ATTENTION = _net("patchify, size: 4", "self_attention, heads: 2, causal: true", "global_average_pool", _HEAD)
PATCHES = _net("patchify, size: 4", "flatten", _HEAD)
POOL = _net("conv2d, filters: 2", "average_pool2d, size: 3, strides: 2, padding: same", "flatten", _HEAD)
BRANCHES = _net("flatten", "concatenate, layers: [{kind: dense, units: 6}, {kind: dense, units: 6}]", _HEAD)
ACTIVITY = _net("flatten", "dense, units: 16", "activity_penalty, l2: 0.001", _HEAD)

CLIP = "optimizer.clip_global_norm=0.5"
# So low that a replica's share of the gradient is above it, too.
LOW_CLIP = "optimizer.clip_global_norm=0.1"
PLAIN = "optimizer={kind: sgd, learning_rate: 0.1}"
NESTEROV = "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, nesterov: true}"
ADAM = "optimizer={kind: adam, learning_rate: 0.003}"
ADAMW = "optimizer={kind: adamw, learning_rate: 0.003, weight_decay: 0.1}"
COUPLED = "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, weight_decay: 0.01, weight_decay_mode: coupled}"
FLOAT16 = ("precision=float16_mixed",)
# So large that the first steps overflow.
OVERFLOW = (*FLOAT16, "loss_scale={initial: 268435456.0}", PLAIN)

X2, X3, X4 = tensorflow(2), tensorflow(3), tensorflow(4)
CUT = tensorflow(2, accumulation=3)
WORKERS = Placement.parse({"framework": "tensorflow", "strategy": "multi_worker", "replicas": 2})


def _case(
    fault: str,
    behaviour: int,
    expected: tuple[str, str, str],
    *overrides: str,
    at: Placement = X2,
    reference: Placement | None = None,
    quick: bool = False,
) -> FaultCase:
    stage, name, cause = expected
    more = {} if reference is None else {"reference": reference}
    return FaultCase(fault, behaviour, at, MLP, stage, name, cause, overrides, quick=quick, **more)


# What a fault is, as (stage, name, cause).


def _gradient(cause: str, name: str = "gradient/*") -> tuple[str, str, str]:
    return "gradient", name, cause


def _forward(layer: str, cause: str) -> tuple[str, str, str]:
    return "forward", f"forward/{layer}", cause


def _backward(layer: str, cause: str) -> tuple[str, str, str]:
    return "backward", f"backward/{layer}", cause


# A loss of another value shows in its sum, and in what it sends back.
_LOSS = ("loss|backward", "loss_sum|backward/dense_2")
_RATE = ("scalar", "scalar/learning_rate")
_MOMENTUM, _FIRST = "after/slots/momentum_*", "after/slots/first_moment/*"
_WEIGHTS = "after/parameters/*"

REDUCTION = [
    _case("gradients_never_summed", 1, _gradient("gradients_not_summed"), quick=True),
    _case("gradients_never_summed", 1, _gradient("gradients_not_summed"), at=X3),
    _case("gradients_never_summed", 1, _gradient("gradients_not_summed"), at=CUT),
    _case("gradients_never_summed", 1, _gradient("gradients_not_summed"), at=WORKERS),
    _case("mean_of_replica_means", 2, _gradient("mean_of_means")),
    _case("mean_of_replica_means", 2, _gradient("mean_of_means"), at=X4),
    _case("mean_of_replica_means", 2, _gradient("mean_of_means"), at=WORKERS),
    _case("micro_batch_means", 3, _backward("dense_2", "micro_batch_means"), at=CUT),
    _case("world_size_not_cancelled", 4, _gradient("scaled_by_world_size"), ADAM, at=X3),
    _case("gradients_averaged_over_replicas", 4, _gradient("divided_by_world_size"), ADAM),
    _case("divided_by_micro_batches_again", 5, _gradient("divided_by_accumulation"), at=CUT),
    _case("micro_batch_means_summed", 5, _gradient("scaled_by_accumulation"), at=CUT),
    _case("moments_averaged_over_replicas", 6, ("slots", _FIRST, "moments_averaged"), ADAM),
    _case(
        "one_parameter_never_reduced",
        8,
        _gradient("parameter_not_reduced", "gradient/dense_2/bias"),
        quick=True,
    ),
    _case(
        "one_parameter_never_reduced",
        8,
        _gradient("parameter_not_reduced", "gradient/dense_2/bias"),
        at=WORKERS,
    ),
    _case(
        "parameter_lost_after_the_first_step",
        9,
        _gradient("parameter_not_reduced", "gradient/dense_1/kernel"),
    ),
    _case("accumulators_not_reset", 15, _gradient("gradients_accumulate")),
    _case("accumulators_not_reset", 15, _gradient("gradients_accumulate"), at=CUT),
    _case("reduced_in_float32", 35, _gradient("reduced_in_low_precision")),
    _case("reduced_in_float32", 35, _gradient("reduced_in_low_precision"), at=WORKERS),
    _case("reduced_in_bfloat16", 35, _gradient("reduced_in_low_precision"), at=X4),
    _case("reduced_in_bfloat16", 35, _gradient("reduced_in_low_precision"), "precision=bfloat16_mixed"),
    _case("gradients_rounded_to_bfloat16", 35, _gradient("rounded_gradients")),
    _case("loss_scale_not_divided_out", 34, _gradient("loss_scale_not_removed"), *FLOAT16),
    _case(
        "overflow_not_noticed",
        34,
        ("slots|update", f"after/slots/*|updated|{_WEIGHTS}", "overflow_not_skipped"),
        *OVERFLOW,
    ),
    _case("loss_reported_as_mean_of_means", 2, ("total", "total/loss_sum", "recorded_differently")),
]

OPTIMIZER = [
    _case("clipped_before_the_reduction", 12, _gradient("clipped_before_reduction"), CLIP),
    _case("clipped_before_the_reduction", 12, _gradient("clipped_before_reduction"), CLIP, at=WORKERS),
    _case("clipped_by_local_norm", 13, ("clipped", "clipped/*", "clipped_by_local_norm"), LOW_CLIP),
    _case(
        "each_tensor_clipped_by_its_own_norm",
        13,
        ("clipped", "clipped/*", "setting:clip*|clipped_by_local_norm"),
        CLIP,
    ),
    _case("clipping_silently_off", 14, ("clipped", "clipped/*", "clipping_off"), CLIP),
    _case("clipping_off_in_float32", 14, ("clipped", "clipped/*", "clipping_off"), CLIP, "precision=float32"),
    _case("decay_coupled", 16, ("slots", _FIRST, "setting:weight_decay_mode"), ADAMW),
    _case("decay_of_the_l2_penalty", 16, ("slots", _MOMENTUM, "setting:weight_decay"), COUPLED),
    _case(
        "biases_decay_too",
        16,
        ("update", "after/parameters/*/bias", "setting:decay_mask"),
        ADAMW,
        "optimizer.decay_mask=matrices",
        "convention=torch",
    ),
    _case("penalty_halved", 16, _gradient("setting:l2"), "loss.l2=0.01"),
    _case("penalty_on_weights_forgotten", 16, _gradient("penalty_missing|setting:l2"), "loss.l2=0.01"),
    _case(
        "adam_without_bias_correction",
        17,
        ("scalar", "scalar/step_size|scalar/second_correction", "no_bias_correction"),
        ADAM,
        "convention=torch",
    ),
    _case("adam_steps_by_the_learning_rate", 17, ("update", _WEIGHTS, "no_bias_correction"), ADAM),
    _case(
        "adam_epsilon_in_the_other_place",
        17,
        ("scalar", "scalar/*", "setting:epsilon_place"),
        ADAM,
    ),
    _case("adam_epsilon_of_the_other_framework", 17, ("update", _WEIGHTS, "setting:epsilon"), ADAM),
    _case("nesterov_forgotten", 18, ("update", _WEIGHTS, "setting:nesterov"), NESTEROV),
    _case(
        "momentum_folds_the_learning_rate",
        18,
        ("slots", _MOMENTUM, "setting:momentum_form"),
        "convention=torch",
    ),
    _case("learning_rate_off_by_two_percent", 25, ("update", _WEIGHTS, "update_scaled"), PLAIN),
    _case("gradients_one_step_late", 24, ("update", _WEIGHTS, "one_step_late"), PLAIN),
    _case("warm_up_off_by_one", 25, (*_RATE, "schedule_shifted"), quick=True),
    _case("schedule_stepped_twice", 25, (*_RATE, "schedule_per_replica")),
    _case("schedule_stepped_twice", 25, (*_RATE, "schedule_per_replica"), at=WORKERS),
    _case(
        "schedule_stepped_three_times",
        25,
        (*_RATE, "schedule_per_micro_batch"),
        at=tensorflow(1, accumulation=3),
    ),
    _case("rate_scaled_by_the_replicas", 25, (*_RATE, "schedule_scaled")),
    _case("rate_through_float32", 33, (*_RATE, "float32_leak")),
    _case("a_replica_keeps_stale_parameters", 11, ("update", _WEIGHTS, "stale_parameters"), quick=True),
    _case("a_replica_keeps_stale_parameters", 11, ("update", _WEIGHTS, "stale_parameters"), at=WORKERS),
    _case("a_replica_drifts", 10, ("update", _WEIGHTS, "replicas_differ")),
    _case("a_replica_starts_elsewhere", 10, ("before", "before/*", "replicas_differ_at_start")),
    _case("a_replica_starts_elsewhere", 10, ("before", "before/*", "replicas_differ_at_start"), at=WORKERS),
]

_AS_CANDIDATE = torch("ddp", 2)
_EVALUATED = ("evaluation", "*batch_norm", "evaluated_in_training_mode")
LAYERS = [
    _case("batch_norm_epsilon", 19, _forward("batch_norm", "setting:epsilon"), NORM),
    _case(
        "batch_norm_momentum_of_the_other_framework",
        19,
        ("buffers", "after/buffers/batch_norm/*", "setting:decay"),
        NORM,
    ),
    _case(
        "running_variance_unbiased",
        19,
        ("buffers", "after/buffers/batch_norm/moving_variance", "setting:running_variance"),
        NORM,
    ),
    _case("batch_norm_statistics_per_replica", 20, _forward("batch_norm", "setting:statistics"), NORM),
    _case("batch_norm_statistics_per_replica", 20, _forward("batch_norm", "setting:statistics"), NORM, at=X4),
    _case(
        "batch_norm_statistics_of_all_replicas",
        20,
        _forward("batch_norm", "setting:statistics"),
        NORM,
        "model.layers.2.statistics=per_replica",
        reference=_AS_CANDIDATE,
    ),
    _case("evaluated_in_training_mode", 21, _EVALUATED, NORM),
    _case("trained_in_inference_mode", 21, _forward("batch_norm", "trained_in_inference_mode"), NORM),
    _case("dropout_keyed_by_place", 26, _forward("dropout", "masks_same_on_every_replica"), DROP),
    _case("dropout_keyed_by_place", 26, _forward("dropout", "masks_same_on_every_replica"), DROP, at=WORKERS),
    _case("dropout_of_another_seed", 26, _forward("dropout", "masks_differ"), DROP),
    _case("square_kernel_transposed", 27, _forward("dense_1", "kernel_transposed")),
    _case("dense_bias_forgotten", 30, _forward("dense_1", "bias_missing"), "convention=torch"),
    _case("convolution_transposed", 27, _forward("conv2d", "kernel_transposed"), CONV),
    _case("convolution_flipped", 27, _forward("conv2d", "kernel_flipped"), CONV),
    _case("flattened_in_the_other_order", 28, _forward("flatten", "flatten_order|setting:order"), CONV),
    # The grid's axes are one by then: its tokens are in another order.
    _case("patches_column_by_column", 28, _forward("patchify", "axes_swapped|features_permuted"), PATCHES),
    _case("branches_in_the_other_order", 28, _forward("concatenate", "features_permuted"), BRANCHES),
    _case(
        "padding_on_the_other_side",
        29,
        _forward("conv2d", "padding_side|setting:same_by|setting:padding"),
        CONV,
    ),
    _case("padding_counted_in_the_mean", 29, _forward("average_pool2d", "setting:count_padding"), POOL),
    _case("lstm_gates_swapped", 30, _forward("lstm", "gates_swapped"), SEQUENCE),
    _case("recurrent_bias_twice", 30, _forward("lstm", "bias_doubled"), SEQUENCE),
    _case("attention_scaled_by_the_width", 31, _forward("self_attention", "attention_scale"), ATTENTION),
    _case("softmax_over_the_wrong_axis", 31, _forward("self_attention", "softmax_axis"), ATTENTION),
    _case("causal_mask_off_by_one", 31, _forward("self_attention", "mask_off_by_one"), ATTENTION),
    _case("causal_mask_forgotten", 31, _forward("self_attention", "mask_missing|setting:causal"), ATTENTION),
    _case("layer_norm_epsilon", 32, _forward("layer_norm", "setting:epsilon"), LAYER_NORM),
    _case("gelu_approximated", 32, _forward("activation", "setting:function"), GELU),
    _case("slope_of_the_other_framework", 32, _forward("activation", "setting:negative_slope"), LEAKY),
    _case("gelu_through_float32", 33, _forward("activation", "float32_leak"), GELU),
    _case("attention_scale_through_float32", 33, _forward("self_attention", "float32_leak"), ATTENTION),
    _case("dropout_rate_through_float32", 33, _forward("dropout", "float32_leak"), DROP),
    _case("loss_through_float32", 33, (*_LOSS, "float32_leak")),
    _case(
        "label_smoothing_forgotten",
        4,
        (*_LOSS, "setting:label_smoothing"),
        "loss.label_smoothing=0.1",
    ),
    # The sum of the losses lacks it before any gradient does.
    _case("penalty_on_activities_forgotten", 4, ("loss", "loss_sum", "penalty_missing"), ACTIVITY),
]

DATA = [
    _case("never_reshuffled", 22, ("ids", "ids", "not_reshuffled"), quick=True),
    _case("shuffled_by_another_seed", 22, ("ids", "ids", "wrong_order")),
    _case("replicas_see_the_same_samples", 23, ("ids", "ids", "replicas_see_the_same")),
    _case("replicas_see_the_same_samples", 23, ("ids", "ids", "replicas_see_the_same"), at=WORKERS),
    _case("padded_with_repeats", 23, ("ids", "ids", "padded_with_repeats")),
    _case("padded_with_repeats", 23, ("ids", "ids", "padded_with_repeats"), at=X4),
    _case("remainder_dropped", 23, ("ids", "ids", "samples_dropped")),
    _case("remainder_dropped", 23, ("ids", "ids", "samples_dropped"), at=WORKERS),
    _case("shares_overlap", 23, ("ids", "ids", "replicas_overlap")),
    _case("labels_one_batch_late", 24, ("inputs", "targets", "labels_shifted")),
    _case("labels_in_another_order", 24, ("inputs", "targets", "labels_permuted")),
    _case("inputs_scaled_twice", 24, ("inputs", "inputs", "inputs_differ")),
    _case(
        "inputs_through_float32",
        33,
        ("inputs", "inputs", "float32_leak"),
        "data.augment=[{kind: noise, std: 0.1}]",
    ),
    _case(
        "augmented_alike_every_epoch",
        26,
        ("inputs", "inputs", "augmentation_keyed_wrongly"),
        "data.augment=[{kind: crop, padding: 1}]",
    ),
    _case(
        "augmentation_keyed_by_place",
        26,
        ("inputs", "inputs", "augmentation_keyed_wrongly"),
        "data.augment=[{kind: crop, padding: 1}]",
    ),
]

CASES = [*REDUCTION, *OPTIMIZER, *LAYERS, *DATA]


def _pair(first: str, second: str) -> FaultPair:
    """Two of the cases on two mirrored replicas, by their faults."""
    found = {case.fault: case for case in CASES if case.placement == X2 and case.spec.precision == "float64"}
    return FaultPair(found[first], found[second])


PAIRS = [
    _pair("gradients_never_summed", "warm_up_off_by_one"),
    _pair("square_kernel_transposed", "never_reshuffled"),
    _pair("nesterov_forgotten", "one_parameter_never_reduced"),
    _pair("batch_norm_epsilon", "labels_in_another_order"),
    _pair("dropout_keyed_by_place", "rate_through_float32"),
    _pair("gelu_through_float32", "reduced_in_float32"),
]
