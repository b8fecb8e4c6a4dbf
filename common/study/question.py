"""What a study asks: the arms, the seeds and looks, the figures and margins. It is OUT/study.json, written before any seed.

OUT/study.json               the question
OUT/seeds/0007/NN_label/     the record of one arm's run of a seed, without states: some 10 KB
OUT/logs/                    what the frameworks' processes said
OUT/report.html, .json       what was found
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, Strict, model_validator

from parity.common.base.errors import RecordError, SpecError
from parity.common.execution.checks import check_run
from parity.common.record.files import parse, write_json
from parity.common.spec import Instrumentation, Placement, RunConfig, RunOptions, TrainSpec
from parity.common.spec.base import NonNegativeInt, PositiveInt, Spec
from parity.common.spec.model import walk
from parity.common.spec.placement import naming_placement, parse_text
from parity.common.spec.precision import LossScale
from parity.common.spec.stock import StockMode
from parity.common.study.equivalence import Margin
from parity.common.study.metrics import METRICS

STUDY = "study.json"
DEFAULT_MARGIN = Margin(kind="sd", value=0.5)
FEWEST_SEEDS = 4
# Of the seeds, where there are enough, when it is looked whether the study may end.
LOOKS = (0.4, 0.7, 1.0)


class Arm(Spec):
    """One way to train the spec: a placement, and what its framework does in its own way.

    context: "module:function" of a context manager that its runs are made inside.
    """

    placement: Placement
    stock: tuple[StockMode, ...] = ()
    context: str | None = None

    @classmethod
    def of(cls, text: str, **usual: Any) -> Arm:
        """Return the arm of 'torch:ddp:2,stock=mixed_bfloat16+dropout'; `usual`: further fields of the placement.

        Raises:
            SpecError: with one line, for an unknown field too.
        """
        with naming_placement(text):
            head, fields = parse_text(text)
            stock, context = fields.pop("stock", None), fields.pop("context", None)
            modes = [] if stock is None else str(stock).split("+")
            placement = Placement.with_fields({**usual, **head}, fields)
            return cls.parse({"placement": placement, "stock": modes, "context": context})

    @property
    def label(self) -> str:
        """Short name for tables."""
        stock = f" stock={'+'.join(self.stock)}" if self.stock else ""
        inside = f" context={self.context.rpartition(':')[2]}" if self.context else ""
        return f"{self.placement.label}{stock}{inside}"

    @property
    def config(self) -> RunConfig:
        """How its runs are made: they record the curve and the evaluation."""
        return RunConfig(
            placement=self.placement,
            run_options=RunOptions(recording="curve"),
            instrumentation=Instrumentation(context=self.context),
        )

    def spec_of(self, spec: TrainSpec, seed: int) -> TrainSpec:
        """Return what it trains of a seed; raises SpecError where the modes do not go with the spec."""
        made = TrainSpec.parse({**spec.to_dict(), "seed": seed, "stock": self.stock})
        if made.stock_precision == "mixed_float16" and made.loss_scale is None:
            scale = LossScale().resolve("keras" if self.placement.framework == "tensorflow" else "torch")
            # The frameworks scale a mean over the replica's batch, we a sum.
            summed = made.loss.counted(made.model.output_shape()) or 1
            local = max(1, made.global_batch_size * summed // self.placement.replicas)
            initial = (scale.initial or 1.0) / 2.0 ** round(math.log2(local))
            made = made.model_copy(update={"loss_scale": scale.model_copy(update={"initial": initial})})
        return made.resolved()


class Figure(Spec):
    """A figure that is compared, and the margin within which it counts as equal."""

    name: Literal[tuple(METRICS)]  # type: ignore[valid-type]
    margin: Margin


Looks = Annotated[tuple[PositiveInt, ...], Field(min_length=1)]


class StudySpec(Spec):
    """The question of a study.

    spec: what is trained; None of recorded scripts. arms: the first is the reference. records: instead of arms, a folder of
    records for each. stages: numbers of seeds at which the study is looked at; a stage after the first was added once the
    results of those before it were known. pairing: what makes two runs a pair. failed: what a run that ended in an error
    counts as. alpha: of a wrong "equivalent" and of a wrong "different".
    """

    format: Literal["parity-study"] = "parity-study"
    schema_version: Literal[1] = 1
    spec: TrainSpec | None = None
    arms: tuple[Arm, ...] = ()
    records: tuple[str, ...] = ()
    figures: Annotated[tuple[Figure, ...], Field(min_length=1)]
    target_loss: float | None = None
    stages: Annotated[tuple[Looks, ...], Field(min_length=1)]
    first_seed: NonNegativeInt = 0
    pairing: Literal["seed", "order", "none"] = "seed"
    failed: Literal["error", "worst"] = "error"
    alpha: Annotated[float, Strict(), Field(gt=0, lt=0.5)] = 0.05

    @model_validator(mode="after")
    def _possible(self) -> StudySpec:
        labels = self.labels
        if len(labels) < 2:
            raise ValueError("a study needs two arms or more; give --placement, or --records, again")
        doubled = [label for label in labels if labels.count(label) > 1]
        if doubled:
            raise ValueError(f"{doubled[0]} is given twice")
        looks = [look for stage in self.stages for look in stage]
        if looks != sorted(set(looks)) or looks[0] < FEWEST_SEEDS:
            raise ValueError(
                f"looks {', '.join(map(str, looks))}: expected growing numbers of seeds, the first at least {FEWEST_SEEDS}"
            )
        names = [figure.name for figure in self.figures]
        if len(set(names)) < len(names):
            raise ValueError("a figure is given twice")
        if self.target_loss is None and any(name.endswith("to_target") for name in names):
            raise ValueError("steps and seconds to a target need --target-loss")
        return self

    @property
    def labels(self) -> list[str]:
        """Of the arms, or the names of the folders of records."""
        return [arm.label for arm in self.arms] or [Path(folder).name for folder in self.records]

    @property
    def paired(self) -> bool:
        """Whether two runs of a seed belong together."""
        return self.pairing != "none"

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many seeds it is looked whether the study may end, over all stages."""
        return tuple(look for stage in self.stages for look in stage)

    def check(self) -> None:
        """Raise SpecError where an arm cannot train the spec."""
        for arm in self.arms:
            assert self.spec is not None
            check_run(arm.spec_of(self.spec, self.first_seed), *arm.config.parts)

    def folder_of(self, out: Path, seed: int, arm: int) -> Path:
        """The record of one arm's run of a seed."""
        label = self.arms[arm].label.replace(" ", "_").replace("/", "_")
        return out / "seeds" / f"{seed:04d}" / f"{arm:02d}_{label}"

    def shared(self) -> list[str]:
        """What the runs of a seed have in common, in words."""
        if self.spec is None:
            return []
        modes = {mode for arm in self.arms for mode in arm.stock}
        data, model = self.spec.data, self.spec.model
        drops = any(
            getattr(node.spec, rate, 0)
            for node in walk(model.tree())
            for rate in ("rate", "dropout", "drop_rate", "input_dropout", "recurrent_dropout")
        )
        facts = {
            "initial weights": True,
            "sample order": data.shuffle and "shuffling" not in modes,
            "augmentation": bool(data.augment),
            "dropout masks": drops and "dropout" not in modes,
        }
        return [name for name, is_shared in facts.items() if is_shared]


