"""The responder that asks a language model: a prompt file rendered, a completion parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel

from dialore.llm.model import Request, Usage
from dialore.llm.structured import complete_structured
from dialore.methods.cleaning import CleanStream, clean_response
from dialore.methods.stages import StageAnswer, Text
from dialore.prompts.history import friend_labels, on_one_line, render_history

if TYPE_CHECKING:
    from dialore.llm.model import Completion, LanguageModel, OnText
    from dialore.llm.structured import Outcome as ParseOutcome
    from dialore.methods.stages import StageCall
    from dialore.prompts.library import PromptLibrary
    from dialore.response import Outcome

T = TypeVar("T", bound=BaseModel)

_OUTCOMES: dict[ParseOutcome, Outcome] = {
    "parsed": "ok",
    "repaired_locally": "ok",
    "repaired_by_model": "repaired",
    "unparsed": "unparsed",
}
CITING = "shared/citing"
"""How to cite by number: what a response prompt is given as `citing` where `cite` is on."""


class ModelResponder:
    """Does a method's stages by a language model.

    Args:
        model: the language model.
        prompts: the prompt files.
    """

    def __init__(self, model: LanguageModel, prompts: PromptLibrary) -> None:
        self.model = model
        self.prompts = prompts

    @property
    def name(self) -> str:
        """The model's name."""
        return self.model.name

    async def answer(self, call: StageCall[T], on_text: OnText | None = None) -> StageAnswer[T]:
        """Render the stage's prompt, call the model, parse what it says.

        Raises:
            InputError: the prompt is missing or malformed.
            ModelError: the model failed.
        """
        dialogue = call.dialogue
        known: dict[str, object] = {"history": render_history(dialogue)}
        known |= {"last_turn": on_one_line(dialogue.last.text), "cite": False, **call.variables}
        citing = self.prompts.get(CITING, dialogue.language).render({}) if known["cite"] else None
        if citing is not None:
            known["citing"] = citing.messages[0].content
        prompt = self.prompts.get(call.prompt, dialogue.language).render(known)
        request = Request(
            messages=prompt.messages,
            sampling=prompt.sampling,
            continuation=prompt.continuation,
            continuation_stop=prompt.stop,
            steering=prompt.steering,
            label=call.label,
            prompt=" + ".join([prompt.reference, *([citing.reference] if citing is not None else [])]),
        )
        answer: StageAnswer[T] = StageAnswer(value=None, prompt=request.prompt)
        answer.messages = [{"role": message.role, "content": message.content} for message in prompt.messages]
        if issubclass(call.output, Text):
            labels = friend_labels(dialogue.language)
            stream = CleanStream(on_text, labels, call.leads) if on_text is not None else None
            completion = await self.model.complete(request, None if stream is None else stream.feed)
            if stream is not None:
                stream.close()
            answer.value = call.output(text=clean_response(completion.text, labels, call.leads))
            _record(answer, [completion])
            return answer
        structured = await complete_structured(self.model, request, call.output)
        answer.value, answer.error = structured.value, structured.error
        answer.outcome = _OUTCOMES[structured.outcome]
        if structured.outcome == "repaired_locally":
            answer.notes.append("the answer's JSON was repaired")
        _record(answer, structured.completions)
        return answer


def _record(answer: StageAnswer[T], completions: list[Completion]) -> None:
    answer.completion = completions[-1].text if completions else ""
    usages = [completion.usage for completion in completions]
    answer.usage = sum(usages[1:], usages[0]) if usages else Usage()
    answer.differs = any(completion.differs for completion in completions)
    if versions := dict.fromkeys(completion.recorded_with for completion in completions if completion.recorded_with):
        answer.notes.append(f"recorded with {' and '.join(versions)} of the prompt")
    if completions and completions[-1].finish_reason == "length":
        answer.notes.append("the answer was cut off at the token limit")
