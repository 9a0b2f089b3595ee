"""The cases in which something breaks: connections, the server, the login, the job's process."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from connectors.errors import Fatal, Retriable
from spark_jobs.spark.causes import cause_of
from spark_jobs.testing.batches import change
from spark_jobs.testing.child import Child
from spark_jobs.testing.kit import describe_error, expect_failure, parse_config
from spark_jobs.testing.model import RuleBroken
from spark_jobs.testing.target import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spark_jobs.contract import TableSchema
    from spark_jobs.testing.batches import BatchData, Change
    from spark_jobs.testing.kit import Kit

#: Steps at which connections are broken, at most; each costs two writes.
_BREAKS: Final = 8
#: Steps at which the job is killed, at most: each costs the start of a Python, or of a JVM.
_KILLS: Final = 4
_KILLS_OF_JVM: Final = 2


def _make_earlier_changes() -> list[Change]:
    return [change("i", 10 + n, id=n, name=f"a{n}", amount=float(n)) for n in range(20)]


def _make_later_changes(kit: Kit, begin: int) -> list[Change]:
    """Updates, inserts, and deletes where the sink has those; ``begin``: the first number."""
    changes = [change("u", begin + n, id=n, name=f"b{n}") for n in range(0, 20, 2)]
    changes += [change("i", begin + 100 + n, id=begin + n, name="new") for n in range(10)]
    return changes + ([change("d", begin + 200 + n, id=n) for n in (1, 3)] if kit.target.supports.delete else [])


def _require_guarantee(kit: Kit) -> None:
    if kit.guarantee == "none":
        raise Unsupported("the sink promises nothing after a crash (guarantee none)")


def spread_evenly(steps: int, max_count: int) -> list[int]:
    """At most ``max_count`` of the numbers 1 to ``steps``, evenly spread, the last one among them. Pure."""
    count = min(steps, max_count)
    return sorted({round(steps * (index + 1) / count) for index in range(count)})


def server_down(kit: Kit) -> None:
    """An unavailable server is Retriable, and soon reported; when it is back, the same batch is written, once."""
    _require_guarantee(kit)
    table = kit.table("down")
    kit.write((table, _make_earlier_changes()))
    data = kit.batch((table, _make_later_changes(kit, 1000)))
    with kit.target.outage():
        begin = time.monotonic()
        expect_failure(
            "a running sink's write while the server is unavailable", Retriable, lambda: kit.write_batch(data)
        )
        took = time.monotonic() - begin
        if took > kit.target.limit_s:
            raise RuleBroken(f"expected an error within {kit.target.limit_s:.0f} s, actual: after {took:.0f} s")
        fresh = kit.make()

        def open_and_write() -> None:
            fresh.open()
            fresh.write(data.frames(kit.spark))

        expect_failure(
            "open or the first write of a new sink while the server is unavailable", Retriable, open_and_write
        )
        if not kit.kind.check(kit.config()):
            raise RuleBroken("check() while the server is unavailable: expected a complaint, actual none")
        kit.kind.plan(kit.config())  # says it in a line, and raises nothing
    kit.finish(data, "the server is back")
    kit.expect(table, "the server was unavailable and is back")


def server_slow(kit: Kit) -> None:
    """A server that answers late is waited for, or the batch is Retriable; it is written once."""
    _require_guarantee(kit)
    table = kit.table("slow")
    kit.write((table, _make_earlier_changes()))
    data = kit.batch((table, _make_later_changes(kit, 1000)))
    with kit.target.slowness():
        kit.finish(data, "the server answers late")
    kit.expect(table)


def server_silent(kit: Kit) -> None:
    """A server that takes connections and answers nothing is Retriable after a timeout, not waited for without end."""
    _require_guarantee(kit)
    table = kit.table("silent")
    kit.write((table, _make_earlier_changes()))
    data = kit.batch((table, _make_later_changes(kit, 1000)))
    ended: list[BaseException | None] = []

    def write() -> None:
        try:
            kit.write_batch(data)
        except Exception as error:  # noqa: BLE001 - judged below
            ended.append(cause_of(error))
        else:
            ended.append(None)

    thread = threading.Thread(target=write, daemon=True)
    with kit.target.silence():
        thread.start()
        thread.join(kit.target.limit_s)
        hangs = thread.is_alive()
    thread.join(kit.target.limit_s)  # the connections are closed by now
    if hangs:
        raise RuleBroken(
            f"expected connectors.errors.Retriable within {kit.target.limit_s:.0f} s (SinkTarget.limit_s), "
            "actual: write still waits for the server's answer; give its client a timeout"
        )
    if not isinstance(ended[0], Retriable):
        description = "no error" if ended[0] is None else describe_error(ended[0])
        raise RuleBroken(f"expected connectors.errors.Retriable, actual: {description}")
    kit.finish(data, "the server answers again")
    kit.expect(table, "the server was silent and answers again")


def refused_login(kit: Kit) -> None:
    """A login that the server refuses is a complaint of check() by its option, and Fatal in a job; no secret is shown."""
    wrong = dict(kit.target.wrong_login())
    properties = kit.properties(**wrong)
    plain = [value for name, value in properties.items() if name not in kit.secret_names()]
    secrets = {properties[name] for name in kit.secret_names() if properties.get(name)}
    secrets = {complaint for complaint in secrets if not any(complaint in value for value in plain)}
    complaints = kit.kind.check(parse_config(properties))
    if not complaints:
        raise RuleBroken("check(): expected a complaint, actual none")
    for complaint in complaints:
        option = complaint.partition(":")[0]
        if option not in kit.kind.config_def.keys:
            raise RuleBroken(f"check(): expected `<option>: <text>` with an option of the sink, actual {complaint!r}")
    sink = kit.make(**wrong)
    table = kit.table("login")
    data = kit.batch((table, _make_earlier_changes()))

    def run() -> None:
        sink.open()
        sink.write(data.frames(kit.spark))

    error = expect_failure("open or the first write with a wrong login", Fatal, run)
    for shown_text in (*complaints, str(error), *kit.kind.plan(parse_config(properties))):
        for secret in secrets:
            if secret in shown_text:
                raise RuleBroken(f"a secret is shown: {shown_text.replace(secret, '<the secret>')}")


def connection_breaks_at_every_step(kit: Kit) -> None:
    """A connection that breaks at any request, before it or before its answer, is Retriable; nothing is lost or twice."""
    _require_guarantee(kit)
    gate = kit.target.gate
    if gate is None:
        raise Unsupported("the target has no gate, so its requests can't be seen")
    table = kit.table("breaks")
    kit.write((table, _make_earlier_changes()))
    before = gate.requests
    kit.write((table, _make_later_changes(kit, 1000)))
    steps = gate.requests - before
    broken = 0
    for number, step in enumerate(spread_evenly(steps, _BREAKS)):
        for lose_answer in (False, True) if step == steps else (bool(number % 2),):
            data = kit.batch((table, _make_later_changes(kit, 2000 + 1000 * (2 * number + lose_answer))))
            gate.break_at(step, lose_answer=lose_answer)
            where = (
                f"the connection broke at request {step} of {steps}, its {'answer' if lose_answer else 'request'} lost"
            )
            try:
                kit.finish(data, where)
            finally:
                broken += not gate.keep_whole()
            kit.expect(table, where)
    if not broken:
        raise RuleBroken(
            "no connection broke: the sink does not go through the gate; name its port in SinkTarget.options"
        )


def killed_at_every_step(kit: Kit) -> None:
    """A job that is killed at any step loses nothing and writes nothing twice, once a new run has written the batch again."""
    _require_guarantee(kit)
    table = kit.table("killed")
    kit.write((table, _make_earlier_changes()))
    watch = _StepWatch(kit)
    data = kit.batch((table, _make_later_changes(kit, 1000)))
    steps = watch.count(lambda: _as_new(kit, data))
    kit.expect(table, "a batch is written")
    during = 0
    for number, step in enumerate(spread_evenly(steps, watch.kills)):
        before = kit.changes(table)
        data = kit.batch((table, _make_later_changes(kit, 2000 + 1000 * number)))
        with watch.child() as child:
            during += watch.kill(child, data, step, lose=bool(number % 2))
        where = f"the job was killed at step {step} of {steps}"
        if kit.target.supports.transactions:
            _all_or_nothing(kit, table, before, where)
        kit.restart()
        kit.finish(data, f"{where}, and its batch written again")
        kit.expect(table, f"{where}, and its batch written again")
    if not during:
        raise RuleBroken("no child was killed within its write; the steps of the target can't be seen")


def _as_new(kit: Kit, data: BatchData) -> None:
    kit.restart()
    kit.write_batch(data)


def _all_or_nothing(kit: Kit, table: TableSchema, before: Sequence[Change], where: str) -> None:
    """Whether a killed batch is there as a whole or not at all."""
    without = kit.problem(table, before, repeats=False)
    if without and kit.problem(table, kit.changes(table), repeats=False):
        raise RuleBroken(
            f"{where}: expected the batch as a whole or nothing of it (transactions); actual, compared with "
            f"nothing:\n{without}"
        )


class _StepWatch:
    """Counts a target's steps, and kills a child at one: requests through its gate, else changes in its folder."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._gate = kit.target.gate
        self._folder = None if self._gate is not None else kit.target.folder()

    @property
    def kills(self) -> int:
        """At how many steps at most."""
        return _KILLS if self._gate is not None else _KILLS_OF_JVM

    def count(self, step: Callable[[], object]) -> int:
        """The steps of a call."""
        before = self._count_steps()
        step()
        return max(1, self._count_steps() - before)

    def child(self) -> Child:
        """A driver to be killed. What writes in the JVM has to be killed with it, what writes in Python has not."""
        has_own_jvm = self._gate is None or self._kit.target.supports.writes_in_jvm
        return Child(self._kit.properties(), None if has_own_jvm else self._kit.spark)

    def kill(self, child: Child, data: BatchData, step: int, *, lose: bool) -> bool:
        """Let a child write a batch, and kill it at a step, or when it has written.

        Args:
            child: the driver.
            data: the batch.
            step: 1 is the first.
            lose: whether the request at which it is killed does not reach the server.

        Returns:
            Whether it was killed before it had written.
        """
        child.wait_ready()
        before = self._count_steps()

        def stop() -> None:
            child.kill()
            if lose and self._gate is not None:
                self._gate.drop()

        if self._gate is not None:
            self._gate.on_request = lambda number: stop() if number - before >= step else None
        try:
            child.write(data)
            while not (written := child.written()) and child.alive():
                if self._folder is not None and self._count_steps() - before >= step:
                    break
                time.sleep(0.001)
        finally:
            child.kill()
            if self._gate is not None:
                self._gate.on_request = None
        return not written

    def _count_steps(self) -> int:
        if self._gate is not None:
            return self._gate.requests
        return sum(1 for _ in self._folder.rglob("*")) if self._folder is not None else 0
