"""Numbers in words a person reads: counts, durations, sizes, metrics; and settings by their whole names.

Every function takes None for "not recorded" and answers with a dash, so a page never breaks on a missing
value. Sizes are decimal (1 kB = 1,000 bytes), as networks count.
"""

import math
from collections.abc import Mapping
from typing import Any

DASH = "–"


def number(value: Any) -> float | None:
    """A finite number as it stood in a file, or None for anything else (null, text, a diverged NaN)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        converted = float(value)
    except OverflowError:
        return None
    return converted if math.isfinite(converted) else None


def significant(value: float | None, digits: int = 4) -> str:
    """
    >>> significant(0.123456), significant(1234567.0), significant(None)
    ('0.1235', '1,234,567', '–')
    """
    if value is None:
        return DASH
    if abs(value) >= 10 ** (digits - 1):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def count(value: float | None) -> str:
    """
    >>> count(12000)
    '12,000'
    """
    return DASH if value is None else f"{value:,.0f}"


def duration(seconds: float | None) -> str:
    """
    >>> duration(0.0123), duration(36), duration(723), duration(11520)
    ('12.3 ms', '36.0 s', '12 min 3 s', '3 h 12 min')
    """
    if seconds is None:
        return DASH
    if seconds == 0:
        return "0 s"
    if seconds < 0.001:
        return f"{seconds * 1e6:.3g} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 7200:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60} min"


def byte_size(size_bytes: float | None) -> str:
    """
    >>> byte_size(999), byte_size(12_345), byte_size(999_999)
    ('999 B', '12.3 kB', '1.0 MB')
    """
    if size_bytes is None:
        return DASH
    if size_bytes < 1000:
        return f"{size_bytes:.0f} B"
    for unit, unit_bytes in (("kB", 1e3), ("MB", 1e6), ("GB", 1e9)):
        if size_bytes / unit_bytes < 999.95:  # what would be shown as 1000.0 belongs to the next unit
            return f"{size_bytes / unit_bytes:.1f} {unit}"
    return f"{size_bytes / 1e12:,.1f} TB"


def share(value: float | None) -> str:
    """
    >>> share(0.256), share(0.001), share(0.0)
    ('26 %', '<1 %', '0 %')
    """
    if value is None:
        return DASH
    return "<1 %" if 0 < value < 0.005 else f"{100 * value:.0f} %"


def ratio(value: float | None) -> str:
    """
    >>> ratio(4.21), ratio(31.7)
    ('4.2×', '32×')
    """
    if value is None:
        return DASH
    return f"{value:.1f}×" if value < 10 else f"{value:,.0f}×"


def measure(metric: str | None, value: float | None) -> str:
    """A test metric: accuracy as a percentage, everything else with four digits.

    >>> measure("accuracy", 0.9134), measure("rmse", 0.51234)
    ('91.34 %', '0.5123')
    """
    if value is None:
        return DASH
    return f"{100 * value:.2f} %" if metric == "accuracy" else significant(value)


def flat_settings(tree: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested settings as `optimiser.learning_rate`, the way they are written on the command line."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping) and value:
            flat |= flat_settings(value, f"{above}{key}.")
        else:
            flat[f"{above}{key}"] = value
    return flat
