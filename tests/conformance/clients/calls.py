"""The requests of public clients of Kafka Connect and how they read the answers, taken from their sources (2026-11).

A field's type is what the client's deserialiser takes. Fields that it leaves out are left out here; where it refuses what it
does not know (values of enumerations), so do these types.
"""

from __future__ import annotations

from .kafbat import KAFBAT
from .kcctl import KCCTL
from .redpanda import REDPANDA
from .strimzi import STRIMZI
from .terraform import TERRAFORM

CLIENTS = (KCCTL, KAFBAT, REDPANDA, STRIMZI, TERRAFORM)
