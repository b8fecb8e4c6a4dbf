"""`parity pair`: map, copy the weights, check the forward pass, train both sides, judge, and where they part diagnose.

What is left in OUT: mapping.yaml, weights.safetensors, pair.yaml (the TrainSpec, which `parity run --spec` takes too),
samples.npz (what is joined to rows), a model that was given as an object, pair.json (what was asked), runs/ and report.* as of `parity run`, and where the two differ diagnosis.json and .html.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from parity.common.base.errors import ExternalModelError, ParityError, RecordError, RunError
from parity.common.base.files import naming_os_errors
from parity.common.base.terminal import Terminal
from parity.common.base.words import listed
from parity.common.data.files import hash_of
from parity.common.diagnosis import limits
from parity.common.diagnosis.isolate.first_step import first_outside
from parity.common.diagnosis.result import Diagnosis, Finding, When
from parity.common.execution import session
from parity.common.execution.worker import Workers
from parity.common.external.lint.lint import MAPPED_AWAY, Difference, said_of
from parity.common.external.mapping.models import check_mapped, doubts_of, exact_constants, map_models
from parity.common.external.mapping.propose import crossed_names
from parity.common.external.pairs.bench import (
    LoadedPair,
    Unshared,
    decides,
    losses,
    place_of,
    taken_apart,
)
from parity.common.external.pairs.beyond_samples import beyond_samples, differ_with_other_weights
from parity.common.external.pairs.checks import (
    check_ends,
    check_inputs,
    check_later_updates,
    unread_optimizer,
    unshown_limits,
)
from parity.common.external.pairs.constants import settle_built_constants
from parity.common.external.pairs.diagnose import diagnose_pair
from parity.common.external.pairs.dropout import (
    KeptStateError,
    Masks,
    check_steps,
    give_masks,
    settle_randomness,
    without_masks,
)
from parity.common.external.pairs.joined import SAMPLES, is_plain, join_samples
from parity.common.external.pairs.later_steps import bench_at, bench_before, told_of
from parity.common.external.pairs.longer_updates import longer_updates, updates_on_one_batch
from parity.common.external.pairs.norms import settle_norms
from parity.common.external.pairs.objectives import Objective
from parity.common.external.pairs.own_tables import own_tables
from parity.common.external.pairs.rates import settle_rates
from parity.common.external.pairs.request import DATA, PairRequest, SampleFile
from parity.common.external.pairs.setup import (
    bench_of,
    check_finite,
    copy_weights,
    doubtful_losses,
    open_pair,
    own_statistics,
    settle_targets,
    spec_of,
    unshared,
    without_pairs,
)
from parity.common.external.pairs.sharing import kept_state, one_side_alone
from parity.common.external.pairs.suspects import suspects_of, with_effect
from parity.common.external.pairs.table_rows import by_whole_gradients, stock_rows
from parity.common.external.pairs.updates import Updates, constrained_apart, settled_updates
from parity.common.external.process.naming import SAVED, kept
from parity.common.external.process.worker import ExternalWorker
from parity.common.parity.budget import proof_budget
from parity.common.parity.result import Result, trained
from parity.common.record import read_record
from parity.common.spec import RunConfig, TrainSpec, dump_yaml
from parity.common.spec.base import Spec
from parity.common.spec.external.mapping import Mapping, write_mapping
from parity.common.spec.external.outline import Outline
from parity.common.spec.losses import LossBase
from parity.common.spec.sources import Npz
from parity.common.state.canonical import save_state

MAPPING, WEIGHTS, SPEC, ASKED = "mapping.yaml", "weights.safetensors", "pair.yaml", "pair.json"
LATER = "later"  # the reference, trained up to a step that is looked into
# What an earlier call may have left beside a mapping.yaml that a person has edited since.
_OURS = {MAPPING, WEIGHTS, SPEC, ASKED, SAMPLES, DATA, *SAVED, "diagnosis.json", "diagnosis.html"}
_LISTED, _HIDDEN = 12, 2
_UNTRAINED = "of one step and three updates: no longer training was compared"


@dataclass(frozen=True)
class Outcome:
    """What came of a pair. result: of the training, None where none was made. diagnosis: where they differ. notes: what stands beside a parity:
    of the loss, and what samples and weights do not show.
    """

    outlines: tuple[Outline, Outline]
    result: Result | None
    diagnosis: Diagnosis | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PairOptions:
    """How a pair is run: what `parity pair` is told besides what is asked.

    placements: None for the default ones, of `replicas`. mapping: a mapping.yaml that is given.
    """

    placements: Sequence[RunConfig] | None
    replicas: int
    device: str
    mapping: Path | None
    timing_rounds: int
    overwrite: bool


@dataclass(frozen=True)
class Processes:
    """What a pair is run in, where it lives longer than one: both models in float64, and what trains."""

    keras: ExternalWorker
    torch: ExternalWorker
    workers: Workers


def compare_pair(
    asked: PairRequest, way: PairOptions, folder: Path, console: Terminal, processes: Processes | None = None
) -> Outcome:
    """Do all of it; what is found lies in `folder`.

    Args:
        asked, way: what, and how.
        folder: made, or one that `way` says to take.
        console: where progress is told.
        processes: that hold the models already; None: of its own.

    Raises:
        ParityError: a model cannot be built or called, a trained tensor has no counterpart, a run failed.
    """
    given = _claim(way, folder)
    asked = replace(
        asked, data=asked.data.kept(folder), keras=kept(asked.keras, folder), torch=kept(asked.torch, folder)
    )
    flow = _Flow(asked, way, folder, console, None if processes is None else processes.workers)
    try:
        if processes is not None:
            return flow.run(processes.keras, processes.torch, given)
        with both(asked) as (keras, torch):
            return flow.run(keras, torch, given)
    except KeyboardInterrupt:
        raise RunError(f"interrupted; what was found until then is in {folder}") from None
    finally:
        # Where nothing was found, what was put there for it would refuse the next call.
        if not (folder / ASKED).is_file():
            for name in (DATA, *SAVED):
                (folder / name).unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def both(asked: PairRequest) -> Iterator[tuple[ExternalWorker, ExternalWorker]]:
    """A process for each model, in float64."""
    with (
        ExternalWorker("tensorflow", asked.keras, seed=asked.seed) as keras,
        ExternalWorker("torch", asked.torch, seed=asked.seed) as torch,
    ):
        yield keras, torch


class _Flow:
    """One pair at work; the bench, the differences of settings and the updates are there once `run` has found them."""

    def __init__(
        self,
        asked: PairRequest,
        way: PairOptions,
        folder: Path,
        console: Terminal,
        workers: Workers | None,
    ) -> None:
        self.asked, self.way, self.folder, self.console = asked, way, folder, console
        self.workers = workers
        self.crossed = ""

    def run(self, keras: ExternalWorker, torch: ExternalWorker, given: Path | None) -> Outcome:
        """From two models to a verdict."""
        asked = self.asked
        self._say(f"building {asked.keras} and {asked.torch}")
        opened = open_pair(asked, keras, torch)
        check_inputs(opened)
        (self.folder / ASKED).write_text(json.dumps(to_json(asked), indent=1) + "\n")
        try:
            dropped = settle_randomness(asked, opened)
        except KeptStateError as error:
            found = kept_state(error, opened)
            if found is None:
                raise
            return Outcome(opened.outlines, None, found)
        check_steps(opened)
        mapping = self._mapped(opened, given)
        if dropped:
            self._tell(f"rates of dropout set to 0: {', '.join(dropped[:_LISTED])}")
        canonical = copy_weights(asked, opened, mapping)
        save_state(self.folder / WEIGHTS, canonical)
        self._tell(f"weights: {len(canonical)} tensors of {asked.weights} copied, {self.folder / WEIGHTS}")
        opened, line = settle_built_constants(asked, opened, mapping, canonical)
        if line:
            self._tell(line)
        opened = settle_norms(asked, opened, mapping)
        if opened.norms:
            self._tell(opened.norms)
        self.masks = give_masks(asked, opened, mapping)
        self._list(self.masks.lines, "")
        self.asked, self.bench, lines = settle_targets(asked, bench_of(asked, opened, mapping))
        for line in lines:
            self._tell(line)
        asked = self.asked
        check_finite(self.bench)
        self._tell(_how(asked, self.masks))
        for line in filter(None, (opened.outlines[0].rebuilt, unread_optimizer(asked, opened))):
            self._tell(line)
        for line in doubtful_losses(self.bench):
            self._tell(line)
        if self.unshared is not None:
            return Outcome(opened.outlines, None, self._without_sharing(self.unshared))
        scheduled, rates_line = None, None
        if asked.optimizers is not None:
            scheduled, rates_line = settle_rates(self.bench, asked.optimizers, asked.steps)
        self.bench.tables = tuple(own_tables(self.bench))
        self.suspects = suspects_of(self.bench.outlines, mapping)
        if self.bench.counts_penalties:
            # The losses say whether they make a difference.
            self.suspects = [each for each in self.suspects if not each.setting.endswith("_regularizer")]
        if rates_line is not None:
            self._tell(rates_line)
        constants = self.bench.rounded_constants
        alike = self._forward()
        if not alike:
            check_ends(asked, self.bench)
        self._show(alike)
        self.updates = self._updates()
        if scheduled is not None and self.updates is not None:
            self.updates = replace(self.updates, findings=(scheduled, *self.updates.findings))
        penalized = bool(self.bench.penalty) and not self.bench.decayed
        alike = alike and not penalized and not taken_apart(self.bench) and not one_side_alone(self.bench)
        alike = alike and not self.bench.tables
        alike = alike and not self.bench.frozen and not constrained_apart(self.bench, self.updates)
        alike = alike and self._loss()
        if not alike or self.bench.decayed or (self.updates is not None and self.updates.findings):
            self._part_later()
            found = self._diagnosed(None)
            if found.verdict == "parity":
                found = replace(found, premise="; ".join(filter(None, (found.premise, _UNTRAINED))))
            return Outcome(opened.outlines, None, found)
        if constants is not None:
            self._tell(constants)
        if any(info.constraint and info.trainable for info in opened.outlines[0].tensors):
            self._tell(
                "constraints of Keras's weights: torch's optimizer makes the same of three updates; training goes without"
            )
        apart = differ_with_other_weights(self.bench)
        if apart:
            seen = f"with the weights that they begin with both agree; with these in another order their outputs differ by {apart:.2g}"
            return Outcome(opened.outlines, None, self._diagnosed(When(0, seen), varies=False))
        beyond = beyond_samples(self.bench, self.suspects)
        optimizer = asked.optimizers[0] if asked.optimizers else asked.optimizer
        # Keras 2's optimizers add the rows up, as torch does.
        of_keras_2 = bool(opened.outlines[0].rebuilt) and not asked.optimizers
        rows = None if optimizer is None or of_keras_2 else stock_rows(self.bench, optimizer)
        if rows is not None and self.updates is not None:
            # It is the user's own that was asked about.
            self.updates = replace(self.updates, findings=(rows,))
            return Outcome(opened.outlines, None, self._diagnosed(None))
        by_rows = "" if rows is None else by_whole_gradients(rows)
        spec = self._spec()
        parted, short = self._longer(spec)
        if parted:
            return Outcome(opened.outlines, None, self._diagnosed(None))
        batch = _cut_batch(asked, spec)
        notes = (
            *doubtful_losses(self.bench),
            *filter(
                None,
                (
                    opened.outlines[0].rebuilt,
                    self.bench.norms,
                    beyond,
                    by_rows,
                    self.crossed,
                    short,
                    batch,
                    self._unseen(),
                    unshown_limits(self.bench),
                ),
            ),
        )
        placements = list(self.way.placements or self._placements(spec))
        session.check(spec, placements)
        stages = session.stages_of(spec, placements, self.folder, self.way.timing_rounds)
        result = self._trained(stages, spec, placements)
        if result.verdict != "divergent":
            return Outcome(opened.outlines, result, None, notes)
        # Nothing of what the search changes is left from another one.
        copy_weights(asked, opened, mapping)
        when = _when(result)
        found = self._diagnosed(when)
        at_first = None
        if not found.findings and when is not None and when.step == 0:
            # What shows of some samples alone, as a row of a table that few of them read.
            kept, self.bench = self.bench, bench_at(0, self.bench, asked, spec)
            copy_weights(asked, opened, mapping)
            at_first = told_of(0, self._diagnosed(when))
            self.bench = kept
            causes = [finding.explanation for finding in at_first.findings]
            if any(why is not None and why.confidence == "confirmed" for why in causes):
                return Outcome(opened.outlines, result, at_first)
            copy_weights(asked, opened, mapping)
            with limits.as_of_trainings():
                found = self._diagnosed(when)
        if not found.findings:
            later = None if when is None else self._diagnosed_later(when, spec, placements[0])
            if asked.precision == "float64" and not _beyond_rounding(later):
                self._tell("by itself nothing deviates: measuring how far rounding alone takes this training")
                floor = session.floor_of(spec, placements, self.folder)
                result = self._trained([floor], spec, placements)
                if result.verdict != "divergent":
                    return Outcome(opened.outlines, result, None, notes)
            found = later or (at_first if at_first is not None and at_first.findings else found)
        return Outcome(opened.outlines, result, found)

    def _say(self, text: str) -> None:
        self.console.tell(text, "dim")

    def _tell(self, text: str) -> None:
        self.console.tell(text)

    def _list(self, lines: Sequence[str], where: str) -> None:
        """Report the first of some lines, and where the others are."""
        for line in lines[:_LISTED]:
            self._tell(f"  {line}")
        if len(lines) > _LISTED:
            self._tell(f"  and {len(lines) - _LISTED} more{where}")

    def _mapped(self, opened: LoadedPair, given: Path | None) -> Mapping:
        self._say("mapping the weights" if given is None else f"verifying {given}")
        mapping = map_models(opened, given)
        path = self.folder / MAPPING
        if given is None or given.resolve() != path.resolve():
            write_mapping(path, mapping)
        ambiguous = [pair for pair in mapping.tensors if pair.is_ambiguous]
        self._tell(f"mapping: {len(mapping.tensors)} pairs of tensors, {len(ambiguous)} doubtful, {path}")
        self._list([f"{pair.label}: {pair.doubt}" for pair in ambiguous], f", in {path}")
        others = len(doubts_of(mapping)) - len(ambiguous)
        if others:
            # Why is what a diagnosis is for; a list of right lines alarms.
            self._tell(f"  {others} in layers that differ in something else, or with a note there")
        flat = [pair.label for pair in mapping.tensors if str(pair.rule).startswith("flatten")]
        if flat:
            self._tell(
                f"behind a flatten, or patches: {listed(flat, 1)}: torch's elements come in another"
                " order there, so a plain transpose of the weights is wrong; parity export copies them as the mapping says"
            )
        if turned := _turned(mapping, opened.outlines[0]):
            self._tell(
                f"transposed, since only so the models agree: {listed(turned)}: their shapes do not say it, and copied as they are they"
                " give another model; parity export copies them as the mapping says"
            )
        if crossed := crossed_names(mapping):
            self.crossed = f"another's name: {listed(crossed)}: only so the models agree, and weights that are loaded by their names make another model"
            self._tell(self.crossed)
        self.unshared = unshared(mapping, opened.outlines)
        if self.unshared is None:
            check_mapped(mapping, opened.outlines, path)
        return mapping

    def _without_sharing(self, found: Unshared) -> Diagnosis:
        """Of layers that only one side shares: whether that is all, and whatever else differs."""
        side = self.bench.torch if found.side == "keras" else self.bench.keras
        state = side.read()
        self.bench.mapping = without_pairs(self.bench.mapping, found.copies.keys())
        side.write({name: state[other] for name, other in found.copies.items()})
        self.suspects = suspects_of(self.bench.outlines, self.bench.mapping)
        self.updates = None
        self.bench.unshared = replace(found, agrees=self._forward())
        return self._diagnosed(None)

    def _unseen(self) -> str:
        """Settings that differ though all agrees; '' where none do. The optimizers' are told where these are compared."""
        # A bias of one side alone is here only where nothing but rounding moves it.
        quiet = {*MAPPED_AWAY, "use_bias"}
        found = (one for one in self.suspects if one.keras is not None and not self._is_masked(one))
        differ = [one for one in found if quiet.isdisjoint((one.changes, one.setting))]
        said = said_of(with_effect(differ, self.bench.mapping))
        return f"no difference with these samples, which others may show: {_few(said)}" if said else ""

    def _is_masked(self, one: Difference) -> bool:
        """Whether a layer of dropout without a counterpart drops what a function of the other side does: both were given the same masks."""
        return (
            one.kind == "dropout"
            and one.setting == "counterpart"
            and 0 < len(self.masks.keras) == len(self.masks.torch)
        )

    def _show(self, agree: bool) -> None:
        """What lint says, but of initial values, which are copied, and of layouts, which are mapped; `agree`: whether the outputs do."""
        every = [one for one in self.suspects if one.changes not in MAPPED_AWAY and not self._is_masked(one)]
        shown = with_effect(every, self.bench.mapping) if agree else every
        hidden = said_of([one for one in every if one not in shown])
        more = f", but for what has no effect on the outputs here: {_few(hidden)}" if hidden else ""
        self._tell(
            f"lint: {len(shown) or 'no'} {'setting differs' if len(shown) == 1 else 'settings differ'}{more}"
        )
        self._list(said_of(shown), "; 'parity lint' lists them")

    def _updates(self) -> Updates | None:
        """Of the users' own optimizers."""
        if self.asked.optimizers is None:
            return None
        self._say("comparing updates by the optimizers")
        updates = settled_updates(self.bench, self.asked.optimizers, self.suspects)
        if self.bench.decayed:
            self._tell(self.bench.decayed)
        worst = max((one.deviation for one in updates.tensors), default=0.0)
        self._tell(f"optimizers: three updates by the same gradients differ by at most {worst:.2g}")
        return updates

    def _longer(self, spec: TrainSpec) -> tuple[list[Finding], str]:
        """Where the users' own optimizers part later in the training, and what was not compared of them."""
        if self.asked.optimizers is None or self.updates is None or self.updates.rule is None:
            return [], ""
        rule = self.updates.rule
        self._say("comparing updates by the optimizers over the training")
        found, told, short = longer_updates(self.bench, self.asked.optimizers, rule, self.asked, spec)
        self._tell(told)
        self.updates = replace(self.updates, findings=(*self.updates.findings, *found))
        if self.updates.stands_in:
            told = f"none of ours makes the updates of {self.asked.optimizers[0]}: these are curves of SGD, and your optimizers were compared by its gradients"
            short = f"{told}; {short}" if short else told
        return found, short

    def _part_later(self) -> None:
        """Where the users' own optimizers part later, of a pair that differs in something else."""
        # A weight decay that makes up for a penalty parts from an optimizer without one, whose loss has it.
        updates = self.updates
        if self.asked.optimizers is None or updates is None or updates.rule is None:
            return
        if updates.findings or self.bench.decayed:
            return
        found = updates_on_one_batch(self.bench, self.asked.optimizers, updates.rule, self.asked.steps)
        self.updates = replace(updates, findings=tuple(found))

    def _forward(self) -> bool:
        """Whether the outputs of both agree, in inference and in training; which layers do is told."""
        bench, agree = self.bench, True
        for training in (False, True):
            with exact_constants(bench):
                seen = bench.passes(bench.reference(training), bench.torch_pass(training), training)
            outputs = [one for one in seen if decides(one)]
            if not outputs:
                mode = "training" if training else "inference"
                self._tell(f"forward in {mode}: no outputs to compare; the loss and its gradients decide")
                continue
            rows = [one for one in seen if not decides(one)]
            off = [one for one in rows if not one.agrees]
            worst = max(one.deviation for one in outputs)
            said = f"forward in {'training' if training else 'inference'}: the outputs"
            if all(one.agrees for one in outputs):
                more = f"; {len(off)} of {len(rows)} layers differ, which decides nothing" if off else ""
                self._tell(f"{said} agree, at most {worst:.2g} apart{more}")
                continue
            agree = False
            first = place_of((off or outputs)[0])
            self._tell(
                f"{said} differ by {worst:.2g}; of {len(rows)} layers the first that differs is {first}"
            )
        return agree

    def _loss(self) -> bool:
        """Whether the loss of both agrees, with what it sends back to the outputs."""
        with exact_constants(self.bench):
            found = losses(self.bench, self.bench.reference(True), self.bench.torch_pass(True))
        return all(one.agrees for one in found)

    def _spec(self) -> TrainSpec:
        optimizer = self.asked.optimizer
        if optimizer is None:
            assert self.asked.optimizers is not None
            check_later_updates(self.bench, self.asked.optimizers)
            assert self.updates is not None and self.updates.rule is not None
            optimizer = self.updates.rule
            self._tell(
                f"the optimizers make the same updates, which none of ours makes: trained by SGD, learning_rate={optimizer.learning_rate:.3g}, by"
                " which the weights move as far"
                if self.updates.stands_in
                else f"the optimizers make the same updates; trained with ours of the same settings: {type(optimizer).__name__}"
            )
        if isinstance(optimizer.decay_mask, tuple):
            # A training calls the tensors of an imported model so.
            mask = tuple(f"model/{name}" for name in optimizer.decay_mask)
            optimizer = optimizer.model_copy(update={"decay_mask": mask})
        joined = None
        if not is_plain(self.asked, self.bench):
            path = self.folder / SAMPLES
            # In each part of a batch other elements would be dropped.
            with without_masks(self.bench, self.masks, self.asked.seed):
                loss, names = join_samples(self.asked, self.bench, path)
            joined = loss, Npz(path=str(path.resolve()), sha256=hash_of(path), inputs=names, targets=None)
            if loss.reduction == "batch":
                self._tell(
                    "the loss of a batch is not made of those of its parts, by samples, weights or as a sum: so that"
                    " the number of replicas is a part of the mathematics"
                )
        spec = spec_of(self.asked, self.bench, self.folder / WEIGHTS, optimizer, self.masks, joined)
        (self.folder / SPEC).write_text(dump_yaml(spec), encoding="utf-8")
        data = spec.data
        self._tell(f"data: {data.train_samples} samples to train, the last {data.eval_samples} to evaluate")
        if cut := _cut_batch(self.asked, spec):
            self._tell(cut)
        self._tell(f"spec: {self.folder / SPEC} (again: parity run --spec {self.folder / SPEC})")
        return spec

    def _trained(
        self, stages: Iterable[session.Stage], spec: TrainSpec, placements: list[RunConfig]
    ) -> Result:
        """The verdict on all that was trained until then."""
        return trained(
            stages, spec, placements, self.folder, self.console, True, self.workers, measures=False
        )

    def _placements(self, spec: TrainSpec) -> list[RunConfig]:
        replicas = self.way.replicas
        texts = [f"tensorflow:mirrored:{replicas}", f"torch:ddp:{replicas}"]
        own = own_statistics(self.asked, self.bench) if replicas > 1 else []
        if own:
            self._tell(
                f"a pass in training writes {own[0]}{f' and {len(own) - 1} more' if len(own) > 1 else ''} by its samples, which"
                " replicas put together in no way that the models say: trained on one replica only"
            )
        if replicas == 1 or own:
            texts = ["tensorflow:mirrored:1", "torch:single:1"]
        elif spec.per_replica_statistics:
            self._tell(
                f"batch norm, another computation over the samples of a batch, or a loss of the batch as a whole, is of each replica's"
                f" samples, so that {replicas} replicas compute something else than one: both train on {replicas} (--replicas 1: both on one)"
            )
        else:
            texts = ["tensorflow:mirrored:1", "torch:single:1", *texts]
        return [RunConfig.from_text(text, device=self.way.device, pin=True) for text in texts]

    def _diagnosed(self, when: When | None, varies: bool = True) -> Diagnosis:
        self._say("diagnosing, layer by layer in float64")
        return diagnose_pair(self.bench, self.suspects, self.updates, when, self.console, varies)

    def _diagnosed_later(self, when: When, spec: TrainSpec, reference: RunConfig) -> Diagnosis | None:
        """Of the models as the reference has them where they part, or a step before; None where nothing deviates there."""
        last = spec.steps - 1 if when.step is None else when.step
        for step in range(last, max(0, last - 2), -1):
            self._say(f"diagnosing before step {step}, which the reference is trained up to")
            job = session.Job(
                spec, reference.having(stop_at_step=step, digests=False), self.folder / LATER / f"step_{step}"
            )
            try:
                stage = "trained again", [job]
                session.work([stage], self.folder, self.console, keep=True, workers=self.workers)
                state = read_record(job.folder).state("final")
                self.bench = bench_before(step, self.bench, self.asked, spec, state)
                found = self._diagnosed(when, varies=False)
            except ParityError as error:
                # The verdict stands without it.
                self._tell(f"step {step} was not looked into: {error}")
                return None
            if found.findings:
                return told_of(step, found)
        return None


