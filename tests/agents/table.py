"""Writes the table of docs/children.md from what the last run of the agents' tests saw."""

from __future__ import annotations

import json
from pathlib import Path

from tests.agents.rigs import RIGS

ROOT = Path(__file__).parents[2]
BEGIN, END = "<!-- agents: made by make agents-table -->", "<!-- /agents -->"
COLUMNS = {
    "version": "version",
    "text": "answers",
    "cut": "cut, text",
    "cut-call": "cut, tool call only",
    "refusal": "refusal",
    "drop": "connection dropped",
    "http401": "wrong key",
    "cancel": "cancel",
    "killed": "worker killed",
    "resume": "resumes",
}


def table(report: dict[str, dict[str, str]]) -> str:
    """Markdown: a row an agent, with the stop reason that each case ended with."""
    head = ["agent", *COLUMNS.values(), "asks", "rejected", "allowed"]
    rows = [head, ["---"] * len(head)]
    for rig in RIGS:
        seen = report.get(rig.backend, {})
        cells = [seen.get(name, "") for name in COLUMNS]
        asks = {"asked": "yes", "not asked": "no"}.get(seen.get("asked-reject", ""), "")
        rows.append([rig.backend, *cells, asks, seen.get("written-reject", ""), seen.get("written-allow", "")])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    report = json.loads((ROOT / ".agents/report.json").read_text())
    docs = ROOT / "docs/children.md"
    before, rest = docs.read_text().split(BEGIN)
    docs.write_text(f"{before}{BEGIN}\n\n{table(report)}\n\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    main()
