"""The law over the matrix: recipes x optimizers x conventions, on every placement of both frameworks."""

from __future__ import annotations

import pytest

from common.parity.budget import Budget, ensemble_budget, proof_budget, widest
from common.parity.compare import compare
from common.spec import TrainSpec
from parity_tests.conftest import Farm
from parity_tests.figures import Figures
from parity_tests.matrix import CORE, SPECS, TENSORFLOW, TORCH, matrix_spec, tensorflow, torch
from parity_tests.vocabulary import Vocabulary

CORE_FLOAT32 = [
    ("digits_mlp", "adam", "keras"),
    ("digits_cnn", "sgd", "keras"),
]

# For each framework, the run whose noise is measured, and its permuted runs.
ENSEMBLES = {
    base: [base.model_copy(update={"sample_order_seed": seed}) for seed in range(4)]
    for base in (tensorflow(1), torch("single", 1))
}

# A test may have to wait for the runs of all tests before it.
pytestmark = pytest.mark.timeout(2400)


def cases(core: list) -> list:
    return [pytest.param(*s, marks=() if s in core else pytest.mark.slow, id="-".join(s)) for s in SPECS]


@pytest.fixture(scope="session")
def both_at_work(request: pytest.FixtureRequest, farm: Farm) -> None:
    """Begin the runs of every selected case, so that neither framework waits for the other."""
    permuted = [member for members in ENSEMBLES.values() for member in members]
    for item in request.session.items:
        if item.function in (test_float64_is_proof, test_float32_stays_in_the_noise):
            arguments = [item.callspec.params[name] for name in ("recipe", "optimizer", "convention")]
            precision = "float64" if item.function is test_float64_is_proof else "float32"
            members = permuted if precision == "float32" else []
            for placement in [*TENSORFLOW, *TORCH, *members]:
                farm.begin(matrix_spec(*arguments, precision), placement)


@pytest.mark.parametrize(("recipe", "optimizer", "convention"), cases(CORE))
@pytest.mark.usefixtures("both_at_work")
def test_float64_is_proof(
    farm: Farm, figures: Figures, vocabulary: Vocabulary, recipe: str, optimizer: str, convention: str
) -> None:
    spec = matrix_spec(recipe, optimizer, convention)
    ours = [farm.record(spec, placement) for placement in TENSORFLOW]
    theirs = [farm.record(spec, placement) for placement in TORCH]
    for reference in ours:
        assert len(reference.steps) == 200
        for candidate in theirs:
            comparison = compare(reference, candidate, proof_budget(reference))
            assert comparison.verdict == "parity", f"{candidate.label}: {comparison.reason}"
            assert comparison.loss_deviation.max() <= 1e-12
            vocabulary.saw("recipe", recipe, comparison.loss_deviation.max(), "200 steps x1 to x4")
            figures.float64[recipe, optimizer, convention].append(comparison)
        figures.saw(reference)
    figures.saw(theirs[0])


@pytest.mark.parametrize(("recipe", "optimizer", "convention"), cases(CORE_FLOAT32))
@pytest.mark.usefixtures("both_at_work")
def test_float32_stays_in_the_noise(
    farm: Farm, figures: Figures, recipe: str, optimizer: str, convention: str
) -> None:
    spec = matrix_spec(recipe, optimizer, convention, "float32")
    budget = noise(farm, spec)
    reference = farm.record(spec, TORCH[0])
    for placement in [*TENSORFLOW, *TORCH[1:]]:
        comparison = compare(reference, farm.record(spec, placement), budget)
        assert comparison.verdict == "parity", f"{placement.label}: {comparison.reason}"
        figures.float32[recipe, optimizer, convention].append((comparison, budget))


def noise(farm: Farm, spec: TrainSpec) -> Budget:
    """The float32 budget from both frameworks' ensembles on one replica."""
    return widest(
        [
            ensemble_budget(farm.record(spec, base), [farm.record(spec, member) for member in members])
            for base, members in ENSEMBLES.items()
        ]
    )
