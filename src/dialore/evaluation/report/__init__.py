"""Reports of scored runs: HTML, Markdown, LaTeX, CSV, and figures as files."""
