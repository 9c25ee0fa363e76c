"""The command line: parse, call the client, render.

Text and JSON go to stdout, status and progress to stderr. Exit codes: 0 completed, 1 the child did not complete,
2 usage, 3 no server or worker, 130 cancelled from the keyboard.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, cast

import typer

from lastword.cli import delegating, doctoring, embedded_commands, inspecting
from lastword.cli.errors import INTERRUPTED, USAGE, exit_code_of
from lastword.core.errors import LastwordError
from lastword.process_exit import leave

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Durable delegation for AI agents: whatever cuts a child off, you get its last word.",
)
for module in (delegating, inspecting, doctoring, embedded_commands):
    module.register(app)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        from importlib.metadata import version as version_of

        print(version_of("lastword"))
        raise typer.Exit


def run(arguments: list[str] | None = None) -> int:
    """Run one command and give back its exit code; nothing it does ends in a traceback for a foreseen error."""
    try:
        code = app(args=arguments, prog_name="lastword", standalone_mode=False)
    except LastwordError as error:
        print(f"error: {error}", file=sys.stderr)
        return exit_code_of(error)
    except typer.TyperException as error:
        # Every error of the command line has it; the type that is exported does not say so.
        cast(Any, error).show()
        return USAGE
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        return 1
    return code if isinstance(code, int) else 0


def main() -> None:
    leave(run())
