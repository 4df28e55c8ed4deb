"""`kairo metrics`: the metrics of a journal's runs, printed once or served to Prometheus."""

from __future__ import annotations

import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import typer

from kairo_team.cli.exit_codes import LEFT, list_exit_codes
from kairo_team.cli.journals import existing, made
from kairo_team.cli.options import DatabaseOption, FileJournalOption, JsonOption, desk_of
from kairo_team.cli.refusal import Refusal, explain, refusing
from kairo_team.errors import JournalError, Misuse
from kairo_team.views.journal_metrics import CONTENT_TYPE, METRICS, prometheus_text, read_metrics

if TYPE_CHECKING:
    from kairo_team.cli.desk import Desk
    from kairo_team.cluster.health import Answer
    from kairo_team.durable.sql_journal import SqlJournal

metrics_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@metrics_app.command(epilog=list_exit_codes("printed", {LEFT: "ended by Ctrl-C (--listen)"}))
def metrics(
    context: typer.Context,
    *,
    listen: Annotated[
        str | None,
        typer.Option(metavar="[HOST:]PORT", help="Serve /metrics there until Ctrl-C; a port alone: on this machine."),
    ] = None,
    journal: FileJournalOption = None,
    database: DatabaseOption = None,
    json: JsonOption = False,
) -> int:
    """Print how many runs, questions, workers and calls in doubt a journal has, in the text format of Prometheus.

    With --listen one process serves them for all workers of a database. Labels have the names of teams and accounts;
    no goal, prompt or reply is shown.
    """
    desk = desk_of(context, json=json)
    if json and listen is not None:
        raise Refusal("--json prints the metrics once, --listen serves them: choose one")
    with made(existing(journal, database)) as book:
        if listen is not None:
            return _serve(book, listen, desk)
        values = read_metrics(book)
    document = {
        "metrics": [{"name": one.metric, "labels": dict(one.labels), "value": one.value} for one in values],
        "units": {name: about.unit for name, about in METRICS.items()},
    }
    text = prometheus_text(values).removesuffix("\n")
    return desk.present(document, lambda screen: screen.print_text(text))


def _serve(journal: SqlJournal, listen: str, desk: Desk) -> int:
    """Serve the metrics until Ctrl-C."""
    from kairo_team.cluster.health import Answer, TextServer  # serving alone needs them

    reading = threading.Lock()

    def answer(path: str) -> Answer:
        if path != "/metrics":
            return Answer(HTTPStatus.NOT_FOUND, "there is /metrics")
        try:
            with reading:  # one scrape at a time, however many ask
                return Answer(HTTPStatus.OK, prometheus_text(read_metrics(journal)), CONTENT_TYPE)
        except JournalError as error:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, explain(error))

    with refusing(Misuse):
        server = TextServer(listen, answer)
    with server:
        desk.screen.print_text(f"metrics: port {server.port}, /metrics")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            return LEFT
    return 0
