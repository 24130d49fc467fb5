"""Scores of saying "I do not know" and of asking back where that should be done, and figures conditioned on it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel

from dialore.datasets.handbook import item_of
from dialore.evaluation import overlap
from dialore.evaluation.base import Mean, Metric, Proportion, Sample, SampleScore, about_of, unavailable
from dialore.evaluation.judges import scoring
from dialore.evaluation.judges.asking import JudgeClient, UnjudgedError, asker_of, spoken
from dialore.text import HAN, split_lines, split_sentences

if TYPE_CHECKING:
    from dialore.evaluation.registry import Context

PROMPT, _CLARIFYING = "idk", "asking-back"
_LABELS = {"ANSWERABLE": False, "PARTIAL": False, "UNANSWERABLE": True}
"""Labels of a dialogue's last turn: true where a response is to say that it does not know."""
_REST = 20  # words that may follow "I do not know" before they count as an answer
_WORD = re.compile(rf"[{HAN}]|[^\W{HAN}]+")
_KNOWABLE = r"(?:information|info|details?|data|answer|knowledge|records?|evidence|mention|specifics)"
_NONE_EN = r"(?:any|enough|sufficient|specific|exact|further|more|the|an|a|such|that|detailed|relevant|clear)"
_UNKNOWN = re.compile(
    rf"\b(?:do|did|does|could|can)(?: not|n't) (?:\w+ ){{0,2}}?(?:have|find|provide|contain|include|offer|give|see)"
    rf" (?:{_NONE_EN} ){{0,3}}{_KNOWABLE}\b"
    rf"|\b(?:have|has|is|are|there's|found|find|with|contains?|includes?|provides?) no (?:\w+ ){{0,2}}?{_KNOWABLE}\b"
    r"|\b(?:i|we)(?:'m| am|'re| are)? (?:\w+ )?(?:do not|don't|not|didn't|did not) (?:actually |really )?"
    r"(?:know|sure|aware|certain)\b"
    r"|\b(?:i|we)(?:'m| am| are)? (?:unable|not able) to (?:answer|find|say|tell)\b"
    r"|\b(?:i|we) (?:cannot|can't|can not|couldn't|could not) (?:answer|find|say|tell)\b"
    r"|\b(?:is|are|was|were)(?: not|n't) (?:\w+ )?"
    r"(?:mentioned|specified|stated|given|provided|known|covered|available)\b"
    r"|\b(?:no|not) idea\b|\bunanswerable\b"
    r"|不知道|不清楚|不了解|不太(?:清楚|了解|确定)|不确定|没有?(?:找到|查到|看到|提到|提及|说明|相关|具体|这方面|任何|足够)"
    r"|没有.{0,8}(?:信息|资料|内容|记录)|无法(?:回答|确定|告诉|得知|提供)|(?:未|没)(?:提及|提到|说明)|没听说|查不到",
    re.IGNORECASE,
)


def make(name: str, context: Context) -> IdkConditioned | Clarifies:
    """Return a metric of this file by name."""
    if name.startswith("clarifies"):
        judge = None if name.endswith("-lexical") else asker_of(context) or "no judge was given"
        return Clarifies(name, judge)
    if name in {"idk-lexical", "idk-rouge-l"}:
        return IdkConditioned(name, None, None if name == "idk-lexical" else overlap.RougeL("rouge-l", context))
    metric = None if name == "idk" else scoring.make("ragas-faithfulness", context)
    return IdkConditioned(name, asker_of(context) or "no judge was given", metric)


def says_unknown(text: str) -> bool:
    """Return whether a response says no more than that it does not know, by its wording in English or Chinese.

    Its first sentence says so, and what follows is short or says so too: what is admitted after an answer, or before a
    longer one, is the limit of that answer.
    """
    first, *others = split_lines(text.replace("’", "'")) or [""]
    told = sum(len(_WORD.findall(sentence)) for sentence in others if not _UNKNOWN.search(sentence))
    return _UNKNOWN.search(first) is not None and told <= _REST


