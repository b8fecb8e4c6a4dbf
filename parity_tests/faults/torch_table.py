"""The registry's entries of PyTorch, in the order of the list of historic bugs.

What is expected follows from what a fault does: a loss whose gradient is scaled shows in `backward` of the model's
last layer, a reduction that scales in `gradient`.
"""

from __future__ import annotations

from functools import partial

from parity.common.recipes.models import sequence
from parity.common.record.invariants import REPLICAS, SAMPLES, SCHEDULE
from parity.common.spec import Placement
from parity_tests.faults.registry import (
    MIRRORED_1,
    SINGLE,
    Fault,
    Forced,
    Judged,
    Own,
    Tapped,
    Violated,
    diagnosed,
    judged,
    pair_of,
    violated,
)
from parity_tests.helpers.matrix import LOW_PRECISION, small, torch

fault = partial(Fault.of, "torch")

MLP, CNN, VIT = "digits_mlp", "digits_cnn", "digits_transformer"
GPT, BERT, LSTM, GRU, LENET = (
    "gpt2:tiny",
    "bert_base:tiny",
    "lstm_classifier:tiny",
    "gru_tagger:tiny",
    "lenet5:tiny",
)

DDP, DDP_4, MANUAL = torch("ddp", 2), torch("ddp", 4), torch("manual", 2)
ZERO, FSDP1, FSDP2 = torch("zero_redundancy", 2), torch("fsdp1", 2), torch("fsdp2", 2)
FSDP1_WHOLE = torch("fsdp1", 2, options={"sharding": "no_shard"})
FSDP2_COPIES = torch("fsdp2", 4, options={"shard_group": 2})
STATIC = torch("ddp", 2, options={"static_graph": True})


def accumulating(strategy: str, replicas: int) -> Placement:
    """Three micro-batches: as many as replicas would not tell the two apart."""
    return torch(strategy, replicas, accumulation=3)


CLIP, CLIP_2 = "optimizer.clip_global_norm=0.5", "optimizer.clip_global_norm=2.0"
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


BATCH_NORM_PASSES = tuple(
    f"{kind}_{number}{rest}"
    for number in (1, 2)
    for kind, rest in (
        ("forward/batch_norm", ""),
        ("backward/conv2d", ""),
        ("local_gradient/batch_norm", "/gamma"),
        ("gradient/batch_norm", "/gamma"),
    )
)
# The tiny GPT-2 with heads that two ranks can share, and with dropout on attention weights too.
FOUR_HEADS = small("gpt2:tiny", "steps=8").model_copy(
    update={"model": sequence.gpt2_model(vocabulary=61, positions=16, tokens=12, width=24, depth=2, heads=4)}
)

