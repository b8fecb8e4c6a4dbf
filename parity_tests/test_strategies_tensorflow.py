"""What is particular to TensorFlow's strategies: their options, how workers meet and part, and stock `fit`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from parity.common.base.errors import RunError, SpecError
from parity.common.execution.checks import check_run
from parity.common.execution.hooks import Hook, Hooks
from parity.common.execution.ranks import run_ranks
from parity.common.execution.worker import Worker
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import Comparison, compare
from parity.common.record import RunRecord, read_record
from parity.common.spec import Instrumentation, Placement, RunConfig, RunOptions, TrainSpec, override
from parity_tests.helpers import ROOT
from parity_tests.helpers.matrix import small
from parity_tests.helpers.records import received_ids
from parity_tests.tables.strategies import DROPOUT

REFERENCE = "tensorflow:mirrored:1"
# Three batches an epoch, of 34, 34 and 2: over four replicas 1, 1, none and none.
SHORT = ("data.train_samples=70", "data.eval_samples=35", "steps=7")
EVEN = ("data.tail=drop", "global_batch_size=36", "data.train_samples=100", "data.eval_samples=35", "steps=6")
PRELOAD = ["parity.tf_impl.train", "sklearn.datasets"]


class Bench:
    """One TensorFlow process that trains what it is asked to."""

    def __init__(self, worker: Worker, folder: Path) -> None:
        self.worker, self._folder = worker, folder
        self._made: dict[tuple, RunRecord] = {}

    def record(
        self, spec: TrainSpec, text: str, inside: str | None = None, digests: bool = True
    ) -> RunRecord:
        """The record of a run; each is made once."""
        key = (spec.content_hash(), text, inside)
        if key not in self._made:
            out = self._folder / str(len(list(self._folder.iterdir())))
            placement, options, _ = RunConfig.from_text(text, digests=digests).parts
            self.worker.train(spec, placement, out, options, Instrumentation(context=inside))
            self._made[key] = read_record(out)
        return self._made[key]

    def compared(self, spec: TrainSpec, text: str, reference: str = REFERENCE) -> Comparison:
        first = self.record(spec, reference)
        return compare(first, self.record(spec, text), proof_budget(first))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Worker("tensorflow", 4, tmp_path_factory.mktemp("bench_log") / "log") as worker:
        yield Bench(worker, tmp_path_factory.mktemp("bench"))


def in_tensorflow(script: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **(environment or {})},
    )


OPTIONS = """
import json
from parity.common.base.errors import RunError
from parity.common.spec import Placement
from parity.tf_impl import runtime
from parity.tf_impl.strategy import open_strategy
said = {}
for text in TEXTS:
    placement = Placement.from_text(text)
    try:
        runtime.configure(placement, 4)
        native = open_strategy(placement).native
        reduces = getattr(native.extended, "_cross_device_ops", None)
        said[text] = [type(native).__name__, type(reduces).__name__]
        if "multi_worker" in text:
            said[text] += [native.extended._communication_options.implementation.name, native.num_replicas_in_sync]
    except RunError as error:
        said[text] = str(error)
print(json.dumps(said))
"""


def test_options_take_effect_and_what_needs_gpus_is_refused() -> None:
    expected = {
        "tf:single:1": ["OneDeviceStrategy", "NoneType"],
        "tf:mirrored:2": ["MirroredStrategy", "ReductionToOneDevice"],
        "tf:mirrored:2,cross_device=hierarchical_copy": ["MirroredStrategy", "HierarchicalCopyAllReduce"],
        "tf:mirrored:2,cross_device=nccl,device=cpu": (
            "tensorflow mirrored x2 cross_device=nccl: cross_device=nccl needs GPUs; on CPU take"
            " cross_device=one_device"
        ),
        "tf:multi_worker:2,communication=nccl,device=cpu": (
            "tensorflow multi_worker x2 communication=nccl: communication=nccl needs GPUs; on CPU take"
            " communication=ring"
        ),
        "tf:multi_worker:1": ["CollectiveAllReduceStrategy", "CollectiveAllReduce", "RING", 1],
        "tf:multi_worker:1,communication=auto": [
            "CollectiveAllReduceStrategy",
            "CollectiveAllReduce",
            "AUTO",
            1,
        ],
    }
    done = in_tensorflow(OPTIONS.replace("TEXTS", repr(list(expected))))
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == expected


@contextmanager
def regrouped_sums() -> Iterator[None]:
    """TensorFlow's rewriting of chains of additions, as it is by default; runs inside a worker."""
    import tensorflow as tf

    keep_off = tf.config.optimizer.set_experimental_options
    keep_off({"arithmetic_optimization": True})
    tf.config.optimizer.set_experimental_options = lambda options: None
    try:
        yield
    finally:
        tf.config.optimizer.set_experimental_options = keep_off


