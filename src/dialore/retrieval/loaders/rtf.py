"""RTF as sections, converted to Markdown by kreuzberg."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from dialore.knowledge import GROUPS
from dialore.retrieval.chunking import Reject, Section, Unreadable, library
from dialore.retrieval.groups import RefusedGroups, apply_groups, names_groups
from dialore.retrieval.loaders.markup import read_markdown

RTF_START = rb"{\rtf"
_PROPERTY_NAME = re.compile(r"\{\\propname\s([^{}]{0,1000})\}")
_PROPERTY = re.compile(
    r"\{\\propname\s([^{}]{0,1000})\}\s{0,20}\\proptype\d{1,4}\s{0,20}\{\\staticval([^{}]{0,10000})\}"
)
_IMAGE = re.compile(r"!\[image\]\(image_\d+\.\w+\)")


def read_rtf(data: bytes, notice: Reject) -> Iterator[Section]:
    """Yield the sections of a document in the Rich Text Format.

    Raises:
        RefusedGroups: Its properties name `groups` in a form that cannot be applied.
        Unreadable: It is no RTF.
        MissingExtraError: The extra `rtf` is not installed.
    """
    if not data.lstrip().startswith(RTF_START):
        raise Unreadable("it is no RTF")
    text = data.decode("latin-1")
    named = [(GROUPS, value.strip()) for name, value in _PROPERTY.findall(text) if names_groups(name)]
    if sum(names_groups(name) for name in _PROPERTY_NAME.findall(text)) > len(named):
        raise RefusedGroups(f"a property of the document names {GROUPS} in a form that cannot be applied")
    groups = apply_groups(named).get(GROUPS)
    with library("RTF file", "kreuzberg", extra="rtf"):
        from kreuzberg import ExtractionConfig, extract_bytes_sync

        config = ExtractionConfig(output_format="markdown", use_cache=False)
        result = extract_bytes_sync(data, "application/rtf", config)
    title = str(result.metadata.get("title") or "")
    for section in read_markdown(_IMAGE.sub("", result.content), notice):
        names = dict.fromkeys(filter(None, (title, section.title)))
        metadata = section.metadata
        if groups is not None:
            metadata = apply_groups([(GROUPS, groups), *section.metadata.items()])
        yield replace(section, title=" > ".join(names), metadata=metadata)
