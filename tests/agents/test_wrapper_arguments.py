"""An unknown argument of a wrapper is answered with those that there are."""

from __future__ import annotations

from typing import Any

import pytest

from kairo_team import agents


@pytest.mark.parametrize("name", ["PydanticAIAgent", "LangGraphAgent", "OpenAIAgent"])
def test_an_unknown_argument_of_a_wrapper_is_named_with_the_others(name: str) -> None:
    wrapper: Any = getattr(agents, name)
    with pytest.raises(TypeError, match=rf"^{name} takes no 'colour'; it takes \w+, "):
        wrapper(None, colour="red")
