"""Two conditions on the same tasks, side by side: means, spread, paired tests, and intervals of 10,000 resamples."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from mat.measure.bootstrap import BootstrapMethod, mean_of, resampled_ends
from mat.measure.estimate import Estimate
from mat.measure.paired import PairedShares, paired_shares

from .scripted import Trial

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """One number per task under two conditions. The difference is new minus old, with two intervals of its mean."""

    old: float
    new: float
    percentile: Estimate
    bca: Estimate
    p_value: float | None
    """paired t-test, two-sided; None if all pairs have the same difference"""

    @property
    def change(self) -> float | None:
        return (self.new - self.old) / self.old if self.old else None


def paired(old: Sequence[float], new: Sequence[float]) -> Paired:
    from scipy.stats import ttest_rel

    gaps = [after - before for before, after in zip(old, new, strict=True)]
    p_value = float(ttest_rel(new, old).pvalue) if len(set(gaps)) > 1 else None
    return Paired(
        old=fmean(old), new=fmean(new), percentile=mean_of(gaps, method="percentile"), bca=mean_of(gaps, method="bca"),
        p_value=p_value,
    )  # fmt: skip


def variance_ratio(old: Sequence[float], new: Sequence[float], *, method: BootstrapMethod = "percentile") -> Estimate:
    """Variance of old divided by that of new, pairs resampled; None if new does not vary."""
    n = len(old)
    if n < 2 or not variance(new):
        return Estimate(value=None, low=None, high=None, n=n, confidence=CONFIDENCE, method=method)
    value = variance(old) / variance(new)
    if method == "bca":
        low, high = _bca(old, new)
    else:
        middle, other = fmean(old), fmean(new)  # centered at 0, so that differences of squares lose no digits
        rows = sorted((1.0, a - middle, (a - middle) ** 2, b - other, (b - other) ** 2) for a, b in zip(old, new, strict=True))
        low, high = resampled_ends(
            rows, lambda s: (s[..., 2] - s[..., 1] ** 2 / s[..., 0]) / (s[..., 4] - s[..., 3] ** 2 / s[..., 0]), CONFIDENCE
        )
    return Estimate(value=value, low=low, high=high, n=n, confidence=CONFIDENCE, method=f"{method} bootstrap")


def _bca(old: Sequence[float], new: Sequence[float]) -> tuple[float | None, float | None]:
    import warnings

    import numpy
    from scipy.stats import bootstrap

    from mat.kernel.entropy import stream_seed
    from mat.measure.bootstrap import RESAMPLES

    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = bootstrap(
            (numpy.array(old), numpy.array(new)), lambda x, y, axis: x.var(axis=axis, ddof=1) / y.var(axis=axis, ddof=1),
            paired=True, vectorized=True, n_resamples=RESAMPLES, confidence_level=CONFIDENCE, method="BCa",
            rng=numpy.random.Generator(numpy.random.PCG64(stream_seed("variance ratio", "examples/resources"))),
        ).confidence_interval  # fmt: skip
    low, high = (float(end) if math.isfinite(end) else None for end in found)
    return low, high


# -- text -------------------------------------------------------------------------------------------------------------


def table(old: Sequence[Trial], new: Sequence[Trial], rows: Iterable[tuple[str, Callable[[Trial], float]]]) -> str:
    """A line for each number, then success with McNemar's exact test, then how much less the first number varies."""
    head = ["", "UNCONTRACTED", "CONTRACTED", "change", "difference", "percentile", "BCa", "p"]
    lines = [head]
    columns = [(name, [number(item) for item in old], [number(item) for item in new]) for name, number in rows]
    for name, before, after in columns:
        found = paired(before, after)
        lines.append(
            [
                name, short(found.old), short(found.new), "" if found.change is None else f"{found.change:+.0%}",
                short(found.new - found.old, sign=True), between(found.percentile), between(found.bca), p_text(found.p_value),
            ]
        )  # fmt: skip
    lines.append(success_line(paired_shares((a.success, b.success) for a, b in zip(old, new, strict=True))))
    return aligned(lines)


def success_line(found: PairedShares) -> list[str]:
    ends = "" if found.difference.low is None else f"[{found.difference.low * 100:+.1f}, {found.difference.high * 100:+.1f}]"
    return [
        "success", percent(found.old.value), percent(found.new.value), "",
        f"{(found.difference.value or 0) * 100:+.1f} pp", f"{ends} *", "", f"{p_text(found.p_value)} **".strip(),
    ]  # fmt: skip


NOTES = (
    "Differences are CONTRACTED minus UNCONTRACTED over pairs, with 95 % intervals of 10,000 resamples; p: paired t-test.\n"
    "...: an end that the data do not bound. * Newcombe's interval of paired proportions. ** McNemar's exact test."
)


def variance_text(name: str, old: Sequence[float], new: Sequence[float]) -> str:
    one, other = (variance_ratio(old, new, method=method) for method in ("percentile", "bca"))
    spread = f"{short(variance(old))} and {short(variance(new))}"
    if one.value is None:
        return f"Variance of {name}: {spread}."
    return (
        f"Variance of {name}: {spread}, {one.value:.1f} times lower; "
        f"percentile {between(one, sign=False)}, BCa {between(other, sign=False)}."
    )


def counted(name: str, items: Iterable[str]) -> str:
    found = Counter(items)
    return f"{name}: " + (", ".join(f"{many} {what}" for what, many in sorted(found.items())) or "none") + "."


def broken(trials: Sequence[Trial]) -> str:
    """The number of runs that break each contract: laws of the ledger, and limits that a call in flight may exceed."""
    found = [name for item in trials for name in item.violations]
    laws = counted(f"Laws of conservation and of the lifecycle broken in {len(trials)} runs", (n for n in found if "law." in n))
    return laws + "\n" + counted("Limits overrun by a call in flight", (n for n in found if "law." not in n))


def aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def short(value: float, *, sign: bool = False) -> str:
    """1,234, 12.3, 0.123: only as many digits as are meaningful."""
    plus = "+" if sign else ""
    size = abs(value)
    if size >= 1_000_000:
        return f"{value:{plus}.2e}"
    return f"{value:{plus},.0f}" if size >= 100 else f"{value:{plus}.1f}" if size >= 10 else f"{value:{plus}.2f}"


def between(found: Estimate, *, sign: bool = True) -> str:
    low, high = ("..." if end is None else short(end, sign=sign) for end in (found.low, found.high))
    return f"[{low}, {high}]"


def percent(value: float | None) -> str:
    return "" if value is None else f"{value * 100:.1f} %"


def p_text(p_value: float | None) -> str:
    return (
        "" if p_value is None else "< 0.0001" if p_value < 0.0001 else f"{p_value:.4f}" if p_value < 0.01 else f"{p_value:.2f}"
    )
