"""The adviser's estimates beside what was measured, and the table of both in docs/explanation/adviser.md.

python -m parity_tests.tables.adviser docs/explanation/adviser.md
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from parity.common import recipes, reference
from parity.common.execution.ranks import run_ranks
from parity.common.planning.adviser.memory import blocks_of, estimate
from parity.common.planning.adviser.passes import batch_bytes, passes
from parity.common.spec import Placement, TrainSpec, override
from parity_tests.peers import Peer

# (recipe, further overrides)
CASES = [
    ("digits_mlp", ""),
    ("digits_cnn", ""),
    ("digits_transformer", ""),
    ("digits_transformer", "precision=bfloat16_mixed"),
    ("lenet5:tiny", ""),
    ("resnet20:tiny", "precision=float32"),
    ("resnet50:tiny", ""),
    ("mobilenet_v2:tiny", ""),
    ("unet:tiny", ""),
    ("autoencoder:tiny", ""),
    ("vit_tiny:tiny", ""),
    ("gpt2:tiny", ""),
    ("bert_base:tiny", ""),
    ("wide_and_deep:tiny", ""),
    ("lstm_classifier:tiny", ""),
    ("gru_tagger:tiny", ""),
]
RANKS = [
    "torch:ddp:2",
    "torch:manual:2",
    "torch:zero_redundancy:2",
    "torch:fsdp1:2",
    "torch:fsdp2:2",
    "torch:fsdp2:2,wrap=blocks",
    "torch:tensor_parallel:1",
]
SAMPLES = 32
_BEGIN, _END = "<!-- measured -->\n", "<!-- end of measured -->\n"


@dataclass(frozen=True)
class Seen:
    """Estimated and measured bytes by name."""

    estimated: dict[str, int]
    measured: dict[str, int]

    def off(self, name: str) -> float:
        """How far an estimate is above what was measured, relatively."""
        return self.estimated[name] / self.measured[name] - 1


def spec_of(recipe: str, *overrides: str) -> TrainSpec:
    """A recipe with a batch of SAMPLES."""
    given = [f"global_batch_size={SAMPLES}", *filter(None, overrides)]
    return override(recipes.get(recipe), given).resolved()


def one_process(peer: Peer, spec: TrainSpec, accumulation: int = 1, checkpoint: bool = False) -> Seen:
    """A step on one replica."""
    facts = {"spec": spec.to_dict(), "scalars": dict(reference.StepScalars(spec).scalars(0))}
    facts |= {"accumulation": accumulation, "checkpoint": checkpoint}
    measured = {name: int(array) for name, array in peer("memory:measure", facts, {}).items()}
    samples = -(-SAMPLES // accumulation)
    paths = frozenset(block.path for block in blocks_of(spec.model.tree())) if checkpoint else frozenset()
    memory = passes(spec, samples, paths)
    found = estimate(spec, Placement.from_text(f"torch:single:1,accumulation={accumulation}"))
    estimated = {name: getattr(found, name) for name in ("parameters", "buffers", "slots")}
    estimated |= {
        "saved": memory.saved,
        "passes": memory.peak + batch_bytes(spec, SAMPLES),
        "step": found.total,
    }
    return Seen(estimated, measured)


def several_processes(spec: TrainSpec, text: str, folder: Path) -> Seen:
    """The second step of a placement, on its fullest rank."""
    placement = Placement.from_text(text)
    scalars = dict(reference.StepScalars(spec).scalars(0))
    arguments = (spec, placement, scalars, folder)
    run_ranks("parity_tests.peers.torch_memory:rank", arguments, placement.processes, folder / "logs", [])
    peaks = [json.loads(file.read_text()) for file in folder.glob("rank_*.json")]
    assert len(peaks) == placement.processes
    return Seen({"step": estimate(spec, placement).total}, {"step": max(peaks)})


def table(folder: Path) -> str:
    """What is measured now, as Markdown."""
    lines = [
        f"One process, {SAMPLES} samples; bytes as measured, and how far the estimate is above that.",
        "",
        "| recipe | parameters, buffers, slots | activations kept | most of both passes | most of a step |",
        "| --- | --- | --- | --- | --- |",
    ]
    with Peer("torch", folder / "torch.log") as peer:
        for recipe, more in CASES:
            seen = one_process(peer, spec_of(recipe, more))
            exact = all(seen.off(n) == 0 for n in ("parameters", "slots")) and (
                seen.estimated["buffers"] == seen.measured["buffers"]
            )
            cells = [f"{seen.measured[n]:,} ({seen.off(n):+.2%})" for n in ("saved", "passes", "step")]
            name = f"{recipe} {more}".strip()
            lines.append(f"| {name} | {'exact' if exact else 'NOT exact'} | {' | '.join(cells)} |")
    lines += [
        "",
        f"Several processes, digits_transformer, {SAMPLES} samples in all; the fullest rank's second step.",
        "",
        "| placement | most of a step |",
        "| --- | --- |",
    ]
    for number, text in enumerate(RANKS):
        own = folder / str(number)
        own.mkdir()
        seen = several_processes(spec_of("digits_transformer"), text, own)
        lines.append(f"| {text} | {seen.measured['step']:,} ({seen.off('step'):+.2%}) |")
    return "\n".join(lines) + "\n"


def main(page: Path) -> None:
    """Put the table into a page, between its two marks."""
    text = page.read_text()
    before, _, rest = text.partition(_BEGIN)
    _, found, after = rest.partition(_END)
    assert found, f"{page} lacks {_BEGIN!r} and {_END!r}"
    with tempfile.TemporaryDirectory(prefix="parity-") as name:
        page.write_text(before + _BEGIN + "\n" + table(Path(name)) + "\n" + _END + after)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
