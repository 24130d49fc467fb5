"""Decompression that stops at a limit, so that a small answer cannot fill the memory."""

from __future__ import annotations

import zlib

_GZIP_OR_ZLIB = 47
_RAW = -15


class BombError(ValueError):
    """Compressed data that cannot be read: too big once decompressed, damaged, or of an unknown kind."""


class Inflater:
    """Decompresses what comes in, piece by piece.

    Args:
        encoding: the header `Content-Encoding`: empty, `identity`, `gzip` or `deflate`.
        limit: the most bytes that may come out.

    Raises:
        BombError: another encoding.
    """

    def __init__(self, encoding: str, limit: int) -> None:
        name = encoding.strip().lower()
        if name not in {"", "identity", "gzip", "x-gzip", "deflate"}:
            raise BombError(f"compressed as {name[:40]}, which was not asked for")
        self._plain = name in {"", "identity"}
        self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
        self._may_be_raw = name == "deflate"
        self._limit, self._out = limit, 0

    def feed(self, data: bytes) -> bytes:
        """What the next piece of data holds.

        Raises:
            BombError: the data is damaged, or more than the limit has come out.
        """
        out = data if self._plain else self._inflate(data)
        self._out += len(out)
        if self._out > self._limit:
            raise BombError(f"more than {self._limit:,} bytes once decompressed")
        return out

    def _inflate(self, data: bytes) -> bytes:
        room = self._limit - self._out + 1
        pieces: list[bytes] = []
        while data and room > 0:
            if self._stream.eof:
                self._stream = zlib.decompressobj(_GZIP_OR_ZLIB)
            piece = self._step(data, room)
            pieces.append(piece)
            room -= len(piece)
            data = self._stream.unused_data if self._stream.eof else b""
        return b"".join(pieces)

    def _step(self, data: bytes, room: int) -> bytes:
        try:
            piece = self._stream.decompress(data, room)
        except zlib.error as error:
            if not self._may_be_raw:
                raise BombError("its compressed data is damaged") from error
            # Some servers say deflate and leave out zlib's header (RFC 9110, 8.4.1.2).
            self._may_be_raw = False
            self._stream = zlib.decompressobj(_RAW)
            return self._step(data, room)
        self._may_be_raw = False
        return piece
