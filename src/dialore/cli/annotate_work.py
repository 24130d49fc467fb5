"""What `dialore annotate` does."""

from __future__ import annotations

import dataclasses
import math
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import typer
from pydantic import ValidationError
from rich.markup import escape

from dialore.cli.output import console, note, print_json, table, write_whole
from dialore.errors import InputError, UnknownNameError
from dialore.evaluation.human.agreement import analyse
from dialore.evaluation.human.items import Form, criteria_set, criteria_sets, for_annotator, gather, make_items
from dialore.evaluation.human.sheets import Annotation, read_key, read_sheet, render_csv, render_page
from dialore.evaluation.human.workbook import has_xlsx, write_xlsx
from dialore.evaluation.report.numbers import p_value, share, three
from dialore.evaluation.report.tables import labels
from dialore.experiments.results import RunResults
from dialore.experiments.store import RunStore
from dialore.text import check_language

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from dialore.evaluation.human.agreement import Findings
    from dialore.evaluation.human.items import Item, Key
    from dialore.text import Language

_FORMS = ("pairwise", "likert", "ranking")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says of an export."""

    runs: tuple[Path, ...]
    out: Path
    key: Path | None
    criteria: str
    form: str | None
    systems: tuple[str, ...]
    against: str | None
    limit: int | None
    annotators: int
    language: str | None
    seed: int


def export(wanted: Wanted, *, json: bool) -> None:
    """Write the sheets and the key.

    Raises:
        InputError: no run, an unknown system, set or form, nothing to judge, a folder that cannot be written.
    """
    chosen = criteria_set(wanted.criteria)
    if wanted.form is not None and wanted.form not in _FORMS:
        raise UnknownNameError("form", wanted.form, _FORMS)
    form = cast("Form", wanted.form or chosen.form)
    key_path = wanted.key or wanted.out.with_name(f"{wanted.out.resolve().name}.key.json")
    if key_path.resolve().is_relative_to(wanted.out.resolve()):
        raise InputError(f"the key {key_path} would lie among the sheets", mend="keep it apart: name another --key")
    if key_path.exists():
        raise InputError(f"{key_path} is there already", mend="sheets may be out by it: name another --key")
    found = _gather(wanted, chosen.judges)
    language = check_language(wanted.language) if wanted.language else _language(found)
    items, key = make_items(
        found,
        wanted.criteria,
        chosen,
        form,
        language=language,
        limit=wanted.limit,
        against=wanted.against,
        seed=wanted.seed,
    )
    written = _write(wanted, items, key)
    write_whole(key_path, key.model_dump_json(indent=1))
    if json:
        print_json({"sheets": [str(path) for path in written], "key": str(key_path), "items": len(items)})
        return
    for path in written:
        typer.echo(path)
    note(f"{len(items)} items a sheet; the key is {key_path}: keep it from the annotators")
    if not has_xlsx():
        note("no XLSX: it needs the evaluation extra (pip install 'dialore[evaluation]')")


def _gather(wanted: Wanted, judged: Any) -> dict[str, Any]:  # noqa: ANN401 - a literal
    with ExitStack() as stack:
        stores = [stack.enter_context(RunStore.open(run)) for run in dict.fromkeys(wanted.runs)]
        # No metric is asked for: sheets want responses alone.
        results = RunResults(stores, ["no metric"])
        systems = list(results.systems())
        named = dict(zip(labels(systems), systems, strict=True))
        for name in (*wanted.systems, *([wanted.against] if wanted.against else [])):
            if name not in named:
                raise UnknownNameError("system", name, named)
        kept = {*wanted.systems, wanted.against} if wanted.systems else set(named)
        chosen = {name: results.responses(system) for name, system in named.items() if name in kept}
        return gather(chosen, judged)


def _language(found: dict[str, Any]) -> Language:
    languages = [dialogue.language for dialogue, _ in found.values()]
    return "zh" if languages.count("zh") * 2 > len(languages) else "en"


def _write(wanted: Wanted, items: Sequence[Item], key: Key) -> list[Path]:
    chosen = criteria_set(key.criteria)
    try:
        wanted.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {wanted.out}: {error.strerror}", mend="name another --out") from error
    written = []
    for number in range(1, wanted.annotators + 1):
        own = for_annotator(items, number, wanted.seed)
        stem = wanted.out / f"annotator-{number}"
        texts = {".csv": render_csv(own, chosen, key.form)}
        texts[".html"] = render_page(own, chosen, key.form, key.language, number)
        for ending, text in texts.items():
            write_whole(stem.with_suffix(ending), text)
            written.append(stem.with_suffix(ending))
        if has_xlsx():
            write_xlsx(stem.with_suffix(".xlsx"), own, chosen, key.form, key.language)
            written.append(stem.with_suffix(".xlsx"))
    return written


def import_sheets(sheets: Sequence[Path], key_path: Path, out: Path, *, json: bool) -> None:
    """Read sheets and write annotations.

    Raises:
        InputError: what is wrong in a sheet, by row and column.
    """
    key = read_key(key_path)
    names = [path.stem for path in sheets]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"two sheets are called {twice[0]}", mend="give one of each annotator, named by them")
    found: list[Annotation] = []
    empty = 0
    for path, name in zip(sheets, names, strict=True):
        annotations, left = read_sheet(path, key, name)
        found += annotations
        empty += left
    if not found:
        raise InputError("nothing is filled in", mend="fill in the sheets' empty columns")
    write_whole(out, "".join(each.model_dump_json() + "\n" for each in found))
    if json:
        print_json({"annotations": len(found), "empty": empty, "annotators": names, "file": str(out)})
        return
    typer.echo(out)
    note(f"{len(found)} answers of {len(names)} annotators; {empty} fields were left empty")


def agreement(path: Path, *, json: bool) -> None:
    """Show what annotations say.

    Raises:
        InputError: the file is missing or holds no annotations.
    """
    findings = analyse(_read(path))
    if json:
        print_json(_plain(dataclasses.asdict(findings)))
        return
    _show(findings)


def _read(path: Path) -> list[Annotation]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}", mend="name what `annotate import` wrote") from error
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(Annotation.model_validate_json(line))
        except ValidationError as error:
            raise InputError(f"{path}, line {number}: no annotation", mend="import the sheets again") from error
    if not found:
        raise InputError(f"{path} holds no annotation", mend="import filled-in sheets first")
    if len({(each.criteria, each.form) for each in found}) > 1:
        raise InputError(f"{path} holds annotations of several exports", mend="analyse each on its own")
    return found


def _show(findings: Findings) -> None:
    rows = table("!criterion", ">annotators", ">items", ">same", ">Cohen", ">Fleiss", ">alpha")
    for each in findings.agreement:
        figures = (_three(each.cohen), _three(each.fleiss), _three(each.alpha))
        same = "-" if math.isnan(each.same) else share(each.same, 1)
        rows.add_row(each.criterion, str(each.annotators), str(each.items), same, *figures)
    console().print(rows)
    if findings.standings:
        rows = table("!criterion", "system", ">mean rank" if findings.form == "ranking" else ">mean", ">95%", ">items")
        for place in findings.standings:
            interval = "-" if math.isnan(place.low) else f"{three(place.low)} to {three(place.high)}"
            rows.add_row(place.criterion, escape(place.system), three(place.mean), interval, str(place.items))
        console().print(rows)
    rows = table("!criterion", "systems", ">wins", ">ties", ">losses", ">items", ">Wilcoxon p", ">sign p", ">z p")
    for contest in findings.contests:
        rate = contest.rate
        shares = (share(rate.wins, rate.n), share(rate.ties, rate.n), share(rate.losses, rate.n))
        tests = (p_value(contest.p), p_value(contest.sign), p_value(contest.proportions))
        pair = escape(f"{contest.first} / {contest.second}")
        rows.add_row(contest.criterion, pair, *shares, str(contest.items), *tests)
    console().print(rows)
    note("wins are the first system's, over all judgements; p over items, Holm-corrected over all contests")


def list_criteria(*, json: bool) -> None:
    """Every set of criteria."""
    if json:
        print_json({name: chosen.model_dump(mode="json") for name, chosen in criteria_sets().items()})
        return
    rows = table("!name", "form", "criteria", "paper")
    for name, chosen in criteria_sets().items():
        rows.add_row(name, chosen.form, ", ".join(chosen.criteria), chosen.paper)
    console().print(rows)


def _three(value: float) -> str:
    return "-" if math.isnan(value) else three(value)


def _plain(value: Any) -> Any:  # noqa: ANN401 - plain data
    """Data with null for what is no number."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and math.isnan(value) else value
