"""Rendering of dialogue histories for prompts."""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby
from typing import TYPE_CHECKING

from dialore.llm.model import Message

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.text import Language

# DCRAG calls the two sides "Me" and "Friend" (Tables 12 to 18); the response is Friend's.
_SIDES: dict[Language, tuple[str, str, str]] = {"en": ("Me", "Friend", ": "), "zh": ("我", "朋友", "：")}
_LANGUAGES: dict[Language, str] = {"en": "English", "zh": "Chinese"}

# Signs that part turns in the input of models without chat, such as Cosmo.
_COLON = re.compile("[:：]")
_NAME = 40
"""Characters of a speaker's name: no longer one is to pass for a line of the prompt."""
_SIGN = re.compile(r"<\s*(?:sep|turn)\s*>", re.IGNORECASE)


class Block(str):
    """A text of several lines for a prompt, each of them made by us: what others wrote is on one line each."""

    __slots__ = ()


def render_history(dialogue: Dialogue, *, numbered: bool = False) -> Block:
    """Return the history, a turn a line, the last turn's speaker as "Me" and the responder as "Friend".

    Speakers beyond these two keep their names, without colons. Line breaks inside a turn become spaces. Numbered, each
    turn has its number, and the two sides are called so in every language: `Friend-7: ...` (DCRAG, Tables 12 to 18).
    """
    me, friend, colon = _SIDES["en" if numbered else dialogue.language]
    names = _names(dialogue) | {dialogue.last.speaker: me, dialogue.responder: friend}
    numbers = [f"-{number}" if numbered else "" for number in range(1, len(dialogue.turns) + 1)]
    lines = (
        f"{names[turn.speaker]}{n}{colon}{on_one_line(turn.text)}"
        for turn, n in zip(dialogue.turns, numbers, strict=True)
    )
    return Block("\n".join(lines))


def history_variables(dialogue: Dialogue, *, numbered: bool = False) -> dict[str, object]:
    """Return what every prompt is told of a dialogue: history, last turn, language, the next turn's number."""
    return {
        "history": render_history(dialogue, numbered=numbered),
        "last_turn": on_one_line(dialogue.last.text),
        "language": _LANGUAGES[dialogue.language],
        "target": len(dialogue.turns) + 1,
    }


def history_messages(dialogue: Dialogue) -> tuple[Message, ...]:
    """Return the history as chat messages: the responder's turns are the assistant's, all others the user's.

    Turns in a row from one side are one message, a line each. Where more than one speaks beside the responder, each of
    these turns begins with its speaker's name. The last message is the user's; what a message holds depends on nothing
    that comes after it but who speaks, so that a server's cache of the conversation holds from turn to turn.
    """
    responder, colon = dialogue.responder, _SIDES[dialogue.language][2]
    names = _names(dialogue)
    is_group = len(names.keys() - {responder}) > 1
    messages = []
    for is_responder, turns in groupby(dialogue.turns, lambda turn: turn.speaker == responder):
        named = is_group and not is_responder
        lines = (f"{names[turn.speaker]}{colon}{turn.text}" if named else turn.text for turn in turns)
        content = break_marks("\n".join(lines))
        messages.append(Message(role="assistant" if is_responder else "user", content=content))
    return tuple(messages)


def _names(dialogue: Dialogue) -> dict[str, str]:
    """Return the speakers' names as prompts have them: short, on one line, without colons."""
    return {turn.speaker: on_one_line(_COLON.sub(" ", turn.speaker))[:_NAME] for turn in dialogue.turns}


def asking_for(language: str) -> str:
    """Return what asks a model for a turn in another language than its prompt's."""
    return f"The conversation is held in {language}: write your turn in {language}, whatever language is named above."