def _few(texts: Sequence[str]) -> str:
    """The first of some texts: 'a; b and others'."""
    return f"{'; '.join(texts[:_HIDDEN])}{' and others' if len(texts) > _HIDDEN else ''}"


def _cut_batch(asked: PairRequest, spec: TrainSpec) -> str:
    """That a batch is smaller than what was asked, '' where it is not."""
    if spec.global_batch_size == asked.global_batch:
        return ""
    return f"a global batch of {spec.global_batch_size} samples and not of {asked.global_batch}: there are no more to train on"


def to_json(asked: PairRequest) -> dict[str, Any]:
    """What was asked, as plain data, so that a diagnosis can be made again."""
    fields = {name: _plain(value) for name, value in vars(asked).items()}
    return {"format": "parity-pair", "schema_version": 1, **fields}


def _how(asked: PairRequest, masks: Masks) -> str:
    """'loss: mse; optimizer: sgd, learning_rate=0.01; dropout: the same masks on both sides', defaults too."""
    losses = [
        (
            each.loss.to_dict()["kind"]
            if isinstance(each.loss, LossBase)
            else " and ".join(map(str, each.loss))
        )
        + (f" of output {each.output}" if each.output else "")
        for each in asked.objectives
    ]
    parts = [f"loss: {', '.join(losses)}"]
    if asked.optimizer is not None:
        parts.append(
            f"optimizer: {asked.optimizer.to_dict()['kind']}, learning_rate={asked.optimizer.learning_rate:g}"
        )
    elif asked.optimizers is not None:
        parts.append(f"optimizers: {' and '.join(map(str, asked.optimizers))}")
    if masks.keras or masks.torch:
        parts.append("dropout: the same masks on both sides")
    return "; ".join(parts)


