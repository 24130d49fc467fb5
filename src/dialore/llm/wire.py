"""The body of a chat-completions call, and what a server has taught us to leave out of it."""

from __future__ import annotations

import functools
import json
import logging
import re
from typing import TYPE_CHECKING, Any, Literal

from dialore.llm.faults import error_detail

if TYPE_CHECKING:
    from dialore.llm.model import OutputSchema, Request

log = logging.getLogger(__name__)

JsonMode = Literal["auto", "json_schema", "json_object", "off"]
Api = Literal["chat", "completions"]
"""How an endpoint is spoken to: messages to `/chat/completions`, or plain text to be continued to `/completions`."""
_REFUSED = re.compile(
    r"not.{0,12}support|unsupport|unknown|unrecogni|unexpected|not.{0,6}(?:permit|allow|accept)|extra|only the default"
    r"|invalid (?:param|field)|no such|deprecat|instead",
    re.IGNORECASE,
)
_FORMATS = re.compile(r"response[_ ]?format|json[_ ]?schema|json[_ ]?object|guided|grammar|structured", re.IGNORECASE)
_OPTIONAL = ("stream_options", "temperature", "top_p", "seed", "stop")
_NEXT: dict[str, Literal["json_object", "off"]] = {"json_schema": "json_object", "json_object": "off"}


class Dialect:
    """How one server wants to be spoken to; learnt from its refusals and kept for the endpoint's life.

    Args:
        structured: how JSON is asked for: `auto` starts with `json_schema` and steps down when that is refused; any
            other value is kept as it is.
    """

    def __init__(self, structured: JsonMode = "auto") -> None:
        self._steps_down = structured == "auto"
        self.format: Literal["json_schema", "json_object", "off"] = (
            "json_schema" if structured == "auto" else structured
        )
        self.length = "max_tokens"
        self.left_out: set[str] = set()

    def body(self, model: str, request: Request, *, stream: bool) -> dict[str, Any]:
        """The JSON body for a request."""
        sampling = request.sampling
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": message.role, "content": message.content} for message in request.messages],
            "temperature": sampling.temperature,
            self.length: sampling.max_tokens,
        }
        if sampling.top_p is not None:
            body["top_p"] = sampling.top_p
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        if sampling.seed is not None:
            body["seed"] = sampling.seed
        if stream:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        if request.output_schema is not None and self.format != "off":
            body["response_format"] = _response_format(self.format, request.output_schema)
        for name in self.left_out:
            body.pop(name, None)
        return body

    def learn(self, status: int, payload: object, sent: dict[str, Any]) -> bool:
        """Learn from a refusal.

        Args:
            status: the HTTP status of the refusal.
            payload: its body.
            sent: the body that was refused; calls run at once, so others may have learnt since it was made.

        Returns:
            Whether the call is worth sending again in another form.
        """
        if status not in {400, 422}:
            return False
        message, code, parameter = error_detail(payload)
        said = f"{message} {code} {parameter}"
        if "max_tokens" in sent and "max_completion_tokens" in said:
            return self._note("max_completion_tokens", "length")
        for name in _OPTIONAL:
            named = parameter == name or re.search(rf"\b{name}\b", message) is not None
            if name in sent and named and _REFUSED.search(said):
                return self._note(name, "left_out")
        if "response_format" in sent and self._steps_down and _FORMATS.search(said):
            return self._note(_NEXT[sent["response_format"]["type"]], "format")
        return False

    def _note(self, value: str, what: str) -> bool:
        if what == "left_out":
            if value not in self.left_out:
                log.warning("the server refuses %s: it is left out from now on", value)
            self.left_out.add(value)
        elif what == "length":
            self.length = value
        elif self.format == "json_schema" or value == "off":
            log.info("the server refuses %s as response_format: %s from now on", self.format, value)
            self.format = "off" if value == "off" else "json_object"
        return True


def _response_format(kind: str, schema: OutputSchema) -> dict[str, Any]:
    return {"type": "json_object"} if kind == "json_object" else _by_schema(schema.name, schema.text)


@functools.lru_cache(maxsize=64)
def _by_schema(name: str, definition: str) -> dict[str, Any]:
    """A schema in the form that strict servers demand, where it has one: free-form mappings have none.

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
