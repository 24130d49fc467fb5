"""Passages that should not reach a model: unsafe ones, and sentences that give the model orders."""

from __future__ import annotations

import re
import unicodedata

from dialore.retrieval.graph import relations as filters
from dialore.text import split_sentences

_CONTROL = re.compile(
    r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\xad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u206f\ufe00-\ufe0f\ufeff"
    r"\ud800-\udfff\U000e0000-\U000e01ef]"
)
_SURNAME = re.compile(r"(?<=[a-z] )Lynch\b")
"""A word of the list that, written so after another word, is a name: Merrill Lynch, David Lynch."""


def without_controls(text: str) -> str:
    """Return a text without control, zero-width and other unseen characters, in which words can be hidden.

    Halves of characters (lone surrogates), which JSON can spell and no file can hold, go too.
    """
    return _CONTROL.sub("", text)


def is_safe(passage: str) -> bool:
    """Return whether a passage holds none of the words that no fact offered to a dialogue may hold either."""
    # Past the cache, which is made for concepts: passages are long and seldom come twice.
    return filters.is_safe.__wrapped__(_SURNAME.sub("", passage))


_TOLD = r"(?:instruction|prompt|rule|guideline|direction|directive|command|message|context|constraint|training|polic)"
_EARLIER = (
    r"(?:previous|prior|above|earlier|preceding|former|foregoing|aforementioned|system|developer|initial|original|"
    r"existing|current|hidden|your)"
)
_FILLER = r"(?:all|any|each|of|the|these|those|my|our|other|given|and|or|safety|such|every)"
_DROP = r"\b(?:ignore|disregard|forget|override|bypass|discard|(?:do not|don't|stop) (?:follow|obey)(?:ing)?)\b"
_READER = r"(?:ai|llms?|language models?|chatbots?|(?:ai )?assistants?|(?:ai )?agents?)"
_COMMANDS = re.compile(
    "|".join(
        [
            # To drop earlier instructions.
            rf"{_DROP}(?:\s+{_FILLER})*\s+{_EARLIER}(?:\s+(?:{_FILLER}|{_EARLIER}))*\s+{_TOLD}",
            rf"{_DROP}\s+(?:all|any|every)(?:\s+{_FILLER})*\s+(?:instruction|prompt)",
            rf"{_DROP}\s+(?:all|everything|anything|what(?:ever)?)\s+(?:(?:of|that|you|the|was|were|has|have|been|i|we)\s+)*"
            r"(?:above|before|previous|prior|told|said)\b",
            r"\bnew (?:system )?instructions?\s*:",
            # To be somebody else.
            r"\b(?:you are|you're) now\s+(?:(?:an?|the|my)\s+)?(?:\w+\s+)?(?:ai|assistant|chatbot|bot|model|"
            r"unrestricted|unfiltered|jailbroken|dan\b|no longer bound|free (?:from|of)|in (?:\w+ )?mode)",
            r"\b(?:from now on,? you|you must now)\s+(?:are|act|will act|must|respond|reply|answer|output|speak|obey|"
            r"ignore|will (?:respond|reply|answer|only|always))\b",
            # To give away or to hide.
            r"\bsystem (?:prompt|message|instruction)s?\b",
            r"\b(?:reveal|print|repeat|output|show|leak|disclose)\s+(?:me\s+)?"
            r"(?:your|the (?:system|hidden|initial|original))\s+(?:\w+\s+){0,2}?(?:prompt|instructions)\b",
            r"\b(?:do not|don't|never)\s+(?:tell|inform|(?:mention|reveal) (?:(?:this|it) )?to|alert|notify)\s+"
            r"the user\b",
            r"\b(?:tell|instruct|convince|persuade) the user (?:to|that)\b",
            rf"\b(?:attention|(?:note|message|instructions?|reminder) (?:to|for)) (?:all |any |the )?{_READER}\b"
            r"\s*[:,.!]",
            rf"\b{_READER} (?:that is |who is )?(?:reading|processing|parsing|summari[sz]ing) this\b",
            # The marks of a model's own turns.
            r"<\|[a-z_]{2,20}\|>|\[/?inst\]|<</?sys>>|</?(?:system|assistant|tool_call|function_call)>",
            r"(?:^|\n)[^\S\n]*(?:#+\s*)?(?:system|assistant|instruction)\s*:",
            # 中文
            r"(?:忽略|无视|忘记|忘掉|不要理会|不用理会|不要遵守|不再遵守|抛开|覆盖|绕过)[^。！？\n]{0,6}"
            r"(?:之前|以前|先前|此前|前面|以上|上面|上述|所有|全部|一切|你的|系统|原有|原来|既有|开发者)[^。！？\n]{0,8}"
            r"(?:指示|指令|提示|命令|规则|要求|设定|限制|约束|说明|对话)",
            r"系统提示|系统指令|系统消息|提示词注入",
            r"从现在(?:开始|起)[，,]?\s*(?:请)?你(?:就|将|必须|要|只能)*(?:是|扮演|充当|服从|听从|回答|回复)",
            r"你现在(?:是一?[个名位]?[^。！？\n]{0,8}(?:助手|模型|机器人|黑客|人工智能|AI)|要扮演|必须扮演)",
            r"(?:不要|不能|别|切勿)(?:告诉|通知|提醒|告知)用户",
            r"(?:输出|显示|泄露|透露|打印|重复)[^。！？\n]{0,6}(?:你的|系统)[^。！？\n]{0,6}(?:提示|指令|设定)",
            r"(?:致|告诉|提醒)(?:所有|各位)?(?:人工智能|AI|大模型|语言模型|智能助手)(?:助手|模型)?[：:，,]",
        ]
    ),
    re.IGNORECASE,
)


def is_command(sentence: str) -> bool:
    """Return whether a sentence tries to command a model that reads it, in English or Chinese."""
    # Full-width letters, zero-width characters and spacing hide words from a pattern, not from a model.
    plain = " ".join(without_controls(unicodedata.normalize("NFKC", sentence)).replace("’", "'").split())
    return _COMMANDS.search(plain) is not None


def without_commands(text: str) -> tuple[str, int]:
    """Return a text without the sentences that try to command the model, and how many there were.

    A command that is spread over several sentences takes all of them along.
    """
    if not is_command(text):
        return text, 0
    dropped = 0
    lines: list[str] = []
    for line in text.split("\n"):
        sentences = split_sentences(line)
        kept = [sentence for sentence in sentences if not is_command(sentence)]
        dropped += len(sentences) - len(kept)
        joint = "" if line and ord(max(line)) >= 0x3400 else " "
        lines.append(joint.join(kept))
    clean = "\n".join(line for line in lines if line)
    if is_command(clean):
        return "", max(1, dropped)
    return clean, dropped
