"""Sheets for annotators, as CSV and as a page to print; as XLSX see `workbook`."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from dialore.evaluation.human.items import LETTERS
from dialore.pages import asset, environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dialore.evaluation.human.criteria import CriteriaSet, Form
    from dialore.evaluation.human.items import Item
    from dialore.text import Language

_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
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
        rows.append([known.get(column, "") for column in columns])
    return rows


def render_csv(items: Sequence[Item], chosen: CriteriaSet, form: Form) -> str:
    """A sheet as CSV, with a byte-order mark, so that spreadsheets read it as UTF-8."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns_of(items, chosen, form))
    writer.writerows([_inert(text) for text in row] for row in rows_of(items, chosen, form))
    return "\ufeff" + text.getvalue()


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


def _inert(text: str) -> str:
    """Text that no spreadsheet takes for a formula."""
    return f"'{text}" if text.startswith(_FORMULA) else text