def parted(record: RunRecord) -> list[int]:
    """The steps after which the replicas did not hold the same bits."""
    return [
        step for step, digests in enumerate(zip(*record.fingerprints, strict=True)) if len(set(digests)) > 1
    ]


def test_replicas_hold_the_same_bits_because_sums_are_not_regrouped(bench: Bench) -> None:
    spec = small("digits_mlp", "steps=3", "optimizer={kind: adamw, learning_rate: 0.003}")
    assert parted(bench.record(spec, "tensorflow:mirrored:2")) == []
    # Another seed: what was traced for the first spec would be used again.
    control = bench.record(
        override(spec, ["seed=1"]),
        "tensorflow:mirrored:2",
        "parity_tests.test_strategies_tensorflow:regrouped_sums",
    )
    assert parted(control) == [0, 1, 2]


@pytest.mark.parametrize(
    ("recipe", "more", "text"),
    [
        pytest.param(
            "digits_cnn", (), "tensorflow:multi_worker:4,replicas_per_worker=2", marks=pytest.mark.slow
        ),
        pytest.param(
            "digits_mlp", (DROPOUT,), "tensorflow:multi_worker:2,accumulation=3", marks=pytest.mark.slow
        ),
    ],
)
def test_workers_train_as_one_replica_does(
    bench: Bench, recipe: str, more: tuple[str, ...], text: str
) -> None:
    spec = small(recipe, *SHORT, *more)
    comparison = bench.compared(spec, text)
    assert comparison.verdict == "parity", comparison.reason
    record = bench.record(spec, text)
    replicas = record.placement.replicas
    assert parted(record) == [] and len(record.fingerprints) == replicas
    sizes = [len(received_ids(record)[replica][2]) for replica in range(replicas)]
    assert sizes == ([1, 1, 0, 0] if replicas == 4 else [1, 1])
    assert len(record.memory) == 2, "each worker says what it holds"
    logs = [path.read_text() for path in sorted((record.folder / "logs").iterdir())]
    assert len(logs) == 2 and not any("Traceback" in log for log in logs)


@contextmanager
def compiled() -> Iterator[None]:
    """Fails where nothing was given to XLA; runs inside a worker."""
    import tensorflow as tf

    given, real = [], tf.function
    with patch.object(tf, "function", lambda *a, **more: given.append(more) or real(*a, **more)):
        yield
    assert any(more.get("jit_compile") for more in given), "nothing was compiled"


COMPILED = "parity_tests.test_strategies_tensorflow:compiled"


@pytest.mark.slow
def test_compiled_the_curve_is_the_same(bench: Bench) -> None:
    """Against one replica, over four, two of which have no samples in the last step of an epoch."""
    spec = small("digits_mlp", *SHORT, DROPOUT)
    bench.record(spec, "tensorflow:mirrored:4,compile=true", COMPILED)
    comparison = bench.compared(spec, "tensorflow:mirrored:4,compile=true")
    assert comparison.verdict == "parity", comparison.reason
    assert 0 < comparison.loss_deviation.max() <= 1e-12, "XLA adds in another order"
    with pytest.raises(RunError, match="nothing was compiled"):
        bench.record(override(spec, ["seed=3"]), "tensorflow:mirrored:4", COMPILED)


