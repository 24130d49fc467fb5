"""Queries without personal data, before they leave the machine (SCG-QP's Limitations; English and Chinese)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dialore.sources.web.names import introduced_names, without_names
from dialore.sources.web.personal import RULES

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

_SPACES = re.compile(r"\s+")
_HANGING = re.compile(r"\s+([,.;:!?，。；：！？])")
_DOUBLED = re.compile(r"[,;:，；：、\s]+([.。!?！？])|([.。!?！？，])[\s.。,，]*[.。,，]")
# What Chinese keyboards write in full width: numbers and addresses have these alone.
_FOLDED = {0xFEE0 + ord(sign): sign for sign in "0123456789@.-+"}
_EDGES = " ,;:，；：、-"


def redact(query: str, dialogue: Dialogue) -> tuple[str, list[str]]:
    """A query without what identifies the user.

    Taken out: e-mail addresses, phone numbers, card, bank account and identity numbers, IP and street addresses (the
    town stays), the personal part of web addresses, and the name that the user gave as their own in the dialogue or in
    the query. Dates, prices, years, versions and model numbers stay, and so do names of others.

    Returns:
        The query, possibly empty, and a note for each kind of thing taken out, which does not repeat it.
    """
    notes: list[str] = []
    asked, query = query, query.translate(_FOLDED)
    for rule in RULES:
        query, changed = rule.apply(query)
        if changed:
            notes.append(f"{rule.what} was taken out of the query")
    clean = without_names(query, introduced_names(dialogue, query))
    if clean != query:
        notes.append("the user's name was taken out of the query")
    if not notes:
        return asked, []
    tidy = _HANGING.sub(r"\1", _SPACES.sub(" ", clean))
    tidy = _DOUBLED.sub(r"\1\2", tidy).lstrip(_EDGES + ".。!?！？").rstrip(_EDGES)
    return tidy if re.search(r"\w", tidy) else "", list(dict.fromkeys(notes))
