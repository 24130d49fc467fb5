"""Sheets for annotators, as CSV, as XLSX where openpyxl is there, and as a page to print."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from dialore.errors import InputError
from dialore.evaluation.human.criteria import SIDES, CriteriaSet, Form
from dialore.evaluation.human.items import LETTERS
from dialore.pages import asset, environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dialore.evaluation.human.items import Item
    from dialore.text import Language

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_UI = {
    "en": {
        "dialogue": "Dialogue",
        "topic": "Topic",
        "persona": "Persona",
        "knowledge": "Knowledge",
        "response": "Response",
        "query": "Search query",
        "tie": "tie",
        "rank": "rank, 1 is best; equal ranks are allowed",
        "annotator": "Annotator",
        "date": "Date",
        "comment": "Comment",
        "item": "Item",
        "fill": "A, B or tie",
    },
    "zh": {
        "dialogue": "对话",
        "topic": "话题",
        "persona": "人设",
        "knowledge": "知识",
        "response": "回应",
        "query": "搜索词",
        "tie": "平局",
        "rank": "名次，1 为最好；可以并列",
        "annotator": "标注者",
        "date": "日期",
        "comment": "备注",
        "item": "条目",
        "fill": "A、B 或 tie（平局）",
    },
}


def answer_columns(chosen: CriteriaSet, form: Form, letters: int) -> list[str]:
    """The columns that annotators fill in: a criterion each; for rankings a criterion and letter each."""
    if form == "ranking":
        return [f"{name} {letter}" for name in chosen.criteria for letter in LETTERS[:letters]]
    return list(chosen.criteria)


def columns_of(items: Sequence[Item], chosen: CriteriaSet, form: Form) -> list[str]:
    """All columns of a sheet: the item, what is read, what is filled in."""
    letters = max(len(item.texts) for item in items)
    texts = [chosen.judges] if form == "likert" else [f"{chosen.judges} {letter}" for letter in LETTERS[:letters]]
    return ["item", *chosen.shows, "dialogue", *texts, *answer_columns(chosen, form, letters), "comment"]


def rows_of(items: Sequence[Item], chosen: CriteriaSet, form: Form) -> list[list[str]]:
    """A sheet's rows, with the answers' columns empty."""
    columns = columns_of(items, chosen, form)
    rows = []
    for item in items:
        known = {
            "item": item.id,
            "topic": item.topic,
            "persona": "\n".join(item.persona),
            "knowledge": "\n".join(item.knowledge),
            "dialogue": "\n".join(f"{speaker}: {text}" for speaker, text in item.turns),
        }
        names = [chosen.judges] if form == "likert" else [f"{chosen.judges} {letter}" for letter in LETTERS]
        known |= dict(zip(names, item.texts, strict=False))
        rows.append([_inert(known.get(column, "")) for column in columns])
    return rows


def render_csv(items: Sequence[Item], chosen: CriteriaSet, form: Form) -> str:
    """A sheet as CSV, with a byte-order mark, so that spreadsheets read it as UTF-8."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns_of(items, chosen, form))
    writer.writerows(rows_of(items, chosen, form))
    return "\ufeff" + text.getvalue()


def write_xlsx(path: Path, items: Sequence[Item], chosen: CriteriaSet, form: Form, language: Language) -> None:
    """A sheet as XLSX: wrapped texts, and a list to choose from where there is one.

    Raises:
        InputError: openpyxl is not installed.
    """
    openpyxl = _openpyxl()
    columns = columns_of(items, chosen, form)
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "sheet"
    for row in [columns, *rows_of(items, chosen, form)]:
        sheet.append(row)
    sheet.freeze_panes = "B2"
    for place, name in enumerate(columns, start=1):
        letter = openpyxl.utils.get_column_letter(place)
        is_text = name in {"dialogue", "persona", "knowledge", "comment"} or name.startswith(("response", "query"))
        sheet.column_dimensions[letter].width = 60 if name == "dialogue" else 40 if is_text else 16
        options = _options(name, chosen, form, max(len(item.texts) for item in items))
        if options:
            rule = openpyxl.worksheet.datavalidation.DataValidation("list", formula1=f'"{",".join(options)}"')
            sheet.add_data_validation(rule)
            rule.add(f"{letter}2:{letter}{len(items) + 1}")
        for cell in sheet[letter]:
            cell.alignment = openpyxl.styles.Alignment(wrap_text=True, vertical="top")
    guide = book.create_sheet("guide")
    guide.append([chosen.guide.in_(language)])
    for name, criterion in chosen.criteria.items():
        question = criterion.rate if form == "likert" else criterion.compare
        guide.append([name, criterion.title.in_(language), question.in_(language)])
    book.save(path)


def render_page(items: Sequence[Item], chosen: CriteriaSet, form: Form, language: Language, annotator: int) -> str:
    """A sheet as one page to be printed and filled in by hand."""
    return (
        environment()
        .get_template("report/sheet.html.j2")
        .render(
            items=items,
            chosen=chosen,
            form=form,
            language=language,
            annotator=annotator,
            words=_UI[language],
            letters=LETTERS,
            style=asset("report/sheet.css"),
        )
    )


def has_xlsx() -> bool:
    """Whether XLSX can be written and read here."""
    try:
        _openpyxl()
    except InputError:
        return False
    return True


def _openpyxl() -> Any:  # noqa: ANN401 - the library is untyped
    import importlib

    try:
        module = importlib.import_module("openpyxl")
        for part in ("utils", "styles", "worksheet.datavalidation"):
            importlib.import_module(f"openpyxl.{part}")
    except ImportError:
        raise InputError("XLSX needs openpyxl", mend="pip install openpyxl, or use CSV") from None
    return module


def _options(column: str, chosen: CriteriaSet, form: Form, letters: int) -> list[str]:
    name = column.rpartition(" ")[0] if form == "ranking" else column
    criterion = chosen.criteria.get(name)
    if criterion is None:
        return []
    if form == "pairwise":
        return list(SIDES)
    low, high = (1, letters) if form == "ranking" else criterion.scale
    return [str(value) for value in range(low, high + 1)]


def _inert(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
