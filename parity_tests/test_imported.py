"""A user's own model as the one layer of a spec: trained natively on both sides, recorded in Keras's terms."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parity.common.base.errors import ExternalModelError, ParityError, RecordError, RunError, SpecError
from parity.common.base.rng import derive_key, normal
from parity.common.execution.checks import check_run
from parity.common.parity.budget import proof_budget
from parity.common.parity.compare import Comparison, compare
from parity.common.record import RunRecord
from parity.common.spec import Placement, RunConfig, TrainSpec, dump_json
from parity.common.spec.layers import Imported
from parity.common.state.canonical import State, initial_state, load_state, save_state
from parity.common.state.imported import state_adapter_of
from parity.common.state.zero_gradient import measured_zero_gradients
from parity_tests import imported_specs as models
from parity_tests.helpers.commands import Cli
from parity_tests.helpers.matrix import config, tensorflow, torch
from parity_tests.helpers.run_cache import RunCache
from parity_tests.test_resume import PROOF, deviation, going_on, saved_at, saving

TENSORFLOW, TORCH = tensorflow(2), torch("ddp", 2)
SLOW = pytest.mark.slow


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the weights files are."""
    return tmp_path_factory.mktemp("imported")


@pytest.fixture
def cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.chdir(tmp_path)
    return Cli(tmp_path, capsys)


def with_layer(spec: TrainSpec, **fields: Any) -> TrainSpec:
    """The spec with other fields of its imported layer."""
    data = spec.to_dict()
    data["model"]["layers"][0] |= fields
    return TrainSpec.parse(data)


def judged(reference: RunRecord, candidate: RunRecord) -> Comparison:
    return compare(reference, candidate, proof_budget(reference))


def trained(run_cache: RunCache, spec: TrainSpec, *placements: Placement) -> list[Comparison]:
    """The first placement's run against each of the others."""
    for placement in placements:
        run_cache.begin(spec, placement)
    first, *others = (run_cache.record(spec, placement) for placement in placements)
    return [judged(first, other) for other in others]


def agree(run_cache: RunCache, spec: TrainSpec, *placements: Placement) -> None:
    """All placements' runs are one: within the proof limits, and the losses within 1e-12."""
    for found in trained(run_cache, spec, *placements):
        assert found.verdict == "parity", (found.candidate, found.reason)
        assert found.loss_deviation.max() <= PROOF


def test_a_user_s_dense_net_trains_alike_on_both_sides(run_cache: RunCache, folder: Path) -> None:
    spec = models.mlp(folder)
    agree(run_cache, spec, TORCH, TENSORFLOW)
    record = run_cache.record(spec, TENSORFLOW)
    assert record.loss[-1] < record.loss[0]
    assert record.header.spec.model.layers == spec.resolved().model.layers
    # Comparing needs neither framework nor the user's code.
    loaded = {name.partition(".")[0] for name in sys.modules}
    assert not loaded & {"tensorflow", "torch"} and f"{models.KERAS}" not in sys.modules


ADAM = {"kind": "adam", "learning_rate": 0.01}
# A net, what else its spec says, and how it is run.
TRAININGS: dict[str, tuple[str, dict[str, Any], list[Placement]]] = {
    "batch norm": ("cnn", {}, [TORCH, torch("fsdp2", 2), TENSORFLOW]),
    "batch norm, an empty share": (
        "cnn",
        {"data": models.data((6, 6, 2)) | {"train_samples": 41}},
        [TORCH, TENSORFLOW],
    ),
    "batch norm, micro-batches": (
        "cnn",
        {},
        [torch("ddp", 2, accumulation=2), tensorflow(2, accumulation=2)],
    ),
    "one replica": ("mlp", {}, [torch("single", 1), TORCH, tensorflow(1)]),
    "images": ("masks", {"optimizer": ADAM}, [TORCH, torch("single", 1), TENSORFLOW]),
    "tokens": (
        "text",
        {},
        [TORCH, torch("single", 1), torch("fsdp1", 2), TENSORFLOW, tensorflow(2, strategy="multi_worker")],
    ),
    "decay and average": (
        "text",
        {
            "convention": "torch",
            "optimizer": {
                "kind": "adamw",
                "learning_rate": 0.01,
                "weight_decay": 0.1,
                "decay_mask": ["*/bias"],
                "clip_global_norm": 1.0,
                "ema": {"decay": 0.9},
            },
        },
        [TORCH, torch("zero_redundancy", 2), torch("fsdp1", 2), TENSORFLOW],
    ),
    "whole tensors": (
        "mlp",
        {"optimizer": {"kind": "lamb", "learning_rate": 0.01, "clip_norm": 0.5}, "loss": {"l2": 0.01}},
        [torch("manual", 2), TENSORFLOW],
    ),
    "several steps a call": ("mlp", {}, [torch("single", 1), tensorflow(2, steps_per_call=4)]),
}
for _, _settings, _ in TRAININGS.values():
    if "loss" in _settings:
        _settings["loss"] |= {"kind": "softmax_cross_entropy"}


