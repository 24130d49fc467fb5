"""A service's agents and sources as tools of the Model Context Protocol, over stdio or HTTP."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, TypeAlias

from mcp.server.elicitation import ElicitationResult
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dialore import __version__
from dialore.knowledge import Knowledge
from dialore.methods.memory_extraction import LONGEST
from dialore.methods.stage_runner import LLMRunner
from dialore.prompts.history import on_one_line
from dialore.response import Demands
from dialore.server.agents import MODEL
from dialore.server.app import bound, log_lines, run_app
from dialore.server.common import ChatMessage, last, text_of_messages
from dialore.server.errors import ServiceError, reply
from dialore.server.middleware import Caller, Guard, anybody, check_address
from dialore.server.service import Asked, Service, check_harmless, explain_errors, grounding_of, knowledge_fields
from dialore.server.store import User
from dialore.server.telemetry import Telemetry
from dialore.session import Connect, open_model
from dialore.settings import Settings
from dialore.sources.statements import Statement

_NOTHING_KEPT = "nothing of that id is kept of the user: list_memory gives the ids"
_NO_CONSENT = "the user has not agreed to be remembered"
_INSTRUCTIONS = (
    "Knowledge-grounded dialogue. `ground` finds what a reply needs to know, `respond` writes it, with citations; "
    "The `search_` tools look one thing up, `remember` keeps what the user says of themselves, "
    "`list_memory` shows what is kept, `edit_memory` corrects it and `forget` deletes it."
)


_NO_MODEL = (
    "no language model is set: what was found is shown. Clients do not pass variables on: put DIALORE_BASE_URL, "
    "DIALORE_MODEL and DIALORE_API_KEY into the `env` of this server's entry, or a [model] into its dialore.toml."
)
_NOTE: str = Field(default="", description="What the user should know of how it was made.")
_HEALTH_PATHS = ("/healthz", "/readyz")
_SESSION = b"mcp-session-id"
_SESSIONS = 10_000


class Piece(BaseModel):
    """A piece of knowledge, and as far as known where to look it up."""

    id: str
    kind: str = Field(description="fact, passage or persona")
    source: str = Field(description="graph, documents, persona, memory, web or model")
    text: str
    title: str = ""
    section: str = ""
    file: str = ""
    page: str = ""
    url: str = ""
    score: float | None = Field(default=None, description="What it was ranked by.")
    probability: float | None = Field(default=None, description="Calibrated probability that it is of use.")


class Cited(Piece):
    """A span of a reply, in characters, and the piece that it rests on."""

    number: int
    start: int
    end: int


class Found(BaseModel):
    """Search results, the best first."""

    knowledge: list[Piece]


class Grounds(Found):
    """The knowledge that a reply needs: its demands, and what was found for them."""

    method: str
    demands: Demands | None = None
    note: str = _NOTE


class Reply(BaseModel):
    """A reply, and what it rests on."""

    text: str
    method: str
    note: str = _NOTE
    citations: list[Cited]
    used: list[Piece] = Field(description="What the reply draws on, cited or not.")


class Consent(BaseModel):
    """The user's consent to be remembered."""

    remember: bool = Field(description="Keep what I say of myself for later conversations.")


class Kept(BaseModel):
    """A statement of the user about themselves, as it is kept."""

    model_config = ConfigDict(from_attributes=True)

    id: str = Field(description="What `forget` takes.")
    text: str
    said: datetime
    turn: str
    holds_from: datetime | None = Field(description="Since when it holds, where not since it was said.")
    holds_until: datetime | None = Field(description="Until when it held; null while it holds.")
    replaces: str = Field(description="The id of the statement that it replaced.")
    doubts: str = Field(description="The id of a statement that it may contradict: ask the user which holds.")
    expires: datetime | None


class Memory(BaseModel):
    """The record that is kept of the user."""

    consents: bool = Field(
        description="Whether they have agreed to be remembered; nothing is kept where they have not."
    )
    statements: list[Kept]


@dataclass(frozen=True, slots=True)
class _Offered:
    """The base of a call: an open service, who asks it, and as whom the user is known to it."""

    service: Service
    caller: Caller
    who: User

    def note(self, model: str) -> str:
        with self.service.agents.served(model, None) as served:  # for its method's name
            return "" if isinstance(served.agent.stage_runner, LLMRunner) else _NO_MODEL

    def asked(self, message: str, history: Sequence[ChatMessage], model: str) -> Asked:
        return text_of_messages(model, [*history, ChatMessage(role="user", content=message)], {}, self.who.name)


