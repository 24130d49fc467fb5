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

_HELD_OUT_INTERVAL = 10


class Row(BaseModel):
    """One answer of a stage, for training.

    Attributes:
        task: Name and language of the prompt, for example `dcrag/query-production.en`.
        input: Messages of the prompt with an empty line between them.
        output: The answer; structured output as JSON.
        dialogue: ID of the dialogue.
        split: `valid` for a tenth of the dialogues, drawn by ID.
        by: The model that gave the answer.
        prompt: Name, version and hash of the prompt.
        fingerprint: Hash of all other fields.
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

    @property
    def language(self) -> Literal["en", "zh"]:
        """The language of the prompt, which the task's name ends with."""
        return "zh" if self.task.endswith(".zh") else "en"

    @classmethod
    def of(cls, prompt: str, messages: Iterable[str], output: str, dialogue: str, by: str) -> Row:
        """Return the row of an answer to a prompt, with the prompt's name, version and hash."""
        conversation = dialogue.partition("@")[0]
        digest = hashlib.blake2b(conversation.encode(), digest_size=4).digest()
        is_held_out = int.from_bytes(digest) % _HELD_OUT_INTERVAL == 0
        fields = {
            "task": prompt.partition(" ")[0],
            "input": "\n\n".join(messages),
            "output": output,
            "dialogue": dialogue,
            "split": "valid" if is_held_out else "train",
            "by": by,
            "prompt": prompt,
        }
        text = json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")
        return cls(**fields, fingerprint=hashlib.blake2b(text, digest_size=8).hexdigest())  # type: ignore[arg-type]


def write_lines(path: Path, lines: Iterable[Mapping[str, object]]) -> int:
    """Write JSONL completely or not at all, and return the number of lines; raise InputError if there are none."""
    texts = [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
    if not texts:
        raise InputError("nothing was gathered to learn from", hint="see that the run answered, and by such stages")
    write_whole(path, texts)
    return len(texts)


def read_rows(path: Path) -> list[Row]:
    """Return the distinct rows of a file of `dialore distill`; raise InputError if a line is not a row."""
    rows = read_lines(path, Row, "a row of `dialore distill`")
    return list({row.fingerprint: row for row in rows}.values())


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file that are not blank; raise InputError if it cannot be read."""
    return [line for line in read_text(path).split("\n") if line.strip()]


def shorten_prompt(task: str, text: str, fixed: Iterable[str]) -> str:
    """Return a prompt as a trained model reads it: without the fixed lines, and with the name of the task.

    The name comes last, because a prompt that is too long loses its beginning.
    """
    instruction = set(fixed)
    lines = [line for line in text.split("\n") if line.strip() and line not in instruction]
    return "\n".join([*lines, f"{task}:\n"])


class TrainedStages(Wrapper):
    """Does the stages that `dialore train stages` trained it for, with the requested output schema.

    It decodes greedily. A model that was trained on whole prompts samples as the request says.

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
            message = f"{self.name} was not trained for {task or 'this'}, but for {', '.join(sorted(self._fixed))}"
            raise ModelError(message, hint="name another model for it in model.stages", configuration=True)
        text = "\n\n".join(message.content for message in request.messages)
        read = text if self._whole else shorten_prompt(task, text, self._fixed[task])
        changes: dict[str, object] = {"continuation": read, "continuation_stop": ()}
        if not self._whole:
            changes["sampling"] = request.sampling.model_copy(update={"temperature": 0.0, "top_p": None})
        return await self._model.complete(request.model_copy(update=changes), on_token)
