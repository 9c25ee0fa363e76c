"""What the fake model says, chosen by a marker in the newest user text: `[[scn:NAME]]` or `[[scn:NAME:ARGUMENT]]`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from lastword.core.recovery import GO_ON

Finish: TypeAlias = Literal["stop", "length", "tool", "refusal"]

_MARK = re.compile(r"\[\[scn:([a-z0-9_]+)(?::(.*?))?\]\]", re.S)


@dataclass(frozen=True)
class Say:
    text: str


@dataclass(frozen=True)
class Refuse:
    """Words of a refusal, where a provider has a field of its own for them."""

    text: str


@dataclass(frozen=True)
class Call:
    name: str
    fragments: tuple[str, ...]
    id: str | None = None


@dataclass(frozen=True)
class Wait:
    seconds: float


@dataclass(frozen=True)
class Drop:
    """Cut the connection."""


Step: TypeAlias = Say | Refuse | Call | Wait | Drop


@dataclass
class Plan:
    name: str
    steps: list[Step] = field(default_factory=list)
    finish: Finish = "stop"
    pace: float = 0.01
    """Seconds between two events."""


def texts(value: Any) -> Iterator[str]:
    """Every piece of text in a message, whatever the provider's shape."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, dict):
        for key in ("text", "content", "parts", "input"):
            if key in value:
                yield from texts(value[key])


def choose(messages: list[dict[str, Any]], is_tool_result: Callable[[dict[str, Any]], bool]) -> Plan:
    """The plan for a request, whose messages are given newest last."""
    marks = [mark.groups() for m in messages if m.get("role") == "user" for t in texts(m) for mark in _MARK.finditer(t)]
    name, argument = marks[-1] if marks else ("text", None)
    if name == "twice" and sum(map(is_tool_result, messages)) < 2:
        tool, _, arguments = (argument or "").partition(":")
        return Plan(name, [Call(tool, (arguments,), id="call_0")], "tool")
    if name == "tool_then_slow":
        return _tool_then_slow(argument or "", messages, is_tool_result)
    if messages and is_tool_result(messages[-1]):
        return Plan("after_tool", [Say("Tool result "), Say("seen, done.")])
    return plan_of(name, argument)


def _tool_then_slow(
    argument: str, messages: list[dict[str, Any]], is_tool_result: Callable[[dict[str, Any]], bool]
) -> Plan:
    """A tool call; after its result a count too long to end; asked again then, an answer."""
    if not any(map(is_tool_result, messages)):
        tool, _, arguments = argument.partition(":")
        return Plan("tool_then_slow", [Say("Calling. "), Call(tool, (arguments,))], "tool")
    # A provider's client may put the tool's result and what the user says then into one message.
    if is_tool_result(messages[-1]) and not any(GO_ON in text for text in texts(messages[-1])):
        return Plan("counting", plan_of("slow", "2000").steps)
    return Plan("went_on", [Say("All of it: "), Say("counted.")])


def plan_of(name: str, argument: str | None) -> Plan:
    if name == "tool":
        tool, _, arguments = (argument or 'echo:{"text":"hi"}').partition(":")
        return Plan(name, [Say("Calling. "), Call(tool, (arguments[:5], arguments[5:]))], "tool")
    if name == "slow":
        steps: list[Step] = []
        for n in range(int(argument or 300)):
            steps += [Say(f"tick{n} "), Wait(0.05)]
        return Plan(name, steps)
    if name == "answer":
        return Plan(name, [Call("final_answer", (argument or "{}",))], "tool")
    truncated = Call(argument or "echo", ('{"command": "ec', "ho trunca"))
    fixed: dict[str, Plan] = {
        "text": Plan(name, [Say(word) for word in ("Hello ", "from ", "the ", "fake ", "model.")]),
        "length": Plan(name, [Say("This answer is cut "), Say("off in the mid")], "length"),
        "length_tool": Plan(name, [truncated], "length"),
        "length_text_tool": Plan(name, [Say("Let me run it."), truncated], "length"),
        "empty": Plan(name),
        "refusal": Plan(name, [Say("I can")], "refusal"),
        "drop": Plan(name, [Say("half of an "), Say("answer"), Drop()]),
        "hang": Plan(name, [Say("then nothing"), Wait(3600)]),
        "refusal_words": Plan(name, [Refuse("I must "), Refuse("decline.")]),
        "cut_answer": Plan(name, [Call("final_answer", ('{"n": 3, "why": "bec',))], "length"),
        "hanging_answer": Plan(name, [Call("final_answer", ('{"n": 3, ', '"why": "bec')), Wait(3600)], "tool"),
        "flood": Plan(name, [Say(f"{n} ") for n in range(500)], pace=0),
        "badargs": Plan(name, [Call("echo", ("not json",))], "tool"),
    }
    return fixed.get(name) or Plan(name, [Say(f"unknown scenario {name}")])
