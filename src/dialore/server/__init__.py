"""The service: agents behind OpenAI's API, the knowledge that is added to them while they serve, and who may ask."""