def looks_of(seeds: int, before: int = 0) -> tuple[int, ...]:
    """Return the usual looks of a study of so many seeds, of which `before` have been looked at."""
    found = {round(before + share * (seeds - before)) for share in LOOKS}
    return (*sorted(look for look in found if max(before, FEWEST_SEEDS * 2 - 1) < look < seeds), seeds)


def with_more_seeds(question: StudySpec, seeds: int, looked_at: int) -> StudySpec:
    """Return the question with more seeds; those after `looked_at`, whose results were known, are a stage of their own.

    Raises:
        SpecError: it has as many already.
    """
    last = question.looks[-1]
    if seeds <= last:
        raise SpecError(f"--seeds {seeds}: the study has {last} already; give more, or leave --seeds out")
    stages = question.stages if looked_at else ()
    return StudySpec.parse(
        {**question.to_dict(), "stages": [*stages, looks_of(seeds, last if looked_at else 0)]}
    )


def read_question(folder: Path) -> StudySpec:
    """Return the question of a study's folder; raises RecordError where there is none."""
    path = folder / STUDY
    if not path.is_file():
        raise RecordError(f"{folder}: holds no study (no {STUDY}); 'parity study' writes one")
    return parse(StudySpec, path)


def write_question(question: StudySpec, folder: Path) -> None:
    """Write the question of a study into its folder."""
    write_json(folder / STUDY, question.to_dict())
