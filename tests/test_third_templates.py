"""Templates of teams whose files nobody trusts: every one of them ends."""

from __future__ import annotations

import pytest
from jinja2.exceptions import SecurityError

from kairo_team.prompts import Prompts


def rendered(template: str) -> str:
    values = {"turn": 1, "max_turns": 2, "tasks_left": 3}
    return Prompts({"supervise": template}).render("supervise", **values)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(999) recursive %}{% if loop.depth < 99 %}{{ loop(range(999)) }}{% endif %}{% endfor %}",
        "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% for a in range(999) if range(999) %}{% for b in 'ab' * 999 %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ 10 ** 9 * [1] }}",
        "{{ 10 ** 10 ** 10 }}",
    ],
)
def test_third_o24_a_template_that_goes_on_and_on_is_an_error(template: str) -> None:
    with pytest.raises(SecurityError, match="the template"):
        rendered(template)


def test_third_o24_a_template_is_counted_anew_each_time() -> None:
    prompts = Prompts({"supervise": "{% for a in range(60000) %}{% endfor %}{{ turn }}"})
    for turn in range(3):
        assert prompts.render("supervise", turn=turn, max_turns=2, tasks_left=3) == str(turn)


def test_third_o24_loops_work_as_they_did() -> None:
    template = (
        "{% for a in [1, 2] %}{{ loop.index }}/{{ loop.length }}{{ ',' if not loop.last }}{% endfor %};"
        "{% for a in [] %}{% else %}none{% endfor %};{% for k, v in {'a': 1}.items() if v %}{{ k }}{% endfor %};"
        "{{ 2 * 3 }}{{ 'ab' * 2 }}{{ 2 ** 5 }}"
    )
    assert rendered(template) == "1/2,2/2;none;a;6abab32"
