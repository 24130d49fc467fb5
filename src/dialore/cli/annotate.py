"""`dialore annotate`: human evaluation by sheets."""

import dataclasses
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, get_args

import typer
from typer import Argument, Option

from dialore.cli.options import Json, one_of
from dialore.cli.output import Table, console, note, print_json, say
from dialore.dialogue import Dialogue
from dialore.errors import InputError, install
from dialore.evaluation.human import sheets as forms
from dialore.evaluation.human.reading import read_answers, read_filled, read_key
from dialore.evaluation.human.workbook import has_xlsx, write_xlsx
from dialore.evaluation.report.people import READING, people_of
from dialore.evaluation.report.tables import combiner, labels, values_of
from dialore.experiments.results import RunResults
from dialore.experiments.store import RunStore
from dialore.files import write_whole
from dialore.response import Response
from dialore.text import check_language

PLACE = "A folder of filled-in sheets with its key beside it, or what `annotate import` wrote."
app = typer.Typer(no_args_is_help=True)


@app.command("export")
def export(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="The folders of runs.")],
    out: Annotated[Path | None, Option(metavar="FOLDER", help="The sheets. (default: RUN/sheets-CRITERIA)")] = None,
    key: Annotated[Path | None, Option(metavar="FILE", help="Where the key goes. (default: FOLDER.key.json)")] = None,
    criteria: Annotated[
        str, Option("--criteria", "-c", metavar="NAME", help="The set of criteria: dcrag, safari, scg-qp-query, ...")
    ] = "dcrag",
    form: Annotated[str | None, Option(metavar="pairwise|likert|ranking", help="(default: the paper's)")] = None,
    system: Annotated[
        list[str] | None, Option("--system", "-s", metavar="NAME", help="Only this system; may be given several times.")
    ] = None,
    against: Annotated[str | None, Option(metavar="SYSTEM", help="Only pairs with this system. (default: all)")] = None,
    limit: Annotated[int | None, Option("--limit", "-n", min=1, help="How many dialogues.")] = 100,
    lowest: Annotated[
        str | None, Option(metavar="METRIC", help="The dialogues with the lowest scores. (default: a random sample)")
    ] = None,
    lowest_of: Annotated[
        str | None, Option(metavar="SYSTEM", help="The system whose scores --lowest sorts by. (default: sum of all)")
    ] = None,
    annotators: Annotated[int, Option(min=1, help="How many sheets.")] = 3,
    language: Annotated[str | None, Option(metavar="en|zh", help="Of the questions. (default: the dialogues')")] = None,
    seed: Annotated[int, Option(help="Of sampling, shuffling and blinding.")] = 0,
    json: Json = False,
) -> None:
    """Write a sheet for each annotator, blind and shuffled; the key stays with you.

    Each comes as CSV, and as XLSX with lists to choose from (the `evaluation`
    extra). Responses are of the first repetition.

    [bold]Examples[/bold]
    dialore annotate export runs/try --against dcrag -n 100
    dialore annotate export runs/kbp -c safari --language zh
    dialore annotate export runs/try -c dcrag --form ranking
    """
    if lowest_of and not lowest:
        raise InputError("--lowest-of needs a metric to sort by", hint="add --lowest METRIC")
    chosen = forms.criteria_set(criteria)
    asked = one_of("form", form or chosen.form, get_args(forms.Form))
    out = out or runs[0] / f"sheets-{criteria}"
    key_path = key or forms.key_of(out)
    if key_path.resolve().is_relative_to(out.resolve()):
        raise InputError(f"the key {key_path} would lie among the sheets", hint="keep it apart: name another --key")
    if key_path.exists():
        raise InputError(f"{key_path} is there already", hint="sheets may be out by it: name another --key")
    gathered = _gather(runs, system or [], against, chosen, lowest, lowest_of)
    gathered = dict(list(gathered.items())[:limit]) if lowest else gathered
    languages = [dialogue.language for dialogue, _ in gathered.values()]
    common = "zh" if languages.count("zh") * 2 > len(languages) else "en"
    spoken = check_language(language or common)
    items, made = forms.make_items(
        gathered, criteria, chosen, asked, language=spoken, limit=limit, against=against, seed=seed
    )
    written = _write(out, items, made, chosen, annotators=annotators, seed=seed)
    write_whole(key_path, made.model_dump_json(indent=1), private=True)
    if json:
        print_json({"sheets": [str(path) for path in written], "key": str(key_path), "items": len(items)})
        return
    for path in written:
        say(str(path))
    if made.same:
        note(f"{len(made.same)} pairs are of two equal texts: ties that nobody is asked about")
    note(f"{len(items)} items a sheet; the key is {key_path}: keep it from the annotators")
    if not has_xlsx():
        note(f"no XLSX: it needs the evaluation extra ({install('evaluation')})")


