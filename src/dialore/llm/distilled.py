"""A small model that was trained for stages of methods, and the rows of JSONL that such a model learns from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from dialore.errors import InputError, ModelError
from dialore.files import read_text, write_whole
from dialore.llm.local import LocalModel
from dialore.llm.model import Completion, OnToken, Request, Wrapper
from dialore.llm.recording import read_lines

_HELD = 10


class Row(BaseModel):
    """One answer of a stage, structured output as JSON, and who gave it (`by`).

    Its task is the prompt's name with its language (`dcrag/query-production.en`), its input the prompt's messages with
    an empty line between them; one whole dialogue of ten, drawn by its id, is `valid`. `prompt` is name, version and
    hash, `fingerprint` of all.
    """

    task: str
    input: str
    output: str
    dialogue: str
    split: Literal["train", "valid"]
    by: str
    prompt: str
    fingerprint: str

    @property
    def stage(self) -> str:
        """The stage: `dcrag/query-production`."""
        return self.task.partition(".")[0]

    @classmethod
    def of(cls, prompt: str, messages: Iterable[str], output: str, dialogue: str, by: str) -> Row:
        """Return the row of an answer to a prompt that is named by its reference."""
        whole = dialogue.partition("@")[0]
        held = int.from_bytes(hashlib.blake2b(whole.encode(), digest_size=4).digest()) % _HELD == 0
        fields = {"task": prompt.partition(" ")[0], "input": "\n\n".join(messages), "output": output}
        fields |= {"dialogue": dialogue, "split": "valid" if held else "train", "by": by, "prompt": prompt}
        text = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
        return cls(**fields, fingerprint=hashlib.blake2b(text, digest_size=8).hexdigest())  # type: ignore[arg-type]


def write_lines(path: Path, lines: Iterable[Mapping[str, object]]) -> int:
    """Write JSONL whole or not at all; gives how many lines. Raises InputError for none, and where it cannot."""
    texts = [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
    if not texts:
        raise InputError("nothing was gathered to learn from", hint="see that the run answered, and by such stages")
    write_whole(path, texts)
    return len(texts)


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file that `dialore distill` wrote, each once; raise InputError where a line is none."""
    rows = read_lines(path, Row, "a row of `dialore distill`")
    return list({row.fingerprint: row for row in rows}.values())


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file that say something; raise InputError where it cannot be read."""
    return [line for line in read_text(path).split("\n") if line.strip()]


def shorten_prompt(task: str, text: str, fixed: Iterable[str]) -> str:
    """Return what a trained model reads of a prompt: the task's name, and lines not in every prompt of the task.

    The name comes last: what is too long loses its beginning.
    """
    known = set(fixed)
    return "\n".join([*(line for line in text.split("\n") if line.strip() and line not in known), f"{task}:\n"])


class TrainedStages(Wrapper):
    """Does the stages that `dialore train stages` trained it for, in the shape asked for.

    It gives the likeliest answer; one that was trained on whole prompts samples as they say.

    Args:
        folder: The model's folder.
        card: The model's card.
    """

    def __init__(self, folder: Path, card: Mapping[str, Any]) -> None:
        self._fixed: Mapping[str, list[str]] = card["fixed"]
        self._whole: bool = card["whole"]
        super().__init__(LocalModel(str(folder), constrained=True, api="completions"))

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        """See `LanguageModel.complete`; raises ModelError for a stage that it was not trained for."""
        task = request.prompt.partition(" ")[0]
        if task not in self._fixed:
            known = ", ".join(sorted(self._fixed))
            why = f"{self.name} was not trained for {task or 'this'}, but for {known}"
            raise ModelError(why, hint="name another model for it by --stage-model", configuration=True)
        text = "\n\n".join(message.content for message in request.messages)
        read = text if self._whole else shorten_prompt(task, text, self._fixed[task])
        changes: dict[str, object] = {"continuation": read, "continuation_stop": ()}
        if not self._whole:
            changes["sampling"] = request.sampling.model_copy(update={"temperature": 0.0, "top_p": None})
        return await self._model.complete(request.model_copy(update=changes), on_token)
