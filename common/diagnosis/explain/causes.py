"""The catalogue of causes: why two runs diverge.

A cause is a name, a signature, an experiment and a fix. To add one: write a signature, a function of a
`Case` (one finding, and the run that is suspected) that returns a `Match`, or several, where what the run made is what
the cause would make, and None otherwise; add a line to `CATALOGUE`, before those that are less specific.

    key         what a report and the tests call it; "setting:*" is completed by the field
    stages      of a finding, that the signature is asked about
    signature   exact where it can be: what is due, changed by the cause, is what was made
    experiment  `formula`: the signature has computed both sides; `replay`: the step is taken again with the
                corrected tensor; `by_size`: nothing but the size speaks for it
    text, fix   one line each, filled in with the match's facts. Findings of one cause and one fix are one
                finding in a report, so a fix does not name a layer
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from parity.common.base.errors import ParityError
from parity.common.diagnosis import limits
from parity.common.diagnosis.explain.case import Case
from parity.common.diagnosis.explain.signatures import (
    clipping,
    data,
    layers,
    loss,
    masks,
    optimizer,
    reduction,
    schedule,
    state,
    variants,
)
from parity.common.diagnosis.explain.signatures.base import Match, Tensors
from parity.common.diagnosis.result import Confidence, Explanation
from parity.common.parity.deviation import tensor_deviation
from parity.common.record.trace import INJECTABLE, stage_of
from parity.common.spec import Placement
from parity.common.state.canonical import State

FAILED = "a signature failed:"  # how a note begins
_LOG = logging.getLogger(__name__)

# How a cause is confirmed or refuted: what it says must make the divergence go away.

# What an experiment says of a cause, and what was seen.
Outcome = tuple[Confidence | Literal["refuted"], str]


def formula(case: Case, match: Match) -> Outcome:
    """The signature has computed it already: what the cause makes is what was made, and what is due is not."""
    if match.after <= max(case.allowed, limits.FITS) < match.before:
        return ("confirmed", match.tried)
    return ("likely" if match.after <= limits.UNEXPLAINED * match.before else "refuted", match.tried)


def by_size(_: Case, match: Match) -> Outcome:
    """Nothing but the size of the deviation speaks for the cause."""
    fits = match.after <= limits.UNEXPLAINED * match.before
    return ("confirmed" if fits else "likely", match.tried)


def replay(case: Case, match: Match) -> Outcome:
    """Repeat the step with the reference's tensors up to the place, and there what the candidate should have made.

    What it then makes by itself of the corrected tensors has to be the reference's.
    """
    if case.suspect == "reference" or not match.corrected:
        return formula(case, match)
    try:
        trace = case.experiments.corrected(case.step, _injections(case, match))
    except ParityError as error:
        return ("likely", f"{match.tried}; the step could not be repeated: {error}")
    names = _next(case, match)
    if not names:
        return formula(case, match)
    after = _farthest(case, trace.replicas, names)
    before = _farthest(case, case.as_trained.replicas, names) if case.as_trained else float("nan")
    what = "the new state" if names[0].startswith("after") else names[0].partition("/")[0]
    if after <= max(limits.FITS_READ_OFF, 10 * case.allowed):
        agrees = f"the repeated step's {what} agrees to {after:.0e} (before: {before:.0e})"
        return ("confirmed", f"{match.tried}; with that put right, {agrees}")
    own = {n: v for n, v in match.corrected[0].items() if n.startswith("gradient/") and n in case.given}
    if any(tensor_deviation(case.given[name], value) > 10 * case.allowed for name, value in own.items()):
        # They are made of the run's own tensors, which are wrong by another defect: what follows of them is not the
        # reference's, however right it is.
        return formula(case, match)
    # Another finding of the same step may account for the rest.
    still = f"{match.tried}; with that put right, {what} is still {after:.0e} off"
    return ("likely" if case.beside else "refuted", still)


def _injections(case: Case, match: Match) -> list[State]:
    """Everything of the reference before the corrected tensors, and these."""
    place = min(_place(name) for tensors in match.corrected for name in tensors)
    return [
        {name: value for name, value in given.items() if _place(name) < place or name == "ids"}
        | {name: np.asarray(value) for name, value in corrected.items()}
        for given, corrected in zip(case.injections, match.corrected, strict=True)
    ]


def _place(name: str) -> int:
    """Where a tensor that can be injected stands in a step; scalars are injected first but change the last."""
    head = name.partition("/")[0]
    return INJECTABLE.index(head) if head in INJECTABLE else len(INJECTABLE)


def _next(case: Case, match: Match) -> list[str]:
    """The tensors that are made of the corrected ones, those that come first."""
    after = {"inputs": "gradient/", "backward": "gradient/", "total": "gradient/", "gradient": "clipped/"}
    wanted = after.get(stage_of(next(iter(match.corrected[0]))), "after/parameters/")
    return [n for n in case.given if n.startswith(wanted) and not case.is_zero_gradient(n)]


def _farthest(case: Case, states: Iterable[Tensors], names: list[str]) -> float:
    """How far the replicas' tensors are from the reference's."""
    each = [tensor_deviation(case.given[n], state[n]) for n in names for state in states if n in state]
    return max(each, default=float("nan"))


Signature = Callable[[Case], Match | Iterable[Match] | None]
Experiment = Callable[[Case, Match], Outcome]

IDS, INPUTS, STARTS = ("ids",), ("inputs",), ("before",)
LAYER = ("forward", "backward", "local_gradient", "buffers", "evaluation")
TRAINED = ("forward", "backward", "local_gradient", "buffers")
LOSS = ("loss", "backward", "evaluation")
TOTAL, GRADIENT, CLIPPED, SCALAR = ("total",), ("gradient",), ("clipped",), ("scalar",)
UPDATE = ("slots", "update")


@dataclass(frozen=True)
class Cause:
    """Why a tensor is not what it should be; the fields are those of the module's docstring."""

    key: str
    stages: tuple[str, ...]
    signature: Signature
    experiment: Experiment
    text: str
    fix: str

    @property
    def needs_the_step_before(self) -> bool:
        """Whether it tells of what an earlier step left, which must have been traced."""
        return self.key in ("gradients_accumulate", "one_step_late", "stale_parameters")


