"""Reports of scored runs: HTML, Markdown, LaTeX, CSV, and figures as files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.evaluation.report.build import Report, make_report
    from dialore.evaluation.report.html import render_html
    from dialore.evaluation.report.latex import render_latex
    from dialore.evaluation.report.texts import render_csv, render_markdown

__all__ = ["Report", "make_report", "render_csv", "render_html", "render_latex", "render_markdown"]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.evaluation.report.build": ["Report", "make_report"],
        "dialore.evaluation.report.html": ["render_html"],
        "dialore.evaluation.report.latex": ["render_latex"],
        "dialore.evaluation.report.texts": ["render_csv", "render_markdown"],
    },
)
