"""Where knowledge comes from: graphs, documents, a persona, memory, the web, and other servers."""
