"""Errors and power of simulated studies: docs/evidence/study_errors.md.

    python -m parity_tests.tables.study docs/evidence/study_errors.md

Each case is so many studies of two arms, drawn anew for each figure, decided by the rule of `parity study`.
"""

from __future__ import annotations

import datetime
import sys
import time
import zlib
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from scipy import stats

from parity.common.study.decision import decide
from parity.common.study.equivalence import Margin
from parity.common.study.power import Spread, draw, seeds_for
from parity.common.study.question import looks_of

STUDIES = 10_000
ALPHA = 0.05
Noise = Literal["normal", "skewed", "of one arm"]
# Of pairs, the part of a seed's variance that both arms have in common.
SHARED = 0.8


class Case(NamedTuple):
    """A design: margin, seeds and looks, and what the seeds' noise is like.

    noise: normal; skewed (exponential) in both arms; or exponential in one arm, so that the differences are.
    quick: whether it is simulated in every run of the tests.
    """

    margin: str
    looks: tuple[int, ...]
    paired: bool
    noise: Noise
    quick: bool = False

    def __str__(self) -> str:
        how = "paired" if self.paired else "Welch"
        return f"{self.margin} {'+'.join(map(str, self.looks))} {how} {self.noise}"


class Errors(NamedTuple):
    """Shares of studies: wrong "equivalent" where the difference is the margin, on either side; where there is none,
    wrong "different", and a difference shown that is not there.
    """

    at_upper_margin: float
    at_lower_margin: float
    different: float
    shown: float


DESIGNS = ((4,), (6,), (10,), (20,), (4, 7, 10), (8, 14, 20), (16, 28, 40))
CASES = [
    Case(
        margin, looks, paired, noise, quick=(looks in ((6,), (8, 14, 20)) and margin != "5%") or looks == (4,)
    )
    for margin in ("0.5", "5%", "0.5sd")
    for paired in (True, False)
    for noise in ("normal", "skewed")
    for looks in DESIGNS
] + [Case("0.5", looks, True, "of one arm") for looks in DESIGNS]


def at_most(share: float, studies: int, limit: float = ALPHA) -> bool:
    """Whether a share seen in so many studies may be one of at most `limit`: it is not seen less than once in 10,000."""
    return bool(stats.binom.sf(round(share * studies) - 1, studies, limit) > 1e-4)


def interval(share: float, studies: int) -> tuple[float, float]:
    """The Monte Carlo interval of a share, 95 %, exact (Clopper and Pearson 1934)."""
    found = stats.binomtest(round(share * studies), studies).proportion_ci()
    return float(found.low), float(found.high)


