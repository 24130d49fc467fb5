"""Asking a judge: prompt file in, value of a shape out, or the problem that there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from dialore.errors import ModelError
from dialore.evaluation.base import Measure
from dialore.evaluation.judges.refusals import is_refusal
from dialore.llm.model import Request
from dialore.llm.structured import complete_structured
from dialore.prompts.history import render_history
from dialore.prompts.library import PromptLibrary
from dialore.text import LANGUAGES

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue
    from dialore.llm.model import LanguageModel
    from dialore.llm.structured import Structured
    from dialore.response import Response

T = TypeVar("T", bound=BaseModel)
_SHOWN = 200


@dataclass(frozen=True)
class Asker:
    """A judge: a language model and the prompts that it is asked by.

    Attributes:
        model: the language model.
        prompts: where the prompt files are looked for.
    """

    model: LanguageModel
    prompts: PromptLibrary = field(default_factory=PromptLibrary)

    def identity(self, *names: str) -> str:
        """The model's name and the hashes of prompts in every language: what judgements depend on."""
        references = [self.prompts.get(f"judge/{name}", language).reference for name in names for language in LANGUAGES]
        return ", ".join([self.model.name, *references])

    async def ask(
        self, name: str, shape: type[T], dialogue: Dialogue, *, label: str = "", **variables: object
    ) -> T | Measure:
        """Ask for a value of a shape, in the dialogue's language.

        Args:
            name: the prompt file: `judge/<name>`.
            shape: what the answer is parsed into, after one repair turn where it does not parse.
            dialogue: the dialogue that is judged; prompts see its `history`.
            label: the judge's name in `Request.label`; the prompt's name where it is empty.
            variables: what else the prompt names.

        Returns:
            The value; or a measure with the problem `refused` or `unparsed`.

        Raises:
            ModelError: the call failed.
            InputError: the prompt is missing or names an unknown variable.
        """
        prompt = self.prompts.get(f"judge/{name}", dialogue.language)
        rendered = prompt.render({"history": render_history(dialogue), "last_turn": dialogue.last.text, **variables})
        request = Request(
            messages=rendered.messages,
            sampling=rendered.sampling,
            continuation=rendered.continuation,
            continuation_stop=rendered.stop,
            label=f"{dialogue.id}/judge/{label or name}",
        )
        try:
            answer = await complete_structured(self.model, request, shape)
        except ModelError as error:
            if error.refused:
                return Measure(problem="refused", reason="the judge refused", detail=error.message[:_SHOWN])
            raise
        return _checked(answer)


def _checked(answer: Structured[T]) -> T | Measure:
    said = answer.completions[-1].text
    # A number that comes with a refusal is not the judge's judgement.
    if is_refusal(said) or (answer.value is None and is_refusal(answer.completions[0].text)):
        declined = said if is_refusal(said) else answer.completions[0].text
        return Measure(problem="refused", reason="the judge refused", detail=_short(declined))
    if answer.value is None:
        reason = f"the judge's answer could not be parsed: {answer.error}"
        return Measure(problem="unparsed", reason=reason, detail=_short(said))
    return answer.value


def _short(text: str) -> str:
    return " ".join(text.split())[:_SHOWN]


def spoken(response: Response) -> str:
    """A response on one line, as prompts show it."""
    return " ".join(response.text.split())


def queries_of(response: Response) -> list[str]:
    """What a response looked up: its demands' queries, else the queries or questions that its trace tells of."""
    if response.demands is not None and response.demands.queries:
        return response.demands.queries
    found: list[str] = []
    for stage in response.trace:
        for key in ("query", "queries", "questions"):
            said = stage.output.get(key)
            found += [text for text in (said if isinstance(said, list) else [said]) if isinstance(text, str)]
    return [query for query in dict.fromkeys(found) if query.strip()]
