"""parity scale and parity compare --baseline: what they ask for, run, read back and say."""

from __future__ import annotations

import importlib.util
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import RecordError, RunError, SpecError
from parity.common.base.terminal import Terminal
from parity.common.execution import session
from parity.common.record import read_record
from parity.common.report.files import scale_to_json
from parity.common.report.terminal import print_scale
from parity.common.scaling import experiment
from parity.common.scaling.experiment import (
    Question,
    configurations,
    crowded,
    placements_of,
    read_scale,
    run_scale,
)
from parity.common.spec import Instrumentation, Placement, RunConfig, RunOptions, TrainSpec
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.records import Run, recipe_spec, tiny_spec
from parity_tests.helpers.scaled import full_scaling, with_text

HOSTILE = "[red]<b>&amp;</script><img src=x onerror=alert(1)>"
STEPS = 40


@pytest.fixture
def parity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    monkeypatch.chdir(tmp_path)
    # What is tested here ends before a framework is needed.
    monkeypatch.setattr(experiment, "require", lambda framework: None)
    return Cli(tmp_path, capsys)


def question(
    mode: str = "strong", rounds: int = 3, replicas: tuple[int, ...] = (1, 2), **more: Any
) -> Question:
    spec = tiny_spec(f"steps={STEPS}", "data.train_samples=64")
    placements = placements_of(["tensorflow:mirrored", "torch:ddp"], replicas, pin=True, stop_at_step=STEPS)
    data = {"spec": spec, "placements": tuple(placements), "mode": mode, "rounds": rounds, **more}
    return Question(**data)


def step_seconds(placement: Placement, spec: TrainSpec) -> float:
    """A step of a made-up machine: 10 ms a 16 samples on one replica, 1 ms of messages where there are more."""
    slower = 1.25 if placement.framework == "tensorflow" else 1.0
    alone = 0.010 * slower * spec.global_batch_size / 16
    return alone / placement.replicas + (0.001 if placement.replicas > 1 else 0.0)


def change(folder: Path, name: str, to: Callable[[np.ndarray], np.ndarray]) -> None:
    """Replace a column of a record."""
    names = read_record(folder).header.columns
    table = np.fromfile(folder / "steps.f64", "<f8").reshape(-1, len(names))
    table[:, names.index(name)] = to(table[:, names.index(name)])
    table.tofile(folder / "steps.f64")


def write_phases(placement: Placement, repeats: int, folder: Path, step: float) -> None:
    several = placement.replicas > 1
    messages = [["all_reduce", 4_000]] if several else []
    sent = 0.001 if several else 0.0
    compute = step - sent
    parts = {"data": 0.05, "forward": 0.3, "backward": 0.6, "optimizer": 0.05}
    seconds = {name: [share * compute] * repeats for name, share in parts.items()}
    for name, value in {"communication": sent, "exposed_communication": sent, "step": step}.items():
        seconds[name] = [value] * repeats
    (folder / "phases").mkdir()
    for rank in range(placement.processes):
        (folder / "phases" / f"rank_{rank}.json").write_text(
            json.dumps({"seconds": seconds, "messages": messages})
        )


class MadeUp:
    """A worker of the made-up machine, in place of a framework's process."""

    log_matters = False

    def __init__(self, noise: float = 0.0, before: Callable[[int], object] = lambda number: None) -> None:
        self.order: list[str] = []
        self._made: dict[tuple[str, RunConfig], Path] = {}
        self._noise = noise
        self._before = before

    def __enter__(self) -> MadeUp:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def of(self, placement: Placement) -> MadeUp:
        return self

    def train(
        self,
        spec: TrainSpec,
        placement: Placement,
        folder: Path,
        run_options: RunOptions,
        instrumentation: Instrumentation,
    ) -> None:
        self._before(len(self.order))
        self.order.append(folder.name)
        random = np.random.default_rng(len(self.order))
        mean = step_seconds(placement, spec)
        config = RunConfig(placement=placement, run_options=run_options, instrumentation=instrumentation)
        earlier = self._made.setdefault((spec.content_hash(), config), folder)
        if earlier != folder:
            shutil.copytree(earlier, folder)
        else:
            Run.of(spec, config).write(folder)
            if run_options.phase_repeats:
                write_phases(placement, run_options.phase_repeats, folder, mean)
        mean *= np.exp(self._noise * random.standard_normal())
        change(folder, "seconds", lambda column: mean * (1 + 0.005 * random.standard_normal(len(column))))


