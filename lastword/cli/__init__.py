"""The command line: parse, call the client, render.

Text and JSON go to stdout, status and progress to stderr. Exit codes: 0 completed, 1 the child did not complete,
2 usage, 3 no server or worker, 130 cancelled from the keyboard.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated, Any, cast

import typer

from lastword.cli import (
    chatting,
    delegating,
    doctoring,
    embedded_commands,
    inspecting,
    permitting,
    reading_log,
    serving_mcp,
    treeing,
)
from lastword.cli.errors import INTERRUPTED, NOT_COMPLETED, USAGE, tell
from lastword.core.errors import LastwordError, RequestInvalid
from lastword.process_exit import leave

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Durable delegation for AI agents: whatever cuts a child off, you get its last word.",
)
for module in (
    delegating,
    chatting,
    inspecting,
    permitting,
    treeing,
    reading_log,
    doctoring,
    embedded_commands,
    serving_mcp,
):
    module.register(app)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from importlib.metadata import version as version_of

        print(version_of("lastword"))
        raise typer.Exit


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give back its exit code; nothing it does ends in a traceback for a foreseen error."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _check_encoding(words)
        code = app(args=words, prog_name="lastword", standalone_mode=False)
    except LastwordError as error:
        return tell(error)
    except typer.TyperException as error:
        return _tell_usage(error)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return NOT_COMPLETED
    return code if isinstance(code, int) else 0


def main() -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A child may say what this terminal cannot show.
        sys.stdout.reconfigure(errors="replace")
    leave(run())


def _check_encoding(words: Sequence[str]) -> None:
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise RequestInvalid(
                f"The argument {word[:40]!a} is not UTF-8; convert it, or check LANG and LC_ALL."
            ) from None


def _tell_usage(error: typer.TyperException) -> int:
    # Every error of the command line has these; the type that is exported does not say so.
    usage = cast(Any, error)
    context = getattr(usage, "ctx", None)
    path = context.command_path if context is not None else "lastword"
    if type(usage).__name__ == "NoArgsIsHelpError":
        usage.show()
    else:
        message = str(usage.format_message()).rstrip(".")
        print(f"error: {message}. See `{path} --help`.", file=sys.stderr)
    return USAGE
