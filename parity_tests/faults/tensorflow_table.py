"""The registry's entries of TensorFlow, in the order of the list of historic bugs.

Tracing a faulty step costs seconds, so each is diagnosed in the smallest net that shows it.
"""

from __future__ import annotations

from functools import partial

from parity.common.record.invariants import REPLICAS, SCHEDULE
from parity.common.spec import Placement
from parity_tests.faults.registry import (
    SINGLE,
    Fault,
    Forced,
    Judged,
    Own,
    Violated,
    diagnosed,
    judged,
    pair_of,
    violated,
)
from parity_tests.helpers.matrix import LOW_PRECISION, small, tensorflow, torch

fault = partial(Fault.of, "tensorflow")


def _net(*layers: str) -> str:
    """The override that makes a net of these layers, each 'kind' or 'kind, field: value'."""
    return f"model.layers=[{', '.join(f'{{kind: {layer}}}' for layer in layers)}]"


MLP, CNN, VIT, GPT = "digits_mlp", "digits_cnn", "digits_transformer", "gpt2:tiny"
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

CLIP, CLIP_2 = "optimizer.clip_global_norm=0.5", "optimizer.clip_global_norm=2.0"
# So low that a replica's share of the gradient is above it, too.
LOW_CLIP = "optimizer.clip_global_norm=0.1"
PLAIN = "optimizer={kind: sgd, learning_rate: 0.1}"
NESTEROV = "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, nesterov: true}"
ADAM = "optimizer={kind: adam, learning_rate: 0.003}"
ADAMW = "optimizer={kind: adamw, learning_rate: 0.003, weight_decay: 0.1}"
COUPLED = "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, weight_decay: 0.01, weight_decay_mode: coupled}"
FLOAT16 = "precision=float16_mixed"
# So large that the first steps overflow.
OVERFLOW = (FLOAT16, "loss_scale={initial: 268435456.0}", PLAIN)

X2, X3, X4 = tensorflow(2), tensorflow(3), tensorflow(4)
CUT = tensorflow(2, accumulation=3)
WORKERS = Placement.parse({"framework": "tensorflow", "strategy": "multi_worker", "replicas": 2})


# Places that many faults share: (stage, name). A loss of another value shows in its sum, and in what it sends back.
GRADIENTS = ("gradient", "gradient/*")
LOSS = ("loss|backward", "loss_sum|backward/dense_2")
RATE = ("scalar", "scalar/learning_rate")
MOMENTUM, FIRST = "after/slots/momentum_*", "after/slots/first_moment/*"
WEIGHTS = "after/parameters/*"


def forward(layer: str) -> tuple[str, str]:
    return "forward", f"forward/{layer}"


def backward(layer: str) -> tuple[str, str]:
    return "backward", f"backward/{layer}"