def _plain(value: Any) -> Any:
    """JSON data of a field of a PairRequest."""
    if isinstance(value, SampleFile):
        return {**vars(value), "path": str(value.path.resolve())}
    if isinstance(value, Objective):
        return {name: _plain(each) for name, each in vars(value).items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.to_dict() if isinstance(value, Spec) else value


def _claim(way: PairOptions, folder: Path) -> Path | None:
    """Make room in OUT; the mapping.yaml to take, None to propose one."""
    given = way.mapping
    if given is not None and not given.is_file():
        raise ExternalModelError(f"--mapping {given}: there is no such file")
    if not folder.is_dir():
        with naming_os_errors(RecordError, f"--out {folder}: cannot be used as an output folder"):
            folder.mkdir(parents=True)
        return given
    found = {path.name for path in folder.iterdir()}
    if found and ASKED not in found and MAPPING not in found:
        raise RecordError(f"{folder}: already holds {min(found)}, and no earlier pair; choose another --out")
    kept = given is not None and given.resolve() == (folder / MAPPING).resolve()
    if not way.overwrite and (not found <= _OURS or (MAPPING in found and not kept)):
        how = f"--mapping {folder / MAPPING} takes the mapping there, --overwrite (in Python overwrite=True) removes all"
        raise RecordError(f"{folder}: holds an earlier pair; {how}, or choose another --out")
    stranger = session.foreign(found - _OURS - {LATER})
    if stranger is not None:
        raise RecordError(
            f"{folder}: holds {stranger!a}, which is of no pair; move it, or choose another --out"
        )
    for path in folder.iterdir():
        if path.name == MAPPING and kept:
            continue
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return given


def _beyond_rounding(found: Diagnosis | None) -> bool:
    """Whether one pass of both models, of equal weights and samples, differs by more than any rounding makes."""
    return found is not None and any(one.deviation > limits.AMPLIFIED_BY_A_PASS for one in found.findings)


def _when(result: Result) -> When | None:
    """When the first candidate that is divergent left the reference."""
    reference, *candidates = result.records
    for candidate, comparison in zip(candidates, result.comparisons, strict=True):
        if comparison.verdict == "divergent":
            budget = proof_budget(reference) if reference.spec.precision == "float64" else None
            return first_outside(reference, candidate, budget)
    return None


def _turned(mapping: Mapping, keras: Outline) -> list[str]:
    """Square parameters of no stock layer that torch has transposed, as was found by trying."""
    kinds = {layer.path: layer.kind for layer in keras.layers}
    raw = {info.name for info in keras.tensors if not kinds.get(info.layer)}
    probed = (pair for pair in mapping.tensors if (pair.rule, pair.source) == ("transpose", "probed"))
    return [pair.label for pair in probed if raw.issuperset(pair.keras)]
