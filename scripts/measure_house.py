"""Count what a newcomer has to walk through: lines, files, public names, circles, and the files of one response.

    python scripts/measure_house.py [--json] [--list]

A name is a module-level function, class or constant without a leading underscore. A circle is a set of modules that
import each other, imports inside functions and for type checkers included. The files of one response are those in which
code runs while `dcrag` answers a dialogue from an endpoint and the starter graph, the second time: what is done once at
the start is not counted.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import json
import multiprocessing
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dialore

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ROOT = Path(dialore.__file__).parent


def module_of(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = ["dialore", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def public_names(tree: ast.Module) -> int:
    """Return how many public names a module defines."""
    count = 0
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            count += not node.name.startswith("_")
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            count += sum(isinstance(each, ast.Name) and not each.id.startswith("_") for each in targets)
    return count


def imports(tree: ast.Module, names: set[str]) -> set[str]:
    """Return the modules of the package that a module imports, wherever in its text."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & names
            found |= inner or {node.module}
    return found & names


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected sets of more than one module (Tarjan)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = low[name] = len(order)
        stack.append(name)
        for other in graph[name]:
            if other not in order:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], order[other])
        if low[name] == order[name]:
            at = stack.index(name)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in order:
            visit(name)
    return found


def response_files() -> list[str]:
    """Return the files of the package that run while `dcrag` answers a dialogue."""
    receiving, sending = multiprocessing.Pipe(duplex=False)
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(sending,), daemon=True)
    server.start()
    try:
        return asyncio.run(_answer_twice(receiving.recv()))
    finally:
        server.terminate()
        server.join()


async def _answer_twice(url: str) -> list[str]:
    from dialore.dialogue import Dialogue

    seen: set[str] = set()

    def note(frame: Any, event: str, _: object) -> None:  # noqa: ANN401 - a frame
        if event == "call":
            seen.add(frame.f_code.co_filename)

    async with _agent(url) as agent:
        for number, turns in enumerate((["I have a cold."], ["My throat hurts.", "Drink tea.", "With honey?"])):
            if number:
                sys.setprofile(note)
                threading.setprofile(note)
            response = await agent.respond(Dialogue(id=str(number), turns=turns))
            if response.status != "ok":
                raise RuntimeError(response.error)
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    inside = {Path(name) for name in seen if name.startswith(str(ROOT))}
    return sorted(str(path.relative_to(ROOT)) for path in inside)


def _agent(url: str) -> Any:  # noqa: ANN401 - an agent
    from dialore import connect, create_agent

    return create_agent("dcrag", model=connect(base_url=url, model="m", api_key="k"))


def _serve(ready: Connection) -> None:
    """Serve plausible answers as an endpoint does, and send its address."""
    from aiohttp import web

    from dialore.llm.fake import plausible_answer

    async def complete(request: web.Request) -> web.Response:
        body = await request.json()
        schema = ((body.get("response_format") or {}).get("json_schema") or {}).get("schema")
        *before, asked = [message["content"] for message in body["messages"]]
        message = {"role": "assistant", "content": plausible_answer(asked, schema, "\n".join(before))}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        return web.json_response({"choices": [choice], "usage": {"prompt_tokens": 1, "completion_tokens": 1}})

    async def run() -> None:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", complete)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ready.send(f"http://127.0.0.1:{runner.addresses[0][1]}/v1")
        await asyncio.Event().wait()

    asyncio.run(run())


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--list", action="store_true", help="name the files of a response")
    options = parser.parse_args()
    files = sorted(ROOT.rglob("*.py"))
    trees = {module_of(path): ast.parse(path.read_text(encoding="utf-8")) for path in files}
    names = set(trees)
    passed = response_files()
    exported = set(getattr(dialore, "__all__", ()))
    counts = {
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files),
        "files": len(files),
        "files in cli": sum(path.is_relative_to(ROOT / "cli") for path in files),
        "names without underscore": sum(public_names(tree) for tree in trees.values()),
        "names in dialore.__all__": len(exported),
        "circles": len(circles({name: imports(tree, names) - {name} for name, tree in trees.items()})),
        "files of one response": len(passed),
    }
    if options.json:
        print(json.dumps(counts))
        return
    for name, count in counts.items():
        print(f"{name:28}{count:>8,}")
    if options.list:
        print("\n".join(f"  {name}" for name in passed))
    for room in sorted({path.relative_to(ROOT).parts[0] for path in files}):
        inside = [path for path in files if path.relative_to(ROOT).parts[0] == room]
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in inside)
        print(f"  {room:26}{lines:>8,} lines {len(inside):>4} files")


if __name__ == "__main__":
    main()