_Call: TypeAlias = Context[tuple[Service, str], Any]


@contextmanager
def _offered(call: _Call) -> Iterator[_Offered]:
    """Yield what a tool stands on; what is refused is told as the tool's error."""
    (service, user), request = call.request_context.lifespan_context, call.request_context.request
    caller = anybody() if request is None else request.state.caller
    try:
        with explain_errors():
            yield _Offered(service, caller, User(caller.name, user))
    except ServiceError as error:
        raise ToolError(error.detail) from error


_Message = Annotated[str, Field(min_length=1, description="The user's latest turn.")]
_History = Annotated[Sequence[ChatMessage], Field(description="The turns before it, the oldest first.")]
_Model = Annotated[str, Field(description=f"The agent: {MODEL}, or {MODEL}/NAME for another one that is configured.")]
_Query = Annotated[str, Field(min_length=1, max_length=1000, description="A phrase or a question.")]
_Top = Annotated[int, Field(ge=1, le=50, description="How many pieces at most.")]
_Where = Annotated[str, Field(max_length=1000, description="Of the metadata, where wanted: year >= 2024 and lang = en")]
_Line = StringConstraints(strip_whitespace=True, min_length=1, max_length=LONGEST)
_Identifier = Annotated[str, Field(min_length=1, max_length=256, description="The id that list_memory gives.")]
_WithHistory = Annotated[bool, Field(description="Also what holds no longer.")]
_AsOf = Annotated[AwareDatetime | None, Field(description="What held at that moment instead.")]
_Until = Annotated[AwareDatetime | None, Field(description="Until when it held, where it holds no longer.")]
_Statement = Annotated[str, _Line, Field(description="A sentence of the user about themselves: I live in Leeds.")]


async def ground(call: _Call, message: _Message, history: _History = (), model: _Model = MODEL) -> Grounds:
    """Find what a reply to the user's message needs to know: facts, passages, persona. No reply is written."""
    with _offered(call) as on:
        _, grounding = await on.service.ground(on.asked(message, history, model), on.caller)
        return Grounds.model_validate({**grounding_of(grounding, ""), "note": on.note(model)})


async def respond(call: _Call, message: _Message, history: _History = (), model: _Model = MODEL) -> Reply:
    """Reply to the user's message from what is known, with citations of what each span rests on."""
    with _offered(call) as on:
        _, made = await last(on.service.answer(on.asked(message, history, model), on.caller))
        own = {"text": made.text, "used": list(map(_piece, made.used)), "note": on.note(model)}
        return Reply.model_validate({**grounding_of(made, ""), **own})


async def search_documents(call: _Call, query: _Query, top: _Top = 10, where: _Where = "") -> Found:
    """Search the documents: passages, each with its title, section and file."""
    with _offered(call) as on:
        pieces = await on.service.search("documents", query, top, on.caller, where)
        return Found(knowledge=list(map(_piece, pieces)))


async def search_graph(call: _Call, query: _Query, top: _Top = 10) -> Found:
    """Search the commonsense graph: facts about the concepts that the query names."""
    with _offered(call) as on:
        return Found(knowledge=list(map(_piece, await on.service.search("graph", query, top, on.caller))))


async def _consent(call: _Call) -> Consent | Elicit[Consent]:
    """Return the user's consent; they are asked where they have not given it and their client can ask."""
    with _offered(call) as on:
        if await on.service.store.consents(on.who):
            return Consent(remember=True)
    if call.client_capabilities is None or call.client_capabilities.elicitation is None:
        raise ToolError(f"{_NO_CONSENT}, and this client cannot ask the user: see docs/clients.md")
    return Elicit("May what you say of yourself be kept for later conversations?", Consent)


async def remember(
    call: _Call, statement: _Statement, consent: Annotated[ElicitationResult[Consent], Resolve(_consent)]
) -> Kept:
    """Remember a statement of the user about themselves, if they consent; it replaces what it contradicts."""
    kept: list[Statement] = []
    if consent.action == "accept" and consent.data.remember:
        noted = Statement(text=on_one_line(statement), said=datetime.now(UTC), turn=on_one_line(statement))
        with _offered(call) as on:
            check_harmless(statement)
            if not await on.service.store.consents(on.who):
                await on.service.store.set_consent(on.who, consents=True)
            kept = await on.service.store.remember(on.who, [noted])
    if not kept:  # it was not given, or withdrawn meanwhile
        raise ToolError(f"{_NO_CONSENT}: nothing was kept")
    return Kept.model_validate(kept[0])


