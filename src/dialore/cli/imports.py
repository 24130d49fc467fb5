"""`dialore import`: responses made elsewhere, made a run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Context, Option

from dialore.cli.options import Data, DataSet, Json, Limit, read_changes, set_option
from dialore.cli.output import note, print_json
from dialore.experiments.config import DatasetConfig
from dialore.experiments.import_responses import import_responses
from dialore.experiments.simulation import import_conversations
from dialore.settings import Strict, check_settings, with_changes
from dialore.text import count_noun


class ImportSettings(Strict):
    """The dialogues that imported responses answer."""

    dataset: DatasetConfig


_ImportSet = Annotated[list[str] | None, set_option("dialore.cli.imports:ImportSettings")]


def import_files(
    context: Context,
    files: Annotated[list[str], Argument(metavar="[NAME=]FILE...", help="Files of responses.")],
    out: Annotated[
        Path | None, Option(metavar="FOLDER", help="The run they go to, new or not. (default: runs/FILE's name)")
    ] = None,
    dataset: DataSet = None,
    data: Data = None,
    limit: Limit = None,
    changes: _ImportSet = None,
    text_key: Annotated[
        str, Option(metavar="KEY", help="The key of the response in each entry of a file: prediction, output.pred.")
    ] = "",
    conversations: Annotated[
        bool, Option("--conversations", help="Files are whole conversations: each answer is a response.")
    ] = False,
    json: Json = False,
) -> None:
    """Read responses made elsewhere into a run, for score, report, judge and annotate.

    A file is JSONL of "id" and "text", and perhaps "system", "model" and the
    "knowledge" that was given, in keys of any case; CSV or TSV with a header;
    an object of texts by id; or a file of OpenAI's or vLLM's batches, deepeval,
    RAGAS, Inspect, FlashRAG, MTRAG, ParlAI's worlds, the few-shot bot or
    lm-eval. Several generations of an entry are repetitions. A system is called by NAME, by its
    entries, or as its file. Into a run that is there, no --data is needed.

    [bold]Examples[/bold]
    dialore import bart.jsonl gpt=out.jsonl --data dialogues.jsonl
    dialore import parlai.jsonl --dataset dailydialog --data test.json --set dataset.cut=all
    dialore import bart.jsonl --out runs/try
    dialore import log.jsonl --conversations --out runs/log
    """
    inputs = _split_name(files)
    if not conversations:
        values = read_changes(context, ImportSettings.list_settings()).values
        import_and_report(inputs, values, out, text_key, json=json)
        return
    folder = out or Path("runs") / inputs[0][1].stem
    counts = import_conversations(folder, inputs)
    if json:
        print_json({"folder": str(folder), "responses": counts.responses, "thoughts": counts.with_thoughts})
    if counts.with_thoughts:
        note(f"thoughts were removed from {count_noun(counts.with_thoughts, 'responses')}")
    note(f"{count_noun(counts.responses, 'responses')} in {folder}")


def import_and_report(
    inputs: Sequence[tuple[str, Path]],
    values: Mapping[str, object],
    out: Path | None = None,
    text_key: str = "",
    *,
    json: bool = False,
) -> Path:
    """Import files of responses and say what came of them; return the run's folder."""
    folder = out or Path("runs") / inputs[0][1].name.partition(".")[0]
    config: DatasetConfig | None = None
    if values:
        data: dict[str, Any] = with_changes({"dataset": {"name": "jsonl"}}, values)
        config = check_settings(ImportSettings, data, where="options").dataset
    systems = import_responses(folder, inputs, config, text_key=text_key)
    if json:
        print_json({"folder": str(folder), "systems": systems})
    for name, counts in systems.items():
        told = [f"{name}: {count_noun(counts['responses'], 'responses')}"]
        if counts["empty"]:
            told.append(f"{counts['empty']} without text, which are scored as answers that say nothing")
        if counts["failed"]:
            told.append(f"{counts['failed']} failed")
        if counts["thoughts"]:
            told.append(f"thoughts were removed from {counts['thoughts']}")
        if missing := counts["missing"]:
            told.append(f"{count_noun(len(missing), 'dialogues')} without one, such as {missing[0]!r}")
        note("; ".join(told))
    note(f"they are in {folder}")
    return folder


def _split_name(files: Sequence[str]) -> list[tuple[str, Path]]:
    """Return each file with the name that stands before it, if any."""
    whole = [("", "", text) if Path(text).exists() else text.rpartition("=") for text in files]
    return [(name, Path(file)) for name, _, file in whole]
