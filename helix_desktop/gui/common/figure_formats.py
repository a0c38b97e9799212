"""Formats sizes, times and money for people. Token counts are formatted in `context_meter`."""

import re
from datetime import datetime

from PySide6.QtCore import QDateTime, QLocale

from helix_desktop.gui.translation import format_count, format_number, tr

DAY_SECONDS = 86_400
RECENT_DAYS = 300  # The year is omitted from dates that are at most this many days ago.
_UNITS = ("B", "KB", "MB", "GB", "TB")
LEAST_SHOWN_DOLLARS = 5e-5  # Less is shown as nothing.


def format_byte_size(amount: int) -> str:
    """Formats bytes with three digits: 512 B, 18.9 KB, 96.2 MB. A KB is 1,000 bytes, as
    for the model.
    """
    value = float(amount)
    unit = 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value /= 1000
        unit += 1
    decimals = 1
    if unit == 0 or value >= 99.95:
        decimals = 0
    return f"{format_number(value, decimals)} {_UNITS[unit]}"


def format_time_ago(moment: float, now: float) -> str:
    seconds = max(0.0, now - moment)
    if seconds < 60:
        return tr("just now")
    if seconds < 3600:
        return tr("{n} min ago", n=int(seconds // 60))
    if seconds < 86_400:
        return tr("{n} h ago", n=int(seconds // 3600))
    if seconds < 30 * 86_400:
        return format_count(int(seconds // 86_400), "{n} day ago", "{n} days ago")
    return format_date(moment)


def format_date(moment: float) -> str:
    """Formats a day with an unambiguous month: 21 Nov 2026, 21. Nov. 2026, 2026年11月21日."""
    long = QLocale().dateFormat(QLocale.FormatType.LongFormat)
    return _format_local_time(moment, re.sub(r",? ?dddd,? ?", "", long).replace("MMMM", "MMM"))


def format_time_of_day(moment: float) -> str:
    return _format_local_time(moment, QLocale().timeFormat(QLocale.FormatType.ShortFormat))


def format_time_with_seconds(moment: float) -> str:
    """Formats a time of day as the user's language does, for what happens within one minute."""
    time_of_day = QLocale().timeFormat(QLocale.FormatType.ShortFormat)
    return _format_local_time(moment, time_of_day.replace("mm", "mm:ss"))


def format_date_and_time(moment: float) -> str:
    return f"{format_date(moment)} {format_time_of_day(moment)}"


def format_short_day(moment: float, now: float) -> str:
    """Formats a day in a few characters: Tue, 4 Mar, 2024."""
    day = datetime.fromtimestamp(moment).astimezone()
    today = datetime.fromtimestamp(now).astimezone()
    # A day of the future, from a clock that was ahead, is no day of this week.
    days_apart = abs(now - moment) / DAY_SECONDS
    if days_apart < 6:
        return QLocale().dayName(day.isoweekday(), QLocale.FormatType.ShortFormat)
    if days_apart < RECENT_DAYS or day.year == today.year:
        return _format_local_time(moment, _form_of_day_and_month())
    return _format_local_time(moment, "yyyy")


def _form_of_day_and_month() -> str:
    """Returns how the language writes a day without its year: d MMM, d. MMM, M月d日."""
    long = QLocale().dateFormat(QLocale.FormatType.LongFormat)
    without_weekday_and_year = re.sub(r",? ?dddd,? ?|,? ?yyyy年?,? ?", "", long)
    return without_weekday_and_year.replace("MMMM", "MMM")


def format_short_day_and_time(moment: float, before: float, now: float) -> str:
    """Formats the time of day, with the day if it differs from that of `before`."""
    time_of_day = format_time_of_day(moment)
    date = datetime.fromtimestamp(moment).astimezone().date()
    if date == datetime.fromtimestamp(before).astimezone().date():
        return time_of_day
    day = format_date(moment)
    if now - moment < RECENT_DAYS * DAY_SECONDS:
        day = format_short_day(moment, now)
    return f"{day} {time_of_day}"


def is_today(moment: float) -> bool:
    return datetime.fromtimestamp(moment).astimezone().date() == datetime.now().astimezone().date()


def _format_local_time(moment: float, form: str) -> str:
    return QLocale().toString(QDateTime.fromSecsSinceEpoch(int(moment)), form)


def format_duration(seconds: float) -> str:
    """Formats a duration: 0.3 s, 42 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 9.95:
        return tr("{n} s", n=format_number(seconds, 1))
    if seconds < 59.5:
        return tr("{n} s", n=format_number(seconds))
    whole = round(seconds)
    if whole < 3600:
        return tr("{m} min {s} s", m=whole // 60, s=f"{whole % 60:02}")
    return tr("{h} h {m} min", h=whole // 3600, m=whole % 3600 // 60)


def format_dollars(dollars: float) -> str:
    """Formats US dollars, with more decimals for a small amount."""
    if abs(dollars) < LEAST_SHOWN_DOLLARS:
        return tr("${n}", n=format_number(0))
    return tr("${n}", n=format_number(dollars, _decimals_of_dollars(dollars)))


def round_dollars_as_shown(dollars: float) -> float:
    """Returns the amount that `format_dollars` shows, to compute with what people can add up."""
    if abs(dollars) < LEAST_SHOWN_DOLLARS:
        return 0.0
    return round(dollars, _decimals_of_dollars(dollars))


def dollar_rounding(dollars: float) -> float:
    """Returns what the last digit that `format_dollars` shows stands for."""
    return 10.0 ** -_decimals_of_dollars(dollars)


def _decimals_of_dollars(dollars: float) -> int:
    amount = abs(dollars)
    if amount >= 0.995:
        return 2
    if amount >= 0.00995:
        return 3
    return 4
