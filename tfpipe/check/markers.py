"""``# tfpipe: ignore[rule-name]`` comments: rules switched off on one line."""

from __future__ import annotations

import io
import re
import tokenize

_MARKER = re.compile(r"#.*?\btfpipe:\s*ignore\[([^\]]*)\]")


def read_markers(text: str) -> dict[int, frozenset[str]]:
    """Rule names switched off, by line number. Only real comments count, not strings that look like one."""
    markers: dict[int, frozenset[str]] = {}
    if "tfpipe:" not in text:
        return markers
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and (match := _MARKER.search(token.string)):
            names = frozenset(name.strip() for name in match[1].split(",") if name.strip())
            markers[token.start[0]] = names
    return markers
