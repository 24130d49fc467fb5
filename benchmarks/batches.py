"""OpenAI's files and batches, in memory: what is sent is validated, and answered line by line when it is looked at."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

from aiohttp import web


class BatchServer:
    """The routes `/v1/files` and `/v1/batches`; `answer` gives the chat completion of a body.

    A batch is validating when it is begun, then in progress for `polls` looks, and then completed.
    """

    def __init__(self, answer: Callable[[dict[str, Any]], dict[str, Any]], polls: int = 0) -> None:
        self.answer, self.polls = answer, polls
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, dict[str, Any]] = {}
        self._numbers = itertools.count(1)

    def add_routes(self, app: web.Application) -> None:
        """Serve them."""
        app.router.add_post("/v1/files", self.upload)
        app.router.add_get("/v1/files/{file}/content", self.content)
        app.router.add_post("/v1/batches", self.begin)
        app.router.add_get("/v1/batches", self.listed)
        app.router.add_get("/v1/batches/{batch}", self.state)
        app.router.add_post("/v1/batches/{batch}/cancel", self.cancel)

    async def upload(self, request: web.Request) -> web.Response:
        """Keep a file: a form of `purpose` and `file`."""
        form = await request.post()
        file = form.get("file")
        if form.get("purpose") != "batch" or not isinstance(file, web.FileField):
            return refusal(400, "a file and the purpose batch are wanted")
        name = self.keep_file(file.file.read())
        return web.json_response({"id": name, "object": "file", "purpose": "batch", "filename": file.filename})

    async def content(self, request: web.Request) -> web.Response:
        """Return a file."""
        content = self.files.get(request.match_info["file"])
        if content is None:
            return refusal(404, "No such File object")
        return web.Response(body=content, content_type="application/octet-stream")

    async def begin(self, request: web.Request) -> web.Response:
        """Make a batch of a file."""
        asked = await request.json()
        if asked["input_file_id"] not in self.files:
            return refusal(400, f"no such file: {asked['input_file_id']}")
        if (asked["endpoint"], asked["completion_window"]) != ("/v1/chat/completions", "24h"):
            return refusal(400, "no such endpoint or window")
        name = f"batch_{next(self._numbers)}"
        self.batches[name] = {"id": name, "object": "batch", **asked, "status": "validating", "looks": 0}
        return web.json_response(self.batches[name])

    async def listed(self, _request: web.Request) -> web.Response:
        """List all batches, the newest first."""
        return web.json_response({"object": "list", "data": list(self.batches.values())[::-1], "has_more": False})

    async def state(self, request: web.Request) -> web.Response:
        """Return how a batch stands; a look takes it further."""
        batch = self.batches.get(request.match_info["batch"])
        if batch is None:
            return refusal(404, "No batch found")
        if batch["status"] in {"validating", "in_progress"}:
            self.go_on(batch)
        return web.json_response(batch)

    async def cancel(self, request: web.Request) -> web.Response:
        """Stop a batch."""
        batch = self.batches[request.match_info["batch"]]
        batch["status"] = "cancelled"
        return web.json_response(batch)

    # --- what a batch does

    def go_on(self, batch: dict[str, Any]) -> None:
        """Take a batch further."""
        batch["looks"] += 1
        lines, problems = self.validated(self.files[batch["input_file_id"]], batch["endpoint"])
        batch["request_counts"] = {"total": len(lines), "completed": 0, "failed": 0}
        if problems and batch["status"] == "validating":
            batch |= {"status": "failed", "errors": {"object": "list", "data": problems}}
        elif batch["looks"] <= self.polls:
            batch["status"] = "in_progress"
        else:
            self.end(batch, [self.answered(line) for line in lines])

    def validated(self, content: bytes, endpoint: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return a file's requests, and what is wrong with some, with their line."""
        lines, problems, seen = [], [], set()
        for number, text in enumerate(content.splitlines(), start=1):
            line = json.loads(text)
            lines.append(line)
            if line["custom_id"] in seen or (line["method"], line["url"]) != ("POST", endpoint):
                problems.append({"code": "invalid_request", "message": "twice, or elsewhere", "line": number})
            seen.add(line["custom_id"])
        return lines, problems

    def answered(self, line: dict[str, Any]) -> dict[str, Any]:
        """Return the line of the output that answers one of the input."""
        response = {"status_code": 200, "request_id": "r", "body": self.answer(line["body"])}
        return {"id": "line", "custom_id": line["custom_id"], "response": response, "error": None}

    def end(self, batch: dict[str, Any], rows: list[dict[str, Any]], status: str = "completed") -> None:
        """End a batch, with what it brings: answers in one file, errors in another."""
        good = [row for row in rows if (row.get("response") or {}).get("status_code") == 200]
        bad = [row for row in rows if row not in good]
        batch["status"] = status
        batch["request_counts"] |= {"completed": len(good), "failed": len(bad)}
        for name, some in (("output_file_id", good), ("error_file_id", bad)):
            batch[name] = self.keep_file("".join(json.dumps(row) + "\n" for row in some).encode()) if some else None

    def keep_file(self, content: bytes) -> str:
        """Keep a file; return its id."""
        name = f"file-{next(self._numbers)}"
        self.files[name] = content
        return name


def refusal(status: int, message: str, code: str = "invalid_request_error") -> web.Response:
    """Return an error in OpenAI's form."""
    return web.json_response({"error": {"message": message, "type": code, "code": code}}, status=status)
