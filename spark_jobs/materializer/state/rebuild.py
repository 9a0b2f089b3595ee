"""``millrace job rebuild``: a lost output topic from the state, or the state from the input. The job must not run meanwhile."""

from __future__ import annotations

import logging
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from connectors.errors import ConfigInvalid, Fatal
from spark_jobs.config import job_files as frame_config
from spark_jobs.control import lock_job
from spark_jobs.kafka import clients
from spark_jobs.materializer import config as options
from spark_jobs.materializer import topics
from spark_jobs.materializer.job import raise_errors
from spark_jobs.materializer.job_topics import input_topics, prepare_topics, read_markers, take_ownership
from spark_jobs.materializer.pass_tasks import run_buckets
from spark_jobs.materializer.passes import PassRange, Result
from spark_jobs.materializer.per_topic import choose_topic, config_for
from spark_jobs.materializer.state.changelog import Changelog
from spark_jobs.spark.checkpoint import local_path
from spark_jobs.spark.gateway import hadoop_configuration, jvm_of
from spark_jobs.spark.session import build_session
from worker.command_parser import CommandParser
from worker.terminal import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from connectors.options import Config
    from spark_jobs.job import Job
    from spark_jobs.materializer.contract import Engine


def main(argv: Sequence[str]) -> int:
    """The command. Returns 0."""
    parser = CommandParser(
        prog="millrace job rebuild",
        description="Makes what a materializer job has lost. The job must be stopped; "
        "start it again afterwards. See docs/jobs/materializer.md.",
    )
    parser.add_argument("file", metavar="FILE", help="the job, YAML or JSON")
    modes = parser.add_mutually_exclusive_group(required=True)
    modes.add_argument(
        "--output",
        action="store_true",
        help="write every row of the state to the output topic, which was lost or is another one now; "
        "the job then continues behind it. Continues where it was if it is interrupted, and does "
        "nothing if all is there",
    )
    modes.add_argument(
        "--state",
        action="store_true",
        help="throw the state and the checkpoint away: at its next start the job reads its input from "
        "the beginning and writes all events again",
    )
    parser.add_argument(
        "--drop-output",
        action="store_true",
        help="with --state: delete the output topic too, so "
        "that its readers don't see the old events before "
        "the new ones",
    )
    parser.add_argument("--topic", help="the input topic, of a job that materializes several")
    arguments = parser.parse_args(list(argv))
    job = load_job(arguments.file)
    if not arguments.state:
        choose_topic(job.config, arguments.topic)
    # A run on another machine is found by the marker's owner: it stops with an error.
    with lock_job(job):
        if arguments.state:
            for line in reset_state(job, drop_output=arguments.drop_output):
                print(line)  # noqa: T201 - a command
            return 0
        spark = session_of(job)
        try:
            config = choose_topic(job.config, arguments.topic)
            with progress(f"writing {config['sink.kafka.topic']} again", quiet_s=2):
                rows = rebuild_output(spark, config, options.EngineFactory(options.merge_options(config)))
        finally:
            spark.stop()
    events = sum(result.outputs for result in rows)
    target = config["sink.kafka.topic"]
    summary = (
        f"{events} events were written to {target}"
        if events
        else f"{target} has all rows already (to have them written again, delete the topic)"
    )
    print(summary)  # noqa: T201 - a command
    return 0


def load_job(file: str) -> Job:
    """The job of a file.

    Raises:
        ConfigInvalid: it is wrong, or does not materialize.
    """
    job = frame_config.load_job(file)
    if not job.materializes:
        raise ConfigInvalid(f"{file}: the job {job.name} has no transform.type=materialize, so it has no state")
    return job


def session_of(job: Job) -> SparkSession:
    """A session with the job's own Spark settings. Blocks: starts a JVM."""
    settings = {f"spark.{name}": value for name, value in job.config.prefixed("spark.").items() if name != "master"}
    with progress("starting Spark", quiet_s=2):
        spark = build_session(f"{job.name}-command", master=job.master, conf=settings, extra_jars=job.jar_sets())
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def rebuild_output(spark: SparkSession, config: Config, engine: Callable[[int], Engine]) -> list[Result]:
    """Write all rows of the state to the output topic, if its id is not the one that has them; exactly once. Blocks.

    Returns:
        What each bucket did.

    Raises:
        Fatal: there is no state.
        Retriable: Kafka does not answer; call again.
    """
    bucket_options = prepare_topics(config, engine, None, rebuild_output=True, log=logging.getLogger(__name__).info)
    changelog = Changelog(bucket_options.client, bucket_options.changelog_topic, bucket_options.group)
    try:
        markers = read_markers(changelog, bucket_options.count)
    finally:
        changelog.close()
    if not markers:
        raise Fatal(
            f"the changelog {bucket_options.changelog_topic} is empty: there is no state to write an output from; run "
            "millrace job rebuild with --state to make it again from the input"
        )
    rows = run_buckets(spark, take_ownership(bucket_options, markers), {bucket: PassRange() for bucket in markers})
    raise_errors(rows)
    return rows


def reset_state(job: Job, *, drop_output: bool = False) -> list[str]:
    """Delete changelog, caches and checkpoint; what was done, line by line. Blocks.

    Raises:
        ConfigInvalid: the job would not read its input from the beginning.
        Retriable, Fatal: Kafka does not answer or refuses.
    """
    config = job.config
    if config["source.starting.offsets"] != "earliest":
        raise ConfigInvalid(
            "source.starting.offsets is latest: the new state would lack all that was written before; set it "
            "to earliest"
        )
    if config["source.savepoint"]:
        raise ConfigInvalid(
            "source.savepoint is set: without its checkpoint the job would start from the savepoint, and not from its input; "
            "remove the option"
        )
    admin = topics.KafkaTopics(clients.build_client_config(config))
    sources = [admin.require(topic) for topic in input_topics(config)]
    lines = []
    # The checkpoint is deleted first: without it the job reads everything; with only the checkpoint left it would not run.
    lines.append(_remove_checkpoint(job))
    for topic in sources:
        table = config_for(config, topic.name)
        name = options.changelog_topic(table)
        admin.delete(name)
        lines.append(f"deleted the changelog {name}")
        if drop_output:
            admin.delete(table["sink.kafka.topic"])
            lines.append(f"deleted the output {table['sink.kafka.topic']}")
    for part in ("buckets", "frames", "topics"):
        shutil.rmtree(Path(config["state.dir"]) / part, ignore_errors=True)
    lines.append(f"deleted the caches in {config['state.dir']}")
    names = ", ".join(f"{topic.name} ({topic.partitions} partitions)" for topic in sources)
    lines.append(f"start the job: it reads {names} from its beginning and makes the state again")
    return lines


def _remove_checkpoint(job: Job) -> str:
    folder = local_path(job.checkpoint)
    if folder is not None:
        # The lock that this process holds is in there; no other process needs it any more.
        shutil.rmtree(folder, ignore_errors=True)
        return f"deleted the checkpoint {folder}"
    spark = session_of(job)
    try:
        jvm: Any = jvm_of(spark)
        path = jvm.org.apache.hadoop.fs.Path(job.checkpoint)
        path.getFileSystem(hadoop_configuration(spark)).delete(path, True)
    finally:
        spark.stop()
    return f"deleted the checkpoint {job.checkpoint}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
