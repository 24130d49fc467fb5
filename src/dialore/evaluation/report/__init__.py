"""Reports of scored runs: HTML, Markdown, LaTeX and CSV."""
