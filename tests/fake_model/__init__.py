"""A fake model behind a real HTTP server that speaks the providers' wire formats."""

from tests.fake_model.server import FakeModel

__all__ = ["FakeModel"]
