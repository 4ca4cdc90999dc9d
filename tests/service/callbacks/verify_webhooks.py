"""Verifies webhooks with the library of Standard Webhooks. Reads a JSON object: `secret`, and `requests` with their
headers and bodies. Prints how many it has verified."""

import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

given = json.load(sys.stdin)
webhook = Webhook(given["secret"])
for request in given["requests"]:
    assert webhook.verify(request["body"], request["headers"]) == json.loads(request["body"])
    try:
        webhook.verify(request["body"].replace("attributed", "rejected"), request["headers"])
    except WebhookVerificationError:
        continue
    sys.exit("a changed body was verified")
print(f"{len(given['requests'])} verified")
