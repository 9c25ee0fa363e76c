"""What can go wrong, as one tree. Every message gives the fact, the value and the remedy in one or two lines."""

from __future__ import annotations


class LastwordError(Exception):
    """Anything that lastword refuses or cannot do."""


class RequestInvalid(LastwordError):
    """The request's shape is wrong; no child was started."""


class RequestRejected(LastwordError):
    """The backend that would run the request cannot do it; no child was started."""


class RequestConflict(LastwordError):
    """The id already belongs to another request."""


class DelegationNotFound(LastwordError):
    """No delegation has this id on this server."""


class ConfigurationError(LastwordError):
    """A setting is wrong or missing."""


class ServerUnreachable(LastwordError):
    """No Temporal server answers at the address."""


class WorkerUnavailable(LastwordError):
    """No worker picks up tasks from the queue."""


class CheckpointInvalid(LastwordError):
    """A checkpoint cannot be read by this version."""


class LogUnavailable(LastwordError):
    """The session log's store does not answer."""


class Fenced(LastwordError):
    """Another attempt owns the turn: this one may not write to the session log, run a tool or report a result."""


class ResumeRefused(LastwordError):
    """The agent's session is gone; the turn can only restart or settle."""


class ConversationClosed(LastwordError):
    """The conversation has closed, or is closing: it takes no more messages."""


class MessageDropped(LastwordError):
    """A message that was accepted and will never become a turn: the conversation was closed before."""
