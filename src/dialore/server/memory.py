"""The users' data, each for the key that asks: `/v1/memory`, `/v1/conversations`, `/v1/traces` and `/v1/feedback`."""

from __future__ import annotations

from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi import Response as Reply
from pydantic import AwareDatetime, Field, StringConstraints

from dialore.methods.memory_extraction import LONGEST
from dialore.server.common import EXPLAINED, Body, JsonRoute, Name, service_of
from dialore.server.errors import ServiceError, reply
from dialore.server.service import check_harmless
from dialore.server.store import CONVERSATIONS, FEEDBACK, User
from dialore.sources.statements import Statement

T = TypeVar("T")
router = APIRouter(prefix="/v1", route_class=JsonRoute, dependencies=[EXPLAINED])
Identifier = Annotated[Name, Path()]


def _user(request: Request, user: Annotated[Name, Query()]) -> User:
    return User(request.state.caller.name, user)


Who = Annotated[User, Depends(_user)]
Named = Annotated[Name | None, Query()]


class Consent(Body):
    """A user's consent to be remembered."""

    user: Name
    consents: bool


class Feedback(Body):
    """Feedback of a user on a response."""

    user: Name
    trace: Name
    good: bool
    reason: str = Field(default="", max_length=4000)
    better: str = Field(default="", max_length=20_000)


class Edit(Body):
    """A statement as a user corrects it; what is not named stays."""

    user: Name
    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST)] | None = None
    holds_from: AwareDatetime | None = None
    holds_until: AwareDatetime | None = None


@router.get("/memory")
async def list_memory(
    request: Request, who: Who, *, history: bool = False, as_of: Annotated[AwareDatetime | None, Query()] = None
) -> Reply:
    """Return what is remembered of a user, the newest first, and whether they consent to it.

    With `history` also what holds no longer, with `as_of` what held at that moment.
    """
    store = service_of(request).store
    data = [_shown_statement(statement) for statement in await store.statements(who, history=history, as_of=as_of)]
    return reply({"consents": await store.consents(who), "data": data})


@router.patch("/memory/{identifier}")
async def edit_statement(request: Request, identifier: Identifier, body: Edit) -> Reply:
    """Change a statement's text, or since or until when it holds; its id changes with its text."""
    changes = body.model_dump(exclude_unset=True, exclude={"user"})
    if body.text is None:
        changes.pop("text", None)
    else:
        check_harmless(body.text)
    return reply(
        _shown_statement(_there(await service_of(request).store.edit(_user(request, body.user), identifier, changes)))
    )


def _shown_statement(statement: Statement) -> dict[str, object]:
    return {"id": statement.id, **statement.model_dump(mode="json", exclude_defaults=True)}


@router.put("/memory/consent")
async def set_consent(request: Request, body: Consent) -> Reply:
    """Say whether a user wants to be remembered; where they do not, everything that there is of them is deleted."""
    who = _user(request, body.user)
    await service_of(request).store.set_consent(who, consents=body.consents)
    return reply({"consents": body.consents})


@router.delete("/memory")
async def forget_all(request: Request, who: Who) -> Reply:
    """Forget all that is remembered of a user."""
    return reply({"deleted": await service_of(request).store.forget(who)})


@router.delete("/memory/{identifier}")
async def forget(request: Request, identifier: Identifier, who: Who) -> Reply:
    """Forget one statement."""
    return _deletion_reply(identifier, await service_of(request).store.forget(who, identifier))


@router.get("/conversations")
async def list_conversations(request: Request, who: Who, id: Named = None) -> Reply:
    """Return the conversations of a user that are kept, the latest first, each with how it begins; with `id` that one.

    An id such as `..` or `a/b` changes on its way in a path.
    """
    store = service_of(request).store
    if id is not None:
        return await show_conversation(request, id, who)
    if not store.keeps_conversations:
        raise ServiceError(404, "this service keeps no conversations (server.kept_days is 0)", code="not_found")
    rows = await store.conversations(who)
    return reply({"data": [{"id": name, "kept": kept.isoformat(), "title": title} for name, kept, title in rows]})


@router.get("/conversations/{identifier:path}")
async def show_conversation(request: Request, identifier: Identifier, who: Who) -> Reply:
    """Return the messages of a conversation; the assistant's have the ids of their traces and grounds."""
    return reply({"id": identifier, "messages": _there(await service_of(request).store.conversation(who, identifier))})


@router.delete("/conversations")
async def delete_named_conversation(request: Request, id: Annotated[Name, Query()], who: Who) -> Reply:
    """Delete a conversation by an id that a path cannot hold."""
    return await delete_conversation(request, id, who)


@router.delete("/conversations/{identifier:path}")
async def delete_conversation(request: Request, identifier: Identifier, who: Who) -> Reply:
    """Delete a conversation."""
    return _deletion_reply(identifier, await service_of(request).store.forget(who, identifier, CONVERSATIONS))


@router.get("/traces/{identifier}")
async def show_trace(request: Request, identifier: Identifier) -> Reply:
    """Return every stage of a response: prompt, completion, knowledge, time, tokens."""
    return reply(_there(await service_of(request).store.trace(request.state.caller.name, identifier)))


@router.post("/feedback")
async def give_feedback(request: Request, body: Feedback) -> Reply:
    """Say what a user thinks of a response to them, by its trace: good or not, why, and a better answer."""
    who = _user(request, body.user)
    given = body.model_dump(include={"good", "reason", "better"})
    kept = await service_of(request).store.give_feedback(who, body.trace, **given)
    return reply({"trace": _there(body.trace if kept else None), **given})


@router.delete("/feedback/{identifier}")
async def take_feedback_back(request: Request, identifier: Identifier, who: Who) -> Reply:
    """Delete what a user thinks of a response."""
    return _deletion_reply(identifier, await service_of(request).store.forget(who, identifier, FEEDBACK))


def _deletion_reply(identifier: str, count: int) -> Reply:
    return reply({"id": _there(identifier if count else None), "deleted": True})


def _there(found: T | None) -> T:
    if found is None:
        raise ServiceError(404, "there is none of that id, or no longer", code="not_found")
    return found
