"""Measure how densely the package is written.

    python scripts/measure_density.py [--json] [--worst N]

Tokens and code lines leave out comments, docstrings and blank lines. A branch is an `if`, loop, `except`, `case`,
conditional expression, `for` or `if` of a comprehension, or boolean operator. A function is dense if it has more than 5
branches and more than 0.45 of them per code line. A bare name is a single participle, pronoun or preposition.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import tokenize
from dataclasses import asdict, dataclass
from pathlib import Path

import dialore

ROOT = Path(dialore.__file__).parent
DENSE_BRANCHES, DENSE_SHARE = 5, 0.45
MAX_BRANCHES = 10
BARE_NAMES = frozenset(
    """
    given made known told asked wanted named shown kept held chosen taken left seen done drawn sent begun counted
    listed placed allowed offered answered cited dropped joined compared measured written lacking going of at in on
    off for from with without about above below over under before after between where when why how what who which
    whole own every each several some most more many much few less least other others another both one ones none
    nothing something it its those these this that here there so too still again apart alone once such same place
    places piece pieces
    """.split()  # noqa: SIM905 - a list of names fills a hundred lines
)
_BRANCHES = 10
BARE_NAMES = frozenset(
    [
        "given",
        "made",
        "known",
        "told",
        "asked",
        "wanted",
        "named",
        "shown",
        "kept",
        "held",
        "chosen",
        "taken",
        "left",
        "seen",
        "done",
        "drawn",
        "sent",
        "begun",
        "counted",
        "listed",
        "placed",
        "allowed",
        "offered",
        "answered",
        "cited",
        "dropped",
        "joined",
        "compared",
        "measured",
        "written",
        "lacking",
        "going",
        "of",
        "at",
        "in",
        "on",
        "off",
        "for",
        "from",
        "with",
        "without",
        "about",
        "above",
        "below",
        "over",
        "under",
        "before",
        "after",
        "between",
        "where",
        "when",
        "why",
        "how",
        "what",
        "who",
        "which",
        "whole",
        "own",
        "every",
        "each",
        "several",
        "some",
        "most",
        "more",
        "many",
        "much",
        "few",
        "less",
        "least",
        "other",
        "others",
        "another",
        "both",
        "one",
        "ones",
        "none",
        "nothing",
        "something",
        "it",
        "its",
        "these",
        "those",
        "this",
        "that",
        "here",
        "there",
        "so",
        "too",
        "still",
        "again",
        "apart",
        "alone",
        "once",
        "such",
        "same",
        "place",
        "places",
        "piece",
        "pieces",
    ]
)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.match_case, ast.IfExp)
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass
class Density:
    """Figures of a package. Percentages are of all functions, or of all names that are bound."""

    tokens: int = 0
    code_lines: int = 0
    functions: int = 0
    dense_functions: int = 0
    branching_functions: int = 0
    names: int = 0
    bare_names: int = 0

    @property
    def figures(self) -> dict[str, float]:
        """The figures that are limited."""
        return {
            "tokens": self.tokens,
            "tokens_per_line": round(self.tokens / max(1, self.code_lines), 2),
            "dense_functions_percent": round(100 * self.dense_functions / max(1, self.functions), 2),
            "branching_functions_percent": round(100 * self.branching_functions / max(1, self.functions), 2),
            "bare_names_percent": round(100 * self.bare_names / max(1, self.names), 2),
        }


def count_branches(node: ast.AST) -> int:
    """Return the number of branches in a function, those in its expressions included."""
    count = 0
    for child in ast.walk(node):
        if isinstance(child, _BRANCHES):
            count += 1
        elif isinstance(child, ast.comprehension):
            count += 1 + len(child.ifs)
        elif isinstance(child, ast.BoolOp):
            count += len(child.values) - 1
    return count


def measure(root: Path = ROOT) -> tuple[Density, list[tuple[float, str]]]:
    """Return the figures of all files, and each function's branches per line."""
    density = Density()
    functions: list[tuple[float, str]] = []
    for path in sorted(root.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        code_lines = _count_tokens(source, _docstring_lines(tree), density)
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                share = _count_function(node, code_lines, density)
                functions.append((share, f"{path.relative_to(root)}:{node.lineno} {node.name}"))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                _count_name(node.id, density)
    return density, sorted(functions, reverse=True)


def _docstring_lines(tree: ast.Module) -> set[int]:
    lines: set[int] = set()
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and isinstance(node.value.value, str):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def _count_tokens(source: str, docstrings: set[int], density: Density) -> set[int]:
    code_lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _LAYOUT and token.start[0] not in docstrings:
            density.tokens += 1
            code_lines.update(range(token.start[0], token.end[0] + 1))
    density.code_lines += len(code_lines)
    return code_lines


def _count_function(node: ast.FunctionDef | ast.AsyncFunctionDef, code_lines: set[int], density: Density) -> float:
    arguments = [*node.args.args, *node.args.kwonlyargs]
    for name in [node.name, *(argument.arg for argument in arguments)]:
        _count_name(name, density)
    branches = count_branches(node)
    body = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
    share = branches / max(1, len(code_lines.intersection(body)))
    density.functions += 1
    density.branching_functions += branches > MAX_BRANCHES
    density.dense_functions += branches > DENSE_BRANCHES and share > DENSE_SHARE
    return share


def _count_name(name: str, density: Density) -> None:
    density.names += 1
    density.bare_names += name.strip("_").lower() in BARE_NAMES


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="list the densest functions")
    options = parser.parse_args()
    density, functions = measure()
    if options.json:
        print(json.dumps(asdict(density) | density.figures))
        return
    for name, figure in density.figures.items():
        print(f"{name:30}{figure:>12,}")
    for share, function in functions[: options.worst]:
        print(f"  {share:.2f} branches per line: {function}")


if __name__ == "__main__":
    main()