# Of a factor that is too much: what to say, and what to do.
# fmt: off
_RATIOS = (
    ("scaled_by_world_size", "{what} is too large by {factor}",
     "divide by the count of the global batch once: drop the factor of the world size, or average over the replicas"),
    ("divided_by_world_size", "{what} is too small by {factor}",
     "sum over the replicas, do not average: what is averaged has been divided by the global count already"),
    ("scaled_by_accumulation", "{what} is too large by {factor}",
     "divide the sum over the micro-batches by the count of the global batch"),
    ("divided_by_accumulation", "{what} is too small by {factor}",
     "divide by the number of micro-batches once only, in the loop or in the wrapper"),
    ("loss_scale_not_removed", "{what} is off by {factor}",
     "divide the gradients by the loss scale before they are clipped and used"),
    ("scaled_by_constant", "{what} is multiplied by {factor}",
     "find where the loss or its gradient is multiplied by {factor}, and drop it"),
)
# fmt: on


def _ratios(stages: tuple[str, ...], signature: Signature, experiment: Experiment, what: str) -> list[Cause]:
    """The causes of numbers that are a multiple of what is due; the signature tells them apart."""
    return [
        Cause(key, stages, signature, experiment, text.replace("{what}", what), fix)
        for key, text, fix in _RATIOS
    ]


def _setting(
    stages: tuple[str, ...], signature: Signature, experiment: Experiment, what: str, where: str
) -> Cause:
    """The cause of what is made with another value of a field of the spec."""
    text = f"{what} {{field}} {{value}}, where the spec has {{own}}"
    return Cause("setting:*", stages, signature, experiment, text, f"set {{field}} of {where} to {{own}}")


