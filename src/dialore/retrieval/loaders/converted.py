"""OpenDocument texts and RTF as sections, converted to Markdown by kreuzberg."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace

from dialore.errors import first_line
from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Reject, Section, Unreadable, library
from dialore.retrieval.groups import apply_groups, names_groups
from dialore.retrieval.loaders.markup import read_markdown

RTF_START = rb"{\rtf"
_ODT_TYPE, _RTF_TYPE = "application/vnd.oasis.opendocument.text", "application/rtf"
_SPACES = re.compile(rb"<text:s\b[^<>]*/>")
_ANNOTATION = re.compile(rb"<office:annotation\b")
_ENCRYPTED = re.compile(rb"<(?:\w+:)?encryption-data\b")
_RTF_PROPERTY = re.compile(r"\{\\propname\s+([^{}]*)\}\s*\\proptype\d+\s*\{\\staticval\s+([^{}]*)\}")
_IMAGE = re.compile(r"!\[image\]\(image_\d+\.\w+\)")
_MAX_XML_BYTES = 500_000_000


def read_odt(data: bytes, notice: Reject) -> Iterator[Section]:
    """Yield the sections of an OpenDocument text; comments are counted, not read.

    Raises:
        RefusedGroups: Its properties name `groups` in a form that cannot be applied.
        Unreadable: It is damaged or encrypted.
    """
    from lxml import etree

    try:
        data, content, properties = _unpack(data)
    except (KeyError, zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as error:
        raise Unreadable(f"it is damaged, or no OpenDocument text: {first_line(error)}") from error
    if comments := len(_ANNOTATION.findall(content)):
        notice("", f"{comments:,} comments are not read")
    options = {"resolve_entities": False, "no_network": True, "recover": True}
    root = etree.fromstring(properties, etree.XMLParser(**options)) if properties else None
    named = [] if root is None else list(root.iter("{*}user-defined"))
    pairs = [
        (GROUPS, "".join(element.itertext()))
        for element in named
        if any(names_groups(value) for key, value in element.items() if key.endswith("}name"))
    ]
    yield from _convert(data, _ODT_TYPE, apply_groups(pairs).get(GROUPS), notice)


def _unpack(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Return a copy of a package whose spaces are characters, its content, and its properties."""
    copy = io.BytesIO()
    content = properties = b""
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED) as target:
        names = archive.namelist()
        if "META-INF/manifest.xml" in names and _ENCRYPTED.search(archive.read("META-INF/manifest.xml")):
            raise Unreadable("it is encrypted: save it without a password")
        if archive.getinfo("content.xml").file_size > _MAX_XML_BYTES:
            raise Unreadable(f"its content has more than {_MAX_XML_BYTES:,} bytes")
        for name in ("mimetype", "content.xml", "meta.xml", "styles.xml"):
            if name not in names:
                continue
            part = archive.read(name)
            if name == "content.xml":
                content = part = _SPACES.sub(b" ", part)
            elif name == "meta.xml":
                properties = part
            target.writestr(name, part)
    return copy.getvalue(), content, properties


def read_rtf(data: bytes, notice: Reject) -> Iterator[Section]:
    """Yield the sections of a document in the Rich Text Format.

    Raises:
        RefusedGroups: Its properties name `groups` in a form that cannot be applied.
        Unreadable: It is no RTF.
    """
    if not data.lstrip().startswith(RTF_START):
        raise Unreadable("it is no RTF")
    properties = _RTF_PROPERTY.findall(data.decode("latin-1"))
    named = [(GROUPS, value) for name, value in properties if names_groups(name)]
    yield from _convert(data, _RTF_TYPE, apply_groups(named).get(GROUPS), notice)


def _convert(data: bytes, media_type: str, groups: list[str] | None, notice: Reject) -> Iterator[Section]:
    with library("OpenDocument or RTF file", "kreuzberg", extra="opendocument"):
        from kreuzberg import ExtractionConfig, extract_bytes_sync

        config = ExtractionConfig(output_format="markdown", use_cache=False)
        result = extract_bytes_sync(data, media_type, config)
    title = str(result.metadata.get("title") or "")
    for section in read_markdown(_IMAGE.sub("", result.content), notice):
        names = dict.fromkeys(filter(None, (title, section.title)))
        extra = section.extra
        if groups is not None:
            extra = apply_groups([(GROUPS, groups), *section.extra.items()])
        yield replace(section, title=" > ".join(names), extra=extra)