IN_CI = ("batch norm",)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=SLOW if name in IN_CI else pytest.mark.exhaustive) for name in TRAININGS],
)
def test_user_s_models_train_alike(name: str, run_cache: RunCache, folder: Path) -> None:
    net, settings, placements = TRAININGS[name]
    agree(run_cache, getattr(models, net)(folder, **settings), *placements)


@SLOW
def test_parameters_that_nothing_uses_and_dropout_that_is_off(run_cache: RunCache, folder: Path) -> None:
    unused = models.layer(folder, models.ROWS["unused"], "Unused", "Unused", [3])
    agree(run_cache, models.spec(unused, (6,)), TORCH, torch("fsdp2", 2), TENSORFLOW)
    agree(run_cache, models.dropped(folder), TORCH, TENSORFLOW)


@SLOW
@pytest.mark.parametrize(
    ("torch_model", "arguments", "where"),
    [("CNN", {"epsilon": 1e-3}, ""), ("StockCNN", {}, "buffers/model/norm/moving_variance")],
    ids=["another epsilon", "another running variance"],
)
def test_a_port_that_is_another_is_divergent(
    torch_model: str, arguments: dict[str, Any], where: str, run_cache: RunCache, folder: Path
) -> None:
    spec = models.cnn(folder, torch_model, arguments)
    (found,) = trained(run_cache, spec, TENSORFLOW, TORCH)
    assert found.verdict == "divergent"
    first = found.first_failure
    assert first is not None
    if where:
        # Training does not see it: the curve is the same.
        assert (first.name, first.where) == ("final state", where)
    else:
        assert first.name == "first-step gradients"


@SLOW
def test_two_biases_that_are_both_trained_are_another_training(run_cache: RunCache, folder: Path) -> None:
    (found,) = trained(run_cache, models.text(folder, frozen=False), TENSORFLOW, TORCH)
    assert found.verdict == "divergent"
    assert {check.name for check in found.checks if not check.passed} >= {"loss curve", "gradient norm"}
    gradients = next(check for check in found.checks if check.name == "first-step gradients")
    assert gradients.passed, "each of the two has the gradient of Keras's one"


@SLOW
@pytest.mark.parametrize(
    ("begun", "continued"),
    [(TORCH, TENSORFLOW), (TENSORFLOW, TORCH)],
    ids=["torch to tensorflow", "tensorflow to torch"],
)
def test_a_run_goes_on_in_the_other_framework(
    begun: Placement, continued: Placement, run_cache: RunCache, folder: Path
) -> None:
    """With what differs most: batch norm's buffers of each replica, and slots of joined tensors."""
    for spec in (models.cnn(folder), models.text(folder, optimizer=ADAM)):
        saved = run_cache.record(spec, saving(begun))
        part = run_cache.record(spec, going_on(continued, saved_at(saved)))
        null = {name for name in saved.state("final") if name.endswith("attend/key/bias")}
        whole = run_cache.record(spec, continued)
        assert deviation(_without(whole, null), _without(part, null)) < PROOF


def _without(record: RunRecord, names: set[str]) -> RunRecord:
    """The record with a final state that lacks some tensors."""
    read = record.state

    def state(which: Any) -> State:
        return {name: value for name, value in read(which).items() if name not in names}

    object.__setattr__(record, "state", state)
    return record


