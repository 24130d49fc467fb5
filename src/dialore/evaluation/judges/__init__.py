"""Judges: language models that score or compare responses, by prompt files (`prompts/judge/`)."""