def asks_back(text: str) -> bool:
    """Return whether a response does no more than ask: it ends with a question, and what it says besides is short."""
    *others, last = split_sentences(text.strip()) or [""]
    told = sum(len(_WORD.findall(sentence)) for sentence in others if not sentence.endswith(("?", "？")))
    return last.endswith(("?", "？")) and told <= _REST


class Asking(BaseModel):
    """A judge's verdict on whether a response asks back in place of an answer."""

    verdict: Literal["asks back", "answers", "neither"]


class Clarifies(Proportion):
    """The share of underspecified turns that are asked back, or with `wrongly` of answerable ones.

    Of the handbook test, a question by wording counts only where it names two of the things that may be meant, or says
    what it asks for.
    """

    def __init__(self, name: str, judge: JudgeClient | str | None) -> None:
        self.about, self._judge = about_of(name), judge
        self._label = "ANSWERABLE" if "wrongly" in name else "UNDERSPECIFIED"
        self.identity = judge.identity(_CLARIFYING) if isinstance(judge, JudgeClient) else ""

    async def measure(self, sample: Sample) -> SampleScore:
        """1 or 0."""
        if sample.dialogue.extra.get("answerability") != self._label:
            return unavailable(f"the dialogue is not labelled {self._label}")
        if isinstance(self._judge, str):
            return unavailable(self._judge)
        if self._judge is None:
            return SampleScore((float(asks_back(sample.response.text) and _names(sample)),))
        try:
            verdict = await self._judge.ask(_CLARIFYING, Asking, sample.dialogue, response=spoken(sample.response))
        except UnjudgedError as error:
            return error.measure
        return SampleScore((float(verdict.verdict == "asks back"),))


def _names(sample: Sample) -> bool:
    """Return whether a question back says what it is about, as far as the dialogue tells what that is."""
    item, text = item_of(sample.dialogue), sample.response.text.lower()
    if item is None or not item.candidates:
        return True
    named = sum(any(form in text for form in forms) for forms in item.candidates)
    return named > 1 or any(form in text for form in item.about)


class Knowing(BaseModel):
    """A judge's verdict on whether a response answers what was asked."""

    verdict: Literal["answers", "partly", "does not know"]


class IdkConditioned(Mean):
    """A metric where an answer is called for and given; else 1 where "I do not know" is said as it should be, or 0.

    Without a metric it is 1 where an answer is called for and given. Whether a response says that it does not know is
    told by its wording, or by a judge.
    """

    def __init__(self, name: str, judge: JudgeClient | str | None, metric: Metric | None) -> None:
        self.about, self._judge, self._metric = about_of(name), judge, metric
        own = judge.identity(PROMPT) if isinstance(judge, JudgeClient) else ""
        self.identity = ", ".join(filter(None, [own, getattr(metric, "identity", "")]))

    async def measure(self, sample: Sample) -> SampleScore:
        """0 to 1."""
        label = str(sample.dialogue.extra.get("answerability") or "")
        if label not in _LABELS:
            labelled = f"it is {label.lower()}" if label else "nobody labelled it"
            return unavailable(f"the dialogue is neither to be answered nor not: {labelled}")
        if isinstance(self._judge, str):
            return unavailable(self._judge)
        if self._judge is None:
            unknown = says_unknown(sample.response.text)
        else:
            try:
                verdict = await self._judge.ask(PROMPT, Knowing, sample.dialogue, response=spoken(sample.response))
            except UnjudgedError as error:
                return error.measure
            unknown = verdict.verdict == "does not know"
        if self._metric is None or unknown or _LABELS[label]:
            detail = "says it does not know" if unknown else "answers"
            return SampleScore((float(unknown == _LABELS[label]),), detail=detail)
        return await self._metric.measure(sample)
