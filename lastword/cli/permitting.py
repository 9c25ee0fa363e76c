"""`questions` and `answer`: what children wait to be permitted."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from lastword.cli.connection import AsJson, DataDir, connect
from lastword.cli.errors import COMPLETED, told_as_json
from lastword.cli.rendering import note, print_json

if TYPE_CHECKING:
    from lastword.core.permissions import Question


class Decision(StrEnum):
    allow = "allow"
    reject = "reject"


def register(app: typer.Typer) -> None:
    app.command("questions")(questions)
    app.command("answer")(answer)


def questions(
    id: Annotated[str | None, typer.Argument(help="Of this delegation; of all without one.", metavar="[ID]")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """List what children wait to be permitted, oldest first."""

    async def go() -> int:
        client = await connect(data_dir)
        found = await client.all_questions() if id is None else await client.questions(id)
        if as_json:
            print_json([question.model_dump(mode="json", exclude_none=True) for question in found])
        for question in () if as_json else found:
            print(told(question), flush=True)
        if not found and not as_json:
            note("no questions")
        return COMPLETED

    with told_as_json(as_json, id):
        return asyncio.run(go())


def answer(
    id: Annotated[str, typer.Argument(help="The delegation's id.", metavar="ID")],
    decision: Annotated[Decision, typer.Argument(help="allow or reject.")],
    question: Annotated[str | None, typer.Option("--question", help="Which, if the child waits for more.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> int:
    """Allow or reject what a child waits for. It is told at once, or as soon as it runs again."""

    async def go() -> int:
        client = await connect(data_dir)
        answered = await client.answer(id, decision.value, question=question)
        if as_json:
            print_json({"id": id, "question": answered.id, "decision": decision.value})
        else:
            note(f"{decision.value}: {answered.kind} {answered.title}".rstrip())
        return COMPLETED

    with told_as_json(as_json, id):
        return asyncio.run(go())


def told(question: Question) -> str:
    """A question on a line: whose, what, and how long it still waits."""
    left = question.asked / 1000 + question.answer_within - datetime.now(UTC).timestamp()
    what = " ".join([question.kind, *([repr(question.title)] if question.title else []), *question.paths])
    return f"{question.delegation_id}  {question.id}  {what}  ({max(left, 0):.0f} s left)"
