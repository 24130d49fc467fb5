"""Sheets as XLSX, by openpyxl (the `evaluation` extra), for annotators."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from dialore.errors import InputError, import_optional
from dialore.evaluation.human.sheets import CriteriaSet, Criterion, Form, Item, sheet_words, table_of

if TYPE_CHECKING:
    from dialore.text import Language

_LONGEST, _TITLE, _PROMPT = 32767, 32, 255  # characters of a cell, and of a list's title and prompt
_LINE, _HIGHEST = 14.0, 409.0  # of a row, in points
_HEAD, _TO_FILL = "FFDDE3EA", "FFFFF8DC"


def has_xlsx() -> bool:
    """Return whether XLSX can be written and read here."""
    return importlib.util.find_spec("openpyxl") is not None


def write_xlsx(path: Path, items: Sequence[Item], chosen: CriteriaSet, form: Form, language: Language) -> None:
    """Write a sheet as XLSX: texts that are no formulas, lists of answers, the guide on a second sheet."""
    book = import_optional("openpyxl", f"writing {path.name}", "evaluation").Workbook()
    book.properties.creator = "dialore"
    _fill_sheet(book.active, items, chosen, form, language)
    guide, words = book.create_sheet("guide"), sheet_words(language)
    widths = (24, 24, 60, 60)[: 4 if form == "likert" else 3]
    _lay_out(guide, widths)
    lines = (chosen.title.in_(language), chosen.guide.in_(language), words["fill"], words[form])
    for number, text in enumerate(lines, start=1):
        _put(guide, number, [text], [sum(widths)], language, is_head=number == 1)
        guide.merge_cells(start_row=number, start_column=1, end_row=number, end_column=len(widths))
    _put(guide, 6, words["heads"][: len(widths)], widths, language, is_head=True)
    for number, (name, criterion) in enumerate(chosen.criteria.items(), start=7):
        row = [name, criterion.title.in_(language), *_question_text(criterion, form, language)]
        _put(guide, number, row, widths, language)
    try:
        book.save(path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}", hint="check the folder") from error


def _fill_sheet(sheet: Any, items: Sequence[Item], chosen: CriteriaSet, form: Form, language: Language) -> None:  # noqa: ANN401
    from openpyxl.styles import PatternFill
    from openpyxl.worksheet.datavalidation import DataValidation

    words = sheet_words(language)
    columns, *rows = table_of(items, chosen, form)
    letters = max((len(item.texts) for item in items), default=2)
    sheet.title = "answers"
    sheet.freeze_panes = "B2"
    sheet.print_title_rows = "1:1"
    texts = {*chosen.shows, "comment"}
    widths = [
        60 if name == "dialogue" else 40 if name in texts or name.startswith(chosen.judges) else 18 for name in columns
    ]
    _lay_out(sheet, widths)
    _put(sheet, 1, columns, widths, language, is_head=True)
    for number, row in enumerate(rows, start=2):
        _put(sheet, number, row, widths, language)
    fill = PatternFill("solid", fgColor=_TO_FILL)
    for column, name in enumerate(columns, start=1):
        criterion = chosen.criteria.get(name.rpartition(" ")[0] if form == "ranking" else name)
        if criterion is not None and items:
            low, high = (1, letters) if form == "ranking" else criterion.scale
            options = [str(value) for value in range(low, high + 1)]
            if form == "pairwise":
                options = ["A", "B", words["tie"]]
            # Answers are chosen from a list, with the question as its prompt.
            rule = DataValidation(
                "list",
                formula1=f'"{",".join(options)}"',
                allow_blank=True,
                showErrorMessage=True,
                error=f"{words['wrong']}{', '.join(options)}"[:_PROMPT],
                showInputMessage=True,
                promptTitle=criterion.title.in_(language)[:_TITLE],
                prompt="\n".join(_question_text(criterion, form, language))[:_PROMPT],
            )
            sheet.add_data_validation(rule)
            first, last = sheet.cell(2, column), sheet.cell(len(items) + 1, column)
            rule.add(f"{first.coordinate}:{last.coordinate}")
            for number, item in enumerate(items, start=2):
                if name not in item.skips:
                    sheet.cell(number, column).fill = fill


def _lay_out(sheet: Any, widths: Sequence[int]) -> None:  # noqa: ANN401
    """Columns of these widths, printed across the page."""
    from openpyxl.utils import get_column_letter

    for column, width in enumerate(widths, start=1):
        sheet.column_dimensions[get_column_letter(column)].width = width
    sheet.print_options.gridLines = True
    sheet.page_setup.orientation = "landscape"
    sheet.page_setup.fitToHeight = 0
    sheet.sheet_properties.pageSetUpPr.fitToPage = True


def _question_text(criterion: Criterion, form: Form, language: Language) -> list[str]:
    """Return the question; of a scale, what its points mean, too."""
    if form != "likert":
        return [criterion.compare.in_(language)]
    points = (f"{point} = {words.in_(language)}" for point, words in sorted(criterion.anchors.items()))
    return [criterion.rate.in_(language), "; ".join(points)]


def _put(
    sheet: Any,  # noqa: ANN401
    number: int,
    row: Sequence[str],
    widths: Sequence[int],
    language: Language,
    *,
    is_head: bool = False,
) -> None:
    """Put a row of texts, wrapped, as high as they want: LibreOffice else gives a row one line."""
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
    from openpyxl.styles import Alignment, Font, PatternFill

    rest = sheet_words(language)["rest"]
    for column, text in enumerate(row, start=1):
        cell = sheet.cell(number, column)
        if text:
            kept = ILLEGAL_CHARACTERS_RE.sub("\ufffd", text.replace("\r\n", "\n"))
            cell.value = kept if len(kept) <= _LONGEST else kept[: _LONGEST - len(rest)] + rest
            # The library takes "=" for the start of a formula and "#N/A" for an error. With the prefix a spreadsheet
            # leaves the text a text when it is edited.
            cell.data_type = "s"
            cell.quotePrefix = text[0] in "=+-@"
        cell.alignment = Alignment(wrap_text=True, vertical="top")
        if is_head:
            cell.font = Font(bold=True)
            cell.fill = PatternFill("solid", fgColor=_HEAD)
    lines = max(_lines(text, width) for text, width in zip(row, widths, strict=True))
    sheet.row_dimensions[number].height = min(_LINE * lines + 3, _HIGHEST)


def _lines(text: str, width: int) -> int:
    """Return how many lines a text takes in a column, about; Chinese characters are as wide as two of the others."""
    cells = (sum(1 + (east_asian_width(character) in "WF") for character in line) for line in text.split("\n"))
    return sum(1 + int(taken * 1.1 / width) for taken in cells)
