"""Language models: the protocol, OpenAI-compatible endpoints, local models, cache, recordings, structured output."""
