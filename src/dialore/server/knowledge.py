"""The knowledge of a service: `/v1/ground` and `/v1/knowledge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request, UploadFile
from fastapi import Response as Reply
from pydantic import BaseModel, Field

from dialore.knowledge import Fact, Knowledge
from dialore.retrieval.groups import holds_groups, split_groups
from dialore.server.agents import MODEL
from dialore.server.common import (
    EXPLAINED,
    Body,
    ChatMessage,
    JsonRoute,
    Name,
    Sentence,
    service_of,
    text_of_messages,
    usage_of,
)
from dialore.server.errors import ServiceError, reply
from dialore.server.knowledge_store import ADDED
from dialore.server.service import grounding_of, knowledge_fields

router = APIRouter(prefix="/v1", route_class=JsonRoute, dependencies=[EXPLAINED])
_DEEPEST = 10_000  # how far one can page
_CUT = 300


class GroundRequest(Body):
    """A dialogue whose knowledge is wanted."""

    model: str = MODEL
    messages: list[ChatMessage] = Field(min_length=1)
    user: Literal[""] | Name = ""


class NewDocument(Body):
    """A text that is to be known."""

    text: str = Field(min_length=1)
    title: str = Field(default="", max_length=300)
    url: str = Field(default="", max_length=2000, description="Where it can be looked up; it is not opened.")
    groups: list[Name] | None = Field(default=None, description="Who may read it; without, the key's own groups.")
    metadata: dict[str, Any] = Field(default_factory=dict, description="Whatever else is to be found by.")


class NewFact(BaseModel):
    """A fact that is to be known."""

    head: Sentence
    relation: Sentence
    tail: Sentence
    weight: float = Field(default=1.0, gt=0, le=1000)


class NewFacts(Body):
    """Facts that are to be known."""

    facts: list[NewFact] = Field(min_length=1, max_length=10_000)


class Sentences(Body):
    """Sentences about the responder."""

    sentences: list[Sentence] = Field(min_length=1, max_length=1000)


def may_change(request: Request) -> None:
    """Raise ServiceError where the caller's key is not one that changes the knowledge."""
    key = request.state.caller.settings
    if not key.knowledge:
        raise ServiceError(403, f"the key {key.name} may not change the knowledge", code="knowledge_not_allowed")


_CHANGES = [Depends(may_change)]


@router.post("/ground")
async def ground(request: Request, body: GroundRequest) -> Reply:
    """Return what a response would need to know, without writing it."""
    asked = text_of_messages(body.model, body.messages, {}, body.user)
    trace, grounding = await service_of(request).ground(asked, request.state.caller)
    grounds = grounding_of(grounding, trace, asked.notes)
    return reply({**grounds, "model": body.model, "usage": usage_of(grounding.usage)})


# --- all of it