@pytest.mark.slow
def test_several_steps_a_call_change_no_bit(bench: Bench) -> None:
    """Calls of 1, 4 and 2 steps over two epochs, each of which ends in a batch that leaves two replicas nothing."""
    spec = small("digits_mlp", *SHORT, DROPOUT, "schedule={kind: step, every: 2, factor: 0.5}")
    text = "tensorflow:mirrored:4,accumulation=2"
    one, several = (bench.record(spec, text + more, digests=False) for more in ("", ",steps_per_call=4"))
    for name in set(one.columns) - {"seconds"}:
        assert np.array_equal(one.columns[name], several.columns[name]), name
    assert [[ids.tolist() for ids in row] for row in received_ids(one)] == [
        [ids.tolist() for ids in row] for row in received_ids(several)
    ]
    for state in ("first_gradients", "final"):
        ours, theirs = one.state(state), several.state(state)
        assert ours.keys() == theirs.keys() and all(np.array_equal(ours[n], theirs[n]) for n in ours), state
    # The time of a call is divided evenly over its steps; of single steps no two are alike.
    parts = [len(set(record.columns["seconds"][1:5])) for record in (one, several)]
    assert parts == [4, 1]


class Order:
    """What is launched and what is read, in the order in which it is; runs inside a worker."""

    def __init__(self) -> None:
        from parity.common.record import RecordWriter
        from parity.tf_impl.step import Step

        self.seen: list[tuple[str, int]] = []
        self._patched = [
            self._note("launched", Step, "__call__", 3),
            self._note("read", RecordWriter, "step", 1),
        ]

    def _note(self, what: str, kind: type, name: str, place: int) -> Any:
        real = getattr(kind, name)

        def noting(*given: Any) -> Any:
            self.seen.append((what, given[place]))
            return real(*given)

        return patch.object(kind, name, noting)

    @contextmanager
    def expected(self, behind: int) -> Iterator[None]:
        with self._patched[0], self._patched[1]:
            yield
        steps = range(7)
        order = [(step + behind + 0.5, ("read", step)) for step in steps]
        order += [(step, ("launched", step)) for step in steps]
        assert self.seen == [what for _, what in sorted(order)], f"not {behind} behind: {self.seen}"


def read_one_behind() -> Any:
    return Order().expected(1)


def read_at_once() -> Any:
    return Order().expected(0)


PLATEAU = "schedule={kind: reduce_on_plateau, patience: 0}"


def test_a_step_is_read_once_the_next_is_launched_unless_it_is_needed_before(bench: Bench) -> None:
    here = "parity_tests.test_strategies_tensorflow"
    plain, plateau = small("digits_mlp", *SHORT), small("digits_mlp", *SHORT, PLATEAU)
    for spec, digests, inside in (
        (plain, False, "read_one_behind"),
        (plain, True, "read_at_once"),
        (plateau, False, "read_at_once"),
    ):
        bench.record(spec, "tensorflow:mirrored:2", f"{here}:{inside}", digests)
    with pytest.raises(RunError, match="not 1 behind"):
        bench.record(plateau, "tensorflow:mirrored:2", f"{here}:read_one_behind", False)


@contextmanager
def third_step_fails() -> Iterator[Hooks]:
    """The graph's own error, which arrives after the call has returned; runs inside a worker."""
    import tensorflow as tf

    def failing(step: Any, part: Hook, batch: Any, scalars: Any, number: Any) -> Any:
        with tf.control_dependencies([tf.debugging.assert_less(number, tf.constant(2, tf.int64))]):
            number = tf.identity(number)
        return part(batch, scalars, number)

    yield Hooks(local_gradients=failing)


def test_an_error_of_a_call_that_had_returned_ends_only_its_own_run(bench: Bench) -> None:
    # A token of the number must reach the loss: dropout is keyed by the step.
    spec = small("digits_mlp", *SHORT, DROPOUT, "seed=4")
    inside = "parity_tests.test_strategies_tensorflow:third_step_fails"
    with pytest.raises(RunError, match="InvalidArgumentError"):
        bench.record(spec, "tensorflow:mirrored:2", inside, digests=False)
    assert bench.compared(spec, "tensorflow:mirrored:2").verdict == "parity"


