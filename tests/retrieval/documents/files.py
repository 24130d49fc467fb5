"""Real files of every format, made on the spot."""

from __future__ import annotations

import gzip
import io
import json
from typing import TYPE_CHECKING

import docx
import openpyxl
import pptx
import pypdf

if TYPE_CHECKING:
    from pathlib import Path

MARKDOWN = """---
title: "Kettle handbook"
---
Read this *first*.

# Kettle handbook

## Cleaning

Descale it with [vinegar](http://example.org/v) once
a month. Rinse `twice`.

- Never use bleach.
- Dry it well.

| part | life |
|------|------|
| lid  | 2 years |

### By hand

```
wipe --softly
```

## 保修

保修期为
两年。
"""

HTML = """<!doctype html><html lang="en"><head><title>Growing basil</title>
<link rel="canonical" href="https://example.org/basil"></head><body>
<nav><a href="/">Home</a> <a href="/shop">Shop our wonderful offers today</a></nav>
<article><h1>Growing basil</h1>
<p>Basil likes warmth and a sunny window, and it wants its soil to be moist but never wet for long.</p>
<h2>Pruning</h2><p>Pinch the tips above a pair of leaves every week, so that the plant grows bushy and does not flower
too soon in the summer.</p></article><footer>Copyright and cookies</footer></body></html>"""


def pdf(*pages: str, title: str = "", password: str = "") -> bytes:
    """A PDF with a line of Helvetica for each line of each page."""
    writer = pypdf.PdfWriter()
    for text in pages:
        page = writer.add_blank_page(612, 792)
        lines = [line.replace("(", r"\(").replace(")", r"\)") for line in text.splitlines()]
        shown = " ".join(f"({line}) Tj 0 -16 Td" for line in lines)
        stream = pypdf.generic.DecodedStreamObject()
        stream.set_data(f"BT /F1 12 Tf 72 720 Td {shown} ET".encode())
        page[pypdf.generic.NameObject("/Contents")] = writer._add_object(stream)
        name = pypdf.generic.NameObject
        font = pypdf.generic.DictionaryObject(
            {name("/Type"): name("/Font"), name("/Subtype"): name("/Type1"), name("/BaseFont"): name("/Helvetica")}
        )
        fonts = pypdf.generic.DictionaryObject({name("/F1"): font})
        page[name("/Resources")] = pypdf.generic.DictionaryObject({name("/Font"): fonts})
    if title:
        writer.add_metadata({"/Title": title})
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def word() -> bytes:
    """A Word document with headings and a table."""
    document = docx.Document()
    document.core_properties.title = "Kettle"
    document.add_heading("Kettle", 0)
    document.add_paragraph("Read this first.")
    document.add_heading("Cleaning", 2)
    document.add_paragraph("Rinse it twice.")
    row = document.add_table(1, 2).rows[0]
    row.cells[0].text, row.cells[1].text = "lid", "2 years"
    return _saved(document)


def slides() -> bytes:
    """A presentation of two slides, with notes and a table."""
    presentation = pptx.Presentation()
    first = presentation.slides.add_slide(presentation.slide_layouts[1])
    first.shapes.title.text, first.placeholders[1].text = "Plans", "We sell tea."
    first.notes_slide.notes_text_frame.text = "Say it slowly."
    second = presentation.slides.add_slide(presentation.slide_layouts[5])
    second.shapes.title.text = "Figures"
    row = second.shapes.add_table(1, 2, 0, 0, 9, 9).table.rows[0]
    row.cells[0].text, row.cells[1].text = "cup", "3"
    return _saved(presentation)


def sheet() -> bytes:
    """A workbook of one sheet."""
    workbook = openpyxl.Workbook()
    workbook.active.title = "Parts"
    for row in (("part", "life"), ("lid", 2), (None, None), ("spout", 5)):
        workbook.active.append(row)
    return _saved(workbook)


def _saved(document) -> bytes:
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def library(folder: Path) -> Path:
    """A folder with a readable file of each format, and what cannot be read."""
    (folder / "deep" / ".hidden").mkdir(parents=True)
    (folder / "kettle.md").write_text(MARKDOWN, "utf-8")
    (folder / "basil.html").write_text(HTML, "utf-8")
    (folder / "deep" / "notes.txt").write_text("The tide turns\nat noon.\n\nThe ferry leaves at one.", "utf-8")
    lines = [{"text": "Puffins nest in burrows.", "title": "Puffin", "url": "http://birds/p", "year": 2020}, "A gull."]
    (folder / "birds.jsonl.gz").write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    pages = ("The engine has four\ncylinders. Its oil must be", "changed every year. The belt lasts longer.")
    (folder / "engine.pdf").write_bytes(pdf(*pages, title="Engine manual"))
    (folder / "utf16.txt").write_bytes("海鸥在飞。".encode("utf-16"))
    (folder / "secret.pdf").write_bytes(pdf("hidden", password="x"))
    (folder / "broken.pdf").write_bytes(b"%PDF-1.4 and then nothing of the kind")
    (folder / "scan.pdf").write_bytes(pdf(""))
    (folder / "binary.txt").write_bytes(b"\x7fELF\0\0\1\2")
    (folder / "latin.txt").write_bytes("Käse schmeckt köstlich".encode("latin-1"))
    (folder / "blank.txt").write_text(" \n \n", "utf-8")
    (folder / "picture.png").write_bytes(b"\x89PNG")
    (folder / "deep" / ".hidden" / "x.txt").write_text("Nobody reads this.", "utf-8")
    return folder
