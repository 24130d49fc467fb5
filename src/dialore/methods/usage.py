"""Which of the knowledge that a response was given it draws on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.text import content_lemmas, content_stems, is_chinese, is_mentioned, normalise

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from dialore.knowledge import Knowledge
    from dialore.text import Language


def mark_used(
    knowledge: Sequence[Knowledge], text: str, history: Sequence[str], language: Language, cited: Collection[str] = ()
) -> list[Knowledge]:
    """Mark what a response draws on, by hard matching as in DCRAG's CDP (Section 4.1.3).

    A fact is used where one of its ends is said in the response and the other in the response or the history, and the
    response says something of it that the history did not. Anything else is used where at least half of its content
    words stand in the response. What the response cites (ids in `cited`) is used whatever its words.
    """
    return [
        item.model_copy(update={"used": item.id in cited or _is_used(item, text, history, language)})
        for item in knowledge
    ]


def _is_used(item: Knowledge, text: str, history: Sequence[str], language: Language) -> bool:
    if item.kind != "fact":
        wanted = content_stems(item.text, language)
        return bool(wanted) and 2 * len(wanted & content_stems(text, language)) >= len(wanted)
    ends = (item.fact.head, item.fact.tail)
    in_text = [_says(text, end, language) for end in ends]
    if not any(in_text):
        return False
    before = [any(_says(turn, end, language) for turn in history) for end in ends]
    anchored = all(said or known for said, known in zip(in_text, before, strict=True))
    return anchored and any(said and not known for said, known in zip(in_text, before, strict=True))


def _says(text: str, concept: str, language: Language) -> bool:
    """Whether a text says a concept: the phrase itself, or all of its content stems."""
    if is_mentioned(concept, [text], language):
        return True
    if language == "zh" or is_chinese(concept):
        parts = content_lemmas(concept, "zh")
        squeezed = normalise(text).replace(" ", "")
        return bool(parts) and all(word in squeezed for word in parts)
    wanted = content_stems(concept, language)
    return bool(wanted) and wanted <= content_stems(text, language)
