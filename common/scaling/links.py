"""What messages cost: the alpha-beta model of a link, and of collectives over p devices.

A message of n bytes takes alpha + n / bandwidth (Hockney 1994). Collectives cost, for n as nccl-tests
count it (what each device gives to an all-reduce or reduce-scatter, and gets of an all-gather):

ring            all-reduce 2 (p - 1) alpha + 2 (p - 1)/p n/B; reduce-scatter and all-gather half of it
                (Patarasu and Yuan 2009, "Bandwidth optimal all-reduce algorithms"); optimal for large n
tree            all-reduce 2 ceil(log2 p) alpha + 2 n/B: reduce, then broadcast, pipelined over two
                trees (Sanders, Speck and Traeff 2009, "Two-tree algorithms for full bandwidth
                broadcast, reduction and scan")
recursive doubling   all-reduce ceil(log2 p) (alpha + n/B): fewest messages, for small n
recursive halving    all-reduce 2 ceil(log2 p) alpha + 2 (p - 1)/p n/B; reduce-scatter and all-gather
                half of it (Thakur, Rabenseifner and Gropp 2005, "Optimization of collective
                communication operations in MPICH", as the one before)

A broadcast goes down a chain, a pair of trees or a binomial tree, in pieces but for the last.

The additions of a reduction are not counted apart: they are in a measured bandwidth.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from parity.common.base.errors import SpecError
from parity.common.base.files import unique_keys

ALGORITHMS = ("ring", "tree", "recursive doubling", "recursive halving")
OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast")


@dataclass(frozen=True)
class Link:
    """alpha: seconds a message; bandwidth: bytes a second in one direction. source: of both."""

    name: str
    alpha: float
    bandwidth: float
    source: str

    def __str__(self) -> str:
        alpha, bandwidth = f"{1e6 * self.alpha:.3g} us", f"{self.bandwidth / 1e9:.3g} GB/s"
        return f"{self.name} (alpha {alpha}, {bandwidth}: {self.source})"


@dataclass(frozen=True)
class Network:
    """`per_node` devices on one link, and nodes on another; one link alone where there is no second."""

    inner: Link
    outer: Link | None = None
    per_node: int = 1

    def __str__(self) -> str:
        if self.outer is None:
            return str(self.inner)
        return f"{self.per_node} devices a node on {self.inner}; nodes on {self.outer}"


_NCCL = "NVIDIA/nccl src/graph/tuning.cc at 01afd20"
LOOPBACK = Link(
    "loopback",
    120e-6,
    1.2e9,
    # The fastest of 40 repeats: 0.13 ms and 0.20 ms for 1 KiB, 8 to 14 ms for 16 MiB; the machine was busy.
    "gloo between two processes of a 2-core virtual machine, `parity collectives`, 2026-11-21",
)
# alpha of the GPU links: NCCL's own model of one hop of a ring (LL128). Bandwidths: what a link carries
# in one direction; a real program reaches about nine tenths.
PRESETS = {
    link.name: link
    for link in (
        # NCCL caps the bus bandwidth of compute capability 8.0 at 235 GB/s.
        Link("nvlink", 1.9e-6, 235e9, f"NVLink 3 of an A100, both by {_NCCL}"),
        # 18 links of 25 GB/s each way.
        Link(
            "nvlink4", 1.9e-6, 450e9, f"NVLink 4 of an H100, half of its 900 GB/s both ways; alpha by {_NCCL}"
        ),
        # 16 lanes x 16 GT/s x 128/130 / 8.
        Link("pcie4", 2.5e-6, 31.5e9, f"PCI Express 4.0 x16 by its standard; alpha by {_NCCL}"),
        Link("hdr", 4.0e-6, 25e9, f"InfiniBand HDR, 200 Gbit/s; alpha of a network by {_NCCL}"),
        Link("ndr", 4.0e-6, 50e9, f"InfiniBand NDR, 400 Gbit/s; alpha of a network by {_NCCL}"),
        # A quarter of what gloo takes on a loopback here: a round figure, for want of a better one.
        Link(
            "100gbe", 30e-6, 12.5e9, "100 Gbit/s Ethernet through the kernel's TCP; alpha is a round figure"
        ),
        LOOPBACK,
    )
}
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_SIZES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def parse_link(text: str) -> Network:
    """A network from text.

    'ndr' or another preset, 'alpha=5us,beta=25GB/s', a file that `parity collectives --json` wrote, or two
    of them with the devices of a node: 'nvlink4*8+ndr', 'alpha=2us,beta=400GB/s*8+alpha=5us,beta=25GB/s'.
    beta may be in bits: '200Gbit/s'.

    Raises:
        SpecError: with one line.
    """
    inner, plus, outer = text.partition("+")
    if not plus:
        return Network(_link(text))
    head, star, count = inner.rpartition("*")
    if not star or not count.isdecimal() or int(count) < 2:
        raise SpecError(
            f"--link {text!r}: say how many devices (2 or more) are in a node: 'nvlink4*8+ndr', received {inner!r}"
        )
    return Network(_link(head), _link(outer), int(count))


def _link(text: str) -> Link:
    text = text.strip()
    if text in PRESETS:
        return PRESETS[text]
    if text.endswith(".json"):
        return _from_collectives(Path(text))
    number = r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
    match = re.fullmatch(rf"alpha={number}(s|ms|us|ns),beta={number}([kMGT]?)(B|bit)/s", text)
    if match is None:
        raise SpecError(
            f"--link {text!r}: expected one of {', '.join(PRESETS)}, alpha=TIME,beta=BANDWIDTH such as"
            " alpha=5us,beta=25GB/s, or a file of 'parity collectives --json'"
        )
    time, unit, bandwidth, prefix, of = match.groups()
    alpha = float(time) * _UNITS[unit]
    rate = float(bandwidth) * _SIZES[prefix] / (8 if of == "bit" else 1)
    if not rate or not math.isfinite(rate) or not math.isfinite(alpha):
        raise SpecError(f"--link {text!r}: the bandwidth must be above 0, and both must be finite")
    return Link(text, alpha, rate, "as given")


def _from_collectives(path: Path) -> Link:
    """A link fitted to the rows of `parity collectives --json`."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=unique_keys)
        ranks = int(data["ranks"])
        rows = [
            Measured(row["operation"], float(row["bytes"]), ranks, float(row["median_seconds"]))
            for row in data["rows"]
            if row["operation"] in OPERATIONS and row["bytes"]
        ]
        return fit_link(path.name, rows)
    except OSError as error:
        raise SpecError(f"--link {path}: cannot be read: {error.strerror}") from None
    except (KeyError, TypeError, ValueError):
        raise SpecError(
            f"--link {path}: expected what 'parity collectives --json' writes, with two sizes or more"
        ) from None