FAULTS = [
    # 1: replica gradients never summed
    fault(
        "replicas_never_synchronised",
        1,
        diagnosed(DDP, CNN, GRADIENTS, "gradients_not_summed", suite="slow"),
        diagnosed(ZERO, MLP, GRADIENTS, "gradients_not_summed"),
        judged(DDP, CNN, suite="default"),
        violated(DDP, CNN, REPLICAS, 0),
        Own("test_diagnose.py"),
    ),
    fault("gradients_never_reduced_by_hand", 1, diagnosed(MANUAL, CNN, GRADIENTS, "gradients_not_summed")),
    fault("copies_never_synchronised", 1, diagnosed(FSDP2_COPIES, MLP, GRADIENTS, "gradients_not_summed")),
    # 2: mean of replica means
    fault(
        "mean_of_replica_means",
        2,
        diagnosed(DDP_4, CNN, of_loss(CNN), "mean_of_means"),
        diagnosed(FSDP2, CNN, of_loss(CNN), "mean_of_means"),
        judged(DDP_4, CNN),
    ),
    fault("gradients_averaged_though_sizes_differ", 2, diagnosed(MANUAL, MLP, GRADIENTS, "mean_of_means")),
    # 3: micro-batches averaged though their sizes differ
    fault(
        "micro_batches_averaged",
        3,
        diagnosed(accumulating("single", 1), VIT, of_loss(VIT), "micro_batch_means"),
        diagnosed(accumulating("ddp", 2), MLP, of_loss(MLP), "micro_batch_means"),
        diagnosed(accumulating("fsdp2", 2), GRU, of_loss(GRU), "micro_batch_means"),
    ),
    # 4: world size not cancelled, or twice
    fault(
        "world_size_not_cancelled",
        4,
        diagnosed(DDP, VIT, of_loss(VIT), "scaled_by_world_size"),
        diagnosed(FSDP1, MLP, of_loss(MLP), "scaled_by_world_size"),
        judged(DDP, VIT),
    ),
    fault("world_size_divided_out_twice", 4, diagnosed(DDP, CNN, GRADIENTS, "divided_by_world_size")),
    fault(
        "shards_averaged_where_sums_were_meant", 4, diagnosed(FSDP2, VIT, GRADIENTS, "divided_by_world_size")
    ),
    fault(
        "shards_summed_where_means_were_meant", 4, diagnosed(FSDP2, CNN, GRADIENTS, "scaled_by_world_size")
    ),
    fault(
        "flat_shards_averaged_where_sums_were_meant",
        4,
        diagnosed(FSDP1, MLP, GRADIENTS, "divided_by_world_size"),
    ),
    fault("all_reduce_averaged_the_sum", 4, diagnosed(MANUAL, MLP, GRADIENTS, "divided_by_world_size")),
    # 5: accumulation not divided out, or twice
    fault(
        "loss_divided_by_micro_batches_twice",
        5,
        diagnosed(accumulating("ddp", 2), VIT, of_loss(VIT), "divided_by_accumulation"),
        diagnosed(accumulating("fsdp1", 2), MLP, of_loss(MLP), "divided_by_accumulation"),
    ),
    fault(
        "micro_batches_never_divided",
        5,
        diagnosed(accumulating("manual", 2), MLP, of_loss(MLP), "scaled_by_accumulation"),
    ),
    # 6: moments averaged over replicas
    fault("moments_averaged_over_replicas", 6, diagnosed(MANUAL, VIT, SLOTS, "moments_averaged")),
    # 7: `no_sync` left on for the last micro-batch
    fault(
        "no_sync_left_on",
        7,
        diagnosed(accumulating("ddp", 2), VIT, GRADIENTS, "gradients_not_summed"),
        diagnosed(accumulating("zero_redundancy", 2), MLP, GRADIENTS, "gradients_not_summed"),
    ),
    fault("no_sync_left_on_by_fsdp1", 7, diagnosed(FSDP1_WHOLE, CNN, GRADIENTS, "gradients_not_summed")),
    # 8: a parameter outside what is reduced
    fault(
        "a_parameter_outside_the_wrapper",
        8,
        diagnosed(
            DDP,
            CNN,
            ("gradient", "gradient/dense/bias"),
            "parameter_not_reduced",
            reference=MIRRORED_1,
            suite="slow",
        ),
        diagnosed(ZERO, VIT, ("gradient", "gradient/head/bias"), "parameter_not_reduced"),
    ),
    fault(
        "a_parameter_outside_the_shards",
        8,
        diagnosed(FSDP2, CNN, ("gradient", "gradient/dense/bias"), "parameter_not_reduced"),
    ),
    fault(
        "a_parameter_forgotten_in_the_loop",
        8,
        diagnosed(MANUAL, MLP, ("gradient", "gradient/dense_2/bias"), "parameter_not_reduced"),
    ),
    # 9: a parameter reduced in the first step only
    fault(
        "a_parameter_reduced_in_the_first_step_only",
        9,
        diagnosed(STATIC, CNN, ("gradient", "gradient/dense/bias"), "parameter_not_reduced"),
    ),
    # 10: replicas start from different weights
    fault(
        "one_rank_starts_elsewhere",
        10,
        diagnosed(DDP, CNN, STARTS, "replicas_differ_at_start"),
        judged(DDP, CNN),
        violated(DDP, CNN, REPLICAS, 0),
    ),
    fault("one_rank_drew_weights_of_its_own", 10, diagnosed(MANUAL, MLP, STARTS, "replicas_differ_at_start")),
    fault(
        "only_some_tensors_broadcast",
        10,
        diagnosed(DDP, MLP, ("before", "before/parameters/dense_2/kernel"), "replicas_differ_at_start"),
    ),
    # 11: stale parameters
    fault(
        "updated_parameters_not_sent",
        11,
        diagnosed(ZERO, CNN, UPDATE, "stale_parameters"),
        Judged(
            Placement.from_text("torch:zero_redundancy:2"),
            small(VIT, "steps=8"),
            SINGLE,
            suite="slow",
            digests=True,
        ),
        Violated(
            Placement.from_text("torch:zero_redundancy:2"),
            small(VIT, "steps=8"),
            REPLICAS,
            0,
            suite="slow",
            digests=True,
        ),
    ),
    fault(
        "a_rank_keeps_a_stale_parameter",
        11,
        diagnosed(DDP, CNN, ("update", "after/parameters/dense/bias"), "stale_parameters"),
    ),
    # 12: clipped before the reduction
    fault(
        "clipped_before_the_buckets_are_reduced",
        12,
        diagnosed(DDP, VIT, GRADIENTS, "clipped_before_reduction", CLIP),
    ),
    fault(
        "clipped_before_the_reduction",
        12,
        diagnosed(MANUAL, CNN, GRADIENTS, "clipped_before_reduction", CLIP),
    ),
    # 13: clipped by the local norm
    fault(
        "clipped_by_local_norm",
        13,
        diagnosed(FSDP2, VIT, ALL_CLIPPED, "clipped_by_local_norm", CLIP),
        diagnosed(FSDP1, CNN, ALL_CLIPPED, "clipped_by_local_norm", CLIP),
        judged(FSDP2, VIT, CLIP_2),
    ),
    fault(
        "norms_summed_over_all_copies",
        13,
        Judged(
            Placement.from_text("torch:fsdp1:4,sharding=hybrid_shard,shard_group=2"),
            small(VIT, "steps=46", CLIP),
            SINGLE,
            suite="slow",
            digests=True,
        ),
    ),
    fault(
        "whole_tensors_counted_by_each_rank",
        13,
        Judged(
            Placement.from_text("torch:tensor_parallel:1"),
            small(VIT, "steps=8", CLIP),
            SINGLE,
            suite="default",
            digests=True,
        ),
    ),
    # 14: clipping silently off
    fault(
        "clipping_silently_off",
        14,
        diagnosed(DDP, CNN, ALL_CLIPPED, "clipping_off", CLIP),
        diagnosed(FSDP2, VIT, ALL_CLIPPED, "clipping_off", CLIP),
        judged(DDP, CNN, CLIP_2, suite="default"),
        Forced(DDP, "transformer", 0, ("clipped/",), suite="exhaustive"),
    ),
    fault(
        "clipping_off_in_float16",
        14,
        diagnosed(
            DDP,
            CNN,
            ALL_CLIPPED,
            "clipping_off",
            CLIP,
            FLOAT16,
        ),
    ),
    # 15: gradients not zeroed
    fault(
        "gradients_not_zeroed",
        15,
        diagnosed(DDP, CNN, GRADIENTS, "gradients_accumulate"),
        diagnosed(FSDP2, VIT, GRADIENTS, "gradients_accumulate"),
        diagnosed(ZERO, MLP, GRADIENTS, "gradients_accumulate"),
        diagnosed(SINGLE, MLP, GRADIENTS, "gradients_accumulate", suite="slow"),
        judged(DDP, CNN, suite="default"),
    ),
    # 16: decay coupled or decoupled, or of the wrong tensors
    fault("decay_coupled", 16, diagnosed(DDP, VIT, SLOTS, "setting:weight_decay_mode"), judged(DDP, VIT)),
    fault("decay_decoupled", 16, diagnosed(ZERO, MLP, SLOTS, "setting:weight_decay_mode", COUPLED)),
    fault("decay_on_biases_and_norms", 16, diagnosed(FSDP2, VIT, UPDATE, "setting:decay_mask", MATRICES)),
    # 17: Adam's bias correction and epsilon
    fault("adam_without_bias_correction", 17, diagnosed(MANUAL, CNN, UPDATE, "no_bias_correction", ADAM)),
    fault("adam_epsilon_in_the_other_place", 17, diagnosed(DDP, CNN, UPDATE, "setting:epsilon_place", ADAM)),
    fault("adam_epsilon_of_the_other_framework", 17, diagnosed(FSDP1, VIT, UPDATE, "setting:epsilon")),
    fault("adam_epsilon_under_the_root", 17, diagnosed(SINGLE, VIT, UPDATE, "setting:epsilon_place")),
    # 18: momentum and Nesterov
    fault(
        "momentum_without_nesterov",
        18,
        diagnosed(DDP, CNN, UPDATE, "setting:nesterov", NESTEROV),
        judged(DDP, CNN, NESTEROV),
    ),
    fault(
        "nesterov_short_of_a_momentum_factor",
        18,
        diagnosed(FSDP2, MLP, UPDATE, "setting:nesterov*|nesterov*", NESTEROV),
    ),
    fault(
        "momentum_folds_the_learning_rate", 18, diagnosed(MANUAL, MLP, SLOTS, "setting:momentum_form", BUFFER)
    ),
    # 19: batch norm's epsilon, momentum, running variance
    fault(
        "batch_norm_epsilon",
        19,
        diagnosed(DDP, CNN, forward("batch_norm_1"), "setting:epsilon", suite="slow"),
        judged(DDP, CNN),
        Tapped(DDP, "cnn", "forward/batch_norm_1", suite="default"),
        Forced(DDP, "cnn", 0, BATCH_NORM_PASSES, suite="default"),
        Own("test_runs.py"),
    ),
    fault(
        "batch_norm_momentum_of_the_other_framework",
        19,
        diagnosed(ZERO, CNN, ("buffers", "after/buffers/batch_norm_1/moving_mean"), "setting:decay"),
        judged(DDP, CNN),
    ),
    fault(
        "running_variance_unbiased",
        19,
        diagnosed(
            FSDP2, CNN, ("buffers", "after/buffers/batch_norm_1/moving_variance"), "setting:running_variance"
        ),
    ),
    fault(
        "running_variance_biased",
        19,
        diagnosed(
            SINGLE,
            CNN,
            ("buffers", "after/buffers/batch_norm_1/moving_variance"),
            "setting:running_variance",
            *UNBIASED,
        ),
    ),
    # The CNN's children have no children: each with parameters is a block, batch norm too.
    fault(
        "recomputed_pass_counted_twice",
        19,
        Judged(
            Placement.from_text("torch:ddp:2,checkpoint=true"),
            small(CNN, "steps=8"),
            SINGLE,
            suite="default",
            digests=True,
        ),
    ),
    # 20: batch norm's statistics: of which replicas
    fault(
        "batch_norm_statistics_per_replica",
        20,
        diagnosed(FSDP2, CNN, forward("batch_norm_1"), "setting:statistics"),
        diagnosed(MANUAL, CNN, forward("batch_norm_1"), "setting:statistics"),
        judged(FSDP2, CNN),
    ),
    fault(
        "batch_norm_statistics_of_all_replicas",
        20,
        diagnosed(DDP, CNN, forward("batch_norm_1"), "setting:statistics", *ALONE, reference=DDP),
    ),
    # 21: training mode and inference mode
    fault(
        "evaluated_in_training_mode",
        21,
        diagnosed(DDP, CNN, ("evaluation", "*batch_norm_1"), "evaluated_in_training_mode"),
        diagnosed(SINGLE, GPT, ("evaluation", "*dropout"), "evaluated_in_training_mode"),
        judged(DDP, CNN),
        Forced(DDP, "cnn", None, ("forward/batch_norm_",), suite="exhaustive"),
    ),
    fault(
        "trained_in_inference_mode",
        21,
        diagnosed(FSDP1, GPT, forward("tokens/dropout"), "trained_in_inference_mode"),
    ),
    # 22: order of the samples
    fault(
        "never_reshuffled",
        22,
        diagnosed(DDP, CNN, IDS, "not_reshuffled", reference=MIRRORED_1),
        diagnosed(FSDP2, MLP, IDS, "not_reshuffled"),
        judged(DDP, CNN, suite="default"),
    ),
    fault("shuffled_by_another_seed", 22, diagnosed(MANUAL, MLP, IDS, "wrong_order")),
    # 23: shares of the replicas
    fault(
        "sampler_pads_with_repeats",
        23,
        diagnosed(DDP_4, MLP, IDS, "padded_with_repeats"),
        judged(DDP_4, CNN),
        violated(DDP_4, CNN, SAMPLES, 0),
    ),
    fault(
        "sampler_drops_what_is_left",
        23,
        diagnosed(FSDP1, MLP, IDS, "samples_dropped", "global_batch_size=131"),
    ),
    fault("replicas_overlap_by_one", 23, diagnosed(ZERO, MLP, IDS, "replicas_overlap")),
    fault(
        "replicas_see_the_same_samples",
        23,
        diagnosed(DDP, CNN, IDS, "replicas_see_the_same"),
        diagnosed(FSDP2, MLP, IDS, "replicas_see_the_same"),
        judged(DDP, CNN),
        violated(DDP, CNN, SAMPLES, 0),
    ),
    # 24: labels shifted against inputs
    fault(
        "labels_one_batch_late",
        24,
        diagnosed(DDP, CNN, LABELS, "labels_shifted"),
        diagnosed(SINGLE, MLP, LABELS, "labels_shifted", suite="default"),
        judged(DDP, CNN, suite="default"),
        Forced(DDP, "cnn", 1, ("targets",), suite="default"),
    ),
    fault("labels_in_reverse_order", 24, diagnosed(FSDP2, CNN, LABELS, "labels_permuted")),
    fault("labels_one_sample_off", 24, diagnosed(MANUAL, MLP, LABELS, "labels_permuted")),
    # 25: schedule
    fault(
        "schedule_stepped_per_replica",
        25,
        diagnosed(DDP, CNN, RATE, "schedule_per_replica"),
        diagnosed(FSDP2, VIT, RATE, "schedule_per_replica"),
        judged(DDP, CNN, suite="default"),
        violated(DDP, CNN, SCHEDULE, 1),
    ),
    fault(
        "schedule_stepped_per_micro_batch",
        25,
        diagnosed(accumulating("ddp", 2), VIT, RATE, "schedule_per_micro_batch"),
    ),
    fault("warm_up_off_by_one", 25, diagnosed(ZERO, MLP, RATE, "schedule_shifted")),
    fault("learning_rate_scaled_by_replicas", 25, diagnosed(MANUAL, MLP, RATE, "schedule_scaled")),
    fault(
        "learning_rate_off_by_two_percent",
        25,
        Judged(DDP, LOW_PRECISION["bfloat16"], SINGLE, digests=True),
        Judged(DDP, LOW_PRECISION["float16"], SINGLE, digests=True),
    ),
    # 26: augmentation and dropout keyed wrongly
    fault(
        "dropout_keyed_by_place",
        26,
        diagnosed(DDP, GPT, forward("tokens/dropout"), "masks_same_on_every_replica"),
        diagnosed(FSDP2, LSTM, forward("dropout"), "masks_same_on_every_replica"),
        judged(DDP, GPT),
        Forced(
            DDP,
            "transformer",
            0,
            (
                "forward/residual",
                "backward/residual",
                "local_gradient/residual/self_attention",
                "gradient/residual/self_attention",
            ),
            suite="exhaustive",
        ),
    ),
    fault("dropout_of_another_seed", 26, diagnosed(MANUAL, LSTM, forward("dropout"), "masks_differ")),
    fault(
        "augmentation_keyed_by_place", 26, diagnosed(DDP, CNN, INPUTS, "augmentation_keyed_wrongly", CROPPED)
    ),
    fault(
        "augmentation_the_same_in_every_epoch",
        26,
        diagnosed(SINGLE, CNN, INPUTS, "augmentation_keyed_wrongly", CROPPED),
    ),
    fault(
        "dropout_of_another_ranks_heads",
        26,
        Judged(
            Placement.from_text("torch:tensor_parallel:1"), FOUR_HEADS, SINGLE, suite="slow", digests=True
        ),
    ),
    fault("dropout_the_same_in_every_step", 26, judged(DDP, GPT)),
    # 27: kernel transposed
    fault(
        "square_kernel_transposed",
        27,
        diagnosed(DDP, VIT, forward(ATTENTION), "kernel_transposed"),
        judged(DDP, VIT),
        Tapped(DDP, "transformer", "forward/residual/self_attention", suite="slow"),
    ),
    fault(
        "square_dense_kernel_transposed",
        27,
        diagnosed(SINGLE, MLP, forward("dense_1"), "kernel_transposed", suite="default"),
        Own("test_diagnose_command.py"),
    ),
    fault(
        "convolution_kernel_transposed", 27, diagnosed(FSDP2, CNN, forward("conv2d_1"), "kernel_transposed")
    ),
    fault("convolution_kernel_flipped", 27, diagnosed(MANUAL, CNN, forward("conv2d_1"), "kernel_flipped")),
    # 28: order of flattening
    fault(
        "flattened_in_the_other_order",
        28,
        diagnosed(DDP, CNN, forward("flatten"), "flatten_order|setting:order"),
        judged(DDP, CNN),
    ),
    # 29: padding on the other side
    fault(
        "padding_on_the_other_side",
        29,
        # A symmetric padding of a stride of two begins where the other side's does.
        diagnosed(DDP, CNN, forward("conv2d_2"), "padding_side|setting:same_by|setting:padding", STRIDED),
        judged(DDP, CNN, "model.layers.3.strides=2", suite="default"),
    ),
    # 30: gates and biases
    fault(
        "lstm_gates_swapped", 30, diagnosed(DDP, LSTM, forward("lstm_1"), "gates_swapped"), judged(DDP, LSTM)
    ),
    fault("gru_gates_swapped", 30, diagnosed(FSDP2, GRU, forward("gru"), "gates_swapped")),
    fault("recurrent_bias_twice", 30, diagnosed(SINGLE, LSTM, forward("lstm_1"), "bias_doubled")),
    # With biases that are not zero to begin with.
    fault(
        "dense_bias_twice", 30, diagnosed(FSDP1, MLP, forward("dense_1"), "bias_doubled", "convention=torch")
    ),
    fault(
        "dense_bias_missing",
        30,
        diagnosed(SINGLE, MLP, forward("dense_1"), "bias_missing|setting:use_bias", "convention=torch"),
    ),
    # 31: attention's scale, mask and axis
    fault("attention_not_scaled", 31, diagnosed(DDP, VIT, forward(ATTENTION), "attention_scale")),
    fault("attention_scaled_by_all_heads", 31, diagnosed(FSDP2, VIT, forward(ATTENTION), "attention_scale")),
    fault("softmax_over_the_wrong_axis", 31, diagnosed(MANUAL, VIT, forward(ATTENTION), "softmax_axis")),
    fault(
        "causal_mask_off_by_one",
        31,
        diagnosed(DDP, GPT, forward("tokens/block_1/attend/self_attention"), "mask_off_by_one"),
        judged(DDP, GPT, suite="default"),
    ),
    fault(
        "causal_mask_missing",
        31,
        diagnosed(
            SINGLE, GPT, forward("tokens/block_1/attend/self_attention"), "mask_missing|setting:causal"
        ),
    ),
    fault(
        "padding_mask_missing",
        31,
        diagnosed(
            SINGLE, BERT, forward("tokens/block_1/attend/self_attention"), "mask_missing|setting:masked"
        ),
    ),
    # 32: layer norm's epsilon, GELU
    fault("layer_norm_epsilon", 32, diagnosed(FSDP2, VIT, forward(NORM), "setting:epsilon")),
    fault(
        "gelu_approximated",
        32,
        diagnosed(DDP, VIT, forward(GELU), "setting:function", reference=MIRRORED_1, suite="slow"),
        judged(DDP, VIT, suite="default"),
    ),
    fault(
        "gelu_not_approximated",
        32,
        diagnosed(SINGLE, GPT, forward("tokens/block_1/feed_forward/activation"), "setting:function"),
    ),
    # 33: float32 in a float64 path
    fault(
        "float32_constant", 33, diagnosed(DDP, CNN, SLOTS, "float32_leak"), judged(DDP, CNN, suite="default")
    ),
    fault(
        "loss_in_float32",
        33,
        diagnosed(SINGLE, VIT, ("loss|backward", "loss_sum|backward/head"), "float32_leak"),
    ),
    fault("learning_rate_in_float32", 33, diagnosed(ZERO, MLP, RATE, "float32_leak")),
    fault("layer_norm_in_float32", 33, diagnosed(FSDP2, VIT, forward(NORM), "float32_leak")),
    fault(
        "batch_norm_epsilon_in_float32", 33, diagnosed(MANUAL, CNN, forward("batch_norm_1"), "float32_leak")
    ),
    fault("activation_through_float32", 33, diagnosed(DDP, VIT, forward(GELU), "float32_leak")),
    fault(
        "second_moment_in_float32",
        33,
        diagnosed(FSDP1, VIT, ("slots", "after/slots/second_moment/*"), "float32_leak"),
    ),
    fault("inputs_in_float32", 33, diagnosed(SINGLE, LENET, INPUTS, "float32_leak")),
    # 34: loss scale and overflow
    fault(
        "loss_scale_not_divided_out",
        34,
        diagnosed(
            DDP,
            CNN,
            GRADIENTS,
            "loss_scale_not_removed",
            FLOAT16,
            missed="the place; but replicas_differ, where all have overflowed",
        ),
        diagnosed(FSDP2, MLP, GRADIENTS, "loss_scale_not_removed", FLOAT16),
        Judged(DDP, LOW_PRECISION["float16"], SINGLE, digests=True),
    ),
    fault(
        "overflow_not_skipped",
        34,
        diagnosed(
            SINGLE,
            MLP,
            ("slots|update", "after/slots/*|after/parameters/*|updated"),
            "overflow_not_skipped",
            FLOAT16,
            TOO_LARGE,
        ),
    ),
    fault(
        "step_skipped_on_rank_one_only",
        34,
        Judged(DDP, LOW_PRECISION["float16"], SINGLE, digests=True),
        Violated(DDP, LOW_PRECISION["float16"], REPLICAS, 3, suite="default", digests=True),
    ),
    # 35: reduced in low precision
    fault(
        "reduced_in_bfloat16",
        35,
        diagnosed(DDP, CNN, GRADIENTS, "reduced_in_low_precision"),
        judged(DDP, CNN, suite="default"),
        Judged(DDP, LOW_PRECISION["bfloat16"], SINGLE, suite="slow", digests=True),
        Tapped(DDP, "cnn", "gradient/conv2d_1/kernel", suite="slow"),
        Own("test_precision.py"),
    ),
    fault("reduced_in_float32", 35, diagnosed(ZERO, VIT, GRADIENTS, "reduced_in_low_precision")),
    fault("all_reduced_in_bfloat16", 35, diagnosed(MANUAL, MLP, GRADIENTS, "reduced_in_low_precision")),
    fault("scattered_in_bfloat16", 35, diagnosed(FSDP2, CNN, GRADIENTS, "reduced_in_low_precision")),
    fault("scattered_flat_in_float32", 35, diagnosed(FSDP1, MLP, GRADIENTS, "reduced_in_low_precision")),
    fault(
        "weight_gradients_rounded",
        35,
        diagnosed(SINGLE, VIT, ("local_gradient", "local_gradient/*"), "rounded_gradients", BFLOAT16),
    ),
    # none of the list
    fault("a_rank_crashes", None, Own("test_runs.py"), Own("test_stop.py")),
    fault("learning_rate_off_by_three_percent", None, Own("test_study_faults.py")),
    fault("second_moment_decays_otherwise", None, Own("test_study_faults.py")),
    fault("weight_decay_doubled", None, Own("test_study_faults.py")),
    fault("one_replica_not_augmented", None, Own("test_study_faults.py")),
    fault("compiled_pass_changed", None, Own("test_compile_torch.py")),
    fault("gradient_infinite_on_rank_one", None, Own("test_precision.py")),
    fault("backward_of_fabric_doubled", None, Own("test_engines_torch.py", "backward_of_{engine}_doubled")),
    fault(
        "backward_of_accelerate_doubled", None, Own("test_engines_torch.py", "backward_of_{engine}_doubled")
    ),
    fault(
        "backward_of_lightning_doubled", None, Own("test_engines_torch.py", "backward_of_{engine}_doubled")
    ),
    fault("backward_of_deepspeed_doubled", None, Own("test_engines_torch.py")),
]

