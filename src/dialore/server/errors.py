"""Errors of the service, in the shape that clients of OpenAI's API know."""

from __future__ import annotations

import errno
import json
import logging
import re
from collections.abc import Mapping

from fastapi import HTTPException, Response

from dialore.errors import error_chain

log = logging.getLogger(__name__)
_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class ServiceError(HTTPException):
    """A request that is refused or cannot be answered.

    `message` says to the client what is wrong, `code` is its short name, `param` the parameter at fault.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers or {}))
        self.code, self.param = code, param

    @property
    def body(self) -> dict[str, object]:
        """The body that the client gets."""
        kind = _TYPES.get(self.status_code, "server_error" if self.status_code >= 500 else "invalid_request_error")
        return {"error": {"message": self.detail, "type": kind, "param": self.param, "code": self.code}}

    @property
    def response(self) -> Response:
        """The answer."""
        return reply(self.body, self.status_code, self.headers)


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FULL_TEXT = re.compile(
    r"(?i)no space left|disk (?:is )?full|quota exceeded|file too large|mdb_map_full|could not extend file"
)


def full_disk(error: BaseException | None) -> ServiceError | None:
    """Return the client's error if a full disk caused `error`, otherwise None."""
    for link in error_chain(error):
        is_full = isinstance(link, OSError) and link.errno in _FULL
        if is_full or _FULL_TEXT.search(str(link)[:2000]):
            log.error("the disk is full: nothing more can be kept")
            return ServiceError(507, "there is no room to keep it", code="no_space")
    return None


_URL = re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^\s,;)'\"]{1,500}", re.IGNORECASE)
_HOST = re.compile(
    r"""(?<![\w.:])(?:[\w.+-]{1,60}@)?  # a user
    (?:
        \d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?  # IPv4
        | \[?[0-9a-f:]{0,40}::[0-9a-f:]{1,40}\]?(?::\d{1,5})?  # IPv6, shortened
        | [0-9a-f]{1,4}(?::[0-9a-f]{1,4}){7}  # IPv6
        | [\w-]{1,60}(?=\.)[\w.-]{1,200}:\d{1,5}  # a name with dots, and a port
        | localhost(?::\d{1,5})?
        | [a-z][\w-]{0,60}:\d{4,5}  # a name without dots, and a port
    )(?!\w)""",
    re.IGNORECASE | re.VERBOSE,
)
_FILE_PATH = re.compile(r"(?<![\w/])~?(?:[A-Za-z]:)?(?:[/\\]{1,2}[\w.@~+-]+){2,}")


def without_addresses(text: str) -> str:
    """Return a message for clients: addresses of servers and paths of files are the operator's business."""
    text = _URL.sub("the server", text)
    text = _HOST.sub("the server", text)
    return _FILE_PATH.sub("a file of the service", text)


def reply(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return an answer in JSON; in ASCII, so that no text is beyond its encoding."""
    return Response(json.dumps(body), status, headers, media_type="application/json")
