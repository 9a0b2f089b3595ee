"""Options of Spark's JSON functions with which nothing is lost: by default Spark cuts timestamps to milliseconds."""

from typing import Final

#: Times with microseconds, instants in UTC.
TIMES: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "timeZone": "UTC",
}
#: For ``to_json``: nulls are written, too.
WHOLE: Final = {**TIMES, "ignoreNullFields": "false"}
