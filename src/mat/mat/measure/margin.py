"""Non-inferiority for a fixed number of pairs: the exact test, its power, and how many pairs a gate needs.

A pair is one run under each configuration, with equal test and seed: it was lost (the old one had what the new one has not),
gained, or neither. The question is whether the share lost minus the share gained is less than a tolerance t. Pairs are ordered
by the score statistic of Tango (Statistics in Medicine 17 (1998) 891), whose nuisance, the share gained, is estimated under
"worse by exactly t". The test is exact and unconditional: its critical value is the least one that a configuration worse by t,
with any share gained, reaches with probability alpha at most. For more than 400 pairs it is the normal quantile.

numpy computes it for all tables of counts (lost, gained) at once.

Source: A6.7.
"""

from __future__ import annotations

import functools
import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from mat.core.extras import require
from mat.measure.estimate import Estimate

if TYPE_CHECKING:
    from numpy.typing import NDArray

METHOD: Final = "paired score"
"""The method of these intervals (Tango 1998)."""
_EXACT: Final = 400
"""The largest number of pairs for which the critical value is exact."""
_SHARES: Final = 48
"""Values of the share gained at which the level is controlled."""
_MOST: Final = 1 << 20
"""The largest number of pairs that is asked for."""
_CLOSE: Final = 1e-9


def kept(lost: int, gained: int, pairs: int, *, tolerance: Fraction, alpha: Fraction) -> bool:
    """Whether the pairs show a net loss (lost minus gained) below `tolerance`; wrong with probability `alpha` at most."""
    return bool(pairs) and score(lost, gained, pairs, float(tolerance)) >= critical(pairs, tolerance, alpha) - _CLOSE


def score(lost: float, gained: float, pairs: int, tolerance: float) -> float:
    """Tango's statistic of "worse by exactly the tolerance"; large values speak against it."""
    return float(_scores(lost, gained, pairs, tolerance))


def _scores(lost: Any, gained: Any, pairs: int, tolerance: float) -> Any:
    require("stats", "a test of non-inferiority")
    import numpy as np

    t, n = tolerance, pairs
    half = (lost + gained) - t * (2 * n - lost + gained)
    share = (half + np.sqrt(half**2 + 8 * n * gained * t * (1 - t))) / (4 * n)
    spread = np.sqrt(np.maximum(n * (2 * share + t - t * t), 1e-12))
    return (gained - lost + n * t) / spread


@functools.lru_cache(maxsize=256)
def critical(pairs: int, tolerance: Fraction, alpha: Fraction) -> float:
    """The least value of the statistic that shows it; infinite if no outcome of so few pairs does."""
    require("stats", "a test of non-inferiority")
    from scipy.stats import norm

    if pairs > _EXACT:
        return float(norm.ppf(1 - float(alpha)))
    import numpy as np

    lost, gained = _cells(pairs)
    scores = _scores(lost, gained, pairs, float(tolerance))
    order = np.argsort(-scores, kind="stable")
    worst = np.zeros(len(order))
    for share in np.linspace(0.0, (1 - float(tolerance)) / 2, _SHARES):
        found = np.exp(_log_chances(lost, gained, pairs, share + float(tolerance), share))
        worst = np.maximum(worst, np.cumsum(found[order]))
    ranked = scores[order]
    allowed = worst <= float(alpha) + 1e-12
    count = len(allowed) if bool(allowed.all()) else int(np.argmin(allowed))
    while 0 < count < len(ranked) and ranked[count - 1] - ranked[count] < _CLOSE:  # equal values stand or fall together
        count -= 1
    return float(ranked[count - 1]) if count else math.inf


def power(pairs: int, *, tolerance: Fraction, alpha: Fraction, differing: float) -> float:
    """The chance that an unchanged configuration passes; of its pairs a share `differing` differs, half lost, half gained."""
    if not pairs:
        return 0.0
    import numpy as np

    least = critical(pairs, tolerance, alpha)
    if pairs > _EXACT:
        from scipy.stats import norm

        spread = math.sqrt(max(differing, 1e-9) / pairs)
        wide = math.sqrt(max(differing, float(tolerance)) / pairs)
        return float(norm.cdf((float(tolerance) - least * wide) / spread))
    lost, gained = _cells(pairs)
    chances = np.exp(_log_chances(lost, gained, pairs, differing / 2, differing / 2))
    return float(chances[_scores(lost, gained, pairs, float(tolerance)) >= least - _CLOSE].sum())


def pairs_needed(*, tolerance: Fraction, alpha: Fraction, differing: float = 0.0, chance: float = 0.8) -> int | None:
    """The number of pairs with which an unchanged configuration passes with this chance; None if it is more than a million.

    With nothing that differs, it is the least number that can pass at all.
    """
    low, high = 0, 1
    while power(high, tolerance=tolerance, alpha=alpha, differing=differing) < chance:
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        if power(middle, tolerance=tolerance, alpha=alpha, differing=differing) < chance:
            low = middle
        else:
            high = middle
    return high


def difference_of(lost: int, gained: int, pairs: int, *, confidence: Fraction) -> Estimate:
    """New minus old, with Tango's interval; `confidence` is that of each of its two limits."""
    from scipy.stats import norm

    if not pairs:
        return Estimate(value=None, low=None, high=None, n=0, confidence=float(confidence), method=METHOD)
    quantile = float(norm.ppf(float(confidence)))
    value = (gained - lost) / pairs
    low = -_limit(lost, gained, pairs, quantile)
    return Estimate(
        value=value, low=min(low, value), high=max(_limit(gained, lost, pairs, quantile), value), n=pairs,
        confidence=float(confidence), method=METHOD,
    )  # fmt: skip


def _limit(lost: int, gained: int, pairs: int, quantile: float) -> float:
    """The largest loss that the pairs do not refute, by bisection."""
    low, high = (lost - gained) / pairs, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if _signed_score(lost, gained, pairs, middle) < quantile:
            low = middle
        else:
            high = middle
    return high


def _signed_score(lost: int, gained: int, pairs: int, loss: float) -> float:
    """The statistic for any loss; one below 0 is a gain, seen from the other side."""
    return score(lost, gained, pairs, loss) if loss >= 0 else -score(gained, lost, pairs, -loss)


@functools.lru_cache(maxsize=4)
def _cells(pairs: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """All pairs of counts (lost, gained)."""
    import numpy as np

    lost, gained = np.meshgrid(np.arange(pairs + 1), np.arange(pairs + 1), indexing="ij")
    inside = lost + gained <= pairs
    return lost[inside].astype(float), gained[inside].astype(float)


def _log_chances(lost: Any, gained: Any, pairs: int, share_lost: float, share_gained: float) -> Any:
    """The logarithm of the chance of each table (multinomial)."""
    import numpy as np
    from scipy.special import gammaln, xlogy

    rest = pairs - lost - gained
    even = max(0.0, 1 - share_lost - share_gained)
    found = gammaln(pairs + 1) - gammaln(lost + 1) - gammaln(gained + 1) - gammaln(rest + 1)
    with np.errstate(divide="ignore"):
        return found + xlogy(lost, share_lost) + xlogy(gained, share_gained) + xlogy(rest, even)