@router.get("/knowledge/pieces")
async def list_pieces(
    request: Request,
    source: Literal["graph", "documents", "persona"],
    q: Annotated[str, Query(max_length=1000, pattern=r"^[^\x00]*$")] = "",
    where: Annotated[str, Query(max_length=1000, pattern=r"^[^\x00]*$")] = "",
    offset: Annotated[int, Query(ge=0, le=_DEEPEST)] = 0,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Reply:
    """Return what the service's own agent knows, declared sources included; with `q` what answers that.

    Of documents, `where` wants metadata: `year >= 2024 and lang = en`.
    `added` is the id by which a piece can be deleted; null where it is of a source that the file names.
    """
    service, words, caller = service_of(request), q.casefold().split(), request.state.caller
    if not words:
        pieces = await service.browse(source, offset, limit + 1, caller, where)
    elif source == "persona":
        every = await service.browse(source, 0, _DEEPEST, caller)
        pieces = [piece for piece in every if all(word in piece.text.casefold() for word in words)][offset:]
    else:
        try:
            pieces = (await service.search(source, q, offset + limit + 1, caller, where))[offset:]
        except ServiceError as error:
            if error.status_code != 404:
                raise
            pieces = []
    persona = service.knowledge.persona
    return reply({"data": [_piece(piece, persona) for piece in pieces[:limit]], "more": len(pieces) > limit})


def _piece(piece: Knowledge, persona: list[str]) -> dict[str, object]:
    if piece.fact:
        own = piece.id if piece.fact.graph == ADDED else None
        of = {"graph": piece.fact.graph, "provenance": piece.fact.provenance}
        return {**knowledge_fields(piece), **_fact_fields(piece.fact), **of, "added": own}
    if piece.kind == "persona":
        return {**knowledge_fields(piece), "added": piece.text if piece.text in persona else None}
    document = None
    if piece.index == ADDED:
        document = Path(piece.file).parent.name if piece.file else piece.metadata.get("document")
    return {**knowledge_fields(piece), "index": piece.index, "added": document}


@router.get("/knowledge/uses")
async def list_uses(request: Request) -> Reply:
    """Return the latest responses to the caller, each with what it was asked and the ids of the pieces that it used."""
    uses = await service_of(request).store.traces(request.state.caller.name, "asked", "text", "used")
    cut = ({**use, "asked": use["asked"][:_CUT], "text": use["text"][:_CUT]} for use in uses)
    return reply({"data": [{**use, "made": use["made"].isoformat()} for use in cut]})


# --- documents


@router.get("/knowledge/documents")
def list_documents(request: Request) -> Reply:
    """Return the documents that were added."""
    return reply({"data": service_of(request).knowledge.documents(request.state.caller.groups)})


@router.post("/knowledge/documents", dependencies=_CHANGES)
async def add_document(request: Request, body: NewDocument) -> Reply:
    """Add a text; the next response knows it."""
    if holds_groups(body.metadata):
        raise ServiceError(400, "groups are a field of its own, beside metadata", code="invalid_request")
    groups = request.state.caller.groups_of_new(body.groups)
    about = (body.title, body.url, groups or (), body.metadata)
    return reply(await service_of(request).knowledge.add_text(body.text, *about), 201)


@router.post("/knowledge/files", dependencies=_CHANGES)
async def add_file(
    request: Request, file: UploadFile, groups: Annotated[str | None, Query(max_length=1000)] = None
) -> Reply:
    """Upload a file; the next response knows it. `groups` says who may read it, with commas between them.

    Groups that the file itself names hold, as far as they are among these, else among the key's own.
    """
    service, caller = service_of(request), request.state.caller
    most = service.settings.server.max_upload
    allowed = caller.groups_of_new(None if groups is None else split_groups(groups))
    made = await service.knowledge.add_file(file.filename or "", await file.read(), most, allowed, caller)
    return reply(made, 201)


@router.delete("/knowledge/documents/{identifier}", dependencies=_CHANGES)
async def delete_document(request: Request, identifier: str) -> Reply:
    """Delete a document that was added: those of its passages that the caller may read and write."""
    deleted = await service_of(request).knowledge.delete_document(identifier, request.state.caller)
    return reply({"id": identifier, "deleted": True, "passages": deleted})


# --- facts


@router.get("/knowledge/facts")
def list_facts(request: Request) -> Reply:
    """Return the facts that were added."""
    return reply({"data": list(map(_fact_fields, service_of(request).knowledge.facts()))})


@router.post("/knowledge/facts", dependencies=_CHANGES)
async def add_facts(request: Request, body: NewFacts) -> Reply:
    """Add facts; of one that is there already, the heavier is kept."""
    facts = [Fact(added.head, added.relation, added.tail, added.weight, ADDED) for added in body.facts]
    await service_of(request).knowledge.add_facts(facts)
    return reply({"data": [_fact_fields(fact) for fact in facts]}, 201)


@router.delete("/knowledge/facts/{identifier}", dependencies=_CHANGES)
async def delete_fact(request: Request, identifier: str) -> Reply:
    """Delete a fact that was added."""
    await service_of(request).knowledge.delete_fact(identifier)
    return reply({"id": identifier, "deleted": True})


def _fact_fields(fact: Fact) -> dict[str, object]:
    return {"id": fact.id, "head": fact.head, "relation": fact.relation, "tail": fact.tail, "weight": fact.weight}


# --- persona


@router.get("/knowledge/persona")
async def list_persona(request: Request) -> Reply:
    """Return the sentences that were added about the responder."""
    return reply({"sentences": service_of(request).knowledge.persona})


@router.post("/knowledge/persona", dependencies=_CHANGES)
async def add_persona(request: Request, body: Sentences) -> Reply:
    """Add sentences."""
    return reply({"sentences": await service_of(request).knowledge.set_persona(add=body.sentences)}, 201)


@router.delete("/knowledge/persona", dependencies=_CHANGES)
async def delete_persona(request: Request, body: Sentences) -> Reply:
    """Delete sentences."""
    return reply({"sentences": await service_of(request).knowledge.set_persona(delete=body.sentences)})
