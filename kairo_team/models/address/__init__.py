"""A governed model behind a loopback address, in the formats of OpenAI and Anthropic."""
