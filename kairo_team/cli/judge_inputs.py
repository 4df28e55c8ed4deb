"""The inputs of `kairo judge`: labelled examples, a rubric and judges."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kairo_team.budget import Budget
from kairo_team.cli.budgets import limited
from kairo_team.cli.loading import importable, load_module, load_trusted, read_spec
from kairo_team.cli.refusal import Refusal, explain, refusing
from kairo_team.data.files import SUFFIXES
from kairo_team.errors import HaltError, KairoError, known
from kairo_team.evaluators.agent_judge import AgentEvaluationStrategy
from kairo_team.evaluators.calibration.labelled import LabelledArtifact, read_labelled
from kairo_team.evaluators.combined import CascadeEvaluationStrategy
from kairo_team.evaluators.rubric import Rubric, load_rubric

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from kairo_team.contracts import EvaluationStrategy


@dataclass(frozen=True, slots=True)
class JudgeJob:
    """The judges, the rubric, the examples and the budget."""

    strategy: EvaluationStrategy
    labelled: list[LabelledArtifact]
    judges: Sequence[str]
    """Names of the judges on the command line."""
    budget: Budget
    repeats: int


def judge_job(
    stack: ExitStack, file: str, judges: Sequence[str], rubric: str, budget: str | None, repeats: int, votes: int | None
) -> JudgeJob:
    """Build the job that the command line describes; the files' own imports work until the stack is closed."""
    labelled = read_labels(Path(file))
    found = read_rubric(stack, rubric)
    with refusing(ValueError):
        stages = [AgentEvaluationStrategy(read_judge(stack, one), found, votes=votes) for one in judges]
        strategy = stages[0] if len(stages) == 1 else CascadeEvaluationStrategy(stages)
        return JudgeJob(strategy, labelled, judges, limited(Budget(), budget), repeats)


def read_labels(file: Path) -> list[LabelledArtifact]:
    """Read a file of labelled examples."""
    if not file.is_file():
        raise Refusal(f"there is no file {str(file)!r}: give the path of a JSON Lines file of labelled examples")
    try:
        labelled = read_labelled(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise Refusal(f"{str(file)!r} is not UTF-8 text: give a JSON Lines file of labelled examples") from None
    except OSError as error:
        raise Refusal(f"{str(file)!r} cannot be read: {explain(error)}") from None
    except ValueError as error:
        raise Refusal(f"{file}: {error}") from None
    if not labelled:
        raise Refusal(f"{file} holds no examples: one a line, with artifact, task and passed")
    return labelled


def read_rubric(stack: ExitStack, text: str) -> Rubric:
    """Return a file's rubric: from data, or from FILE.py[:NAME] the named one, or else the only one."""
    if Path(text).suffix.lower() in SUFFIXES:
        data = Path(text)
        if not data.is_file():
            raise Refusal(f"there is no file {str(data)!r:.200}: give the path of a rubric")
        return load_trusted(load_rubric, data)
    module, file, name = _module(stack, text, f"a Rubric, or of data in {', '.join(SUFFIXES)}")
    rubrics = {key: one for key, one in vars(module).items() if isinstance(one, Rubric)}
    if name is not None:
        if name not in rubrics:
            raise Refusal(f"{file} has no rubric {name!r}: it has {known(rubrics)}")
        return rubrics[name]
    public = {key: one for key, one in rubrics.items() if not key.startswith("_")}
    if len(public) != 1:
        example = f"{known(public)}: name one, as in {file}:{next(iter(public), '')}"
        raise Refusal(
            f"{file} builds several rubrics, {example}" if public else f"{file} builds no Rubric at its top level"
        )
    return next(iter(public.values()))


def read_judge(stack: ExitStack, text: str) -> Any:
    """Return a model's name unchanged, or the object that FILE.py:NAME names."""
    if text.endswith(".py"):
        raise Refusal(f"--judge {text!r:.200} is a file: name the judge that it builds, such as {text:.200}:judge")
    if ".py:" not in text:
        return text
    module, file, name = _module(stack, text, "a chat model or an agent")
    if name is None or not hasattr(module, name):
        raise Refusal(f"{file} has no {name!r}: name a chat model or an agent that it builds, as in FILE.py:NAME")
    return getattr(module, name)


def _module(stack: ExitStack, text: str, builds: str) -> tuple[ModuleType, Path, str | None]:
    spec = read_spec(text, builds, "NAME")
    stack.enter_context(importable(spec.folder))
    return load_module(spec), spec.file, spec.team


@contextmanager
def asking(unpaid: str, more: str = "give more with --budget") -> Generator[None]:
    """Turn the error of a judge that cannot be asked into a `Refusal`; `unpaid` says what was not paid."""
    try:
        yield
    except HaltError as halt:
        raise Refusal(f"{unpaid}: {halt}: {more}") from None
    except (KairoError, ValueError) as error:
        raise Refusal(explain(error)) from None