def run_made_up(monkeypatch: pytest.MonkeyPatch, asked: Question, folder: Path, worker: MadeUp) -> None:
    monkeypatch.setattr(experiment, "require", lambda framework: None)
    monkeypatch.setattr(session, "Workers", lambda logs: worker)
    run_scale(asked, folder, Terminal(quiet=True))


# What is run.


def test_every_strategy_is_run_at_every_count_and_each_framework_once_alone() -> None:
    found = placements_of(["torch:ddp", "torch:fsdp2,wrap=blocks", "tf:mirrored"], [1, 2, 4])
    assert [config.label for config in found] == [
        "torch single x1",
        "torch ddp x2",
        "torch ddp x4",
        "torch fsdp2 x2 wrap=blocks",
        "torch fsdp2 x4 wrap=blocks",
        "tensorflow single x1",
        "tensorflow mirrored x2",
        "tensorflow mirrored x4",
    ]


def test_the_baseline_keeps_what_is_not_the_strategys() -> None:
    (alone, _) = placements_of(["torch:ddp,static_graph=true,compile=true,accumulation=2"], [1, 2])
    assert alone.label == "torch single x1 compile=true accumulation=2"


@pytest.mark.parametrize(
    ("mode", "batches"),
    [("strong", [16, 16, 16]), ("weak", [16, 32, 64]), ("both", [16, 16, 32, 16, 64])],
)
def test_weak_scaling_enlarges_the_global_batch_of_the_spec(mode: str, batches: list[int]) -> None:
    asked = question(mode, replicas=(1, 2, 4))
    jobs = configurations(asked, Path("x"))
    assert [job.spec.global_batch_size for job in jobs] == batches * 2
    for job in jobs:
        same = job.spec.global_batch_size == asked.spec.global_batch_size
        assert (job.spec.content_hash() == asked.spec.content_hash()) == same, "another batch is another spec"
    assert len({job.folder for job in jobs}) == len(jobs)


def test_weak_scaling_needs_the_samples() -> None:
    with pytest.raises(SpecError, match=r"global batch of 128, but data\.train_samples is 64"):
        configurations(question("weak", replicas=(1, 8)), Path("x"))


def test_rounds_have_every_run_once_in_changing_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, worker = question("both", rounds=4), MadeUp()
    run_made_up(monkeypatch, asked, tmp_path / "s", worker)
    names = [job.folder.name for job in configurations(asked, Path("x"))]
    rounds = [worker.order[start : start + 6] for start in range(0, 24, 6)]
    assert len(worker.order) == 24 and all(sorted(order) == sorted(names) for order in rounds)
    assert len({tuple(order) for order in rounds}) > 1
    options = [read_record(tmp_path / "s" / f"round_{n}" / names[0]).run_options for n in range(4)]
    assert {each.phase_repeats for each in options} == {session.PHASE_REPEATS}


def test_phases_are_timed_where_they_can_be() -> None:
    spec = tiny_spec()
    can, cannot = RunConfig.from_text("torch:ddp:2"), RunConfig.from_text("torch:deepspeed:2")
    jobs = [session.Job(spec, config, Path(config.placement.strategy)) for config in (can, cannot)]
    repeats = [
        {job.config.placement.strategy: job.config.run_options.phase_repeats for job in stage}
        for _, stage in session.rounds(jobs, Path("x"), 2, phase_rounds=1)
    ]
    assert repeats == [{"ddp": session.PHASE_REPEATS, "deepspeed": 0}, {"ddp": 0, "deepspeed": 0}]


