"""Checks of options that methods share: a value that means nothing is refused before anything is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_word(option: str, value: str, known: Sequence[str]) -> None:
    """Raises UnknownNameError where an option's value is none of those that are known."""
    if value not in known:
        raise UnknownNameError(f"value of {option}", value, known)


def check_least(option: str, value: int, least: int) -> None:
    """Raises InputError where an option's value is too small."""
    if value < least:
        raise InputError(f"{option} must be at least {least}, not {value}")
