"""What generators learn: the recipes of the papers, people's queries, COQ's questions, and rows of stages.

Prompts are rendered as the methods render them, so that a model reads in training what it reads in use.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dialore.datasets import data_set, gold_text, split_dialogues
from dialore.dialogue import conversation_of
from dialore.errors import InputError, import_optional
from dialore.files import read_text
from dialore.llm.distilled import read_rows, shorten_prompt
from dialore.llm.local import pretrained_arguments
from dialore.methods.few_shot import topic_of
from dialore.methods.msdp import prompt_variables
from dialore.methods.safari import assemble_line, each_once, gold_knowledge, gold_plan, mend_plan
from dialore.prompts.history import on_one_line, render_history
from dialore.prompts.library import PromptLibrary
from dialore.sources.declared import DeclaredSource, DeclaredSources, default_sources, in_order, read_declaration
from dialore.text import close_gaps
from dialore.training.finetune import Target
from dialore.training.trainer import SCRATCH

if TYPE_CHECKING:
    from dialore.dialogue import Dialogue

_HELD_OUT_INTERVAL = 10
"""Without a held-out file every tenth dialogue is held out."""
_JSON_MARKS = '{}[]":,\\\n'


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a generator is trained.

    Attributes:
        needs: Fields that the data set must have.
        make_target: Returns the target of a response, given the sources planned over, or None if nothing is learnt.
        use: How the model is used, as a sentence.
        drops_known: Leave out held-out targets that the training data has word for word: short texts recur by chance.
    """

    needs: tuple[str, ...]
    make_target: Callable[[Dialogue, DeclaredSources], Target | None]
    use: str
    drops_known: bool = False


def read_targets(
    recipe: str, name: str, paths: Sequence[Path], declared: DeclaredSources | None = None
) -> tuple[list[list[Target]], dict[str, Any]]:
    """Return the targets of a training file and of a held-out file, and the description of the data for the card.

    Args:
        recipe: A key of `RECIPES`.
        name: The data set.
        paths: The training file, and the held-out file if there is one. Otherwise a tenth of the dialogues is held out.
        declared: The sources that SAFARI plans over. (default: the paper's persona and documents)

    Raises:
        InputError: The data set lacks a required field, has nothing to learn, or cannot be read.
    """
    chosen, reader = RECIPES[recipe], data_set(name)
    missing = [field for field in chosen.needs if field not in reader.has]
    if missing:
        message = f"{name} has no {' and no '.join(missing)} to learn {recipe} from"
        raise InputError(message, hint="name another data set")
    files = [split_dialogues(reader.read(path), cut="all") for path in paths]
    if len(files) == 1:
        files = _hold_out(files[0])
    sources = declared or default_sources({})
    targets = []
    for dialogues in files:
        made = [chosen.make_target(dialogue, sources) for dialogue in dialogues]
        targets.append([target for target in made if target is not None])
        if not targets[-1]:
            raise InputError(f"{name} has no {recipe} to learn in {paths[0].parent}", hint="give other dialogues")
    if chosen.drops_known:
        targets[1] = _drop_known(*targets)
    dialogue_count = len({conversation_of(dialogue.id) for dialogue in files[0]})
    return targets, {**_summarise(name, paths[0], targets[0]), "dialogues": dialogue_count}


def _hold_out(dialogues: Sequence[Dialogue]) -> list[list[Dialogue]]:
    """Divide dialogues in training data and held-out data."""
    names = list(dict.fromkeys(conversation_of(dialogue.id) for dialogue in dialogues))
    held_out = set(names[_HELD_OUT_INTERVAL - 1 :: _HELD_OUT_INTERVAL])
    parts: list[list[Dialogue]] = [[], []]
    for dialogue in dialogues:
        parts[conversation_of(dialogue.id) in held_out].append(dialogue)
    return parts


def _drop_known(train: Sequence[Target], dev: Sequence[Target]) -> list[Target]:
    known = {target.parts for target in train}
    return [target for target in dev if target.parts not in known]


def _summarise(name: str, path: Path, train: Sequence[Target]) -> dict[str, Any]:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return {"dataset": name, "sha256": digest, "responses": len(train)}


