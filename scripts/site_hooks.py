"""For mkdocs: files outside docs/ that pages link to (examples, CONTRIBUTING.md) are part of the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files

_OUTSIDE = re.compile(r"\]\(\.\./([^)#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ that pages link to."""
    docs = Path(config.docs_dir)
    for name in {name for page in docs.glob("*.md") for name in _OUTSIDE.findall(page.read_text("utf-8"))}:
        files.append(File.generated(config, name, abs_src_path=str(docs.parent / name)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Links to them, as they lie in the site."""
    return _OUTSIDE.sub(r"](\1", markdown)
