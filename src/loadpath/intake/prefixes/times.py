"""Times as logs print them → seconds since 1 January 00:00 of a leap year (see `core.text.Origin`)."""

from __future__ import annotations

_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
MONTHS = {name: number for number, name in enumerate(_NAMES, 1)}
_BEFORE = (0, 0, 31, 60, 91, 121, 152, 182, 213, 244, 274, 305, 335)  # days before each month of a leap year

MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
CLOCK = r"(\d\d):(\d\d):(\d\d(?:[.,]\d{1,9})?)"
DATE = r"(\d{4})[-/](\d\d)[-/](\d\d)"
ZONE = r"(?:\s?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?"
STAMP = rf"{DATE}[T ]{CLOCK}{ZONE}"
"""Groups: year, month, day, hour, minute, second."""


def in_year(month: int | str, day: int | str, hour: int | str, minute: int | str, second: float | str) -> float | None:
    """Seconds since the start of a leap year; None where it is no date."""
    number = MONTHS.get(month[:3].lower()) if isinstance(month, str) and not month.isdigit() else int(month)
    if number is None or not 1 <= number <= 12 or not 1 <= int(day) <= 31:
        return None
    seconds = float(second.replace(",", ".")) if isinstance(second, str) else second
    return ((_BEFORE[number] + int(day) - 1) * 24 + int(hour)) * 3600 + int(minute) * 60 + seconds


def of_epoch(seconds: float) -> tuple[float | None, int | None]:
    """A Unix time → (seconds in its year, year), in UTC."""
    from datetime import UTC, datetime

    try:
        at = datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None, None
    return in_year(at.month, at.day, at.hour, at.minute, at.second + at.microsecond / 1e6), at.year
