"""slurm/'s scripts and `parity submit` where there is no cluster: what they say, and what they refuse."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from parity.common.base.errors import ParityError
from parity.common.commands import study, submit
from parity.common.execution import slurm
from parity.common.execution.flags import flags_of
from parity.common.execution.ranks import READY
from parity.common.planning.submission.end import Step, runs_again, stopped, why
from parity.common.planning.submission.status import states_of
from parity.common.planning.submission.submit import Size, Submission, Submitted, arm_of, script_of, sized
from parity.common.planning.submission.sweep import element, placements_of
from parity.common.spec import RunConfig
from parity_tests.helpers import ROOT
from parity_tests.helpers.processes import lacks
from parity_tests.helpers.records import one_line

SLURM = ROOT / "slurm"
BATCH = sorted(SLURM.glob("*.sbatch"))
SHELL = [*BATCH, *sorted(SLURM.glob("*.sh")), SLURM / "cluster"]


def test_shellcheck_finds_nothing() -> None:
    if shutil.which("shellcheck") is None:
        lacks("shellcheck is not installed")
    found = subprocess.run(
        ["shellcheck", "-x", *[path.relative_to(ROOT) for path in SHELL]],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert (found.returncode, found.stdout) == (0, "")


@pytest.mark.parametrize("path", BATCH, ids=lambda path: path.stem)
def test_batch_scripts_are_alike(path: Path) -> None:
    text = path.read_text()
    options = re.findall(r"^#SBATCH (\S+)$", text, re.MULTILINE)
    goes_on = "\ntrain_and_go_on " in text
    assert ("--requeue" in options) == goes_on, "what runs again and cannot go on would find its record taken"
    assert ("--no-requeue" in options) != goes_on
    assert ("--open-mode=append" in options) == goes_on, (
        "else SLURM empties the log of a job that it starts again"
    )
    alone = ("report", "scale", "study", "torch_deepspeed", "torch_lightning")
    assert goes_on == (path.stem not in alone), "other people's loops save nothing, and a sweep takes times"
    assert "--signal=B:USR1@60" in options or path.stem == "report"
    # SLURM reads no option below the first command.
    assert "#SBATCH" not in text[text.index("\nsource ") :]
    assert "#   sbatch " in text, "an example to copy"


def asked(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(required=True)
    submit.add(commands)
    return parser.parse_args(arguments)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    options = asked("submit", "--recipe=digits_mlp", "--dry-run", *arguments)
    assert options.command(options) == 0
    return capsys.readouterr().out


def test_a_dry_run_prints_commands_and_scripts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    site = ("--partition=gpu", "--account=me", "--time=1:00:00")
    text = printed(capsys, "--nodes=2", "--gpus-per-node=4", *site, f"--out={out}")
    first, second, report = text.splitlines()[:3]
    for line, script in ((first, "torch_ddp"), (second, "tf_multi_worker")):
        assert f"/slurm/{script}.sbatch --strategy=" in line
        assert "--nodes=2 --ntasks-per-node=4 --gpus-per-node=4" in line
        assert "--partition=gpu --account=me --time=1:00:00" in line
        assert f"--spec={out}/spec.yaml --out={out}/runs/" in line
        # What a script derives is not repeated.
        assert not re.search(r"--(replicas|launcher|device)=", line)
    assert "--dependency=afterok:$job_0_torch_ddp:$job_1_tensorflow_multi_worker" in report
    assert "--kill-on-invalid-dep=yes" in report and "--gpus" not in report and "--time" not in report
    for name in ("env.sh", "job.sh", "torch_ddp.sbatch", "tf_multi_worker.sbatch", "report.sbatch"):
        assert (SLURM / name).read_text() in text
    assert not out.exists()
    shell = "".join(line + "\n" for line in (first, second, report))
    assert subprocess.run(["bash", "-n"], input=shell, text=True, capture_output=True).returncode == 0


def test_one_node_takes_mirrored_and_float32_its_noise_floor(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--set=precision=float32", "--tasks-per-node=2", "--out=/tmp/x")
    first, second = text.splitlines()[:2]
    assert (
        "tf_mirrored.sbatch" in second and "PARITY_FLOOR=/tmp/x/floor" in first and "PARITY_FLOOR" in second
    )
    assert "PARITY_FLOOR=" not in printed(capsys, "--tasks-per-node=2", "--out=/tmp/x").partition("---")[0]


def test_a_sweep_is_an_array(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "--scale=1,2,4", "--nodes=2", "--gpus-per-node=2", "--out=/tmp/x")
    array, collect = text.splitlines()[:2]
    assert "--array=0-2" in array and array.endswith("scale.sbatch /tmp/x)")
    assert "--dependency=afterok:$job_scale" in collect


def test_a_study_is_an_array_over_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    arms = ("--placement=torch:ddp,stock=dropout", "--placement=tf:mirrored")
    text = printed(capsys, "--study", *arms, "--seeds=12", "--gpus-per-node=2", "--out=/tmp/x")
    array, collect = text.splitlines()[:2]
    assert "--array=0-11" in array and array.endswith("study.sbatch /tmp/x)") and "--gpus-per-node=2" in array
    assert "--dependency=afterok:$job_study" in collect and "--element=" in text
    options = asked("submit", "--recipe=digits_mlp", "--study", *arms, "--tasks-per-node=3")
    made = [arm_of(text, Size(1, 3, False)) for text in options.placement]
    assert [arm.label for arm in made] == ["torch ddp x3 stock=dropout", "tensorflow mirrored x3"]
    question = study.question_of(options, made, at_once=True)
    assert question.looks == (20,), "they are all trained, so that one look is enough"


@pytest.mark.parametrize("arguments", [["nowhere", "0"], ["nowhere", "first"], ["nowhere"]])
def test_a_sweep_that_is_not_there_is_an_error_and_no_divergence(
    tmp_path: Path, arguments: list[str]
) -> None:
    command = [sys.executable, "-m", "parity.batch", "sweep", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=100, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "error: " in done.stderr and "Traceback" not in done.stderr


def test_a_sweep_takes_as_many_nodes_as_it_needs() -> None:
    found = placements_of(["torch:ddp"], [1, 2, 4], Size(2, 2, gpus=True), steps=60)
    assert {config.run_options.stop_at_step for config in found} == {60}
    placements = [config.placement for config in found]
    assert [(p.strategy, p.replicas, p.nodes, p.device) for p in placements] == [
        ("single", 1, 1, "gpu"),
        ("ddp", 2, 1, "gpu"),
        ("ddp", 4, 2, "gpu"),
    ]


@pytest.mark.parametrize(
    ("text", "script", "replicas"),
    [
        ("torch:ddp", "torch_ddp", 8),
        ("torch:fsdp1", "torch_fsdp", 8),
        ("torch:fsdp2,shard_group=4", "torch_fsdp", 8),
        ("torch:fsdp2,engine=lightning", "torch_lightning", 8),
        ("torch:deepspeed,stage=3", "torch_deepspeed", 8),
        ("torch:tensor_parallel,ranks=4", "torch_ddp", 2),
        ("torch:single", "torch_ddp", 1),
        ("tf:multi_worker", "tf_multi_worker", 8),
    ],
)
def test_every_placement_has_its_script(text: str, script: str, replicas: int) -> None:
    config, size = sized(text, Size(2, 4, gpus=False))
    placement = config.placement
    assert (script_of(placement), placement.replicas) == (f"{script}.sbatch", replicas)
    assert (SLURM / script_of(placement)).is_file()
    assert placement.processes == size.nodes * size.per_node


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--placement=torch:ddp:4",), "expected framework:strategy[,field=value...] without a number"),
        (("--placement=torch:ddp", "--placement=torch:ddp"), "needs two different placements or more"),
        (("--placement=torch:ddp",), "needs two different placements or more"),
        (("--placement=tf:mirrored", "--nodes=2"), "mirrored is one process, which cannot use 2 nodes"),
        (("--placement=torch:data_parallel", "--placement=torch:ddp"), "no script starts data_parallel"),
        (
            ("--placement=tf:multi_worker,replicas_per_worker=2", "--nodes=2", "--tasks-per-node=2"),
            "start a process for each device",
        ),
        (("--placement=torch:tensor_parallel,ranks=2", "--nodes=3"), "3 devices cannot be divided by 2"),
        (("--nodes=0",), "must be at least 1"),
        (("--study", "--placement=torch:ddp"), "two arms or more"),
        (("--study", "--placement=torch:ddp", "--nodes=2"), "trains each seed on one node"),
        (("--scale=1,x",), "--scale '1,x': expected numbers with commas"),
        (("--scale=2,4",), "--scale 2,4: expected 1 and other numbers"),
        (("--scale=1,8", "--nodes=2", "--tasks-per-node=2"), "2 node(s) of 2 devices hold no 8 replicas"),
        (("--scale=1,3", "--nodes=2", "--tasks-per-node=2"), "hold no 3 replicas, equally many on each"),
    ],
)
def test_what_cannot_be_submitted_is_refused_in_one_line(arguments: tuple[str, ...], message: str) -> None:
    options = asked("submit", "--recipe=digits_mlp", *arguments)
    with pytest.raises(ParityError) as caught:
        options.command(options)
    assert message in one_line(caught.value)


def test_a_machine_without_slurm_is_said_to_be_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    options = asked("submit", "--recipe=digits_mlp", f"--out={tmp_path / 'out'}")
    with pytest.raises(
        ParityError, match="sbatch is not installed here: this is no machine of a SLURM cluster"
    ):
        options.command(options)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "give the folder of 'parity submit' or slurm/pair.sh"),
        ("{", "not JSON"),
        ('{"jobs": [{"name": "x"}]}', "jobs.0.id: this field is required"),
    ],
)
def test_a_damaged_submission_is_said_to_be(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "submission.json").write_text(content)
    options = asked("status", str(tmp_path))
    with pytest.raises(ParityError) as caught:
        options.command(options)
    assert message in one_line(caught.value)


def test_jobs_that_slurm_has_forgotten_are_known_by_their_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After MinJobAge, where there is no accounting database."""
    nothing = subprocess.CompletedProcess((), 1, "", "slurm_load_jobs error: Invalid job id specified")
    monkeypatch.setattr(slurm, "ask", lambda *command: nothing)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "2.end").write_text("rank 1 on node10 was killed\n")
    (tmp_path / "logs" / "33.end").write_text("of another job\n")
    # The last two were requeued: they went on in a part that is through, and in one that is not.
    for whole in ("0", "3/resumed/001", "4", "4/resumed/001"):
        (tmp_path / "runs" / whole).mkdir(parents=True, exist_ok=True)
    for whole in ("0", "3/resumed/001", "4"):
        (tmp_path / "runs" / whole / "summary.json").touch()
    jobs = [Submitted(name=str(n), id=n + 1, record=f"runs/{n}") for n in range(5)]
    found = states_of(Submission(jobs=tuple(jobs)), tmp_path)
    assert [state.word for state in found] == ["COMPLETED", "FAILED", "UNKNOWN", "COMPLETED", "UNKNOWN"]
    assert found[1].about == "rank 1 on node10 was killed"


