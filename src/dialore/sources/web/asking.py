"""One question to a search engine's JSON interface, over aiohttp."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dialore.errors import SourceError
from dialore.llm.faults import error_detail, one_line, retry_after, shown_url
from dialore.sources.web.fetching import USER_AGENT
from dialore.sources.web.turns import PerLoop

if TYPE_CHECKING:
    from collections.abc import Mapping

_BUSY = frozenset({429, 503})


class JsonAsker:
    """Asks for JSON, and says clearly why there is none. Redirects are not followed, for a key would go along.

    Args:
        timeout: seconds for one answer.
        wait: the most seconds of a `Retry-After` that are waited out; a busy engine is asked again once, and only
            where it says when.
        mends: what to do about a status.
        headers: headers of one's own.
        key: what no error may show.
        max_bytes: the most bytes of an answer.
        concurrency: how many questions are open at once.
    """

    def __init__(
        self,
        *,
        timeout: float,
        wait: float,
        mends: Mapping[int, str],
        headers: Mapping[str, str] | None = None,
        key: str = "",
        max_bytes: int = 4_000_000,
        concurrency: int = 4,
    ) -> None:
        self._timeout, self._wait = timeout, wait
        self._mends, self._headers, self._key = mends, headers or {}, key
        self._max_bytes = max_bytes
        self._turns = PerLoop(concurrency)

    async def get(self, url: str, query: Mapping[str, str]) -> Any:  # noqa: ANN401 - decoded JSON has any type
        """The decoded answer.

        Raises:
            SourceError: there is none: the engine cannot be reached, is slow, refuses, or answers something else.
        """
        async with self._turns:
            status, headers, body = await self._once(url, query)
            seconds = retry_after(headers) if status in _BUSY else None
            if seconds is not None and seconds <= self._wait:
                await asyncio.sleep(seconds)
                status, headers, body = await self._once(url, query)
        if status != 200:
            raise self._refused(status, body, url)
        return self._decoded(body, url)

    async def _once(self, url: str, query: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        import aiohttp

        where, parts = shown_url(url), urlsplit(url)
        proxy = None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)
        try:
            async with (
                asyncio.timeout(self._timeout),
                aiohttp.ClientSession(
                    cookie_jar=aiohttp.DummyCookieJar(),
                    headers={"User-Agent": USER_AGENT, "Accept": "application/json", **self._headers},
                    timeout=aiohttp.ClientTimeout(total=None),
                    proxy=proxy,
                ) as session,
                session.get(url, params=dict(query), allow_redirects=False) as response,
            ):
                body = await response.content.read(self._max_bytes + 1)
                while len(body) <= self._max_bytes and (more := await response.content.read(self._max_bytes)):
                    body += more
                return response.status, response.headers.copy(), body
        except TimeoutError as error:
            message = f"{where} did not answer within {self._timeout:g} s"
            raise SourceError(message, mend="is the search engine overloaded? try again later") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            message = f"cannot reach {where} ({type(error).__name__})"
            raise SourceError(message, mend="is the search engine running, and its address right?") from error

    def _refused(self, status: int, body: bytes, url: str) -> SourceError:
        try:
            said = one_line(error_detail(json.loads(body))[0], self._key)
        except (ValueError, RecursionError):
            said = ""
        mend = self._mends.get(status) or "try again later"
        if 300 <= status < 400:
            mend = "it has moved: give its new address"
        elif status == 404:
            mend = "is its address right?"
        elif status == 429:
            mend = "it is asked too often: wait, or ask another engine"
        return SourceError(f"{shown_url(url)} answered {status}" + (f": {said}" if said else ""), mend=mend)

    def _decoded(self, body: bytes, url: str) -> Any:  # noqa: ANN401 - decoded JSON has any type
        where = shown_url(url)
        if len(body) > self._max_bytes:
            raise SourceError(f"{where} answered more than {self._max_bytes:,} bytes", mend="is it a search engine?")
        try:
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            kind = "a web page" if body.lstrip()[:1] == b"<" else "something"
            mend = self._mends.get(403) or "is it a search engine's address?"
            raise SourceError(f"{where} answered {kind} that is not JSON", mend=mend) from error
