"""`chat`, `send`, `ask`, `interrupt`, `close`: a child that goes on."""

from __future__ import annotations

import asyncio
import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastword.cli.asking import (
    Delegation,
    Fork,
    Mcp,
    Permissions,
    Reports,
    conversation_of,
    delegation_policy,
    mcp_servers,
    permission_policy,
    prompt_of,
)
from lastword.cli.connection import AsJson, DataDir, converse
from lastword.cli.errors import COMPLETED, INTERRUPTED, NOT_COMPLETED, told_as_json
from lastword.cli.rendering import LiveText, note, note_ending, print_json, print_text, result_json
from lastword.core.errors import DelegationNotFound, LastwordError, RequestInvalid

if TYPE_CHECKING:
    from lastword.conversing import ConversationClient
    from lastword.core.contract import DelegationResult

Id = Annotated[str, typer.Argument(help="The conversation's id.", metavar="ID")]
MessageId = Annotated[str | None, typer.Option("--message-id", help="The same again is the same message.")]


class Mode(StrEnum):
    finish = "finish"
    cancel = "cancel"
    abandon = "abandon"


def register(app: typer.Typer) -> None:
    for command in (chat, send, ask, interrupt, close):
        app.command(command.__name__)(command)


def chat(
    id: Annotated[str | None, typer.Argument(help="A conversation; a new one without.", metavar="[ID]")] = None,
    backend: Annotated[str, typer.Option("--backend", help="See `lastword backends`.")] = "in-process",
    model: Annotated[str | None, typer.Option("--model", help="PROVIDER:NAME, e.g. openai:gpt-5.")] = None,
    persona: Annotated[str | None, typer.Option("--persona", help="The system prompt.")] = None,
    label: Annotated[str | None, typer.Option("--label", help="A name for people.")] = None,
    cwd: Annotated[str | None, typer.Option("--cwd", help="The child's working directory.")] = None,
    permissions: Permissions = None,
    mcp: Mcp = None,
    delegation: Delegation = None,
    reports: Reports = False,
    fork: Fork = None,
    data_dir: DataDir = None,
) -> int:
    """Talk to a child, a line a message. Ctrl-C interrupts its turn; Ctrl-D leaves, and the child stays.

    An ID that exists is attached to, whatever the options; a new one is started with them.
    """
    fields: dict[str, Any] = {
        "backend": backend,
        "model": model,
        "persona": persona,
        "label": label,
        "cwd": str(Path(cwd).absolute()) if cwd else None,
        "reports": reports,
    }
    if permissions is not None:
        fields["permissions"] = permission_policy(permissions)
    if mcp is not None:
        fields["mcp_servers"] = mcp_servers(mcp)
    if delegation is not None:
        fields["delegation"] = delegation_policy(delegation)

    async def go() -> int:
        client = await converse(data_dir)
        chosen = await _attach(client, id, fork, fields)
        note(f"id: {chosen}")
        return await _Chat(client, chosen).run()

    return asyncio.run(go())


async def _attach(client: ConversationClient, id: str | None, fork: str | None, fields: dict[str, Any]) -> str:
    from lastword.client import DelegationClient

    if id is not None:
        try:
            await client.status(id)
        except DelegationNotFound:
            pass
        else:
            if fork is not None:
                raise RequestInvalid(f"The conversation {id!r} exists already; a fork needs a new id.")
            return id
    if fork is not None:
        # A delegation's and a conversation's completed turns are read alike.
        known = DelegationClient(client.client, task_queue=client.task_queue, store=client.store)
        fields = {**fields, "seed": await known.transcript(fork)}
    return await client.start(conversation_of(fields), id=id)


