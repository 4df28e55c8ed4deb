"""Every chat model of ours fulfils the contract of chat models."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest

import kairo_team as kt
from kairo_team.contracts import ChatModel
from kairo_team.errors import ModelCallError
from kairo_team.tck import ChatModelTCK
from kairo_team.testing import FunctionModel, RecordReplayModel, ScriptedModel
from tests.tck.variants import variant

pytestmark = pytest.mark.sampled("anyio_backend")

STORY = "Once upon a time the sea went out and did not come back for many a year. " * 3


def tell(request: kt.ModelRequest) -> str:
    return STORY


def refuse(request: kt.ModelRequest) -> str:
    raise ModelCallError("overloaded", "test:function", "too much to do")


class TestFunctionModel(ChatModelTCK):
    has_provider = True

    @classmethod
    def make_model(cls) -> ChatModel:
        return FunctionModel(tell, dollars_per_token="0.00002")

    @classmethod
    def make_model_of(cls, provider: Any) -> ChatModel:
        return FunctionModel(provider.answer)

    @classmethod
    def make_failing_model(cls) -> ChatModel:
        return FunctionModel(refuse)


class TestScriptedModel(ChatModelTCK):
    @classmethod
    def make_model(cls) -> ChatModel:
        return ScriptedModel([STORY] * 100)

    @classmethod
    def make_failing_model(cls) -> ChatModel:
        return ScriptedModel([ModelCallError("auth", "test:scripted", "no key")] * 100)


class TestRecordReplayModel(TestFunctionModel):
    folder: ClassVar[Path]
    numbers = count()

    @pytest.fixture(autouse=True)
    def _own_folder(self, tmp_path: Path) -> None:
        type(self).folder = tmp_path

    @classmethod
    def file(cls) -> Path:
        return cls.folder / f"{next(cls.numbers)}.jsonl"

    @classmethod
    def make_model(cls) -> ChatModel:
        return RecordReplayModel(cls.file(), FunctionModel(tell))

    @classmethod
    def make_model_of(cls, provider: Any) -> ChatModel:
        return RecordReplayModel(cls.file(), FunctionModel(provider.answer))

    @classmethod
    def make_failing_model(cls) -> ChatModel:
        return RecordReplayModel(cls.file(), FunctionModel(refuse))


class TestReplayedModel(TestRecordReplayModel):
    """What it gives again, without a model, is what the model gave."""

    has_provider = False

    @classmethod
    def make_model(cls) -> ChatModel:
        return _Replaying(cls.file(), tell)

    @classmethod
    def make_failing_model(cls) -> ChatModel:
        return _Replaying(cls.file(), refuse)


class _Replaying:
    """Records each call, and answers it from the record alone."""

    name = "test:function"

    def __init__(self, file: Path, function: Any) -> None:
        self._file = file
        self._function = function

    async def complete(self, request: kt.ModelRequest) -> kt.ModelResponse:
        with suppress(ModelCallError):
            await RecordReplayModel(self._file, FunctionModel(self._function), mode="record").complete(request)
        return await RecordReplayModel(self._file, mode="replay").complete(request)


class TestFallback(ChatModelTCK):
    """The first one never answers, the second does."""

    @classmethod
    def make_model(cls) -> ChatModel:
        return kt.Fallback(FunctionModel(refuse), FunctionModel(tell))

    @classmethod
    def make_failing_model(cls) -> ChatModel:
        return kt.Fallback(FunctionModel(refuse), FunctionModel(refuse))


@variant("trio")
class TestFallbackOfOne(TestFallback):
    """The provider's failure is none after which the next one is asked."""

    has_provider = True

    @classmethod
    def make_model_of(cls, provider: Any) -> ChatModel:
        return kt.Fallback(FunctionModel(provider.answer), FunctionModel(tell), on="context_length")


class TestProviderModel(ChatModelTCK):
    """A model of pydantic-ai's, with the kit's provider in the place of the network."""

    has_provider = True
    can_fail = False

    @classmethod
    def make_model(cls) -> ChatModel:
        return cls.make_model_of(FunctionModel(tell, name="kit:model"))

    @classmethod
    def make_model_of(cls, provider: Any) -> ChatModel:
        pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
        from kairo_team.models.providers import ProviderModel
        from tests.tck.provider_double import Double

        return ProviderModel("theirs:double", Double(getattr(provider, "answer", None) or provider.complete))


@variant("asyncio")
@pytest.mark.local_model
class TestLocalModel(ChatModelTCK):
    virtual_time = False
    can_fail = False

    @classmethod
    def make_model(cls) -> ChatModel:
        from kairo_team.models.local import LocalModel

        return LocalModel()


@pytest.mark.local_model
class TestOpenAICompatible(ChatModelTCK):
    """Over HTTP, with the embedded model at the other end."""

    virtual_time = False
    backends = ("asyncio",)

    @classmethod
    def make_model(cls) -> ChatModel:
        from kairo_team.models.local_server import local_address
        from kairo_team.models.openai_compatible import OpenAICompatible

        pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
        address = local_address()
        return OpenAICompatible("smollm2", address.base_url, address.api_key)

    @classmethod
    def make_failing_model(cls) -> ChatModel:
        from kairo_team.models.openai_compatible import OpenAICompatible

        pytest.importorskip("pydantic_ai", reason="the extra `models` is not installed")
        return OpenAICompatible("smollm2", "http://127.0.0.1:9/v1")