def test_more_replicas_than_cores_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1})
    placements = [config.placement for config in placements_of(["torch:ddp"], [1, 2, 4], device="cpu")]
    assert crowded(placements) == ["torch ddp x4: 4 replicas on 2 cores"]
    assert crowded([p.model_copy(update={"device": "gpu"}) for p in placements]) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--replicas", "2,4"], ("2,4", "expected 1")),
        (["--replicas", "1"], ("at least one more",)),
        (["--replicas", "1,2,2"], ("each once",)),
        (["--replicas", "1,two"], ("1,two", "1,2,4")),
        (["--replicas", ""], ("1,2,4",)),
        (["--placement", "torch"], ("'torch'", "torch:ddp")),
        (["--placement", "torch:ddp:2"], ("--replicas gives the numbers",)),
        (["--placement", "torch:single"], ("one replica", "ddp")),
        (["--placement", "torch:pmap"], ("strategy", "ddp")),
        (["--placement", "torch:ddp", "--placement", "pytorch:ddp"], ("torch ddp x2", "twice")),
        (["--placement", "torch:ddp,wings=2"], ("wings",)),
        (["--rounds", "0"], ("--rounds",)),
        (["--steps", "0"], ("--steps",)),
        (["--steps", "100000"], ("--set steps=100000",)),
        (["--project", "0"], ("--project",)),
        (["--target-accuracy", "1.5"], ("target_accuracy", "1.5")),
        (["--target-loss", "nan"], ("target_loss", "nan")),
        (["--link", "string"], ("string", "alpha")),
        (["--mode", "weak", "--replicas", "1,64"], ("train_samples", "--mode strong")),
        (["--recipe", "resnet"], ("resnet",)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_flags_are_one_line(parity: Cli, arguments: list[str], words: tuple[str, ...]) -> None:
    recipe = [] if "--recipe" in arguments else ["--recipe", "digits_mlp"]
    error = parity.refused("scale", *recipe, *arguments)
    assert all(word in error for word in words), error


def test_a_session_never_goes_into_a_folder_that_holds_something(parity: Cli) -> None:
    (parity.folder / "thesis").mkdir()
    (parity.folder / "thesis" / "thesis.tex").write_text("x")
    assert "already holds" in parity.refused("scale", "--recipe", "digits_mlp", "--out", "thesis")
    assert "alone" in parity.refused("scale", "--recipe", "digits_mlp", "--out", "thesis", "--overwrite")


# What is read back and said.


def test_a_finished_session_is_reported(tmp_path: Path, parity: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    run_made_up(monkeypatch, question("both", rounds=5, target_loss=0.4), tmp_path / "s", MadeUp())
    code, out, err = parity("report", "s")
    assert (code, err) == (0, "")
    for words in (
        "✓ conclusive  tiny, strong and weak scaling, 5 of 5 rounds, global batch 16",
        "torch ddp x2, weak",
        "1.67x",  # 10 ms / (5 + 1 ms)
        "1.8x",  # what is usual
        "report: s/report.html",
    ):
        assert words in out
    data = json.loads((tmp_path / "s" / "report.json").read_text(), parse_constant=pytest.fail)
    assert (data["verdict"], data["exit_code"]) == ("conclusive", 0)
    speedups = {(r["name"], r["mode"]): r["median"] for r in data["scaling"]["speedups"]}
    assert speedups == pytest.approx(
        {
            ("tensorflow mirrored x2", "strong"): 12.5 / 7.25,
            ("tensorflow mirrored x2", "weak"): 2 * 12.5 / 13.5,
            ("torch ddp x2", "strong"): 10 / 6,
            ("torch ddp x2", "weak"): 2 * 10 / 11,
        },
        rel=0.01,
    )
    assert Question.parse(data["question"]) == read_scale(tmp_path / "s").question


def test_a_noisy_session_says_so(tmp_path: Path, parity: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    run_made_up(monkeypatch, question(), tmp_path / "s", MadeUp(noise=0.2))
    code, out, _ = parity("report", "s")
    assert code == 3 and out.startswith("? too noisy to conclude") and "rounds" in out
    assert json.loads((tmp_path / "s" / "report.json").read_text())["exit_code"] == 3


def interrupt(at: int, error: BaseException) -> Callable[[int], None]:
    def before(number: int) -> None:
        if number == at:
            raise error

    return before


def test_an_interruption_leaves_the_finished_rounds(
    tmp_path: Path, parity: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = MadeUp(before=interrupt(4 * 3 + 2, KeyboardInterrupt()))
    with pytest.raises(RunError, match="interrupted; finished runs are in"):
        run_made_up(monkeypatch, question(rounds=5), tmp_path / "s", worker)
    assert len(list((tmp_path / "s" / "round_3").iterdir())) == 2
    code, out, _ = parity("report", "s")
    assert code == 0 and "3 of 5 rounds" in out


def test_a_session_without_a_whole_round_has_nothing_to_say(
    tmp_path: Path, parity: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = MadeUp(before=interrupt(3, KeyboardInterrupt()))
    with pytest.raises(RunError):
        run_made_up(monkeypatch, question(), tmp_path / "s", worker)
    assert "no round was finished" in parity.refused("report", "s")


def test_a_failed_first_run_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for at, left in ((0, False), (1, True)):
        worker = MadeUp(before=interrupt(at, RunError("torch ddp x2: out of memory")))
        with pytest.raises(RunError, match="out of memory"):
            run_made_up(monkeypatch, question(), tmp_path / f"s{at}", worker)
        assert (tmp_path / f"s{at}").exists() == left


@pytest.mark.parametrize(
    ("leaves", "left"),
    [
        (lambda folder, worker: None, False),
        # Its path in the message says nothing about what lies there.
        (lambda folder, worker: (folder / "empty.log").write_text(""), False),
        (lambda folder, worker: (folder / "rank_0.log").write_text("what the rank said"), True),
        (lambda folder, worker: (folder / "rank_0.log").write_text(""), False),
        (lambda folder, worker: setattr(worker, "log_matters", True), True),
    ],
)
def test_what_is_left_depends_on_what_is_there_and_not_on_the_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: Callable[[Path, MadeUp], object], left: bool
) -> None:
    def fail(number: int) -> None:
        leaves(tmp_path / "s", worker)
        raise RunError(f"{tmp_path / 's'} is a fine folder, and there is no memory")

    worker = MadeUp(before=fail)
    with pytest.raises(RunError, match="no memory"):
        run_made_up(monkeypatch, question(), tmp_path / "s", worker)
    assert (tmp_path / "s").exists() == left


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "scale.json").write_text("{"), ("scale.json", "cut short")),
        (lambda folder: (folder / "scale.json").write_text("{}"), ("scale.json", "required")),
        (
            lambda folder: next(folder.glob("round_0/*/steps.f64")).write_text(""),
            ("truncated",),
        ),
    ],
)
def test_a_damaged_session_is_one_line(
    tmp_path: Path,
    parity: Cli,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], object],
    words: tuple[str, ...],
) -> None:
    run_made_up(monkeypatch, question(rounds=1), tmp_path / "s", MadeUp())
    spoil(tmp_path / "s")
    error = parity.refused("report", "s")
    assert all(word in error for word in words), error