pair = partial(pair_of, FAULTS)
PAIRS = [
    pair(DDP, CNN, "batch_norm_epsilon", "schedule_stepped_per_replica", suite="slow"),
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
    pair(
        DDP,
        GPT,
        "dropout_keyed_by_place",
        "causal_mask_off_by_one",
        missed="the place; no cause, where both act in one layer, the attention",
    ),
    pair(FSDP2, VIT, "clipped_by_local_norm", "layer_norm_epsilon"),
    pair(FSDP2, VIT, "decay_on_biases_and_norms", "attention_scaled_by_all_heads"),
    pair(FSDP2, CNN, "running_variance_unbiased", "labels_in_reverse_order"),
    pair(
        FSDP2,
        CNN,
        "convolution_kernel_transposed",
        "scattered_in_bfloat16",
    ),
    pair(
        FSDP1,
        MLP,
        "flat_shards_averaged_where_sums_were_meant",
        "dense_bias_twice",
        suite="slow",
    ),
    pair(MANUAL, CNN, "gradients_never_reduced_by_hand", "batch_norm_epsilon_in_float32"),
    pair(MANUAL, MLP, "a_parameter_forgotten_in_the_loop", "learning_rate_scaled_by_replicas"),
    pair(ZERO, MLP, "warm_up_off_by_one", "gradients_not_zeroed"),
    pair(SINGLE, MLP, "labels_one_batch_late", "square_dense_kernel_transposed", suite="slow"),
    pair(SINGLE, GPT, "causal_mask_missing", "gelu_not_approximated"),
]
