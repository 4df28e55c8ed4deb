"""A team behind an address: MCP, and OpenAI's chat completions and Responses (extra `serve`)."""
