"""Characters that a terminal obeys instead of showing them."""

from __future__ import annotations

import re

_BIDI_CONTROLS = r"\u202a-\u202e\u2066-\u2069"
_TERMINAL_CONTROLS = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_BIDI_CONTROLS}]")
_UNSAFE_IN_JSON = re.compile(rf"[\x7f-\x9f{_BIDI_CONTROLS}\ud800-\udfff]")


def remove_controls(text: str) -> str:
    """Remove the characters that a terminal obeys instead of showing, apart from line feed and tab.

    Each character is judged alone, so an escape sequence that is split over several chunks is disarmed, too.
    """
    return _TERMINAL_CONTROLS.sub("", text)


def escape_controls(json_text: str) -> str:
    """Escape control characters and lone surrogates in a JSON document, which stays the same document."""
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", json_text)
