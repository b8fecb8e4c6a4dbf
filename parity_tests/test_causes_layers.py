"""What a layer does instead is named: single layers, each after a reshape of the digits to (8, 8), tried in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parity.common.data.plan import BatchPlan
from parity.common.diagnosis.explain.case import Case, TracedStep
from parity.common.diagnosis.explain.causes import explain
from parity.common.diagnosis.explain.counterfactuals import Counterfactuals, Variant
from parity.common.diagnosis.explain.signatures import layers
from parity.common.diagnosis.result import Finding, TensorComparison
from parity.common.execution.worker import Worker, Workers
from parity.common.record.trace import Trace
from parity.common.spec import override, walk
from parity.common.spec.instrumentation import Replay
from parity.common.state.canonical import State, canonical_name
from parity_tests.helpers.numpy_trainer import SPEC, placement
from parity_tests.helpers.run_cache import GivenWorkers
from parity_tests.test_causes import ALL, NumpyLab


@dataclass(frozen=True)
class Wrong:
    """A layer that does something else. changed: another trial of it; output: what is done with what it makes."""

    layer: str
    cause: str | None
    changed: Callable[[Variant], Variant] = lambda variant: variant
    output: Callable[[Any, Variant], Any] = lambda y, variant: y
    split: bool = False
    confidence: str = "confirmed"


def with_fields(**fields: Any) -> Callable[[Variant], Variant]:
    return lambda variant: replace(variant, layer=variant.layer.model_copy(update=fields))


def with_tensors(change: Callable[[str, Any], Any]) -> Callable[[Variant], Variant]:
    def changed(variant: Variant) -> Variant:
        tensors = {n: change(n.rpartition("/")[2], v) for n, v in variant.tensors.items()}
        return replace(variant, tensors=tensors)

    return changed


def _swapped(name: str, value: Any) -> Any:
    i, f, c, o = np.split(value, 4, axis=-1)
    return np.concatenate([i, c, f, o], axis=-1)


def _by_place(variant: Variant) -> Variant:
    return replace(variant, ids=np.arange(len(variant.x)))


def _attended_up_to(shift: int) -> Callable[[Any, Variant], Any]:
    def output(y: Any, variant: Variant) -> Any:
        del y
        own = {n.rpartition("/")[2]: v for n, v in variant.tensors.items()}

        def heads(part: str) -> Any:
            flat = variant.x @ own[f"{part}_kernel"] + own[f"{part}_bias"]
            return flat.reshape(len(flat), 8, 2, 4).transpose(0, 2, 1, 3)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = np.exp(query @ key.transpose(0, 1, 3, 2) / 2) * np.tril(np.ones((8, 8)), shift)
        mixed = scores / scores.sum(-1, keepdims=True) @ value
        return (
            mixed.transpose(0, 2, 1, 3).reshape(len(mixed), 8, 8) @ own["output_kernel"] + own["output_bias"]
        )

    return output


ATTENTION = "kind: self_attention, heads: 2, causal: true"
WRONG = {
    "epsilon": Wrong("kind: layer_norm", "setting:epsilon", with_fields(epsilon=1e-3)),
    # Fitted numbers, at one step.
    "an unusual epsilon": Wrong(
        "kind: layer_norm", "setting:epsilon", with_fields(epsilon=3.3e-4), confidence="likely"
    ),
    "function": Wrong(
        "kind: activation, function: gelu", "setting:function", with_fields(function="gelu_tanh")
    ),
    "slope": Wrong(
        "kind: activation, function: leaky_relu", "setting:negative_slope", with_fields(negative_slope=0.3)
    ),
    "decay": Wrong("kind: batch_norm", "setting:decay", with_fields(decay=0.01)),
    "an unusual decay": Wrong(
        "kind: batch_norm", "setting:decay", with_fields(decay=0.7654), confidence="likely"
    ),
    "statistics": Wrong("kind: batch_norm", "setting:statistics", split=True),
    "inference": Wrong("kind: batch_norm", "trained_in_inference_mode", lambda v: replace(v, training=False)),
    "transposed": Wrong(
        "kind: dense, units: 8", "kernel_transposed", with_tensors(lambda n, v: v.T if n == "kernel" else v)
    ),
    "flipped": Wrong(
        "kind: conv1d, filters: 3",
        "kernel_flipped",
        with_tensors(lambda n, v: v[::-1] if n == "kernel" else v),
    ),
    "gates": Wrong("kind: lstm, units: 3", "gates_swapped", with_tensors(_swapped)),
    "bias twice": Wrong(
        "kind: dense, units: 5", "bias_doubled", with_tensors(lambda n, v: 2 * v if n == "bias" else v)
    ),
    "no bias": Wrong(
        "kind: dense, units: 5", "bias_missing", with_tensors(lambda n, v: 0 * v if n == "bias" else v)
    ),
    "padding": Wrong(
        "kind: conv1d, filters: 3, strides: 2, same_by: stride",
        "padding_side",
        lambda v: replace(
            with_tensors(lambda n, k: k[::-1] if n == "kernel" else k)(v), x=v.x[:, ::-1], dy=None
        ),
        lambda y, v: y[:, ::-1],
    ),
    "masks": Wrong("kind: dropout, rate: 0.5", "masks_same_on_every_replica", _by_place, split=True),
    "other masks": Wrong("kind: dropout, rate: 0.5", "masks_differ", lambda v: replace(v, seed=77)),
    "off by one": Wrong(ATTENTION, "mask_off_by_one", output=_attended_up_to(1)),
    "no mask, with dropout": Wrong(f"{ATTENTION}, dropout: 0.2", "mask_missing", with_fields(causal=False)),
    "no mask": Wrong(ATTENTION, "mask_missing", with_fields(causal=False)),
    "columns": Wrong("kind: dense, units: 5", "features_permuted", output=lambda y, v: y[..., ::-1]),
    "axes": Wrong("kind: dense, units: 8", "axes_swapped", output=lambda y, v: y.transpose(0, 2, 1)),
    "float32": Wrong(
        "kind: layer_norm", "float32_leak", output=lambda y, v: y.astype(np.float32).astype(np.float64)
    ),
    "a little off": Wrong(
        "kind: layer_norm", "float32_leak", output=lambda y, v: y + 3e-8 * np.sin(9 * y), confidence="likely"
    ),
    "something else": Wrong("kind: layer_norm", None, output=lambda y, v: np.sin(y)),
    "a factor": Wrong(
        "kind: activation, function: relu",
        "scaled_by_constant",
        output=lambda y, v: 1.01 * y,
        confidence="likely",
    ),
    "a factor near 1": Wrong(
        "kind: activation, function: relu",
        "scaled_by_constant",
        output=lambda y, v: (1 + 5e-7) * y,
        confidence="likely",
    ),
    "a factor through float32": Wrong(
        "kind: activation, function: relu", "float32_leak", output=lambda y, v: (1 + 3e-8) * y
    ),
    "a factor and more": Wrong("kind: layer_norm", None, output=lambda y, v: 1.01 * y + 1e-3),
    # The output is right: nothing that an output can show explains it.
    "a moved mean": Wrong(
        "kind: batch_norm", None, with_tensors(lambda n, v: v + 1e-3 if n == "moving_mean" else v)
    ),
    "nothing": Wrong("kind: layer_norm", None, output=lambda y, v: y),
}


class TorchLab:
    """Layers tried in PyTorch."""

    def __init__(self, replayer: Workers, folder: Path) -> None:
        placements = (placement(1), placement(2))
        self.trial = Counterfactuals(replayer, folder, SPEC, placements, (None, None), Replay(stop=0)).trial


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TorchLab]:
    folder = tmp_path_factory.mktemp("lab")
    with Worker("torch", 1, folder / "log") as worker:
        yield TorchLab(GivenWorkers(lambda _: worker), folder)


def of_layer(wrong: Wrong, lab: TorchLab, step: int = 1, right_on: int | None = None) -> Case:
    """The evidence of a step of which one layer was seen, on two replicas; `right_on`: one whose buffers are right."""
    layers = f"[{{kind: reshape, shape: [8, 8]}}, {{name: tried, {wrong.layer}}}, {{kind: flatten}}, {{kind: dense, units: 10}}]"
    spec = override(SPEC, [f"model.layers={layers}", "convention=torch"]).resolved()
    node = next(node for node in walk(spec.model.tree()) if node.path == "tried")
    random = np.random.default_rng(3 + step)
    plan = BatchPlan.of(spec, placement(2))
    ids = np.sort(plan.global_ids(step))
    tensors = {canonical_name("tried", p): np.abs(random.normal(size=p.shape)) + 0.1 for p in node.parameters}
    x = random.normal(size=(len(ids), 8, 8))
    dy = random.normal(size=(len(ids), *node.output_shape))
    plain = Variant(node.spec, "tried", (8, 8), x, tensors, dy, ids, step=step, seed=spec.seed)
    shares = [np.searchsorted(ids, plan.local_ids(step, r)) for r in range(2)]

    def cut(variant: Variant, rows: Any) -> Variant:
        return replace(variant, x=variant.x[rows], dy=dy[rows], ids=ids[rows])

    asked = [wrong.changed(cut(plain, rows)) for rows in shares] if wrong.split else [wrong.changed(plain)]
    due, *made = lab.trial([plain, *asked])
    ys = (
        [part["y"] for part in made]
        if wrong.split
        else [wrong.output(made[0]["y"], plain)[rows] for rows in shares]
    )

    def state(rows: Any, y: Any, result: State) -> State:
        found = {
            "ids": ids[rows],
            "inputs": x[rows],
            "forward/reshape": x[rows],
            "forward/tried": y,
            "backward/tried": dy[rows],
        }
        found |= {f"before/{name}": value for name, value in tensors.items()}
        return found | {n: v for n, v in result.items() if n.startswith("after/")}

    ref = Trace((state(np.arange(len(ids)), due["y"], due),))
    forced = Trace(
        tuple(
            state(rows, y, due if replica == right_on else made[0])
            for replica, (rows, y) in enumerate(zip(shares, ys, strict=True))
        ),
        tuple(ids[rows] for rows in shares),
    )
    off = not np.array_equal(ref.rows("forward/tried"), forced.rows("forward/tried"))
    buffers = [n for n in due if n.startswith("after/") and not np.array_equal(due[n], made[0][n])]
    stage, name = ("forward", "forward/tried") if off or not buffers else ("buffers", buffers[0])
    seen = TensorComparison(name, None, 1.0, 1e-12)
    injections = [{"ids": ids[rows]} for rows in shares]
    finding = Finding(step, stage, name, (0, 1), (seen,), ())
    allowed, layers_ = 1e-12, {"reshape": "inputs", "tried": "forward/reshape"}
    return Case(
        spec,
        placement(1),
        placement(2),
        step,
        ref,
        forced,
        injections,
        None,
        (),
        finding,
        allowed,
        layers_,
        lab,
    )


@pytest.mark.parametrize("name", WRONG)
def test_what_a_layer_does_instead_is_named(name: str, lab: TorchLab) -> None:
    wrong = WRONG[name]
    why = explain(of_layer(wrong, lab))
    assert (why and why.cause) == wrong.cause, why
    if why is not None:
        assert (why.confidence, why.culprit) == (wrong.confidence, placement(2).label), why


@pytest.mark.parametrize(
    ("made", "missing", "scaled"),
    [((0.0, 0.0), True, False), ((0.0, 1.0), False, False), ((0.5, 0.5), False, True)],
)
def test_where_nothing_flows_back_it_is_no_factor(
    made: tuple[float, float], missing: bool, scaled: bool, lab: TorchLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = np.arange(1.0, 4.0)
    wrong = {name: (due, factor * due) for name, factor in zip(("dx", "gradient/kernel"), made, strict=True)}
    monkeypatch.setattr(layers, "wrong_gradients", lambda case: wrong)
    case = of_layer(WRONG["nothing"], lab)
    assert (layers.gradients_missing(case) is not None) == missing
    assert (layers.gradients_scaled(case) is not None) == scaled


def test_a_number_holds_at_other_steps_and_on_all_replicas(lab: TorchLab) -> None:
    def said(wrong: Wrong, there: Wrong) -> tuple[str, str] | None:
        case, other = of_layer(wrong, lab), of_layer(there, lab, step=2)
        step = TracedStep(2, other.ref, other.injected, other.finding)
        why = explain(replace(case, others=[step]))
        return why and (why.cause, why.confidence)

    norm, mean = WRONG["an unusual epsilon"], WRONG["an unusual decay"]
    assert said(norm, norm) == ("setting:epsilon", "confirmed")
    assert said(norm, replace(norm, changed=with_fields(epsilon=4.4e-4))) is None
    assert said(mean, mean) == ("setting:decay", "likely"), "nobody writes it"
    assert said(WRONG["transposed"], WRONG["transposed"]) == ("kernel_transposed", "confirmed")
    assert said(WRONG["transposed"], replace(WRONG["columns"], layer="kind: dense, units: 8")) is None
    assert explain(of_layer(WRONG["decay"], lab, right_on=1)) is None
    assert explain(of_layer(WRONG["decay"], lab)) is not None


def test_the_odd_one_is_told_whichever_side_it_is_on(lab: TorchLab) -> None:
    evidence = of_layer(WRONG["epsilon"], lab)
    turned = replace(
        evidence,
        reference=evidence.candidate,
        candidate=evidence.reference,
        ref=evidence.injected,
        injected=evidence.ref,
        injections=[{"ids": evidence.ref.replicas[0]["ids"]}],
    )
    why = explain(turned)
    assert why is not None
    assert (why.cause, why.culprit) == ("setting:epsilon", placement(2).label)


def test_neither_is_blamed_where_both_frameworks_layers_do_as_the_runs_did(lab: TorchLab) -> None:
    """One framework's layer norm doubles every epsilon: as well, the other's may halve it."""

    def trial(variants: list[Variant], side: str) -> list[State | None]:
        def doubled(variant: Variant) -> Variant:
            layer = variant.layer
            return replace(variant, layer=layer.model_copy(update={"epsilon": 2 * layer.epsilon}))

        return lab.trial([doubled(v) if side == "reference" else v for v in variants])

    wrong = Wrong("kind: layer_norm", "setting:epsilon", with_fields(epsilon=2e-5))
    case = of_layer(wrong, lab)
    other = case.reference.model_copy(update={"framework": "tensorflow"})
    turned = replace(case, reference=other, candidate=case.reference, ref=case.injected, injected=case.ref)
    turned = replace(turned, injections=[{"ids": case.ref.replicas[0]["ids"]}])
    why = explain(replace(turned, experiments=SimpleNamespace(trial=trial)))  # type: ignore[arg-type]
    assert why is not None
    assert (why.cause, why.confidence, why.culprit) == ("setting:epsilon", "likely", "")


@pytest.mark.parametrize("name", ["each its own", "one not summed", "means of unequal shares", "averaged"])
def test_shares_of_sharded_parameters_are_those_of_their_layers(name: str, lab: TorchLab) -> None:
    wanted = ALL[name]
    (evidence,) = wanted.evidence()
    states = evidence.injected.replicas
    bare = tuple({n: v for n, v in s.items() if not n.startswith("local_gradient/")} for s in states)
    tools = NumpyLab(wanted)
    tools.trial = lab.trial  # type: ignore[method-assign]
    why = explain(replace(evidence, injected=replace(evidence.injected, replicas=bare), experiments=tools))
    assert why is not None
    assert (why.cause, why.confidence) == (wanted.cause, "confirmed")