def read_declared(path: Path | None) -> DeclaredSources:
    """Return the sources that a file declares, by name and kind, unopened; without a file, the paper's two."""
    if path is None:
        return default_sources({})
    entries = in_order(read_declaration(read_text(path), path.name).sources)
    return DeclaredSources(
        [DeclaredSource(entry.name, entry.kind, entry.description, None, entry.depends_on) for entry in entries]
    )


def special_tokens(recipe: str, declared: DeclaredSources) -> tuple[str, ...]:
    """Return the tokens to add to the vocabulary (SAFARI, Section 4.2): sources' names, NULL and marks."""
    if recipe != "safari":
        return ()
    return ("[SOURCE]", "[EOS]", "[MIDDLE]", "[EOM]", "NULL", *(name.upper() for name in declared.names))


# --- recipes


def _make_safari_target(dialogue: Dialogue, declared: DeclaredSources) -> Target | None:
    """`CONTEXT [SOURCE] K_i ... K_n [EOS] [MIDDLE] k_i ... k_n [EOM] RESPONSE` (SAFARI, Section 4.2, Figure 2).

    The plan with its marks and the response are learnt. All is prepared as with `planning=gold` and `retrieval=gold`.
    """
    if not dialogue.reference or "sources" not in dialogue.model_fields_set:
        return None
    plan = mend_plan(gold_plan(dialogue, declared), declared)[0]
    knowledge = each_once(gold_knowledge(dialogue, declared) if plan else {})
    variables = {"history": render_history(dialogue), "dialogues": [assemble_line(plan, knowledge)]}
    planning = _render("safari/planning", dialogue, variables)
    responding = _render("safari/response-generation", dialogue, variables)
    planned, end, middle = responding[len(planning) :].partition("[EOS]")
    response = f" {close_gaps(on_one_line(dialogue.reference))}"
    return Target(((planning, False), (planned + end, True), (middle, False), (response, True)), dialogue.id)


def _make_fkg_target(dialogue: Dialogue, _: DeclaredSources) -> Target | None:
    """Topic and history, then the knowledge (MSDP, Section 3.2)."""
    knowledge = _gold_text(dialogue)
    if not knowledge:
        return None
    variables = prompt_variables([], dialogue, topic_of(dialogue, "checked"))
    return Target.after(_render("msdp/knowledge-generation", dialogue, variables), f" {knowledge}", dialogue.id)


def _make_fcm_target(dialogue: Dialogue, _: DeclaredSources) -> Target | None:
    """Topic, history and knowledge, then the response (MSDP, Section 3.3)."""
    if not dialogue.reference:
        return None
    variables = prompt_variables([], dialogue, topic_of(dialogue, "checked"), _gold_text(dialogue))
    return Target.after(_render("msdp/response-generation", dialogue, variables), f" {dialogue.reference}", dialogue.id)


def _make_query_target(dialogue: Dialogue, _: DeclaredSources) -> Target | None:
    """Return the turns, as `search-query` shows them, and the query that a person typed."""
    query = dialogue.extra.get("query")
    if not query:
        return None
    return Target.after("\n".join(turn.text for turn in dialogue.turns), str(query), dialogue.id)


def _make_question_target(dialogue: Dialogue, _: DeclaredSources) -> Target | None:
    """Return the context, as `edit` shows it with `trained`, and all of COQ's questions (EDIT, Section 3.2.2)."""
    if not dialogue.reference:
        return None
    return Target.after(render_history(dialogue), dialogue.reference, dialogue.id)


def _gold_text(dialogue: Dialogue) -> str:
    return " ".join(" ".join(gold_text(item) for item in dialogue.knowledge).split())


_library = functools.cache(PromptLibrary)


def _render(name: str, dialogue: Dialogue, variables: dict[str, Any]) -> str:
    return _library().get(name, dialogue.language, "supervised").render(variables).continuation or ""


