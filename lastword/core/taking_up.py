"""How a child that keeps a session of its own is taken up: by which session, and with what it is told."""

from __future__ import annotations

from lastword.core.contract import SessionRef, TurnSpec
from lastword.core.events import Block, text_block
from lastword.core.ports import Earlier, Resume
from lastword.core.recovery import GO_ON
from lastword.core.transcript import with_transcript


def session_to_take_up(resume: Resume | None, earlier: Earlier | None) -> SessionRef | None:
    """That of the turn that was cut, else that of the conversation; None for a new one."""
    if resume is not None:
        return resume.session
    return earlier.session if earlier is not None else None


def prompt_of(spec: TurnSpec, resume: Resume | None, earlier: Earlier | None) -> list[Block]:
    """What the child is told: to go on, if it is known to have begun; else the prompt, in front of it what it lacks."""
    if resume is not None and resume.next_step > 1:
        return [text_block(GO_ON)]
    if earlier is not None and session_to_take_up(resume, earlier) is None:
        return with_transcript(earlier, spec.task.prompt_blocks)
    return spec.task.prompt_blocks
