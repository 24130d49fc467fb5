"""Record and replay: a recording is a JSONL file of requests and completions, one call a line."""

from __future__ import annotations

import asyncio
import difflib
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dialore.errors import InputError, NotRecordedError
from dialore.llm.keys import prompt_key
from dialore.llm.model import Completion, Message, Sampling, Usage, estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dialore.llm.model import LanguageModel, OnText, Request

_PIECES = re.compile(r"[\u2e80-\u9fff\uff00-\uffef]|[^\s\u2e80-\u9fff\uff00-\uffef]+\s*|\s+")
_MEND = "record it anew against an endpoint"


class Recorded(BaseModel):
    """One line of a recording.

    Attributes:
        label: the request's label.
        model: the model that answered.
        made_by: who made the line: a model's name, or a word such as `hand` for answers written by people.
        messages: the prompt.
        sampling: the sampling settings.
        output_schema: the name of the output schema (`schema` in the file).
        sample: the sample index.
        text: the answer.
        finish_reason: why it ends.
        usage: what the call cost; where it is missing, tokens are estimated.
        prompt: the hash of messages and schema name; worked out where it is missing.
    """

    model_config = ConfigDict(populate_by_name=True)

    label: str = ""
    model: str = ""
    made_by: str = ""
    messages: tuple[Message, ...]
    sampling: Sampling = Sampling()
    output_schema: str | None = Field(default=None, alias="schema")
    sample: int = 0
    text: str
    finish_reason: str = "stop"
    usage: Usage | None = None
    prompt: str = ""

    @classmethod
    def of(cls, request: Request, completion: Completion, made_by: str) -> Recorded:
        """The line for a call."""
        return cls(
            label=request.label,
            model=completion.model,
            made_by=made_by,
            messages=request.messages,
            sampling=request.sampling,
            schema=request.output_schema.name if request.output_schema else None,
            sample=request.sample,
            text=completion.text,
            finish_reason=completion.finish_reason,
            usage=completion.usage,
            prompt=prompt_key(request),
        )

    def line(self) -> str:
        """The line as it stands in the file, its end included."""
        return self.model_dump_json(by_alias=True) + "\n"

    def completion(self, *, differs: bool) -> Completion:
        """The completion that the line holds."""
        usage = self.usage or Usage(
            calls=1,
            prompt_tokens=sum(estimate_tokens(message.content) for message in self.messages),
            completion_tokens=estimate_tokens(self.text),
        )
        return Completion(
            text=self.text,
            model=self.model,
            usage=usage,
            finish_reason=self.finish_reason,
            estimated=self.usage is None,
            differs=differs,
        )


class Recorder:
    """A model whose finished calls are appended to a recording, each line written at once and in one piece.

    Args:
        model: the model underneath.
        path: the JSONL file; appended to.
        made_by: who answers; the model's name unless given.
    """

    def __init__(self, model: LanguageModel, path: str | Path, made_by: str = "") -> None:
        self._model = model
        self._path = Path(path)
        self._made_by = made_by
        self._file: int | None = None

    @property
    def name(self) -> str:
        """The name of the model underneath."""
        return self._model.name

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request and record it.

        Raises:
            InputError: the recording cannot be written.
            ModelError: as the model underneath; a failed call is not recorded.
        """
        file = self._open()
        completion = await self._model.complete(request, on_text)
        line = Recorded.of(request, completion, self._made_by or self.name).line().encode("utf-8", "replace")
        try:
            written = os.write(file, line)
        except OSError as error:
            raise self._unwritable(error) from None
        if written < len(line):
            raise self._unwritable(OSError("the disk is full"))
        return completion

    async def close(self) -> None:
        """Close the file and the model underneath."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
        await self._model.close()

    def _open(self) -> int:
        if self._file is None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
                size = os.fstat(self._file).st_size
                if size and os.pread(self._file, 1, size - 1) != b"\n":
                    os.write(self._file, b"\n")
            except OSError as error:
                raise self._unwritable(error) from None
        return self._file

    def _unwritable(self, error: OSError) -> InputError:
        return InputError(
            f"cannot write the recording {self._path}: {error.strerror or error}",
            mend="name a file that can be written",
        )