SRUN = "srun: launch/slurm: _step_signal: Terminating StepId=2.0\nsrun: Force Terminated StepId=2.0\n"
TORCH = "rank 0 of 4, met at tcp://node2:12016: Connection closed by peer; the first rank to fail says why"


def step(tmp_path: Path, messages: str, unanswered: bool = False, **logs: str) -> Step:
    """Four ranks on two nodes; each has arrived, but for those whose log is given as ''."""
    hosts = ("node2", "node10")
    for rank in range(4):
        text = logs.get(f"rank{rank}")
        said = "" if text == "" else f"rank {rank} of 4 {READY}\n{text or ''}\n"
        (tmp_path / f"7.0_rank{rank}_{hosts[rank // 2]}.log").write_text(said)
    return Step(messages + SRUN, hosts, 4, tmp_path, "7.0", unanswered)


def test_the_first_rank_to_fail_is_named(tmp_path: Path) -> None:
    """Not the one that srun heard of first, where that only tells of another."""
    messages = (
        "srun: error: node2: task 0: Exited with exit code 2\n"
        "srun: error: node10: tasks 2-3: Exited with exit code 1\nsrun: error: node2: task 1: Terminated\n"
    )
    said = why(step(tmp_path, messages, rank0=TORCH, rank2="slurmstepd: error: ***\nValueError: no"))
    assert (
        said == f"rank 2 on node10 ended with code 1: ValueError: no (log: {tmp_path}/7.0_rank2_node10.log)"
    )