def test_runs_that_were_not_timed_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = question(rounds=1)
    # One call takes more steps than there are.
    calls = [
        {"steps_per_call": 2 * STEPS} if c.placement.framework == "tensorflow" else {}
        for c in asked.placements
    ]
    placements = tuple(c.having(**more) for c, more in zip(asked.placements, calls, strict=True))
    asked = asked.model_copy(update={"placements": placements})
    run_made_up(monkeypatch, asked, tmp_path / "s", MadeUp())
    with pytest.raises(RecordError, match="more --steps"):
        read_scale(tmp_path / "s")


def test_a_session_is_removed_only_where_it_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_made_up(monkeypatch, question(rounds=1), tmp_path / "s", MadeUp())
    session.remove(tmp_path / "s")
    assert not (tmp_path / "s").exists()


# Versions.


def spoiled(name: str, factor: float) -> Callable[[Path], object]:
    """A column of all runs of torch ddp becomes larger."""

    def spoil(folder: Path) -> None:
        for record in folder.glob("round_*/*torch_ddp*"):
            change(record, name, lambda column: column * factor)

    return spoil


slower, other_loss = spoiled("seconds", 1.2), spoiled("loss_sum", 1.01)


@pytest.mark.parametrize(
    ("spoil", "noise", "code", "words"),
    [
        (lambda folder: None, 0.0, 0, ("✓ no regression", "bit-equal", "no change seen")),
        (slower, 0.0, 1, ("✗ regression", "torch ddp x2: speed: 16", "slower")),
        (other_loss, 0.0, 1, ("✗ regression", "torch ddp x2: numbers:", "loss curve")),
        (lambda folder: None, 0.3, 3, ("? undecided", "too noisy to conclude")),
    ],
    ids=["equal", "slower", "other numbers", "noisy"],
)
def test_baseline_finds_what_became_worse(
    tmp_path: Path,
    parity: Cli,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Path], object],
    noise: float,
    code: int,
    words: tuple[str, ...],
) -> None:
    for name in ("old", "new"):
        run_made_up(monkeypatch, question(rounds=4), tmp_path / name, MadeUp(noise))
    spoil(tmp_path / "new")
    found, out, err = parity("compare", "--baseline", "old", "new", "--out", "report")
    assert (found, err) == (code, "")
    assert all(word in out for word in words), out
    data = json.loads((tmp_path / "report" / "baseline.json").read_text(), parse_constant=pytest.fail)
    assert data["exit_code"] == code


