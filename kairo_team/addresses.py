"""`ModelAddress`: where a program or another library's client finds a governed model."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ModelAddress:
    """The address of a governed model on this machine, open while its `async with context.address(...)` block runs.

    Every request to it is a governed model call of the attempt. Give a client one of the two base URLs and the key.
    """

    url: str
    """`http://127.0.0.1:<port>`, without a path."""
    key: str = field(repr=False)
    """The API key, made for this address alone."""
    model: str
    """The model's name without its provider. Requests may name any model, and are answered by this one."""

    @property
    def openai(self) -> str:
        """The base URL for clients of OpenAI's interface: chat completions and Responses."""
        return f"{self.url}/v1"

    @property
    def anthropic(self) -> str:
        """The base URL for clients of Anthropic's interface."""
        return self.url

    def env(self) -> dict[str, str]:
        """Return the environment variables by which programs and client libraries find the address."""
        return {
            "OPENAI_BASE_URL": self.openai,
            "OPENAI_API_BASE": self.openai,
            "OPENAI_API_KEY": self.key,
            "ANTHROPIC_BASE_URL": self.anthropic,
            "ANTHROPIC_API_KEY": self.key,
            # Without this, a proxy would see the key.
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