# A layer's fields, and what is said of it where it is built.
BROKEN: dict[str, tuple[dict[str, Any], str, tuple[str, ...]]] = {
    "torch model fails": ({"torch": f"{models.TORCH}:fails"}, "torch", ("no such weights", "torch_nets.py:")),
    "keras model fails": (
        {"keras": f"{models.KERAS}:fails"},
        "tensorflow",
        ("no such weights", "keras_nets.py:"),
    ),
    "no such torch model": ({"torch": f"{models.TORCH}:Nets"}, "torch", ("Nets",)),
    "no such keras module": ({"keras": "no_such_package.models:build"}, "tensorflow", ("no_such_package",)),
    "torch dropout": ({"torch": f"{models.TORCH}:Dropped"}, "torch", ("drop", "0.5", "stochastic: off")),
    "keras dropout": ({"keras": f"{models.KERAS}:dropped"}, "tensorflow", ("drop", "0.5", "stochastic: off")),
    "two torch inputs": (
        {"torch": f"{models.TORCH}:TwoInputs"},
        "torch",
        ("TwoInputs takes the inputs left, right", "wraps"),
    ),
    "two keras inputs": ({"keras": f"{models.KERAS}:two_inputs"}, "tensorflow", ("left, right", "wraps")),
    "another torch name": ({"torch": f"{models.TORCH}:Lacking"}, "torch", ("Lacking", "middle.weight")),
    "another keras name": (
        {"keras": f"{models.KERAS}:dropped", "stochastic": "off"},
        "tensorflow",
        ("dropped has a variable", "keras_tensors lack"),
    ),
    "another torch shape": ({"torch_arguments": {"units": 9}}, "torch", ("first.weight", "(9, 6)", "(8, 6)")),
    "another keras shape": (
        {"keras_arguments": {"units": 9}},
        "tensorflow",
        ("first/kernel", "(6, 9)", "(6, 8)"),
    ),
    "unknown argument": ({"torch_arguments": {"width": 9}}, "torch", ("width", "units")),
    "another output": ({"output": [5]}, "torch", ("(2, 3)", "(2, 5)")),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW) for name in BROKEN])
def test_a_model_that_cannot_be_trained_is_one_line(name: str, run_cache: RunCache, folder: Path) -> None:
    fields, framework, words = BROKEN[name]
    spec = with_layer(models.mlp(folder), **fields)
    placement = TENSORFLOW if framework == "tensorflow" else TORCH
    with pytest.raises(RunError) as caught:
        run_cache.record(spec, placement)
    text = str(caught.value)
    assert all(word in text for word in words), text
    assert "\n" not in text and "Traceback" not in text


@SLOW
def test_regularizers_and_several_outputs_are_named(run_cache: RunCache, folder: Path) -> None:
    one = models.ROWS["one"]
    penalised = models.spec(models.layer(folder, one, "penalised", "Last", [3]), (6,))
    with pytest.raises(RunError, match=r"penalised adds 1 terms to the loss .* loss\.l2"):
        run_cache.record(penalised, TENSORFLOW)
    rows = [*one, *models.dense("more", 6, 2)]
    unchosen = with_layer(
        models.spec(models.layer(folder, one, "two_outputs", "Last", [3]), (6,)),
        torch_arguments={"outputs": 2},
    )
    for placement, field in ((TENSORFLOW, "keras_output"), (TORCH, "torch_output")):
        with pytest.raises(RunError, match=rf"gives 0, 1; name the output .* {field}"):
            run_cache.record(unchosen, placement)
    chosen = with_layer(
        models.spec(models.layer(folder, one, "two_outputs", "Last", [3]), (6,)),
        torch_arguments={"outputs": 2},
        keras_output="0",
        torch_output="1",
        keras_tensors=[
            t | {"trainable": t["name"] in dict.fromkeys(r[0] for r in one)} for t in models.tensors(rows, 0)
        ],
    )
    agree(run_cache, chosen, TORCH, TENSORFLOW)


def test_the_canonical_state_is_keras_s_and_goes_to_torch_and_back(folder: Path) -> None:
    for spec in (models.mlp(folder), models.cnn(folder), models.text(folder, optimizer=ADAM)):
        state = {
            name: normal(derive_key(1, name), value.shape) if value.shape else value
            for name, value in initial_state(spec).items()
        }
        exchange = state_adapter_of(spec.resolved())
        assert exchange is not None
        native = exchange.to_native(state)
        specs = exchange.specs
        assert {n: v.shape for n, v in native.items() if n in specs} == {n: p.shape for n, p in specs.items()}
        back = exchange.to_canonical(native)
        assert back.keys() == state.keys()
        assert all(back[name].tobytes() == state[name].tobytes() for name in state)
        # A part of a state is that part of the other.
        buffers = {name: value for name, value in native.items() if name.startswith("buffers/")}
        part = exchange.to_canonical(buffers)
        assert all(part[name].tobytes() == state[name].tobytes() for name in part)


