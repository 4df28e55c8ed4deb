"""`Fallback`: another model when one does not answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, get_args

from kairo_team._util.frozen import known_arguments
from kairo_team.contracts import ChatModel
from kairo_team.errors import ModelCallError, ModelErrorKind, known

if TYPE_CHECKING:
    from kairo_team.messages import ModelRequest, ModelResponse

_KINDS: Final[frozenset[ModelErrorKind]] = frozenset(get_args(ModelErrorKind))
_ANOTHER_MAY_DO: Final[frozenset[ModelErrorKind]] = _KINDS - {"bad_request", "content_filter"}


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
        if not self.on <= _KINDS:
            raise ValueError(f"Fallback: no such kind of error as {known(self.on - _KINDS)}; there are {known(_KINDS)}")

    @property
    def name(self) -> str:
        """The `provider:model` of the first model."""
        first = self.alternatives[0]
        return first if isinstance(first, str) else first.name

    async def complete(self, request: ModelRequest) -> ModelResponse:
        """Answer one request, ungoverned; names among the models must be resolved."""
        from kairo_team.models.resolver import ModelResolver

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
        return await call(last)

    def resolved(self, resolve: Callable[[str | ChatModel], ChatModel]) -> Fallback:
        """Return a copy with each name replaced by its model; raise what `resolve` raises."""
        first, *others = map(resolve, self.alternatives)
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


def _check(model: Any) -> None:
    if not isinstance(model, str | ChatModel):
        raise ValueError(f"a Fallback is made of models and their names, not of {model!r}")