# fmt: off
CATALOGUE: tuple[Cause, ...] = (
    # Which samples
    Cause("not_reshuffled", IDS, data.not_reshuffled, formula,
          "In epoch {epoch} the samples come in the order of an earlier one: the batch is that of step {step}",
          "reshuffle every epoch: set_epoch on a DistributedSampler, reshuffle_each_iteration in tf.data"),
    Cause("replicas_see_the_same", IDS, data.replicas_see_the_same, formula,
          "All {replicas} replicas get {what}",
          "give each replica its own share: a sampler with its rank, or a dataset sharded by it"),
    Cause("padded_with_repeats", IDS, data.padded, formula,
          "The sampler pads the batch with {extra} repeated samples so that the shares are equal",
          "let the last share be smaller, and divide by the global count; DistributedSampler pads unless drop_last"),
    Cause("replicas_overlap", IDS, data.overlap, formula,
          "{double} samples are on more than one replica",
          "make the shares disjoint: check where each replica's begins and ends"),
    Cause("samples_dropped", IDS, data.dropped, formula,
          "{missing} of {whole} samples of the batch are dropped",
          "keep the rest that the replicas do not divide: drop_last or drop_remainder off"),
    Cause("wrong_order", IDS, data.wrong_order, formula,
          "The samples are those of {order}",
          "take seed, shuffle, split and position from the batch plan"),
    # Inputs and targets
    Cause("labels_shifted", INPUTS, data.labels_shifted, replay,
          "The targets are those of the batch {words}, not of their inputs",
          "draw inputs and targets from one iterator, so that neither is ahead"),
    Cause("labels_permuted", INPUTS, data.labels_permuted, replay,
          "The targets of a batch are in another order than its inputs{words}",
          "shuffle inputs and targets together"),
    Cause("augmentation_keyed_wrongly", INPUTS, data.augmented_otherwise, formula,
          "The inputs are augmented {words}",
          "key augmentation by seed, epoch and sample id"),
    Cause("float32_leak", INPUTS, data.through_float32, by_size,
          "The {what} have been through float32",
          "keep the {what} in float64 from the file to the model"),
    Cause("inputs_differ", INPUTS, data.inputs_differ, by_size,
          "The {what} of the same samples differ{words}",
          "compare how both sides read and prepare the {what}"),
    # What a step begins with
    Cause("stale_parameters", STARTS, state.stale_start, formula,
          "Replica {replicas} begins the step with old values of {names}",
          "send updated parameters to all replicas after each step"),
    Cause("replicas_differ_at_start", STARTS, state.replicas_start_apart, formula,
          "Replicas {replicas} begin with other values of {names}",
          "broadcast all parameters and buffers from replica 0 before the first step"),
    Cause("replicas_differ_at_start", ("evaluation",), state.evaluated_apart, by_size,
          "Replicas {replicas} are evaluated with other values of {names}",
          "broadcast all parameters and buffers from replica 0 before the first step"),
    Cause("setting:*", STARTS, state.other_seed, formula,
          "The run begins with the initial values of {field} {value}",
          "set {field} to {own}"),
    # Layers
    Cause("masks_same_on_every_replica", TRAINED, masks.masks_by_place, formula,
          "Layer {layer} draws the same masks on every replica: {words}",
          "key dropout by the sample, or seed each replica differently"),
    Cause("evaluated_in_training_mode", ("evaluation",), masks.other_mode, formula,
          "Layer {layer} ({kind}) is evaluated {words}",
          "evaluate in inference mode: model.eval(), or training=False"),
    Cause("trained_in_inference_mode", TRAINED, masks.other_mode, formula,
          "Layer {layer} ({kind}) is trained {words}",
          "train in training mode: model.train(), or training=True"),
    Cause("float32_leak", LAYER, variants.rounded_setting, formula,
          "Layer {layer} ({kind}) computes with a {what} that has been through float32",
          "give the {what} as a float64 number; tf.cast of a Python float goes through float32"),
    Cause("flatten_order", LAYER, variants.flattened_otherwise, formula,
          "Layer {layer} flattens {words}",
          "flatten in the order that the spec names, or permute the rows of the kernel that follows"),
    Cause("padding_side", LAYER, variants.padding_side, formula,
          "Layer {layer} ({kind}) puts the odd cell of its padding on the other side",
          "pad explicitly, the odd cell at the end, as TensorFlow's SAME does"),
    Cause("attention_scale", LAYER, variants.attention, formula,
          "The attention of layer {layer} is {words}",
          "scale queries by 1 / sqrt(head size)"),
    Cause("mask_off_by_one", LAYER, variants.attention, formula,
          "The attention of layer {layer} runs {words}",
          "let a token attend to itself and to what is before it: the diagonal of the causal mask is 0"),
    Cause("mask_missing", LAYER, variants.attention, formula,
          "The attention of layer {layer} runs {words}",
          "give attention the masks that the spec names"),
    Cause("softmax_axis", LAYER, variants.attention, formula,
          "Layer {layer} ({kind}) runs {words}",
          "take the softmax over the last axis: over the keys, or over the classes"),
    Cause("penalty_missing", LAYER, variants.activity_missing, formula,
          "The penalty of layer {layer} on its input is left out of the loss",
          "add the layers' own losses to the loss that is differentiated"),
    _setting(LAYER, variants.other_setting, formula, "Layer {layer} ({kind}) works with", "{where}"),
    Cause("kernel_transposed", LAYER, variants.transposed, formula,
          "Layer {layer} ({kind}) computes {words}",
          "transpose {names} between the layouts: (in, out) and HWIO here, (out, in) and OIHW in PyTorch"),
    Cause("kernel_flipped", LAYER, variants.flipped, formula,
          "Layer {layer} ({kind}) computes {words}: a convolution where a cross-correlation is meant",
          "do not flip {names} along its window"),
    Cause("gates_swapped", LAYER, variants.gates_swapped, formula,
          "The gates of layer {layer} ({kind}) are in the order {order}, where {own} is meant",
          "reorder the gates of kernels and biases: Keras has i f c o and z r h, PyTorch i f g o and r z n"),
    Cause("bias_doubled", LAYER, variants.other_bias, formula,
          "Layer {layer} ({kind}) adds {names} twice",
          "set one of two biases to zero: PyTorch's recurrent layers add two, Keras's one"),
    Cause("bias_missing", LAYER, variants.other_bias, formula,
          "Layer {layer} ({kind}) does not add {names}",
          "add the bias"),
    Cause("setting:*", ("evaluation",), masks.averaged_weights, formula,
          "The evaluation is made {words}",
          "evaluate with the weights that optimizer.ema.evaluate names"),
    Cause("masks_differ", TRAINED, masks.masks_otherwise, formula,
          "Layer {layer} ({kind}) works {words}",
          "draw masks by the spec's seed, the layer, the step and the sample"),
    Cause("axes_swapped", LAYER, variants.axes_swapped, formula,
          "Layer {layer} ({kind}) works {words}",
          "transpose axes by name and not by count: channels last here, channels first in PyTorch"),
    Cause("features_permuted", LAYER, variants.features_permuted, formula,
          "Layer {layer} ({kind}) gives its output {words}",
          "put the output in the order that the next layer's weights are in"),
    Cause("residual_incomplete", LAYER, variants.skip_missing, formula,
          "Residual {layer} comes out {words}",
          "add the input to what the branch makes of it"),
    Cause("scaled_by_constant", LAYER, variants.output_scaled, formula,
          "Layer {layer} ({kind}) gives its output {words}",
          "find where the layer multiplies by {factor}, and drop it"),
    Cause("gradient_missing", TRAINED, layers.gradients_missing, formula,
          "Nothing flows back through layer {layer} ({kind}): a gradient is stopped, or what the layer gives is left out",
          "take away what stops the gradient behind the layer; use what it gives"),
    Cause("gradient_transposed", TRAINED, layers.gradients_transposed, formula,
          "The backward pass of layer {layer} ({kind}) goes {words}",
          "transpose the gradient of the kernel as the kernel itself"),
    Cause("rounded_gradients", TRAINED, layers.gradients_rounded, by_size,
          "The gradients of layer {layer} are rounded to {type} before they are added over samples and replicas",
          "keep gradients of weights in the type of the weights: out of the autocast region"),
    Cause("rounded_gradients", ("local_gradient", "gradient"), reduction.local_rounded, by_size,
          "Each replica's own gradients are rounded to {type}",
          "keep gradients of weights in the type of the weights: out of the autocast region"),
    # The loss
    Cause("micro_batch_means", LOSS, loss.weighted_by_micro_batch, replay,
          "Micro-batches are averaged although their counts differ ({counts})",
          "sum the losses of all micro-batches and divide once, by the count of the global batch"),
    Cause("mean_of_means", LOSS, loss.weighted_by_share, replay,
          "The replicas' means are averaged although their counts differ ({counts})",
          "sum the losses of all replicas and divide once, by the count of the global batch"),
    *_ratios(("backward",), loss.scaled, replay, "The gradient of the loss"),
    *_ratios(("local_gradient",), reduction.local_scaled, formula, "Each replica's own gradient"),
    *_ratios(TRAINED, layers.gradients_scaled, formula, "What flows back through layer {layer}"),
    _setting(LOSS, loss.other_setting, formula, "The loss is taken with", "the loss"),
    Cause("penalty_missing", LOSS + TOTAL, loss.activity_missing, formula,
          "The loss is the due one {times} the penalties on activations",
          "add the layers' own losses to the loss once"),
    Cause("rounded_gradients", ("backward",), loss.gradient_rounded, by_size,
          "What flows back from the loss is rounded to {type}",
          "compute the loss in the type of the weights"),
    Cause("float32_leak", LOSS, loss.leaks_float32, by_size,
          "Something of the loss is computed in float32",
          "compute the loss in float64, from the logits to the sum"),
    Cause("float32_leak", LAYER, layers.in_float32, by_size,
          "Something in layer {layer} ({kind}) is computed in float32",
          "keep constants and casts of the layer in float64; tf.cast of a Python float goes through float32"),
    # Over the replicas
    Cause("recorded_differently", ("total", "loss"), loss.only_reported, formula,
          "Only the loss that is reported differs; gradients and weights are in order",
          "report the sum of the losses over their count"),
    Cause("totals_not_summed", TOTAL, loss.totals_never_summed, formula,
          "Each replica takes its own {name} for the global one",
          "sum loss and count over the replicas before the division"),
    *_ratios(TOTAL, loss.sums_scaled, formula, "The global sum"),
    Cause("gradients_accumulate", GRADIENT, reduction.accumulates, formula,
          "The gradient still holds that of the step before",
          "set gradients to zero before each step: optimizer.zero_grad()"),
    Cause("mean_of_means", GRADIENT, reduction.weighted_by_share, replay,
          "The replicas' means are averaged although their counts differ ({counts})",
          "sum gradients over the replicas and divide once, by the count of the global batch"),
    Cause("clipped_before_reduction", GRADIENT, reduction.clipped_first, replay,
          "Each replica clips its own gradient, to {limit}, before the reduction",
          "reduce first, then clip: Keras's clipnorm and global_clipnorm clip on each replica"),
    *_ratios(GRADIENT, reduction.scaled, replay, "The global gradient"),
    Cause("gradients_not_summed", GRADIENT, reduction.never_summed, replay,
          "The gradients of the {replicas} replicas are never summed: each goes on with its own",
          "reduce gradients over the replicas in every step: no_sync off for the last micro-batch, groups larger than one"),
    Cause("parameter_not_reduced", GRADIENT, reduction.never_summed, replay,
          "The gradient of {names} is never reduced over the replicas",
          "put every parameter inside the wrapped module, and let the graph change where it does"),
    Cause("gradients_not_summed", GRADIENT, reduction.replicas_left_out, replay,
          "The global gradient leaves out replicas: it has {replicas}",
          "reduce gradients over all replicas"),
    Cause("penalty_missing", GRADIENT, reduction.other_penalty, replay,
          "The gradients are {times} the penalties on the weights",
          "add the penalties on the weights once, to the global mean"),
    Cause("setting:*", GRADIENT, reduction.other_penalty, replay,
          "The gradients are {times} the penalties on the weights",
          "set {field} of the loss to {own}; the gradient of l2 sum w^2 is 2 l2 w"),
    Cause("rounded_gradients", GRADIENT, reduction.rounded_after, by_size,
          "Gradients are rounded to {type} after the reduction",
          "keep reduced gradients in the type of the weights"),
    Cause("reduced_in_low_precision", GRADIENT, reduction.in_low_precision, by_size,
          "Gradients are reduced in {type}",
          "reduce in the type of the weights: no compression hook, reduce_dtype as wide as the weights"),
    Cause("float32_leak", GRADIENT, reduction.leaks_float32, by_size,
          "Something in {what} is computed in float32",
          "keep factors and sums of the reduction in float64"),
    # Clipping
    Cause("clipping_off", CLIPPED, clipping.clipping_off, replay,
          "The gradients, of norm {norm}, are not clipped",
          "clip in every precision and engine; check which of them read the setting"),
    Cause("clipped_by_local_norm", CLIPPED, clipping.clipped_by_share, replay,
          "Each replica clips the gradient by the norm of its own share of it",
          "clip by the norm of the reduced gradient"),
    Cause("clipped_by_local_norm", CLIPPED, clipping.clipped_by_part, replay,
          "Each part of the gradient is clipped by its own norm ({norms})",
          "clip by the norm over all shards: sum the squares over the ranks"),
    _setting(CLIPPED, clipping.clipped_to_another_limit, replay, "Gradients are clipped with", "the optimizer"),
    # Scalars
    Cause("schedule_per_replica", SCALAR, schedule.per_replica, replay,
          "The schedule goes {factor} steps a step, one for each replica",
          "step the schedule once a step, whatever the number of replicas"),
    Cause("schedule_per_micro_batch", SCALAR, schedule.per_micro_batch, replay,
          "The schedule goes {factor} steps a step, one for each micro-batch",
          "step the schedule once a step, after the last micro-batch"),
    Cause("schedule_shifted", SCALAR, schedule.shifted, replay,
          "The schedule is {words}",
          "count steps from 0, and read the rate before the schedule is stepped"),
    Cause("schedule_shifted", SCALAR, schedule.corrections_shifted, replay,
          "The schedule is {words}",
          "count the updates of the bias corrections from 1"),
    Cause("no_bias_correction", SCALAR, schedule.uncorrected, replay,
          "The moments are used without bias correction",
          "correct the moments: divide by 1 - beta^t"),
    Cause("float32_leak", SCALAR, schedule.rounded, replay,
          "{what} has been through float32",
          "compute rates and corrections in float64, and hand them on as float64"),
    Cause("schedule_scaled", SCALAR, schedule.scaled, replay,
          "The learning rate is multiplied by {factor}",
          "take the learning rate of the spec; linear scaling is schedule.base_batch_size"),
    Cause("setting:*", SCALAR, schedule.other_setting, replay,
          "The scalars of the step are those of {where}.{field} {value}, where the spec has {own}",
          "set {field} of the {where} to {own}"),
    # The update
    Cause("overflow_not_skipped", UPDATE, optimizer.not_skipped, formula,
          "Replicas {replicas} do not agree on whether the step's gradients are finite",
          "skip a step on all replicas alike, where the reduced gradients are not finite"),
    Cause("stale_parameters", UPDATE, optimizer.stale, formula,
          "After the step replicas {replicas} still hold the old values of {names}",
          "send updated parameters to all replicas after each step"),
    Cause("not_updated", UPDATE, optimizer.not_updated, formula,
          "The step leaves {names} as they were",
          "let the optimizer step, with all parameters in it"),
    Cause("float32_leak", UPDATE, optimizer.rounded_setting, formula,
          "{what} has been through float32",
          "give numbers of the optimizer as float64; tf.cast of a Python float goes through float32"),
    Cause("decay_by_another_rate", UPDATE, optimizer.decay_by_another_rate, formula,
          "Weights decay by {words}, where the step's learning rate is due",
          "multiply decoupled weight decay by the learning rate of the step"),
    _setting(UPDATE, optimizer.other_setting, formula, "The optimizer works with", "the optimizer"),
    Cause("no_bias_correction", UPDATE, optimizer.uncorrected, formula,
          "The moments are used without bias correction",
          "correct the moments: divide by 1 - beta^t"),
    Cause("term_scaled", UPDATE, optimizer.term_scaled, formula,
          "The {what} has {words} {factor} times",
          "look at the factors where the {what} is updated"),
    Cause("moments_averaged", UPDATE, optimizer.moments_averaged, formula,
          "The moments are averaged over the replicas, each made of its own gradient",
          "update slots with the reduced gradient; aggregate them not at all, or only from one replica"),
    Cause("one_step_late", UPDATE, optimizer.one_step_late, formula,
          "The weights are updated with the gradient of step {step}",
          "update with the gradient of the same step"),
    Cause("gradients_accumulate", UPDATE, optimizer.accumulated, formula,
          "The optimizer is given the gradients of earlier steps, too",
          "set gradients to zero before each step: optimizer.zero_grad()"),
    Cause("update_scaled", UPDATE, optimizer.scaled, formula,
          "All weights change by {factor} times what is due",
          "use the learning rate that the schedule gives"),
    Cause("float32_leak", UPDATE, optimizer.leaks_float32, by_size,
          "Something in {what} is computed in float32",
          "keep slots and numbers of the optimizer in float64"),
    Cause("replicas_differ", UPDATE, optimizer.replicas_apart, by_size,
          "After the step replicas {replicas} hold other weights than replica 0",
          "apply one reduced gradient on all replicas, and broadcast the weights at the start"),
    Cause("replicas_differ", GRADIENT, reduction.gradients_differ, by_size,
          "The replicas go on with different gradients",
          "reduce gradients over the replicas in every step"),
)
# fmt: on