def test_slots_of_two_biases_are_of_gradients_and_their_average_of_values(folder: Path) -> None:
    spec = models.text(folder, frozen=False, optimizer={**ADAM, "ema": {"decay": 0.9}}).resolved()
    exchange, bias = state_adapter_of(spec), "model/lstm/lstm_cell/bias"
    assert exchange is not None
    state = initial_state(spec)
    for kind in ("first_moment", "average"):
        state[f"slots/{kind}/{bias}"] = np.arange(32.0)
    native = exchange.to_native(state)
    one, other = (
        [native[f"slots/{k}/lstm.bias_{s}_l0"] for s in ("ih", "hh")] for k in ("first_moment", "average")
    )
    assert np.array_equal(one[0], np.arange(32.0)) and np.array_equal(one[1], np.arange(32.0))
    assert np.array_equal(other[0] + other[1], np.arange(32.0))
    back = exchange.to_canonical(native)
    assert all(np.array_equal(back[name], state[name]) for name in state)


def test_initial_values_are_those_of_the_weights_file(folder: Path) -> None:
    spec = models.mlp(folder)
    held = load_state(Path(spec.model.layers[0].weights))
    state = initial_state(spec)
    assert {name.removeprefix("parameters/model/") for name in state if name.startswith("p")} == held.keys()
    assert all(np.array_equal(state[f"parameters/model/{name}"], value) for name, value in held.items())
    single = initial_state(spec.model_copy(update={"precision": "float32"}))
    assert single["parameters/model/first/bias"].dtype == np.float32


def _spoiled(spec: TrainSpec, path: Path, change: Any) -> TrainSpec:
    """The spec with a weights file whose tensors `change` has been at, and the right SHA-256 of it."""
    state = dict(load_state(Path(spec.model.layers[0].weights)))
    change(state)
    save_state(path, state)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return with_layer(spec, weights=str(path), sha256=digest)


def test_a_weights_file_that_is_wrong_is_one_line(folder: Path, tmp_path: Path) -> None:
    spec, path = models.mlp(folder), tmp_path / "weights.safetensors"

    def refused(spec: TrainSpec, kind: type[ParityError]) -> str:
        with pytest.raises(kind) as caught:
            initial_state(spec)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "is missing" in refused(with_layer(spec, weights=str(path)), SpecError)
    assert "is no file" in refused(with_layer(spec, weights=str(tmp_path)), SpecError)
    wrong = refused(with_layer(spec, sha256="0" * 64), SpecError)
    assert "0" * 64 in wrong and spec.model.layers[0].sha256 in wrong
    lacking = refused(_spoiled(spec, path, lambda state: state.pop("last/bias")), RecordError)
    assert "lacks 'last/bias'" in lacking
    foreign = refused(_spoiled(spec, path, lambda state: state.update(extra=np.zeros(2))), RecordError)
    assert "foreign tensor 'extra'" in foreign
    shaped = refused(_spoiled(spec, path, lambda s: s.update({"last/bias": np.zeros(4)})), RecordError)
    assert "(4,)" in shaped and "(3,)" in shaped
    typed = refused(
        _spoiled(spec, path, lambda s: s.update({"last/bias": np.zeros(3, np.int64)})), RecordError
    )
    assert "int64" in typed
    damaged = _spoiled(spec, path, lambda state: None)
    path.write_bytes(path.read_bytes()[:-8])
    assert "SHA-256" in refused(damaged, SpecError)
    cut = with_layer(damaged, sha256=hashlib.sha256(path.read_bytes()).hexdigest())
    assert "not a whole safetensors file" in refused(cut, RecordError)


def _layer_of(spec: TrainSpec) -> dict[str, Any]:
    return spec.to_dict()["model"]["layers"][0]


