"""Applies a plan step by step, waits until the cluster shows each step, and reports a result for each.

A step for a topic that was recreated since the plan is refused. After a step without an answer the cluster is queried: if it
does not show the change, the outcome is unknown.
"""

from collections.abc import Callable

from playhead.errors import AccessDenied, PlayheadError, Refused, TimedOut, Unreachable, Untrusted, WrongProtocol
from playhead.kafka.topic_configs import TopicSettings, alter_topic_config, list_topic_settings
from playhead.kafka.topics import add_partitions, create_topic, delete_topic, describe_topics
from playhead.model import Deadline, Result
from playhead.topics.names import list_topic_names
from playhead.topics.plan import Configure, Create, Delete, Step, TopicOutcome, TopicOutcomes, TopicPlan, Widen
from playhead.topics.session import Session

_LEAST_SECONDS = 5.0


def apply_plan(session: Session, plan: TopicPlan, *, force: bool = False) -> TopicOutcomes:
    """Raises `Refused` before anything is done, if there are objections and `force` is not set."""
    if plan.objections and not force:
        what = "\n".join(objection.what for objection in plan.objections)
        raise Refused(what, plan.objections[0].hint)
    outcomes: list[TopicOutcome] = []
    for step in plan.steps:
        result, detail = _done(session, step)
        outcomes += [TopicOutcome(change, result, detail) for change in step.changes]
    return TopicOutcomes(tuple(outcomes))


def _done(session: Session, step: Step) -> tuple[Result, str]:
    try:
        _check_same(session, step)
        _act(session, step)
    except Refused as error:
        return Result.REFUSED, error.what
    except PlayheadError as error:
        if not _answer_was_lost(error):
            return Result.FAILED, error.what
        return _seen(session, step, f"{error.what}; it may have happened")
    return _seen(session, step, "it was accepted, but the cluster does not show it yet")


def _check_same(session: Session, step: Step) -> None:
    if isinstance(step, Create):
        return
    found = describe_topics(session.admin, [step.topic], session.deadline)[step.topic]
    if found is None or found.id != step.id:
        raise Refused(f"{step.topic} was deleted or recreated since the plan")


def _act(session: Session, step: Step) -> None:
    admin, deadline = session.admin, session.deadline
    match step:
        case Create():
            partitions, copies = step.partitions or -1, step.copies or -1
            create_topic(admin, step.topic, partitions, deadline, copies=copies, config=step.config)
        case Widen():
            add_partitions(admin, step.topic, step.partitions, deadline)
        case Configure():
            alter_topic_config(admin, step.topic, step.config, step.unset, deadline)
        case Delete():
            delete_topic(admin, step.topic, deadline)


def _answer_was_lost(error: PlayheadError) -> bool:
    return isinstance(error, Unreachable) and not isinstance(error, AccessDenied | Untrusted | WrongProtocol)


def _seen(session: Session, step: Step, otherwise: str) -> tuple[Result, str]:
    """Brokers see a change a moment after the controller made it."""
    patience = Deadline(max(_LEAST_SECONDS, session.deadline.remaining()))
    try:
        patience.wait_for(_condition(session, step, patience), f"seeing the change of {step.topic}", every=0.05)
    except TimedOut:
        return Result.UNKNOWN, f"{otherwise}; check with: playhead topics show {step.topic}"
    except PlayheadError as error:
        return Result.UNKNOWN, f"it was accepted, but could not be read back: {error.what}"
    return Result.CHANGED, ""


def _condition(session: Session, step: Step, deadline: Deadline) -> Callable[[], bool]:
    match step:
        case Create():
            return lambda: (
                _has_shape(session, step.topic, step.partitions, deadline)
                and _has_settings(
                    session, step.topic, lambda now: all(_own(now, k) == v for k, v in step.config.items()), deadline
                )
            )
        case Widen():
            return lambda: _has_shape(session, step.topic, step.partitions, deadline)
        case Configure():
            return lambda: _has_settings(
                session,
                step.topic,
                lambda now: (
                    all(_own(now, k) == v for k, v in step.config.items())
                    and all(_own(now, k) is None for k in step.unset)
                ),
                deadline,
            )
    return lambda: _is_gone(session, step.topic, deadline)


def _has_shape(session: Session, name: str, partitions: int | None, deadline: Deadline) -> bool:
    """True if all partitions exist, each with a leader. The queried broker may know less than the controller."""
    found = describe_topics(session.admin, [name], deadline)[name]
    if found is None or any(partition.is_offline for partition in found.partitions):
        return False
    return bool(found.partitions) if partitions is None else len(found.partitions) == partitions


def _has_settings(session: Session, name: str, is_right: Callable[[TopicSettings], bool], deadline: Deadline) -> bool:
    found = list_topic_settings(session.admin, [name], deadline)[name]
    return found is not None and is_right(found)


def _own(now: TopicSettings, key: str) -> str | None:
    setting = now.get(key)
    return setting.value if setting is not None and setting.is_of_topic else None


def _is_gone(session: Session, name: str, deadline: Deadline) -> bool:
    return describe_topics(session.admin, [name], deadline)[name] is None and name not in list_topic_names(session)
