"""A small model that was trained for stages of methods: it reads what changes in their prompts, and no instruction."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from dialore.errors import InputError, ModelError
from dialore.llm.local import LocalModel
from dialore.llm.model import Completion, OnText, Request, Wrapper


def shortened(task: str, text: str, fixed: Iterable[str]) -> str:
    """What a trained model reads of a prompt: the lines that are not in every prompt of its task, and the task's name.

    The name comes last: what is too long loses its beginning.
    """
    known = set(fixed)
    return "\n".join([*(line for line in text.split("\n") if line.strip() and line not in known), f"{task}:\n"])


class TrainedStages(Wrapper):
    """Does the stages that `dialore train stages` trained it for, the likeliest answer each, in the shape asked for.

    Args:
        path: the model's folder.

    Raises:
        InputError: it is no such model.
    """

    def __init__(self, path: Path) -> None:
        try:
            card = json.loads((path / "model.json").read_text(encoding="utf-8"))
            self._fixed: Mapping[str, list[str]] = card["fixed"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            mend = "train one with `dialore train stages`"
            raise InputError(f"{path} holds no model of stages", mend=mend) from error
        super().__init__(LocalModel(str(path), constrained=True, api="completions"))

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """See `LanguageModel.complete`; raises ModelError for a stage that it was not trained for."""
        task = request.prompt.partition(" ")[0]
        if task not in self._fixed:
            known = ", ".join(sorted(self._fixed))
            why = f"{self.name} was not trained for {task or 'this'}, but for {known}"
            raise ModelError(why, mend="name another model for it by --stage-model", configuration=True)
        text = "\n\n".join(message.content for message in request.messages)
        read = shortened(task, text, self._fixed[task])
        changes = {
            "continuation": read,
            "sampling": request.sampling.model_copy(update={"temperature": 0.0, "top_p": None}),
            "continuation_stop": (),
        }
        return await self._model.complete(request.model_copy(update=changes), on_text)
