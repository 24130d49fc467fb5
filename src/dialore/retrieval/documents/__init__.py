"""The document store: passages with their terms and vectors, in SQLite or PostgreSQL, and how they get there."""
