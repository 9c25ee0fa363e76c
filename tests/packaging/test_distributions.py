"""What is built, and that it lives beside other people's packages (decision 0001)."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


@pytest.mark.timeout(300)
def test_the_wheel_has_its_workflows_and_activities_inside(dist: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    files = zipfile.ZipFile(wheel).namelist()
    assert "lastword/workflows/delegation.py" in files
    assert "lastword/activities/run_child_turn.py" in files
    assert {name.split("/")[0] for name in files if not name.startswith("lastword-")} == {"lastword"}


def test_the_sdist_has_them_where_the_repository_has_them(dist: Path) -> None:
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    assert {"workflows/delegation.py", "activities/run_child_turn.py", "lastword/client.py", "worker.py"} <= files


@pytest.mark.timeout(300)
def test_it_lives_beside_a_package_that_owns_the_name_workflows(dist: Path, tmp_path: Path) -> None:
    (wheel,) = dist.glob("*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "llama-index-workflows")
    run(python, "-m", "pip", "install", "--quiet", wheel)
    printed = run(
        python, "-c",
        "import workflows, lastword.workflows.delegation as d, lastword.client; print(workflows.__file__, d.__file__)",
    )  # fmt: skip
    theirs, ours = printed.split()
    assert "lastword" not in theirs
    assert ours.endswith("lastword/workflows/delegation.py")
