"""A service's agents and sources as tools of the Model Context Protocol, over stdio or HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import BaseModel, Field

from dialore import __version__
from dialore.response import Demands
from dialore.server.app import log_lines, run_app
from dialore.server.completions import ChatMessage, asked_of, grounding_of, last, told
from dialore.server.errors import ServiceError
from dialore.server.guard import Caller, Guard, anybody, check_address
from dialore.server.service import MODEL, Asked, Service
from dialore.server.telemetry import Telemetry
from dialore.workbench import Connect, connect_model

if TYPE_CHECKING:
    from dialore.knowledge import Knowledge
    from dialore.settings import Settings

_INSTRUCTIONS = (
    "Knowledge-grounded dialogue. `ground` finds what a reply needs to know, `respond` writes it, with citations; "
    "`search_documents` and `search_graph` look one thing up."
)


class Turn(BaseModel):
    """An earlier turn of a conversation."""

    role: Literal["user", "assistant"]
    content: str = Field(min_length=1)


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
    """What was found, the best first."""

    knowledge: list[Piece]


class Grounds(Found):
    """What a reply needs to know: its demands, and what was found for them."""

    method: str
    demands: Demands | None = None


class Reply(BaseModel):
    """A reply, and what it rests on."""

    text: str
    method: str
    citations: list[Cited]
    used: list[Piece] = Field(description="What the reply draws on, cited or not.")


Message = Annotated[str, Field(min_length=1, description="The user's latest turn.")]
History = Annotated[Sequence[Turn], Field(description="The turns before it, the oldest first.")]
Model = Annotated[str, Field(description=f"The agent: {MODEL}, or {MODEL}/NAME for another one that is configured.")]
Query = Annotated[str, Field(min_length=1, max_length=1000, description="A phrase or a question.")]
Top = Annotated[int, Field(ge=1, le=50, description="How many pieces at most.")]


class Tools:
    """The tools, as methods."""

    def __init__(self, service: Service) -> None:
        self._service, self._anybody = service, anybody()

    async def ground(
        self, context: Context[Any, Any], message: Message, history: History = (), model: Model = MODEL
    ) -> Grounds:
        """Find what a reply to the user's message needs to know: facts, passages, persona. No reply is written."""
        with _told():
            _, found = await self._service.ground(self._asked(message, history, model), self._caller(context))
        return Grounds.model_validate(grounding_of(found, ""))

    async def respond(
        self, context: Context[Any, Any], message: Message, history: History = (), model: Model = MODEL
    ) -> Reply:
        """Reply to the user's message from what is known, with citations of what each span rests on."""
        with _told():
            asked = self._asked(message, history, model)
            _, made = await last(self._service.answer(asked, self._caller(context)))
        return Reply.model_validate(
            {**grounding_of(made, ""), "text": made.text, "used": [_piece(each) for each in made.used]}
        )

    async def search_documents(self, query: Query, top: Top = 10) -> Found:
        """Search the documents: passages, each with its title, section and file."""
        return await self._search("documents", query, top)

    async def search_graph(self, query: Query, top: Top = 10) -> Found:
        """Search the commonsense graph: facts about the concepts that the query names."""
        return await self._search("graph", query, top)

    async def _search(self, source: str, query: str, top: int) -> Found:
        with _told():
            found = await self._service.search(source, query, top)
        return Found(knowledge=[_piece(each) for each in found])

    @staticmethod
    def _asked(message: str, history: Sequence[Turn], model: str) -> Asked:
        turns = [*history, Turn(role="user", content=message)]
        return asked_of(model, [ChatMessage(role=each.role, content=each.content) for each in turns], {})

    def _caller(self, context: Context[Any, Any]) -> Caller:
        request = context.request_context.request
        caller: Caller = self._anybody if request is None else request.state.caller
        return caller


def _piece(piece: Knowledge) -> Piece:
    return Piece.model_validate({**told(piece), "score": piece.score, "probability": piece.probability})


@contextmanager
def _told() -> Iterator[None]:
    """Turn errors into what the client's model may read of them."""
    try:
        yield
    except ServiceError as error:
        raise ToolError(error.detail) from error


def create_server(service: Service) -> MCPServer[Any]:
    """The tools of an open service."""
    server = MCPServer[Any]("dialore", instructions=_INSTRUCTIONS, version=__version__, log_level="WARNING")
    tools = Tools(service)
    for tool in (tools.ground, tools.respond, tools.search_documents, tools.search_graph):
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=True), structured_output=True)
    return server


async def serve(settings: Settings, *, over_http: bool, connect: Connect = connect_model) -> None:
    """Offer the tools over stdio until it is closed, or over HTTP (at `/mcp`) until the process is asked to end.

    Raises:
        InputError: as `create_app`.
    """
    log_lines()
    check_address(settings.server)
    telemetry = Telemetry()
    service = Service(settings, telemetry, connect=connect)
    async with service.running():
        server = create_server(service)
        if not over_http:
            await server.run_stdio_async()
            return
        # Hosts, origins, keys and sizes are the guard's.
        lax = TransportSecuritySettings(enable_dns_rebinding_protection=False)
        app = server.streamable_http_app(transport_security=lax, max_request_body_size=settings.server.max_body)
        app.add_middleware(Guard, settings=settings.server, telemetry=telemetry, store=service.store)
        await run_app(app, settings.server)
