"""Text that anybody may have written (file names, call sites, a run file's strings), made fit to be shown."""

from __future__ import annotations

import re

# What would move a terminal's cursor, change its colours or its title, or turn the reading direction: the control
# characters but for line feed and tab, Unicode's line separators and its bidirectional controls
# (https://www.unicode.org/reports/tr36/#Bidirectional_Text_Spoofing).
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """``text`` as every encoding of Unicode has it, with what would do something to a terminal as Python's escapes.

    Bytes of a file's name that Python could not decode are taken for UTF-8, whatever the locale says.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    try:
        encoded = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        encoded = text.encode("utf-8", "backslashreplace")
    return _UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], encoded.decode("utf-8", "backslashreplace"))