@pytest.mark.parametrize(
    ("messages", "logs", "expected"),
    [
        ("srun: error: node10: task 3: Killed\n", {}, "rank 3 on node10 was killed, by a person or for want"),
        (
            "srun: error: node10: task 3: Out Of Memory\n",
            {},
            "rank 3 on node10 was killed for want of memory",
        ),
        (
            "srun: error: node2: task 0: Exited with exit code 2\n",
            {"rank0": TORCH, "rank3": ""},
            "rank 3 on node10 never came; rank 0 on node2 ended with code 2: rank 0 of 4, met at",
        ),
        (
            "srun: error: Node failure on node10\nsrun: error: node2: tasks 0-1: Exited with exit code 2\n",
            {"rank0": TORCH},
            "rank 2 on node10, rank 3 on node10 did not answer any more; SLURM says: node10 is down*;"
            " rank 0 on node2: rank 0 of 4, met at",
        ),
        (
            "srun: error: Unable to create step for job 7: Memory required by task\n",
            {},
            "the step did not run: ",
        ),
    ],
)
def test_how_a_step_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, messages: str, logs: dict[str, str], expected: str
) -> None:
    monkeypatch.setattr(slurm, "node_state", "{} is down*".format)
    assert why(step(tmp_path, messages, **logs)).startswith(expected)