@contextmanager
def no_fifth_batch() -> Iterator[None]:
    """Samples that cannot be read; runs inside a worker."""
    from parity.tf_impl import data

    real = data.batches

    def batches(*given: Any) -> Iterator[Any]:
        for number, batch in enumerate(real(*given)):
            if number == 4:
                raise OSError("cannot be read")
            yield batch

    with patch.object(data, "batches", batches):
        yield


def test_what_was_whole_when_a_run_fails_is_recorded(bench: Bench, tmp_path: Path) -> None:
    placement = Placement.from_text("tensorflow:mirrored:2")
    inside = "parity_tests.test_strategies_tensorflow:no_fifth_batch"
    with pytest.raises(RunError, match="cannot be read"):
        bench.worker.train(
            small("digits_mlp", *SHORT),
            placement,
            tmp_path / "run",
            instrumentation=Instrumentation(context=inside),
        )
    assert read_record(tmp_path / "run").steps.tolist() == [0, 1, 2, 3]


@contextmanager
def never_fused() -> Iterator[None]:
    """Batch norm in single operations, as in float64; runs inside a worker."""
    from parity.tf_impl.layers.normalization import BatchNorm

    with patch.object(BatchNorm, "_fuses", lambda self, x: False):
        yield


@pytest.mark.parametrize("convention", ["keras", "torch"])
def test_the_kernel_of_batch_norm_agrees_with_its_formula(bench: Bench, convention: str) -> None:
    """Losses, parameters and running statistics, whose variance is unbiased in one convention alone."""
    own = [f"model.layers.{place}.statistics=per_replica" for place in (1, 4)]
    spec = small("digits_cnn", *EVEN, *own, "precision=float32", f"convention={convention}")
    inside = "parity_tests.test_strategies_tensorflow:never_fused"
    kernel = bench.record(spec, "tensorflow:mirrored:2", digests=False)
    formula = bench.record(spec, "tensorflow:mirrored:2", inside, digests=False)
    apart = np.abs(kernel.loss / formula.loss - 1)
    assert 0 < apart.max() < 1e-5, "another kernel rounds otherwise, and only that"
    ours, theirs = kernel.state("final"), formula.state("final")
    for name in ours:
        assert np.abs(ours[name] - theirs[name]).max() <= 1e-5 * np.abs(theirs[name]).max() + 1e-6, name


@pytest.mark.parametrize(
    ("more", "text", "said"),
    [
        ("", "steps_per_call=2,digests=true", "digests are taken between two steps"),
        (PLATEAU, "steps_per_call=2", "schedule reduce_on_plateau needs to see each step before the next"),
        ("precision=float16_mixed", "steps_per_call=2", "its loss scale needs to see each step"),
        ("", "steps_per_call=2,accumulation={0: 1, 2: 4}", "micro-batches changes between steps"),
        ("", "steps_per_call=2,engine=keras", "engine 'keras' owns the loop"),
        ("", "compile=true,engine=keras", "engine 'keras' compiles for itself"),
        ("", "compile=true", "batch norm 'batch_norm_1' sums over the replicas, which XLA cannot"),
    ],
)
def test_what_cannot_be_one_graph_is_refused(more: str, text: str, said: str) -> None:
    recipe = "digits_mlp" if "accumulation" in text else "digits_cnn"
    spec = small(recipe, *filter(None, [more])).resolved()
    run = RunConfig.from_text(f"tensorflow:mirrored:2,{text}")
    with pytest.raises(SpecError, match=re.escape(said)) as caught:
        check_run(spec, *run.parts)
    assert str(caught.value).startswith("tensorflow mirrored x2 ") and "\n" not in str(caught.value)
    check_run(
        small("digits_mlp").resolved(),
        Placement.from_text("tensorflow:mirrored:2,compile=true,steps_per_call=2"),
    )


FILES = """
import os, sys, tempfile
from pathlib import Path
from parity.common import recipes
from parity.common.spec import Placement, override
from parity.tf_impl import runtime, train
runtime.configure(Placement.from_text("tf:mirrored:2"), 2)
for number, text in enumerate(["tf:mirrored:2,accumulation=2", "tf:single:1,engine=keras"]):
    spec = override(recipes.get("digits_mlp"), ["steps=2"])
    train.train(spec, Placement.from_text(text), Path(sys.argv[1], str(number)))
print(os.listdir(tempfile.gettempdir()))
import tensorflow as tf
tf.function(runtime.thread_counts)()
print(os.listdir(tempfile.gettempdir()))
sys.stdout.flush()
os._exit(0)
"""


