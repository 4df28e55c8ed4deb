"""From a model's name to the model."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import Any, Final

from kairo_team.contracts import ChatModel
from kairo_team.errors import ModelUnavailable, known
from kairo_team.models.fallback import Fallback, single_models
from kairo_team.plugins import make, published

_OF_PROVIDERS: Final = re.compile(
    r"pydantic_ai\.models\.(?!(test|function|wrapper|fallback|instrumented|concurrency)$)"
    r"|agents\.(extensions\.)?models\.(?!interface$)"
    r"|langchain(?!_core\b)"
)
"""Modules of other libraries that contain providers' models."""
_real_models_forbidden: ContextVar[bool] = ContextVar("real_models_forbidden", default=False)


@contextmanager
def forbid_real_models() -> Generator[None]:
    """Forbid real models inside the block, so that a test cannot call one by mistake.

    A model name without a replacement is refused. So is a call of a wrapped agent's model of pydantic-ai, the OpenAI
    Agents SDK or LangChain, except these libraries' test models and your own classes.
    """
    token = _real_models_forbidden.set(True)
    try:
        yield
    finally:
        _real_models_forbidden.reset(token)


def refuse_real(name: str, modules: Iterable[str]) -> None:
    """Raise `ModelUnavailable` if real models are forbidden and the model's class comes from one of them."""
    if _real_models_forbidden.get() and any(map(_OF_PROVIDERS.match, modules)):
        raise ModelUnavailable(name, "real models are forbidden here; give the agent one for tests")


def modules_of(model: object) -> list[str]:
    """Return the modules of a model's class and of its base classes."""
    return [kind.__module__ for kind in type(model).__mro__]


class ModelResolver:
    """Find models by `provider:name`: replacements first, by exact name, then by pattern in the order listed."""

    def __init__(self, replacements: Mapping[str, str | ChatModel] | None = None) -> None:
        self._replacements = dict(replacements or {})
        self._resolved: dict[str, ChatModel] = {}
        self._names: dict[int, list[str]] = {}
        """Names under which a model is registered or was resolved, by the `id` of the model, which is kept here."""
        for name, model in self._replacements.items():
            if isinstance(model, ChatModel):
                self._name(model, name)

    def resolve(self, model: str | ChatModel) -> ChatModel:
        """Return the model of that name, or the object itself.

        Raises `ModelUnavailable` for an unknown provider, a missing key or file, `MissingExtra` for a library that is
        not installed. Loads and calls nothing. Each model of a `Fallback` is resolved like a single model.
        """
        if isinstance(model, Fallback):
            return model.resolved(self.resolve)
        if not isinstance(model, str):
            return _checked(model)
        if model not in self._resolved:
            replacement = self._replacement(model)
            found = self._built(model) if replacement is None else self._follow(model, replacement)
            self._name(found, model)
            self._resolved[model] = found
        return self._resolved[model]

    def names_of(self, model: ChatModel) -> Sequence[str]:
        """Return the names under which a model is registered or was resolved, besides its own."""
        return self._names.get(id(model), ())

    def _name(self, model: ChatModel, name: str) -> None:
        for one in single_models(model):
            names = self._names.setdefault(id(one), [])
            if name != one.name and name not in names:
                names.append(name)

    def _replacement(self, name: str) -> str | ChatModel | None:
        if name in self._replacements:
            return self._replacements[name]
        return next((model for key, model in self._replacements.items() if fnmatchcase(name, key)), None)

    def _built(self, name: str) -> ChatModel:
        try:
            return _build(name)
        except ModelUnavailable as error:
            if not self._replacements:
                raise
            raise ModelUnavailable(name, f"{error.why}; Runtime.models has {known(self._replacements)}") from error

    @classmethod
    def _follow(cls, name: str, replacement: str | ChatModel) -> ChatModel:
        """Return the replacement; a name in it is not replaced again, so it may contain the replaced name itself."""
        if isinstance(replacement, Fallback):
            return replacement.resolved(lambda model: cls._follow(name, model))
        if isinstance(replacement, str):
            return _build(replacement)
        return _checked(replacement, name)


def _checked(model: Any, name: str | None = None) -> ChatModel:
    if not isinstance(model, ChatModel):
        raise ModelUnavailable(
            name or repr(model), f"{model!r} is not a chat model: it needs `name` and `async complete`"
        )
    return model


def _build(name: str) -> ChatModel:
    provider, _, model = name.partition(":")
    if not provider or not model:
        raise ModelUnavailable(
            name,
            "a model is named 'provider:name', such as 'local:smollm2', or is in Runtime(models={name: model})",
        )
    if _real_models_forbidden.get():
        raise ModelUnavailable(name, "real models are forbidden here; replace it with Runtime(models={...})")
    if provider == "local":
        from kairo_team.models.local import LocalModel

        local = LocalModel(name)
        local.check()
        return local
    from kairo_team.models.providers import is_known, provider_model

    if is_known(provider) or not published("model", provider):
        return provider_model(name)
    try:
        made: ChatModel = make("model", provider, {"name": name})
    except ValueError as error:
        raise ModelUnavailable(name, str(error)) from error
    return made
