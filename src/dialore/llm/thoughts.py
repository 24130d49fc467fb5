"""Thoughts of reasoning models, told from their answers: they are never shown, streamed or not."""

from __future__ import annotations

import re

_NAMES = ("think", "thinking", "thought", "thoughts", "reasoning", "reason", "seed:think")
_PAIRS = {
    **{f"<{name}>": f"</{name}>" for name in _NAMES},
    "[think]": "[/think]",
    "◁think▷": "◁/think▷",
    "<|begin_of_thought|>": "<|end_of_thought|>",
    "<|start_thinking|>": "<|end_thinking|>",
}
"""Tags that open thoughts, and those that close them, in small letters."""
_CLOSERS = {closer: re.compile(re.escape(closer), re.IGNORECASE) for closer in _PAIRS.values()}
_CLOSED = re.compile("|".join(map(re.escape, _CLOSERS)), re.IGNORECASE)
_LONGEST_CLOSE = 24
# OpenAI's harmony: each part of an answer is headed by its channel, and only that of `final` is meant for the reader.
_CHANNEL = re.compile(
    r"(?:<\|start\|>)?(?:assistant)?<\|channel\|>\s*(\w+)[^<]{0,80}(?:<\|constrain\|>[^<]{0,40})?<\|message\|>"
)
_HEADS, _LONGEST_HEAD = ("<|start|>", "<|channel|>"), 200
_CHANNEL_ENDS = re.compile(r"<\|(?:end|call)\|>|(?=<\|start\|>|<\|channel\|>)")
# What is left of it where a server drops the special tokens.
_BARE, _BARE_FINAL = re.compile(r"analysis(?=[^\s.,:;!?'\u2019-])"), "assistantfinal"
_END = re.compile(r"(?:<\|(?:im_end|end|return|eot_id|endoftext|end_of_text)\|>|<end_of_turn>|</s>)\s*$")
"""A token that ends a turn, which some servers leave in the text."""
_END_BEGUN = re.compile(r"<(?:[|/]?[a-z_]{0,12}\|?>?)?\s*$")


class ThoughtFilter:
    """Takes the thoughts away from the front of a text that comes in pieces, and the token that ends it.

    Feed it every piece in order; what it returns, joined, is the answer. Text that merely mentions the tags later on
    is left alone.

    Where it may be `unopened`, it may begin with thoughts that no tag opens, as where a server's template has already
    written it into the prompt: all is then held back until they close, or the text ends. Thoughts that were marked have
    been `seen`; where there was anything in them, it has `thought`.
    """

    def __init__(self, *, unopened: bool = False) -> None:
        self.unopened = unopened
        self.seen = self.thought = self.was_unopened = False
        self._held, self._tail, self._answering = "", "", False
        self._searched = 0  # characters of the held text in which no closing tag begins
        self._close: re.Pattern[str] | None = None

    def feed(self, piece: str) -> str:
        """Take the next piece and return the part of the answer that is certain by now."""
        if not self._answering:
            self._held += piece
            while self._moved():
                pass
            piece = self._held
        return self._answer(piece) if self._answering else ""

    def finish(self) -> str:
        """Return what was held back and turned out to be answer; thoughts that never ended are dropped."""
        if self._answering:
            tail, self._tail = self._tail, ""
            return _END.sub("", tail)
        held, self._held, self._answering = self._held, "", True
        if self._close is not None or held.lstrip().startswith(_HEADS):
            self.seen = self.thought = True
            return ""
        return _END.sub("", held)

    def _moved(self) -> bool:
        """Go on by one part of what is held; says whether there may be another."""
        text = self._held
        if self._close is not None:
            return self._closed(self._close, text)
        head = text.lstrip()
        if (channel := _CHANNEL.match(head)) is not None:
            if channel[1] == "final":
                return self._begin(head[channel.end() :])
            return self._open(head[channel.end() :], _CHANNEL_ENDS)
        small = head[:_LONGEST_CLOSE].lower()
        for opener, closer in _PAIRS.items():
            if small.startswith(opener):
                return self._open(head[len(opener) :], _CLOSERS[closer])
        is_part = any(opener.startswith(small) for opener in (*_PAIRS, *_HEADS))
        if is_part or (head.startswith(_HEADS) and len(head) < _LONGEST_HEAD):
            return False
        return self._plain(text, head)

    def _open(self, rest: str, close: re.Pattern[str]) -> bool:
        self._held, self._close, self.seen = rest, close, True
        return True

    def _begin(self, answer: str) -> bool:
        self._held, self._answering = answer, True
        return False

    def _closed(self, close: re.Pattern[str], text: str) -> bool:
        if (match := close.search(text)) is None:
            # The tail may hold the first letters of what closes; the rest can go, thoughts may be long.
            self.thought |= bool(text.strip()) and len(text) > _LONGEST_CLOSE
            self._held = text[-_LONGEST_CLOSE:]
            return False
        self.thought |= bool(text[: match.start()].strip())
        self._held, self._close = text[match.end() :].lstrip(), None
        return True

    def _plain(self, text: str, head: str) -> bool:
        """Go on with what begins like an answer: it may be thoughts without an opening tag."""
        if "analysis".startswith(head):
            return False
        if not self.seen and _BARE.match(head):
            _, marker, answer = head.partition(_BARE_FINAL)
            self.seen = bool(marker)
            return self._begin(answer) if marker else False
        if not self.unopened or self.seen:
            return self._begin(head if self.seen else text)
        if (close := _CLOSED.search(head, self._searched)) is None:
            # The whole text again with each piece would take time that grows with its square.
            self._searched = max(0, len(head) - _LONGEST_CLOSE)
            return False
        opener = next(opener for opener, closer in _PAIRS.items() if closer == close[0].lower())
        if opener in head[: close.start()].lower():  # a mention
            return self._begin(text)
        self.seen = self.thought = self.was_unopened = True
        self._held = head[close.end() :].lstrip()
        return True

    def _answer(self, piece: str) -> str:
        text = self._tail + piece
        cut = text.rfind("<")
        end = cut if cut >= 0 and _END_BEGUN.match(text, cut) else len(text)
        self._tail = text[end:]
        return text[:end]


def strip_thoughts(text: str) -> str:
    """Return the answer without its thoughts, also those that no tag opens."""
    thoughts = ThoughtFilter(unopened=True)
    return thoughts.feed(text) + thoughts.finish()
