"""A team behind an address: MCP, OpenAI's interface, A2A and AG-UI (extra `serve`)."""
