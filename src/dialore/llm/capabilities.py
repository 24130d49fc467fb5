"""What a server accepts, learned from what it refuses, once for each address and model."""

from __future__ import annotations

import functools
import json
import re
import time
from typing import TYPE_CHECKING, Any, Literal, get_args

from dialore.errors import ModelError, WindowError
from dialore.llm.model import ChatForm, Message
from dialore.llm.pacing import tell

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dialore.llm.model import Api, OutputSchema, Request

Format = Literal["json_schema", "json_object", "off"]
FORMATS: tuple[Format, ...] = get_args(Format)
"""The forms of asking for JSON, in the order in which they are tried."""
THOUGHTS = 4096
"""Tokens of thoughts that a model which thinks may write before its answer, where nothing is said."""
_MOST_THOUGHTS = 4 * THOUGHTS
_REFUSED = re.compile(
    r"(?i)not.{0,12}support|unsupport|unknown|unrecogni|unexpected|not.{0,6}(?:permit|allow|accept)|extra"
    r"|only the default|invalid (?:param|field)|no such|deprecat|instead"
)
_FORMATS = re.compile(r"response[_ ]?format|json[_ ]?schema|json[_ ]?object|guided|grammar|structured", re.IGNORECASE)
_ALTERNATE = re.compile(r"alternat|consecutive|same role|first message|start with", re.IGNORECASE)
_NO_SYSTEM = re.compile(
    r"(?i)system.{0,20}(?:role|message|prompt|instruction)|developer.{0,8}(?:role|instruction)|only user and assistant"
    r"|(?:role|system).{0,60}(?:not.{0,8}(?:support|allow|valid|enabled)|unsupport|invalid|unknown)|invalid role"
)
_AT_MOST = re.compile(
    r"(?:max(?:_completion)?_tokens|maximum).{0,80}?(?:less than or equal to|at most|<=|up to|exceed|between \d+ and)"
    r"\D{0,4}(\d{2,7})",
    re.IGNORECASE | re.DOTALL,
)
_ALTERNATING = ChatForm(merges=True, opens="…")
_WITHOUT_SYSTEM = ChatForm(folds=True, merges=True, opens="…")
_OPTIONAL = ("stream_options", "temperature", "top_p", "seed", "stop")
_UNSAID = frozenset({400, 404, 422, 500, 501})  # the statuses of servers that refuse a form without saying which
_MIN_DOUBTS = 2
_MAX_BROKEN_STREAMS = 3
_STREAM_PAUSE_S = 300.0
_QUICK = 8.0  # an answer that takes less than this part of the time-out need not be streamed


def following(form: Format) -> Format:
    """Return the form of asking for JSON that is tried after one."""
    return FORMATS[FORMATS.index(form) + 1]


class ThoughtsError(ModelError):
    """A model spent its tokens on thoughts."""


