"""Record and replay: a recording is a JSONL file of requests and completions, one call a line."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dialore.errors import InputError, NotRecordedError, describe
from dialore.files import create_private, read_text, unwritable
from dialore.llm.model import Completion, Message, OnToken, Request, Sampling, Usage

T = TypeVar("T", bound=BaseModel)

_PIECES = re.compile(r"[\u2e80-\u9fff\uff00-\uffef]|[^\s\u2e80-\u9fff\uff00-\uffef]+\s*|\s+")
_VERSION = re.compile(r" v(\d+) ")
_MEND = "record it anew against an endpoint"


class Recorded(BaseModel):
    """One line of a recording; what is not told here is as of the request or the completion.

    It was `made_by` a model of that name, or by people (`hand`), and `made_with` that prompt file, with its version and
    hash, where that is known. Where usage is missing, tokens are estimated; `prompt` is the hash of messages and schema
    name, worked out where it is missing.
    """

    model_config = ConfigDict(populate_by_name=True)

    label: str = ""
    model: str = ""
    made_by: str = ""
    made_with: str = ""
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
        """Return the line for a call."""
        schema = request.output_schema.name if request.output_schema else None
        asked = request.model_dump(include={"label", "messages", "sampling", "sample"})
        fields = completion.model_dump(include={"model", "text", "finish_reason", "usage"})
        prompt = _prompt_key(request.messages, schema)
        return cls(**asked, **fields, made_by=made_by, made_with=request.prompt, schema=schema, prompt=prompt)

    def version_before(self, prompt: str) -> str:
        """Return the version that the line's prompt was recorded with, where it is none of these (joined by ` + `)."""
        if not prompt or not self.made_with or prompt == self.made_with:
            return ""
        now = prompt.split(" + ")
        changed = [_VERSION.search(reference) for reference in self.made_with.split(" + ") if reference not in now]
        return next((f"version {match[1]}" for match in changed if match), "another version")


def _prompt_key(messages: Sequence[Message], schema: str | None) -> str:
    parts = [[[message.role, message.content] for message in messages], schema]
    text = json.dumps(parts, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class Recorder:
    """Appends finished calls to a recording, each as one line that is written at once."""

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._file: FileIO | None = None

    def open(self) -> None:
        """Open the file if it is not open; raise InputError if it cannot be written."""
        if self._file is not None:
            return
        with self._writing():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            create_private(self._path)  # prompts hold what people said
            file = self._path.open("a+b", buffering=0)
            size = os.fstat(file.fileno()).st_size
            if size and os.pread(file.fileno(), 1, size - 1) != b"\n":
                file.write(b"\n")
            self._file = file

    def append(self, request: Request, completion: Completion, model: str) -> None:
        """Write a call of a model of that name; raise InputError if it cannot be written."""
        self.open()
        line = Recorded.of(request, completion, model).model_dump_json(by_alias=True) + "\n"
        data = line.encode("utf-8", "replace")
        with self._writing():
            if self._file is None or self._file.write(data) < len(data):
                raise OSError("the disk is full")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise unwritable(self._path, error) from None


class Replay:
    """A recording played back as a language model; it never answers what it does not hold.

    A request is matched by its messages and the name of its schema. Where the prompt file has changed since the
    recording, the call of the same label answers for it, and the completion says which version that was recorded with
    (`recorded_with`). Of several lines for one request the last counts, so that recording anew is appending. With
    `match="label"` it answers by the request's label also where the prompt differs for another reason, such as other
    knowledge found; the completion is then marked (`prompt_changed`). Raises InputError where there is no such file, or
    a line is malformed.
    """

    def __init__(self, recording: str | Path | Iterable[str], match: Literal["prompt", "label"] = "prompt") -> None:
        self._by_label = match == "label"
        source = Path(recording) if isinstance(recording, str) else recording
        self.lines = list(read_lines(source, Recorded, "a recorded call"))
        for line in self.lines:
            line.prompt = line.prompt or _prompt_key(line.messages, line.output_schema)
        self._exact = {(line.prompt, line.sample): line for line in self.lines}
        self._labelled = {(line.label, line.sample): line for line in self.lines if line.label}
        self.name = ", ".join(dict.fromkeys(line.model for line in self.lines if line.model)) or "replay"

    async def complete(self, request: Request, on_token: OnToken | None = None) -> Completion:
        """Answer a request from the recording, word by word if streamed; raises NotRecordedError."""
        schema = request.output_schema.name if request.output_schema else None
        prompt = _prompt_key(request.messages, schema)
        labelled = self._labelled.get((request.label, request.sample))
        # Of a prompt that several calls share, each has its own answer.
        exact = self._exact.get((prompt, request.sample))
        line = labelled if labelled is not None and (labelled.prompt == prompt or exact is None) else exact
        changed = line is not None and line.prompt != prompt
        version = line.version_before(request.prompt) if line is not None and changed else ""
        if line is None or (changed and not version and not self._by_label):
            raise self._missing(request)
        if on_token is not None:
            for piece in _PIECES.findall(line.text):
                on_token(piece)
                await asyncio.sleep(0)
        return Completion(
            text=line.text,
            model=line.model,
            usage=line.usage or Usage.estimate(line.messages, line.text),
            finish_reason=line.finish_reason,
            estimated=line.usage is None,
            prompt_changed=changed,
            recorded_with=version,
        )

    async def close(self) -> None:
        """Nothing to release."""

    def _missing(self, request: Request) -> NotRecordedError:
        call = request.label or "(no label)"
        labels = dict.fromkeys(line.label for line in self.lines if line.label)
        near = difflib.get_close_matches(call, labels, n=1, cutoff=0.0)
        nearest = f"the nearest that is: {near[0]}" if near else "the recording names no calls"
        why = f"is not in the recording; {nearest}"
        if request.label in labels:
            why = f"was recorded with another {'sample' if self._by_label else 'prompt'}"
        sample = f", sample {request.sample}," if request.sample else ""
        return NotRecordedError(f"the call {call}{sample} {why}", hint=_MEND)


def read_lines(source: Path | Iterable[str], kind: type[T], name: str) -> Iterator[T]:
    """Yield what the lines of a JSONL file, or lines as such, hold; raise InputError where one is not `name`."""
    # Not splitlines(): other line separators may stand inside a JSON string.
    lines = read_text(source).split("\n") if isinstance(source, Path) else source
    for number, line in enumerate(lines, 1):
        try:
            if line.strip():
                yield kind.model_validate_json(line)
        except ValidationError as error:
            where = source if isinstance(source, Path) else "recording"
            problem = f"{where}, line {number}: not {name}: {describe(error)}"
            raise InputError(problem, hint="mend or delete that line") from None
