"""Run cells of Python in one namespace, as a notebook does: `python cells.py FILE`, a JSON list of sources.

`await` stands where it likes; what a cell ends with is shown as Jupyter would show it.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import json
import sys
from pathlib import Path


async def run(cells: list[str]) -> None:
    space: dict[str, object] = {"__name__": "__main__"}
    for number, source in enumerate(cells, start=1):
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        await _do(compile(tree, f"cell {number}", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), space)
        if last is not None:
            expression = ast.Expression(last.value)
            shown = await _do(compile(expression, f"cell {number}", "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), space)
            if shown is not None:
                print(repr(shown), getattr(shown, "_repr_html_", str)())


async def _do(code, space):
    result = eval(code, space)
    return await result if inspect.iscoroutine(result) and code.co_flags & inspect.CO_COROUTINE else result


if __name__ == "__main__":
    asyncio.run(run(json.loads(Path(sys.argv[1]).read_text("utf-8"))))