def explain(case: Case) -> Explanation | None:
    """Why a finding is there: the first cause that is confirmed, else the first that fits; None: none does.

    The candidate is suspected first; where nothing explains what it makes, the reference.
    """
    likely = None
    for suspected in (case, replace(case, suspect="reference")):
        for cause in CATALOGUE:
            for match in _matches(cause, suspected) if case.finding.stage in cause.stages else ():
                found = _judged(cause, suspected, match)
                if found is not None and found.confidence == "confirmed":
                    return found
                likely = likely or found
    return likely


def _judged(cause: Cause, case: Case, match: Match) -> Explanation | None:
    """What is to be said of a match: it must hold at the other traced steps, and in an experiment; None: it is refuted."""
    held, but = _elsewhere(cause, case, match)
    if but == "refuted":
        return None
    confidence, seen = cause.experiment(case, match)
    if confidence == "refuted":
        return None
    free = match.value is not None and not (held and _is_written(case, match.value))
    # Both frameworks' layers do what the two runs do: which of them is wrong, the reference or the other, is not known.
    reference = case.suspect == "reference" and case.finding.stage in LAYER
    unknown = match.either or (reference and layers.is_as_its_framework(case))
    if but or free or unknown:
        confidence = "likely"
    if confidence == "confirmed" and cause.key.endswith(_BY_PLACEMENT):
        cause, match, confidence = _by_placement(cause, case, match)
    key = cause.key.replace("*", match.facts.get("field", "*"))
    text, fix = cause.text.format_map(match.facts), cause.fix.format_map(match.facts)
    text = f"It behaves as if {text[:1].lower()}{text[1:]}" if free else text[:1].upper() + text[1:]
    seen += f"; so it is at step {', '.join(map(str, held))}" if held else ""
    return Explanation(key, text, confidence, fix, seen + but, "" if unknown else case.culprit)