class ServerCapabilities:
    """The capabilities of one server and its model's behaviour, learnt from refusals and answers.

    `thoughts` are the tokens that are added to a limit for the thoughts of a model that thinks; answers may begin with
    such that no tag opens (`unopened`). What is None is not known yet.
    """

    def __init__(self, api: Api = "chat", thinking: int | None = None) -> None:
        self._api, self._thinking, self.thoughts = api, thinking, thinking or 0
        self.format: Format = "json_schema"
        self.is_format_taken = False  # whether it has answered a call with such a format
        self.form = ChatForm()
        self.length = "max_tokens"  # the name of the limit of tokens, and the highest that it takes
        self.most: int | None = None
        self.left_out: set[str] = set()  # the parameters that it refuses
        self.unopened: bool | None = None
        self._refuses_streams = False
        self._broken_streams: int | None = 0  # None once a stream has ended as it should
        self._streams_paused_until = 0.0  # by the monotonic clock
        self.doubts = 0  # requests that succeeded in another form after a failure inside the server
        self.slowest: float | None = None  # seconds of the slowest answer

    @property
    def streams(self) -> bool:
        """Whether to stream: the server has not refused it, and streams are not paused."""
        return not self._refuses_streams and time.monotonic() >= self._streams_paused_until

    def should_stream(self, timeout: float) -> bool:
        """Return whether an answer is to be streamed although no caller reads it, so that a time-out is of a silence.

        It costs time of the processor, and is left out where the server is quick.
        """
        return self.streams and (self.slowest is None or self.slowest * _QUICK > timeout)

    def body(self, model: str, request: Request, form: Format = FORMATS[0], *, stream: bool) -> dict[str, Any]:
        """Return the JSON body for a request, with JSON asked for in that form."""
        sampling, schema, stop = request.sampling, request.output_schema, request.sampling.stop
        body: dict[str, Any] = {"model": model}
        if self._api == "completions":
            body["prompt"], stop = request.plain_text, request.plain_stop
        else:
            body["messages"] = [message.model_dump() for message in self.form.arrange(request.messages)]
            if schema is not None and form == "json_object":
                body["response_format"] = {"type": "json_object"}
            elif schema is not None and form == "json_schema":
                body["response_format"] = _strict_schema(schema.name, json.dumps(schema.definition))
        limit = sampling.max_tokens + self.thoughts
        body |= {"temperature": sampling.temperature, self.length: min(limit, self.most or limit)}
        body |= {"top_p": sampling.top_p, "stop": list(stop) or None, "seed": sampling.seed}
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        return {name: value for name, value in body.items() if value is not None and name not in self.left_out}

    # --- what is learnt

    def learn(self, error: ModelError, sent: dict[str, Any]) -> bool:
        """Learn from a refusal, perhaps after others did; says whether another form of the call is worth a try."""
        if error.status in {401, 403, 429} or not error.said:
            return False
        if self._learn_length(error, sent):
            return True
        if "response_format" in sent and _FORMATS.search(error.said):
            self.step_down(following(sent["response_format"]["type"]))
            return True
        return self._learn_roles(error, sent) or self._learn_parameter(error, sent)

    def _learn_length(self, error: ModelError, sent: dict[str, Any]) -> bool:
        if "max_tokens" in sent and "max_completion_tokens" in error.said:
            self.length = "max_completion_tokens"
            return True
        asked = sent.get(self.length, 0)
        if (match := _AT_MOST.search(error.said)) and int(match[1]) < asked:
            self.most = int(match[1])
            tell(f"the server takes {self.length} up to {self.most}: so many are asked for from now on")
            return True
        if isinstance(error, WindowError) and self.thoughts and self._thinking is None:
            self.thoughts = self.thoughts // 4 if self.thoughts > THOUGHTS // 16 else 0
            return True
        return False

    def step_down(self, form: Format) -> None:
        """Ask for JSON in a form from now on, where that comes after the one of before."""
        if FORMATS.index(form) > FORMATS.index(self.format):
            by = "a prompt alone" if form == "off" else form
            tell(f"the server refuses {self.format} as response_format: JSON is asked for by {by} from now on")
            self.format = form

    def stream_ended(self, *, whole: bool) -> None:
        """Record how a stream ended. Streaming is paused if the first few streams of a server all broke off."""
        if whole:
            self._broken_streams = None
            return
        if self._broken_streams is None:
            return
        self._broken_streams += 1
        if self._broken_streams >= _MAX_BROKEN_STREAMS:
            self._streams_paused_until = time.monotonic() + _STREAM_PAUSE_S

    def _learn_roles(self, error: ModelError, sent: dict[str, Any]) -> bool:
        messages = [Message(**message) for message in sent.get("messages", ())]
        alternate = _ALTERNATE.search(error.said)
        if not (alternate or _NO_SYSTEM.search(error.said)) or messages == _WITHOUT_SYSTEM.arrange(messages):
            return False
        form, told = _WITHOUT_SYSTEM, "takes no system message: it is sent as the head of the user's first"
        if alternate and messages != _ALTERNATING.arrange(messages):
            form, told = _ALTERNATING, "wants roles to alternate: neighbours of one role are sent as one message"
        if self.form not in {form, _WITHOUT_SYSTEM}:
            tell(f"the server {told} from now on")
            self.form = form
        return True

    def _learn_parameter(self, error: ModelError, sent: dict[str, Any]) -> bool:
        if error.status is None or (error.status >= 500 and error.status != 501 and not error.parameter):
            return False  # trouble inside the server, such as "unexpected end of stream", refuses no parameter
        for name in (*_OPTIONAL, "stream"):
            named = error.parameter == name or re.search(rf"\b{name}(?:ing)?\b", error.said)
            if name not in sent or not named or not _REFUSED.search(error.said):
                continue
            if name == "stream":
                self._refuses_streams = True
            elif name not in self.left_out:
                tell(f"the server refuses {name}: it is left out from now on")
                self.left_out.add(name)
            return True
        return False

    def saw_thoughts(self, *, spent: bool = False) -> bool:
        """Give thoughts their own tokens from now on, more where they have spent all; says whether there are more."""
        before = self.thoughts
        if self._thinking is None:
            self.thoughts = before or THOUGHTS
            if spent and before:
                self.thoughts = max(before, _MOST_THOUGHTS)
            if spent and not before:
                tell(
                    f"the model thinks before it answers: {THOUGHTS:,} tokens more a call from now on (model.thinking)"
                )
        return self.thoughts > before


