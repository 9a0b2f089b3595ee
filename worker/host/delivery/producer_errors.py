"""The meaning of a Kafka client's errors for a producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiokafka import errors as kafka

from connectors.errors import MillraceError, Retriable
from offsets.aiokafka_internals import InvalidRecordError, sender_task

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer


class TransactionLost(MillraceError):
    """The open transaction can't be committed; its owner must start again from the last committed position."""


class TopicRecreated(Retriable):
    """A topic has fewer partitions than before: what waits for the others can't be written, so its owner must start again."""


def classify_error(error: BaseException) -> str:
    """Classify a failed batch: ``fenced``, ``fatal``, ``split`` (a record in it is refused) or ``rebuild`` (an outage)."""
    if isinstance(error, kafka.ProducerFenced | kafka.InvalidProducerEpoch | kafka.TransactionCoordinatorFenced):
        return "fenced"
    if isinstance(
        error,
        kafka.MessageSizeTooLargeError
        | kafka.RecordListTooLargeError
        | kafka.InvalidTimestampError
        | kafka.CorruptRecordException
        | InvalidRecordError,
    ):
        return "split"
    if isinstance(
        error,
        kafka.TopicAuthorizationFailedError
        | kafka.ClusterAuthorizationFailedError
        | kafka.TransactionalIdAuthorizationFailed
        | kafka.InvalidTopicError
        | kafka.UnsupportedVersionError
        | kafka.UnsupportedForMessageFormatError
        | kafka.InvalidRequiredAcksError
        | kafka.PolicyViolationError
        | kafka.SaslAuthenticationFailed
        | kafka.UnsupportedCodecError,
    ):
        return "fatal"
    return "rebuild"


def is_too_large(error: BaseException) -> bool:
    """Whether a batch is refused for its size: smaller ones may be taken."""
    return isinstance(error, kafka.MessageSizeTooLargeError | kafka.RecordListTooLargeError)


def is_topic_missing(error: BaseException) -> bool:
    """Whether a batch failed as it does where its topic was deleted; a partition that has no leader for long looks alike."""
    return isinstance(
        error, kafka.UnknownTopicOrPartitionError | kafka.NotLeaderForPartitionError | kafka.LeaderNotAvailableError
    )


def is_partition_unknown(error: BaseException) -> bool:
    """Whether the client knows the topic of a batch, and no such partition of it."""
    return isinstance(error, AssertionError) and "Unrecognized partition" in str(error)


def is_about_record(error: BaseException) -> bool:
    """Whether a batch is refused for what a record of it is: however the record is sent, it will be refused."""
    return isinstance(error, kafka.InvalidTimestampError | InvalidRecordError)


def refusal_hint(error: BaseException, topic: str) -> str:
    """Return what to do about a record that the broker refuses; "" where the error says it."""
    if isinstance(error, kafka.InvalidTimestampError):
        return (
            f". Its timestamp is too far from the broker's clock: correct what gives it, or set {topic}'s "
            "message.timestamp.after.max.ms and message.timestamp.before.max.ms, or message.timestamp.type=LogAppendTime"
        )
    if not isinstance(error, InvalidRecordError):
        return ""
    return (
        f". A compacted topic refuses records without a key, and heartbeat.to.tables=true writes such records: set "
        f"cleanup.policy=delete for {topic}, or heartbeat.to.tables=false"
    )


def permission_hint(error: BaseException) -> str:
    """Return the missing permission, as a sentence; "" if the error is about something else."""
    if isinstance(error, kafka.ClusterAuthorizationFailedError):
        return ". Give its user the permission Write on the topics it writes to, or IdempotentWrite on the cluster"
    if isinstance(error, kafka.TransactionalIdAuthorizationFailed):
        return ". Give its user the permissions Describe and Write on its transactional ids (they begin with group.id)"
    return ""


def cause_of(error: BaseException, client: AIOKafkaProducer) -> BaseException:
    """The error that ended the client's sender, where ``error`` only says that the client's state permits no such call."""
    sender = sender_task(client)
    if isinstance(error, kafka.IllegalOperation | AssertionError) and sender.done() and not sender.cancelled():
        return sender.exception() or error
    return error
