"""Telling a judge's refusal from an answer that merely cannot be read."""

from __future__ import annotations

import re

_SHOWN = 400
# What may stand before the refusal itself: an apology, and what the model says it is.
_LEAD_EN = (
    r"(?:(?:sorry|(?:my )?apologies|i apologi[sz]e|unfortunately|i(?:'m| am)(?: \w+)? (?:sorry|afraid))\W+"
    r"(?:(?:but|that|however)\W+)*)?"
    r"(?:(?:as|being|since i am) an? [^,.]{2,60},\s*)?"
)
# What a judge was asked to do: "I cannot tell what he means" declines nothing.
_TASK_EN = (
    r"(?:continue|assist|help|provide|give|score|rate|judge|evaluate|assess|compare|complete|comply|fulfil|answer|respond"
    r"|engage|discuss|participate|support|process|offer|review|rank|choose|perform|do (?:this|that|so|it))"
)
_REFUSALS_EN = (
    rf"i (?:\w+ ){{0,2}}?(?:can't|cannot|can not|could not|couldn't|won't|will not)(?: \w+){{0,3}}? {_TASK_EN}",
    r"i(?:'m| am) (?:\w+ )?(?:not (?:able|comfortable|willing|permitted|allowed|going)|unable)\b",
    r"i (?:\w+ ){0,3}?(?:decline|refuse)\b",
    r"i (?:don't|do not) (?:feel comfortable|have the ability|have personal)",
    r"(?:this|that|the|your) (?:request|content|conversation|dialogue|task) (?:violates|goes against|conflicts with)",
    r"it (?:would be|would not be|is|isn't|is not) (?:in|not )?appropriate for me",
)
_LEAD_ZH = (
    r"(?:我?(?:很|非常|十分|真的)?(?:抱歉|对不起|遗憾|不好意思)\W*(?:但是?|不过)?\W*)?"
    r"(?:作为[^，。！]{0,20}\W*)?"
)
_TASK_ZH = r"(?:继续|对|为|给|提供|回答|回应|评|打分|判断|比较|协助|帮|满足|完成|处理|参与|讨论|执行|做出|作出|就)"
_REFUSALS_ZH = (
    rf"(?:我|本模型|本助手)?们?(?:暂时|目前|实在|恐怕)?(?:无法|不能|不可以|没法|没办法|不便|不会|不愿|拒绝){_TASK_ZH}",
    r"(?:该|此|这个|您的|你的)(?:请求|内容|要求|对话|任务)(?:违反|不符合)",
)
_REFUSAL = re.compile(
    rf"^\W*(?:{_LEAD_EN}(?:{'|'.join(_REFUSALS_EN)})|{_LEAD_ZH}(?:{'|'.join(_REFUSALS_ZH)}))", re.IGNORECASE
)


def is_refusal(text: str) -> bool:
    """Whether an answer begins with a refusal to do what was asked, in English or Chinese.

    Only the beginning counts: a judge's remark on a response that itself refuses is no refusal of the judge's.
    """
    return _REFUSAL.match(" ".join(text[:_SHOWN].replace("’", "'").split())) is not None
