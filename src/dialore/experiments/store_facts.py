"""What a run keeps of itself, and what of it may not change under its responses: its sources and its prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dialore.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Container, Mapping
    from pathlib import Path

PROMPTS = "prompts"
CHANGED_PROMPTS = "changed_prompts"
"""The fact that tells of responses by several versions of a prompt: its references, in order, by its name."""


def with_sources(
    before: Mapping[str, Any], now: Mapping[str, object], folder: Path, *, answered: bool
) -> dict[str, object]:
    """The facts, with the fingerprints of sources that are not asked for now.

    Args:
        before: what the run keeps.
        now: what it is to keep.
        folder: names the run.
        answered: whether it has responses.

    Raises:
        InputError: it has responses from another source of that name.
    """
    known, fingerprints = before.get("fingerprints", {}), now.get("fingerprints", {})
    if not isinstance(fingerprints, dict) or not known:
        return dict(now)
    changed = [name for name, mark in fingerprints.items() if known.get(name, mark) != mark]
    if changed and answered:
        raise InputError(
            f"the run in {folder} was made with another {changed[0]}",
            mend="use the one that it was made with, or name another folder",
        )
    return {**now, "fingerprints": {**known, **fingerprints}}


def with_prompts(
    before: Mapping[str, Any],
    now: Mapping[str, object],
    folder: Path,
    languages: Container[str],
    *,
    answered: bool,
    accept: bool,
) -> dict[str, object]:
    """The facts, with the prompts of systems that are not asked for now, and what is known of changed ones.

    Args:
        before: what the run keeps.
        now: what it is to keep.
        folder: names the run.
        languages: those of its dialogues; prompts of others wrote nothing of it.
        answered: whether it has responses.
        accept: go on where prompts changed, and keep the old and the new.

    Raises:
        InputError: it has responses by other versions of prompts, which is not accepted.
    """
    prompts = now.get(PROMPTS, {})
    if not answered or not isinstance(prompts, dict):
        return dict(now)
    known: dict[str, str] = before.get(PROMPTS, {})
    changed = [
        name
        for name, reference in prompts.items()
        if known.get(name, reference) != reference and name.rpartition(".")[2] in languages
    ]
    if changed and not accept:
        said = "; ".join(f"{known[name]}, now {prompts[name].removeprefix(f'{name} ')}" for name in changed)
        raise InputError(
            f"the run in {folder} was made with other prompts: {said}",
            mend="use those that it was made with, name another folder, or go on with --accept-changed-prompts",
        )
    versions: dict[str, list[str]] = dict(before.get(CHANGED_PROMPTS, {}))
    for name in changed:
        versions[name] = list(dict.fromkeys([*versions.get(name, [known[name]]), prompts[name]]))
    kept: dict[str, object] = {**now, PROMPTS: {**known, **prompts}}
    return {**kept, CHANGED_PROMPTS: versions} if versions else kept
