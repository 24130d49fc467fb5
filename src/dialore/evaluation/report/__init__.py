"""Reports of scored runs: HTML, Markdown, LaTeX and CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dialore._lazy import lazy_names

if TYPE_CHECKING:
    from dialore.evaluation.report.build import Report, Settings, make_report
    from dialore.evaluation.report.data import Results, ScoredResponse, SystemScores
    from dialore.evaluation.report.html import render_html
    from dialore.evaluation.report.latex import render_latex
    from dialore.evaluation.report.markdown import render_markdown
    from dialore.evaluation.report.rows import render_csv

__all__ = [
    "Report",
    "Results",
    "ScoredResponse",
    "Settings",
    "SystemScores",
    "make_report",
    "render_csv",
    "render_html",
    "render_latex",
    "render_markdown",
]

__getattr__ = lazy_names(
    __name__,
    {
        "dialore.evaluation.report.build": ["Report", "Settings", "make_report"],
        "dialore.evaluation.report.data": ["Results", "ScoredResponse", "SystemScores"],
        "dialore.evaluation.report.html": ["render_html"],
        "dialore.evaluation.report.latex": ["render_latex"],
        "dialore.evaluation.report.markdown": ["render_markdown"],
        "dialore.evaluation.report.rows": ["render_csv"],
    },
)