_MSDP = (
    "`dialore respond -M msdp --set model.stages.{}=hf:FOLDER "
    "-o prompt_variant=supervised -o topic=checked -o turns=0`."
)
RECIPES = {
    "safari": Recipe(
        ("plan", "knowledge"),
        _make_safari_target,
        "Plans and responds in one sequence (SAFARI, Section 4.2). "
        "`dialore respond -M safari --model hf:FOLDER -o prompt_variant=supervised -o on_invalid_plan=null`.",
    ),
    "fkg": Recipe(
        ("knowledge",),
        _make_fkg_target,
        "Writes the knowledge for a response (FKG: MSDP, Section 3.2). " + _MSDP.format("knowledge-generation"),
    ),
    "fcm": Recipe(
        ("knowledge",),
        _make_fcm_target,
        "Responds from knowledge (FCM: MSDP, Section 3.3). " + _MSDP.format("response-generation"),
    ),
    "query": Recipe(
        ("query",),
        _make_query_target,
        "Writes the search query of a dialogue: `--set model.stages.query-generation=hf:FOLDER` of `search-query`.",
        drops_known=True,
    ),
    "question": Recipe(
        (),
        _make_question_target,
        "Writes open questions about a context: `--set model.stages.question-generation=hf:FOLDER` of `edit`, with"
        " `-o trained=true`.",
        drops_known=True,
    ),
}
"""The generators by name."""
GENERATORS = ("safari", "fkg", "fcm")
"""The recipes of `dialore train generator`."""


# --- stages


def stage_targets(path: Path, *, whole: bool = False) -> tuple[list[list[Target]], dict[str, Any]]:
    """Return the targets of rows, to train on and held out, and what the model card says of them.

    Lines that every prompt of a task has are its instruction. The model reads prompts without them, so that the card
    lists them: they are left out in use as well.

    Args:
        path: Rows of `dialore distill`.
        whole: The model reads prompts as they were sent (SCG-QP, Appendix A.2).

    Raises:
        InputError: The file cannot be read, or has too few dialogues to hold any out.
    """
    rows = read_rows(path)
    inputs: dict[str, list[str]] = {}
    for row in rows:
        inputs.setdefault(row.task, []).append(row.input)
    fixed = {task: find_fixed_lines(inputs[task]) for task in sorted(inputs)}
    targets: list[list[Target]] = [[], []]
    for row in rows:
        prompt = row.input if whole else shorten_prompt(row.task, row.input, fixed[row.task])
        targets[row.split == "valid"].append(Target.after(prompt, row.output, row.dialogue))
    targets[1] = _drop_known(*targets)
    if not targets[1]:
        raise InputError(f"{path}: no dialogue is held out", hint="one in ten is: gather some dozens of dialogues")
    counts = Counter(row.task for row in rows)
    data = _summarise(", ".join(sorted({row.by for row in rows})), path, targets[0])
    card = {
        "kind": "stages",
        "use": "Does stages of methods, several by one model: `--set model.stages.STAGE=trained:FOLDER`.",
        "fixed": fixed,
        "whole": whole,
        "data": {**data, "tasks": dict(sorted(counts.items()))},
    }
    return targets, card


def find_fixed_lines(inputs: Sequence[str]) -> list[str]:
    """Return the lines that every input has, in order; none if all inputs are the same."""
    if len(set(inputs)) < 2:
        return []
    common = set(inputs[0].split("\n"))
    for text in inputs:
        common &= set(text.split("\n"))
    return [line for line in dict.fromkeys(inputs[0].split("\n")) if line in common and line.strip()]


def missing_marks(base: str, targets: Sequence[Target]) -> list[str]:
    """Return the marks of JSON that targets have and the base model's tokenizer cannot write (T5's has no braces)."""
    if base == SCRATCH:
        return []
    transformers = import_optional("transformers", "training", "finetune")
    tokenizer = transformers.AutoTokenizer.from_pretrained(**pretrained_arguments(base))
    texts = "".join(text for target in targets for text, _ in target.parts)
    missing = []
    for mark in _JSON_MARKS:
        ids = tokenizer(f"a{mark}a", add_special_tokens=False)["input_ids"]
        decoded = tokenizer.decode(ids, skip_special_tokens=True).replace(" ", "")
        if mark in texts and decoded != f"a{mark}a":
            missing.append(mark)
    return missing