FAULTS = [
    # 1: replica gradients never summed
    fault(
        "gradients_never_summed",
        1,
        diagnosed(X2, MLP, GRADIENTS, "gradients_not_summed", suite="slow"),
        diagnosed(X3, MLP, GRADIENTS, "gradients_not_summed"),
        diagnosed(CUT, MLP, GRADIENTS, "gradients_not_summed"),
        diagnosed(WORKERS, MLP, GRADIENTS, "gradients_not_summed"),
        judged(X2, CNN, suite="default"),
        violated(X2, CNN, REPLICAS, 0),
        Own("test_diagnose.py"),
    ),
    # 2: mean of replica means
    fault(
        "mean_of_replica_means",
        2,
        diagnosed(X2, MLP, GRADIENTS, "mean_of_means"),
        diagnosed(X4, MLP, GRADIENTS, "mean_of_means"),
        diagnosed(WORKERS, MLP, GRADIENTS, "mean_of_means"),
    ),
    fault(
        "loss_reported_as_mean_of_means",
        2,
        diagnosed(X2, MLP, ("total", "total/loss_sum"), "recorded_differently"),
    ),
    # 3: micro-batches averaged though their sizes differ
    fault("micro_batch_means", 3, diagnosed(CUT, MLP, backward("dense_2"), "micro_batch_means")),
    # 4: world size not cancelled, or twice
    fault("world_size_not_cancelled", 4, diagnosed(X3, MLP, GRADIENTS, "scaled_by_world_size", ADAM)),
    fault(
        "gradients_averaged_over_replicas",
        4,
        diagnosed(X2, MLP, GRADIENTS, "divided_by_world_size", ADAM),
        judged(X2, VIT),
    ),
    fault(
        "label_smoothing_forgotten",
        4,
        diagnosed(X2, MLP, LOSS, "setting:label_smoothing", "loss.label_smoothing=0.1"),
    ),
    # The sum of the losses lacks it before any gradient does.
    fault(
        "penalty_on_activities_forgotten",
        4,
        diagnosed(X2, MLP, ("loss", "loss_sum"), "penalty_missing", ACTIVITY),
    ),
    # 5: accumulation not divided out, or twice
    fault("divided_by_micro_batches_again", 5, diagnosed(CUT, MLP, GRADIENTS, "divided_by_accumulation")),
    fault("micro_batch_means_summed", 5, diagnosed(CUT, MLP, GRADIENTS, "scaled_by_accumulation")),
    # 6: moments averaged over replicas
    fault(
        "moments_averaged_over_replicas", 6, diagnosed(X2, MLP, ("slots", FIRST), "moments_averaged", ADAM)
    ),
    # 8: a parameter outside what is reduced
    fault(
        "one_parameter_never_reduced",
        8,
        diagnosed(X2, MLP, ("gradient", "gradient/dense_2/bias"), "parameter_not_reduced", suite="slow"),
        diagnosed(WORKERS, MLP, ("gradient", "gradient/dense_2/bias"), "parameter_not_reduced"),
        judged(X2, CNN, suite="default"),
        violated(X2, CNN, REPLICAS, 0),
        Forced(X2, "mlp", 0, ("gradient/dense_2/bias",), suite="default"),
    ),
    # 9: a parameter reduced in the first step only
    fault(
        "parameter_lost_after_the_first_step",
        9,
        diagnosed(X2, MLP, ("gradient", "gradient/dense_1/kernel"), "parameter_not_reduced"),
    ),
    # 10: replicas start from different weights
    fault("a_replica_drifts", 10, diagnosed(X2, MLP, ("update", WEIGHTS), "replicas_differ")),
    fault(
        "a_replica_starts_elsewhere",
        10,
        diagnosed(X2, MLP, ("before", "before/*"), "replicas_differ_at_start"),
        diagnosed(WORKERS, MLP, ("before", "before/*"), "replicas_differ_at_start"),
        Violated(WORKERS, small(MLP, "steps=4"), REPLICAS, 0, suite="slow"),
    ),
    # 11: stale parameters
    fault(
        "a_replica_keeps_stale_parameters",
        11,
        diagnosed(X2, MLP, ("update", WEIGHTS), "stale_parameters", suite="slow"),
        diagnosed(WORKERS, MLP, ("update", WEIGHTS), "stale_parameters"),
        judged(X2, CNN, suite="default"),
        violated(X2, CNN, REPLICAS, 0),
        Forced(X2, "mlp", 1, ("after/parameters/",), suite="exhaustive"),
    ),
    # 12: clipped before the reduction
    fault(
        "clipped_before_the_reduction",
        12,
        diagnosed(X2, MLP, GRADIENTS, "clipped_before_reduction", CLIP),
        diagnosed(WORKERS, MLP, GRADIENTS, "clipped_before_reduction", CLIP),
        judged(X2, CNN, CLIP_2, suite="default"),
    ),
    # 13: clipped by the local norm
    fault(
        "clipped_by_local_norm",
        13,
        diagnosed(X2, MLP, ("clipped", "clipped/*"), "clipped_by_local_norm", LOW_CLIP),
    ),
    fault(
        "each_tensor_clipped_by_its_own_norm",
        13,
        diagnosed(X2, MLP, ("clipped", "clipped/*"), "setting:clip*|clipped_by_local_norm", CLIP),
    ),
    # 14: clipping silently off
    fault("clipping_silently_off", 14, diagnosed(X2, MLP, ("clipped", "clipped/*"), "clipping_off", CLIP)),
    fault(
        "clipping_off_in_float32",
        14,
        diagnosed(X2, MLP, ("clipped", "clipped/*"), "clipping_off", CLIP, "precision=float32"),
    ),
    # 15: gradients not zeroed
    fault(
        "accumulators_not_reset",
        15,
        diagnosed(X2, MLP, GRADIENTS, "gradients_accumulate"),
        diagnosed(CUT, MLP, GRADIENTS, "gradients_accumulate"),
    ),
    # 16: decay coupled or decoupled, or of the wrong tensors
    fault("decay_coupled", 16, diagnosed(X2, MLP, ("slots", FIRST), "setting:weight_decay_mode", ADAMW)),
    fault(
        "decay_of_the_l2_penalty",
        16,
        diagnosed(X2, MLP, ("slots", MOMENTUM), "setting:weight_decay", COUPLED),
    ),
    fault(
        "biases_decay_too",
        16,
        diagnosed(
            X2,
            MLP,
            ("update", "after/parameters/*/bias"),
            "setting:decay_mask",
            ADAMW,
            "optimizer.decay_mask=matrices",
            "convention=torch",
        ),
    ),
    fault("penalty_halved", 16, diagnosed(X2, MLP, GRADIENTS, "setting:l2", "loss.l2=0.01")),
    fault(
        "penalty_on_weights_forgotten",
        16,
        diagnosed(X2, MLP, GRADIENTS, "penalty_missing|setting:l2", "loss.l2=0.01"),
    ),
    # 17: Adam's bias correction and epsilon
    fault(
        "adam_without_bias_correction",
        17,
        diagnosed(
            X2,
            MLP,
            ("scalar", "scalar/step_size|scalar/second_correction"),
            "no_bias_correction",
            ADAM,
            "convention=torch",
        ),
        judged(X2, CNN, ADAM),
    ),
    fault(
        "adam_steps_by_the_learning_rate",
        17,
        diagnosed(X2, MLP, ("update", WEIGHTS), "no_bias_correction", ADAM),
    ),
    fault(
        "adam_epsilon_in_the_other_place",
        17,
        diagnosed(X2, MLP, ("scalar", "scalar/*"), "setting:epsilon_place", ADAM),
        judged(X2, CNN, ADAM),
    ),
    fault(
        "adam_epsilon_of_the_other_framework",
        17,
        diagnosed(X2, MLP, ("update", WEIGHTS), "setting:epsilon", ADAM),
    ),
    # 18: momentum and Nesterov
    fault("nesterov_forgotten", 18, diagnosed(X2, MLP, ("update", WEIGHTS), "setting:nesterov", NESTEROV)),
    fault(
        "momentum_folds_the_learning_rate",
        18,
        diagnosed(X2, MLP, ("slots", MOMENTUM), "setting:momentum_form", "convention=torch"),
    ),
    # 19: batch norm's epsilon, momentum, running variance
    fault("batch_norm_epsilon", 19, diagnosed(X2, MLP, forward("batch_norm"), "setting:epsilon", NORM)),
    fault(
        "batch_norm_momentum_of_the_other_framework",
        19,
        diagnosed(X2, MLP, ("buffers", "after/buffers/batch_norm/*"), "setting:decay", NORM),
    ),
    fault(
        "running_variance_unbiased",
        19,
        diagnosed(
            X2, MLP, ("buffers", "after/buffers/batch_norm/moving_variance"), "setting:running_variance", NORM
        ),
        judged(X2, CNN, suite="default"),
    ),
    # 20: batch norm's statistics: of which replicas
    fault(
        "batch_norm_statistics_per_replica",
        20,
        diagnosed(X2, MLP, forward("batch_norm"), "setting:statistics", NORM),
        diagnosed(X4, MLP, forward("batch_norm"), "setting:statistics", NORM),
        judged(X2, CNN),
    ),
    fault(
        "batch_norm_statistics_of_all_replicas",
        20,
        diagnosed(
            X2,
            MLP,
            forward("batch_norm"),
            "setting:statistics",
            NORM,
            "model.layers.2.statistics=per_replica",
            reference=torch("ddp", 2),
        ),
    ),
    # 21: training mode and inference mode
    fault(
        "evaluated_in_training_mode",
        21,
        diagnosed(X2, MLP, ("evaluation", "*batch_norm"), "evaluated_in_training_mode", NORM),
        Forced(X2, "mlp", None, ("forward/batch_norm",), suite="exhaustive"),
    ),
    fault(
        "trained_in_inference_mode",
        21,
        diagnosed(X2, MLP, forward("batch_norm"), "trained_in_inference_mode", NORM),
    ),
    # 22: order of the samples
    fault("never_reshuffled", 22, diagnosed(X2, MLP, ("ids", "ids"), "not_reshuffled", suite="slow")),
    fault("shuffled_by_another_seed", 22, diagnosed(X2, MLP, ("ids", "ids"), "wrong_order")),
    # 23: shares of the replicas
    fault(
        "replicas_see_the_same_samples",
        23,
        diagnosed(X2, MLP, ("ids", "ids"), "replicas_see_the_same"),
        diagnosed(WORKERS, MLP, ("ids", "ids"), "replicas_see_the_same"),
    ),
    fault(
        "padded_with_repeats",
        23,
        diagnosed(X2, MLP, ("ids", "ids"), "padded_with_repeats"),
        diagnosed(X4, MLP, ("ids", "ids"), "padded_with_repeats"),
    ),
    fault(
        "remainder_dropped",
        23,
        diagnosed(X2, MLP, ("ids", "ids"), "samples_dropped"),
        diagnosed(WORKERS, MLP, ("ids", "ids"), "samples_dropped"),
    ),
    fault("shares_overlap", 23, diagnosed(X2, MLP, ("ids", "ids"), "replicas_overlap")),
    # 24: labels shifted against inputs
    fault("gradients_one_step_late", 24, diagnosed(X2, MLP, ("update", WEIGHTS), "one_step_late", PLAIN)),
    fault(
        "labels_one_batch_late",
        24,
        diagnosed(X2, MLP, ("inputs", "targets"), "labels_shifted"),
        judged(X2, CNN),
        Forced(X2, "mlp", 1, ("targets",), suite="exhaustive"),
    ),
    fault("labels_in_another_order", 24, diagnosed(X2, MLP, ("inputs", "targets"), "labels_permuted")),
    fault("inputs_scaled_twice", 24, diagnosed(X2, MLP, ("inputs", "inputs"), "inputs_differ")),
    # 25: schedule
    fault(
        "learning_rate_off_by_two_percent",
        25,
        diagnosed(X2, MLP, ("update", WEIGHTS), "update_scaled", PLAIN),
        Judged(X2, LOW_PRECISION["bfloat16"], SINGLE, digests=True),
    ),
    fault(
        "warm_up_off_by_one",
        25,
        diagnosed(X2, MLP, RATE, "schedule_shifted", suite="slow"),
        judged(X2, CNN, suite="default"),
        violated(X2, CNN, SCHEDULE, 0),
    ),
    fault(
        "schedule_stepped_twice",
        25,
        diagnosed(X2, MLP, RATE, "schedule_per_replica"),
        diagnosed(WORKERS, MLP, RATE, "schedule_per_replica"),
    ),
    fault(
        "schedule_stepped_three_times",
        25,
        diagnosed(tensorflow(1, accumulation=3), MLP, RATE, "schedule_per_micro_batch"),
    ),
    fault("rate_scaled_by_the_replicas", 25, diagnosed(X2, MLP, RATE, "schedule_scaled")),
    # 26: augmentation and dropout keyed wrongly
    fault(
        "dropout_keyed_by_place",
        26,
        diagnosed(X2, MLP, forward("dropout"), "masks_same_on_every_replica", DROP),
        diagnosed(WORKERS, MLP, forward("dropout"), "masks_same_on_every_replica", DROP),
        judged(X2, GPT),
    ),
    fault("dropout_of_another_seed", 26, diagnosed(X2, MLP, forward("dropout"), "masks_differ", DROP)),
    fault(
        "augmented_alike_every_epoch",
        26,
        diagnosed(
            X2,
            MLP,
            ("inputs", "inputs"),
            "augmentation_keyed_wrongly",
            "data.augment=[{kind: crop, padding: 1}]",
        ),
    ),
    fault(
        "augmentation_keyed_by_place",
        26,
        diagnosed(
            X2,
            MLP,
            ("inputs", "inputs"),
            "augmentation_keyed_wrongly",
            "data.augment=[{kind: crop, padding: 1}]",
        ),
    ),
    # 27: kernel transposed
    fault("square_kernel_transposed", 27, diagnosed(X2, MLP, forward("dense_1"), "kernel_transposed")),
    fault("convolution_transposed", 27, diagnosed(X2, MLP, forward("conv2d"), "kernel_transposed", CONV)),
    fault("convolution_flipped", 27, diagnosed(X2, MLP, forward("conv2d"), "kernel_flipped", CONV)),
    # 28: order of flattening
    fault(
        "flattened_in_the_other_order",
        28,
        diagnosed(X2, MLP, forward("flatten"), "flatten_order|setting:order", CONV),
    ),
    # The grid's axes are one by then: its tokens are in another order.
    fault(
        "patches_column_by_column",
        28,
        diagnosed(X2, MLP, forward("patchify"), "axes_swapped|features_permuted", PATCHES),
    ),
    fault(
        "branches_in_the_other_order",
        28,
        diagnosed(X2, MLP, forward("concatenate"), "features_permuted", BRANCHES),
    ),
    # 29: padding on the other side
    fault(
        "padding_on_the_other_side",
        29,
        diagnosed(X2, MLP, forward("conv2d"), "padding_side|setting:same_by|setting:padding", CONV),
    ),
    fault(
        "padding_counted_in_the_mean",
        29,
        diagnosed(X2, MLP, forward("average_pool2d"), "setting:count_padding", POOL),
    ),
    # 30: gates and biases
    fault(
        "dense_bias_forgotten", 30, diagnosed(X2, MLP, forward("dense_1"), "bias_missing", "convention=torch")
    ),
    fault("lstm_gates_swapped", 30, diagnosed(X2, MLP, forward("lstm"), "gates_swapped", SEQUENCE)),
    fault("recurrent_bias_twice", 30, diagnosed(X2, MLP, forward("lstm"), "bias_doubled", SEQUENCE)),
    # 31: attention's scale, mask and axis
    fault(
        "attention_scaled_by_the_width",
        31,
        diagnosed(X2, MLP, forward("self_attention"), "attention_scale", ATTENTION),
    ),
    fault(
        "softmax_over_the_wrong_axis",
        31,
        diagnosed(X2, MLP, forward("self_attention"), "softmax_axis", ATTENTION),
        judged(X2, VIT),
    ),
    fault(
        "causal_mask_off_by_one",
        31,
        diagnosed(X2, MLP, forward("self_attention"), "mask_off_by_one", ATTENTION),
    ),
    fault(
        "causal_mask_forgotten",
        31,
        diagnosed(X2, MLP, forward("self_attention"), "mask_missing|setting:causal", ATTENTION),
    ),
    # 32: layer norm's epsilon, GELU
    fault(
        "layer_norm_epsilon",
        32,
        diagnosed(X2, MLP, forward("layer_norm"), "setting:epsilon", LAYER_NORM),
        judged(X2, VIT, suite="default"),
    ),
    fault("gelu_approximated", 32, diagnosed(X2, MLP, forward("activation"), "setting:function", GELU)),
    fault(
        "slope_of_the_other_framework",
        32,
        diagnosed(X2, MLP, forward("activation"), "setting:negative_slope", LEAKY),
    ),
    # 33: float32 in a float64 path
    fault("rate_through_float32", 33, diagnosed(X2, MLP, RATE, "float32_leak")),
    fault(
        "gelu_through_float32",
        33,
        diagnosed(X2, MLP, forward("activation"), "float32_leak", GELU),
        judged(X2, VIT, suite="slow"),
    ),
    fault(
        "attention_scale_through_float32",
        33,
        diagnosed(X2, MLP, forward("self_attention"), "float32_leak", ATTENTION),
    ),
    fault("dropout_rate_through_float32", 33, diagnosed(X2, MLP, forward("dropout"), "float32_leak", DROP)),
    fault("loss_through_float32", 33, diagnosed(X2, MLP, LOSS, "float32_leak")),
    fault(
        "inputs_through_float32",
        33,
        diagnosed(X2, MLP, ("inputs", "inputs"), "float32_leak", "data.augment=[{kind: noise, std: 0.1}]"),
    ),
    # 34: loss scale and overflow
    fault(
        "loss_scale_not_divided_out",
        34,
        diagnosed(X2, MLP, GRADIENTS, "loss_scale_not_removed", FLOAT16),
        Judged(X2, LOW_PRECISION["float16"], SINGLE, digests=True),
    ),
    fault(
        "overflow_not_noticed",
        34,
        diagnosed(
            X2,
            MLP,
            ("slots|update", "after/slots/*|updated|after/parameters/*"),
            "overflow_not_skipped",
            *OVERFLOW,
            missed="after backward/dense_1, which has overflowed on either side at other places",
        ),
    ),
    # 35: reduced in low precision
    fault(
        "reduced_in_float32",
        35,
        diagnosed(X2, MLP, GRADIENTS, "reduced_in_low_precision"),
        diagnosed(WORKERS, MLP, GRADIENTS, "reduced_in_low_precision"),
        judged(X2, CNN),
    ),
    fault(
        "reduced_in_bfloat16",
        35,
        diagnosed(X4, MLP, GRADIENTS, "reduced_in_low_precision"),
        diagnosed(X2, MLP, GRADIENTS, "reduced_in_low_precision", "precision=bfloat16_mixed"),
        Judged(X2, LOW_PRECISION["bfloat16"], SINGLE, digests=True),
    ),
    fault("gradients_rounded_to_bfloat16", 35, diagnosed(X2, MLP, GRADIENTS, "rounded_gradients")),
    # none of the list
    fault("the_process_dies", None, Own("test_runs.py")),
    fault("gradient_infinite_on_rank_one", None, Own("test_precision.py")),
    fault("a_gradient_off_by_a_billionth", None, Own("test_clean_runs.py")),
]

pair = partial(pair_of, FAULTS, placement=X2, recipe=MLP)
PAIRS = [
    pair(one="gradients_never_summed", other="warm_up_off_by_one"),
    pair(one="square_kernel_transposed", other="never_reshuffled"),
    pair(one="nesterov_forgotten", other="one_parameter_never_reduced"),
    pair(one="batch_norm_epsilon", other="labels_in_another_order"),
    pair(one="dropout_keyed_by_place", other="rate_through_float32"),
    pair(one="gelu_through_float32", other="reduced_in_float32"),
]
