"""Web search as a source of knowledge: engines, guarded page fetching, redaction of queries, safety of passages."""