class CallForm:
    """The form of one call. After a refusal it changes to the next form that the server may accept.

    Args:
        server: What is known of the server. It learns from this call.
        model: Name of the model.
        request: The request.
        extra_body: Further fields of the body. They replace those of the request.
        has_listener: Whether the caller reads the answer as a stream.
        timeout: Seconds of silence that end a call.
    """

    def __init__(
        self,
        server: ServerCapabilities,
        model: str,
        request: Request,
        extra_body: Mapping[str, object],
        *,
        has_listener: bool,
        timeout: float,
    ) -> None:
        self._server, self._model, self._request, self._extra_body = server, model, request, extra_body
        self._has_listener, self._timeout = has_listener, timeout
        self._format = server.format
        self._body: dict[str, Any] = {}
        self._first_refusal: ModelError | None = None  # it may have meant the form without saying so

    def body(self, *, may_stream: bool = True) -> dict[str, Any]:
        """Return the body to be sent. It may be asked for later than the call was begun, in a form found meanwhile."""
        server = self._server
        wants_stream = self._has_listener or server.should_stream(self._timeout)
        self._format = max(self._format, server.format, key=FORMATS.index)
        body = server.body(
            self._model, self._request, self._format, stream=may_stream and wants_stream and server.streams
        )
        self._body = {**body, **self._extra_body}
        return self._body

    def adapt(self, error: ModelError, failures: int) -> bool:
        """Learn from a failed call and return whether to try another form.

        Args:
            error: The error of the call.
            failures: Number of failed tries before this one.
        """
        server = self._server
        if server.learn(error, self._body):
            return True
        if isinstance(error, ThoughtsError) and server.saw_thoughts(spent=True):
            return True
        self._first_refusal = self._first_refusal or error
        if self._format != "off" and self._may_be_refused_format(error, failures):
            self._format = following(self._format)
            return True
        return False

    @property
    def refusal(self) -> ModelError | None:
        """The error to raise once no form is left: the first one that was not understood."""
        return self._first_refusal

    def accept(self) -> None:
        """Use the form of this call from now on, because the server accepted it.

        If other formats failed inside the server (5xx) before, that may have been passing trouble, so it counts only
        when it comes again.
        """
        server, refusal = self._server, self._first_refusal
        server.is_format_taken |= "response_format" in self._body
        if self._format != server.format and refusal is not None and (refusal.status or 0) >= 500:
            server.doubts += 1
            if server.doubts < _MIN_DOUBTS:
                return
        server.step_down(self._format)

    def _may_be_refused_format(self, error: ModelError, failures: int) -> bool:
        """Return whether the server may have refused the format of JSON output without saying so.

        An error inside the server (500) counts only once it has come again.
        """
        if "response_format" not in self._body or self._server.is_format_taken:
            return False
        if isinstance(error, WindowError) or (error.configuration and error.status != 404):
            return False
        status = error.status or 0
        return status in _UNSAID and (failures > 0 or status < 500)


@functools.cache
def dialect_of(_where: str, _model: str, api: Api, thinking: int | None) -> ServerCapabilities:
    """Return what is known in this process of a model at an address."""
    return ServerCapabilities(api, thinking)


def strict_schema(schema: OutputSchema) -> dict[str, Any]:
    """Return a schema in which every field must stand and no other may, where it has such a form; do not change it."""
    definition: dict[str, Any] = _strict_schema(schema.name, json.dumps(schema.definition))["json_schema"]["schema"]
    return definition


@functools.lru_cache(maxsize=64)
def _strict_schema(name: str, definition: str) -> dict[str, Any]:
    """Return a schema in the form that strict servers demand, where it has one: free-form mappings have none.

    Takes it as JSON, to be worked out once a schema and not once a call. The result is shared: do not change it.
    """
    loose, tight = json.loads(definition), json.loads(definition)
    is_strict = _tighten(tight)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "answer"
    wanted = {"name": name, "schema": tight if is_strict else loose, "strict": is_strict}
    return {"type": "json_schema", "json_schema": wanted}


def _tighten(node: object) -> bool:
    if isinstance(node, list):
        return all(_tighten(item) for item in node)
    if not isinstance(node, dict):
        return True
    node.pop("default", None)
    if "$ref" in node:
        # Strict servers refuse any word beside a reference.
        for name in [name for name in node if name not in {"$ref", "$defs"}]:
            del node[name]
    if node.get("type") == "object":
        if node.get("additionalProperties", False) is not False or "properties" not in node:
            return False
        node["additionalProperties"] = False
        node["required"] = list(node["properties"])
    parts = [*node.get("properties", {}).values(), *node.get("$defs", {}).values()]
    parts += [node[name] for name in ("items", "anyOf", "allOf", "oneOf", "prefixItems") if name in node]
    return all(_tighten(part) for part in parts)