def drawn(
    case: Case, difference: float, studies: int, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Figures (studies, seeds) of reference and candidate, of mean 10 and standard deviation 1."""
    shape = studies, case.looks[-1]
    shared = SHARED if case.paired else 0.0

    def noise(skewed: bool) -> np.ndarray:
        return random.exponential(size=shape) - 1 if skewed else random.standard_normal(shape)

    skewed = case.noise != "normal"
    seed, own, other = noise(skewed), noise(skewed), noise(skewed)
    if case.noise == "of one arm":
        own = np.zeros(shape)
    a = 10 + np.sqrt(shared) * seed + np.sqrt(1 - shared) * own
    return a, 10 + difference + np.sqrt(shared) * seed + np.sqrt(1 - shared) * other


def errors_of(case: Case, studies: int) -> Errors:
    """Simulate the studies of a case; seeded by its name."""
    margin = Margin.of(case.margin)
    if not case.paired:
        margin = margin.model_copy(update={"value": 3 * margin.value})
    size = 10 * margin.value if margin.kind == "relative" else margin.value
    random = np.random.default_rng([20_241_101, zlib.crc32(str(case).encode())])
    found = [
        decide(*drawn(case, difference, studies, random), margin, case.looks, ALPHA, case.paired)
        for difference in (size, -size, 0.0)
    ]
    shares = [each.equivalent for each in found[:2]] + [found[2].different, found[2].differs]
    return Errors(*(float(share.mean()) for share in shares))


class PowerRow(NamedTuple):
    """Power that was planned for, and that which simulated studies of so many seeds have."""

    margin: str
    paired: bool
    wanted: float
    seeds: int
    reached: float
    seeds_used: float


def power_rows(studies: int) -> list[PowerRow]:
    """Plan for 80 and 90 % power, and simulate what is planned, with other draws."""
    rows = []
    for paired in (True, False):
        for text in ("0.5", "5%", "0.5sd"):
            margin = Margin.of(text)
            spread = Spread(10, 1, 1, SHARED if paired else 0.0)
            for wanted in (0.8, 0.9):
                seeds = seeds_for(spread, margin, wanted, ALPHA, paired)
                assert seeds is not None
                a, b = draw(spread, 0.0, (studies, seeds), np.random.default_rng(20_241_102))
                found = decide(a, b, margin, looks_of(seeds), ALPHA, paired)
                rows.append(
                    PowerRow(
                        text, paired, wanted, seeds, float(found.equivalent.mean()), float(found.seeds.mean())
                    )
                )
    return rows


def page(studies: int) -> str:
    """The page, as Markdown."""
    began = time.process_time()
    lines = [
        "# Errors and power of `parity study`",
        "",
        f"Written by `python -m parity_tests.tables.study docs/evidence/study_errors.md` on {datetime.date.today()}: {studies:,}"
        " simulated studies a figure, seeded, decided by the rule that `parity study` uses. Both arms have standard deviation 1;"
        f" of pairs, {SHARED:.0%} of a seed's variance is common. The method: [study.md](../explanation/study.md).",
        "",
        "## Errors",
        "",
        'Wrong "equivalent": the difference is exactly the margin, above or below. Wrong "different": there is none. Shown: a'
        " difference has a p-value of at most 5 %, although there is none; of these only those are called different whose estimate"
        " is beyond the margin. All may be at most 5 %; in brackets 95 % Monte Carlo intervals, of the first two that of the larger.",
        "",
        '| margin | pairs | noise | seeds, looks | wrong "equivalent", above / below | wrong "different" | shown |',
        "|---|---|---|---|---|---|---|",
    ]
    for case in CASES:
        found = errors_of(case, studies)
        larger, *others = max(found[:2]), found.different, found.shown
        ranges = [
            " to ".join(f"{100 * end:.1f}" for end in interval(share, studies)) for share in (larger, *others)
        ]
        cells = (
            case.margin if case.paired else f"3 x {case.margin}",
            "paired" if case.paired else "Welch",
            case.noise,
            ", ".join(map(str, case.looks)),
            f"{found[0]:.1%} / {found[1]:.1%} ({ranges[0]})",
            *(f"{share:.1%} ({each})" for share, each in zip(others, ranges[1:], strict=True)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        'Noise "of one arm": the differences themselves are exponential, which no arm that trains as the other does makes them.'
        " One-sided t-tests are then too bold on one side and too timid on the other, whatever the correction; `parity study`"
        " says so where the differences of a study are skewed.",
        "",
        "## Power",
        "",
        "Seeds planned for 80 and 90 % power to show equivalence where there is no difference, looked at three times as usual, and"
        " what simulated studies of so many seeds reach. Correlation of pairs 0.8.",
        "",
        "| margin | pairs | planned | seeds | reached | seeds used on average |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row.margin} | {'paired' if row.paired else 'Welch'} | {row.wanted:.0%} | {row.seeds} | {row.reached:.1%} |"
        f" {row.seeds_used:.1f} |"
        for row in power_rows(studies)
    ]
    lines += ["", f"Processor time: {time.process_time() - began:.0f} s."]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(STUDIES), encoding="utf-8")
