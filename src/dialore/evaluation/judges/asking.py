"""Ask a judge: a prompt file in, a value of a shape out, or the problem that there is none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, Field, create_model

from dialore.errors import ModelError
from dialore.evaluation.base import SampleScore
from dialore.llm.structured import complete_structured
from dialore.prompts.history import history_variables
from dialore.prompts.library import PromptLibrary
from dialore.text import LANGUAGES

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.evaluation.registry import Context
    from dialore.llm.model import LanguageModel
    from dialore.response import Response

T = TypeVar("T", bound=BaseModel)
_SAME = {"tie", "tied", "equal", "both", "neither", "none", "draw", "平局", "相同", "一样", "都"}
_OF_ONE = re.compile(r"(?:(?:the )?(?:response|answer|assistant|system|option|model|回复|回答)\s*)?\[*([ab])\]*")


def _normalise_pick(said: object) -> object:
    """Return what judges say for one of the picks: "tie", "Response A", "[[b]]"; anything else as it is."""
    if not isinstance(said, str):
        return said
    word = said.strip(" .\"'*").lower()
    match = _OF_ONE.fullmatch(word)
    return match[1].upper() if match else "same" if word in _SAME else word if word == "same" else said


Pick = Annotated[Literal["A", "B", "same"], BeforeValidator(_normalise_pick)]
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
    r"(?:我?(?:很|非常|十分|真的)?(?:抱歉|对不起|遗憾|不好意思)\W*+(?:但是?|不过)?\W*+)?"
    r"(?:作为[^，。！]{0,20}\W*+)?"
)
_TASK_ZH = r"(?:继续|对|为|给|提供|回答|回应|评|打分|判断|比较|协助|帮|满足|完成|处理|参与|讨论|执行|做出|作出|就)"
_REFUSALS_ZH = (
    rf"(?:我|本模型|本助手)?们?(?:暂时|目前|实在|恐怕)?(?:无法|不能|不可以|没法|没办法|不便|不会|不愿|拒绝){_TASK_ZH}",
    r"(?:该|此|这个|您的|你的)(?:请求|内容|要求|对话|任务)(?:违反|不符合)",
)
_REFUSAL = re.compile(
    rf"^\W*+(?:{_LEAD_EN}(?:{'|'.join(_REFUSALS_EN)})|{_LEAD_ZH}(?:{'|'.join(_REFUSALS_ZH)}))", re.IGNORECASE
)


class UnjudgedError(Exception):
    """A judge has nothing to judge, refused, or gave no score; carries the measure that says so."""

    def __init__(self, measure: SampleScore) -> None:
        super().__init__(measure.reason)
        self.measure = measure


@dataclass(frozen=True)
class JudgeClient:
    """A judge: a language model and the prompts that it is asked by."""

    model: LanguageModel
    prompts: PromptLibrary = field(default_factory=PromptLibrary)

    def identity(self, *names: str) -> str:
        """Return the model's name and the hashes of prompts in every language: what judgements depend on."""
        references = [self.prompts.get(f"judge/{name}", language).reference for name in names for language in LANGUAGES]
        return ", ".join([self.model.name, *references])

    async def ask(self, name: str, shape: type[T], dialogue: Dialogue, *, label: str = "", **variables: object) -> T:
        """Ask for a value of a shape, in the dialogue's language, by the prompt `judge/<name>`.

        Prompts see the dialogue (`history_variables`) and `variables`; `label` is the judge's name in requests, the
        prompt's where it is empty. Raises ModelError, and UnjudgedError where the judge refused, or its answer could
        not be parsed after one repair turn.
        """
        prompt = self.prompts.get(f"judge/{name}", dialogue.language)
        known = history_variables(dialogue, numbered=prompt.front.history == "numbered") | variables
        request = prompt.render(known, f"{dialogue.id}/judge/{label or name}")
        try:
            answer = await complete_structured(self.model, request, shape)
        except ModelError as error:
            if error.refused:
                raise _refusal_error(error.message) from error
            raise
        completion = answer.completions[-1].text
        # A number that comes with a refusal is not the judge's judgement.
        for text in (completion, *([answer.completions[0].text] if answer.value is None else [])):
            if is_refusal(text):
                raise _refusal_error(text)
        if answer.value is None:
            reason = f"the judge's answer could not be parsed: {answer.error}"
            raise UnjudgedError(SampleScore(problem="unparsed", reason=reason, detail=_short(completion)))
        return answer.value


def asker_of(context: Context) -> JudgeClient | None:
    """Return the judge of a context; None where there is none."""
    return JudgeClient(context.judge, PromptLibrary(context.judge_prompts)) if context.judge is not None else None


def _refusal_error(said: str) -> UnjudgedError:
    return UnjudgedError(SampleScore(problem="refused", reason="the judge refused", detail=_short(said)))


def _short(text: str) -> str:
    return " ".join(text.split())[:200]


def is_refusal(text: str) -> bool:
    """Return whether an answer begins with a refusal to do what was asked, in English or Chinese.

    Only the beginning counts: a judge's remark on a response that itself refuses is no refusal of the judge's.
    """
    return _REFUSAL.match(" ".join(text[:400].replace("’", "'").split())) is not None


def spoken(response: Response) -> str:
    """Return a response on one line, as prompts show it."""
    return " ".join(response.text.split())


def queries_of(response: Response) -> list[str]:
    """Return what a response looked up: its demands' queries, else the queries or questions in its trace."""
    if response.demands is not None and response.demands.queries:
        return response.demands.queries
    queries: list[str] = []
    for stage in response.trace:
        for key in ("query", "queries", "questions"):
            value = stage.output.get(key)
            queries += [text for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    return [query for query in dict.fromkeys(queries) if query.strip()]


@lru_cache(maxsize=256)
def list_shape(name: str, key: str, top: int | None = None, count: int | None = None) -> type[BaseModel]:
    """Return a list under the key that the prompt names: `count` numbers from 1 to `top`, or true or false."""
    item: Any = bool if top is None else Annotated[float, Field(ge=1, le=top)]
    return create_model(name, **{key: (Annotated[list[item], Field(min_length=count, max_length=count)], ...)})  # type: ignore[call-overload,no-any-return]
