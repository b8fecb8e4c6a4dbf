"""Rows of the law: a loss curve must not depend on where, and by what, a spec is trained."""

from __future__ import annotations

import numpy as np

from parity.common.parity.compare import Comparison
from parity.common.parity.deviation import curve_deviation, state_deviations
from parity.common.parity.rounding import FLOAT64
from parity.common.record import RunRecord, taps
from parity.common.state.canonical import parameter_fingerprint, parameter_specs
from parity.common.state.zero_gradient import zero_gradient_directions
from parity_tests.gpu.bench import Bench
from parity_tests.gpu.rows import Measured, NotPossibleError, row

STEPS = "steps=14"  # a little more than an epoch of 12 batches
# The steps of a run that stops, and goes on on the other device.
_STOPS_AT = 6
_SHOWN = {"loss curve": "loss", "first-step gradients": "gradients", "final state": "final state"}


def figures(comparison: Comparison) -> str:
    """'loss 3e-15, gradients 2e-15, final state 1e-14'."""
    found = {check.name: check.deviation for check in comparison.checks}
    return ", ".join(f"{short} {found[name]:.1e}" for name, short in _SHOWN.items() if name in found)


def judged(comparisons: dict[str, Comparison]) -> Measured:
    """What some comparisons show, by what each is of; passed where all are parity."""
    shown = "; ".join(f"{name} {figures(each)}".strip() for name, each in comparisons.items())
    failed = [(name, each) for name, each in comparisons.items() if each.verdict != "parity"]
    why = "; ".join(f"{name} {each.verdict}: {each.reason}".strip() for name, each in failed)
    return Measured(shown, why)


def _recipe_on_device(bench: Bench, recipe: str) -> Measured:
    spec = bench.spec(recipe, STEPS)
    return judged({"": bench.proof(bench.reference(spec), bench.candidate(spec))})


PROOF = "float64 proof limits: loss 1e-12"


@row("float64_cnn", "digits_cnn in float64, torch single: CPU against device", PROOF)
def float64_cnn(bench: Bench) -> Measured:
    return _recipe_on_device(bench, "digits_cnn")


@row("float64_transformer", "digits_transformer in float64, torch single: CPU against device", PROOF)
def float64_transformer(bench: Bench) -> Measured:
    return _recipe_on_device(bench, "digits_transformer")


@row("float64_text", "gpt2:tiny and lstm_classifier:tiny in float64, torch single: CPU against device", PROOF)
def float64_text(bench: Bench) -> Measured:
    found = {}
    for recipe in ("gpt2:tiny", "lstm_classifier:tiny"):
        spec = bench.spec(recipe, STEPS)
        found[recipe] = bench.proof(bench.reference(spec), bench.candidate(spec))
    return judged(found)


@row("frameworks", "digits_cnn and digits_transformer in float64: TensorFlow against torch, device", PROOF)
def frameworks(bench: Bench) -> Measured:
    bench.tensorflow()
    found = {}
    for recipe in ("digits_cnn", "digits_transformer"):
        spec = bench.spec(recipe, STEPS)
        found[recipe] = bench.proof(bench.candidate(spec, "tensorflow:mirrored:1"), bench.candidate(spec))
    return judged(found)


def _strategy(bench: Bench, name: str) -> Measured:
    counts = sorted({1, bench.gpus if bench.on_gpu else 2})
    spec = bench.spec("digits_cnn", STEPS)
    reference = bench.reference(spec)
    return judged(
        {f"x{n}": bench.proof(reference, bench.candidate(spec, f"torch:{name}:{n}")) for n in counts}
    )


@row("ddp", "digits_cnn in float64: DDP on each number of replicas against single on the CPU", PROOF)
def ddp(bench: Bench) -> Measured:
    return _strategy(bench, "ddp")


@row("fsdp2", "digits_cnn in float64: FSDP2 on each number of replicas against single on the CPU", PROOF)
def fsdp2(bench: Bench) -> Measured:
    if not bench.on_gpu and (old := bench.lacks["old_fsdp2"]):
        raise NotPossibleError(f"torch {old} has FSDP2 for GPUs alone, for CPUs from 2.7 on")
    return _strategy(bench, "fsdp2")


@row(
    "taps",
    "digits_transformer in float64 with taps and digests: taps of CPU against device; last digest against final state",
    "taps 1e-10, digest equal",
)
def tapped(bench: Bench) -> Measured:
    spec = bench.spec("digits_transformer", "steps=6")
    both = [made(spec, taps=True, digests=True) for made in (bench.reference, bench.candidate)]
    comparison = bench.proof(*both)
    ours, theirs = (taps.totals(each.taps) for each in both if each.taps is not None)
    ignored = {f"gradient/{name}" for name in zero_gradient_directions(spec)}
    apart = {name: float(taps.deviations(table, theirs[name]).max()) for name, table in ours.items()}
    worst = max(apart.keys() - ignored, key=apart.__getitem__)
    shown = judged({"": comparison})
    figure = f"{len(apart)} taps {apart[worst]:.1e} ({worst}); {shown.figure}"
    why = [shown.why] if shown.why else []
    if ours.keys() != theirs.keys() or apart[worst] > FLOAT64["gradient_norm"]:
        why.append(f"tap {worst} deviates by {apart[worst]:.2g}")
    why += [
        f"{each.label}: the last digest is not of the final state" for each in both if not _digested(each)
    ]
    return Measured(figure, "; ".join(why))


def _digested(record: RunRecord) -> bool:
    """Whether the digest after the last step is that of the parameters in the final state."""
    final, specs = record.state("final"), parameter_specs(record.spec)
    parameters = (final[name] for name, each in specs.items() if each.trainable)
    return record.fingerprints[0][-1] == parameter_fingerprint(parameters)


@row(
    "checkpoint",
    "digits_cnn in float64, saved at step 6 on one device, resumed on the other, both ways, against the whole run",
    "loss 1e-12, final state 1e-10",
)
def checkpoint(bench: Bench) -> Measured:
    spec = bench.spec("digits_cnn", STEPS)
    shown, why = [], []
    whole = bench.candidate(spec)
    ways = {
        "device to CPU": (bench.candidate, bench.reference),
        "CPU to device": (bench.reference, bench.candidate),
    }
    for name, (first, then) in ways.items():
        begun = first(spec, stop_at_step=_STOPS_AT, save={"every_steps": _STOPS_AT})
        rest = then(spec, resume=str(begun.folder / "checkpoints" / f"step_{_STOPS_AT:08d}"))
        losses = np.concatenate([begun.loss, rest.loss])
        if len(losses) != len(whole.loss):
            why.append(f"{name}: {len(losses)} steps, not {len(whole.loss)}")
            continue
        loss = float(curve_deviation(whole.loss, losses).max())
        final = max(state_deviations(whole.state("final"), rest.state("final")).values())
        shown.append(f"{name} loss {loss:.1e}, final state {final:.1e}")
        if loss > FLOAT64["loss_sum"] or final > FLOAT64["final"]:
            why.append(f"{name}: another curve")
    return Measured("; ".join(shown), "; ".join(why))


ROWS = (float64_cnn, float64_transformer, float64_text, frameworks, ddp, fsdp2, tapped, checkpoint)