def test_a_silent_node_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(slurm, "node_state", "{} is mixed*".format)
    messages = "srun: error: node2: tasks 0-1: Exited with exit code 2\n"
    assert why(step(tmp_path, messages, unanswered=True, rank0=TORCH, rank1=TORCH)).startswith(
        "rank 2 on node10, rank 3 on node10 did not answer any more; SLURM says: node10 is mixed*"
    )


def test_a_rank_that_waits_for_one_that_failed_is_not_lost(tmp_path: Path) -> None:
    """It takes note of the signal only, and srun is ended before its wait is."""
    failed = step(
        tmp_path, "srun: error: node10: task 3: Exited with exit code 3\n", unanswered=True, rank3="no"
    )
    assert why(failed).startswith("rank 3 on node10 ended with code 3: no (log: ")
    assert not failed.lost()


def test_a_stopped_job_says_what_it_leaves(tmp_path: Path) -> None:
    said = one_line(stopped("its time limit is near", tmp_path / "run", ()))
    assert said == f"its time limit is near, so it was stopped: {tmp_path / 'run'} holds no step yet"


def asks_slurm(monkeypatch: pytest.MonkeyPatch, requeue: int, state: str = "RUNNING") -> None:
    text = f"JobId=7 JobName=x\n   JobState={state} Reason=None\n   Requeue={requeue} Restarts=0 BatchFlag=1"
    shown = subprocess.CompletedProcess((), 0, text, "")
    monkeypatch.setattr(slurm, "ask", lambda *command: shown)