_BY_PLACEMENT = ("by_world_size", "by_accumulation")


def _by_placement(cause: Cause, case: Case, match: Match) -> tuple[Cause, Match, Confidence]:
    """What a factor goes by, tried on another placement; a constant is as large on any. Likely where none can be tried."""

    def named(key: str) -> Cause:
        return next(c for c in CATALOGUE if (c.key, c.signature) == (key, cause.signature))

    wide, fine = _BY_PLACEMENT
    tried = [cause]
    if cause.key.endswith(wide) and case.replicas == case.micro_batches:
        tried.append(named(cause.key.replace(wide, fine)))
    for one in tried:
        goes = _goes_with_placement(one, case)
        if goes is not False:
            words = match.facts["factor"]
            words = words if one is cause else words.replace("replicas", "micro-batches")
            return (
                one,
                replace(match, facts={**match.facts, "factor": words}),
                "confirmed" if goes else "likely",
            )
    factor = match.facts["factor"].rpartition(", ")[2]
    factor = f"1 / {factor.rstrip(')')}" if factor.endswith(")") else factor
    constant = replace(match, facts={**match.facts, "factor": factor})
    return named("scaled_by_constant"), constant, "confirmed"


def _goes_with_placement(cause: Cause, case: Case) -> bool | None:
    """Whether a factor goes away on one replica, or without micro-batches; None where that cannot be known."""
    change = {"replicas": 1} if cause.key.endswith("world_size") else {"accumulation": 1}
    if case.step is None or case.spec.precision != "float64" or case.beside:
        return None
    try:
        placement = Placement.parse({**case.placement.to_dict(), **change})
        trace = case.experiments.as_trained(case.step, placement, case.suspect)
    except ParityError:
        return None
    names = [n for n in case.given if n.startswith("gradient/") and not case.is_zero_gradient(n)]
    names += [case.finding.name] if case.finding.stage == "total" else []
    return _farthest(case, trace.replicas, names) <= limits.AS_TRAINED_FLOAT64


