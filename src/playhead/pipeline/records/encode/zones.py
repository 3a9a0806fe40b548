"""Time zones by the names that `db.timezone` may have in Connect: IANA names, Java's short names and fixed offsets.

Each is turned into a form that Java, Spark and PostgreSQL understand in one way: an IANA name, or `GMT+08:00`. Older Java code
takes an unknown name for GMT without a word; here it is refused.
"""

import re
from datetime import timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from playhead.errors import Invalid, near_names

UTC = "UTC"
MOST_HOURS = 18
# Java's own names (java.time.ZoneId.SHORT_IDS). The zone files of a system have some of them with other rules.
_SHORT = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "EST": "GMT-05:00",
    "HST": "GMT-10:00",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "MST": "GMT-07:00",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}
_NOT_IN_JAVA = frozenset({"Factory", "localtime", "posixrules"})
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(?:(\d{1,2})|(\d{1,2}):(\d{2})|(\d{2})(\d{2}))")
_FIXED = re.compile(r"GMT([+-])(\d{2}):(\d{2})")


def parse_zone(name: str) -> str:
    """The IANA name, `UTC`, or a fixed offset as `GMT+08:00`, east of Greenwich."""
    if name in ("UTC", "GMT", "UT", "Z"):
        return UTC
    if name in _SHORT:
        return _SHORT[name]
    if (fixed := _fixed(name)) is not None:
        return fixed
    known = available_timezones() - _NOT_IN_JAVA
    if name in known:
        return name
    if not known and re.fullmatch(r"[A-Za-z][A-Za-z0-9_+-]*(/[A-Za-z0-9_+-]+)+", name):
        return name  # a machine without zone files; Spark, which has Java's, refuses an unknown one before it reads
    raise Invalid(f"there is no time zone {name!r}", near_names(name, sorted(known)))


def zone_of(name: str) -> tzinfo:
    """The zone of a name that `parse_zone` returned. Raises ZoneInfoNotFoundError on a machine without zone files."""
    fixed = _FIXED.fullmatch(name)
    if fixed is None:
        return ZoneInfo(name)
    return timezone((-1 if fixed[1] == "-" else 1) * timedelta(hours=int(fixed[2]), minutes=int(fixed[3])))


def is_fixed(name: str) -> bool:
    return _FIXED.fullmatch(name) is not None


def _fixed(name: str) -> str | None:
    found = _OFFSET.fullmatch(name)
    if found is None:
        return None
    hours, minutes = int(found[2] or found[3] or found[5]), int(found[4] or found[6] or 0)
    if minutes > 59 or hours * 60 + minutes > MOST_HOURS * 60:
        return None
    return f"GMT{found[1]}{hours:02}:{minutes:02}" if hours or minutes else UTC