class Replay:
    """A recording played back as a language model; it never answers what it does not hold.

    Of several lines for one request the last counts, so that recording anew is appending.

    Args:
        recording: a JSONL file, or its lines.
        match: `prompt` wants the recorded messages and schema name exactly; `label` goes by the request's label, and
            marks a completion with `differs` when the prompt is no longer the recorded one.
        made_by: take only lines made by this; all if empty.

    Raises:
        InputError: there is no such file, or a line is malformed.
    """

    def __init__(
        self, recording: str | Path | Iterable[str], match: Literal["prompt", "label"] = "prompt", made_by: str = ""
    ) -> None:
        if match not in {"prompt", "label"}:
            raise InputError(f"a replay matches by prompt or label, not by {match!r}")
        self._by_label = match == "label"
        self.lines = [line for line in _read(recording) if made_by in {"", line.made_by}]
        self._found = {(line.label if self._by_label else line.prompt, line.sample): line for line in self.lines}

    @property
    def name(self) -> str:
        """The names of the recorded models."""
        return ", ".join(dict.fromkeys(line.model for line in self.lines if line.model)) or "replay"

    async def complete(self, request: Request, on_text: OnText | None = None) -> Completion:
        """Answer a request from the recording, word by word if streamed.

        Raises:
            NotRecordedError: the recording does not hold it.
        """
        prompt = prompt_key(request)
        line = self._found.get((request.label if self._by_label else prompt, request.sample))
        if line is None or (self._by_label and not request.label):
            raise self._missing(request)
        if on_text is not None:
            for piece in _PIECES.findall(line.text):
                on_text(piece)
                await asyncio.sleep(0)
        return line.completion(differs=line.prompt != prompt)

    async def close(self) -> None:
        """Nothing to release."""

    def _missing(self, request: Request) -> NotRecordedError:
        label = request.label or "(no label)"
        sample = f", sample {request.sample}," if request.sample else ""
        labels = list(dict.fromkeys(line.label for line in self.lines if line.label))
        if label in labels:
            why = "with another sample" if self._by_label else "with another prompt"
            return NotRecordedError(f"the call {label}{sample} was recorded {why}", mend=_MEND)
        near = difflib.get_close_matches(label, labels, n=1, cutoff=0.0)
        nearest = f"; the nearest that is: {near[0]}" if near else "; the recording names no calls"
        return NotRecordedError(f"the call {label}{sample} is not in the recording{nearest}", mend=_MEND)


def _read(recording: str | Path | Iterable[str]) -> list[Recorded]:
    if isinstance(recording, (str, Path)):
        where = str(recording)
        try:
            # Not splitlines(): other line separators may stand inside a JSON string.
            lines: Iterable[str] = Path(recording).read_text(encoding="utf-8-sig").split("\n")
        except OSError as error:
            raise InputError(f"cannot read the recording {where}: {error.strerror}", mend="check its path") from None
        except UnicodeDecodeError:
            raise InputError(f"the recording {where} is not UTF-8 text", mend=_MEND) from None
    else:
        where, lines = "recording", recording
    return [_parse(line, where, number) for number, line in enumerate(lines, 1) if line.strip()]


def _parse(line: str, where: str, number: int) -> Recorded:
    try:
        recorded = Recorded.model_validate_json(line)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        what = f"{place}: {first['msg']}" if place else first["msg"]
        raise InputError(
            f"{where}, line {number}: not a recorded call: {what}", mend="mend or delete that line"
        ) from None
    return recorded if recorded.prompt else recorded.model_copy(update={"prompt": _prompt_of(recorded)})


def _prompt_of(recorded: Recorded) -> str:
    from dialore.llm.model import OutputSchema, Request

    name = recorded.output_schema
    schema = OutputSchema(name=name, definition={}) if name is not None else None
    return prompt_key(Request(messages=recorded.messages, output_schema=schema))
