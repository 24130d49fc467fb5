"""Formulas of web pages as text: MathML, MathJax and KaTeX, which keep a formula in several forms, once each."""

from __future__ import annotations

import re
from typing import Any

_TEX = {"application/x-tex", "application/x-latex", "text/x-tex", "tex", "latex"}
_MATHJAX = re.compile(r"MathJax(?:_Preview|_Display|_SVG|_SVG_Display|_CHTML|_CommonHTML)?|mjx-chtml|MJXc-display")
"""Classes of what MathJax 2 draws of a script, which stands after it."""
_SCRIPT_MARKS = re.compile(r"%?\s{0,20}<!\[CDATA\[|%?\s{0,20}\]\]>")
_FORMS = {
    "msup": "{}^{}",
    "msub": "{}_{}",
    "mover": "{}^{}",
    "munder": "{}_{}",
    "msubsup": "{}_{}^{}",
    "munderover": "{}_{}^{}",
    "mfrac": "{}/{}",
    "mroot": "{}^(1/{})",
}
_ARGUMENTS = {tag: form.count("{}") for tag, form in _FORMS.items()}


def formula_text(element: Any) -> str | None:  # noqa: ANN401 - lxml ships no types
    """Return the text of an element that shows a formula, or of the part of one that repeats it.

    Returns:
        TeX if the page has it, else the formula in a line; empty for a drawing of a formula that follows as TeX; None
        if the element is no formula, or holds nothing but its drawing.
    """
    tag = str(element.tag).rpartition(":")[2]
    classes = (element.get("class") or "").split()
    if tag == "script":
        return _script_text(element)
    if tag == "math":
        return _math_text(element)
    if tag == "mjx-container" or "katex" in classes or "mwe-math-element" in classes:
        math = _find_math(element)
        return None if math is None else _math_text(math)
    if any(map(_MATHJAX.fullmatch, classes)):
        return _mathjax_text(element)
    return None


def _script_text(script: Any) -> str | None:  # noqa: ANN401
    """Return the source of a formula that MathJax 2 keeps in a script."""
    kind = (script.get("type") or "").partition(";")[0].strip().lower()
    if not kind.startswith("math/"):
        return None
    source = _SCRIPT_MARKS.sub("", script.text or "").strip()
    if kind == "math/mml":
        return _parsed_math_text(source)
    return source


def _mathjax_text(drawing: Any) -> str | None:  # noqa: ANN401
    """Return the text of what MathJax 2 draws; empty if the formula's script follows."""
    for following in drawing.itersiblings():
        classes = (following.get("class") or "").split()
        if following.tag == "script" and (following.get("type") or "").startswith("math/"):
            return ""
        if not any(map(_MATHJAX.fullmatch, classes)):
            break
    math = _find_math(drawing)
    if math is not None:
        return _math_text(math)
    sources = drawing.xpath("descendant-or-self::*/@data-mathml")
    return _parsed_math_text(str(sources[0])) if sources else None


def _find_math(element: Any) -> Any:  # noqa: ANN401
    formulas = element.xpath("descendant::*[local-name()='math' or name()='m:math']")
    return formulas[0] if formulas else None


def _parsed_math_text(source: str) -> str:
    from lxml import etree

    tree = etree.fromstring(source, etree.HTMLParser()) if source.strip() else None
    math = _find_math(tree) if tree is not None else None
    return source if math is None else _math_text(math)


def _math_text(math: Any) -> str:  # noqa: ANN401
    """Return a formula's TeX, which MathML may hold as a note, or its own text in a line."""
    for note in math.iter("annotation", "m:annotation"):
        if (note.get("encoding") or "").lower() in _TEX and (note.text or "").strip():
            return " ".join(note.text.split())
    own = " ".join(_line(math).split())
    return own or " ".join((math.get("alttext") or "").split())


def _line(element: Any) -> str:  # noqa: ANN401
    """Return MathML as text in a line: `a/b`, `x^2`, `x_i`, `√(a+b)`."""
    tag = str(element.tag).rpartition(":")[2]
    if tag in {"annotation", "annotation-xml", "mphantom"}:
        return ""
    own = (element.text or "").strip()
    children = [_line(child) for child in element]
    if len(children) == _ARGUMENTS.get(tag):
        first, *others = children
        return _FORMS[tag].format(_argument(first) if tag == "mfrac" else first, *map(_argument, others))
    if tag == "msqrt":
        return f"√{_argument(''.join(children))}"
    if tag == "mfenced":
        inside = (element.get("separators") or ",")[:1].join(children)
        return f"{element.get('open', '(')}{inside}{element.get('close', ')')}"
    text = own + "".join(children)
    return f" {text} " if tag in {"mtd", "mtr", "mspace", "mtext"} else text


def _argument(text: str) -> str:
    text = text.strip()
    return text if text.isalnum() or len(text) == 1 else f"({text})"
