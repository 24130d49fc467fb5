"""Word, PowerPoint and Excel files as sections."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

from dialore.sources.documents.blocks import Reject, by_headings, library
from dialore.sources.documents.chunking import Paragraph, Section


def read_docx(data: bytes, reject: Reject) -> Iterator[Section]:
    """A Word document by its headings."""
    with library("Word document", "docx"):
        import docx
        from docx.table import Table

        document = docx.Document(io.BytesIO(data))
        blocks: list[tuple[int, Paragraph]] = []
        for block in document.iter_inner_content():
            if isinstance(block, Table):
                blocks += [(0, Paragraph(row(cell.text.strip() for cell in row.cells))) for row in block.rows]
            elif block.text.strip():
                name = (block.style and block.style.name) or ""
                level = 1 if name == "Title" else int(name[-1]) if re.fullmatch(r"Heading \d", name) else 0
                blocks.append((level, Paragraph(block.text.strip())))
        title = document.core_properties.title or ""
    yield from by_headings(blocks, title)


def read_pptx(data: bytes, reject: Reject) -> Iterator[Section]:
    """A presentation by its slides, whose numbers are pages."""
    with library("presentation", "pptx"):
        import pptx

        presentation = pptx.Presentation(io.BytesIO(data))
        blocks: list[tuple[int, Paragraph]] = []
        for number, slide in enumerate(presentation.slides, start=1):
            title = slide.shapes.title
            blocks.append((1, Paragraph(title.text_frame.text.strip() if title is not None else "")))
            shapes = [shape for shape in slide.shapes if title is None or shape.shape_id != title.shape_id]
            texts = [shape.text_frame.text for shape in shapes if shape.has_text_frame]
            rows = (row for shape in shapes if shape.has_table for row in shape.table.rows)
            texts += [row(cell.text.strip() for cell in row.cells) for row in rows]
            texts += [slide.notes_slide.notes_text_frame.text] if slide.has_notes_slide else []
            blocks += [(0, Paragraph(line, number)) for text in texts for line in text.splitlines() if line.strip()]
        name = presentation.core_properties.title or ""
    yield from by_headings(blocks, "" if name == "PowerPoint Presentation" else name)


def read_xlsx(data: bytes, reject: Reject) -> Iterator[Section]:
    """A workbook by its sheets: a paragraph a row, each value after what the first row calls it."""
    with library("workbook", "openpyxl"):
        import openpyxl

        workbook = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        blocks: list[tuple[int, Paragraph]] = []
        for sheet in workbook.worksheets:
            blocks.append((1, Paragraph(sheet.title)))
            names: list[str] | None = None
            for row in sheet.iter_rows(values_only=True):
                cells = ["" if value is None else str(value).strip() for value in row]
                if any(cells) and names is None:
                    names = cells
                elif any(cells) and names is not None:
                    named = zip(names, cells, strict=False)
                    text = row(f"{name}: {cell}" if name else cell for name, cell in named if cell)
                    blocks.append((0, Paragraph(text)))
    yield from by_headings(blocks, "")
