"""From a model's name to the model, and `Fallback`: another model when one does not answer."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakSet

from kairo_team._util.context_values import set_for
from kairo_team._util.frozen import known_arguments
from kairo_team._util.plugin_shapes import check_function
from kairo_team.contracts import ChatModel
from kairo_team.errors import MODEL_ERRORS, ModelCallError, ModelErrorKind, ModelUnavailable, known
from kairo_team.models.prompt_bounds import problem_with_file
from kairo_team.plugins import make, published

if TYPE_CHECKING:
    from kairo_team.files import File
    from kairo_team.messages import ModelRequest, ModelResponse

_OF_PROVIDERS: Final = re.compile(
    r"pydantic_ai\.models\.(?!(test|function|wrapper|fallback|instrumented|concurrency)$)"
    r"|agents\.(extensions\.)?models\.(?!interface$)"
    r"|langchain(?!_core\b)"
)
"""Modules of other libraries that contain providers' models."""
# A context variable: tests that run at the same time do not forbid each other's models.
_real_models_forbidden: ContextVar[bool] = ContextVar("real_models_forbidden", default=False)


@contextmanager
def forbid_real_models() -> Generator[None]:
    """Forbid real models inside the block, so that a test cannot call one by mistake.

    A model name without a replacement is refused. So is a call of a wrapped agent's model of pydantic-ai, the OpenAI
    Agents SDK or LangChain, except these libraries' test models and your own classes.
    """
    with set_for(_real_models_forbidden, True):
        yield


def refuse_real(name: str, modules: Iterable[str]) -> None:
    """Raise `ModelUnavailable` if real models are forbidden and the model's class comes from one of them."""
    if _real_models_forbidden.get() and any(map(_OF_PROVIDERS.match, modules)):
        raise ModelUnavailable(name, "real models are forbidden here; give the agent one for tests")


def modules_of(model: object) -> list[str]:
    """Return the modules of a model's class and of its base classes."""
    return [kind.__module__ for kind in type(model).__mro__]


_callable: Final[WeakSet[type]] = WeakSet()
"""Classes whose `complete` takes a request: reading a signature takes longer than all the rest of a resolution."""


class ModelResolver:
    """Find models by `provider:name`: replacements first, by exact name, then by pattern in the order listed."""

    def __init__(self, replacements: Mapping[str, str | ChatModel] | None = None) -> None:
        if replacements is not None and not isinstance(replacements, Mapping):
            raise ValueError(
                f"models are given by name, such as {{'openai:gpt-5-mini': model}}, not {replacements!r:.80}"
            )
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
            patterns = (key for key in self._replacements if fnmatchcase(model, key))
            key = model if model in self._replacements else next(patterns, None)
            found = self._built(model) if key is None else self._follow(model, self._replacements[key])
            self._name(found, model)
            self._resolved[model] = found
        return self._resolved[model]

    def names_of(self, model: ChatModel) -> Sequence[str]:
        """Return the names under which a model is registered or was resolved, besides its own."""
        return self._names.get(id(model), ())

    def _name(self, model: ChatModel, name: str) -> None:
        for one in single_models(model):
            # The identity is the key, because a model need not be hashable.
            names = self._names.setdefault(id(one), [])
            if name != one.name and name not in names:
                names.append(name)

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
    problem = _problem(model)
    if problem is not None:
        raise ModelUnavailable(name or repr(model), problem)
    checked: ChatModel = model
    return checked


def _problem(model: Any) -> str | None:
    """Return why an object is not a chat model; None if it is one."""
    if isinstance(model, type):
        return f"{model.__name__} is a class, not a chat model: make one, {model.__name__}(...)"
    # `isinstance(model, ChatModel)` says the same and takes twenty times as long, and every run resolves its models.
    if not hasattr(model, "name") or getattr(model, "complete", None) is None:
        hint = "; kairo_team.testing.FunctionModel(function) makes one" if callable(model) else ""
        return f"{model!r} is not a chat model: it needs `name` and `async complete`{hint}"
    if not isinstance(model.name, str):
        return f"the `name` of {model!r} must be a text such as 'mine:small', not {model.name!r:.80}"
    kind = cast("type[Any]", type(model))  # type: ignore[redundant-cast]  # pyright needs it
    if kind not in _callable:
        try:
            check_function(kind.__name__, model.complete, "complete(request)")
        except ValueError as error:
            return str(error)
        _callable.add(kind)
    return None


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

    # A known provider first: an installed package must not take its name.
    if is_known(provider) or not published("model", provider):
        return provider_model(name)
    try:
        made: ChatModel = make("model", provider, {"name": name})
    except ValueError as error:
        raise ModelUnavailable(name, str(error)) from error
    return made


