"""Numbers to text and back. Inside the program everything is seconds, bytes and fractions of 1."""

from __future__ import annotations

import re

_BYTE_UNITS = {
    "": 1, "b": 1,
    "k": 1000, "kb": 1000, "kib": 1024,
    "m": 1000**2, "mb": 1000**2, "mib": 1024**2,
    "g": 1000**3, "gb": 1000**3, "gib": 1024**3,
    "t": 1000**4, "tb": 1000**4, "tib": 1024**4,
}  # fmt: skip
_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_bytes(text: str) -> int:
    """Bytes from text such as ``2GiB`` or ``500 MB``. Raises ValueError with what was expected."""
    return int(_parse_quantity(text, _BYTE_UNITS, "a size such as 2GiB or 500MB"))


def parse_seconds(text: str) -> float:
    """Seconds from text such as ``66ms``, ``1.5s`` or ``3min``; a bare number is seconds. Raises ValueError."""
    return _parse_quantity(text, _TIME_UNITS, "a time such as 66ms, 1.5s or 3min")


def _parse_quantity(text: str, units: dict[str, float] | dict[str, int], expected: str) -> float:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2].lower() not in units:
        raise ValueError(f"{text!r} is not {expected}")
    return float(match[1]) * units[match[2].lower()]


def _significant(value: float, digits: int = 3) -> str:
    """``value`` with about ``digits`` significant digits and no exponent: 0.123, 1.23, 12.3, 123, 1,234."""
    magnitude = abs(value)
    decimals = digits - 1
    while magnitude >= 10 and decimals > 0:
        magnitude /= 10
        decimals -= 1
    return f"{value:,.{decimals}f}"


def format_seconds(value: float | None) -> str:
    """``value`` seconds in the unit a person would choose; ``-`` for an unknown one."""
    if value is None:
        return "-"
    magnitude = abs(value)
    if magnitude >= 120:
        return f"{value / 60:.1f} min"
    if magnitude >= 0.9995:
        return f"{_significant(value)} s"
    if magnitude >= 0.9995e-3:
        return f"{_significant(value * 1e3)} ms"
    if magnitude == 0:
        return "0 ms"
    return f"{value * 1e6:.0f} us"


def format_milliseconds(seconds: float | None) -> str:
    """``seconds`` as a bare number of milliseconds, for columns whose head has the unit; ``-`` for an unknown one."""
    return "-" if seconds is None else _significant(seconds * 1e3)


def format_bytes(value: float | None) -> str:
    """``value`` bytes in binary units; ``-`` for an unknown one."""
    if value is None:
        return "-"
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} B" if unit == "B" else f"{_significant(size)} {unit}"
        size /= 1024
    return f"{_significant(size)} TiB"


def format_rate(value: float | None) -> str:
    """Examples per second with three or more significant digits and no unit; ``-`` for an unknown one."""
    return "-" if value is None else _significant(value)


def format_percent(fraction: float | None) -> str:
    """A fraction of 1 as a percentage: one decimal below ten per cent, none above; ``-`` for unknown."""
    if fraction is None:
        return "-"
    percent = fraction * 100
    return f"{percent:.1f} %" if abs(percent) < 9.95 else f"{percent:.0f} %"