_MARK = re.compile(
    r"<(?:\s*+/?\s*+(?:answers|knowledge|passage|persona|sentences)\b"
    # Chat templates: <|im_end|>, <|turn>, <turn|>, <s>, </s>, <start_of_turn>, <extra_id_0>, <<SYS>>.
    r"|\s*+\|\s*+[/\w\"](?:[\w\s/.\"-]{0,40}?)\|?\s*+>"
    r"|\s*+/?\s*+\w{1,40}\s*+\|\s*+>"
    r"|\s*+/?\s*+(?:s|bos|eos|unk|pad|sep|cls|mask|turn|think|tool_calls?|tool_response|endoftext|startoftext"
    r"|(?:start|end)_of_\w{1,40}|extra_id_\d{1,4}|unused_?\d{1,4}|reserved_\w{1,40})\s*+>"
    r"|\s*+<\s*+/?\s*+sys\s*+>)"
    # [INST], [/INST], [SYSTEM_PROMPT], [TOOL_CALLS].
    r"|\[\s*+/?\s*+(?:inst|system_prompt|available_tools|tool_calls|tool_results|tool_content|model_settings|gmask"
    r"|(?-i:THINK|CALL_ID))\s*+\]",
    re.IGNORECASE,
)
# Zero-width characters, soft hyphens, and marks of direction and variation.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
_LOOK_ALIKES = str.maketrans(
    "⟨〈〈❮ᐸ˂≺⟩〉〉❯ᐳ˃≻∣ǀ│⎮￨❘⁄∕⟋⧸▁асеорхуѕіјԁɡһԝոᴀᴋɴᴏᴡʟᴇᴅɢᴘꜱɪᴛʀᴜᴍΑΒΕΗΙΚΜΝΟΡΤΧΥΖАВЕКМНОРСТХοικνρυ",
    "<<<<<<<>>>>>>>||||||////_aceopxysijdghwnaknowledgpsitrumABEHIKMNOPTXYZABEKMHOPCTXoiknpu",
)
"""Characters that look like those of marks. NFKC maps many others to them."""
_OPENING = re.compile("[<\\[＜﹤［⟨〈〈❮ᐸ˂≺]")
_MAX_MARK = 96
"""Characters in which a mark is recognised."""


def break_marks(text: str) -> str:
    """Return a text in which nothing can be read as a fence of a prompt or as a mark of a chat template.

    The opening bracket of each mark is replaced by one that no template knows. Marks are recognised as tokenizers and
    models may read them: after Unicode normalisation (NFKC), with look-alike letters, and with invisible characters
    between their own. If any mark holds invisible characters, these are dropped from the text. A text without marks is
    returned unchanged.
    """
    if _OPENING.search(text) is None:
        return text
    visible = _INVISIBLE.sub("", text)
    marks = _find_marks(visible)
    if not marks:
        return text
    if visible != text and len(_find_marks(text)) == len(marks):
        visible, marks = text, _find_marks(text)
    characters = list(visible)
    for start in marks:
        characters[start] = "⁅" if characters[start] in "[［" else "‹"
    return "".join(characters)


def _find_marks(text: str) -> list[int]:
    """Return where marks begin in a text without invisible characters."""
    starts = []
    for opening in _OPENING.finditer(text):
        window = text[opening.start() : opening.start() + _MAX_MARK]
        if not window.isascii():
            window = unicodedata.normalize("NFKC", window.translate(_LOOK_ALIKES)).translate(_LOOK_ALIKES)
        if _MARK.match(window):
            starts.append(opening.start())
    return starts


def on_one_line(text: str) -> str:
    """Return a text with its line breaks, of any kind, as spaces, and no sign that could end what it stands in."""
    return " ".join(break_marks(text).split())


def plain_turns(dialogue: Dialogue) -> list[str]:
    """Return the turns' texts, a line each, oldest first, without the signs that part turns in Cosmo's input."""
    return [plain_line(text) for text in dialogue.texts]


def plain_line(text: str) -> str:
    """Return a text on one line, without such signs."""
    return " ".join(break_marks(_SIGN.sub(" ", text)).split())


def friend_labels(language: Language) -> tuple[str, ...]:
    """Labels that a model may put before the response although it was told not to."""
    me, friend, _ = _SIDES[language]
    return (friend, me, "Friend", "Response", "回复", "回应")
