"""What a newcomer may rely on when opening a file."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("lastword", "workflows", "activities", "tests", "benchmarks", "examples")


def sources() -> list[Path]:
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    return [path for path in found if "lastword/workflows" not in str(path) and "lastword/activities" not in str(path)]


def test_no_file_is_longer_than_400_lines() -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in sources()}
    assert lengths
    assert {name: length for name, length in lengths.items() if length > 400} == {}


def test_no_module_has_a_name_that_says_nothing() -> None:
    assert [path for path in sources() if path.stem in ("utils", "common", "helpers", "shared")] == []


def test_the_folders_of_the_package_are_links_to_those_at_the_top() -> None:
    for name in ("workflows", "activities"):
        assert (ROOT / "lastword" / name).resolve() == ROOT / name