def test_a_layer_that_does_not_fit_is_one_line(folder: Path) -> None:
    spec = models.mlp(folder)
    pairs, ours = _layer_of(spec)["mapping"], _layer_of(spec)["keras_tensors"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"keras": "my_pkg.models"}, "keras"),
        ({"mapping": pairs[1:]}, "'first/kernel'"),
        ({"mapping": [*pairs, pairs[0]]}, "'first/kernel' twice"),
        ({"mapping": [*pairs, {"keras": ["x"], "rule": "same"}]}, "'x'"),
        ({"keras_tensors": [*ours, ours[0]]}, "twice"),
        ({"keras_tensors": [{**each, "buffer": True} for each in ours]}, "buffer"),
        ({"torch_layout": "channels_first"}, "channels_first"),
        ({"sha256": "abc"}, "sha256"),
    ]
    for fields, word in wrong:
        with pytest.raises(SpecError) as caught:
            with_layer(spec, **fields)
        assert word in str(caught.value) and "\n" not in str(caught.value), str(caught.value)
    data = spec.to_dict()
    data["model"]["layers"].append({"kind": "dense", "units": 3})
    with pytest.raises(SpecError, match="must be the only layer"):
        TrainSpec.parse(data)
    inside = spec.to_dict()
    inside["model"]["layers"] = [{"kind": "sequential", "layers": inside["model"]["layers"]}]
    with pytest.raises(SpecError, match="must be the only layer"):
        TrainSpec.parse(inside)


def test_pairs_that_do_not_fit_are_one_line(folder: Path) -> None:
    spec = models.mlp(folder)
    pairs, ours = _layer_of(spec)["mapping"], _layer_of(spec)["keras_tensors"]
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"mapping": [{**pairs[0], "rule": "same"}, *pairs[1:]]}, r"\(6, 8\).*\(8, 6\)"),
        ({"mapping": [{**pairs[0], "rule": "transposed"}, *pairs[1:]]}, "transpose"),
        ({"keras_tensors": [{**ours[0], "trainable": False}, *ours[1:]]}, "only some of them are trainable"),
    ]
    for fields, word in wrong:
        with pytest.raises(SpecError, match=word):
            check_run(with_layer(spec, **fields), TORCH)