@pytest.mark.exhaustive
def test_a_process_that_ends_at_once_leaves_no_files(tmp_path: Path) -> None:
    """TensorFlow writes every function that it converts to a file, and deletes it on an orderly exit only."""
    (tmp_path / "temporary").mkdir()
    script = FILES.replace("sys.argv[1]", repr(str(tmp_path / "runs")))
    done = in_tensorflow(script, {"TMPDIR": str(tmp_path / "temporary")})
    assert done.returncode == 0, done.stderr[-2000:]
    ours, control = done.stdout.splitlines()[-2:]
    assert ours == "[]" and "autograph" in control


WAIT = """
import os, sys, time
from parity.common.base.errors import RunError
from parity.common.spec import Placement
from parity.tf_impl import runtime
from parity.tf_impl.strategy import open_strategy
placement = Placement.from_text("tf:multi_worker:2,timeout_seconds=2")
runtime.configure(placement)
try:
    open_strategy(placement)
except RunError as error:
    sys.exit(str(error))
"""


@pytest.mark.exhaustive
@pytest.mark.parametrize("rank", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_waiting_for_a_worker_that_does_not_come_ends(tmp_path: Path, rank: int) -> None:
    """Before its address is known, and in TensorFlow itself, which would wait for ever."""
    meeting = tmp_path / "rendezvous"
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "PARITY_RENDEZVOUS": str(meeting)}
    other = 1 - rank
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        for known, code, who in ((False, 1, f"rank {other};"), (True, -9, f"rank {other} at {address};")):
            if known:
                Path(f"{meeting}.worker_{other}").write_text(address)
            done = in_tensorflow(WAIT, place)
            assert done.returncode == code, done.stderr[-2000:]
            said = done.stderr.strip().splitlines()[-1].removeprefix("parity.tf_impl: error: ")
            assert said.startswith(f"rank {rank} on {socket.gethostname()} waited 2 s for {who}"), said


def rank_one_leaves(signal_name: str, *arguments: Any) -> None:
    """A rank's training, where rank 1 sends itself a signal before its sixth step."""
    from parity.tf_impl import train

    batches = train.data.batches

    def some(*given: Any) -> Iterator[Any]:
        for number, batch in enumerate(batches(*given)):
            if number == 5 and os.environ["RANK"] == "1":
                os.kill(os.getpid(), signal.Signals[signal_name])
            yield batch

    train.data.batches = some
    train.train_rank(*arguments)


