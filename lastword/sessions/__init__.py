"""The session log, kept on an object store or in a directory."""

from lastword.sessions.store import ObstoreSessionStore, open_store

__all__ = ["ObstoreSessionStore", "open_store"]
