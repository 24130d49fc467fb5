"""SAFARI's supervised generator (Section 4.3, Figure 2): one model learns to plan and to respond.

A target is `CONTEXT [SOURCE] K_i ... K_n [EOS] [MIDDLE] k_i ... k_n [EOM] RESPONSE`, where the loss is calculated on
the plan with its end and on the response with its end alone. Context and knowledge are rendered by the very prompts by
which `safari -o prompting=supervised` asks, so the model reads in use what it read in training.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.datasets import gold_text
from dialore.errors import InputError
from dialore.prompts.history import render_history
from dialore.prompts.library import PromptLibrary
from dialore.training.finetune import Target

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dialore.dialogue import Dialogue

TOKENS = ("[SOURCE]", "[EOS]", "[MIDDLE]", "[EOM]", "NULL", "PERSONA", "DOCUMENTS")
"""What is added to the vocabulary (Section 4.1)."""
USE = (
    "Plans and responds in one sequence. `dialore respond -M safari --model hf:FOLDER -o prompting=supervised "
    "-o broken=null`, with the persona and its documents."
)


def generator_targets(dialogues: Iterable[Dialogue]) -> list[Target]:
    """Targets of dialogues with plans and gold knowledge; raises InputError where one has no response."""
    library = PromptLibrary()
    found = []
    for dialogue in dialogues:
        if not dialogue.reference:
            raise InputError(f"dialogue {dialogue.id} has no response to learn", mend="leave it out")
        gold = [(str(item["source"]).upper(), gold_text(item)) for item in dialogue.knowledge if isinstance(item, dict)]
        plan = [name.upper() for name in dialogue.sources or ()]
        one = {"history": render_history(dialogue), "plan": plan, "knowledge": gold}
        planning, responding = (
            library.get(f"safari/{stage}", dialogue.language, "supervised").render({"dialogues": [one]}).continuation
            or ""
            for stage in ("planning", "response-generation")
        )
        planned, end, middle = responding[len(planning) :].partition("[EOS]")
        parts = ((planning, False), (planned + end, True), (middle, False), (f" {dialogue.reference}", True))
        found.append(Target(parts, dialogue.id))
    return found
