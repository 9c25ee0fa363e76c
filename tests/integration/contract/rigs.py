"""One way to run a child each: how a case of the contract is put to it, and what must come of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lastword.backends.acp import AcpAgent, AcpBackend
from lastword.backends.in_process import InProcessBackend
from lastword.backends.scripted import ScriptedBackend
from lastword.core.contract import DelegationRequest
from lastword.core.ports import Backend

ACP_AGENT = str(Path(__file__).parents[2] / "fixtures" / "acp_agent.py")
WORDS = "Hello from the fake model."


@dataclass(frozen=True)
class Case:
    """A task, and what must come back. `text` None is not looked at."""

    stop_reason: str
    text: str | None = ""
    category: str | None = None
    task: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Places:
    """Files by which a child and a test wait for each other."""

    here: Path
    gate: Path
    ran: Path


@dataclass(frozen=True)
class Rig:
    """A backend, and its cases by name. A case that a backend cannot be brought to is not among them."""

    name: str
    backend: Callable[[Path], Backend]
    cases: Callable[[Places], dict[str, Case]]
    agents: Callable[[Path], dict[str, Any]] = lambda state: {}
    """For a worker in a process of its own: what its settings say of agents."""

    def request(self, case: Case, **more: Any) -> DelegationRequest:
        return DelegationRequest.model_validate({"prompt": "go", "backend": self.name, **case.task, **more})


def _script(*steps: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"options": {"script": list(steps), **options}}


def _scripted_cases(at: Places) -> dict[str, Case]:
    here, gate, ran = str(at.here), str(at.gate), str(at.ran)
    tool = {"tool": {"id": "1", "appends_to": ran, "result": "ok"}}
    return {
        "completes": Case("completed", WORDS, task=_script({"delta": WORDS}, {"message": None})),
        "cut-with-text": Case("max-tokens", "half", task=_script({"delta": "half"}, {"end": "max-tokens"})),
        "cut-with-only-a-tool-call": Case("max-tokens", "", task=_script(tool, {"end": "max-tokens"})),
        "refuses": Case("refusal", "I can", task=_script({"delta": "I can"}, {"end": "refusal"})),
        "streams": Case("aborted", "so far", task=_script({"delta": "so far"}, {"touch": here}, {"fault": "hang"})),
        "ends-well-after-a-cancel": Case(
            "aborted",
            "so far",
            task=_script({"delta": "so far"}, {"touch": here}, {"wait_for": gate}, on_cancel="late-end-turn"),
        ),
        "crashes": Case("error", "so far", "crash", _script({"delta": "so far"}, {"fault": "raise"})),
        "ends-without-an-end": Case("error", "so far", "unfinished", _script({"delta": "so far"}, {"fault": "eof"})),
        "commits-nonsense": Case("error", "so far", None, _script({"delta": "so far"}, {"fault": "malformed"})),
        "hangs": Case(
            "timeout",
            "so far",
            "idle-limit",
            {**_script({"delta": "so far"}, {"fault": "hang"}), "limits": {"idle": 0.5}},
        ),
        "talks-long": Case(
            "completed", None, task=_script({"text": {"bytes": 3_000_000, "delta_bytes": 3_000_000}}, {"message": None})
        ),
        "asks-for-a-permission": Case(
            "completed", "rejected ", task=_script({"ask": {"kind": "execute"}}, {"message": None})
        ),
        "asks-and-may": Case(
            "completed",
            "allowed ",
            task={**_script({"ask": {"kind": "execute"}}, {"message": None}), "permissions": {"mode": "allow"}},
        ),
        "loses-its-worker": Case(
            "completed",
            "two three",
            task=_script(
                {"delta": "one "}, {"message": None}, tool, {"touch": here}, {"wait_for": gate},
                {"delta": "two "}, {"delta": "three"}, {"message": None},
            ),
        ),
    }  # fmt: skip


def _prompt(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"prompt": json.dumps(steps), **more}


def _acp_cases(at: Places) -> dict[str, Case]:
    here, gate, ran = str(at.here), str(at.gate), str(at.ran)
    far = {"say": "so far"}
    return {
        "completes": Case("completed", WORDS, task=_prompt({"say": "Hello from "}, {"say": "the fake model."})),
        "cut-with-text": Case("max-tokens", "half", task=_prompt({"say": "half"}, {"end": "max_tokens"})),
        "cut-with-only-a-tool-call": Case(
            "max-tokens", "", task=_prompt({"tool": "1", "cut": True}, {"end": "max_tokens"})
        ),
        "refuses": Case("refusal", "I can", task=_prompt({"say": "I can"}, {"end": "refusal"})),
        "streams": Case("aborted", "so far", task=_prompt(far, {"touch": here}, {"hang": True})),
        "ends-well-after-a-cancel": Case(
            "aborted", "so far", task=_prompt({"on_cancel": "end_turn"}, far, {"touch": here}, {"hang": True})
        ),
        "ignores-a-cancel": Case(
            "aborted", "so far", task=_prompt({"on_cancel": "ignore"}, far, {"touch": here}, {"hang": True})
        ),
        "crashes": Case("error", "so far", "crash", _prompt(far, {"stderr": 500}, {"exit": 3})),
        "is-killed": Case("error", "so far", "crash", _prompt(far, {"kill": "SIGKILL"})),
        "ends-without-an-end": Case("error", "so far", "unfinished", _prompt(far, {"eof": True})),
        "fails": Case("error", "so far", "agent-error", _prompt(far, {"error": -32603})),
        "writes-junk": Case("completed", "so far", task=_prompt({"raw": "no JSON"}, {"raw": "[1, 2]"}, far)),
        "writes-broken-utf-8": Case(
            "completed",
            "so � far",
            task=_prompt({"hex": _broken_chunk()}),
        ),
        "says-nothing": Case("error", "", "empty-reply", _prompt()),
        "ends-for-no-known-reason": Case("error", "so far", "protocol", _prompt(far, {"end": "moonphase"})),
        "cancels-itself": Case("error", "so far", "agent-cancelled", _prompt(far, {"end": "cancelled"})),
        "hangs": Case("timeout", "so far", "idle-limit", _prompt(far, {"hang": True}, limits={"idle": 0.5})),
        "talks-long": Case("completed", None, task=_prompt({"long": 3_000_000})),
        "talks-too-long": Case("error", "so far", "protocol", _prompt(far, {"long": 17_000_000}, {"hang": True})),
        "asks-for-a-permission": Case("completed", "[reject_once]", task=_prompt({"tool": "1", "ask": True})),
        "asks-and-may": Case(
            "completed", "[allow_once]", task=_prompt({"tool": "1", "ask": True}, permissions={"mode": "allow"})
        ),
        "loses-its-worker": Case(
            "completed",
            "two three",
            task=_prompt(
                {"say": "one "}, {"tool": "1", "appends": ran}, {"touch": here}, {"wait": gate},
                {"say": "two "}, {"say": "three"},
            ),
        ),
    }  # fmt: skip


def _broken_chunk() -> str:
    line = (
        b'{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"agent_message_chunk",'
        b'"content":{"type":"text","text":"so \xff far"}}}}'
    )
    return line.hex()


def acp_agent(state: Path, **env: str) -> AcpAgent:
    return AcpAgent(command=[sys.executable, ACP_AGENT], env={"ACP_AGENT_STATE": str(state), **env})


def _model(scenario: str, **more: Any) -> dict[str, Any]:
    return {"prompt": f"[[scn:{scenario}]]", "model": "openai-chat:fake", **more}


def _in_process_cases(at: Places) -> dict[str, Case]:
    return {
        "completes": Case("completed", WORDS, task=_model("text")),
        "cut-with-text": Case("max-tokens", "This answer is cut off in the mid", "max-tokens", _model("length")),
        "cut-with-only-a-tool-call": Case("max-tokens", "", "truncated-tool-call", _model("length_tool")),
        "refuses": Case("refusal", "I can", None, _model("refusal")),
        "ends-without-an-end": Case("error", "half of an answer", "connection", _model("drop")),
        "says-nothing": Case("error", "", "empty-reply", _model("empty")),
        "fails": Case("error", "", "authentication", _model("http401")),
        "hangs": Case("timeout", "then nothing", "idle-limit", _model("hang", limits={"idle": 2})),
        "streams": Case("aborted", None, task=_model("slow:400")),
        "loses-its-worker": Case("completed", None, task=_model("slow:60")),
    }


RIGS = [
    Rig("scripted", lambda state: ScriptedBackend(), _scripted_cases),
    Rig(
        "acp:test",
        lambda state: AcpBackend("acp:test", acp_agent(state)),
        _acp_cases,
        lambda state: {"test": acp_agent(state).model_dump(exclude_defaults=True)},
    ),
    Rig("in-process", lambda state: InProcessBackend(retries=0), _in_process_cases),
]