def _elsewhere(cause: Cause, case: Case, match: Match) -> tuple[list[int], str]:
    """The other traced steps where a cause predicts what deviates; and what speaks against it: "refuted", or in words.

    Where the run is right though the cause says otherwise, a number is refuted; a defect may come and go.
    """
    held: list[int] = []
    but = ""
    if case.step is None or cause.needs_the_step_before:
        return held, but
    # Where nothing but a size speaks for it, a size is all that it predicts.
    sized = cause.experiment is by_size and match.after > limits.UNEXPLAINED * match.before
    others = sorted(case.others, key=lambda other: other.finding is None)[: limits.STEPS_PREDICTED]
    for other in others:
        there = case.at(other, match)
        again = next((m for m in _matches(cause, there) if match.claims(m.facts, m.cause, m.value)), None)
        most = max(there.allowed, limits.FITS)
        if again is not None and (sized or again.after <= max(most, limits.UNEXPLAINED * again.before)):
            held += [other.step] if again.before > most and other.finding is not None else []
        elif other.finding is not None or (again is not None and _is_a_number(match)):
            return [], "refuted"
        elif again is not None:
            but = f"; but not at step {other.step}"
    return sorted(held), but


def _is_a_number(match: Match) -> bool:
    try:
        float(match.facts.get("value", ""))
    except ValueError:
        return match.value is not None
    return True


def _is_written(case: Case, value: float) -> bool:
    """Whether someone would write a number: one with few digits, or one that stands in the spec."""
    in_spec = re.findall(r"\d[-+.e\d]*", json.dumps(case.spec.to_dict()))
    near = limits.FITS_READ_OFF * abs(value)
    return any(abs(value - float(text)) <= near for text in (f"{value:.3g}", *in_spec))


def _matches(cause: Cause, case: Case) -> list[Match]:
    """What fits of a cause; a signature that raises fits nothing, and is reported."""
    try:
        # Gradients may have overflowed: what comes of these is no number, and matches nothing.
        with np.errstate(invalid="ignore", over="ignore"):
            found = cause.signature(case)
            matches = [] if found is None else [found] if isinstance(found, Match) else list(found)
    except Exception as error:
        name = f"{cause.key} ({getattr(cause.signature, '__name__', '')})"
        said = f"{FAILED} {name}, asked about {case.finding.name}: {type(error).__name__}: {error}"
        _LOG.debug(said, exc_info=True)
        case.failures.append(said)
        return []
    return [match for match in matches if match.cause in ("", cause.key)]