def terms(algorithm: str, operation: str, devices: int) -> tuple[float, float] | None:
    """(messages, share): a collective takes messages x alpha + share x n / bandwidth.

    None where the algorithm has no such operation. Raises ValueError for what is none of OPERATIONS.
    """
    if operation not in OPERATIONS:
        raise ValueError(f"operation must be one of {', '.join(OPERATIONS)}, received {operation!r}")
    hops, depth = devices - 1, math.ceil(math.log2(devices)) if devices > 1 else 0
    share, whole = hops / devices, float(devices > 1)
    found = {
        ("ring", "all_reduce"): (2 * hops, 2 * share),
        ("ring", "reduce_scatter"): (hops, share),
        ("ring", "all_gather"): (hops, share),
        ("ring", "broadcast"): (hops, whole),
        ("tree", "all_reduce"): (2 * depth, 2 * whole),
        ("tree", "broadcast"): (depth, whole),
        ("recursive doubling", "all_reduce"): (depth, float(depth)),
        ("recursive doubling", "broadcast"): (depth, float(depth)),
        ("recursive halving", "all_reduce"): (2 * depth, 2 * share),
        ("recursive halving", "reduce_scatter"): (depth, share),
        ("recursive halving", "all_gather"): (depth, share),
    }
    return found.get((algorithm, operation))


def seconds(link: Link, algorithm: str, operation: str, size: float, devices: int) -> float:
    """Of one collective over one link; infinite where the algorithm has no such operation."""
    found = terms(algorithm, operation, devices)
    return math.inf if found is None else found[0] * link.alpha + found[1] * size / link.bandwidth


def network_seconds(network: Network, algorithm: str, operation: str, size: float, devices: int) -> float:
    """Of one collective over a network; the algorithm is the outer link's.

    Over nodes an all-reduce is a ring reduce-scatter inside each node, an all-reduce over the nodes of
    each device's part, and a ring all-gather inside (Cho et al. 2019, "BlueConnect"); the others likewise.
    """
    if network.outer is None or devices <= network.per_node:
        return seconds(network.inner, algorithm, operation, size, devices)
    inside, nodes = network.per_node, math.ceil(devices / network.per_node)
    # Inside, a gather or scatter moves as much as half of an all-reduce.
    twice = 2 if operation == "all_reduce" else 1
    within = twice * seconds(network.inner, "ring", "all_gather", size, inside)
    return within + seconds(network.outer, algorithm, operation, size / inside, nodes)


def fastest(network: Network, operation: str, size: float, devices: int) -> tuple[float, str]:
    """(seconds, algorithm) of the best algorithm, which is what a tuned library takes."""
    return min((network_seconds(network, name, operation, size, devices), name) for name in ALGORITHMS)


@dataclass(frozen=True)
class Measured:
    """A timed collective."""

    operation: str
    size: float
    devices: int
    seconds: float


def fit_link(name: str, measured: Sequence[Measured], algorithm: str = "ring") -> Link:
    """alpha and bandwidth that make the sum of squared relative errors smallest; neither is negative.

    Raises:
        ValueError: fewer than two different measurements, which cannot tell alpha from the bandwidth.
    """
    measured = [m for m in measured if m.seconds > 0]
    rows = np.array(
        [[t[0], t[1] * m.size] for m in measured if (t := terms(algorithm, m.operation, m.devices))]
    )
    if len({tuple(row) for row in rows.tolist()}) < 2 or np.linalg.matrix_rank(rows / rows.max(0)) < 2:
        raise ValueError("alpha and bandwidth are two unknowns; give collectives of two sizes or more")
    from scipy import optimize

    weighted = rows / np.array([m.seconds for m in measured])[:, None]
    scale = weighted.max(0)  # seconds and seconds a byte are orders of magnitude apart
    alpha, inverse = (optimize.nnls(weighted / scale, np.ones(len(rows)))[0] / scale).tolist()
    bandwidth = 1 / inverse if inverse else math.inf
    return Link(name, alpha, bandwidth, f"fitted to {len(rows)} measured collectives")
