"""Where one sentence ends and the next begins, in English and Chinese; no sentence is lost, none is cut in two."""

from __future__ import annotations

import re

RULES = 2
"""Raised when other sentences are found than before: what counts sentences is to be counted anew."""


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# After these a full stop ends no sentence, whatever follows.
_TITLES = _set(
    "mr mrs ms dr prof rev hon gov sen rep gen col lt sgt capt cmdr maj st mt ft messrs mme mlle vs eg ie viz cf al "
    "fig figs eq eqs sec ch vol vols pp ed eds no nos approx ca tel"
)
# After these one ends only where a word follows that begins sentences.
_SHORTENED = _set(
    "inc ltd co corp bros jr sr phd md ba ma bsc msc am pm etc usa uk us eu un jan feb mar apr jun jul aug sep sept "
    "oct nov dec mon tue wed thu fri sat sun ave blvd rd dept est univ assn"
)
_OPENERS = _set(
    "the a an this that these those it its he she they we you i in on at by for from with as but and or so if when "
    "while after before since because although however there here his her their our my your who what where why how "
    "some many most all one not no yes then thus"
)
_CLOSE = r"[\"'”’»)\]*_]*+"
_GAP = r"(?=\s|$|[一-鿿])"
# Marks inside a title, 《摔跤吧！爸爸》, end nothing. A run of English marks that ends nothing is passed as a whole:
# each of them would read the rest of it again.
_END = re.compile(
    r"(?P<zh>[。！？]+(?![^《》]{0,30}》)(?:[」』”’】）》\"')\]]|……)*"
    rf"|(?:……|⋯⋯)(?:[.!?…]++(?!{_CLOSE}{_GAP}))?[」』”’】）》]*)"
    rf"|(?P<en>[.!?…]++)(?P<close>{_CLOSE}){_GAP}"
    r"|(?:[.!?]|…(?!…))++"
)
_LONGEST = 64  # letters of what may be an abbreviation, and more
_LETTER = re.compile(r"[^\W_]")
_INITIALS = re.compile(r"[A-Z]|(?:[A-Za-z]\.)+[A-Za-z]")
_NEXT = re.compile(r"\s*[\"'“‘«(\[*_]*([^\W_]*)")
_CLAUSE = re.compile(r"(?<=[,;:，；、：])\s*|(?<=[—–])\s*|\s+")


def split_sentences(text: str) -> list[str]:
    """The sentences of a text in order, without the white space around them; blank ones are left out.

    A Chinese sentence ends at 。！？ and ……, with the quotes and brackets that close behind them, whatever follows. An
    English one ends at . ! ? and … where white space follows and what stands there does not go on: not behind "Dr." and
    initials, not inside "3.5", not before a small letter ("Stop!" he said). Signs without a word are no sentence of
    their own. White space counts as one space: paragraphs are to be parted before.
    """
    whole = " ".join(text.split())
    spans: list[tuple[int, int]] = []
    start = 0
    letter = _LETTER.search(whole)  # signs that a text begins with stand with what follows
    for match in _END.finditer(whole, letter.start() if letter else len(whole)):
        if match["zh"] or (match["en"] and _ends(whole, match, start)):
            start = _add(spans, whole, start, match.end())
    _add(spans, whole, start, len(whole))
    return [sentence for first, end in spans if (sentence := whole[first:end].strip())]


def split_lines(text: str) -> list[str]:
    """The sentences of a text whose line ends part them too, as headings and list items have it."""
    return [sentence for line in text.splitlines() for sentence in split_sentences(line)]


def _add(spans: list[tuple[int, int]], text: str, start: int, end: int) -> int:
    """Add a sentence, or its signs to the one before where it has no word; where the next begins."""
    if not spans or _LETTER.search(text, start, end):
        spans.append((start, end))
    else:
        spans[-1] = (spans[-1][0], end)
    return end


def _ends(text: str, match: re.Match[str], start: int) -> bool:
    """Whether an English mark ends the sentence that begins at `start`."""
    following = _NEXT.match(text, match.end())
    word = following[1] if following else ""
    if word[:1].islower():
        # A small letter behind a mark goes on, but for a list's or a careless writer's "?" and "!" without quotes.
        return match["en"] != "." and match["en"][0] in "!?" and not match["close"]
    if match["en"] != "." or match["close"]:
        return True
    # Only the end is looked at: a page of nothing but initials is one sentence, not to be read again at each of them.
    first = start + text.startswith(" ", start)
    stop = match.start() - text.endswith(" ", first, match.start())
    if stop <= first:
        return True
    reach = max(first, stop - _LONGEST)
    at = text.rfind(" ", reach, stop) + 1 or reach
    last = text[at:stop].lstrip("\"'“‘«([*_")
    if not last or not last[-1].isalnum():
        return True
    return _ends_after(last, word, alone=len(last) == stop - first)


def _ends_after(last: str, word: str, *, alone: bool) -> bool:
    """Whether a full stop behind a word ends a sentence, given the word that follows."""
    bare = last.replace(".", "").lower()
    if bare in _TITLES and last.lower() not in {"no", "ed", "al", "ch"}:
        return False
    if bare == "no":
        return not word[:1].isdigit()
    if alone and (last.isdigit() or len(last) == 1):
        return False  # a list's number: "1. Open the box."
    initials = _INITIALS.fullmatch(last) is not None
    if initials or bare in _SHORTENED:
        return not word or word.lower() in _OPENERS
    return True


def split_clauses(sentence: str) -> list[str]:
    """Pieces of an over-long sentence, at commas and white space; joined in order they are the sentence again."""
    pieces: list[str] = []
    start = 0
    for match in _CLAUSE.finditer(sentence):
        if match.end() > start:
            pieces.append(sentence[start : match.end()])
            start = match.end()
    if start < len(sentence):
        pieces.append(sentence[start:])
    return pieces
