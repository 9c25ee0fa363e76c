"""Names that cross a process: workflow, activity and queue names, and what an id may look like."""

from __future__ import annotations

import hashlib
import re
from typing import Final

from lastword.core.errors import RequestInvalid

DELEGATION_WORKFLOW: Final = "DelegationWorkflow"
CONVERSATION_WORKFLOW: Final = "ConversationWorkflow"
PING_WORKFLOW: Final = "LastwordPing"
RUN_CHILD_TURN: Final = "run_child_turn"
SETTLE: Final = "settle"
DESCRIBE_WORKER: Final = "describe_worker"

CANCEL_UPDATE: Final = "cancel"
ASK_UPDATE: Final = "ask_permission"
ANSWER_UPDATE: Final = "answer_permission"
QUESTIONS_QUERY: Final = "questions"
DELEGATE_UPDATE: Final = "delegate"
SEND_UPDATE: Final = "send"
INTERRUPT_UPDATE: Final = "interrupt"
CLOSE_UPDATE: Final = "close"
STATUS_QUERY: Final = "status"
INBOX_QUERY: Final = "inbox"
RESULT_QUERY: Final = "result"
TURNS_QUERY: Final = "turns"
REPORT_UPDATE: Final = "report"
COLLECT_UPDATE: Final = "collect"
NOTICES_QUERY: Final = "notices"
CHILDREN_QUERY: Final = "children"
FROM_CHILD_SIGNAL: Final = "from_child"
"""What a workflow that is a parent gets from its children: a `Notice` each."""
DELIVER_SIGNAL: Final = "deliver"
"""A message for a conversation, from a workflow; others use the update `send`, which answers."""

TASK_QUEUE: Final = "lastword"

MEMO_FINGERPRINT: Final = "lastword_request"
MEMO_LABEL: Final = "lastword_label"
MEMO_BACKEND: Final = "lastword_backend"
MEMO_MODEL: Final = "lastword_model"


def start_memo(fingerprint: str, backend: str, label: str | None, model: str | None) -> dict[str, str | None]:
    """What a list shows of a child without asking it, and by what an id is known to stand for one request."""
    return {MEMO_FINGERPRINT: fingerprint, MEMO_BACKEND: backend, MEMO_LABEL: label, MEMO_MODEL: model}


# Types of ApplicationError between the activities and the workflow.
ERROR_REJECTED: Final = "RequestRejected"
ERROR_WORKER_SHUTDOWN: Final = "WorkerShutdown"
ERROR_OWNERSHIP_LOST: Final = "OwnershipLost"
ERROR_INTERRUPTED: Final = "AttemptInterrupted"
ERROR_LIMIT: Final = "LimitReached"
ERROR_CLOSED: Final = "ConversationClosed"
ERROR_INBOX_FULL: Final = "InboxFull"
ERROR_NO_QUESTION: Final = "NoSuchQuestion"

_MAX_ID_BYTES = 200
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def check_id(id: str) -> str:
    """The id, if a person may choose it.

    `/` is reserved for the ids of children's children.
    """
    if not id or id != id.strip() or _CONTROL.search(id):
        raise RequestInvalid(
            f"The id {id!r} is empty or has blanks at its ends or control characters; choose another id."
        )
    if "/" in id:
        raise RequestInvalid(f"The id {id!r} has a '/', which is reserved for children of children; choose another id.")
    if len(id.encode()) > _MAX_ID_BYTES:
        raise RequestInvalid(
            f"The id has {len(id.encode())} bytes, at most {_MAX_ID_BYTES} are allowed; choose a shorter id."
        )
    return id


def folder_of(session_id: str, run_id: str) -> str:
    """The name of a session's folder in the log's store: readable, unique for id and run, safe on every file system.

    The run id is part of it because a server forgets ids after its retention, and a log does not.
    """
    slug = re.sub(r"[^a-z0-9]+", "-", session_id.lower()).strip("-")[:40] or "session"
    digest = hashlib.sha256(f"{session_id}\0{run_id}".encode()).hexdigest()[:20]
    return f"{slug}-{digest}"
