"""Faults planted in PyTorch, and what a diagnosis must say of each.

The order is that of the list of historic bugs. What is expected follows from what a fault does: a loss whose
gradient is scaled shows in `backward` of the model's last layer, a reduction that scales in `gradient`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from parity.common.spec import Placement
from parity_tests.diagnosis_cases import MIRRORED_1, FaultCase, FaultPair
from parity_tests.matrix import torch

MLP, CNN, VIT = "digits_mlp", "digits_cnn", "digits_transformer"
GPT, BERT, LSTM, GRU, LENET = (
    "gpt2:tiny",
    "bert_base:tiny",
    "lstm_classifier:tiny",
    "gru_tagger:tiny",
    "lenet5:tiny",
)

SINGLE, DDP, DDP_4, MANUAL = torch("single", 1), torch("ddp", 2), torch("ddp", 4), torch("manual", 2)
ZERO, FSDP1, FSDP2 = torch("zero_redundancy", 2), torch("fsdp1", 2), torch("fsdp2", 2)
FSDP1_WHOLE = torch("fsdp1", 2, options={"sharding": "no_shard"})
FSDP2_COPIES = torch("fsdp2", 4, options={"shard_group": 2})
STATIC = torch("ddp", 2, options={"static_graph": True})


def accumulating(strategy: str, replicas: int) -> Placement:
    """Three micro-batches: as many as replicas would not tell the two apart."""
    return torch(strategy, replicas, accumulation=3)


CLIP = "optimizer.clip_global_norm=0.5"
NESTEROV = "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, nesterov: true}"
BUFFER = "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, momentum_form: buffer}"
COUPLED = "optimizer={kind: sgd, learning_rate: 0.05, momentum: 0.9, weight_decay: 0.01, weight_decay_mode: coupled}"
ADAM = "optimizer={kind: adam, learning_rate: 0.003}"
MATRICES = "optimizer.decay_mask=matrices"
ALONE = ("model.layers.1.statistics=per_replica", "model.layers.4.statistics=per_replica")
UNBIASED = ("model.layers.1.running_variance=unbiased", "model.layers.4.running_variance=unbiased")
STRIDED = "model.layers.3.strides=2"
CROPPED = "data.augment=[{kind: crop, padding: 1}]"
FLOAT16, BFLOAT16 = "precision=float16_mixed", "precision=bfloat16_mixed"
# So large that the first steps overflow.
TOO_LARGE = "loss_scale={initial: 1048576}"

# Places that many faults share: (stage, name).
GRADIENTS = ("gradient", "gradient/*")
ALL_CLIPPED = ("clipped", "clipped/*")
RATE = ("scalar", "scalar/learning_rate")
SLOTS, UPDATE = ("slots", "after/slots/*"), ("update", "after/parameters/*")
STARTS = ("before", "before/parameters/*")
IDS, INPUTS, LABELS = ("ids", "ids"), ("inputs", "inputs"), ("inputs", "targets")


def forward(path: str) -> tuple[str, str]:
    """The output of the first layer of a kind."""
    return "forward", f"forward/{path}"


def of_loss(recipe: str) -> tuple[str, str]:
    """What the loss sends back."""
    last = {CNN: "dense", MLP: "dense_2", VIT: "head", GPT: "tokens", LSTM: "head", GRU: "head"}[recipe]
    return "backward", f"backward/{last}"


ATTENTION, NORM = "block_1/attend/self_attention", "block_1/attend/layer_norm"
GELU = "block_1/feed_forward/activation"


def case(
    number: int,
    fault: str,
    placement: Placement,
    recipe: str,
    place: tuple[str, str],
    cause: str,
    *overrides: str,
    **more: Any,
) -> FaultCase:
    return FaultCase(fault, number, placement, recipe, *place, cause, overrides, **more)


CASES = [
    # Gradient scale, loss normalisation
    case(1, "replicas_never_synchronised", DDP, CNN, GRADIENTS, "gradients_not_summed", quick=True),
    case(1, "replicas_never_synchronised", ZERO, MLP, GRADIENTS, "gradients_not_summed"),
    case(1, "gradients_never_reduced_by_hand", MANUAL, CNN, GRADIENTS, "gradients_not_summed"),
    case(1, "copies_never_synchronised", FSDP2_COPIES, MLP, GRADIENTS, "gradients_not_summed"),
    case(2, "mean_of_replica_means", DDP_4, CNN, of_loss(CNN), "mean_of_means"),
    case(2, "mean_of_replica_means", FSDP2, CNN, of_loss(CNN), "mean_of_means"),
    case(2, "gradients_averaged_though_sizes_differ", MANUAL, MLP, GRADIENTS, "mean_of_means"),
    case(3, "micro_batches_averaged", accumulating("single", 1), VIT, of_loss(VIT), "micro_batch_means"),
    case(3, "micro_batches_averaged", accumulating("ddp", 2), MLP, of_loss(MLP), "micro_batch_means"),
    case(3, "micro_batches_averaged", accumulating("fsdp2", 2), GRU, of_loss(GRU), "micro_batch_means"),
    case(4, "world_size_not_cancelled", DDP, VIT, of_loss(VIT), "scaled_by_world_size"),
    case(4, "world_size_not_cancelled", FSDP1, MLP, of_loss(MLP), "scaled_by_world_size"),
    case(4, "world_size_divided_out_twice", DDP, CNN, GRADIENTS, "divided_by_world_size"),
    case(4, "shards_averaged_where_sums_were_meant", FSDP2, VIT, GRADIENTS, "divided_by_world_size"),
    case(4, "shards_summed_where_means_were_meant", FSDP2, CNN, GRADIENTS, "scaled_by_world_size"),
    case(4, "flat_shards_averaged_where_sums_were_meant", FSDP1, MLP, GRADIENTS, "divided_by_world_size"),
    case(4, "all_reduce_averaged_the_sum", MANUAL, MLP, GRADIENTS, "divided_by_world_size"),
    case(
        5,
        "loss_divided_by_micro_batches_twice",
        accumulating("ddp", 2),
        VIT,
        of_loss(VIT),
        "divided_by_accumulation",
    ),
    case(
        5,
        "loss_divided_by_micro_batches_twice",
        accumulating("fsdp1", 2),
        MLP,
        of_loss(MLP),
        "divided_by_accumulation",
    ),
    case(
        5,
        "micro_batches_never_divided",
        accumulating("manual", 2),
        MLP,
        of_loss(MLP),
        "scaled_by_accumulation",
    ),
    case(6, "moments_averaged_over_replicas", MANUAL, VIT, SLOTS, "moments_averaged"),
    # Missing or partial synchronisation
    case(7, "no_sync_left_on", accumulating("ddp", 2), VIT, GRADIENTS, "gradients_not_summed"),
    case(7, "no_sync_left_on", accumulating("zero_redundancy", 2), MLP, GRADIENTS, "gradients_not_summed"),
    case(7, "no_sync_left_on_by_fsdp1", FSDP1_WHOLE, CNN, GRADIENTS, "gradients_not_summed"),
    case(
        8,
        "a_parameter_outside_the_wrapper",
        DDP,
        CNN,
        ("gradient", "gradient/dense/bias"),
        "parameter_not_reduced",
        quick=True,
        reference=MIRRORED_1,
    ),
    case(
        8,
        "a_parameter_outside_the_wrapper",
        ZERO,
        VIT,
        ("gradient", "gradient/head/bias"),
        "parameter_not_reduced",
    ),
    case(
        8,
        "a_parameter_outside_the_shards",
        FSDP2,
        CNN,
        ("gradient", "gradient/dense/bias"),
        "parameter_not_reduced",
    ),
    case(
        8,
        "a_parameter_forgotten_in_the_loop",
        MANUAL,
        MLP,
        ("gradient", "gradient/dense_2/bias"),
        "parameter_not_reduced",
    ),
    case(
        9,
        "a_parameter_reduced_in_the_first_step_only",
        STATIC,
        CNN,
        ("gradient", "gradient/dense/bias"),
        "parameter_not_reduced",
    ),
    case(10, "one_rank_starts_elsewhere", DDP, CNN, STARTS, "replicas_differ_at_start"),
    case(10, "one_rank_drew_weights_of_its_own", MANUAL, MLP, STARTS, "replicas_differ_at_start"),
    case(
        10,
        "only_some_tensors_broadcast",
        DDP,
        MLP,
        ("before", "before/parameters/dense_2/kernel"),
        "replicas_differ_at_start",
    ),
    case(11, "updated_parameters_not_sent", ZERO, CNN, UPDATE, "stale_parameters"),
    case(
        11,
        "a_rank_keeps_a_stale_parameter",
        DDP,
        CNN,
        ("update", "after/parameters/dense/bias"),
        "stale_parameters",
    ),
    # Clipping and optimizer
    case(12, "clipped_before_the_buckets_are_reduced", DDP, VIT, GRADIENTS, "clipped_before_reduction", CLIP),
    case(12, "clipped_before_the_reduction", MANUAL, CNN, GRADIENTS, "clipped_before_reduction", CLIP),
    case(13, "clipped_by_local_norm", FSDP2, VIT, ALL_CLIPPED, "clipped_by_local_norm", CLIP),
    case(13, "clipped_by_local_norm", FSDP1, CNN, ALL_CLIPPED, "clipped_by_local_norm", CLIP),
    case(14, "clipping_silently_off", DDP, CNN, ALL_CLIPPED, "clipping_off", CLIP),
    case(14, "clipping_silently_off", FSDP2, VIT, ALL_CLIPPED, "clipping_off", CLIP),
    case(14, "clipping_off_in_float16", DDP, CNN, ALL_CLIPPED, "clipping_off", CLIP, FLOAT16),
    case(15, "gradients_not_zeroed", DDP, CNN, GRADIENTS, "gradients_accumulate"),
    case(15, "gradients_not_zeroed", FSDP2, VIT, GRADIENTS, "gradients_accumulate"),
    case(15, "gradients_not_zeroed", ZERO, MLP, GRADIENTS, "gradients_accumulate"),
    case(15, "gradients_not_zeroed", SINGLE, MLP, GRADIENTS, "gradients_accumulate", quick=True),
    case(16, "decay_coupled", DDP, VIT, SLOTS, "setting:weight_decay_mode"),
    case(16, "decay_decoupled", ZERO, MLP, SLOTS, "setting:weight_decay_mode", COUPLED),
    case(16, "decay_on_biases_and_norms", FSDP2, VIT, UPDATE, "setting:decay_mask", MATRICES),
    case(17, "adam_without_bias_correction", MANUAL, CNN, UPDATE, "no_bias_correction", ADAM),
    case(17, "adam_epsilon_in_the_other_place", DDP, CNN, UPDATE, "setting:epsilon_place", ADAM),
    case(17, "adam_epsilon_of_the_other_framework", FSDP1, VIT, UPDATE, "setting:epsilon"),
    case(17, "adam_epsilon_under_the_root", SINGLE, VIT, UPDATE, "setting:epsilon_place"),
    case(18, "momentum_without_nesterov", DDP, CNN, UPDATE, "setting:nesterov", NESTEROV),
    case(
        18, "nesterov_short_of_a_momentum_factor", FSDP2, MLP, UPDATE, "setting:nesterov*|nesterov*", NESTEROV
    ),
    case(18, "momentum_folds_the_learning_rate", MANUAL, MLP, SLOTS, "setting:momentum_form", BUFFER),
    # Normalisation and buffers
    case(19, "batch_norm_epsilon", DDP, CNN, forward("batch_norm_1"), "setting:epsilon", quick=True),
    case(
        19,
        "batch_norm_momentum_of_the_other_framework",
        ZERO,
        CNN,
        ("buffers", "after/buffers/batch_norm_1/moving_mean"),
        "setting:decay",
    ),
    case(
        19,
        "running_variance_unbiased",
        FSDP2,
        CNN,
        ("buffers", "after/buffers/batch_norm_1/moving_variance"),
        "setting:running_variance",
    ),
    case(
        19,
        "running_variance_biased",
        SINGLE,
        CNN,
        ("buffers", "after/buffers/batch_norm_1/moving_variance"),
        "setting:running_variance",
        *UNBIASED,
    ),
    case(20, "batch_norm_statistics_per_replica", FSDP2, CNN, forward("batch_norm_1"), "setting:statistics"),
    case(20, "batch_norm_statistics_per_replica", MANUAL, CNN, forward("batch_norm_1"), "setting:statistics"),
    case(
        20,
        "batch_norm_statistics_of_all_replicas",
        DDP,
        CNN,
        forward("batch_norm_1"),
        "setting:statistics",
        *ALONE,
        reference=DDP,
    ),
    case(
        21,
        "evaluated_in_training_mode",
        DDP,
        CNN,
        ("evaluation", "*batch_norm_1"),
        "evaluated_in_training_mode",
    ),
    case(
        21,
        "evaluated_in_training_mode",
        SINGLE,
        GPT,
        ("evaluation", "*dropout"),
        "evaluated_in_training_mode",
    ),
    case(21, "trained_in_inference_mode", FSDP1, GPT, forward("tokens/dropout"), "trained_in_inference_mode"),
    # Data and schedule
    case(22, "never_reshuffled", DDP, CNN, IDS, "not_reshuffled", reference=MIRRORED_1),
    case(22, "never_reshuffled", FSDP2, MLP, IDS, "not_reshuffled"),
    case(22, "shuffled_by_another_seed", MANUAL, MLP, IDS, "wrong_order"),
    case(23, "sampler_pads_with_repeats", DDP_4, MLP, IDS, "padded_with_repeats"),
    case(23, "sampler_drops_what_is_left", FSDP1, MLP, IDS, "samples_dropped", "global_batch_size=131"),
    case(23, "replicas_overlap_by_one", ZERO, MLP, IDS, "replicas_overlap"),
    case(23, "replicas_see_the_same_samples", DDP, CNN, IDS, "replicas_see_the_same"),
    case(23, "replicas_see_the_same_samples", FSDP2, MLP, IDS, "replicas_see_the_same"),
    case(24, "labels_one_batch_late", DDP, CNN, LABELS, "labels_shifted"),
    case(24, "labels_one_batch_late", SINGLE, MLP, LABELS, "labels_shifted", quick=True),
    case(24, "labels_in_reverse_order", FSDP2, CNN, LABELS, "labels_permuted"),
    case(24, "labels_one_sample_off", MANUAL, MLP, LABELS, "labels_permuted"),
    case(25, "schedule_stepped_per_replica", DDP, CNN, RATE, "schedule_per_replica"),
    case(25, "schedule_stepped_per_replica", FSDP2, VIT, RATE, "schedule_per_replica"),
    case(
        25, "schedule_stepped_per_micro_batch", accumulating("ddp", 2), VIT, RATE, "schedule_per_micro_batch"
    ),
    case(25, "warm_up_off_by_one", ZERO, MLP, RATE, "schedule_shifted"),
    case(25, "learning_rate_scaled_by_replicas", MANUAL, MLP, RATE, "schedule_scaled"),
    case(26, "dropout_keyed_by_place", DDP, GPT, forward("tokens/dropout"), "masks_same_on_every_replica"),
    case(26, "dropout_keyed_by_place", FSDP2, LSTM, forward("dropout"), "masks_same_on_every_replica"),
    case(26, "dropout_of_another_seed", MANUAL, LSTM, forward("dropout"), "masks_differ"),
    case(26, "augmentation_keyed_by_place", DDP, CNN, INPUTS, "augmentation_keyed_wrongly", CROPPED),
    case(
        26, "augmentation_the_same_in_every_epoch", SINGLE, CNN, INPUTS, "augmentation_keyed_wrongly", CROPPED
    ),
    # Layout and layers
    case(27, "square_kernel_transposed", DDP, VIT, forward(ATTENTION), "kernel_transposed"),
    case(
        27, "square_dense_kernel_transposed", SINGLE, MLP, forward("dense_1"), "kernel_transposed", quick=True
    ),
    case(27, "convolution_kernel_transposed", FSDP2, CNN, forward("conv2d_1"), "kernel_transposed"),
    case(27, "convolution_kernel_flipped", MANUAL, CNN, forward("conv2d_1"), "kernel_flipped"),
    case(28, "flattened_in_the_other_order", DDP, CNN, forward("flatten"), "flatten_order|setting:order"),
    # A symmetric padding of a stride of two begins where the other side's does.
    case(
        29,
        "padding_on_the_other_side",
        DDP,
        CNN,
        forward("conv2d_2"),
        "padding_side|setting:same_by|setting:padding",
        STRIDED,
    ),
    case(30, "lstm_gates_swapped", DDP, LSTM, forward("lstm_1"), "gates_swapped"),
    case(30, "gru_gates_swapped", FSDP2, GRU, forward("gru"), "gates_swapped"),
    case(30, "recurrent_bias_twice", SINGLE, LSTM, forward("lstm_1"), "bias_doubled"),
    # With biases that are not zero to begin with.
    case(30, "dense_bias_twice", FSDP1, MLP, forward("dense_1"), "bias_doubled", "convention=torch"),
    case(
        30,
        "dense_bias_missing",
        SINGLE,
        MLP,
        forward("dense_1"),
        "bias_missing|setting:use_bias",
        "convention=torch",
    ),
    case(31, "attention_not_scaled", DDP, VIT, forward(ATTENTION), "attention_scale"),
    case(31, "attention_scaled_by_all_heads", FSDP2, VIT, forward(ATTENTION), "attention_scale"),
    case(31, "softmax_over_the_wrong_axis", MANUAL, VIT, forward(ATTENTION), "softmax_axis"),
    case(
        31,
        "causal_mask_off_by_one",
        DDP,
        GPT,
        forward("tokens/block_1/attend/self_attention"),
        "mask_off_by_one",
    ),
    case(
        31,
        "causal_mask_missing",
        SINGLE,
        GPT,
        forward("tokens/block_1/attend/self_attention"),
        "mask_missing|setting:causal",
    ),
    case(
        31,
        "padding_mask_missing",
        SINGLE,
        BERT,
        forward("tokens/block_1/attend/self_attention"),
        "mask_missing|setting:masked",
    ),
    case(32, "layer_norm_epsilon", FSDP2, VIT, forward(NORM), "setting:epsilon"),
    case(
        32, "gelu_approximated", DDP, VIT, forward(GELU), "setting:function", reference=MIRRORED_1, quick=True
    ),
    case(
        32,
        "gelu_not_approximated",
        SINGLE,
        GPT,
        forward("tokens/block_1/feed_forward/activation"),
        "setting:function",
    ),
    # Precision
    case(33, "float32_constant", DDP, CNN, SLOTS, "float32_leak"),
    case(33, "loss_in_float32", SINGLE, VIT, ("loss|backward", "loss_sum|backward/head"), "float32_leak"),
    case(33, "learning_rate_in_float32", ZERO, MLP, RATE, "float32_leak"),
    case(33, "layer_norm_in_float32", FSDP2, VIT, forward(NORM), "float32_leak"),
    case(33, "batch_norm_epsilon_in_float32", MANUAL, CNN, forward("batch_norm_1"), "float32_leak"),
    case(33, "activation_through_float32", DDP, VIT, forward(GELU), "float32_leak"),
    case(
        33, "second_moment_in_float32", FSDP1, VIT, ("slots", "after/slots/second_moment/*"), "float32_leak"
    ),
    case(33, "inputs_in_float32", SINGLE, LENET, INPUTS, "float32_leak"),
    case(34, "loss_scale_not_divided_out", DDP, CNN, GRADIENTS, "loss_scale_not_removed", FLOAT16),
    case(34, "loss_scale_not_divided_out", FSDP2, MLP, GRADIENTS, "loss_scale_not_removed", FLOAT16),
    case(
        34,
        "overflow_not_skipped",
        SINGLE,
        MLP,
        ("slots|update", "after/slots/*|after/parameters/*|updated"),
        "overflow_not_skipped",
        FLOAT16,
        TOO_LARGE,
    ),
    case(35, "reduced_in_bfloat16", DDP, CNN, GRADIENTS, "reduced_in_low_precision"),
    case(35, "reduced_in_float32", ZERO, VIT, GRADIENTS, "reduced_in_low_precision"),
    case(35, "all_reduced_in_bfloat16", MANUAL, MLP, GRADIENTS, "reduced_in_low_precision"),
    case(35, "scattered_in_bfloat16", FSDP2, CNN, GRADIENTS, "reduced_in_low_precision"),
    case(35, "scattered_flat_in_float32", FSDP1, MLP, GRADIENTS, "reduced_in_low_precision"),
    case(
        35,
        "weight_gradients_rounded",
        SINGLE,
        VIT,
        ("local_gradient", "local_gradient/*"),
        "rounded_gradients",
        BFLOAT16,
    ),
]


def pair(placement: Placement, recipe: str, one: str, other: str, quick: bool = False) -> FaultPair:
    """Two of the faults above at once, in another placement perhaps."""
    found = [next(c for c in CASES if (c.fault, c.recipe) == (fault, recipe)) for fault in (one, other)]
    first, second = (replace(c, placement=placement, reference=SINGLE, quick=False) for c in found)
    return FaultPair(first, second, quick=quick)


PAIRS = [
    pair(DDP, CNN, "batch_norm_epsilon", "schedule_stepped_per_replica", quick=True),
    pair(DDP, CNN, "labels_one_batch_late", "batch_norm_momentum_of_the_other_framework"),
    pair(DDP, CNN, "never_reshuffled", "flattened_in_the_other_order"),
    pair(DDP, CNN, "reduced_in_bfloat16", "momentum_without_nesterov"),
    pair(DDP, CNN, "a_parameter_outside_the_wrapper", "clipping_silently_off"),
    pair(DDP, CNN, "gradients_not_zeroed", "padding_on_the_other_side"),
    pair(DDP, CNN, "one_rank_starts_elsewhere", "schedule_stepped_per_replica"),
    pair(DDP, CNN, "world_size_divided_out_twice", "a_rank_keeps_a_stale_parameter"),
    pair(DDP, CNN, "evaluated_in_training_mode", "float32_constant"),
    pair(DDP, VIT, "gelu_approximated", "square_kernel_transposed"),
    pair(DDP, VIT, "attention_not_scaled", "decay_coupled"),
    pair(DDP, VIT, "world_size_not_cancelled", "activation_through_float32"),
    pair(DDP, GPT, "dropout_keyed_by_place", "causal_mask_off_by_one"),
    pair(FSDP2, VIT, "clipped_by_local_norm", "layer_norm_epsilon"),
    pair(FSDP2, VIT, "decay_on_biases_and_norms", "attention_scaled_by_all_heads"),
    pair(FSDP2, CNN, "running_variance_unbiased", "labels_in_reverse_order"),
    pair(FSDP2, CNN, "convolution_kernel_transposed", "scattered_in_bfloat16"),
    pair(FSDP1, MLP, "flat_shards_averaged_where_sums_were_meant", "dense_bias_twice"),
    pair(MANUAL, CNN, "gradients_never_reduced_by_hand", "batch_norm_epsilon_in_float32"),
    pair(MANUAL, MLP, "a_parameter_forgotten_in_the_loop", "learning_rate_scaled_by_replicas"),
    pair(ZERO, MLP, "warm_up_off_by_one", "gradients_not_zeroed"),
    pair(SINGLE, MLP, "labels_one_batch_late", "square_dense_kernel_transposed", quick=True),
    pair(SINGLE, GPT, "causal_mask_missing", "gelu_not_approximated"),
]
