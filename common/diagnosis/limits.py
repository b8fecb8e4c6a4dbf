"""Every limit of a diagnosis, with its reason.

A deviation is `parity.common.parity.deviation.tensor_deviation`: the largest difference over the largest element.
Limits of whole curves are budgets: `parity.common.parity.budget`. What counts as a zero gradient is
`parity.common.state.zero_gradient`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Limit(float):
    """A number that decides something, and why it has this value."""

    reason: str

    def __new__(cls, value: float, reason: str = "") -> Limit:
        limit = super().__new__(cls, value)
        limit.reason = reason
        return limit


# A step of the candidate compared with the reference's.
INJECTED_FLOAT64 = Limit(1e-12, "one part of a step in float64, given equal inputs: a few operations round")
AS_TRAINED_FLOAT64 = Limit(1e-10, "as trained, a step begins with what all steps before it have rounded")
AS_TRAINED_ROUGH = Limit(1e-3, "below float64: where rounding takes a net with kinks within some steps")
ULPS_OF_TERMS = Limit(16, "units in the last place of the absolute terms of a sum that nearly cancels")
ULPS_OF_FLOAT32 = Limit(64, "units in the last place: what float32 rounds a sum of some hundred products by")
ULP_OF_BFLOAT16 = Limit(2.0**-7, "8 bits of significand")
ULP_OF_FLOAT16 = Limit(2.0**-10, "11 bits of significand")
FLIPS = Limit(
    4,
    "units of the low type: a number between two low ones is rounded up here and down there,"
    " and a layer with several products has several",
)

# Two live models side by side, in float64.
LIVE_FLOAT64 = Limit(
    1e-10, "one layer in two frameworks, given equal inputs: rounding in deep models is less"
)
ROUNDED_CONSTANT = Limit(
    1e-6,
    "two constants of which one is rounded to float32, or both in other steps: some units in the last place",
)
OF_ANOTHER_LOSS = Limit(
    1e4,
    "times as far as two losses that differ are their gradients with them: a small number added below a root or a"
    " logarithm counts for some hundred times as much in a derivative; beyond it, another cause is looked for",
)
SAME_ELEMENTS = Limit(
    1e-10, "two tensors of one pass, in two frameworks: as LIVE_FLOAT64, of all that is computed in it"
)
SAME_NUMBER = Limit(
    1e-12, "two numbers of the code, of the larger: they are written, or computed in a step or two"
)
AMPLIFIED_BY_A_PASS = Limit(
    1e-6, "one pass in float64, given equal weights and samples: no net amplifies rounding so"
)
SCHEDULED_RATE = Limit(
    8 * 2.0**-24, "of the highest learning rate: Keras computes its schedules in float32, in a few operations"
)
ROUNDED_SUM = Limit(
    1e-13,
    "of the largest of all gradients: one that is zero but for rounding is a sum over n samples and places that rounds by sqrt(n) u, n up to 1e6",
)
ROUNDING_SHARE = Limit(1e-14, "of the largest of all gradients: rounding of one that comes out nearly zero")

# Whether a signature fits what a run made.
FITS = Limit(1e-11, "a formula in NumPy, or a layer in the other framework, on the same float64 numbers")
FITS_READ_OFF = Limit(1e-9, "a gradient or factor read off numbers that it has changed has lost some digits")
FITS_SCALAR = Limit(1e-13, "scalars of a step are computed by the same formulas in float64")
FITS_WEIGHT = Limit(1e-8, "the weight of a replica's share, by least squares over all gradients")
FITS_FACTOR = Limit(1e-6, "relative: a factor that may have gone through float32")
FITS_PLAIN_NORM = Limit(1e-7, "relative: a clipped norm that a person would write with three digits")
FITS_SPEC_NORM = Limit(1e-5, "relative: a clipped norm is the limit divided by a norm plus 1e-6")
FITS_ROUNDED = Limit(1e-14, "relative: a number rounded to a narrow type, times an exact factor")
FITS_SAME = Limit(1e-15, "the same number, maybe through one addition")
UNEXPLAINED = Limit(
    1e-3, "share of a deviation that a cause may leave; one that leaves more explains nothing"
)
FLOAT32_FACTOR = Limit(
    2.0**-23, "relative error of a number that has been through float32, or a product of two"
)
FLOAT32_LARGEST = Limit(2e-6, "what a single float32 number on a float64 path changes stays below")
NEARLY_ZERO = Limit(1e-300, "guards a division; the smallest normal float64 is 2e-308")
NEARLY_ZERO_SQUARE = Limit(1e-20, "share of the largest squared row: a row below it is zero up to rounding")
COMPLEX_STEP = Limit(1e-30, "its square vanishes beside 1: Squire and Trapp, SIAM Review 1998")
CAST_TO_BFLOAT16 = Limit(2.0**-5, "4 units: gradients added up in bfloat16 are not farther off")
CAST_TO_FLOAT16 = Limit(2.0**-7, "8 units: gradients added up in float16 are not farther off")
CAST_TO_FLOAT32 = Limit(2.0**-20, "8 units: gradients added up in float32 are not farther off")
CAST_OF_LOSS = Limit(2.0**-6, "what flows back from a loss in bfloat16 is rounded at most twice")

# What runs recorded, where all that can be replayed agrees.
FAR_FROM_ROUNDING = Limit(1e-6, "relative: in float64 rounding takes no number so far whose run ends alike")

# Two recorded scripts, which cannot be replayed.
SCRIPT_FACTOR = Limit(1e-4, "relative: two curves, a known number apart, as scripts round it")
SCRIPT_GRADIENT_ULPS = Limit(1e4, "units: a gradient's elements, each a sum of many terms")
SCRIPT_CURVE_ULPS = Limit(8, "units: two numbers of a curve, each rounded a few times")
SCRIPT_SMALL = Limit(1e-6, "share of the largest gradient: smaller elements are too rounded to show a factor")

# How far a search goes. All are counts.
MOST_STEPS = 8  # traced at once: each is written whole
FARTHEST_BORDER = 200  # steps: no replay goes farther for the last step of an epoch or of a warm-up
SECTIONS = 8  # states compared in the first round of the search for the step, and of large ones in each
MOST_SECTIONS = 64  # in a later round; each is written
SECTION_BYTES = 2**28  # of the states of one run in a round
SEARCH_GROWTH = (
    8  # how many times as far a round of the search goes as the one before, where nothing differed
)
NEAR_STEPS = 3  # steps away that a batch is looked for
DIRECTIONS = 3  # along which a gradient of the loss is compared; one would do, but for bad luck
MOST_REPAIRS = 40  # faults of a live model that are put right one after the other
WIDENED = 4  # times that a place which deviates is tried without, together with what then deviates behind it
MUCH_NEARER = 0.5  # of a deviation, at most, is left with the first of two edits that are tried together
# Seconds of processors, so that a busy machine finds what an idle one does.
LONGEST_SEARCH = 45.0  # that operations of one place are replaced, however large the model
LONGEST_IN_ALL = 180.0  # of such trials at all places of a pair together, however few they were
LONGEST_EDITS = 90.0  # of trials with edits of the user's code, at all places together
LONGEST_EDITS_HERE = 45.0  # of such trials at one place, so that others have some, too
LONGEST_EDITED = 5.0  # of one pass with an edit, which may not end
LEAST_TRIED = 120  # replacements that are tried all the same, however long each takes
LAST_TRIED = 24  # replacements at the end of a place for which the time is over
PASSES_REPEATED = 64  # of a live model, so that what it counts for itself is as in a training
SWAPS_TRIED = 12  # other weights of the same shape that are tried in place of one
STEPS_PREDICTED = 4  # other steps at which a cause must hold; those that deviate first
AGREEING_SHOWN = 3  # tensors that agree before a finding

_OF_TRAININGS = Limit(
    1e-12, "two first steps of a training; rounding of one step of a net of some layers is a hundredth of it"
)


@contextmanager
def as_of_trainings() -> Iterator[None]:
    """Within, two live models are compared as closely as two trainings are: for where these part, and no part of a step is beyond LIVE_FLOAT64."""
    global LIVE_FLOAT64, SAME_ELEMENTS
    kept = LIVE_FLOAT64, SAME_ELEMENTS
    LIVE_FLOAT64 = SAME_ELEMENTS = _OF_TRAININGS
    try:
        yield
    finally:
        LIVE_FLOAT64, SAME_ELEMENTS = kept
