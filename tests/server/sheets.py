"""Sheets of two annotators as `dialore annotate export` writes them."""

from __future__ import annotations

from dialore.cli.annotate import _write
from dialore.dialogue import Dialogue
from dialore.evaluation.human.sheets import criteria_set, key_of, make_items
from dialore.response import Response

HOSTILE = "=1+1 <img src=x onerror=\"document.title='hit'\">"


def write_sheets(folder, criteria="dcrag", form=None, *, dialogues=3, annotators=2):
    """The key of sheets about two systems, `plain` and `rich`."""
    chosen = criteria_set(criteria)
    found = {}
    for number in range(dialogues):
        dialogue = Dialogue(["Hi!", f"Do you like tea number {number}?"], id=f"d{number}", persona=("I sell tea.",))
        texts = {"plain": f"Yes, number {number}.", "rich": f"{HOSTILE if not number else 'Tea'} calms me, {number}."}
        answers = {name: Response(id=dialogue.id, method=name, text=text) for name, text in texts.items()}
        found[dialogue.id] = (dialogue, answers)
    items, key = make_items(found, criteria, chosen, form or chosen.form, language="en")
    folder.mkdir(parents=True)
    _write(folder, items, key, chosen, annotators=annotators, seed=0)
    key_of(folder).write_text(key.model_dump_json(), "utf-8")
    return key
