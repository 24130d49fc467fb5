"""Generators that papers fine-tune: their targets, rendered by the prompts by which their methods ask for them.

So a model reads in use what it read in training; the loss is calculated on what it is to write alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dialore.datasets import data_set, gold_text, split_dialogues
from dialore.errors import InputError
from dialore.methods.msdp import prompted
from dialore.prompts.history import render_history
from dialore.prompts.library import PromptLibrary
from dialore.sources.samples import topic_of
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
        targets: of a dialogue: one, or none where there is nothing to learn.
        tokens: what the vocabulary gets.
        use: how the model is used, a sentence.
    """

    needs: tuple[str, ...]
    targets: Callable[[Dialogue, PromptLibrary], Target | None]
    tokens: tuple[str, ...]
    use: str


def read_targets(recipe: str, name: str, paths: Sequence[Path]) -> tuple[list[list[Target]], dict[str, Any]]:
    """The targets of a training file and of a held-out one, without which a tenth of the dialogues is held out.

    Returns:
        Both lists, and the data as a model's description has it.

    Raises:
        InputError: the data set has not what is needed, or a file cannot be read.
    """
    chosen, reader = RECIPES[recipe], data_set(name)
    if lacking := [what for what in chosen.needs if what not in reader.has]:
        raise InputError(
            f"{name} has no {' and no '.join(lacking)} to learn {recipe} from", mend="name another data set"
        )
    library, files = PromptLibrary(), [split_dialogues(reader.read(path), cut="all") for path in paths]
    if len(files) == 1:
        wholes = {one: at for at, one in enumerate(dict.fromkeys(_whole(each) for each in files[0]))}
        held = {one for one, at in wholes.items() if at % _HELD_OUT == _HELD_OUT - 1}
        files = [[each for each in files[0] if (_whole(each) in held) is out] for out in (False, True)]
    found = [_targets(chosen, dialogues, library) for dialogues in files]
    data = {
        "dataset": name,
        "sha256": hashlib.sha256(paths[0].read_bytes()).hexdigest(),
        "dialogues": len({_whole(each) for each in files[0]}),
        "responses": len(found[0]),
    }
    return found, data


def _targets(recipe: Recipe, dialogues: Iterable[Dialogue], library: PromptLibrary) -> list[Target]:
    return [one for dialogue in dialogues if (one := recipe.targets(dialogue, library)) is not None]


def _whole(dialogue: Dialogue) -> str:
    return dialogue.id.partition("@")[0]


def _safari(dialogue: Dialogue, library: PromptLibrary) -> Target | None:
    """`CONTEXT [SOURCE] K_i ... K_n [EOS] [MIDDLE] k_i ... k_n [EOM] RESPONSE` (SAFARI, Section 4.3, Figure 2).

    What is learnt is the plan with its end, and the response with its end.
    """
    gold = [(str(item["source"]).upper(), gold_text(item)) for item in dialogue.knowledge if isinstance(item, dict)]
    plan = [name.upper() for name in dialogue.sources or ()]
    shown = {"history": render_history(dialogue), "dialogues": [{"plan": plan, "knowledge": gold}]}
    planning, responding = (
        _continued(library, f"safari/{stage}", dialogue, shown) for stage in ("planning", "response-generation")
    )
    planned, end, middle = responding[len(planning) :].partition("[EOS]")
    parts = ((planning, False), (planned + end, True), (middle, False), (f" {dialogue.reference}", True))
    return Target(parts, dialogue.id) if dialogue.reference else None


def _fkg(dialogue: Dialogue, library: PromptLibrary) -> Target | None:
    """Topic and history, then the knowledge (MSDP, Section 3.2)."""
    known = _known(dialogue)
    shown = prompted([], dialogue, topic_of(dialogue, "checked"))
    prompt = _continued(library, "msdp/knowledge-generation", dialogue, shown)
    return Target.after(prompt, f" {known}", dialogue.id) if known else None


def _fcm(dialogue: Dialogue, library: PromptLibrary) -> Target | None:
    """Topic, history and knowledge, then the response (MSDP, Section 3.3)."""
    shown = prompted([], dialogue, topic_of(dialogue, "checked"), _known(dialogue))
    prompt = _continued(library, "msdp/response-generation", dialogue, shown)
    return Target.after(prompt, f" {dialogue.reference}", dialogue.id) if dialogue.reference else None


def _known(dialogue: Dialogue) -> str:
    return " ".join(" ".join(gold_text(item) for item in dialogue.knowledge).split())


def _continued(library: PromptLibrary, name: str, dialogue: Dialogue, variables: dict[str, Any]) -> str:
    return library.get(name, dialogue.language, "supervised").render(variables).continuation or ""


_MSDP = "`dialore respond -M msdp --stage-model {}=hf:FOLDER -o prompting=supervised -o topic=checked -o turns=0`."
RECIPES = {
    "safari": Recipe(
        ("plan", "knowledge"),
        _safari,
        # Section 4.1: the sources' names and the marks around them and what they give.
        ("[SOURCE]", "[EOS]", "[MIDDLE]", "[EOM]", "NULL", "PERSONA", "DOCUMENTS"),
        "Plans and responds in one sequence (SAFARI, Section 4.3). "
        "`dialore respond -M safari --model hf:FOLDER -o prompting=supervised -o broken=null`.",
    ),
    "fkg": Recipe(
        ("knowledge",),
        _fkg,
        (),
        "Writes the knowledge for a response (FKG: MSDP, Section 3.2). " + _MSDP.format("knowledge-generation"),
    ),
    "fcm": Recipe(
        ("knowledge",),
        _fcm,
        (),
        "Responds from knowledge (FCM: MSDP, Section 3.3). " + _MSDP.format("response-generation"),
    ),
}
"""The generators by name."""
