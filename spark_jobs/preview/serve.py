"""A preview for a client of an application: from its request to its answer."""

from __future__ import annotations

import logging
import time
import traceback
from typing import TYPE_CHECKING, Any

from connectors.errors import MillraceError
from spark_jobs.spark.causes import cause_of, describe_error
from worker.secrets.masking import SecretMasker, scrub_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from spark_jobs.preview.limits import Limit
    from spark_jobs.preview.request import PreviewMessage

_log = logging.getLogger("spark_jobs.preview")


def answer_preview(
    message: PreviewMessage, open_session: Callable[[str, dict[str, str]], SparkSession], limit: Limit
) -> dict[str, Any]:
    """The answer to a request: ``{"result": ...}``, or ``{"error": text, "kind": name of the error's class}``. Blocks.

    Args:
        message: the request.
        open_session: gives a session for a flow of this name, with these settings of Spark.
        limit: ends the preview.
    """
    from spark_jobs.config import job_files as config

    masker = SecretMasker()
    try:
        masker.learn(message.configuration, config.find_parts(message.configuration).definition.keys.values())
        begin = time.monotonic()
        result = _run_preview(message, open_session, limit)
        result["duration_ms"] = round((time.monotonic() - begin) * 1000)
        answer: dict[str, Any] = {"result": result}
    except MillraceError as error:
        answer = {"error": str(error), "kind": type(error).__name__}
    except Exception as error:  # noqa: BLE001 - the client gets it, whatever it is
        _log.error("a preview failed: %s", masker.scrub(traceback.format_exc()))
        cause = cause_of(error)
        answer = {"error": describe_error(cause), "kind": type(cause).__name__}
    scrubbed: dict[str, Any] = scrub_all(answer, masker.scrub)
    return scrubbed


def _run_preview(
    message: PreviewMessage, open_session: Callable[[str, dict[str, str]], SparkSession], limit: Limit
) -> dict[str, Any]:
    from spark_jobs.config import job_files as config

    job = config.build_flow(message.configuration)[0]
    from spark_jobs.preview.run import run_preview

    with limit:
        spark = open_session(f"preview of {job.flow_name}", message.settings)
        limit.guard(spark)
        return run_preview(job, message.request, spark, limit)
