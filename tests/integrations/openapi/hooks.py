"""Constraints on valid requests that OpenAPI cannot express, for schemathesis: existing apps, zones and channels,
ranges that do not end before they begin, and cursors."""

import itertools
import os
import random

import schemathesis
from schemathesis.generation import GenerationMode

APPS = ["app-x", "app-x", "app-x", "app-y", "app-z"]
ZONES = ["UTC", "Asia/Shanghai", "America/New_York", "europe/berlin", "Pacific/Apia", "Africa/Monrovia",
         "+08:00", "-0330"]
CHANNELS = ["unknown", "toutiao", '"a,b"']
RANGES = [
    ("2026-03-10", "2026-03-10"),
    ("2026-03-01", "2026-03-31T23:59:59.999+08:00"),
    ("1970-01-01T00:00:00Z", "9999-12-30"),
    ("2026-03-10T00:00Z", "2026-03-10T00:00Z"),
    ("2026-03-10T08:00", "2026-03-10T09:15:00.5"),
    ("2024-02-29", "2100-02-28T12:00-03:30"),
]
SOURCES = ["", "organic", *CHANNELS]
EXPORT_IDS = itertools.count(0xF000_0000_0000_0000)
DEVICES = [
    ("oaid", "00000001-1111-4222-8333-444444444444"),
    ("oaid_md5", "0123456789abcdef0123456789abcdef"),
    ("idfa", "AEBE52E7-03EE-455A-B3C4-E57283966239"),
    ("mac", "02:00:5e:10:00:01"),
]


@schemathesis.hook
def before_call(_context, case, **_kwargs):
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return
    # Seeded with the generated case, so that a seed repeats its requests.
    chance = random.Random(repr((case.method, case.path_parameters, case.query)))
    path = case.path_parameters
    if path and "app" in path:
        path["app"] = chance.choice(APPS)
    if path and "kind" in path:
        path["kind"], path["value"] = chance.choice(DEVICES)
    if path and "event_id" in path:
        # The last two do not exist.
        path["event_id"] = f"a-{chance.randrange(12)}"
    if path and "id" in path:
        path["id"] = os.environ["EXPORT_ID"]
    query = case.query
    if not query:
        return
    if "from" in query and "to" in query:
        query["from"], query["to"] = chance.choice(RANGES)
    if "timezone" in query:
        query["timezone"] = chance.choice(ZONES)
    if "channel" in query:
        # The other app has no campaigns.
        known = CHANNELS if path["app"] == "app-x" else CHANNELS[:1]
        query["channel"] = ",".join(chance.sample(known, chance.randint(1, len(known))))
    if "media_source" in query:
        known = SOURCES if path["app"] == "app-x" else SOURCES[:2]
        query["media_source"] = chance.choice(known)
    if "preset" in query or "fields" in query or "additional_fields" in query:
        # fields and additional_fields exclude each other.
        if "additional_fields" in query and "report" not in path:
            query["preset"] = "appsflyer"
        if query.get("preset") == "appsflyer":
            query.pop("fields", None)
    if "export_id" in query:
        query["export_id"] = f"{next(EXPORT_IDS):016x}"
    query.pop("after", None)