_ANOTHER_MAY_DO: Final[frozenset[ModelErrorKind]] = MODEL_ERRORS - {"bad_request", "content_filter"}


@known_arguments
class Fallback:
    """Ask models one after another, until one answers; usable wherever a model is expected.

    The next model is asked when the one before, retries included, ended in an error of a kind in `on`: by default any
    but a wrong request and refused content. Each model is held, priced, limited and reported under its own name. A
    budget that is used up, a missing price and any error other than a `ModelCallError` end the call.

    Raises `ValueError` for an object that is not a model, and for unknown kinds.
    """

    __slots__ = ("alternatives", "on")

    def __init__(
        self,
        first: str | ChatModel,
        *others: str | ChatModel,
        on: ModelErrorKind | Iterable[ModelErrorKind] = _ANOTHER_MAY_DO,
    ) -> None:
        self.alternatives: tuple[str | ChatModel, ...] = (first, *others)
        """The models, in the order in which they are asked."""
        self.on: frozenset[str] = frozenset((on,) if isinstance(on, str) else on)
        """Kinds of errors after which the next model is asked."""
        for model in self.alternatives:
            _check(model)
        if not others:
            raise ValueError(f"a Fallback has at least two models, not only {first!r}")
        if not self.on <= MODEL_ERRORS:
            raise ValueError(
                f"Fallback: no such kind of error as {known(self.on - MODEL_ERRORS)}; there are {known(MODEL_ERRORS)}"
            )

    @property
    def name(self) -> str:
        """The `provider:model` of the first model."""
        first = self.alternatives[0]
        return first if isinstance(first, str) else first.name

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request, ungoverned; names among the models must be resolved."""
        return await self.resolved(ModelResolver().resolve).ask(lambda model: model.complete(request))

    async def ask(
        self, call: Callable[[ChatModel], Awaitable[ModelResponse]], *, last_word: Callable[[], bool] = lambda: False
    ) -> ModelResponse:
        """Return the first answer that `call` gets; make no further call once `last_word()` is true.

        A reply that the provider's filter cut off or refused is an answer, unless `on` contains `content_filter`.
        """
        *earlier, last = self._models()
        for model in earlier:
            try:
                response = await call(model)
            except ModelCallError as error:
                if error.kind not in self.on or last_word():
                    raise
            else:
                if response.finish_reason not in self.on or last_word():
                    return response
        return await call(last)  # its error is the caller's, of whatever kind

    def resolved(self, resolve: Callable[[str | ChatModel], ChatModel]) -> Fallback:
        """Return a copy with each name replaced by its model; raise what `resolve` raises."""
        first, *others = map(resolve, self.alternatives)
        # Without `on`, whose kinds are checked already.
        made = Fallback(first, *others)
        made.on = self.on
        return made

    def _models(self) -> list[ChatModel]:
        names = [model for model in self.alternatives if isinstance(model, str)]
        if names:
            raise TypeError(f"{names[0]!r} is a name: ModelResolver().resolve(fallback) makes models of names")
        return [model for model in self.alternatives if not isinstance(model, str)]

    def __repr__(self) -> str:
        return f"Fallback({', '.join(map(repr, self.alternatives))})"


def single_models(model: ChatModel) -> Iterator[ChatModel]:
    """Yield the models that a call of `model` may use: itself, or the models of a resolved `Fallback`."""
    if not isinstance(model, Fallback):
        yield model
        return
    for alternative in model.alternatives:
        if not isinstance(alternative, str):
            yield from single_models(alternative)


def file_problem(model: ChatModel, file: File) -> str | None:
    """Return why a model, or one of a `Fallback`, does not take a file, in a sentence; None if each takes it."""
    return next((why for one in single_models(model) if (why := problem_with_file(one, file)) is not None), None)


def _check(model: Any) -> None:
    if not isinstance(model, str | ChatModel):
        raise ValueError(f"a Fallback is made of models and their names, not of {model!r}")