def test_baseline_of_several_says_the_worst(
    tmp_path: Path, parity: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("old", "fine", "slow"):
        run_made_up(monkeypatch, question(rounds=3), tmp_path / name, MadeUp())
    slower(tmp_path / "slow")
    assert parity("compare", "--baseline", "old", "fine")[0] == 0
    assert parity("compare", "--baseline", "old", "fine", "slow")[0] == 1
    assert parity("compare", "--baseline", "old", "slow", "--threshold", "0.5")[0] == 0


def test_baseline_refuses_in_one_line(tmp_path: Path, parity: Cli) -> None:
    Run.of(tiny_spec(), Placement(framework="torch", strategy="single")).write(tmp_path / "a")
    (tmp_path / "empty").mkdir()
    assert "itself" in parity.refused("compare", "--baseline", "a", "a")
    assert "neither" in parity.refused("compare", "--baseline", "a", "empty")
    assert "--floor" in parity.refused("compare", "--baseline", "a", "empty", "--floor", "a")
    assert "--threshold" in parity.refused("compare", "--baseline", "a", "empty", "--threshold", "2")


# The terminal and the page.


@pytest.mark.parametrize("text", ["[red]", "[/]", "[link=file:///x]y[/link]", "\\[a]"])
def test_the_terminal_says_all_and_shows_text_as_it_is(text: str) -> None:
    scaling = with_text(full_scaling(), text)
    result = experiment.ScaleResult(question("both"), (), scaling)
    stream = io.StringIO()
    print_scale(result, Terminal(file=stream, width=250), f"F{text}F")
    shown = stream.getvalue()
    for ratio in (*scaling.speedups, *scaling.between):
        assert ratio.name in shown
        told = f"{ratio.name}: {ratio.advice}" if ratio.mode == "strong" else ratio.advice
        assert (told in shown) == (ratio.conclusion != "conclusive") or not ratio.advice
    for part in (*(loss.sentence for loss in scaling.losses), *scaling.notes, f"report: F{text}F"):
        assert part in shown
    for words in (
        "1.86x [1.80, 1.92]",
        "weak 986.3x on 1,024 devices (efficiency 96%)",
        "off by up to 5%",
        "not projected: no phases",
        "2,560",
        "best 0.62",
    ):
        assert words in shown


def test_the_page_has_every_part_and_escapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("plotly") is None:
        pytest.skip("the report needs plotly")
    from parity.common.report.html.comparison import write_scale_html
    from parity_tests.test_report_html import SCALING_SECTIONS, Page, spoil_header

    run_made_up(monkeypatch, question("both", rounds=1), tmp_path / "s", MadeUp())
    for folder in (tmp_path / "s").glob("round_0/*"):
        spoil_header(folder, HOSTILE)
    records = tuple(read_record(folder) for folder in sorted((tmp_path / "s").glob("round_0/*")))
    asked = question("both")
    full = with_text(full_scaling(), HOSTILE)
    result = experiment.ScaleResult(asked, records, full)
    write_scale_html(result, tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    assert [a["id"] for tag, a in page.elements if tag == "section"] == [
        "next",
        *SCALING_SECTIONS,
        "runs",
        "terms",
    ]
    assert page.attribute("data-verdict") == ["too noisy to conclude"]
    assert page.attribute("data-figure") == ["figure-speedup", "figure-phases", "figure-projection"]
    assert "img" not in {tag for tag, _ in page.elements}
    assert page.text.count(HOSTILE) > 10
    assert not any("<" in text for text in page.json)
    for words in (
        "Too noisy to conclude",
        "strong and weak",
        "1.86x [1.80, 1.92]",
        "off by up to 5%",
        "divided by the devices",
        "Projection to 1,024 devices",
        "loses 13% of a step",
        "3 points are too few",
        "1.19 MiB",
    ):
        assert words in page.text
    assert scale_to_json(result)["scaling"]["targets"][1]["seconds"] == "nan"


# The real thing.


@pytest.mark.exhaustive
def test_a_real_session_of_both_frameworks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    parity = Cli(tmp_path, capsys)
    steps = 12
    arguments = ["--recipe", "digits_mlp", "--set", "precision=float32", "--steps", steps]
    code, out, _ = parity("scale", *arguments, "--rounds", 1, "--device", "cpu", "--out", "s")
    assert code == 3 and "too noisy to conclude" in out  # one round decides nothing
    result = read_scale(tmp_path / "s")
    assert [record.label for record in result.records] == [
        "tensorflow single x1",
        "tensorflow mirrored x2",
        "torch single x1",
        "torch ddp x2",
    ]
    assert len(list((tmp_path / "s").glob("round_*/*/summary.json"))) == 4
    spec = recipe_spec("digits_mlp", "precision=float32")
    assert all(record.spec == spec and len(record.steps) == steps for record in result.records)
    for c in result.scaling.configurations:
        assert c.samples_per_second.median > 0 and c.memory_bytes["parameters"] > 0
        assert c.phases is not None and c.phases.step > 0
        assert bool(c.phases.message_bytes) == (c.replicas > 1)
    first = (tmp_path / "s" / "report.json").read_text()
    assert parity("report", "s")[0] == code
    assert (tmp_path / "s" / "report.json").read_text() == first
    assert parity("compare", "--baseline", "s", "s")[0] == 2