def _gather(
    runs: Sequence[Path],
    systems: Sequence[str],
    against: str | None,
    criteria: forms.CriteriaSet,
    lowest: str | None = None,
    lowest_of: str | None = None,
) -> dict[str, tuple[Dialogue, dict[str, Response]]]:
    """Return the responses to judge by dialogue id, of the requested systems or of all.

    With a metric `lowest`, dialogues are sorted by their score, lowest first: by the score of the system `lowest_of`,
    or by the sum over the exported systems.
    """
    with ExitStack() as stack:
        stores = [stack.enter_context(RunStore.open(run)) for run in dict.fromkeys(runs)]
        # Sheets need responses only: without a metric to sort by, an unknown name loads no scores.
        results = RunResults(stores, [lowest or "no metric"])
        all_systems = list(results.systems())
        by_label = dict(zip(labels(all_systems), all_systems, strict=True))
        known = list(by_label)
        requested = [one_of("system", name, known) for name in (*systems, *([against] if against else []))]
        exported = requested if systems else known
        responses = {name: results.responses(by_label[name]) for name in known if name in exported}
        gathered = forms.gather(responses, criteria)
        judged = next((answers for _, answers in gathered.values()), responses)
        if empty := [name for name in responses if name not in judged]:
            note(f"left out, without any {criteria.judges}: {', '.join(empty)}")
        if lowest is None:
            return gathered
        sorting = [one_of("system", lowest_of, known)] if lowest_of else exported
        scores: dict[str, float] = {}
        for name in sorting:
            measures = results.measures(by_label[name], lowest)
            for (dialogue, _), value in values_of(combiner(lowest), measures).items():
                scores[dialogue] = scores.get(dialogue, 0.0) + value
        if not scores:
            hint = f"score it first: dialore score {runs[0]} -x {lowest}"
            raise InputError(f"no response of {', '.join(sorting)} has a score of {lowest}", hint=hint)
        order = sorted(gathered.keys() & scores.keys(), key=lambda name: (scores[name], name))
        return {name: gathered[name] for name in order}


def _write(
    out: Path, items: Sequence[forms.Item], key: forms.Key, chosen: forms.CriteriaSet, *, annotators: int, seed: int
) -> list[Path]:
    written = []
    for number in range(1, annotators + 1):
        own = forms.for_annotator(items, number, seed)
        stem = out / f"annotator-{number}"
        write_whole(stem.with_suffix(".csv"), forms.render_csv(own, chosen, key.form))
        written.append(stem.with_suffix(".csv"))
        if has_xlsx():
            write_xlsx(stem.with_suffix(".xlsx"), own, chosen, key.form, key.language)
            written.append(stem.with_suffix(".xlsx"))
    return written


@app.command("import")
def import_sheets(
    sheets: Annotated[list[Path], Argument(metavar="SHEET...", help="Filled-in sheets, one an annotator.")],
    key: Annotated[Path, Option(metavar="FILE", help="The export's key.")],
    out: Annotated[Path, Option(metavar="FILE", help="Where they go.")] = Path("annotations.jsonl"),
    json: Json = False,
) -> None:
    """Read filled-in sheets, CSV or XLSX, and undo the blinding; the file's name is the annotator's.

    [bold]Examples[/bold]
    dialore annotate import sheets/*.csv --key sheets.key.json
    dialore annotate import anna.xlsx ben.xlsx --key sheets.key.json
    """
    _, _, _, annotations, empty, dropped = read_filled(sheets, read_key(key), out)
    names = list(dict.fromkeys(annotation.annotator for annotation in annotations))
    if not annotations:
        raise InputError("nothing is filled in", hint="fill in the sheets' empty columns")
    lines = [f"{annotation.model_dump_json()}\n" for annotation in annotations]
    write_whole(out, lines, private=True)
    if json:
        counts = {"annotations": len(annotations), "empty": empty, "dropped": dropped}
        print_json({**counts, "annotators": names, "file": str(out)})
        return
    say(str(out))
    note(f"{len(annotations)} answers of {len(names)} annotators; {empty} fields were left empty")
    if dropped:
        note(f"{dropped} batches are left out: their control case is judged wrongly")


@app.command("agreement")
def agreement(place: Annotated[Path, Argument(metavar="PLACE", help=PLACE)], json: Json = False) -> None:
    """Show how far annotators agree, who wins how often, and whether that is significant.

    [bold]Examples[/bold]
    dialore annotate agreement runs/try/sheets-dcrag
    dialore annotate agreement annotations.jsonl
    """
    people = people_of(read_answers(place))
    if json:
        print_json(dataclasses.asdict(people.findings))
        return
    for _, words, columns, lines in people.tables:
        heads = [f"{'!' if at == 0 else '' if at < words else '>'}{name}" for at, name in enumerate(columns)]
        console().print(Table(*heads, rows=lines))
    note(f"{people.counted}. {READING}")