@pytest.mark.parametrize(
    ("signal_name", "said"),
    [
        pytest.param("SIGKILL", "rank 1 was killed by signal 9", marks=pytest.mark.slow),
        pytest.param("SIGSTOP", "lost rank 1", marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_that_dies_ends_the_run(tmp_path: Path, signal_name: str, said: str) -> None:
    spec = small("digits_mlp", "steps=500").resolved()
    placement = Placement.from_text("tf:multi_worker:2,timeout_seconds=60")
    with pytest.raises(RunError) as caught:
        run_ranks(
            "parity_tests.test_strategies_tensorflow:rank_one_leaves",
            (signal_name, spec, placement, tmp_path, RunOptions(), Instrumentation()),
            2,
            tmp_path / "logs",
            PRELOAD,
        )
    message = str(caught.value)
    assert said in message and "\n" not in message
    # Rank 0 may have been a step behind; what it wrote is whole.
    assert read_record(tmp_path).steps.tolist() in ([0, 1, 2, 3], [0, 1, 2, 3, 4])


def own_address() -> str:
    """An address of this machine that others can reach; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has the loopback address only")
        address: str = unsent.getsockname()[0]
    return address


def test_a_server_can_be_kept_to_this_machine() -> None:
    """Loaded from its file: the package around it would load TensorFlow."""
    path = ROOT / "tf_impl" / "strategy" / "loopback.py"
    description = importlib.util.spec_from_file_location("loopback", path)
    assert description is not None and description.loader is not None
    loopback = importlib.util.module_from_spec(description)
    description.loader.exec_module(loopback)
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        port = server.getsockname()[1]

        def reached(address: str) -> bool:
            try:
                with (
                    socket.create_connection((address, port), timeout=1) as client,
                    server.accept()[0] as peer,
                ):
                    client.sendall(b"x" * 1000)
                    return peer.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
            except TimeoutError:
                return False

        addresses = ("127.0.0.1", "::1", own_address())
        assert [reached(address) for address in addresses] == [True, True, True]
        assert loopback.accept_only_this_machine(port)
        assert [reached(address) for address in addresses] == [True, True, False]
        assert not loopback.accept_only_this_machine(1), "nothing listens there"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "more"),
    [
        ("digits_mlp", (DROPOUT, "optimizer={kind: adamw, learning_rate: 0.003, decay_mask: matrices}")),
        ("digits_cnn", ("optimizer.weight_decay=0.01",)),
    ],
)
def test_stock_fit_agrees_on_even_batches(bench: Bench, recipe: str, more: tuple[str, ...]) -> None:
    comparison = bench.compared(small(recipe, *EVEN, *more), "tensorflow:mirrored:2,engine=keras")
    assert comparison.verdict == "parity", comparison.reason
    assert comparison.loss_deviation.max() <= 1e-12


def test_stock_fit_agrees_on_one_replica_whatever_the_tail(bench: Bench) -> None:
    comparison = bench.compared(small("digits_mlp", *SHORT), "tensorflow:single:1,engine=keras")
    assert comparison.verdict == "parity", comparison.reason


def test_stock_fit_parts_at_the_first_uneven_batch(bench: Bench) -> None:
    """Of 97 samples the third batch has 29: 15 and 14, each mean of which stock fit takes for a half."""
    spec = small("digits_mlp", "data.train_samples=97", "steps=6")
    comparison = bench.compared(spec, "tensorflow:mirrored:2,engine=keras")
    assert comparison.verdict == "divergent"
    failed = comparison.first_failure
    assert failed is not None and (failed.name, failed.where) == ("loss curve", "step 3")
    assert (
        "averages the means of the replicas" in comparison.reason and "first at step 2;" in comparison.reason
    )
    gradients = next(check for check in comparison.checks if check.name == "gradient norm")
    assert not gradients.passed and gradients.where == "step 2"
    assert (comparison.loss_deviation[:3] <= 1e-12).all()


def test_our_own_loop_does_not_part_there(bench: Bench) -> None:
    spec = small("digits_mlp", "data.train_samples=97", "steps=6")
    assert bench.compared(spec, "tensorflow:mirrored:2").verdict == "parity"


@pytest.mark.parametrize(
    ("assignments", "text", "said"),
    [
        (
            ("optimizer={kind: adamw, learning_rate: 0.003, convention: torch}",),
            ":1",
            "epsilon_place 'outside'",
        ),
        (("optimizer={kind: lamb, learning_rate: 0.003}",), ":1", "'lamb' is not wired to stock Keras"),
        (("optimizer.ema={decay: 0.9}",), ":1", "sets the weights to their average"),
        (("optimizer.clip_global_norm=1", "optimizer.clip_epsilon=1e-6"), ":1", "clip_epsilon 0.0 only"),
        (("loss.l2=0.1",), ":1", "no penalty on all weights"),
        (("loss.label_smoothing=0.1",), ":1", "smooths distributions only"),
        (("data.split=strided",), ":2", "contiguous shares"),
        (("global_batch_size=35",), ":2", "first batch, here of 35"),
        ((), ":1,accumulation=2", "does not cut a batch"),
    ],
)
def test_what_stock_fit_cannot_say_is_refused(
    bench: Bench, assignments: tuple[str, ...], text: str, said: str
) -> None:
    with pytest.raises(RunError, match=said) as caught:
        bench.record(small("digits_mlp", *assignments), f"tensorflow:mirrored{text},engine=keras")
    message = str(caught.value)
    assert "\n" not in message and any(word in message for word in ("; set", "; take", "; choose", "; leave"))