async def list_memory(call: _Call, history: _WithHistory = False, as_of: _AsOf = None) -> Memory:
    """Return what is remembered of the user, the newest first."""
    with _offered(call) as on:
        statements = await on.service.store.statements(on.who, history=history, as_of=as_of)
        kept = [Kept.model_validate(statement) for statement in statements]
        return Memory(consents=await on.service.store.consents(on.who), statements=kept)


async def edit_memory(call: _Call, identifier: _Identifier, statement: _Statement, holds_until: _Until = None) -> Kept:
    """Correct a statement of the user about themselves, where they want that; its id changes with its text."""
    changes: dict[str, object] = {"text": on_one_line(statement)}
    changes |= {} if holds_until is None else {"holds_until": holds_until}
    with _offered(call) as on:
        check_harmless(statement)
        edited = await on.service.store.edit(on.who, identifier, changes)
    if edited is None:
        raise ToolError(_NOTHING_KEPT)
    return Kept.model_validate(edited)


async def forget(call: _Call, identifier: _Identifier) -> Memory:
    """Forget a statement of the user about themselves, where they want that; gives what is left."""
    with _offered(call) as on:
        if not await on.service.store.forget(on.who, identifier):
            raise ToolError(_NOTHING_KEPT)
    return await list_memory(call)


def _piece(piece: Knowledge) -> Piece:
    return Piece.model_validate({**knowledge_fields(piece), "score": piece.score, "probability": piece.probability})


class _OwnSessions:
    """ASGI middleware: a session is for the key that began it; for others it is not there."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._owners: OrderedDict[bytes, str] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it as one to no session."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if "caller" not in scope["state"]:  # an open path
            await self._app(scope, receive, send)
            return
        caller: str = scope["state"]["caller"].name
        asked = dict(scope["headers"]).get(_SESSION)
        if asked is not None and self._owners.get(asked, caller) != caller:
            await ServiceError(404, "there is no such session", code="session_not_found").response(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            session = dict(message.get("headers", ())).get(_SESSION)
            if session is not None:
                self._owners[session] = self._owners.get(session, caller)
                if len(self._owners) > _SESSIONS:
                    self._owners.popitem(last=False)
            await send(message)

        await self._app(scope, receive, sent)


async def _show_health(_: Request) -> Response:
    """Return that the process is alive; it accepts requests only once its sources are open."""
    return reply({"status": "ok"})


def create_server(service: Service, user: str) -> MCPServer[tuple[Service, str]]:
    """Return the tools of an open service, for one user."""

    @asynccontextmanager
    async def lifespan(_: MCPServer[tuple[Service, str]]) -> AsyncIterator[tuple[Service, str]]:
        yield service, user

    about: dict[str, Any] = {"instructions": _INSTRUCTIONS, "version": __version__, "log_level": "WARNING"}
    server = MCPServer("dialore", **about, lifespan=lifespan)
    tools: list[Callable[..., Any]] = [ground, respond, search_documents, remember, list_memory, edit_memory, forget]
    if service.agents.has_graph:
        tools.insert(3, search_graph)
    for tool in tools:
        changing = tool in {remember, edit_memory, forget}
        hints = ToolAnnotations(read_only_hint=not changing, destructive_hint=tool in {edit_memory, forget})
        server.add_tool(tool, annotations=hints, structured_output=True)
    return server


async def serve(settings: Settings, *, over_http: bool, user: str, connect: Connect = open_model) -> None:
    """Offer the tools over stdio, or HTTP (at `/mcp`), until closed or asked to end; InputError as `create_app`."""
    log_lines()
    check_address(settings.server)
    telemetry = Telemetry()
    service = Service(settings, telemetry, connect=connect)
    server = create_server(service, user)
    if not over_http:
        async with service.running():
            await server.run_stdio_async()
        return
    # Hosts, origins, keys and sizes are the guard's.
    lax = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app = server.streamable_http_app(transport_security=lax, max_request_body_size=settings.server.max_body)
    for path in _HEALTH_PATHS:
        app.add_route(path, _show_health)
    app.add_middleware(_OwnSessions)
    app.add_middleware(
        Guard, settings=settings.server, telemetry=telemetry, store=service.store, open_paths=_HEALTH_PATHS
    )
    sessions = app.router.lifespan_context

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with service.running(), sessions(app):
            yield

    app.router.lifespan_context = lifespan
    with bound(settings.server) as shared:
        await run_app(app, settings.server, shared)
