"""The page at `/`: its files, which `page/` is built into, and what they may do in a browser."""

from __future__ import annotations

import hashlib
from importlib import resources

from fastapi import APIRouter, Request, Response

router = APIRouter(include_in_schema=False)
_TYPES = {"index.html": "text/html", "app.js": "text/javascript", "app.css": "text/css"}
FILES = {f"/{name}".replace("/index.html", "/"): name for name in _TYPES}
"""The names of the files by their paths; they are for all, since they hold nothing that a key protects."""
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def _show_file(request: Request) -> Response:
    name = FILES[request.url.path]
    content = resources.files("dialore.server").joinpath("page", name).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Security-Policy": _POLICY}
    headers["Referrer-Policy"] = "no-referrer"
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=_TYPES[name])


for _path in FILES:
    router.add_api_route(_path, _show_file)