@pytest.mark.parametrize(
    ("job", "before", "heals", "requeue", "expected"),
    [
        ("7", "", True, 1, "the job is requeued, and OUT goes on from step_00000040"),
        ("7", "step_00000020", True, 1, "the job is requeued, and OUT goes on from step_00000040"),
        ("7", "step_00000040", True, 1, "nothing new was saved, so the job was not requeued"),
        ("7", "", False, 1, "submit it again with the same --out: OUT goes on from step_00000040"),
        (
            "7",
            "",
            True,
            0,
            "the job was submitted with --no-requeue; submit it again with the same --out: OUT",
        ),
        (None, "", True, 1, "it saves nothing to go on from: submit it again with another --out"),
    ],
)
def test_only_a_job_that_has_saved_runs_again(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    job: str | None,
    before: str,
    heals: bool,
    requeue: int,
    expected: str,
) -> None:
    asks_slurm(monkeypatch, requeue)
    for name in ("step_00000020", "step_00000040", "step_00000060.partial"):
        (tmp_path / "checkpoints" / name).mkdir(parents=True)
    again, said = runs_again(job, tmp_path, before, heals)
    assert said.replace(str(tmp_path), "OUT").startswith(expected)
    assert again == (expected.startswith("the job is requeued"))


def test_a_cancelled_job_is_not_started_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`scontrol requeue` would bring it back."""
    (tmp_path / "checkpoints" / "step_00000040").mkdir(parents=True)
    asks_slurm(monkeypatch, 1)
    assert runs_again("7", tmp_path, "", True)[0]
    asks_slurm(monkeypatch, 1, "CANCELLED")
    assert runs_again("7", tmp_path, "", True) == (
        False,
        f"submit it again with the same --out: {tmp_path} goes on from step_00000040",
    )


def test_a_step_that_was_asked_to_stop_is_known(tmp_path: Path) -> None:
    """Whoever asked it; srun ends the other ranks for the first."""
    ended = "srun: error: node10: task {}: Exited with exit code {}\nsrun: error: node2: task 0: Terminated\n"
    assert step(tmp_path, ended.format(3, 75)).requested()
    assert not step(tmp_path, ended.format(3, 7)).requested()
    ended_for_it = "srun: error: node2: task 0: Exited with exit code 75\n"
    assert not step(
        tmp_path, "srun: error: node10: task 3: Exited with exit code 7\n" + ended_for_it
    ).requested()


def test_an_element_that_there_is_not_is_refused(tmp_path: Path) -> None:
    from parity.common import recipes
    from parity.common.scaling.experiment import Question

    placements = placements_of(["torch:ddp"], [1, 2], Size(2, 1, gpus=False), steps=5)
    question = Question(
        spec=recipes.get("digits_mlp").resolved(), placements=tuple(placements), mode="strong", rounds=2
    )
    (tmp_path / "scale.json").write_text(question.model_dump_json())
    runs = list(element(tmp_path, 1))
    assert [words[:2] for words in runs] == [["2", "1"]] * 2, "two nodes, a task on each, two rounds"
    assert {Path(words[2]).parent.name for words in runs} == {"round_0", "round_1"}
    with pytest.raises(ParityError, match=r"element 2 of the array: there are 2, of \[1, 2\] replicas"):
        list(element(tmp_path, 2))


def test_flags_say_when_to_save_and_never_from_where() -> None:
    """A place to go on from is found when a run begins, not when it is planned."""

    def flags(**save: object) -> list[str]:
        saving = save or None
        made = RunConfig.from_text("torch:ddp:2", save=saving, resume="/some/checkpoint")
        return [
            flag
            for flag in flags_of(made.placement, made.run_options)
            if flag not in ("--strategy=ddp", "--replicas=2")
        ]

    assert flags() == []
    assert flags(every_steps=50, keep_best=3) == ["--save_every_steps=50", "--keep_best=3"]
    assert flags(every_steps=50, sharded=True) == ["--save_every_steps=50", "--save_sharded=true"]
    assert flags(every_minutes=2.5, keep_last=1) == ["--save_every_minutes=2.5", "--keep_last=1"]
    assert flags(every_steps=50, in_background=False)[1:] == ["--save_in_background=false"]
    with pytest.raises(ParityError, match="of torch ddp x2 has no flag; give every_steps or every_minutes"):
        flags(keep_last=3)
