"""`kairo console`: recorded runs in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

from kairo_team.cli.exit_codes import list_exit_codes
from kairo_team.cli.journals import opened
from kairo_team.cli.numbers import whole_number
from kairo_team.cli.options import (
    BehindProxyOption,
    DatabaseOption,
    HostOption,
    JournalOption,
    TlsCertOption,
    TlsKeyOption,
)
from kairo_team.cli.refusal import Refusal, refusing
from kairo_team.errors import Misuse
from kairo_team.views.other_journals import OtherJournal
from kairo_team.web_console.console import console as make_console

console_app = typer.Typer(add_completion=False, rich_markup_mode=None)


@console_app.command(epilog=list_exit_codes("ended by Ctrl-C"))
def console(
    *,
    journal: JournalOption = None,
    database: DatabaseOption = None,
    host: HostOption = "127.0.0.1",
    port: Annotated[int, whole_number("Its port; 0: a free one.", 0, 65_535)] = 0,
    person: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="The name of who answers; a browser may give another.")
    ] = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    behind_proxy: BehindProxyOption = False,
    name: Annotated[
        list[str] | None, typer.Option(metavar="HOST", help="A host name that browsers use; may be repeated.")
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(envvar="KAIRO_CONSOLE_TOKEN", hidden=True, help="Set by the environment alone."),
    ] = None,
) -> int:
    """Show recorded runs in a browser, live, and answer their questions there. Prints the link that lets you in."""
    with opened(journal, database) as book:
        if isinstance(book, OtherJournal):
            raise Refusal(f"the console shows a file or a database, not {book.place}: kairo runs and show do")
        with refusing(Misuse, ValueError, OSError):
            made = make_console(
                book,
                host=host,
                port=port,
                token=token,
                person=person,
                tls_cert=tls_cert,
                tls_key=tls_key,
                behind_proxy=behind_proxy,
                names=tuple(name or ()),
            )
            made.start()
        try:
            print(f"The console is open at {made.link}", flush=True)
            print("Anyone with this link can answer questions and end runs. Ctrl-C ends the console.", flush=True)
            made.wait()
        except KeyboardInterrupt:
            return 0
        finally:
            made.close()
    return 0
