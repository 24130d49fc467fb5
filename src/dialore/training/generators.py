"""Generators that papers fine-tune: their targets, rendered by the prompts by which their methods ask for them.

So a model reads in use what it read in training; the loss is calculated on what it is to write alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialore.datasets import data_set, gold_text, split_dialogues
from dialore.dialogue import conversation_of
from dialore.errors import InputError
from dialore.files import read_text
from dialore.methods.few_shot import topic_of
from dialore.methods.msdp import prompt_variables
from dialore.methods.safari import assemble_line, each_once, gold_knowledge, gold_plan, mend_plan
from dialore.prompts.history import on_one_line, render_history
from dialore.prompts.library import PromptLibrary
from dialore.sources.declared import DeclaredSource, DeclaredSources, default_sources, in_order, read_declaration
from dialore.text import close_gaps
from dialore.training.finetune import Target

if TYPE_CHECKING:
    from pathlib import Path

    from dialore.dialogue import Dialogue

_HELD_OUT = 10
"""Without a held-out file every so many dialogues are held out."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a generator is trained.

    Attributes:
        needs: what the data set must have.
        targets: of a dialogue and the sources planned over: one, or none where there is nothing to learn.
        use: how the model is used, a sentence.
    """

    needs: tuple[str, ...]
    targets: Callable[[Dialogue, PromptLibrary, DeclaredSources], Target | None]
    use: str


def read_targets(
    recipe: str, name: str, paths: Sequence[Path], declared: DeclaredSources | None = None
) -> tuple[list[list[Target]], dict[str, Any]]:
    """Return the targets of a training file and of a held-out one, without which a tenth of the dialogues is held out.

    `declared` is what SAFARI plans over; without it, the paper's persona and documents.

    Returns:
        Both lists, and the data as a model's description has it.

    Raises:
        InputError: the data set has not what is needed, or a file cannot be read.
    """
    chosen, reader = RECIPES[recipe], data_set(name)
    if lacking := [what for what in chosen.needs if what not in reader.has]:
        raise InputError(
            f"{name} has no {' and no '.join(lacking)} to learn {recipe} from", hint="name another data set"
        )
    library, files = PromptLibrary(), [split_dialogues(reader.read(path), cut="all") for path in paths]
    if len(files) == 1:
        wholes = {target: at for at, target in enumerate(dict.fromkeys(_whole(dialogue) for dialogue in files[0]))}
        held = {target for target, at in wholes.items() if at % _HELD_OUT == _HELD_OUT - 1}
        files = [[dialogue for dialogue in files[0] if (_whole(dialogue) in held) is out] for out in (False, True)]
    sources = declared or default_sources({})
    targets = [
        [target for dialogue in dialogues if (target := chosen.targets(dialogue, library, sources)) is not None]
        for dialogues in files
    ]
    data = {
        "dataset": name,
        "sha256": hashlib.sha256(paths[0].read_bytes()).hexdigest(),
        "dialogues": len({_whole(dialogue) for dialogue in files[0]}),
        "responses": len(targets[0]),
    }
    return targets, data


def _whole(dialogue: Dialogue) -> str:
    return conversation_of(dialogue.id)


def _safari(dialogue: Dialogue, library: PromptLibrary, declared: DeclaredSources) -> Target | None:
    """`CONTEXT [SOURCE] K_i ... K_n [EOS] [MIDDLE] k_i ... k_n [EOM] RESPONSE` (SAFARI, Section 4.2, Figure 2).

    What is learnt is the plan with the marks around it, and the response with its end. All is prepared as in use, by
    `planning=gold` and `retrieval=gold`.
    """
    if not dialogue.reference or "sources" not in dialogue.model_fields_set:
        return None
    plan = mend_plan(gold_plan(dialogue, declared), declared)[0]
    given = each_once(gold_knowledge(dialogue, declared) if plan else {})
    shown = {"history": render_history(dialogue), "dialogues": [assemble_line(plan, given)]}
    planning, responding = (
        _render_continuation(library, f"safari/{stage}", dialogue, shown)
        for stage in ("planning", "response-generation")
    )
    planned, end, middle = responding[len(planning) :].partition("[EOS]")
    response = f" {close_gaps(on_one_line(dialogue.reference))}"
    return Target(((planning, False), (planned + end, True), (middle, False), (response, True)), dialogue.id)


def read_declared(path: Path | None) -> DeclaredSources:
    """Return the sources that a file declares, by name and kind, unopened; without a file the paper's two."""
    if path is None:
        return default_sources({})
    entries = in_order(read_declaration(read_text(path), path.name).sources)
    return DeclaredSources(
        [DeclaredSource(entry.name, entry.kind, entry.description, None, entry.depends_on) for entry in entries]
    )


def special_tokens(recipe: str, declared: DeclaredSources) -> tuple[str, ...]:
    """Return what the vocabulary gets (SAFARI, Section 4.2): sources' names, NULL, marks; nothing for MSDP."""
    if recipe != "safari":
        return ()
    return ("[SOURCE]", "[EOS]", "[MIDDLE]", "[EOM]", "NULL", *(name.upper() for name in declared.names))


def _fkg(dialogue: Dialogue, library: PromptLibrary, _: DeclaredSources) -> Target | None:
    """Topic and history, then the knowledge (MSDP, Section 3.2)."""
    known = _gold_text(dialogue)
    shown = prompt_variables([], dialogue, topic_of(dialogue, "checked"))
    prompt = _render_continuation(library, "msdp/knowledge-generation", dialogue, shown)
    return Target.after(prompt, f" {known}", dialogue.id) if known else None


def _fcm(dialogue: Dialogue, library: PromptLibrary, _: DeclaredSources) -> Target | None:
    """Topic, history and knowledge, then the response (MSDP, Section 3.3)."""
    shown = prompt_variables([], dialogue, topic_of(dialogue, "checked"), _gold_text(dialogue))
    prompt = _render_continuation(library, "msdp/response-generation", dialogue, shown)
    return Target.after(prompt, f" {dialogue.reference}", dialogue.id) if dialogue.reference else None


def _gold_text(dialogue: Dialogue) -> str:
    return " ".join(" ".join(gold_text(item) for item in dialogue.knowledge).split())


def _render_continuation(library: PromptLibrary, name: str, dialogue: Dialogue, variables: dict[str, Any]) -> str:
    return library.get(name, dialogue.language, "supervised").render(variables).continuation or ""


_MSDP = "`dialore respond -M msdp --stage-model {}=hf:FOLDER -o prompt_variant=supervised -o topic=checked -o turns=0`."
RECIPES = {
    "safari": Recipe(
        ("plan", "knowledge"),
        _safari,
        "Plans and responds in one sequence (SAFARI, Section 4.2). "
        "`dialore respond -M safari --model hf:FOLDER -o prompt_variant=supervised -o on_invalid_plan=null`.",
    ),
    "fkg": Recipe(
        ("knowledge",),
        _fkg,
        "Writes the knowledge for a response (FKG: MSDP, Section 3.2). " + _MSDP.format("knowledge-generation"),
    ),
    "fcm": Recipe(
        ("knowledge",),
        _fcm,
        "Responds from knowledge (FCM: MSDP, Section 3.3). " + _MSDP.format("response-generation"),
    ),
}
"""The generators by name."""