REFUSED: dict[str, tuple[dict[str, Any], Placement | RunConfig, str]] = {
    "taps": ({}, config(torch("ddp", 2), taps=True), "cannot be tapped.*parity pair"),
    "tensor parallel": ({}, torch("tensor_parallel", 2), "tensor_parallel"),
    "keras fit": ({}, tensorflow(2, engine="keras"), "engine 'keras'"),
    "lightning": ({}, torch("ddp", 2, engine="lightning"), "engine 'lightning'"),
    "compiled": ({}, torch("ddp", 2, compile=True), "compile"),
    "sharded checkpoints": ({}, saving(torch("fsdp2", 2), sharded=True), "save.sharded"),
    "low precision": ({"precision": "bfloat16_mixed"}, TORCH, "bfloat16_mixed"),
    "muon": ({"optimizer": {"kind": "muon", "learning_rate": 0.1}}, TORCH, "muon"),
    "adafactor": ({"optimizer": {"kind": "adafactor", "learning_rate": 0.1}}, TENSORFLOW, "first/kernel"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_an_imported_model_cannot_have_is_one_line(name: str, folder: Path) -> None:
    fields, placement, word = REFUSED[name]
    spec = models.mlp(folder, **fields).resolved()
    with pytest.raises(SpecError, match=word) as caught:
        check_run(spec, *config(placement).parts)
    assert "\n" not in str(caught.value)


def test_joined_tensors_are_clipped_and_decay_together_or_not_at_all(folder: Path) -> None:
    def check(**optimizer: Any) -> None:
        given = {"kind": "sgd", "learning_rate": 0.1, **optimizer}
        check_run(models.text(folder, optimizer=given).resolved(), TORCH)

    check(weight_decay=0.1, decay_mask=["*/bias"])
    with pytest.raises(SpecError, match=r"attend/query/kernel.*only some of"):
        check(weight_decay=0.1, decay_mask=["*/query/kernel"])
    check(clip_value=0.1)
    with pytest.raises(SpecError, match=r"clip_norm 0\.1 looks at whole tensors, and attend/query"):
        check(clip_norm=0.1)
    penalised = models.text(folder, loss={"kind": "softmax_cross_entropy", "l2": 0.1, "penalize": "matrices"})
    with pytest.raises(SpecError, match="attend/query/bias"):
        check_run(penalised.resolved(), TORCH)


def test_null_directions_are_found_from_gradients(folder: Path) -> None:
    layer = models.text(folder).model.imported
    assert layer is not None
    gradients = {t.name: np.ones(t.shape) for t in layer.keras_tensors if t.trainable}
    gradients["attend/key/bias"] = np.full((2, 4), 1e-17)
    gradients["head/bias"] = np.zeros(
        3
    )  # of a layer behind a scale that begins at zero it may be no more later
    assert list(measured_zero_gradients(gradients)) == ["attend/key/bias"]


def test_the_commands_know_such_a_spec(cli: Cli, folder: Path) -> None:
    spec = models.cnn(folder)
    path = cli.folder / "spec.json"
    path.write_text(dump_json(spec))
    code, out, _ = cli("show", "--spec", path)
    assert code == 0 and "imported" in out and "model" in out
    for format in ("yaml", "json"):
        assert cli("show", "--spec", path, "--format", format)[0] == 0
    assert TrainSpec.parse(spec.to_dict()).content_hash() == spec.content_hash()
    said = cli.refused("advise", "--spec", path, "--gpus", "2", "--gpu-memory", "1GB")
    assert "parity advise: the model is imported" in said


@pytest.mark.exhaustive
def test_a_diagnosis_and_an_export_say_what_to_do_instead(
    run_cache: RunCache, folder: Path, cli: Cli
) -> None:
    spec = models.mlp(folder)
    ours, theirs = (run_cache.record(spec, placement).folder for placement in (TENSORFLOW, TORCH))
    assert "an .npz file" in cli.refused("diagnose", ours, theirs)
    for kind, name in (("keras", "m.keras"), ("state_dict", "m.pt")):
        said = cli.refused("checkpoint", "export", ours, "--to", kind, "--out", cli.folder / name)
        assert "parity export" in said


def test_an_imported_layer_is_hashed_and_equal_by_what_it_says(folder: Path) -> None:
    one, other = (models.mlp(folder).model.layers[0] for _ in range(2))
    assert isinstance(one, Imported) and one == other and hash(one) == hash(other)
    changed = with_layer(models.mlp(folder), torch_arguments={"units": 9}).model.layers[0]
    assert changed != one and hash(changed) != hash(one)


def test_errors_of_mappings_name_their_tensors(folder: Path) -> None:
    """Values that no Keras tensor can have: copies that have come apart."""
    layer = {
        **_layer_of(models.spec(models.layer(folder, models.ROWS["one"], "mlp", "Last", [3]), (6,))),
    }
    layer["torch_tensors"].append({"name": "again.bias", "shape": [3]})
    layer["mapping"][1] = {"keras": ["last/bias"], "torch": ["last.bias", "again.bias"], "rule": "copies"}
    spec = models.spec(layer, (6,)).resolved()
    exchange = state_adapter_of(spec)
    assert exchange is not None
    native = dict(exchange.to_native(initial_state(spec)))
    assert exchange.to_canonical(native).keys() == initial_state(spec).keys()
    native["parameters/again.bias"] = np.ones(3)
    with pytest.raises(ExternalModelError, match=r"last/bias, last\.bias, again\.bias"):
        exchange.to_canonical(native)


@pytest.mark.exhaustive
def test_a_package_in_the_user_s_folder_is_found_by_every_process(tmp_path: Path) -> None:
    """In float32, whose noise is measured; with phases timed; ranks and workers of their own."""
    package = tmp_path / "my_pkg"
    package.mkdir()
    here = Path(__file__).parent / "external_models"
    for name, source in (("models", "keras_nets"), ("port", "torch_nets")):
        (package / f"{name}.py").write_text((here / f"{source}.py").read_text(encoding="utf-8"))
    spec = models.masks(tmp_path, precision="float32", steps=8)
    layer = {"keras": "my_pkg.models:masks", "torch": "my_pkg.port:Masks", "weights": "weights.safetensors"}
    Path(spec.model.layers[0].weights).rename(tmp_path / "weights.safetensors")
    (tmp_path / "spec.json").write_text(dump_json(with_layer(spec, **layer)), encoding="utf-8")
    command = [str(Path(sys.executable).parent / "parity"), "run", "--spec", "spec.json", "--out", "out"]
    for placement in ("torch:ddp:2", "tensorflow:mirrored:2", "tensorflow:multi_worker:2"):
        command += ["--placement", placement]
    done = subprocess.run(
        [*command, "--timing-rounds", "1"], cwd=tmp_path, capture_output=True, text=True, timeout=580
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "✓ parity" in done.stdout and done.stdout.count("✓ tensorflow") == 2
