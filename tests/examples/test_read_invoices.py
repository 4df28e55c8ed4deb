"""Invoices from pictures: each reader gets its own, and a record that does not add up goes back."""

from __future__ import annotations

import json
from typing import Any

import pytest

import kairo_team as kt
from kairo_team.examples.read_invoices import DATA, Invoice, main, make_plan, make_team
from kairo_team.models import resolver
from kairo_team.models.prompt_bounds import image_size
from kairo_team.testing import FunctionModel

PICTURES = sorted(DATA.glob("*.png"))
PRINTED: list[dict[str, Any]] = [
    {
        "seller": "Harbour Paint Ltd", "number": "2031", "day": "2026-03-04", "total": "487.00",
        "lines": [
            {"item": "Hull paint, grey", "count": 12, "each": "38.50"},
            {"item": "Brush, 60 mm", "count": 4, "each": "6.25"},
        ],
    },
    {
        "seller": "Northgate Ropes", "number": "A-118", "day": "2026-03-09", "total": "280.00",
        "lines": [
            {"item": "Mooring line, 20 m", "count": 3, "each": "74.00"},
            {"item": "Shackle, 8 mm", "count": 20, "each": "2.90"},
        ],
    },
    {
        "seller": "Salt & Sons", "number": "77/26", "day": "2026-03-15", "total": "339.00",
        "lines": [
            {"item": "Sailcloth, per metre", "count": 15, "each": "21.40"},
            {"item": "Delivery", "count": 1, "each": "18.00"},
        ],
    },
]  # fmt: skip
TABLE = """2026-03-04 Harbour Paint Ltd 2031: 487.00 EUR
2026-03-09 Northgate Ropes A-118: 280.00 EUR
2026-03-15 Salt & Sons 77/26: 339.00 EUR
All: 1106.00 EUR"""


class Eyes:
    """Answers for each picture what is printed on it; the first time it misreads the total of the first."""

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.model = FunctionModel(self.answer, name="test:eyes", files=["image/*"])

    def answer(self, request: kt.ModelRequest) -> str:
        names = [file.name for file in request.files]
        self.seen.append(names)
        printed = PRINTED[int(names[0].removesuffix(".png")[-1]) - 1]
        misread = names == [PICTURES[0].name] and self.seen.count(names) == 1
        return json.dumps({**printed, "total": "478.00"} if misread else printed)


@pytest.fixture
def eyes(monkeypatch: pytest.MonkeyPatch) -> Eyes:
    found = Eyes()
    known = resolver.ModelResolver.resolve

    def resolve(self: resolver.ModelResolver, model: Any) -> Any:
        return found.model if model == "test:eyes" else known(self, model)

    monkeypatch.setattr(resolver.ModelResolver, "resolve", resolve)
    return found


def test_three_pictures_become_three_records_and_a_table(eyes: Eyes, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", "test:eyes"]) == 0
    assert capsys.readouterr().out == f"{TABLE}\n"
    assert all(len(names) == 1 for names in eyes.seen)
    assert sorted({names[0] for names in eyes.seen}) == [path.name for path in PICTURES]
    assert len(eyes.seen) == 4, "the misread total was sent back"


def test_a_model_that_cannot_see_is_refused_before_anything_is_asked() -> None:
    check = kt.check(make_team("local:smollm2"), "Read.", plan=make_plan(PICTURES))
    assert "model 'local:smollm2' cannot be given invoice-1.png, image/png" in str(check)


def test_the_pictures_are_small_and_the_records_add_up() -> None:
    assert sum(path.stat().st_size for path in PICTURES) < 100_000
    assert {image_size(path.read_bytes()) for path in PICTURES} == {(620, 460)}
    for printed in PRINTED:
        Invoice.model_validate(printed)
    with pytest.raises(ValueError, match=r"the lines add up to 487.00, and the total says 478.00"):
        Invoice.model_validate({**PRINTED[0], "total": "478.00"})