class _Chat:
    """One terminal's side of a conversation."""

    def __init__(self, client: ConversationClient, id: str) -> None:
        self._client = client
        self._id = id
        self._talking = False
        self._interrupting: asyncio.Task[None] | None = None

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)
        try:
            while (line := await asyncio.to_thread(_read_line)) is not None:
                if line.strip():
                    await self._say(line)
        finally:
            loop.remove_signal_handler(signal.SIGINT)
        note(f"left {self._id}; the child stays. Come back with: lastword chat {self._id}")
        return COMPLETED

    async def _say(self, line: str) -> None:
        from lastword.watching import Closed

        self._talking = True
        text = LiveText()
        try:
            status = await self._client.status(self._id)
            accepted = await self._client.send(self._id, line)
            if accepted.ahead:
                note(f"{accepted.ahead} before it")
            async for item in self._client.watch(self._id, accepted.message_id, since=status):
                if isinstance(item, Closed):
                    text.finish(item.result)
                    note_ending(item.result)
                else:
                    text.take(item)
        except LastwordError as error:
            text.end_line()
            note(f"error: {error}", style="yellow")
        finally:
            self._talking = False

    def _on_interrupt(self) -> None:
        if not self._talking:
            note("Ctrl-D leaves; the child stays")
        elif self._interrupting is None or self._interrupting.done():
            note("interrupting")
            self._interrupting = asyncio.create_task(self._interrupt())

    async def _interrupt(self) -> None:
        try:
            await self._client.interrupt(self._id)
        except LastwordError as error:
            note(f"the interrupt may not have arrived: {error}", style="yellow")


def _read_line() -> str | None:
    """The next line without its end, None at the end of stdin."""
    if sys.stdin.isatty():
        print("> ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.buffer.readline()
    return line.decode(errors="replace").rstrip("\r\n") if line else None


def send(
    id: Id,
    prompt: Annotated[str, typer.Argument(help="The message; - reads it from stdin.")],
    message_id: MessageId = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Give a child a message; print the message's id when it is durable."""

    async def go() -> int:
        client = await converse(data_dir)
        accepted = await client.send(id, prompt_of(prompt), message_id=message_id)
        if as_json:
            print_json(accepted.model_dump(mode="json"))
        else:
            print(accepted.message_id, flush=True)
        return COMPLETED

    with told_as_json(as_json, id):
        return asyncio.run(go())


def ask(
    id: Id,
    prompt: Annotated[str, typer.Argument(help="The message; - reads it from stdin.")],
    message_id: MessageId = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Send a message, wait for its turn, and print the answer. Ctrl-C stops waiting; the child goes on."""

    async def go() -> int:
        client = await converse(data_dir)
        done = await client.ask(id, prompt_of(prompt), message_id=message_id)
        return _print(done, as_json)

    with told_as_json(as_json, id):
        try:
            return asyncio.run(go())
        except KeyboardInterrupt:
            return INTERRUPTED


def _print(done: DelegationResult, as_json: bool) -> int:
    from lastword.core.events import text_of

    if as_json:
        print_json(result_json(done))
    else:
        print_text(text_of(done.result.output))
    note_ending(done)
    return COMPLETED if done.result.completed else NOT_COMPLETED


def interrupt(id: Id, as_json: AsJson = False, data_dir: DataDir = None) -> int:
    """End a child's running turn, not the child. Its partial is kept; what is queued waits for the next message."""

    async def go() -> int:
        client = await converse(data_dir)
        ended = await client.interrupt(id)
        if as_json:
            print_json(ended.model_dump(mode="json"))
        elif ended.message_id is None:
            note("no turn is running")
        else:
            note(f"interrupted {ended.message_id}; {ended.parked} messages wait for the next send")
        return COMPLETED

    with told_as_json(as_json, id):
        return asyncio.run(go())


def close(
    id: Id,
    mode: Annotated[Mode, typer.Option("--mode", help="What becomes of the queue and the running turn.")] = Mode.finish,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Take no more messages. finish: the queue first; abandon: only the running turn; cancel: that is cancelled too."""

    async def go() -> int:
        client = await converse(data_dir)
        closing = await client.close(id, mode.value)
        if as_json:
            print_json(closing.model_dump(mode="json"))
        else:
            note(f"closing ({closing.mode}); {len(closing.dropped)} messages dropped")
            for message_id in closing.dropped:
                print(message_id)
            sys.stdout.flush()
        return COMPLETED

    with told_as_json(as_json, id):
        return asyncio.run(go())
